"""Conditional select: dst = (left op right) ? taken : other, with registers or small constants in each place."""

from collections.abc import Sequence

from flowshunt.host_registers import HostRegisters
from flowshunt.insn import (
    CONDITIONS,
    JEQ,
    JGE,
    JGT,
    JLE,
    JLT,
    JNE,
    JSET,
    JSGE,
    JSGT,
    JSLE,
    JSLT,
    Instruction,
    ja,
    jmp,
    jmp32,
    jmp32_imm,
    jmp_imm,
    mov32,
    mov32_imm,
    mov64,
    mov64_imm,
)
from flowshunt.operation import ExtendedOperation, NativeEmit
from flowshunt.payload import Layout, Values, number, result, signed, source
from flowshunt_einsn_csel.recognizer import recognize

LAYOUT = Layout(
    result("dst"),
    source("left"),
    number("condition", 4, 1, 13),
    number("wide", 1),
    number("by_number", 1),
    signed("right", 18),
    number("taken_kind", 2, 0, 3),
    signed("taken", 8),
    number("other_kind", 2, 0, 3),
    signed("other", 8),
)
"""`condition`: bits 4-7 of the jump's opcode. `right`: a register, or a number. The kinds say what `taken` and `other`
are: a register, its low 32 bits, a number, or a number cut to 32 bits."""

REGISTER, LOW, NUMBER, LOW_NUMBER = range(4)

_X86_64 = {
    JEQ: ("e", "ne"), JNE: ("ne", "e"), JGT: ("a", "be"), JGE: ("ae", "b"), JLT: ("b", "ae"), JLE: ("be", "a"),
    JSGT: ("g", "le"), JSGE: ("ge", "l"), JSLT: ("l", "ge"), JSLE: ("le", "g"), JSET: ("ne", "e"),
}  # fmt: skip
_ARM64 = {
    JEQ: "eq", JNE: "ne", JGT: "hi", JGE: "hs", JLT: "lo", JLE: "ls", JSGT: "gt", JSGE: "ge", JSLT: "lt", JSLE: "le",
    JSET: "ne",
}  # fmt: skip


def admissible(v: Values) -> str | None:
    """Numbers that name no condition or register."""
    if v.condition << 4 not in CONDITIONS:
        return "there is no such condition"
    if not v.by_number and not 0 <= v.right <= 10:
        return "what it compares with is no register"
    for kind, operand in ((v.taken_kind, v.taken), (v.other_kind, v.other)):
        if kind in (REGISTER, LOW) and not 0 <= operand <= 10:
            return "what it selects is no register"
    return None


def _move(dst: int, kind: int, operand: int) -> Instruction:
    return (mov64, mov32, mov64_imm, mov32_imm)[kind](dst, operand)


def _kept(v: Values) -> bool:
    """Whether the result keeps its value where the jump is taken."""
    return v.taken_kind == REGISTER and v.taken == v.dst


def proof(v: Values) -> Sequence[Instruction]:
    """The branch around one move, or the branch between two."""
    wide, narrow = (jmp_imm, jmp32_imm) if v.by_number else (jmp, jmp32)
    distance = 1 if _kept(v) else 2
    branch = (wide if v.wide else narrow)(v.condition << 4, v.left, v.right, distance)
    other = _move(v.dst, v.other_kind, v.other)
    return (branch, other) if _kept(v) else (branch, other, ja(1), _move(v.dst, v.taken_kind, v.taken))


def _operand(v: Values, register: HostRegisters, which: str, scratch: int) -> tuple[str, str]:
    """The register that holds `taken` or `other` in full, and what puts it there."""
    kind, operand = v[f"{which}_kind"], v[which]
    if kind == REGISTER:
        return register(operand), ""
    place = register.scratch(scratch)
    if kind == LOW:
        return place, f"mov {register.scratch(scratch, 32)}, {register(operand, 32)}\n"
    constant = operand & 0xFFFFFFFF if kind == LOW_NUMBER else operand
    sign = "#" if register.architecture == "arm64" else ""
    if sign or constant < 0:
        short = register.scratch(scratch, 32 if kind == LOW_NUMBER else 64)
        return place, f"mov {short}, {sign}{operand if kind == LOW_NUMBER else constant}\n"
    return place, f"mov {register.scratch(scratch, 32)}, {constant}\n"


def cmov(v: Values, register: HostRegisters) -> str:
    """x86-64: compare or test, then a conditional move; moves change no flags."""
    left = register(v.left, 64 if v.wide else 32)
    right = str(v.right) if v.by_number else register(v.right, 64 if v.wide else 32)
    condition = v.condition << 4
    if condition == JSET:
        text = f"test {left}, {right}\n"
    elif v.by_number and v.right == 0 and condition in (JEQ, JNE):
        text = f"test {left}, {left}\n"
    else:
        text = f"cmp {left}, {right}\n"
    dst = register(v.dst)
    holds, fails = _X86_64[condition]
    other, put_other = _operand(v, register, "other", 0)
    if _kept(v):
        return f"{text}{put_other}cmov{fails} {dst}, {other}"
    taken, put_taken = _operand(v, register, "taken", 1)
    if other == dst:
        return f"{text}{put_taken}cmov{holds} {dst}, {taken}"
    if taken == dst:
        return f"{text}{put_other}cmov{fails} {dst}, {other}"
    return f"{text}{put_taken}{put_other}mov {dst}, {other}\ncmov{holds} {dst}, {taken}"


def csel(v: Values, register: HostRegisters) -> str:
    """ARM64: compare or test, then a conditional select."""
    bits = 64 if v.wide else 32
    left = register(v.left, bits)
    text = ""
    if not v.by_number:
        right = register(v.right, bits)
    elif v.condition << 4 != JSET and 0 <= v.right < 4096:
        right = f"#{v.right}"
    else:
        right = register.scratch(2, bits)
        text = f"mov {right}, #{v.right if v.right < 0 else v.right & 0xFFFF}\n"
        if v.right < -0x10000:
            text = f"mov {right}, #{(v.right & 0xFFFF) - 0x10000}\nmovk {right}, #{v.right >> 16 & 0xFFFF}, lsl #16\n"
        elif v.right > 0xFFFF:
            text += f"movk {right}, #{v.right >> 16}, lsl #16\n"
    text += f"{'tst' if v.condition << 4 == JSET else 'cmp'} {left}, {right}\n"
    other, put_other = _operand(v, register, "other", 0)
    taken, put_taken = _operand(v, register, "taken", 1)
    return f"{text}{put_taken}{put_other}csel {register(v.dst)}, {taken}, {other}, {_ARM64[v.condition << 4]}"


def _cost(v: Values) -> float:
    return 2.0 + 0.25 * ((v.taken_kind != REGISTER) + (v.other_kind != REGISTER) + 2 * (not _kept(v)))


def _branch_cost(architecture: str, v: Values) -> float:
    """A branch, half of the time one or two moves, and a share of the cost of a mispredicted one."""
    return 3.5 if _kept(v) else 4.0


OPERATION = ExtendedOperation(
    name="csel",
    summary="conditional select: branches around moves as compare and conditional move",
    layout=LAYOUT,
    proof=proof,
    recognizer=lambda view: recognize(view, LAYOUT),
    emits={"x86_64": (NativeEmit(cmov, cost=_cost),), "arm64": (NativeEmit(csel, cost=_cost),)},
    max_instructions=4,
    max_bytes=40,
    admissible=admissible,
    cost=_branch_cost,
)
