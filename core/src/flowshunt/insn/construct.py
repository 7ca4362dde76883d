"""Constructors of instructions, one for each form, so that a program reads well in Python.

Immediates are 32 bits. The 32-bit forms take them signed or unsigned; the 64-bit forms extend the sign, so that a value
from 2^31 on would become another one there and is refused. All raise ValueError for a value that does not fit.
"""

from flowshunt.insn.instruction import Instruction
from flowshunt.insn.opcodes import (
    ABS,
    ALU,
    ALU64,
    ATOMIC,
    CALL_K,
    CALL_X,
    DIV,
    DW,
    END,
    EXIT_K,
    GOTOL,
    IND,
    JA_K,
    JMP,
    JMP32,
    LD,
    LD_IMM64,
    LDX,
    LOAD_ACQ,
    MAY_GOTO,
    MEM,
    MEMSX,
    MOD,
    MOV,
    NEG,
    PSEUDO_CALL,
    PSEUDO_FUNC,
    PSEUDO_KFUNC_CALL,
    PSEUDO_MAP_FD,
    PSEUDO_MAP_VALUE,
    SIGNED,
    ST,
    STORE_REL,
    STX,
    K,
    X,
)


def signed32(value: int, *, wide: bool = True) -> int:
    """A 32-bit immediate as it is kept, signed. `wide`: it is extended to 64 bits, so it must be signed."""
    if not -(1 << 31) <= value < (1 << 31 if wide else 1 << 32):
        raise ValueError(f"{value} does not fit a {'sign-extended ' if wide else ''}32-bit immediate")
    return value - (1 << 32) if value >= 1 << 31 else value


def signed64(value: int) -> int:
    """A 64-bit immediate as it is kept, signed."""
    if not -(1 << 63) <= value < 1 << 64:
        raise ValueError(f"{value} does not fit 64 bits")
    return value - (1 << 64) if value >= 1 << 63 else value


def _kind(op: int, signed: bool) -> int:
    if signed and op not in (DIV, MOD):
        raise ValueError("only DIV and MOD have a signed form")
    return SIGNED if signed else 0


def alu64(op: int, dst: int, src: int, *, signed: bool = False) -> Instruction:
    """dst = dst op src, 64 bits; `signed` picks the signed DIV or MOD."""
    return Instruction(ALU64 | op | X, dst, src, _kind(op, signed))


def alu64_imm(op: int, dst: int, imm: int, *, signed: bool = False) -> Instruction:
    """dst = dst op imm, 64 bits, the immediate sign-extended."""
    return Instruction(ALU64 | op | K, dst, 0, _kind(op, signed), signed32(imm))


def alu32(op: int, dst: int, src: int, *, signed: bool = False) -> Instruction:
    """dst = dst op src on the low 32 bits; the upper half of dst becomes zero."""
    return Instruction(ALU | op | X, dst, src, _kind(op, signed))


def alu32_imm(op: int, dst: int, imm: int, *, signed: bool = False) -> Instruction:
    """dst = dst op imm on the low 32 bits; the upper half of dst becomes zero."""
    return Instruction(ALU | op | K, dst, 0, _kind(op, signed), signed32(imm, wide=False))


def mov64(dst: int, src: int) -> Instruction:
    """dst = src."""
    return Instruction(ALU64 | MOV | X, dst, src)


def mov64_imm(dst: int, imm: int) -> Instruction:
    """dst = imm, sign-extended to 64 bits."""
    return Instruction(ALU64 | MOV | K, dst, 0, 0, signed32(imm))


def mov32(dst: int, src: int) -> Instruction:
    """dst = the low 32 bits of src."""
    return Instruction(ALU | MOV | X, dst, src)


def mov32_imm(dst: int, imm: int) -> Instruction:
    """dst = imm, zero-extended."""
    return Instruction(ALU | MOV | K, dst, 0, 0, signed32(imm, wide=False))


def movsx64(dst: int, src: int, bits: int) -> Instruction:
    """dst = the low 8, 16 or 32 bits of src, sign-extended to 64."""
    if bits not in (8, 16, 32):
        raise ValueError(f"a sign-extending move takes 8, 16 or 32 bits, not {bits}")
    return Instruction(ALU64 | MOV | X, dst, src, bits)


def movsx32(dst: int, src: int, bits: int) -> Instruction:
    """dst = the low 8 or 16 bits of src, sign-extended to 32, then zero-extended."""
    if bits not in (8, 16):
        raise ValueError(f"a sign-extending 32-bit move takes 8 or 16 bits, not {bits}")
    return Instruction(ALU | MOV | X, dst, src, bits)


def neg64(dst: int) -> Instruction:
    """dst = -dst."""
    return Instruction(ALU64 | NEG | K, dst)


def neg32(dst: int) -> Instruction:
    """dst = -dst on the low 32 bits; the upper half becomes zero."""
    return Instruction(ALU | NEG | K, dst)


def _width(bits: int) -> int:
    if bits not in (16, 32, 64):
        raise ValueError(f"a byte swap takes 16, 32 or 64 bits, not {bits}")
    return bits


def to_le(dst: int, bits: int) -> Instruction:
    """dst = its low `bits` bits, converted between host order and little-endian."""
    return Instruction(ALU | END | K, dst, 0, 0, _width(bits))


def to_be(dst: int, bits: int) -> Instruction:
    """dst = its low `bits` bits, converted between host order and big-endian."""
    return Instruction(ALU | END | X, dst, 0, 0, _width(bits))


def bswap(dst: int, bits: int) -> Instruction:
    """dst = its low `bits` bits with their bytes reversed."""
    return Instruction(ALU64 | END | K, dst, 0, 0, _width(bits))


def ldx(size: int, dst: int, src: int, offset: int) -> Instruction:
    """dst = *(size *)(src + offset), zero-extended."""
    return Instruction(LDX | MEM | size, dst, src, offset)


def ldxsx(size: int, dst: int, src: int, offset: int) -> Instruction:
    """dst = *(size *)(src + offset), sign-extended; B, H or W."""
    return Instruction(LDX | MEMSX | size, dst, src, offset)


def stx(size: int, dst: int, src: int, offset: int) -> Instruction:
    """*(size *)(dst + offset) = src."""
    return Instruction(STX | MEM | size, dst, src, offset)


def st(size: int, dst: int, offset: int, imm: int) -> Instruction:
    """*(size *)(dst + offset) = imm, sign-extended where size is DW."""
    return Instruction(ST | MEM | size, dst, 0, offset, signed32(imm, wide=size == DW))


def ld_abs(size: int, imm: int) -> Instruction:
    """r0 = the packet's bytes at imm, in host order; B, H or W. r6 must hold the context."""
    return Instruction(LD | ABS | size, imm=signed32(imm, wide=False))


def ld_ind(size: int, src: int, imm: int) -> Instruction:
    """r0 = the packet's bytes at src + imm, in host order; B, H or W. r6 must hold the context."""
    return Instruction(LD | IND | size, src=src, imm=signed32(imm, wide=False))


def atomic(size: int, op: int, dst: int, src: int, offset: int) -> Instruction:
    """An atomic operation on *(size *)(dst + offset); W or DW. `op`: ADD, OR, AND, XOR (| FETCH), XCHG, CMPXCHG."""
    return Instruction(STX | ATOMIC | size, dst, src, offset, op)


def load_acquire(size: int, dst: int, src: int, offset: int) -> Instruction:
    """dst = *(size *)(src + offset), with acquire order."""
    return Instruction(STX | ATOMIC | size, dst, src, offset, LOAD_ACQ)


def store_release(size: int, dst: int, src: int, offset: int) -> Instruction:
    """*(size *)(dst + offset) = src, with release order."""
    return Instruction(STX | ATOMIC | size, dst, src, offset, STORE_REL)


def ja(offset: int) -> Instruction:
    """Jump by `offset` slots, counted from the next one."""
    return Instruction(JA_K, offset=offset)


def gotol(imm: int) -> Instruction:
    """Jump by `imm` slots, counted from the next one."""
    return Instruction(GOTOL, imm=signed32(imm))


def may_goto(offset: int) -> Instruction:
    """Jump by `offset` slots once the kernel's budget of loop rounds is spent, else go on."""
    return Instruction(MAY_GOTO, offset=offset)


def jmp(op: int, dst: int, src: int, offset: int) -> Instruction:
    """Jump by `offset` slots if dst op src, 64 bits."""
    return Instruction(JMP | op | X, dst, src, offset)


def jmp_imm(op: int, dst: int, imm: int, offset: int) -> Instruction:
    """Jump by `offset` slots if dst op imm, 64 bits, the immediate sign-extended."""
    return Instruction(JMP | op | K, dst, 0, offset, signed32(imm))


def jmp32(op: int, dst: int, src: int, offset: int) -> Instruction:
    """Jump by `offset` slots if dst op src on the low 32 bits."""
    return Instruction(JMP32 | op | X, dst, src, offset)


def jmp32_imm(op: int, dst: int, imm: int, offset: int) -> Instruction:
    """Jump by `offset` slots if dst op imm on the low 32 bits."""
    return Instruction(JMP32 | op | K, dst, 0, offset, signed32(imm, wide=False))


def call(helper: int) -> Instruction:
    """r0 = helper(r1, ..., r5), by the helper's number; r1 to r5 are lost."""
    return Instruction(CALL_K, imm=signed32(helper))


def call_local(imm: int) -> Instruction:
    """r0 = the function `imm` slots from the next one."""
    return Instruction(CALL_K, src=PSEUDO_CALL, imm=signed32(imm))


def call_kfunc(btf_id: int, offset: int = 0) -> Instruction:
    """r0 = the kernel function with a BTF id; `offset` is the index of its module's BTF, 0 for the kernel itself."""
    return Instruction(CALL_K, src=PSEUDO_KFUNC_CALL, offset=offset, imm=signed32(btf_id))


def callx(dst: int) -> Instruction:
    """r0 = the function that the register points to."""
    return Instruction(CALL_X, dst)


def exit_() -> Instruction:
    """Return r0."""
    return Instruction(EXIT_K)


def ld_imm64(dst: int, value: int, src: int = 0) -> Instruction:
    """dst = value, 64 bits, two slots. `src` says what the value is: 0 a number, else one of the PSEUDO_ sources."""
    return Instruction(LD_IMM64, dst, src, 0, signed64(value))


def ld_map_fd(dst: int, fd: int) -> Instruction:
    """dst = the map behind a file descriptor."""
    return ld_imm64(dst, fd & 0xFFFFFFFF, PSEUDO_MAP_FD)


def ld_map_value(dst: int, fd: int, offset: int) -> Instruction:
    """dst = the address `offset` bytes into the first value of the map behind a file descriptor."""
    return ld_imm64(dst, fd & 0xFFFFFFFF | (offset & 0xFFFFFFFF) << 32, PSEUDO_MAP_VALUE)


def ld_function(dst: int, imm: int) -> Instruction:
    """dst = the address of the function `imm` slots from the slot after this load's first."""
    return ld_imm64(dst, imm & 0xFFFFFFFF, PSEUDO_FUNC)
