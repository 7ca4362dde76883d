"""The whole match of a rule's payload in Python, for what the compiled part leaves: expressions and variables.

It carries out what `flowshunt_ids.matching` does, with the same order and retries, one buffer at a time.
"""

from collections.abc import Callable, Sequence
from typing import Any

import attrs

from flowshunt_ids.matching import STEPS
from flowshunt_ids.rules.keywords.pcre import compile_pattern
from flowshunt_ids.rules.rule import (
    ByteExtract,
    ByteJump,
    ByteTest,
    Content,
    IsDataAt,
    Match,
    Number,
    Pcre,
    is_relative,
)

PCRE_SECONDS = 0.05
"""How long one search of an expression may take; then it counts as no match."""

_MASK63 = (1 << 63) - 1


@attrs.define
class InspectionCounters:
    """What happened in matching: evaluations in Python, and expressions that ran out of time or of steps."""

    evaluations: int = 0
    expression_timeouts: int = 0
    step_limits: int = 0


class _StepLimitError(Exception):
    pass


_COMPARE: dict[str, Callable[[int, int], bool]] = {
    "<": lambda value, wanted: value < wanted,
    ">": lambda value, wanted: value > wanted,
    "=": lambda value, wanted: value == wanted,
    "<=": lambda value, wanted: value <= wanted,
    ">=": lambda value, wanted: value >= wanted,
    "&": lambda value, wanted: value & wanted != 0,
    "^": lambda value, wanted: value ^ wanted != 0,
}


class PayloadMatcher:
    """One rule's payload, ready to be matched."""

    def __init__(self, payload: Sequence[Match], counters: InspectionCounters) -> None:
        self._payload = tuple(payload)
        self._counters = counters
        self._next_relative = tuple(
            any(is_relative(later) for later in _until_next_place(self._payload, at))
            for at in range(len(self._payload))
        )
        self._expressions: dict[int, Any] = {
            at: compile_pattern(match.pattern, match.flags)
            for at, match in enumerate(self._payload)
            if isinstance(match, Pcre)
        }
        self._steps = 0
        self._lowered: bytes | None = None

    def matches(self, buffer: bytes) -> bool:
        """Whether the payload matches a buffer."""
        self._counters.evaluations += 1
        self._steps = 0
        self._lowered = None
        try:
            return self._from(0, 0, buffer, {})
        except _StepLimitError:
            self._counters.step_limits += 1
            return False

    def _from(self, at: int, place: int, buffer: bytes, variables: dict[str, int]) -> bool:
        """Whether the matches from number `at` on match, the last match having ended at `place`."""
        if at == len(self._payload):
            return True
        self._steps += 1
        if self._steps > STEPS:
            raise _StepLimitError
        match = self._payload[at]
        if isinstance(match, Content):
            return self._content(match, at, place, buffer, variables)
        if isinstance(match, Pcre):
            return self._pcre(match, at, place, buffer, variables)
        if isinstance(match, IsDataAt):
            amount = _value(match.amount, variables)
            enough = place + amount <= len(buffer) if match.relative else amount < len(buffer)
            return enough != match.negated and self._from(at + 1, place, buffer, variables)
        read = _read(match.number, place, buffer, variables)
        if read is None:
            return False
        value, start, used = read
        if isinstance(match, ByteTest):
            holds = _COMPARE[match.operator](value, _value(match.value, variables))
            return holds != match.negated and self._from(at + 1, place, buffer, variables)
        value *= match.multiplier
        if isinstance(match, ByteExtract):
            if match.align and value % match.align:
                value += match.align - value % match.align
            return self._from(at + 1, start + used, buffer, {**variables, match.name: value & _MASK63})
        if match.align and value % 4:
            value += 4 - value % 4
        value += _value(match.post_offset, variables)
        target = {"beginning": 0, "end": len(buffer)}.get(match.origin, start + used) + value
        if target > len(buffer):
            return False
        return self._from(at + 1, max(target, 0), buffer, variables)

    def _content(self, match: Content, at: int, place: int, buffer: bytes, variables: dict[str, int]) -> bool:
        low, high = _bounds(match, place, len(buffer), variables)
        if match.nocase:
            if self._lowered is None:
                self._lowered = buffer.lower()
            text = self._lowered
        else:
            text = buffer
        size = len(match.pattern)
        while True:
            found = -1
            if high > 0 and low + size <= high:
                if not match.endswith:
                    found = text.find(match.pattern, low, high)
                elif high == len(buffer) and text.endswith(match.pattern):
                    found = len(buffer) - size
            if match.negated:
                return found < 0 and self._from(at + 1, place, buffer, variables)
            if found < 0:
                return False
            if self._from(at + 1, found + size, buffer, variables):
                return True
            if not self._next_relative[at]:
                return False
            low = found + 1

    def _pcre(self, match: Pcre, at: int, place: int, buffer: bytes, variables: dict[str, int]) -> bool:
        # A relative expression sees nothing before the last match: `^` matches there.
        first = place if match.relative else 0
        subject = buffer[first:] if first else buffer
        start = 0
        while start <= len(subject):
            try:
                found = self._expressions[at].search(subject, start, timeout=PCRE_SECONDS)
            except TimeoutError:
                self._counters.expression_timeouts += 1
                return False
            if match.negated:
                return found is None and self._from(at + 1, place, buffer, variables)
            if found is None:
                return False
            if self._from(at + 1, first + found.end(), buffer, variables):
                return True
            if not self._next_relative[at]:
                return False
            start = found.start() + 1
        return False


def _until_next_place(payload: Sequence[Match], at: int) -> list[Match]:
    """The matches after number `at`, up to and with the next one that sets the place that relative ones count from."""
    later: list[Match] = []
    for match in payload[at + 1 :]:
        later.append(match)
        if isinstance(match, Content | Pcre | ByteJump):
            break
    return later


def _value(given: int | str, variables: dict[str, int]) -> int:
    return variables[given] if isinstance(given, str) else given


def _bounds(match: Content, place: int, length: int, variables: dict[str, int]) -> tuple[int, int]:
    if match.relative:
        distance = _value(match.distance or 0, variables)
        high = length
        if match.within is not None:
            high = min(high, place + distance + _value(match.within, variables))
        return max(place + distance, 0), high
    offset = _value(match.offset or 0, variables)
    return offset, length if match.depth is None else min(length, offset + _value(match.depth, variables))


_DIGITS = {8: b"01234567", 10: b"0123456789", 16: b"0123456789abcdef"}


def _read(number: Number, place: int, buffer: bytes, variables: dict[str, int]) -> tuple[int, int, int] | None:
    """A number in the buffer: (value, where it starts, bytes used); None: there is none."""
    start = _value(number.offset, variables) + (place if number.relative else 0)
    if start < 0 or start + number.count > len(buffer):
        return None
    raw = buffer[start : start + number.count]
    if number.count == 0:
        return 0, start, 0
    if number.base == 0:
        value, used = int.from_bytes(raw, "little" if number.little else "big"), number.count
    else:
        text = raw.lower().lstrip(b" \t\n\v\f\r")
        sign = text[:1] if text[:1] in (b"+", b"-") else b""
        text = text[len(sign) :]
        if number.base == 16 and text.startswith(b"0x") and len(text) > 2:
            text = text[2:]
        rest = text.lstrip(_DIGITS[number.base])
        if len(rest) == len(text):
            return None
        value = int(text[: len(text) - len(rest)], number.base)
        value = -value if sign == b"-" else value
        used = len(raw) - len(rest)
    value &= _MASK63
    if number.mask:
        value = (value & number.mask) >> ((number.mask & -number.mask).bit_length() - 1)
    return value, start, used
