"""Reassembly against plain models: a dictionary of bytes in which the first or the last to come stays."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import types

from flowshunt.compiled import BYTES, column, kernel
from flowshunt_ids.layout import PIECE, POLICIES, SEGMENT, SIDE, SIDE_STREAM
from flowshunt_ids.streams.checks import COMPARE_OVERLAPS, SETTINGS, SETTINGS_SIZE
from flowshunt_ids.streams.delivery import drop_read
from flowshunt_ids.streams.pool import ARENA_USED, HELD, LOST_BYTES, NODES_USED, POOL, keep_pending, new_pool
from flowshunt_ids.streams.reassembly import (
    DIFFERENT,
    MANY,
    MAX_SEGMENTS,
    OUTPUT,
    TAKEN,
    Output,
    insert,
    inspect_pending,
)

STREAM = bytes(np.random.default_rng(1).integers(0, 256, 400, np.uint8))


@kernel(types.int64(POOL, column(SIDE), types.int64, types.int64, types.int64, types.boolean, BYTES))
def put(pool, sides, seq, length, source, compare, data):
    return insert(pool, sides, 0, seq, length, source, compare, data, data[:0])


@kernel(types.void(POOL, column(SIDE), types.boolean, OUTPUT, SETTINGS))
def cut(pool, sides, everything, out, settings):
    inspect_pending(pool, sides, 0, everything, out, 0, 0, 0)
    if everything:
        sides[0].acked = sides[0].right
    drop_read(pool, sides, 0, settings)


class Side:
    """One side of one connection, fed through the kernels."""

    def __init__(self, start=0, memory=1 << 20, policy="first", compare=False):
        self.pool = new_pool(8192, memory)
        self.sides = np.zeros(2, SIDE)
        for name in ("head", "tail", "middle"):
            self.sides[name] = -1
        for name in ("start", "base", "seen", "parsed", "next", "right", "acked"):
            self.sides[name] = start
        self.sides["flags"] = SIDE_STREAM
        self.sides["policy"] = POLICIES.index(policy)
        self.start = start
        self.compare = compare
        self.settings = np.zeros(SETTINGS_SIZE, np.int64)
        self.settings[COMPARE_OVERLAPS] = compare
        self.settings.flags.writeable = False
        self.done = []

    def batch(self, segments, end=None, everything=False):
        """Insert segments (offset, bytes) of one batch, then inspect up to `end`; gives the segments cut off."""
        data = np.frombuffer(b"".join(text for _offset, text in segments) or b"\0", np.uint8)
        at = 0
        for offset, text in segments:
            seq = (self.start + offset) % 2**32
            self.done.append(put(self.pool, self.sides, seq, len(text), at, self.compare, data))
            at += len(text)
        out = Output(np.zeros(8192, SEGMENT), np.zeros(8192, PIECE), np.zeros(4, np.int64))
        if end is not None:
            self.sides["acked"][0] = (self.start + end) % 2**32
        if end is not None or everything:
            cut(self.pool, self.sides, everything, out, self.settings)
        found = []
        for segment in out.segments[: out.counts[0]]:
            text = b""
            for piece in out.pieces[segment["first_piece"] :][: segment["pieces"]]:
                source = self.pool.arena if piece["arena"] else data
                text += source[piece["source"] : piece["source"] + int(piece["length"])].tobytes()
            assert len(text) == segment["length"]
            found.append(text)
        keep_pending(self.pool, self.sides, np.zeros(1, np.int32), 1, data, data[:0])
        return found

    def freed(self):
        """Whether nothing is kept any more."""
        state = self.pool.state
        return state[NODES_USED] == state[ARENA_USED] == state[HELD] == 0


SEGMENTS = st.lists(
    st.tuples(st.integers(0, 390), st.integers(1, 60)).map(lambda p: (p[0], min(p[0] + p[1], 400))), max_size=25
)


@given(
    SEGMENTS,
    st.sampled_from([0, 2**32 - 150, 2**31 - 100]),
    st.lists(st.integers(1, 5), max_size=12),
    st.sampled_from(POLICIES[1:]),
)
def test_any_order_and_repetition_gives_the_stream(cuts, start, sizes, policy):
    whole = [(at, min(at + 37, 400)) for at in range(0, 400, 37)]
    side = Side(start, policy=policy)
    pending = [(low, STREAM[low:high]) for low, high in [*cuts, *whole]]
    for size in sizes:
        side.batch(pending[:size])
        pending = pending[size:]
    assert b"".join(side.batch(pending, everything=True)) == STREAM
    assert side.freed()


@given(
    st.lists(st.tuples(st.integers(0, 100), st.integers(1, 9)), max_size=20),
    st.lists(st.integers(1, 4), max_size=10),
    st.sampled_from(["first", "last"]),
)
def test_of_bytes_that_differ_the_first_or_the_last_to_come_stay(places, sizes, policy):
    first: dict[int, int] = {}
    segments = [(10 * (offset // 10), bytes([65 + turn]) * 10) for turn, (offset, _size) in enumerate(places)]
    for offset, text in segments:
        for at, value in enumerate(text, offset):
            if policy == "last":
                first[at] = value
            first.setdefault(at, value)
    expected, run = [], b""
    for at in range(200):
        if at in first:
            run += bytes([first[at]])
        elif run:
            expected.append(run)
            run = b""
    side = Side(77, policy=policy)
    pending = list(segments)
    for size in sizes:
        side.batch(pending[:size])
        pending = pending[size:]
    assert side.batch(pending, everything=True) == expected


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 60)), min_size=1, max_size=12))
def test_nothing_is_inspected_twice_or_before_it_is_acknowledged(steps):
    side = Side(5)
    sent = inspected = acked = 0
    for wanted, more in steps:
        length = min(wanted, 400 - sent)
        acked = min(sent + length, acked + more)
        text = b"".join(side.batch([(sent, STREAM[sent : sent + length])] if length else [], end=acked))
        sent += length
        assert text == STREAM[inspected:acked]
        inspected = max(inspected, acked)


def test_a_hole_parts_the_stream_once_bytes_behind_it_are_acknowledged():
    side = Side()
    assert side.batch([(0, b"hello"), (15, b"world")], end=10) == [b"hello"]
    assert side.batch([], end=20) == [b"world"]


def test_what_lies_behind_holes_is_bounded():
    side = Side(memory=1 << 22)
    side.batch([(2 * at + 1, b"x") for at in range(MAX_SEGMENTS + 500)])
    assert side.sides["count"][0] == MAX_SEGMENTS
    assert side.done.count(MANY) == 500
    assert side.pool.state[LOST_BYTES] == 500


def test_full_memory_loses_bytes_and_counts_them():
    side = Side(memory=4096)
    for at in range(10):
        side.batch([(at * 1000, b"x" * 1000)])
    assert side.pool.state[HELD] <= 4096
    kept = sum(len(text) for text in side.batch([], everything=True))
    assert kept == 4000
    assert side.pool.state[LOST_BYTES] == 6000
    assert side.freed()


OVERLAPS = [
    # what came first, what came then, and what each policy keeps
    ((5, b"aaaaa"), (0, b"bbbbbbb"), {"bsd": b"bbbbbbbaaa", "first": b"bbbbbaaaaa", "solaris": b"bbbbbaaaaa"}),
    ((5, b"aaaaa"), (0, b"b" * 12), {"bsd": b"b" * 12, "vista": b"bbbbbaaaaabb", "solaris": b"b" * 12}),
    ((0, b"aaaaa"), (3, b"bbbbb"), {"linux": b"aaaaabbb", "solaris": b"aaabbbbb", "last": b"aaabbbbb"}),
    ((0, b"aaaaa"), (0, b"bbbbb"), {"windows": b"aaaaa", "old-linux": b"bbbbb", "hpux11": b"bbbbb", "linux": b"aaaaa"}),
    ((0, b"aaa"), (0, b"bbbbb"), {"windows": b"aaabb", "linux": b"bbbbb", "solaris": b"bbbbb", "macos": b"aaabb"}),
    ((0, b"aaaaa"), (0, b"bbb"), {"solaris": b"aaaaa", "linux": b"aaaaa", "last": b"bbbaa"}),
]


@pytest.mark.parametrize(
    ("old", "new", "policy", "kept"),
    [(old, new, policy, kept) for old, new, by_policy in OVERLAPS for policy, kept in by_policy.items()],
)
@pytest.mark.parametrize("batches", [1, 2])
def test_overlaps_by_the_policy_of_the_receiver(old, new, policy, kept, batches):
    side = Side(policy=policy)
    if batches == 1:
        assert side.batch([old, new], everything=True) == [kept]
    else:
        side.batch([old])
        assert side.batch([new], everything=True) == [kept]
    assert side.freed()


def test_an_overlap_that_differs_is_told_where_overlaps_are_compared():
    side = Side(compare=True)
    side.batch([(0, b"abcd"), (2, b"cdef"), (2, b"cXef")])
    assert side.done == [TAKEN, TAKEN, DIFFERENT]


def test_bytes_that_are_read_stay_as_they_are_when_others_replace_them():
    side = Side(policy="last")
    side.batch([(0, b"aaaa")])
    data = np.frombuffer(b"bbbb", np.uint8)
    out = Output(np.zeros(8, SEGMENT), np.zeros(8, PIECE), np.zeros(4, np.int64))
    side.sides["acked"][0] = 2
    cut(side.pool, side.sides, False, out, side.settings)
    put(side.pool, side.sides, 0, 4, 0, False, data)
    piece = out.pieces[0]
    assert side.pool.arena[piece["source"] : piece["source"] + 2].tobytes() == b"aa"
    assert side.batch([], everything=True) == [b"bb"]
