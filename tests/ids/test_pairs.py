"""Two bytes that stand side by side: a look before a long search, that never hides a match."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numba import types

from flowshunt.compiled import column, kernel
from flowshunt_ids.encoding import _pair
from flowshunt_ids.matching import PAIRS, PAIRS_SIZE, note_pairs
from flowshunt_ids.rules.rule import Content


@kernel(types.void(column(np.uint8), types.int64, types.int64, PAIRS))
def note(buffer, start, end, pairs):
    note_pairs(buffer, start, end, pairs)


def noted(pairs):
    return {(int(at) >> 8, int(at) & 255) for at in np.flatnonzero(pairs[:-1] == pairs[-1])}


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=4))
def test_the_pairs_of_the_last_segment_are_noted_and_no_others(segments):
    pairs = np.zeros(PAIRS_SIZE, np.int32)
    for segment in segments:
        note(np.frombuffer(b"xy" + segment + b"zz", np.uint8).copy(), 2, 2 + len(segment), pairs)

    assert noted(pairs) == set(zip(segments[-1], segments[-1][1:], strict=False))


def test_counting_begins_anew_before_the_numbers_run_out():
    pairs = np.zeros(PAIRS_SIZE, np.int32)
    pairs[1] = 1
    pairs[-1] = (1 << 31) - 1

    note(np.frombuffer(b"ab", np.uint8).copy(), 0, 2, pairs)

    assert noted(pairs) == {(ord("a"), ord("b"))}


def test_the_rarest_pair_stands_for_a_payload():
    assert _pair([Content(b"  \x9d\x7bee")]) == 0x9D7B


def test_contents_that_may_be_absent_or_written_otherwise_or_end_early_give_no_pair():
    contents = [Content(b"ab", negated=True), Content(b"ab", nocase=True), Content(b"ab", depth=9), Content(b"a")]

    assert _pair([*contents, Content(b"ab", within=9)]) == -1
