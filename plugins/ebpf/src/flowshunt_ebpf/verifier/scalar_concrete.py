"""What arithmetic does to single values (RFC 9669, section 4.1), at any width that is a power of two."""

from collections.abc import Callable
from typing import Final

from flowshunt.insn import ADD, AND, ARSH, DIV, LSH, MOD, MOV, MUL, NEG, OR, RSH, SUB, XOR


def signed(bits: int, value: int) -> int:
    """The signed reading."""
    sign = 1 << (bits - 1)
    return (value ^ sign) - sign


def quotient(a: int, b: int) -> int:
    """a / b rounded towards zero; b is not 0."""
    return a // b if (a < 0) == (b < 0) else -(-a // b)


_OPERATIONS: Final[dict[int, Callable[[int, int, int], int]]] = {
    ADD: lambda bits, a, b: a + b,
    SUB: lambda bits, a, b: a - b,
    MUL: lambda bits, a, b: a * b,
    DIV: lambda bits, a, b: a // b if b else 0,
    MOD: lambda bits, a, b: a % b if b else a,
    AND: lambda bits, a, b: a & b,
    OR: lambda bits, a, b: a | b,
    XOR: lambda bits, a, b: a ^ b,
    LSH: lambda bits, a, b: a << (b & (bits - 1)),
    RSH: lambda bits, a, b: a >> (b & (bits - 1)),
    ARSH: lambda bits, a, b: signed(bits, a) >> (b & (bits - 1)),
    NEG: lambda bits, a, b: -a,
    MOV: lambda bits, a, b: b,
}


def concrete(bits: int, op: int, a: int, b: int) -> int:
    """a op b of unsigned values of this width; division by 0 gives 0, its remainder a."""
    return _OPERATIONS[op](bits, a, b) & ((1 << bits) - 1)
