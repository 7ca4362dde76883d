"""Whether an instruction is valid plain eBPF, by itself: fields that no instruction uses must be zero.

The rules are those of RFC 9669 and, for what came later, of Linux's `bpf_check_ops`/`check_alu_op` in
kernel/bpf/verifier.c. What depends on the rest of the program (jump targets, types, memory) is not looked at here.
"""

from collections.abc import Callable

from flowshunt.insn.instruction import Instruction
from flowshunt.insn.opcodes import (
    ABS,
    ADDRESS_SPACE_CAST,
    ALU,
    ALU64,
    ATOMIC,
    ATOMIC_NAMES,
    CALL,
    CMPXCHG,
    CONDITIONS,
    DIV,
    DW,
    END,
    EXIT,
    FETCH,
    IMM,
    IND,
    JA,
    JCOND,
    JMP,
    JMP32,
    LD,
    LDX,
    LOAD_ACQ,
    MEM,
    MEMSX,
    MOD,
    MOV,
    NEG,
    PSEUDO_BTF_ID,
    PSEUDO_FUNC,
    PSEUDO_KFUNC_CALL,
    PSEUDO_MAP_FD,
    PSEUDO_MAP_IDX,
    R10,
    REGISTERS,
    SIGNED,
    ST,
    STORE_REL,
    STX,
    B,
    H,
    K,
    X,
)


def check(instruction: Instruction) -> str | None:
    """Why an instruction is not valid plain eBPF; None where it is valid."""
    return _CHECKS[instruction.opcode & 7](instruction)


def _undefined(i: Instruction) -> str:
    return f"opcode {i.opcode:#04x} is not defined"


def _zero(i: Instruction, *names: str) -> str | None:
    for name in names:
        value = getattr(i, name)
        if value:
            return f"{name} is reserved and must be 0, not {value}"
    return None


def _register(i: Instruction, *names: str) -> str | None:
    for name in names:
        value = getattr(i, name)
        if value >= REGISTERS:
            return f"{name} is r{value}; registers are r0 to r10"
    return None


def _written(register: int) -> str | None:
    if register >= REGISTERS:
        return f"r{register} is not a register; registers are r0 to r10"
    if register == R10:
        return "r10, the frame pointer, can't be written"
    return None


def _arithmetic(i: Instruction) -> str | None:
    op, wide = i.op, i.cls == ALU64
    if op > END:
        return _undefined(i)
    if op == END:
        return _swap(i, wide)
    if op == NEG:
        if i.source == X:
            return _undefined(i)
        return _written(i.dst) or _zero(i, "src", "offset", "imm")
    wrong = _written(i.dst)
    wrong = wrong or (_zero(i, "src") if i.source == K else _register(i, "src"))
    if wrong:
        return wrong
    if op == MOV and i.source == X:
        return _move(i, wide)
    if i.source == X and i.imm:
        return _zero(i, "imm")
    if op in (DIV, MOD):
        return None if i.offset in (0, SIGNED) else f"offset of a division is 0 or 1 (signed), not {i.offset}"
    return _zero(i, "offset")


def _move(i: Instruction, wide: bool) -> str | None:
    if wide and i.offset == ADDRESS_SPACE_CAST:
        return None if i.imm in (1, 1 << 16) else f"imm of an address space cast is 1 or 65536, not {i.imm}"
    if i.offset not in ((0, 8, 16, 32) if wide else (0, 8, 16)):
        return f"offset of a move is the bits to extend, 8, 16{', 32' if wide else ''} or none, not {i.offset}"
    return _zero(i, "imm")


def _swap(i: Instruction, wide: bool) -> str | None:
    if wide and i.source == X:
        return _undefined(i)
    wrong = _written(i.dst) or _zero(i, "src", "offset")
    if wrong is None and i.imm not in (16, 32, 64):
        return f"imm of a byte swap is its width, 16, 32 or 64, not {i.imm}"
    return wrong


def _jump(i: Instruction) -> str | None:
    op, wide = i.op, i.cls == JMP
    if op in CONDITIONS:
        wrong = _register(i, "dst")
        return wrong or (_zero(i, "src") if i.source == K else _register(i, "src") or _zero(i, "imm"))
    if op == JA and i.source == K:
        return _zero(i, "dst", "src", "imm" if wide else "offset")
    if not wide:
        return _undefined(i)
    if op == CALL:
        return _call(i)
    if op == EXIT and i.source == K:
        return _zero(i, "dst", "src", "offset", "imm")
    if op == JCOND and i.source == K:
        return _zero(i, "dst", "src", "imm")
    return _undefined(i)


def _call(i: Instruction) -> str | None:
    if i.source == X:
        return _register(i, "dst") or _zero(i, "src", "offset", "imm")
    if i.src > PSEUDO_KFUNC_CALL:
        return f"src of a call is 0 (helper), 1 (local) or 2 (kernel function), not {i.src}"
    return _zero(i, "dst") if i.src == PSEUDO_KFUNC_CALL else _zero(i, "dst", "offset")


def _load_immediate(i: Instruction) -> str | None:
    if i.mode == IMM and i.size == DW:
        return _wide(i)
    if i.mode not in (ABS, IND) or i.size == DW:
        return _undefined(i)
    return _zero(i, "dst", "offset") or (_zero(i, "src") if i.mode == ABS else _register(i, "src"))


def _wide(i: Instruction) -> str | None:
    wrong = _written(i.dst) or _zero(i, "offset")
    if wrong is None and i.src > PSEUDO_MAP_IDX + 1:
        return f"src of a 64-bit immediate load is 0 to 6, not {i.src}"
    if wrong is None and i.src in (PSEUDO_MAP_FD, PSEUDO_MAP_IDX, PSEUDO_FUNC) and i.imm >> 32:
        return "the upper half of a map or function is reserved and must be 0"
    if wrong is None and i.src == PSEUDO_BTF_ID and i.imm >> 32 < 0:
        return "the upper half of a BTF variable is its module's BTF descriptor and must not be negative"
    return wrong


def _load(i: Instruction) -> str | None:
    if i.mode != MEM and (i.mode != MEMSX or i.size == DW):
        return _undefined(i)
    return _written(i.dst) or _register(i, "src") or _zero(i, "imm")


def _store(i: Instruction) -> str | None:
    if i.mode != MEM:
        return _undefined(i)
    return _register(i, "dst") or _zero(i, "src")


def _store_register(i: Instruction) -> str | None:
    if i.mode == MEM:
        return _register(i, "dst", "src") or _zero(i, "imm")
    if i.mode != ATOMIC:
        return _undefined(i)
    if i.imm not in ATOMIC_NAMES:
        return f"atomic operation {i.imm:#x} is not defined"
    if i.size in (B, H) and i.imm not in (LOAD_ACQ, STORE_REL):
        return f"atomic {ATOMIC_NAMES[i.imm]} takes 4 or 8 bytes, not {i.size_bytes}"
    if i.imm == LOAD_ACQ:
        return _written(i.dst) or _register(i, "src")
    wrong = _register(i, "dst", "src")
    if wrong is None and i.imm & FETCH and i.imm != CMPXCHG:  # a compare-exchange writes r0, the other ones src
        return _written(i.src)
    return wrong


_CHECKS: dict[int, Callable[[Instruction], str | None]] = {
    LD: _load_immediate,
    LDX: _load,
    ST: _store,
    STX: _store_register,
    ALU: _arithmetic,
    JMP: _jump,
    JMP32: _jump,
    ALU64: _arithmetic,
}
