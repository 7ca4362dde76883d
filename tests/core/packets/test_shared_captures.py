"""The captures that the project's data holds, where it is there: all read and decode, as scapy reads them."""

import os
from pathlib import Path

import pytest
from capture_bytes import read
from scapy.utils import RawPcapReader

from flowshunt.packets.capture import open_captures
from flowshunt.packets.decode import decode
from flowshunt.packets.headers import UNKNOWN_LINK

SHARED = Path(os.environ.get("FLOWSHUNT_SHARED") or Path(__file__).parents[4] / "shared") / "data" / "pcaps"
CAPTURES = sorted(SHARED.glob("*.pcap")) if SHARED.is_dir() else []

pytestmark = pytest.mark.skipif(not CAPTURES, reason="the shared captures are not here")


def test_every_capture_has_the_frames_that_scapy_finds():
    for path in CAPTURES:
        found, problems = read(path)
        with RawPcapReader(str(path)) as reader:
            expected = [(data, meta.sec * 10**9 + meta.usec * 1000, meta.wirelen, meta.caplen) for data, meta in reader]
        assert [(f.data, f.time, f.wire, len(f.data)) for f in found] == expected, path
        assert not any(problem.damage for problem in problems), path


def test_every_frame_is_decoded():
    for path in CAPTURES:
        with open_captures([path]) as source:
            for batch in source:
                rows = decode(batch)
                assert not (rows["flags"] & UNKNOWN_LINK).any(), path
                assert (rows["payload"] + rows["payload_length"] <= batch.captured).all(), path


def test_the_folder_as_one_capture_has_every_frame():
    frames = sum(len(read(path)[0]) for path in CAPTURES)
    with open_captures([SHARED]) as source:
        assert sum(len(batch) for batch in source) == frames
        assert source.bytes_read == source.total_bytes == sum(path.stat().st_size for path in CAPTURES)
