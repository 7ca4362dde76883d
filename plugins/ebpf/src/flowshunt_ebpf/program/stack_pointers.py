"""Which registers point into the frame of the function that runs, and where: what memory accesses and calls reach.

A forward data flow over each subprogram. What is taken for granted is what the verifier sees to: a pointer to the
frame is kept in registers and in stack memory only, and a function gives its caller no pointer to its own frame.
"""

from collections.abc import Sequence
from typing import Final

import attrs

from flowshunt.insn import (
    ABS,
    ADD,
    ALU64,
    ATOMIC,
    CALL_K,
    CALL_X,
    CMPXCHG,
    DW,
    FETCH,
    IND,
    JMP,
    JMP32,
    LD,
    LDX,
    LOAD_ACQ,
    MOV,
    R0,
    R10,
    ST,
    STORE_REL,
    STX,
    SUB,
    B,
    H,
    Instruction,
    K,
    W,
    X,
)
from flowshunt_ebpf.program.control_flow import ControlFlow
from flowshunt_ebpf.program.effects import UNKNOWN, Effect

ANYWHERE: Final = 1 << 31
"""Instead of an offset: somewhere in the frame, or perhaps not in it at all."""

State = dict[int, int]
"""Register to offset from r10, for registers that may point into the frame."""

_ADD_K, _SUB_K = ALU64 | ADD | K, ALU64 | SUB | K
_MOV_X, _MOV_K = ALU64 | MOV | X, ALU64 | MOV | K


_CALLS = frozenset({CALL_K, CALL_X, *(LD | mode | size for mode in (ABS, IND) for size in (B, H, W))})


@attrs.frozen
class StackPointers:
    """What reaches the frame.

    Attributes:
        base: index of a load, store or atomic operation to the offset from r10 that its address register holds; those
            whose register can't point into the frame are left out.
        arguments: index of a call to the offsets that its arguments hold, by register; calls without any are left out.
    """

    base: dict[int, int]
    arguments: dict[int, State]


def stack_pointers(flow: ControlFlow, effects: Sequence[Effect]) -> StackPointers:
    """Follow r10 and what is computed from it through all subprograms; `effects` are those of the instructions."""
    base: dict[int, int] = {}
    arguments: dict[int, State] = {}
    for order in flow.order:
        found = _subprogram(flow, effects, order, spilled=False)
        if found is None:
            found = _subprogram(flow, effects, order, spilled=True)
            assert found is not None
        base.update(found.base)
        arguments.update(found.arguments)
    return StackPointers(base, arguments)


def _subprogram(
    flow: ControlFlow, effects: Sequence[Effect], order: Sequence[int], *, spilled: bool
) -> StackPointers | None:
    """One subprogram. None where a frame pointer goes to memory and `spilled` did not say so."""
    place = {block: n for n, block in enumerate(order)}
    entry: dict[int, State] = {order[0]: {R10: 0}}
    waiting = {order[0]}
    base: dict[int, int] = {}
    arguments: dict[int, State] = {}
    instructions = flow.program.instructions
    while waiting:
        number = min(waiting, key=place.__getitem__) if len(waiting) > 1 else next(iter(waiting))
        waiting.discard(number)
        block = flow.blocks[number]
        state = entry[number].copy()
        for index in range(block.start, block.end):
            i = instructions[index]
            if effects[index] is UNKNOWN:
                state.update(dict.fromkeys(range(R10), ANYWHERE))
                if not spilled:
                    return None
                continue
            # Most instructions have nothing to do with the frame: they name none of its pointers.
            if i.dst not in state and i.src not in state and i.opcode not in _CALLS:
                continue
            if _step(index, i, state, base, arguments, spilled):
                return None
        for successor in block.successors:
            known = entry.get(successor)
            joined = state if known is None else _join(known, state)
            if joined != known:
                entry[successor] = joined if joined is not state else state.copy()
                waiting.add(successor)
    return StackPointers(base, arguments)


def _join(one: State, other: State) -> State:
    joined = {}
    for register in one.keys() | other.keys():
        here = one.get(register)
        joined[register] = here if here is not None and here == other.get(register) else ANYWHERE
    return joined


def _step(
    index: int, i: Instruction, state: State, base: dict[int, int], arguments: dict[int, State], spilled: bool
) -> bool:
    """Carry the state over an instruction. True where a frame pointer is stored and `spilled` is not set."""
    opcode, dst, src = i.opcode, i.dst, i.src
    cls = opcode & 7
    if opcode in _CALLS and cls == JMP:
        passed = {r: state[r] for r in range(1, 6) if r in state}
        if passed:
            arguments[index] = passed
        for register in range(6):
            state.pop(register, None)
        if passed and (opcode == CALL_X or i.src):
            state[R0] = ANYWHERE
            return not spilled
        return False
    if cls in (JMP, JMP32):
        return False
    if cls in (STX, ST):
        return _store(index, i, state, base, spilled)
    result: int | None = None
    if cls == LDX:
        if src in state:
            base[index] = _add(state[src], i.offset)
            result = ANYWHERE if spilled and i.size == DW else None
    elif opcode in _CALLS:  # loads from the packet lose the registers that a call does
        for register in range(6):
            state.pop(register, None)
        return False
    elif opcode == _MOV_X:
        result = state.get(src)
        if i.offset and result is not None:
            result = ANYWHERE
    elif opcode in (_ADD_K, _SUB_K):
        if dst in state:
            result = _add(state[dst], i.imm if opcode == _ADD_K else -i.imm)
    elif opcode != _MOV_K and (dst in state or (opcode & X and src in state)):
        result = ANYWHERE
    if result is None:
        state.pop(dst, None)
    else:
        state[dst] = result
    return False


def _store(index: int, i: Instruction, state: State, base: dict[int, int], spilled: bool) -> bool:
    atomic = i.opcode & 0xE0 == ATOMIC
    if atomic and i.imm == LOAD_ACQ:
        if i.src in state:
            base[index] = _add(state[i.src], i.offset)
        written = i.dst
        stored = False
    else:
        if i.dst in state:
            base[index] = _add(state[i.dst], i.offset)
        stored = i.cls == STX and i.src in state
        written = -1
        if atomic and i.imm == CMPXCHG:
            written = R0
        elif atomic and i.imm & FETCH and i.imm != STORE_REL:
            written = i.src
    if written >= 0:
        if index in base and spilled:
            state[written] = ANYWHERE
        else:
            state.pop(written, None)
    return stored and not spilled


def _add(offset: int, by: int) -> int:
    return offset if offset == ANYWHERE else offset + by
