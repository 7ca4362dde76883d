"""The structural rules of proof sequences: plain eBPF that goes forward, calls nothing, and ends at its end."""

from collections.abc import Sequence
from typing import Any

from flowshunt.insn import (
    CALL,
    DW,
    EXIT,
    IMM,
    JA,
    JCOND,
    JMP,
    JMP32,
    LD,
    LD_IMM64,
    Instruction,
    X,
    check,
)


def broken_rule(sequence: Sequence[Any], limit: int) -> str | None:
    """Why a sequence is no proof sequence of at most `limit` instructions; None where it is one."""
    if not 1 <= len(sequence) <= limit:
        return f"it has {len(sequence)} instructions, 1 to {limit} are declared"
    boundaries, slot = set(), 0
    for instruction in sequence:
        if not isinstance(instruction, Instruction):
            return f"it holds {type(instruction).__name__}, not Instruction"
        boundaries.add(slot)
        slot += instruction.slots
    boundaries.add(slot)
    slot = 0
    for index, instruction in enumerate(sequence):
        slot += instruction.slots
        if wrong := check(instruction):
            return f"instruction {index} is not plain eBPF: {wrong}"
        if instruction.opcode == LD_IMM64 and instruction.src != 0:
            return f"instruction {index} loads a map, function or BTF id"
        if instruction.cls == LD and (instruction.mode, instruction.size) != (IMM, DW):
            return f"instruction {index} is a legacy packet load, which calls"
        if instruction.cls not in (JMP, JMP32):
            continue
        if instruction.op in (CALL, EXIT, JCOND) or instruction.opcode == JMP | JA | X:
            return f"instruction {index} calls, exits or loops"
        distance = instruction.imm if (instruction.cls, instruction.op) == (JMP32, JA) else instruction.offset
        if distance < 0 or slot + distance not in boundaries:
            return f"instruction {index} jumps by {distance}, not forward to an instruction or just past the end"
    return None
