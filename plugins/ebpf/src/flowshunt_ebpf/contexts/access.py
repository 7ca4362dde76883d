"""Where a program loads and stores through its context pointer, and the rewriting of those accesses.

The kernel knows this from its verifier. Here a small data-flow analysis follows two things: the context pointer, which
programs only ever copy and spill, and addresses of the stack, since a store through one may change a spilled copy.
Registers and the 64 stack words of a frame are bits of an integer, so that a step is a few operations.

    bit 0 to 10    r0 to r10          bit 16 + k    the stack word at r10 - 512 + 8 k

What comes out is a claim, not a proof: code that runs without a verdict compares the register with the context's
address at each such access.
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


@attrs.frozen
class ContextAccess:
    """An access through the context pointer: the instruction's index, and the field."""

    index: int
    field: Field


def context_accesses(
    instructions: Sequence[Instruction], targets: Sequence[int], context: Context, where: Callable[[int], str]
) -> tuple[ContextAccess, ...]:
    """The accesses through the context pointer, by instruction.

    `targets`: for each instruction the index that it jumps to or calls, -1 for none; `where`: an instruction's place,
    for messages. Raises InputError for an access that the context does not allow, and for a register that is the
    context on one way to an instruction and something else on another.
    """
    count = len(instructions)
    # For each instruction: may hold the context, must hold it, may point into the stack. None: not reached yet.
    states: list[tuple[int, int, int] | None] = [None] * count
    states[0] = (0b10, 0b10, _R10)
    work = [0]
    found: dict[int, bool] = {}
    push = work.append
    while work:
        index = work.pop()
        state = states[index]
        assert state is not None
        may, must, stack = state
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
                else:
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
                bit = 1 << i.dst
                word = _word(i.offset) if i.src == 10 and opcode == (LDX | MEM | DW) else -1
                if word >= 0:
                    may = may | bit if may >> word & 1 else may & ~bit
                    must = must | bit if must >> word & 1 else must & ~bit
                    stack = stack | bit if stack >> word & 1 else stack & ~bit
                else:
                    may &= ~bit
                    must &= ~bit
                    stack &= ~bit
            elif cls in (STX, ST):
                if may >> i.dst & 1:
                    found[index] = bool(must >> i.dst & 1) and found.get(index, True)
                if i.dst == 10:
                    word = _word(i.offset) if opcode == (STX | MEM | DW) else -1
                    if word >= 0:
                        bit = 1 << word
                        may = may | bit if may >> i.src & 1 else may & ~bit
                        must = must | bit if must >> i.src & 1 else must & ~bit
                        stack = stack | bit if stack >> i.src & 1 else stack & ~bit
                    else:
                        gone = ~_words(i.offset, i.size_bytes)
                        may, must = may & gone, must & gone
                elif stack >> i.dst & 1:
                    must &= ~_ALL_SLOTS
                    if opcode == (STX | MEM | DW):
                        may |= _ALL_SLOTS if may >> i.src & 1 else 0
                        stack |= _ALL_SLOTS if stack >> i.src & 1 else 0
                if cls == STX and opcode & 0xE0 == ATOMIC:
                    bit = 1 << i.dst if i.imm == LOAD_ACQ else 1 << i.src | 1
                    may, must, stack = may & ~bit, must & ~bit, stack & ~bit | _R10
            elif cls in (JMP, JMP32):
                op = opcode & OP_MASK
                if op == CALL and cls == JMP:
                    if i.src == PSEUDO_CALL:
                        callee = targets[index]
                        entry = (may & _ARGUMENTS, must & _ARGUMENTS, stack & _ARGUMENTS | _R10)
                        if _join(states, callee, entry):
                            push(callee)
                        if stack & _ARGUMENTS:
                            must &= ~_ALL_SLOTS
                    may, must, stack = may & ~_CALLER_SAVED, must & ~_CALLER_SAVED, stack & ~_CALLER_SAVED
                elif op == EXIT and cls == JMP:
                    falls = False
                else:
                    target = targets[index]
                    falls = op != JA
            else:
                bit = 1 << i.dst if opcode == 0x18 else _CALLER_SAVED
                may, must, stack = may & ~bit, must & ~bit, stack & ~bit
            state = (may, must, stack)
            if target >= 0 and _join(states, target, state):
                push(target)
            if not falls or index + 1 >= count or not _join(states, index + 1, state):
                break
            index += 1
            joined = states[index]
            assert joined is not None
            may, must, stack = joined
    return _fields(instructions, found, context, where)


def _word(offset: int) -> int:
    return _SLOTS + (512 + offset) // 8 if -512 <= offset <= -8 and not offset % 8 else -1


def _words(offset: int, size: int) -> int:
    bits = 0
    for at in {offset, offset + size - 1}:
        if -512 <= at < 0:
            bits |= 1 << (_SLOTS + (512 + at) // 8)
    return bits


def _join(states: list[tuple[int, int, int] | None], at: int, new: tuple[int, int, int]) -> bool:
    old = states[at]
    if old is None:
        states[at] = new
        return True
    if old == new:
        return False
    merged = (old[0] | new[0], old[1] & new[1], old[2] | new[2])
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
        place = where(index)
        if not sure:
            raise InputError(
                f"r{i.src if i.cls == LDX else i.dst} is the context on one way here and something else on another",
                place,
                "keep the context in a register of its own",
            )
        if i.cls == STX and i.mode == ATOMIC:
            raise InputError("an atomic operation on the context", place, "load, compute and store instead")
        field = context.access(i.offset, i.size_bytes, i.cls != LDX)
        if isinstance(field, str):
            raise InputError(field, place, "use the fields that this program type has")
        if field.pointer is not None and (i.mode != MEM or i.cls != LDX):
            raise InputError(f"{field.name} is a pointer and is only loaded whole", place, "load it with 4 bytes")
        accesses.append(ContextAccess(index, field))
    return tuple(accesses)
