"""Captures that were damaged at random: what was before the damage is read as it was, and nothing else is raised."""

import gzip

import pytest
import zstandard
from capture_bytes import Frame, frames, interface, pcap, pcapng, read, section
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flowshunt.errors import InputError

PROPERTY = settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])

CONTENT = [Frame(bytes([65 + row]) * (20 + row), frame.time).full for row, frame in enumerate(frames(12))]
FORMATS = {
    "pcap": pcap(CONTENT),
    "pcap, big endian": pcap(CONTENT, order=">"),
    "pcapng": pcapng(CONTENT),
    "pcapng, big endian": pcapng(CONTENT, order=">"),
}
WHOLE = pytest.mark.parametrize("whole", FORMATS.values(), ids=FORMATS.keys())

CHANGES = st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(1, 255)), min_size=1, max_size=4)


def frame_ends(whole):
    """Where each frame's record ends."""
    ends, at = [], 0
    for frame in CONTENT:
        at = whole.index(frame.data, at) + len(frame.data)
        ends.append(at)
    return ends


def read_changed(tmp_path, content):
    path = tmp_path / "changed"
    path.write_bytes(content)
    try:
        return read(path, batch_frames=5)
    except InputError:
        return [], []


@WHOLE
@PROPERTY
@given(changes=CHANGES)
def test_frames_before_the_first_change_are_as_they_were(tmp_path, whole, changes):
    content = bytearray(whole)
    for at, flip in changes:
        content[at % len(whole)] ^= flip
    first = min(at % len(whole) for at, _ in changes)
    before = sum(end + 4 + 3 <= first for end in frame_ends(whole))
    if first >= 28 + len(interface(resolution=9)):
        assert read_changed(tmp_path, bytes(content))[0][:before] == CONTENT[:before]
    else:
        read_changed(tmp_path, bytes(content))


@WHOLE
@PROPERTY
@given(cut=st.integers(0, 1 << 20), rest=st.binary(max_size=80))
def test_any_bytes_may_follow_a_cut(tmp_path, whole, cut, rest):
    cut %= len(whole)
    found, _ = read_changed(tmp_path, whole[:cut] + rest)
    before = sum(end + 4 + 3 <= cut for end in frame_ends(whole))
    assert found[:before] == CONTENT[:before]


@PROPERTY
@given(content=st.binary(max_size=300))
def test_any_bytes_after_a_pcapng_start(tmp_path, content):
    found, problems = read_changed(tmp_path, section() + interface() + content)
    assert all(len(frame.data) <= len(content) for frame in found)
    assert len(problems) <= 1 + len({frame.link for frame in found})


@PROPERTY
@given(content=st.binary(max_size=300), start=st.sampled_from([b"", *[w[:24] for w in FORMATS.values()]]))
def test_any_bytes_after_any_start(tmp_path, start, content):
    read_changed(tmp_path, start + content)


@pytest.mark.parametrize("compress", [gzip.compress, zstandard.ZstdCompressor(write_checksum=True).compress])
@PROPERTY
@given(changes=CHANGES)
def test_changed_compressed_captures_raise_nothing_else(tmp_path, compress, changes):
    content = bytearray(compress(FORMATS["pcap"]))
    for at, flip in changes:
        content[at % len(content)] ^= flip
    found, problems = read_changed(tmp_path, bytes(content))
    assert found == CONTENT or problems or not found
