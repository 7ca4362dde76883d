"""The whole match of a rule's payload in Python, for what the compiled part leaves: expressions and variables.

It carries out what `flowshunt_ids.matching` does, with the same order and retries, one buffer at a time.
"""

import binascii
import re
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from flowshunt_ids.datasets import Datasets
from flowshunt_ids.matching import STEPS
from flowshunt_ids.rules.keywords.pcre import compile_pattern
from flowshunt_ids.rules.rule import (
    WHOLE_BUFFER,
    Base64Decode,
    BufferSize,
    ByteExtract,
    ByteJump,
    ByteMath,
    ByteTest,
    Content,
    DatasetMatch,
    IsDataAt,
    Match,
    Number,
    Pcre,
    ReputationMatch,
    is_relative,
)

PCRE_SECONDS = 0.05
"""How long one search of an expression may take; then it counts as no match."""

_MASK63 = (1 << 63) - 1
MAX_DECODED = 65535
"""The most bytes that `base64_decode` looks at."""
MAX_DIGITS = 23
"""The most bytes or digits of a number."""
MAX_TEXT = 128
"""Where a number ends that may have as many digits as there are, blanks and zeros before it included."""
_MASK64 = (1 << 64) - 1


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

    def __init__(
        self, payload: Sequence[Match], counters: InspectionCounters, datasets: Datasets | None = None
    ) -> None:
        self._payload = tuple(payload)
        self._counters = counters
        self._datasets = datasets if datasets is not None else Datasets()
        self._next_relative = tuple(
            any(is_relative(later) for later in _until_next_place(self._payload, at))
            for at in range(len(self._payload))
        )
        self._expressions: dict[int, Any] = {}
        self._inner = {
            at: PayloadMatcher(match.matches, counters, self._datasets)
            for at, match in enumerate(self._payload)
            if isinstance(match, Base64Decode)
        }
        self._steps = 0
        self._lowered: bytes | None = None
        self._reached: dict[str, int] = {}

    def matches(self, buffer: bytes, variables: dict[str, int] | None = None) -> bool:
        """Whether the payload matches a buffer.

        variables: what `byte_extract` and `byte_math` gave in other buffers; those of this one are added on a match.
        """
        self._counters.evaluations += 1
        self._steps = 0
        self._lowered = None
        try:
            matched = self._from(0, 0, buffer, variables or {})
        except _StepLimitError:
            self._counters.step_limits += 1
            return False
        if matched and variables is not None:
            variables.update(self._reached)
        return matched

    def _from(self, at: int, place: int, buffer: bytes, variables: dict[str, int]) -> bool:
        """Whether the matches from number `at` on match, the last match having ended at `place`."""
        if at == len(self._payload):
            self._reached = variables
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
        if isinstance(match, WHOLE_BUFFER):
            return self._whole(match, buffer) and self._from(at + 1, place, buffer, variables)
        if isinstance(match, Base64Decode):
            first = match.offset + (place if match.relative else 0)
            last = first + (match.count or MAX_DECODED)
            decoded = decode_base64(buffer[first:last])
            inner = self._inner[at].matches(decoded, dict(variables)) if decoded else False
            return inner and self._from(at + 1, place, buffer, variables)
        read = _read(match.number, place, buffer, variables, unmasked=isinstance(match, ByteMath))
        if read is None:
            return False
        value, start, used = read
        if isinstance(match, ByteTest):
            holds = _COMPARE[match.operator](value, _value(match.value, variables))
            return holds != match.negated and self._from(at + 1, place, buffer, variables)
        if isinstance(match, ByteMath):
            result = _calculate(value, match.operator, _value(match.value, variables), match.number.mask)
            if result is None:
                return False
            return self._from(at + 1, start + used, buffer, {**variables, match.name: result})
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

    def _whole(self, match: BufferSize | DatasetMatch | ReputationMatch, buffer: bytes) -> bool:
        if isinstance(match, BufferSize):
            return (match.low <= len(buffer) <= match.high) != match.negated
        return self._datasets.judge(match, buffer)

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
        expression: Any = self._expressions.get(at)
        if expression is None:
            self._expressions[at] = expression = compile_pattern(match.pattern, match.flags)
        first = place if match.relative else 0
        subject = buffer[first:] if first else buffer
        start = 0
        while start <= len(subject):
            try:
                found = expression.search(subject, start, timeout=PCRE_SECONDS)
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
    """A number, or a variable's value: 0 for one of a buffer that was not looked at before."""
    return variables.get(given, 0) if isinstance(given, str) else given


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


def _read(
    number: Number, place: int, buffer: bytes, variables: dict[str, int], *, unmasked: bool = False
) -> tuple[int, int, int] | None:
    """A number in the buffer: (value, where it starts, bytes used); None: there is none."""
    start = _value(number.offset, variables) + (place if number.relative else 0)
    count = _value(number.count, variables)
    if start < 0 or start + count > len(buffer) or (isinstance(number.count, str) and not 1 <= count <= MAX_DIGITS):
        return None
    if count == 0 and number.base:
        raw = buffer[start : start + MAX_TEXT]
    elif count == 0:
        return 0, start, 0
    else:
        raw = buffer[start : start + count]
    if number.base == 0:
        if count > 8:
            return None
        value, used = int.from_bytes(raw, "little" if number.little else "big"), count
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
        if value > _MASK64:
            return None
        value = -value if sign == b"-" else value
        used = len(raw) - len(rest)
    value &= _MASK63
    if number.mask and not unmasked:
        value = _masked(value, number.mask)
    return value, start, used


def _masked(value: int, mask: int) -> int:
    return (value & mask) >> ((mask & -mask).bit_length() - 1)


def _calculate(value: int, operator: str, operand: int, mask: int) -> int | None:
    """What `byte_math` makes of a number, in 64 bits as Suricata; None: nothing (a division by zero)."""
    if operator == "+":
        value += operand
    elif operator == "-":
        value -= operand
    elif operator == "*":
        value *= operand
    elif operator == "/":
        if operand == 0:
            return None
        value //= operand
    elif operator == "<<":
        value = value << operand if operand < 64 else 0
    else:
        value >>= min(operand, 64)
    value &= _MASK64
    return _masked(value, mask) if mask else value


_BASE64 = re.compile(rb"[A-Za-z0-9+/=]*")
_BASE64_VALUE = {
    letter: value for value, letter in enumerate(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
}


def decode_base64(text: bytes) -> bytes:
    """Decode base64 up to the first byte that is none, as Suricata does it (RFC 4648, without padding too)."""
    valid = _BASE64.match(text)
    assert valid is not None
    letters = valid[0]
    out = bytearray()
    whole = len(letters) - len(letters) % 4
    plain = letters.find(b"=")
    plain = whole if plain < 0 else min(plain, whole) // 4 * 4
    out += binascii.a2b_base64(letters[:plain])
    for at in range(plain, whole, 4):
        block = letters[at : at + 4]
        padding = block.count(b"=")
        out += _block(block)[: max(3 - padding, 0)]
    rest = letters[whole:]
    if rest:
        # Before a byte that is none, one letter is enough to make one byte.
        kept = len(rest) - 1 if len(letters) == len(text) else max(len(rest) - 1, 1)
        out += _block(rest)[:kept]
    return bytes(out)


def _block(letters: bytes) -> bytes:
    value = 0
    for letter in letters.ljust(4, b"="):
        value = value << 6 | _BASE64_VALUE.get(letter, 0)
    return value.to_bytes(3, "big")
