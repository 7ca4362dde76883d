"""Captures that were damaged at random: what was before the damage is read as it was, and nothing else is raised."""

import gzip
import os
import subprocess
import sys
from pathlib import Path

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


BOUNDS_CHECKED = """
import random, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import numba
assert numba.config.BOUNDSCHECK
from test_capture_mutations import FORMATS, read_changed
source = random.Random(1)
for whole in FORMATS.values():
    for size in range(len(whole)):
        read_changed(Path(sys.argv[2]), whole[:size])
    for _ in range(300):
        changed = bytearray(whole)
        for _ in range(source.randrange(1, 5)):
            changed[source.randrange(len(changed))] = source.choice((0, 1, 12, 0x7F, 0x80, 0xFF, source.randrange(256)))
        read_changed(Path(sys.argv[2]), bytes(changed))
print("done")
"""


def test_no_kernel_reads_outside_its_arrays(tmp_path):
    """The same with Numba's own bounds checks, in a process of its own, for they are chosen at compile time."""
    done = subprocess.run(
        [sys.executable, "-c", BOUNDS_CHECKED, str(Path(__file__).parent), str(tmp_path)],
        env={**os.environ, "NUMBA_BOUNDSCHECK": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.returncode) == ("done\n", 0), done.stderr
