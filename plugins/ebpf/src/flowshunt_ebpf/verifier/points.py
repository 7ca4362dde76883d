"""What is known of each instruction before the analysis: its operation, its target, and whether paths meet there."""

from enum import IntEnum
from typing import Final

from flowshunt.insn import (
    ALU,
    ALU64,
    ATOMIC,
    CALL_K,
    EXIT_K,
    GOTOL,
    JA_K,
    LD,
    LD_IMM64,
    LDX,
    MAY_GOTO,
    PSEUDO_CALL,
    ST,
    STX,
    Instruction,
)
from flowshunt_ebpf.program import ControlFlow
from flowshunt_ebpf.program.helper_calls import CALLBACK_HELPERS

ARITHMETIC, LOAD, STORE, ATOMICS, IMMEDIATE, LEGACY, CONDITION, JUMP, CALLS, EXITS, LIMITED = range(11)
"""Operations; LIMITED: may_goto."""

_SPECIAL: Final = {CALL_K: CALLS, EXIT_K: EXITS, MAY_GOTO: LIMITED, JA_K: JUMP, GOTOL: JUMP}


class Point(IntEnum):
    """Whether states are kept at an instruction."""

    NONE = 0
    MEETING = 1  # where paths meet
    LIMITED = 2  # a may_goto: a function passes it so often at most
    CALLBACK = 3  # a call of a helper that calls back
    RETURNED = 4  # the same, where the callback has just returned: the helper calls it so often at most


def operation(i: Instruction) -> int:
    """An instruction's operation."""
    opcode = i.opcode
    cls = opcode & 7
    if cls in (ALU, ALU64):
        return ARITHMETIC
    if cls == LDX:
        return LOAD
    if cls == ST:
        return STORE
    if cls == STX:
        return ATOMICS if opcode & 0xE0 == ATOMIC else STORE
    if cls == LD:
        return IMMEDIATE if opcode == LD_IMM64 else LEGACY
    return _SPECIAL.get(opcode, CONDITION)


def jump_targets(flow: ControlFlow) -> list[int]:
    """For each instruction the one that it jumps to; -1: none."""
    program = flow.program
    targets = [-1] * len(program.instructions)
    for index, i in enumerate(program.instructions):
        if operation(i) in (CONDITION, JUMP, LIMITED):
            targets[index] = program.target(index, i.imm if i.opcode == GOTOL else i.offset)
    return targets


def points(flow: ControlFlow) -> bytes:
    """A `Point` for each instruction."""
    found = bytearray(len(flow.program.instructions))
    for block in flow.blocks:
        if len(block.predecessors) > 1:
            found[block.start] = Point.MEETING
    for entry in flow.entries[1:]:
        found[flow.blocks[entry].start] = Point.MEETING
    for index, i in enumerate(flow.program.instructions):
        if i.opcode == CALL_K and i.src == PSEUDO_CALL:
            found[index + 1] = found[index + 1] or Point.MEETING
        elif i.opcode == MAY_GOTO:
            found[index] = Point.LIMITED
        elif i.opcode == CALL_K and not i.src and i.imm in CALLBACK_HELPERS:
            found[index] = Point.CALLBACK
    return bytes(found)
