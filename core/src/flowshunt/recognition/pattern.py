"""Patterns over what a run of instructions computes: trees of operations, whatever the registers and the order.

A pattern is built from `value`, `constant`, `alu`, `load` and the like, and found with `find`. Moves are looked through
(under operations of 32 bits, 32-bit ones too), operands of commutative operations match either way round, and constants
may be immediates or stand in registers. What a pattern takes in (all but its root) is read by nothing else.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

import attrs

from flowshunt.insn import (
    ADD,
    ALU,
    ALU64,
    AND,
    END,
    LD_IMM64,
    LDX,
    MEM,
    MEMSX,
    MOV,
    MUL,
    NEG,
    OR,
    ST,
    STX,
    XOR,
    K,
    X,
)
from flowshunt.recognition.match import Match
from flowshunt.recognition.view import View

_COMMUTATIVE: Final = frozenset({ADD, MUL, OR, AND, XOR})


@attrs.frozen
class Found:
    """Where a pattern stands.

    Attributes:
        root: the instruction that gives the result, or stores it.
        indices: all instructions that the pattern takes in, ascending.
        values: by name, what `value` patterns stand for (see `View`).
        registers: by the same names, a register that holds the value where the pattern's first instruction stands.
        numbers: by name, what constants and offsets are. Constants are unsigned, of the operation's width.
        dst: the root's register `dst`.
        temporaries: the other registers that its instructions write, ascending.
    """

    root: int
    indices: tuple[int, ...]
    values: Mapping[str, int]
    registers: Mapping[str, int]
    numbers: Mapping[str, int]
    dst: int
    temporaries: tuple[int, ...]

    def match(self, payload: int) -> Match:
        """The proposal to replace these instructions."""
        return Match(self.indices, payload)


class Bound(NamedTuple):
    """What has been matched so far. `taken`: instructions, the root included."""

    values: Mapping[str, int]
    registers: Mapping[str, int]
    numbers: Mapping[str, int]
    taken: frozenset[int]

    def taking(self, *indices: int) -> "Bound":
        """With further instructions."""
        return Bound(self.values, self.registers, self.numbers, self.taken.union(indices))

    def number(self, name: str, found: int) -> "Bound | None":
        """With a number; None where the name stands for another one."""
        if not name:
            return self
        if name in self.numbers:
            return self if self.numbers[name] == found else None
        return Bound(self.values, self.registers, {**self.numbers, name: found}, self.taken)


NOTHING: Final = Bound({}, {}, {}, frozenset())


class Operand(NamedTuple):
    """A register that an instruction reads: who wrote it in the run (~register: nobody)."""

    definition: int
    register: int


@attrs.frozen
class Value:
    """Any value; the same name twice: the same value."""

    name: str


@attrs.frozen
class Constant:
    """An immediate, or a register that holds a constant. `wanted`: which ones; None: any."""

    name: str
    wanted: Callable[[int], bool] | None = None


@attrs.frozen
class Computed:
    """The result of an instruction with one of some opcodes.

    Attributes:
        opcodes: without the source bit where `right` may be a register or an immediate.
        left: what `dst` holds before, or, for loads and moves, `src`.
        right: the other operand; None: there is none.
        bits: the operation's width.
        commutes: whether the operands match either way round.
        offset: the name that the offset is bound to; None: it must be 0.
        imm: what the immediate must be, for byte swaps.
        moves: whether `left` is read from `src`.
    """

    opcodes: frozenset[int]
    left: "Pattern"
    right: "Pattern | None" = None
    bits: int = 64
    commutes: bool = False
    offset: str | int | None = None
    imm: int | None = None
    moves: bool = False


@attrs.frozen
class Either:
    """Any of several patterns."""

    patterns: tuple["Pattern", ...]


Pattern = Value | Constant | Computed | Either


def value(name: str) -> Value:
    """Any value; the same name twice in a pattern: the same value."""
    return Value(name)


def constant(name: str = "", wanted: Callable[[int], bool] | int | None = None) -> Constant:
    """A constant; `wanted`: exactly which, or which ones."""
    if isinstance(wanted, int):
        only = wanted
        return Constant(name, lambda found: found == only)
    return Constant(name, wanted)


def either(*patterns: Pattern) -> Either:
    """What any of several patterns matches; they are tried in order. Not as a root."""
    return Either(patterns)


def alu(op: int, left: Pattern, right: Pattern, *, bits: int = 64) -> Computed:
    """`left` op `right`, such as ADD or LSH; 32 or 64 bits. The result of 32 bits is zero-extended."""
    cls = ALU64 if bits == 64 else ALU
    return Computed(frozenset({cls | op | K, cls | op | X}), left, right, bits, op in _COMMUTATIVE)


def negate(operand: Pattern, *, bits: int = 64) -> Computed:
    """-operand."""
    return Computed(frozenset({(ALU64 if bits == 64 else ALU) | NEG | K}), operand, bits=bits)


def low32(operand: Pattern) -> Computed:
    """The low 32 bits of a value, zero-extended by a 32-bit move."""
    return Computed(frozenset({ALU | MOV | X}), operand, bits=32, moves=True)


def sign_extended(operand: Pattern, width: int, *, bits: int = 64) -> Computed:
    """The low `width` bits of a value, sign-extended by a move to `bits`."""
    return Computed(frozenset({(ALU64 if bits == 64 else ALU) | MOV | X}), operand, bits=bits, offset=width, moves=True)


def swapped(operand: Pattern, width: int) -> Computed:
    """The low `width` bits of a value with their bytes reversed: bswap, or to big-endian on a little-endian host."""
    return Computed(frozenset({ALU64 | END | K, ALU | END | X}), operand, imm=width)


def load(size: int, base: Pattern, offset: str = "offset", *, extended: bool = False) -> Computed:
    """*(size *)(base + offset); `extended`: sign-extended. `offset`: the name for it in `Found.numbers`."""
    return Computed(frozenset({LDX | (MEMSX if extended else MEM) | size}), base, offset=offset, moves=True)


def store(size: int, base: Pattern, stored: Pattern, offset: str = "offset") -> Computed:
    """*(size *)(base + offset) = stored, of a register or an immediate. Only as a root."""
    return Computed(frozenset({ST | MEM | size, STX | MEM | size}), base, stored, offset=offset)


def find(view: View, pattern: Computed) -> Iterator[Found]:
    """Everywhere that a pattern stands, by root, each root once."""
    for root in view.having(*pattern.opcodes):
        for bound in match_instruction(view, pattern, root, NOTHING):
            if found := settle(view, root, bound):
                yield found
                break


def settle(view: View, root: int, bound: Bound) -> Found | None:
    """What was matched, where nothing else reads what it takes in; else None."""
    taken = bound.taken
    for index in taken:
        if index != root and (view.escapes(index) or not taken.issuperset(view.readers(index))):
            return None
    instructions = view.instructions
    dst = instructions[root].dst
    written = {instructions[index].dst for index in taken if instructions[index].opcode & 7 not in (ST, STX)}
    return Found(
        root,
        tuple(sorted(taken)),
        bound.values,
        bound.registers,
        bound.numbers,
        dst,
        tuple(sorted(written - {dst} if instructions[root].opcode & 7 not in (ST, STX) else written)),
    )


def match_operand(view: View, pattern: Pattern, operand: Operand, bound: Bound, bits: int = 64) -> Iterator[Bound]:
    """The ways in which a pattern matches an operand, given what is bound already. `bits`: how many of it count."""
    if isinstance(pattern, Value):
        yield from _match_value(view, pattern, operand, bound, bits)
        return
    if isinstance(pattern, Constant):
        yield from _match_constant(view, pattern, operand, bound, bits)
        return
    if isinstance(pattern, Either):
        for one in pattern.patterns:
            yield from match_operand(view, one, operand, bound, bits)
        return
    definition, moves = operand.definition, list[int]()
    while definition >= 0:
        if view.instructions[definition].opcode in pattern.opcodes:
            yield from match_instruction(view, pattern, definition, bound.taking(*moves))
        if not view.moves(definition, bits):
            return
        moves.append(definition)
        definition = view.src_definition(definition)


def match_instruction(view: View, pattern: Computed, index: int, bound: Bound) -> Iterator[Bound]:
    """The ways in which a pattern matches an instruction's result."""
    i = view.instructions[index]
    if i.opcode not in pattern.opcodes or (pattern.imm is not None and i.imm != pattern.imm):
        return
    bits, named = pattern.bits, isinstance(pattern.offset, str)
    if not named and i.offset != (pattern.offset or 0):
        return
    pairs = _pairs(view, pattern, index)
    if not pairs:
        return
    bound = bound.taking(index)
    if isinstance(pattern.offset, str):
        with_offset = bound.number(pattern.offset, i.offset)
        if with_offset is None:
            return
        bound = with_offset
    for first, second in pairs:
        if second is None:
            yield from match_operand(view, first[0], first[1], bound, bits)
        elif isinstance(second[1], int):
            assert isinstance(second[0], Constant)
            with_constant = _constant(second[0], second[1], bound)
            if with_constant is not None:
                yield from match_operand(view, first[0], first[1], with_constant, bits)
        else:
            for half in match_operand(view, first[0], first[1], bound, bits):
                yield from match_operand(view, second[0], second[1], half, bits)


_Side = tuple[Pattern, Operand]


def _pairs(view: View, pattern: Computed, index: int) -> list[tuple[_Side, tuple[Pattern, Operand | int] | None]]:
    """Which pattern could be which operand (an immediate: its number), judged by what made the operands alone."""
    i = view.instructions[index]
    bits = pattern.bits
    left = Operand(view.src_definition(index), i.src) if pattern.moves else Operand(view.dst_definition(index), i.dst)
    one, other = pattern.left, pattern.right
    if other is None or pattern.moves:
        return [((one, left), None)] if _may(view, one, left, bits) else []
    found: list[tuple[_Side, tuple[Pattern, Operand | int] | None]] = []
    orders = ((one, other), (other, one)) if pattern.commutes else ((one, other),)
    if (i.opcode & X and i.opcode & 7 != ST) or i.opcode & 7 == STX:
        right = Operand(view.src_definition(index), i.src)
        for first, second in orders:
            if _may(view, first, left, bits) and _may(view, second, right, bits):
                found.append(((first, left), (second, right)))
        return found
    number = i.imm & ((1 << bits) - 1)
    for variable, fixed in orders:
        if isinstance(fixed, Constant) and _may(view, variable, left, bits):
            found.append(((variable, left), (fixed, number)))
    return found


def _may(view: View, pattern: Pattern, operand: Operand, bits: int) -> bool:
    """Whether a pattern could match an operand, as far as the instruction that made it tells."""
    definition = operand.definition
    if isinstance(pattern, Constant):
        return definition >= 0
    if not isinstance(pattern, Computed):
        return True
    while definition >= 0:
        if view.instructions[definition].opcode in pattern.opcodes:
            return True
        if not view.moves(definition, bits):
            return False
        definition = view.src_definition(definition)
    return False


def terms(view: View, root: int, *opcodes: int) -> tuple[list[Operand], frozenset[int]]:
    """The operands of a chain of one commutative operation, such as every part of a | b | c | d in whatever order.

    Args:
        opcodes: of the operation on registers, such as ALU64 | OR | X; 32 and 64 bits may be mixed where that is right.

    Returns the operands, and the instructions of the chain with the moves between them. An inner result that something
    else reads too counts as an operand.
    """
    found: list[Operand] = []
    taken = {root}
    i = view.instructions[root]
    waiting = [
        (Operand(view.src_definition(root), i.src), root),
        (Operand(view.dst_definition(root), i.dst), root),
    ]
    while waiting:
        operand, reader = waiting.pop()
        definition, moves = _through_moves(view, operand.definition)
        chain = [*moves, definition]
        only = all(view.only_reader(at) == by for at, by in zip(chain, [reader, *chain], strict=False) if at >= 0)
        if definition >= 0 and view.instructions[definition].opcode in opcodes and only:
            taken.update(chain)
            inner = view.instructions[definition]
            waiting.append((Operand(view.src_definition(definition), inner.src), definition))
            waiting.append((Operand(view.dst_definition(definition), inner.dst), definition))
        else:
            found.append(operand)
    return found, frozenset(taken)


def _through_moves(view: View, definition: int, bits: int = 64) -> tuple[int, list[int]]:
    """The definition behind moves, and those moves, the last first."""
    moves = []
    while definition >= 0 and view.moves(definition, bits):
        moves.append(definition)
        definition = view.src_definition(definition)
    return definition, moves


def _match_value(view: View, pattern: Value, operand: Operand, bound: Bound, bits: int) -> Iterator[Bound]:
    found = view.value(operand.definition, bits)
    if bound.values.get(pattern.name, found) != found:
        return
    definition, register, taken = operand.definition, operand.register, set[int]()
    while definition >= 0 and view.moves(definition, bits):
        # A move that serves this operand alone goes with it; one that others read stays.
        if view.only_reader(definition) not in (bound.taken | taken):
            break
        taken.add(definition)
        register = view.instructions[definition].src
        definition = view.src_definition(definition)
    yield Bound(
        {**bound.values, pattern.name: found},
        {**bound.registers, pattern.name: bound.registers.get(pattern.name, register)},
        bound.numbers,
        bound.taken | taken,
    )


def _match_constant(view: View, pattern: Constant, operand: Operand, bound: Bound, bits: int) -> Iterator[Bound]:
    definition, moves = _through_moves(view, operand.definition, bits)
    if definition < 0:
        return
    i = view.instructions[definition]
    if i.opcode == ALU64 | MOV | K or (i.opcode == LD_IMM64 and i.src == 0):
        found = i.imm & 0xFFFFFFFFFFFFFFFF
    elif i.opcode == ALU | MOV | K:
        found = i.imm & 0xFFFFFFFF
    else:
        return
    with_constant = _constant(pattern, found & ((1 << bits) - 1), bound)
    if with_constant is None:
        return
    for at in (*moves, definition):  # a load of the constant that serves nothing else goes with it
        if view.only_reader(at) not in with_constant.taken:
            break
        with_constant = with_constant.taking(at)
    yield with_constant


def _constant(pattern: Constant, found: int, bound: Bound) -> Bound | None:
    if pattern.wanted is not None and not pattern.wanted(found):
        return None
    return bound.number(pattern.name, found)
