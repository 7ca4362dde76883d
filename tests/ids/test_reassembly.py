"""Reassembly against a plain model: a dictionary of bytes in which the first to come stays."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numba import types

from flowshunt.compiled import column, kernel
from flowshunt_ids.layout import PIECE, SEGMENT, SIDE, SIDE_STREAM
from flowshunt_ids.streams.pool import ARENA_USED, LOST_BYTES, NODES_USED, POOL, keep_pending, new_pool
from flowshunt_ids.streams.reassembly import MAX_AHEAD, OUTPUT, Output, insert, inspect_pending

STREAM = bytes(np.random.default_rng(1).integers(0, 256, 400, np.uint8))


@kernel(types.void(POOL, column(SIDE), types.uint32, types.int64, types.int64))
def put(pool, sides, seq, length, source):
    insert(pool, sides, 0, seq, length, source)


@kernel(types.void(POOL, column(SIDE), types.boolean, OUTPUT, OUTPUT))
def cut(pool, sides, everything, out, app):
    inspect_pending(pool, sides, 0, everything, out, app, 0, 0, 0)


class Side:
    """One side of one connection, fed through the kernels."""

    def __init__(self, start=0, arena=1 << 20):
        self.pool = new_pool(8192, arena)
        self.sides = np.zeros(2, SIDE)
        for name in ("head", "tail", "ahead", "ahead_tail"):
            self.sides[name] = -1
        for name in ("start", "seen", "next", "acked"):
            self.sides[name] = start
        self.sides["flags"] = SIDE_STREAM
        self.start = start
        self.given = []

    def batch(self, segments, end=None, everything=False):
        """Insert segments (offset, bytes) of one batch, then inspect up to `end`; gives the segments cut off."""
        data = np.frombuffer(b"".join(text for _offset, text in segments) or b"\0", np.uint8)
        at = 0
        for offset, text in segments:
            put(self.pool, self.sides, np.uint32((self.start + offset) % 2**32), len(text), at)
            at += len(text)
        out = Output(np.zeros(4096, SEGMENT), np.zeros(4096, PIECE), np.zeros(3, np.int64))
        if end is not None:
            self.sides["acked"][0] = (self.start + end) % 2**32
        if end is not None or everything:
            cut(self.pool, self.sides, everything, out, out)
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


SEGMENTS = st.lists(
    st.tuples(st.integers(0, 390), st.integers(1, 60)).map(lambda p: (p[0], min(p[0] + p[1], 400))), max_size=25
)


@given(SEGMENTS, st.sampled_from([0, 2**32 - 150, 2**31 - 100]), st.lists(st.integers(1, 5), max_size=12))
def test_any_order_and_repetition_gives_the_stream(cuts, start, sizes):
    whole = [(at, min(at + 37, 400)) for at in range(0, 400, 37)]
    side = Side(start)
    pending = [(low, STREAM[low:high]) for low, high in [*cuts, *whole]]
    for size in sizes:
        side.batch(pending[:size])
        pending = pending[size:]
    assert b"".join(side.batch(pending, everything=True)) == STREAM
    assert side.pool.state[NODES_USED] == 0
    assert side.pool.state[ARENA_USED] == 0


@given(
    st.lists(st.tuples(st.integers(0, 100), st.binary(min_size=1, max_size=30)), max_size=20),
    st.lists(st.integers(1, 4), max_size=10),
)
def test_of_bytes_that_differ_the_first_to_come_stay(segments, sizes):
    first: dict[int, int] = {}
    for offset, text in segments:
        for at, value in enumerate(text, offset):
            first.setdefault(at, value)
    expected, run = [], b""
    for at in range(200):
        if at in first:
            run += bytes([first[at]])
        elif run:
            expected.append(run)
            run = b""
    side = Side(77)
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
    side = Side(arena=1 << 22)
    segments = [(2 * at + 1, b"x") for at in range(MAX_AHEAD + 500)]
    side.batch(segments)
    assert side.sides["ahead_count"][0] == MAX_AHEAD
    assert side.pool.state[LOST_BYTES] == 500


def test_a_full_arena_loses_bytes_and_counts_them():
    side = Side(arena=4096)
    for at in range(10):
        side.batch([(at * 1000, b"x" * 1000)])
    assert side.pool.state[ARENA_USED] <= 4096
    assert side.pool.state[LOST_BYTES] > 0
    kept = sum(len(text) for text in side.batch([], everything=True))
    assert kept + side.pool.state[LOST_BYTES] == 10_000
    assert side.pool.state[ARENA_USED] == 0
