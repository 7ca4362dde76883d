"""What arithmetic and comparisons mean (RFC 9669, sections 4.1 to 4.3), on Python's integers.

Registers are unsigned 64-bit values. This is the reference that the code generators are compared with.
"""

from collections.abc import Callable
from typing import Final

from flowshunt.insn import (
    ADD,
    ALU64,
    AND,
    ARSH,
    DIV,
    END,
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
    LSH,
    MOD,
    MOV,
    MUL,
    NEG,
    OR,
    RSH,
    SUB,
    XOR,
    Instruction,
    X,
)  # fmt: skip

MASK64: Final = (1 << 64) - 1
MASK32: Final = (1 << 32) - 1


def signed(value: int, bits: int) -> int:
    """The signed reading of a value's low bits."""
    half = 1 << (bits - 1)
    return ((value & ((1 << bits) - 1)) ^ half) - half


def _quotient(a: int, b: int) -> int:
    """Division that rounds towards zero."""
    quotient = abs(a) // abs(b)
    return -quotient if (a < 0) != (b < 0) else quotient


def _divide(a: int, b: int, bits: int, sign: bool) -> int:
    if b == 0:
        return 0
    return _quotient(signed(a, bits), signed(b, bits)) if sign else a // b


def _modulo(a: int, b: int, bits: int, sign: bool) -> int:
    if b == 0:
        return a
    if not sign:
        return a % b
    left, right = signed(a, bits), signed(b, bits)
    return left - right * _quotient(left, right)


_OPERATIONS: Final[dict[int, Callable[[int, int, int], int]]] = {
    ADD: lambda a, b, bits: a + b,
    SUB: lambda a, b, bits: a - b,
    MUL: lambda a, b, bits: a * b,
    OR: lambda a, b, bits: a | b,
    AND: lambda a, b, bits: a & b,
    XOR: lambda a, b, bits: a ^ b,
    LSH: lambda a, b, bits: a << (b & (bits - 1)),
    RSH: lambda a, b, bits: a >> (b & (bits - 1)),
    ARSH: lambda a, b, bits: signed(a, bits) >> (b & (bits - 1)),
    NEG: lambda a, b, bits: -a,
}


def arithmetic(i: Instruction, dst: int, src: int) -> int:
    """The new value of an arithmetic instruction's destination; `src`: the source register's value."""
    wide = i.opcode & 7 == ALU64
    bits = 64 if wide else 32
    mask = MASK64 if wide else MASK32
    op = i.opcode & 0xF0
    operand = src & mask if i.opcode & X else i.imm & mask
    if op == MOV:
        return signed(operand, i.offset) & mask if i.opcode & X and i.offset else operand
    if op == END:
        return swap(dst, i.imm, swapped=wide or bool(i.opcode & X))
    if op == DIV:
        return _divide(dst & mask, operand, bits, i.offset == 1) & mask
    if op == MOD:
        return _modulo(dst & mask, operand, bits, i.offset == 1) & mask
    return _OPERATIONS[op](dst & mask, operand, bits) & mask


def swap(value: int, bits: int, *, swapped: bool) -> int:
    """The low 16, 32 or 64 bits of a value, in the other byte order if `swapped`."""
    low = value & ((1 << bits) - 1)
    return int.from_bytes(low.to_bytes(bits // 8, "little"), "big") if swapped else low


_COMPARE: Final[dict[int, Callable[[int, int], bool]]] = {
    JEQ: lambda a, b: a == b,
    JNE: lambda a, b: a != b,
    JGT: lambda a, b: a > b,
    JGE: lambda a, b: a >= b,
    JLT: lambda a, b: a < b,
    JLE: lambda a, b: a <= b,
    JSET: lambda a, b: bool(a & b),
    JSGT: lambda a, b: a > b,
    JSGE: lambda a, b: a >= b,
    JSLT: lambda a, b: a < b,
    JSLE: lambda a, b: a <= b,
}
_SIGNED: Final = frozenset({JSGT, JSGE, JSLT, JSLE})


def holds(op: int, a: int, b: int, *, wide: bool) -> bool:
    """Whether a conditional jump is taken."""
    if op in _SIGNED:
        bits = 64 if wide else 32
        return _COMPARE[op](signed(a, bits), signed(b, bits))
    mask = MASK64 if wide else MASK32
    return _COMPARE[op](a & mask, b & mask)
