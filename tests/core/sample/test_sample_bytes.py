"""Equal arguments give equal bytes, everywhere."""

import hashlib

import pytest

from flowshunt.packets.sample import write_sample


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def files(summary):
    return [summary.capture, summary.rules, summary.alerts]


def test_equal_arguments_give_equal_bytes(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first = write_sample(tmp_path / "a" / "x.pcap", flows=150)
    second = write_sample(tmp_path / "b" / "x.pcap", flows=150)
    assert [digest(path) for path in files(first)] == [digest(path) for path in files(second)]


@pytest.mark.parametrize("change", [{"seed": 4}, {"flows": 151}, {"rate": 50.0}])
def test_other_arguments_give_other_bytes(tmp_path, change):
    first = write_sample(tmp_path / "a.pcap", flows=150, seed=3)
    second = write_sample(tmp_path / "b.pcap", **{"flows": 150, "seed": 3} | change)
    assert digest(first.capture) != digest(second.capture)


def test_the_bytes_are_the_same_on_every_machine(tmp_path):
    """Change this value only with what is written: it is the same on every Python, processor and system."""
    summary = write_sample(tmp_path / "x.pcap", flows=200, seed=11)
    assert digest(summary.capture) == "29b7d09e7104e7be9c51e2f10da0a2165eb6e327c65c408af8b0711c96e1be0a"
