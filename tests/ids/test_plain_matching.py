"""Matches that don't count from each other are answered as by the matcher that can do all."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowshunt_ids.inspection import InspectionCounters, PayloadMatcher
from flowshunt_ids.plain_matching import plain_matcher
from flowshunt_ids.rules.rule import BufferSize, ByteTest, Content, IsDataAt, Number, Pcre

BYTES = st.binary(max_size=12).map(lambda data: bytes(b"abAB"[value & 3] for value in data))
PLACE = st.none() | st.integers(0, 14)
CONTENTS = st.builds(
    lambda pattern, nocase, **more: Content(pattern.lower() if nocase else pattern, nocase, **more),
    pattern=BYTES.filter(bool),
    nocase=st.booleans(),
    negated=st.booleans(),
    offset=PLACE,
    depth=PLACE,
    endswith=st.booleans(),
)
PLACES = st.builds(IsDataAt, st.integers(0, 14), negated=st.booleans())
SIZES = st.builds(BufferSize, st.integers(0, 6), st.integers(4, 14), st.booleans())
EXPRESSIONS = st.builds(Pcre, st.sampled_from([b"^a", b"b$", b"a+B", b"(?i)bb"]), negated=st.booleans())


@given(st.lists(CONTENTS | PLACES | SIZES | EXPRESSIONS, max_size=4), BYTES)
def test_answers_are_those_of_the_whole_matcher(matches, buffer):
    plain = plain_matcher(matches, InspectionCounters())

    assert plain is not None
    assert plain(buffer) == PayloadMatcher(matches, InspectionCounters()).matches(buffer)


@pytest.mark.parametrize(
    "match",
    [
        Content(b"a", distance=0),
        Content(b"a", within=3),
        Content(b"a", offset="place"),
        Pcre(b"a", relative=True),
        IsDataAt("size"),
        ByteTest(Number(1, 0), ">", 3),
    ],
)
def test_what_needs_more_than_the_buffer_is_left_to_the_whole_matcher(match):
    assert plain_matcher([Content(b"a"), match], InspectionCounters()) is None


def test_every_answer_is_counted():
    counters = InspectionCounters()
    plain = plain_matcher([Content(b"a")], counters)

    assert [plain(b"xa"), plain(b"xb", {})] == [True, False]
    assert counters.evaluations == 2
