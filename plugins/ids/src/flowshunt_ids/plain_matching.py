"""Matching of contents and expressions none of which counts from where another ended: each by itself, cheap ones first.

Most buffers of most rules are of this kind. What `flowshunt_ids.inspection` would answer, without its retries.
"""

import sys
from collections.abc import Callable, Sequence
from typing import Any

from flowshunt_ids.inspection import PCRE_SECONDS, InspectionCounters
from flowshunt_ids.rules.keywords.pcre import compile_pattern
from flowshunt_ids.rules.rule import BufferSize, Content, IsDataAt, Match, Pcre, is_relative, variables_of


def plain_matcher(matches: Sequence[Match], counters: InspectionCounters) -> Callable[..., bool] | None:
    """What tells whether a buffer matches; None where some match needs more than the buffer.

    Takes the buffer, and like `PayloadMatcher.matches` optionally variables, which it neither needs nor adds to.
    """
    if not all(_is_plain(match) for match in matches):
        return None
    contents = [_content(match) for match in matches if isinstance(match, Content) and not match.endswith]
    exact = tuple(each[1:] for each in contents if not each[0])
    lowered = tuple(each[1:] for each in contents if each[0])
    ends = tuple(_content(match) for match in matches if isinstance(match, Content) and match.endswith)
    sizes = tuple((match.low, match.high, match.negated) for match in matches if isinstance(match, BufferSize))
    places = tuple((int(match.amount), match.negated) for match in matches if isinstance(match, IsDataAt))
    expressions = [match for match in matches if isinstance(match, Pcre)]
    compiled: list[Any] = []

    def search(buffer: bytes) -> bool:
        if not compiled:
            compiled.extend(compile_pattern(match.pattern, match.flags) for match in expressions)
        for match, expression in zip(expressions, compiled, strict=True):
            try:
                found = expression.search(buffer, timeout=PCRE_SECONDS)
            except TimeoutError:
                counters.expression_timeouts += 1
                return False
            if (found is None) != match.negated:
                return False
        return True

    def call(buffer: bytes, _variables: dict[str, int] | None = None) -> bool:
        counters.evaluations += 1
        size = len(buffer)
        for low, high, negated in sizes:
            if (low <= size <= high) == negated:
                return False
        for amount, negated in places:
            if (amount < size) == negated:
                return False
        for pattern, low, high, negated in exact:
            if (buffer.find(pattern, low, high) >= 0) == negated:
                return False
        if lowered:
            text = buffer.lower()
            for pattern, low, high, negated in lowered:
                if (text.find(pattern, low, high) >= 0) == negated:
                    return False
        for nocase, pattern, low, high, negated in ends:
            tail = buffer[size - len(pattern) :] if low + len(pattern) <= size <= high else b""
            if ((tail.lower() if nocase else tail) == pattern) == negated:
                return False
        return not expressions or search(buffer)

    return call


def _is_plain(match: Match) -> bool:
    if isinstance(match, Content):
        return bool(match.pattern) and not match.relative and not variables_of(match)
    if isinstance(match, BufferSize):
        return True
    return isinstance(match, Pcre | IsDataAt) and not is_relative(match) and not variables_of(match)


def _content(match: Content) -> tuple[bool, bytes, int, int, bool]:
    """(nocase, literal, where it may begin, where it has to end, negated)."""
    low = int(match.offset or 0)
    high = sys.maxsize if match.depth is None else low + int(match.depth)
    return match.nocase, match.pattern, low, high, match.negated
