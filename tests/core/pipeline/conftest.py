import struct
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def capture(tmp_path):
    """Writes frames, 1 ms apart, to a pcap file and gives its path."""

    def write(frames, *, gap_ns=1_000_000, start=1_700_000_000_000_000_000, name="frames.pcap"):
        path = tmp_path / name
        with path.open("wb") as out:
            out.write(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 262144, 1))
            for number, frame in enumerate(frames):
                seconds, rest = divmod(start + number * gap_ns, 10**9)
                out.write(struct.pack("<IIII", seconds, rest, len(frame), len(frame)) + frame)
        return str(path)

    return write
