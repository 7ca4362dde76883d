"""Bursts follow the size of the captures, so that verdicts take effect within a small one."""

import pytest

from flowshunt.pipeline.burst import LARGEST_BURST, SMALLEST_BURST, UNKNOWN_SIZE_BURST, default_burst


def _file(path, size):
    with path.open("wb") as out:
        out.truncate(size)
    return str(path)


@pytest.mark.parametrize(
    ("size", "burst"), [(0, SMALLEST_BURST), (80_000_000, 5000), (2_000_000_000, LARGEST_BURST)], ids=str
)
def test_a_burst_is_a_small_part_of_the_capture(tmp_path, size, burst):
    assert default_burst([_file(tmp_path / "a.pcap", size)]) == burst


def test_files_and_folders_add_up(tmp_path):
    (tmp_path / "folder").mkdir()
    captures = [_file(tmp_path / "a.pcap", 40_000_000), str(tmp_path / "folder")]
    _file(tmp_path / "folder" / "b.pcap", 40_000_000)
    assert default_burst(captures) == 5000


@pytest.mark.parametrize("capture", ["-", "/dev/null", "/no/such/file"])
def test_the_size_of_a_stream_is_not_known(capture):
    assert default_burst([capture]) == UNKNOWN_SIZE_BURST
