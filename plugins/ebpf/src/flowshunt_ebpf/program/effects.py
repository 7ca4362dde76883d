"""What each instruction reads and writes of the registers, halves told apart, in the form that liveness uses.

An effect is four sets (see `live_set`): what is written whatever happens; what is read; what is read besides only if
the upper half of the result is live; and that upper half. The low half of a result always counts as asked for, so that
an instruction whose result nobody reads still reads its operands.
"""

from collections.abc import Callable

from flowshunt.insn import (
    ABS,
    ADD,
    ALU,
    ALU64,
    AND,
    ARSH,
    ATOMIC,
    CALL_K,
    CALL_X,
    CMPXCHG,
    CONDITIONS,
    DIV,
    DW,
    END,
    EXIT_K,
    FETCH,
    GOTOL,
    IMM,
    IND,
    JA_K,
    JMP,
    JMP32,
    JSET,
    LD,
    LDX,
    LOAD_ACQ,
    LSH,
    MAY_GOTO,
    MEM,
    MEMSX,
    MOD,
    MOV,
    MUL,
    NEG,
    OR,
    PSEUDO_CALL,
    PSEUDO_KFUNC_CALL,
    PSEUDO_MAP_IDX_VALUE,
    R10,
    RSH,
    ST,
    STORE_REL,
    STX,
    SUB,
    XOR,
    B,
    H,
    Instruction,
    K,
    W,
    X,
)
from flowshunt_ebpf.program.helper_calls import helper_arguments
from flowshunt_ebpf.program.live_set import ALL_REGISTERS, WHOLE_STACK

Effect = tuple[int, int, int, int]
"""(written, read, read if any bit of `upper` is live, upper)."""

ARGUMENTS = 0b1111111111 << 2
"""r1 to r5, both halves."""

RESULT = 0b11
"""r0, both halves."""

CALL_WRITES = ARGUMENTS | RESULT

UNKNOWN: Effect = (0, ALL_REGISTERS | WHOLE_STACK, 0, 0)
"""An instruction that is not eBPF may read anything."""


def effect(instruction: Instruction) -> Effect:
    """The effect of an instruction on registers; the arguments of a local call and all memory are left out.

    An instruction whose register fields are not valid (an extended operation's, for one) counts as `UNKNOWN`.
    """
    opcode = instruction.opcode
    if instruction.src > _MOST_SRC[opcode] or instruction.dst > R10:
        return UNKNOWN
    return _EFFECTS[opcode](instruction)


def _none(i: Instruction) -> Effect:
    return 0, 0, 0, 0


def _unknown(i: Instruction) -> Effect:
    return UNKNOWN


def _operands_low(i: Instruction) -> Effect:
    """A 32-bit operation on dst and src."""
    return 3 << 2 * i.dst, 1 << 2 * i.dst | 1 << 2 * i.src, 0, 0


def _low(i: Instruction) -> Effect:
    return 3 << 2 * i.dst, 1 << 2 * i.dst, 0, 0


def _both(i: Instruction) -> Effect:
    return 3 << 2 * i.dst, 3 << 2 * i.dst, 0, 0


def _set(i: Instruction) -> Effect:
    return 3 << 2 * i.dst, 0, 0, 0


def _carry(i: Instruction) -> Effect:
    """The low half of the result comes from low halves; the upper half from all."""
    dst, src = 2 * i.dst, 2 * i.src
    return 3 << dst, 1 << dst | 1 << src, 2 << dst | 2 << src, 2 << dst


def _carry_immediate(i: Instruction) -> Effect:
    dst = 2 * i.dst
    return 3 << dst, 1 << dst, 2 << dst, 2 << dst


def _divide(i: Instruction) -> Effect:
    return 3 << 2 * i.dst, 3 << 2 * i.dst | 3 << 2 * i.src, 0, 0


def _and_immediate(i: Instruction) -> Effect:
    dst = 2 * i.dst
    return 3 << dst, 1 << dst, 2 << dst if i.imm < 0 else 0, 2 << dst


def _or_immediate(i: Instruction) -> Effect:
    dst = 2 * i.dst
    return 3 << dst, 1 << dst, 0 if i.imm < 0 else 2 << dst, 2 << dst


def _shift(i: Instruction) -> Effect:
    """By a register: only its low half counts, and any bit can end in any."""
    return 3 << 2 * i.dst, 3 << 2 * i.dst | 1 << 2 * i.src, 0, 0


def _shift_left(i: Instruction) -> Effect:
    """By a register: the low half comes from the low half."""
    dst = 2 * i.dst
    return 3 << dst, 1 << dst | 1 << 2 * i.src, 2 << dst, 2 << dst


def _shift_left_immediate(i: Instruction) -> Effect:
    dst, by = 2 * i.dst, i.imm & 63
    if by == 0:
        return 3 << dst, 1 << dst, 2 << dst, 2 << dst
    if by >= 32:
        return 3 << dst, 0, 1 << dst, 2 << dst
    return 3 << dst, 1 << dst, 3 << dst, 2 << dst


def _shift_right_immediate(i: Instruction) -> Effect:
    dst, by = 2 * i.dst, i.imm & 63
    if by == 0:
        return 3 << dst, 1 << dst, 2 << dst, 2 << dst
    if by >= 32:
        return 3 << dst, 2 << dst, 0, 0
    return 3 << dst, 3 << dst, 0, 0


def _move(i: Instruction) -> Effect:
    src, dst = 2 * i.src, 2 * i.dst
    if i.offset:  # sign-extending from 32 bits or less, or a cast between address spaces
        return 3 << dst, (3 if i.offset == 1 else 1) << src, 0, 0
    return 3 << dst, 1 << src, 2 << src, 2 << dst


def _move_low(i: Instruction) -> Effect:
    return 3 << 2 * i.dst, 1 << 2 * i.src, 0, 0


def _swap(i: Instruction) -> Effect:
    """A 64-bit swap crosses the halves; one that may be none (to_le, to_be) reads both."""
    dst = 2 * i.dst
    if i.imm == 64:
        return (3 << dst, 2 << dst, 1 << dst, 2 << dst) if i.opcode == ALU64 | END else (3 << dst, 3 << dst, 0, 0)
    return 3 << dst, 1 << dst, 0, 0


def _compare(i: Instruction) -> Effect:
    return 0, 3 << 2 * i.dst | 3 << 2 * i.src, 0, 0


def _compare_immediate(i: Instruction) -> Effect:
    return 0, 3 << 2 * i.dst, 0, 0


def _test_immediate(i: Instruction) -> Effect:
    return 0, (3 if i.imm < 0 else 1) << 2 * i.dst, 0, 0


def _compare_low(i: Instruction) -> Effect:
    return 0, 1 << 2 * i.dst | 1 << 2 * i.src, 0, 0


def _compare_low_immediate(i: Instruction) -> Effect:
    return 0, 1 << 2 * i.dst, 0, 0


def _load(i: Instruction) -> Effect:
    return 3 << 2 * i.dst, 3 << 2 * i.src, 0, 0


def _store_register(i: Instruction) -> Effect:
    return 0, 3 << 2 * i.dst | 1 << 2 * i.src, 0, 0


def _store_register_wide(i: Instruction) -> Effect:
    return 0, 3 << 2 * i.dst | 3 << 2 * i.src, 0, 0


def _store(i: Instruction) -> Effect:
    return 0, 3 << 2 * i.dst, 0, 0


def _atomic(i: Instruction) -> Effect:
    if i.imm == LOAD_ACQ:
        return _load(i)
    value = 3 if i.size == DW else 1
    read = 3 << 2 * i.dst | value << 2 * i.src
    if i.imm == CMPXCHG:
        return RESULT, read | value, 0, 0
    return (3 << 2 * i.src if i.imm & FETCH and i.imm != STORE_REL else 0), read, 0, 0


def _call(i: Instruction) -> Effect:
    if i.src == 0:
        return CALL_WRITES, ((1 << 2 * helper_arguments(i.imm)) - 1) << 2, 0, 0
    return CALL_WRITES, 0 if i.src == PSEUDO_CALL else ARGUMENTS, 0, 0


def _call_register(i: Instruction) -> Effect:
    return CALL_WRITES, ARGUMENTS | 3 << 2 * i.dst, 0, 0


def _packet_absolute(i: Instruction) -> Effect:
    return CALL_WRITES, 3 << 2 * 6, 0, 0


def _packet_indirect(i: Instruction) -> Effect:
    return CALL_WRITES, 3 << 2 * 6 | 3 << 2 * i.src, 0, 0


def _table() -> tuple[Callable[[Instruction], Effect], ...]:
    table: list[Callable[[Instruction], Effect]] = [_unknown] * 256
    for op in (ADD, SUB, MUL, DIV, OR, AND, LSH, RSH, MOD, XOR, ARSH):
        table[ALU | op | X] = _operands_low
        table[ALU | op | K] = _low
        table[ALU64 | op | X] = _carry
        table[ALU64 | op | K] = _carry_immediate
    for op in (DIV, MOD):
        table[ALU64 | op | X] = _divide
        table[ALU64 | op | K] = _both
    table[ALU64 | AND | K] = _and_immediate
    table[ALU64 | OR | K] = _or_immediate
    table[ALU64 | LSH | X] = _shift_left
    table[ALU64 | LSH | K] = _shift_left_immediate
    table[ALU64 | RSH | X] = table[ALU64 | ARSH | X] = _shift
    table[ALU64 | RSH | K] = table[ALU64 | ARSH | K] = _shift_right_immediate
    table[ALU64 | MOV | X], table[ALU64 | MOV | K] = _move, _set
    table[ALU | MOV | X], table[ALU | MOV | K] = _move_low, _set
    table[ALU64 | NEG | K], table[ALU | NEG | K] = _carry_immediate, _low
    table[ALU | END | K] = table[ALU | END | X] = table[ALU64 | END | K] = _swap
    for op in CONDITIONS:
        table[JMP | op | X], table[JMP | op | K] = _compare, _compare_immediate
        table[JMP32 | op | X], table[JMP32 | op | K] = _compare_low, _compare_low_immediate
    table[JMP | JSET | K] = _test_immediate
    table[JA_K] = table[GOTOL] = table[MAY_GOTO] = table[EXIT_K] = _none
    table[CALL_K], table[CALL_X] = _call, _call_register
    table[LD | IMM | DW] = _set
    for size in (B, H, W, DW):
        table[LDX | MEM | size] = table[LDX | MEMSX | size] = _load
        table[ST | MEM | size] = _store
        table[STX | MEM | size] = _store_register_wide if size == DW else _store_register
        table[STX | ATOMIC | size] = _atomic
        table[LD | IND | size] = _packet_indirect
        table[LD | ABS | size] = _packet_absolute
    table[LD | IND | DW] = table[LD | ABS | DW] = _unknown
    return tuple(table)


def _most_src() -> bytes:
    """Opcode to the greatest valid value of the field src."""
    most = bytearray([R10]) * 256
    for op in range(0, 256, 16):
        for cls in (ALU, ALU64, JMP, JMP32):
            most[cls | op | K] = 0
    for size in (B, H, W, DW):
        most[ST | MEM | size] = most[LD | ABS | size] = 0
    most[LD | IMM | DW] = PSEUDO_MAP_IDX_VALUE
    most[CALL_K] = PSEUDO_KFUNC_CALL
    return bytes(most)


_EFFECTS = _table()
_MOST_SRC = _most_src()
