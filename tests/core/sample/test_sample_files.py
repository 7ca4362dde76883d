"""The files that a sample is, the command that writes them, and what happens when they can't be written."""

import json
import subprocess
import sys

import pytest
from click.testing import CliRunner

from flowshunt.cli.sample import command
from flowshunt.errors import InputError
from flowshunt.packets.sample import write_sample

NAMES = ["x.pcap", "x.pcap.alerts.json", "x.pcap.rules", "x.pcap.summary.json"]


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_four_files_are_written(tmp_path):
    write_sample(tmp_path / "x.pcap", flows=50)
    assert names(tmp_path) == NAMES


def test_the_summary_file_is_what_the_command_prints(tmp_path):
    result = CliRunner().invoke(command, [str(tmp_path / "x.pcap"), "--flows", "50", "--json"])
    assert result.exit_code == 0
    printed = json.loads(result.stdout)
    assert printed == json.loads((tmp_path / "x.pcap.summary.json").read_text())
    assert printed["flows"] == 50
    assert printed["tcp_share"] == pytest.approx(printed["tcp_frames"] / printed["frames"], abs=1e-6)


def test_the_command_says_what_it_wrote(tmp_path):
    result = CliRunner().invoke(command, [str(tmp_path / "x.pcap"), "--flows", "50", "--seed", "2"])
    assert result.exit_code == 0
    assert "planted alerts" in result.stdout
    assert str(tmp_path / "x.pcap.rules") in result.stdout


def test_progress_reaches_the_number_of_flows(tmp_path):
    calls = []
    write_sample(tmp_path / "x.pcap", flows=400, progress=lambda done, total: calls.append((done, total)))
    assert len(calls) > 3
    assert calls == sorted(calls)
    assert calls[-1] == (400, 400)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"flows": 0}, "flows"),
        ({"seed": -1}, "seed"),
        ({"rate": 0.0}, "rate"),
        ({"rate": float("nan")}, "rate"),
    ],
)
def test_numbers_out_of_range_are_refused(tmp_path, arguments, words):
    with pytest.raises(InputError, match=words):
        write_sample(tmp_path / "x.pcap", **arguments)
    assert names(tmp_path) == []


def test_a_folder_is_refused(tmp_path):
    with pytest.raises(InputError, match="is a folder"):
        write_sample(tmp_path)


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(InputError, match=r"there is no folder .*missing"):
        write_sample(tmp_path / "missing" / "x.pcap")


def test_a_device_is_refused():
    with pytest.raises(InputError, match="not a regular file"):
        write_sample("/dev/null")


def test_an_interrupt_leaves_nothing_new_and_what_was_there(tmp_path):
    (tmp_path / "x.pcap").write_bytes(b"before")

    def interrupt(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_sample(tmp_path / "x.pcap", flows=400, progress=interrupt)
    assert names(tmp_path) == ["x.pcap"]
    assert (tmp_path / "x.pcap").read_bytes() == b"before"


LIMITED = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
from flowshunt.cli import main
main(["sample", sys.argv[1]])
"""


def test_a_file_that_can_not_grow_ends_on_one_line_with_nothing_left_behind(tmp_path):
    result = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path / "x.pcap")], capture_output=True, text=True, check=False
    )
    assert result.returncode == 2
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert f"{tmp_path / 'x.pcap'}: can't be written: File too large; nothing was left behind" in line
    assert names(tmp_path) == []
