"""Rotate: dst = src rotated left or right by a constant or by a register, 32 or 64 bits wide."""

from collections.abc import Sequence

from flowshunt.host_registers import HostRegisters
from flowshunt.insn import LSH, OR, RSH, Instruction, alu32, alu32_imm, alu64, alu64_imm, mov64, neg64
from flowshunt.operation import ExtendedOperation, NativeEmit
from flowshunt.payload import NO_REGISTER, Layout, Values, number, result, source, temporary
from flowshunt_einsn_rotate.recognizer import recognize

LAYOUT = Layout(
    result("dst"),
    source("src"),
    source("count"),
    temporary("shifted"),
    temporary("negated"),
    number("amount", 6),
    number("by_register", 1),
    number("right", 1),
    number("wide", 1),
)
"""By a constant: `amount` to the left, and `count` is `src`. By a register: `count`, either way, modulo the width."""


def admissible(v: Values) -> str | None:
    """Registers that would lose a value before it is read, and constants that are no rotate."""
    if v.shifted in (v.dst, NO_REGISTER):
        return "it needs a temporary besides its result"
    if v.by_register:
        if v.amount:
            return "it rotates by a register, and by a constant too"
        if v.count in (v.dst, v.shifted) or v.negated in (v.dst, v.shifted, NO_REGISTER):
            return "the count would be lost before it is read"
    elif v.right or v.negated != NO_REGISTER or v.count != v.src or not 0 < v.amount < (64 if v.wide else 32):
        return "a rotate by a constant is one to the left, by 1 to its width - 1"
    return None


def proof(v: Values) -> Sequence[Instruction]:
    """One shift in a temporary, the other in the result, and both together."""
    by_register, by_number = (alu64, alu64_imm) if v.wide else (alu32, alu32_imm)
    sequence = [mov64(v.shifted, v.src)] if v.shifted != v.src else []
    if v.dst != v.src:
        sequence.append(mov64(v.dst, v.src))
    if not v.by_register:
        width = 64 if v.wide else 32
        return (*sequence, by_number(RSH, v.shifted, width - v.amount), by_number(LSH, v.dst, v.amount),
                by_register(OR, v.dst, v.shifted))  # fmt: skip
    first, second = (RSH, LSH) if v.right else (LSH, RSH)
    sequence.append(by_register(first, v.shifted, v.count))
    if v.negated != v.count:
        sequence.append(mov64(v.negated, v.count))
    return (*sequence, neg64(v.negated), by_register(second, v.dst, v.negated), by_register(OR, v.dst, v.shifted))


def rorx(v: Values, register: HostRegisters) -> str:
    """x86-64 with BMI2: one instruction from any register to any other; the count is a constant."""
    bits = 64 if v.wide else 32
    return "" if v.by_register else f"rorx {register(v.dst, bits)}, {register(v.src, bits)}, {bits - v.amount}"


def rotate_x86_64(v: Values, register: HostRegisters) -> str:
    """x86-64: in place; a count in a register has to stand in cl, which is part of r4."""
    bits = 64 if v.wide else 32
    dst = register(v.dst, bits)
    move = f"mov {dst}, {register(v.src, bits)}\n" if v.dst != v.src else ""
    if not v.by_register:
        return move + f"rol {dst}, {v.amount}"
    way = "ror" if v.right else "rol"
    if register(v.count) == "rcx":
        return move + f"{way} {dst}, cl"
    if register(v.dst) != "rcx":
        kept = register.scratch(0)
        return move + f"mov {kept}, rcx\nmov ecx, {register(v.count, 32)}\n{way} {dst}, cl\nmov rcx, {kept}"
    value = register.scratch(0, bits)
    return (
        f"mov {value}, {register(v.src, bits)}\nmov ecx, {register(v.count, 32)}\n{way} {value}, cl\nmov {dst}, {value}"
    )


def ror_arm64(v: Values, register: HostRegisters) -> str:
    """ARM64: ror by a constant or a register; to the left by the negated count."""
    bits = 64 if v.wide else 32
    dst, src = register(v.dst, bits), register(v.src, bits)
    if not v.by_register:
        return f"ror {dst}, {src}, #{bits - v.amount}"
    count = register(v.count, bits)
    if v.right:
        return f"ror {dst}, {src}, {count}"
    return f"neg {register.scratch(0, bits)}, {count}\nror {dst}, {src}, {register.scratch(0, bits)}"


OPERATION = ExtendedOperation(
    name="rotate",
    summary="rotate by a constant or by a register, 32 or 64 bits",
    layout=LAYOUT,
    proof=proof,
    recognizer=lambda view: recognize(view, LAYOUT, admissible),
    emits={
        "x86_64": (
            NativeEmit(rorx, frozenset({"bmi2"}), cost=1.0),
            NativeEmit(rotate_x86_64, cost=lambda v: 3.0 if v.by_register else 1.0 + (v.dst != v.src)),
        ),
        "arm64": (NativeEmit(ror_arm64, cost=lambda v: 1.0 + (v.by_register and not v.right)),),
    },
    max_instructions=7,
    max_bytes=20,
    admissible=admissible,
)
