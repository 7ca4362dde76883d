"""What a conditional jump tells on each of its ways: numbers refined, null ruled out, packet bytes proved."""

from typing import TYPE_CHECKING, Final

from flowshunt.insn import JEQ, JGE, JGT, JLE, JLT, JMP, JNE, Instruction, X
from flowshunt_ebpf.verifier.arithmetic import uninitialised
from flowshunt_ebpf.verifier.memory import MAX_PACKET_OFFSET
from flowshunt_ebpf.verifier.scalar import Scalar, const, decide, refine, refine_not
from flowshunt_ebpf.verifier.values import (
    MAP_KEY,
    MAP_VALUE,
    MEMORY,
    NULL,
    PACKET,
    PACKET_END,
    PACKET_META,
    SCALAR,
    SIZE_ID,
    SOCKET,
    ZERO,
    Value,
    number,
)

if TYPE_CHECKING:
    from flowshunt_ebpf.verifier.analysis import Analysis
    from flowshunt_ebpf.verifier.state import State

_ORDERED: Final = frozenset({JGT, JGE, JLT, JLE})
_MIRRORED: Final = {JGT: JLT, JLT: JGT, JGE: JLE, JLE: JGE}
_NEVER_NULL: Final = frozenset({MAP_VALUE, MAP_KEY, MEMORY, SOCKET})


def condition(run: "Analysis", state: "State", i: Instruction, target: int) -> tuple["State | None", "State | None"]:
    """The states on both ways of a conditional jump: (not taken, taken); None where a way is never gone.

    The state itself is changed and is one of them.
    """
    registers = state.frames[-1].registers
    a = registers[i.dst]
    if a is None:
        raise uninitialised(i.dst)
    if i.opcode & X:
        b = registers[i.src]
        if b is None:
            raise uninitialised(i.src)
    else:
        b = Value(SCALAR, const(i.imm))
    op = i.opcode & 0xF0
    wide = i.opcode & 7 == JMP
    if a.kind == SCALAR and b.kind == SCALAR:
        return _numbers(run, state, i, target, a, b, op, wide)
    after = state.index + 1
    if wide and op in (JEQ, JNE):
        pointer, other = (a, b) if a.kind != SCALAR else (b, a)
        if other.kind == SCALAR and other.scalar.is_const and not other.scalar.value:
            return _null(state, target, pointer, op)
        return _same_pointers(state, target, a, b, op)
    taken = state.copy(target)
    state.index = after
    if wide and op in _ORDERED:
        _packet_end(state, taken, a, b, op)
    return state, taken


def _numbers(
    run: "Analysis", state: "State", i: Instruction, target: int, a: Value, b: Value, op: int, wide: bool
) -> tuple["State | None", "State | None"]:
    known = decide(op, a.scalar, b.scalar, wide)
    source = i.src if i.opcode & X else -1
    if known is None and i.dst == source:
        known = op in (JEQ, JGE, JLE, 0x70, 0xD0) or (None if op == 0x40 else False)
    if known is not None:
        state.index = target if known else state.index + 1
        return (None, state) if known else (state, None)
    taken = state.copy(target)
    state.index += 1
    if i.dst == source:
        return state, taken
    holds, fails = refine(op, a.scalar, b.scalar, wide), refine_not(op, a.scalar, b.scalar, wide)
    assert holds is not None
    assert fails is not None
    learn(state, i.dst, a, fails[0])
    learn(taken, i.dst, a, holds[0])
    if source >= 0:
        # Where both are copies of one number, what the first comparison told stands in the register already.
        learn(state, source, b, fails[1])
        learn(taken, source, b, holds[1])
    return state, taken


def learn(state: "State", register: int, old: Value, scalar: Scalar) -> None:
    """A register's number is in `scalar`: so are all that are equal to it."""
    if scalar == old.scalar:
        return
    if not old.id:
        state.frames[-1].registers[register] = number(scalar)
        return
    shared = old.id
    new = number(scalar, shared)
    state.replace(lambda value: new if value.id == shared and value.kind == SCALAR else value)
    if shared == SIZE_ID and scalar.umin:
        prove(state, PACKET, 0, scalar.umin)


def prove(state: "State", kind: int, id: int, length: int) -> None:
    """`length` bytes from where the variable part `id` leads are in the packet."""

    def change(value: Value) -> Value:
        if value.kind == kind and value.id == id and value.range < length:
            return value.with_range(length)
        return value

    state.replace(change)


def _packet_end(state: "State", taken: "State", a: Value, b: Value, op: int) -> None:
    """A comparison of a packet pointer with the packet's end, or of a metadata pointer with the packet's start."""
    if _bounds(b, a):
        pointer = a
    elif _bounds(a, b):
        pointer, op = b, _MIRRORED[op]
    else:
        return
    # pointer op end
    if op == JGT:
        _proved(state, pointer, 0)
    elif op == JGE:
        _proved(state, pointer, 1)
    elif op == JLT:
        _proved(taken, pointer, 1)
    else:
        _proved(taken, pointer, 0)


def _bounds(end: Value, pointer: Value) -> bool:
    """Whether `end` is where what `pointer` points into ends."""
    if pointer.kind == PACKET:
        return end.kind == PACKET_END
    return pointer.kind == PACKET_META and end.kind == PACKET and not end.offset and end.scalar is ZERO


def _proved(state: "State", pointer: Value, more: int) -> None:
    """Where `pointer + more` is at most the end."""
    offset = pointer.offset
    if offset < 0 or (offset == 0 and more):
        return  # as in the kernel, where a pointer at the start proves nothing
    if pointer.scalar.umax > MAX_PACKET_OFFSET or pointer.scalar.umax + offset > MAX_PACKET_OFFSET:
        return
    prove(state, pointer.kind, pointer.id, offset + more)


def _null(state: "State", target: int, pointer: Value, op: int) -> tuple["State | None", "State | None"]:
    """A pointer compared with 0."""
    if not pointer.nullable:
        # An address in front of its memory might wrap round.
        if pointer.kind in _NEVER_NULL and pointer.scalar is ZERO and pointer.offset >= 0:
            jumps = op == JNE
            state.index = target if jumps else state.index + 1
            return (None, state) if jumps else (state, None)
        taken = state.copy(target)
        state.index += 1
        return state, taken
    taken = state.copy(target)
    state.index += 1
    null, valid = (taken, state) if op == JEQ else (state, taken)
    known_null(null, pointer)
    known_valid(valid, pointer)
    return state, taken


def known_null(state: "State", pointer: Value) -> None:
    """The pointer is null, with all that are null together with it; there is nothing to release."""
    id = pointer.id
    state.replace(lambda value: NULL if value.nullable and value.id == id else value)
    if pointer.reference and pointer.reference == id:  # what is only borrowed stays to be released
        state.references = tuple(r for r in state.references if r[0] != pointer.reference)


def known_valid(state: "State", pointer: Value) -> None:
    """The pointer is not null, and so are all that are null together with it."""
    id = pointer.id
    state.replace(lambda value: value.not_null() if value.nullable and value.id == id else value)


def _same_pointers(state: "State", target: int, a: Value, b: Value, op: int) -> tuple["State", "State"]:
    """Two pointers, or a pointer and a number, that are compared for being equal."""
    taken = state.copy(target)
    state.index += 1
    equal = taken if op == JEQ else state
    for one, other in ((a, b), (b, a)):
        sure = other.kind in _NEVER_NULL and not other.nullable and other.scalar is ZERO and not other.offset
        if one.nullable and sure:
            known_valid(equal, one)
    return state, taken
