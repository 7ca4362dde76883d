"""Where a program loads and stores through its context pointer, and the rewriting of those accesses.

The kernel knows this from its verifier. Here a small data-flow analysis follows three things: the context pointer,
which programs only ever copy and spill; addresses of the stack, since a store through one may change a spilled copy;
and values from memory that is not followed, such as a structure of the caller's, which may hold a copy. Registers and
the 64 stack words of a frame are bits of an integer, so that a step is a few operations.

    bit 0 to 10    r0 to r10          bit 16 + k    the stack word at r10 - 512 + 8 k

Where a register may be the context or something else, the code decides when it runs. What comes out is a claim, not a
proof: code that runs without a verdict compares the register with the context's address at each access.
"""

from collections.abc import Callable, Sequence
from typing import Final

import attrs

from flowshunt.errors import InputError
from flowshunt.insn import (
    ADD,
    ALU,
    ALU64,
    ATOMIC,
    CALL,
    DW,
    EXIT,
    JA,
    JMP,
    JMP32,
    LDX,
    LOAD_ACQ,
    MEM,
    MOV,
    OP_MASK,
    PSEUDO_CALL,
    ST,
    STX,
    SUB,
    Instruction,
    X,
)
from flowshunt_ebpf.contexts.layout import Context, Field

_R10: Final = 1 << 10
_ARGUMENTS: Final = 0b111110
_CALLER_SAVED: Final = 0b111111
_KEPT: Final = 0b11111000000
_REGISTERS: Final = 0xFFFF
_SLOTS: Final = 16
_ALL_SLOTS: Final = ((1 << 64) - 1) << _SLOTS

_State = tuple[int, int, int, int]


@attrs.frozen
class ContextAccess:
    """An access through the context pointer.

    Attributes:
        index: the instruction.
        field: what it accesses, if its register is the context.
        sure: whether it is; else it may be any other pointer.
    """

    index: int
    field: Field
    sure: bool = True


def context_accesses(
    instructions: Sequence[Instruction], targets: Sequence[int], context: Context, where: Callable[[int], str]
) -> tuple[ContextAccess, ...]:
    """The accesses through the context pointer, by instruction.

    `targets`: for each instruction the index that it jumps to or calls, -1 for none; `where`: an instruction's place,
    for messages. Raises InputError for an access that the context does not allow.
    """
    count = len(instructions)
    # For each instruction: what may hold the context, must hold it, may point into the stack, came from elsewhere.
    states: list[_State | None] = [None] * count
    states[0] = (0b10, 0b10, _R10, 0)
    work = [0]
    spilled = False
    through: set[int] = set()
    found: dict[int, bool] = {}
    push = work.append
    while work:
        index = work.pop()
        state = states[index]
        assert state is not None
        may, must, stack, other = state
        while True:
            i = instructions[index]
            opcode = i.opcode
            cls = opcode & 7
            target = -1
            falls = True
            if cls in (ALU64, ALU):
                bit = 1 << i.dst
                if cls == ALU64 and opcode & OP_MASK == MOV and opcode & X and not i.offset:
                    source = i.src
                    may = may | bit if may >> source & 1 else may & ~bit
                    must = must | bit if must >> source & 1 else must & ~bit
                    stack = stack | bit if stack >> source & 1 else stack & ~bit
                    other = other | bit if other >> source & 1 else other & ~bit
                else:
                    other &= ~bit
                    may &= ~bit
                    must &= ~bit
                    if cls == ALU64 and opcode & OP_MASK in (ADD, SUB):
                        if opcode & X and stack >> i.src & 1:
                            stack |= bit
                    else:
                        stack &= ~bit
            elif cls == LDX:
                if may >> i.src & 1:
                    found[index] = bool(must >> i.src & 1) and found.get(index, True)
                elif other >> i.src & 1:
                    through.add(index)
                bit = 1 << i.dst
                word = _word(i.offset) if i.src == 10 and opcode == (LDX | MEM | DW) else -1
                if word >= 0:
                    may = may | bit if may >> word & 1 else may & ~bit
                    must = must | bit if must >> word & 1 else must & ~bit
                    stack = stack | bit if stack >> word & 1 else stack & ~bit
                    other = other | bit if other >> word & 1 else other & ~bit
                else:
                    may &= ~bit
                    must &= ~bit
                    stack &= ~bit
                    other = other | bit if opcode == (LDX | MEM | DW) else other & ~bit
            elif cls in (STX, ST):
                if may >> i.dst & 1:
                    found[index] = bool(must >> i.dst & 1) and found.get(index, True)
                elif other >> i.dst & 1:
                    through.add(index)
                spilled = spilled or (opcode == (STX | MEM | DW) and bool(may >> i.src & 1))
                if i.dst == 10:
                    word = _word(i.offset) if opcode == (STX | MEM | DW) else -1
                    if word >= 0:
                        bit = 1 << word
                        may = may | bit if may >> i.src & 1 else may & ~bit
                        must = must | bit if must >> i.src & 1 else must & ~bit
                        stack = stack | bit if stack >> i.src & 1 else stack & ~bit
                        other = other | bit if other >> i.src & 1 else other & ~bit
                    else:
                        gone = ~_words(i.offset, i.size_bytes)
                        may, must = may & gone, must & gone
                elif stack >> i.dst & 1:
                    must &= ~_ALL_SLOTS
                    if opcode == (STX | MEM | DW):
                        may |= _ALL_SLOTS if may >> i.src & 1 else 0
                        stack |= _ALL_SLOTS if stack >> i.src & 1 else 0
                        other |= _ALL_SLOTS if other >> i.src & 1 else 0
                if cls == STX and opcode & 0xE0 == ATOMIC:
                    bit = 1 << i.dst if i.imm == LOAD_ACQ else 1 << i.src | 1
                    may, must, stack, other = may & ~bit, must & ~bit, stack & ~bit | _R10, other & ~bit
            elif cls in (JMP, JMP32):
                op = opcode & OP_MASK
                if op == CALL and cls == JMP:
                    if i.src == PSEUDO_CALL:
                        callee = targets[index]
                        entry = (may & _ARGUMENTS, must & _ARGUMENTS, stack & _ARGUMENTS | _R10, other & _ARGUMENTS)
                        if _join(states, callee, entry):
                            push(callee)
                        if stack & _ARGUMENTS:
                            must &= ~_ALL_SLOTS
                            other |= _ALL_SLOTS
                    may, must = may & ~_CALLER_SAVED, must & ~_CALLER_SAVED
                    stack, other = stack & ~_CALLER_SAVED, other & ~_CALLER_SAVED
                elif op == EXIT and cls == JMP:
                    falls = False
                else:
                    target = targets[index]
                    falls = op != JA
            else:
                bit = 1 << i.dst if opcode == 0x18 else _CALLER_SAVED
                may, must, stack, other = may & ~bit, must & ~bit, stack & ~bit, other & ~bit
            state = (may, must, stack, other)
            if target >= 0 and _join(states, target, state):
                push(target)
            if not falls or index + 1 >= count or not _join(states, index + 1, state):
                break
            index += 1
            joined = states[index]
            assert joined is not None
            may, must, stack, other = joined
    unsure = (through if spilled else set()) - found.keys()
    return _fields(instructions, {**found, **dict.fromkeys(unsure, False)}, context, where)


def _word(offset: int) -> int:
    return _SLOTS + (512 + offset) // 8 if -512 <= offset <= -8 and not offset % 8 else -1


def _words(offset: int, size: int) -> int:
    bits = 0
    for at in {offset, offset + size - 1}:
        if -512 <= at < 0:
            bits |= 1 << (_SLOTS + (512 + at) // 8)
    return bits


def _join(states: list[_State | None], at: int, new: _State) -> bool:
    old = states[at]
    if old is None:
        states[at] = new
        return True
    if old == new:
        return False
    merged = (old[0] | new[0], old[1] & new[1], old[2] | new[2], old[3] | new[3])
    if merged == old:
        return False
    states[at] = merged
    return True


def _fields(
    instructions: Sequence[Instruction], found: dict[int, bool], context: Context, where: Callable[[int], str]
) -> tuple[ContextAccess, ...]:
    accesses = []
    for index, sure in sorted(found.items()):
        i = instructions[index]
        field = _field(i, context)
        if not isinstance(field, str):
            accesses.append(ContextAccess(index, field, sure))
        elif sure:  # else it is some other pointer, or the access check finds it
            raise InputError(field, where(index), "use the fields that this program type has")
    return tuple(accesses)


def _field(i: Instruction, context: Context) -> Field | str:
    if i.cls == STX and i.mode == ATOMIC:
        return "an atomic operation on the context"
    field = context.access(i.offset, i.size_bytes, i.cls != LDX)
    if not isinstance(field, str) and field.pointer is not None and (i.mode != MEM or i.cls != LDX):
        return f"{field.name} is a pointer and is only loaded whole, with 4 bytes"
    return field
