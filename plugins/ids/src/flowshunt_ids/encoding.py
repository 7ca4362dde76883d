"""Rules into the arrays that kernels evaluate, and the pattern that stands for each rule in the prefilter."""

from collections.abc import Sequence

import attrs
import numpy as np
from numpy.typing import NDArray

from flowshunt_ids import layout
from flowshunt_ids.layout import OP, RULE, TEST
from flowshunt_ids.rules.rule import (
    WHOLE_BUFFER,
    Base64Decode,
    ByteExtract,
    ByteJump,
    ByteMath,
    ByteTest,
    Content,
    Field,
    IsDataAt,
    Match,
    Number,
    PacketTest,
    Pcre,
    Rule,
    is_relative,
    variables_of,
)

MIN_PATTERN = 3
"""Shorter patterns, and those of a single repeated byte, occur too often to be worth scanning for."""

_QUICK = (Field.TCP_FLAGS, Field.PAYLOAD_LENGTH)


def _test_order(test: PacketTest) -> bool:
    """Tests that kernels carry out without a call come first."""
    return test.field not in _QUICK


_COMMON = frozenset(b" \x00\xff\r\n\t/.:=-<>\"'0123456789etaoinshrdlucmETAOINSHRDLUCM")


@attrs.frozen
class Pattern:
    """A literal to scan for: in lower case where `nocase`."""

    literal: bytes
    nocase: bool


@attrs.frozen(eq=False)
class EncodedRules:
    """The arrays of a rule set. `patterns[i]`: what to scan for on behalf of rule i, None: nothing will do."""

    rules: NDArray[np.void]
    tests: NDArray[np.void]
    ops: NDArray[np.void]
    pool: NDArray[np.uint8]
    patterns: tuple[Pattern | None, ...]


def strength(literal: bytes, nocase: bool) -> float:
    """How rare a literal is in mixed traffic, in bits, roughly: by its length and how common its bytes are."""
    score = 0.0
    for value in literal:
        score += 4.0 if value in _COMMON else 5.0 if nocase and chr(value).isalpha() else 7.0
    return score + len(set(literal))


def choose_pattern(payload: Sequence[Match]) -> Pattern | None:
    """The content to scan for: the one that `fast_pattern` names, or else the rarest; None where all are too weak."""
    best: Pattern | None = None
    best_score = 0.0
    for match in payload:
        if not isinstance(match, Content) or match.negated:
            continue
        literal = match.pattern
        marked = match.fast_pattern
        if marked is not None:
            literal = literal[marked.start : None if marked.length is None else marked.start + marked.length]
        if len(literal) < MIN_PATTERN or len(set(literal)) == 1:
            continue
        pattern = Pattern(literal, match.nocase)
        if marked is not None:
            return pattern
        score = strength(literal, match.nocase)
        if score > best_score:
            best, best_score = pattern, score
    return best


_IN_PYTHON = Pcre | ByteExtract | ByteMath | Base64Decode | WHOLE_BUFFER
"""What kernels don't evaluate."""


def _unbounded(match: Match) -> bool:
    """Whether it reads as many digits as there are."""
    return isinstance(match, ByteTest | ByteJump) and match.number.base != 0 and match.number.count == 0


class _Encoder:
    def __init__(self) -> None:
        self.tests: list[tuple[int, ...]] = []
        self.ops: list[tuple[int, ...]] = []
        self.pool = bytearray()
        self._places: dict[bytes, int] = {}

    def place(self, literal: bytes) -> int:
        at = self._places.get(literal)
        if at is None:
            at = self._places[literal] = len(self.pool)
            self.pool += literal
        return at

    def payload(self, payload: Sequence[Match]) -> bool:
        """Add the ops of a payload; False: some of it is left to Python."""
        whole = True
        broken = False
        first = len(self.ops)
        for at, match in enumerate(payload):
            relative = is_relative(match)
            if not relative:
                broken = False
            if isinstance(match, _IN_PYTHON) or variables_of(match) or _unbounded(match):
                whole, broken = False, broken or not isinstance(match, WHOLE_BUFFER)
                continue
            if broken or len(self.ops) - first >= layout.MAX_OPS:
                whole = False
                continue
            follows = _next_is_relative(payload, at)
            if isinstance(match, Content):
                self.ops.append(self._content(match, follows))
            elif isinstance(match, IsDataAt):
                assert isinstance(match.amount, int)
                flags = layout.OPF_RELATIVE * match.relative | layout.OPF_NEGATED * match.negated
                self.ops.append((layout.OP_ISDATAAT, flags, 0, 0, match.amount, 0, 0, 0))
            elif isinstance(match, ByteTest):
                assert isinstance(match.value, int)
                number = match.number
                self.ops.append(
                    (
                        layout.OP_BYTE_TEST,
                        _number_flags(number) | layout.OPF_NEGATED * match.negated,
                        number.base,
                        _fixed(number.count),
                        _fixed(number.offset),
                        match.value,
                        number.mask,
                        layout.OPERATORS[match.operator],
                    )
                )
            else:
                assert isinstance(match, ByteJump)
                self.ops.append(_jump(match))
        return whole

    def _content(self, match: Content, follows: bool) -> tuple[int, ...]:
        flags = (
            layout.OPF_NOCASE * match.nocase
            | layout.OPF_NEGATED * match.negated
            | layout.OPF_ENDSWITH * match.endswith
            | layout.OPF_NEXT_RELATIVE * follows
        )
        if match.relative:
            distance = _fixed(match.distance or 0)
            limit = 0
            flags |= layout.OPF_RELATIVE
            if match.within is not None:
                flags |= layout.OPF_LIMITED
                limit = _fixed(match.within) + distance
            return (layout.OP_CONTENT, flags, self.place(match.pattern), len(match.pattern), 0, limit, distance, 0)
        offset = _fixed(match.offset or 0)
        limit = 0
        if match.depth is not None:
            flags |= layout.OPF_LIMITED
            limit = offset + _fixed(match.depth)
        return (layout.OP_CONTENT, flags, self.place(match.pattern), len(match.pattern), offset, limit, 0, 0)


def _next_is_relative(payload: Sequence[Match], at: int) -> bool:
    """Whether a later match counts from where this one ends: the next that moves or uses the place decides."""
    for match in payload[at + 1 :]:
        if is_relative(match):
            return True
        if isinstance(match, Content | Pcre | ByteJump):
            return False
    return False


def _anchor(payload: Sequence[Match]) -> tuple[int, int]:
    """A byte that must stand at one place of the buffer, for a cheap first look: (place, byte), or (-1, 0)."""
    for match in payload:
        if isinstance(match, Content) and not match.negated and not match.nocase and isinstance(match.depth, int):
            offset = match.offset or 0
            if isinstance(offset, int) and match.depth == len(match.pattern):
                return offset, match.pattern[0]
    return -1, 0


def _pair(payload: Sequence[Match]) -> int:
    """Two bytes that must stand side by side anywhere in the buffer, the rarest, for a look before a long search: the
    first times 256 and the second; -1: none."""
    best, best_score = -1, 0.0
    for match in payload:
        if not isinstance(match, Content) or match.negated or match.nocase:
            continue
        if match.depth is not None or match.within is not None:
            continue
        for at in range(len(match.pattern) - 1):
            two = match.pattern[at : at + 2]
            score = strength(two, False)
            if score > best_score:
                best, best_score = two[0] << 8 | two[1], score
    return best


def _fixed(value: int | str) -> int:
    assert isinstance(value, int)
    return value


def _number_flags(number: Number) -> int:
    return layout.OPF_RELATIVE * number.relative | layout.OPF_LITTLE * number.little


def _jump(match: ByteJump) -> tuple[int, ...]:
    number = match.number
    flags = _number_flags(number) | layout.OPF_ALIGN * match.align
    if match.origin == "beginning":
        flags |= layout.OPF_FROM_BEGINNING
    elif match.origin == "end":
        flags |= layout.OPF_FROM_END
    return (
        layout.OP_BYTE_JUMP,
        flags,
        number.base,
        _fixed(number.count),
        _fixed(number.offset),
        _fixed(match.post_offset),
        number.mask,
        match.multiplier,
    )


def encode(rules: Sequence[Rule]) -> EncodedRules:
    """Encode rules; rule i of the result is rule i given."""
    encoder = _Encoder()
    rows: list[tuple[int, ...]] = []
    for rule in rules:
        first_test, first_op = len(encoder.tests), len(encoder.ops)
        for test in sorted(rule.tests, key=_test_order):
            encoder.tests.append((int(test.field), int(test.negated), test.mask, test.low, test.high))
        if not rule.payload and any(bits.command == "isset" for bits in rule.flowbits):
            encoder.tests.append((int(Field.HAS_FLOWBITS), 0, -1, 1, 1))
        flags = (
            layout.SEGMENT_STREAM * rule.in_streams
            | layout.SEGMENT_PACKET * rule.in_packets
            | layout.SEGMENT_DATAGRAM * rule.in_datagrams
        )
        if rule.payload and not encoder.payload(rule.payload):
            flags |= layout.RULE_PYTHON
        if any(bits.command in ("set", "toggle") for bits in rule.flowbits) or rule.flow_integers:
            flags |= layout.RULE_SETS_BITS
        if rule.flow.stream is True:
            flags |= layout.RULE_CHUNK_ONLY
        tests, ops = len(encoder.tests) - first_test, len(encoder.ops) - first_op
        rows.append((first_test, tests, first_op, ops, flags, *_anchor(rule.payload), _pair(rule.payload)))
    return EncodedRules(
        np.array(rows, RULE) if rows else np.empty(0, RULE),
        np.array(encoder.tests or [(0,) * 5], TEST),
        np.array(encoder.ops or [(0,) * 8], OP),
        np.frombuffer(bytes(encoder.pool) or b"\0", np.uint8).copy(),
        tuple(choose_pattern(rule.payload) for rule in rules),
    )
