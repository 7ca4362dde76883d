"""What arithmetic does to sets of values.

A set that an operation gives is a superset of what it can give on the operands' values (soundness). The kernel's
scalar_min_max_* functions (kernel/bpf/verifier.c) are the model for the bounds; a division, a remainder and a shift by
an amount that is not known are followed here as well.

Operations are written once for any width, on what is known at this width: value and mask, bounds unsigned and signed.
The low half of most results depends on the operands' low halves alone, so that they run once more on these.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Final

from flowshunt.insn import ADD, AND, ARSH, DIV, LSH, MOD, MOV, MUL, NEG, OR, RSH, SUB, XOR
from flowshunt_ebpf.verifier import scalar_division as division
from flowshunt_ebpf.verifier import tnum
from flowshunt_ebpf.verifier.scalar_concrete import concrete
from flowshunt_ebpf.verifier.scalar_value import UNKNOWN, Scalar, const, join, low_bits, settled
from flowshunt_ebpf.verifier.scalar_width import BYTE, HALF, LOW, LOW_SMAX, MASK, WIDTH

View = tuple[int, int, int, int, int, int]
"""Value and mask, bounds unsigned, bounds signed, at some width."""

ZERO: Final = const(0)


def add(bits: int, a: View, b: View) -> View:
    """a + b. An interval stays one where all sums wrap around equally often."""
    av, am, alo, ahi, aslo, ashi = a
    bv, bm, blo, bhi, bslo, bshi = b
    ones = (1 << bits) - 1
    value, mask = tnum.add(av, am, bv, bm, ones)
    return value, mask, *wrapped(bits, alo + blo, ahi + bhi, aslo + bslo, ashi + bshi)


def sub(bits: int, a: View, b: View) -> View:
    """a - b."""
    av, am, alo, ahi, aslo, ashi = a
    bv, bm, blo, bhi, bslo, bshi = b
    ones = (1 << bits) - 1
    value, mask = tnum.sub(av, am, bv, bm, ones)
    return value, mask, *wrapped(bits, alo - bhi, ahi - blo, aslo - bshi, ashi - bslo)


def mul(bits: int, a: View, b: View) -> View:
    """a * b. A signed product is extreme at two of the bounds."""
    av, am, alo, ahi, aslo, ashi = a
    bv, bm, blo, bhi, bslo, bshi = b
    ones = (1 << bits) - 1
    value, mask = tnum.mul(av, am, bv, bm, ones)
    corners = (aslo * bslo, aslo * bshi, ashi * bslo, ashi * bshi)
    return value, mask, *wrapped(bits, alo * blo, ahi * bhi, min(corners), max(corners))


def wrapped(bits: int, lo: int, hi: int, slo: int, shi: int) -> tuple[int, int, int, int]:
    """Bounds of values of any size, cut to a width: known where both bounds wrap around equally often."""
    ones = (1 << bits) - 1
    half = 1 << (bits - 1)
    if lo >> bits == hi >> bits:
        lo &= ones
        hi &= ones
    else:
        lo, hi = 0, ones
    slo += half
    shi += half
    if slo >> bits == shi >> bits:
        return lo, hi, (slo & ones) - half, (shi & ones) - half
    return lo, hi, -half, half - 1


def conjunction(bits: int, a: View, b: View) -> View:
    """a & b: not above either, unsigned; and signed not above a bound that is not negative."""
    value, mask = tnum.conjunction(a[0], a[1], b[0], b[1])
    return value, mask, value, min(value | mask, a[3], b[3]), -1 << (bits - 1), (1 << (bits - 1)) - 1


def disjunction(bits: int, a: View, b: View) -> View:
    """a | b: not below either, unsigned."""
    value, mask = tnum.disjunction(a[0], a[1], b[0], b[1])
    return value, mask, max(value, a[2], b[2]), value | mask, -1 << (bits - 1), (1 << (bits - 1)) - 1


def exclusive(bits: int, a: View, b: View) -> View:
    """a ^ b."""
    value, mask = tnum.exclusive(a[0], a[1], b[0], b[1])
    return value, mask, value, value | mask, -1 << (bits - 1), (1 << (bits - 1)) - 1


def shift_right(bits: int, a: View, amount: int) -> View:
    """a >> amount, zeros coming in."""
    value, mask, lo, hi = a[:4]
    if not amount:
        return a
    return value >> amount, mask >> amount, lo >> amount, hi >> amount, -1 << (bits - 1), (1 << (bits - 1)) - 1


def shift_arithmetic(bits: int, a: View, amount: int) -> View:
    """a >> amount, the sign bit coming in."""
    value, mask, _, _, slo, shi = a
    ones = (1 << bits) - 1
    value, mask = tnum.arithmetic_shift(value, mask, amount, 1 << (bits - 1), ones)
    return value, mask, 0, ones, slo >> amount, shi >> amount


def shift_left(bits: int, low: View, amount: int) -> View:
    """a << amount, of what is known of the low `bits - amount` bits of a."""
    value, mask, lo, hi, slo, shi = low
    return value << amount, mask << amount, lo << amount, hi << amount, slo << amount, shi << amount


_BY_WIDTH: Final[dict[int, Callable[[int, View, View], View]]] = {
    ADD: add,
    SUB: sub,
    MUL: mul,
    AND: conjunction,
    OR: disjunction,
    XOR: exclusive,
}
_DIVISIONS: Final[dict[int, Callable[[int, View, View], View]]] = {
    DIV: division.divide,
    MOD: division.remainder,
}


def wide(a: Scalar) -> View:
    """What is known of all bits."""
    return a[:6]


def low(a: Scalar) -> View:
    """What is known of the low half."""
    return a[0] & LOW, a[1] & LOW, a[6], a[7], a[8], a[9]


def of_low(view: View) -> Scalar:
    """The low half, zero-extended."""
    value, mask, lo, hi, slo, shi = view
    return settled(value, mask, lo, hi, 0, MASK, lo, hi, slo, shi)


def alu64(op: int, a: Scalar, b: Scalar) -> Scalar:
    """a op b on 64 bits. `op`: an arithmetic opcode of `flowshunt.insn`; NEG ignores b, MOV ignores a."""
    if op == MOV:
        return b
    if not a[1] and not b[1]:
        return const(concrete(WIDTH, op, a[0], b[0]))
    return _alu64(op, a, b)


def alu32(op: int, a: Scalar, b: Scalar) -> Scalar:
    """a op b on the low 32 bits, the upper half of the result zero."""
    if not a[1] & LOW and not b[1] & LOW:
        return const(concrete(HALF, op, a[0] & LOW, b[0] & LOW))
    return _alu32(op, a, b)


@lru_cache(maxsize=1 << 13)
def _alu64(op: int, a: Scalar, b: Scalar) -> Scalar:
    compute = _BY_WIDTH.get(op)
    if compute is not None:
        if a[3] <= LOW_SMAX and b[3] <= LOW_SMAX and op != SUB:  # the low half has nothing to add
            return settled(*compute(WIDTH, a[:6], b[:6]))
        return settled(*compute(WIDTH, a[:6], b[:6]), *compute(HALF, low(a), low(b))[2:])
    if op == NEG:
        return alu64(SUB, ZERO, a)
    if op in _DIVISIONS:
        return settled(*_DIVISIONS[op](WIDTH, a[:6], b[:6]))
    if op == MOV:
        return b
    return _shift(op, a, b)


@lru_cache(maxsize=1 << 13)
def _alu32(op: int, a: Scalar, b: Scalar) -> Scalar:
    compute = _BY_WIDTH.get(op) or _DIVISIONS.get(op)
    if compute is not None:
        return of_low(compute(HALF, low(a), low(b)))
    if op == MOV:
        return of_low(low(b))
    if op == NEG:
        return alu32(SUB, ZERO, a)
    return _shift32(op, a, b)


def sdiv64(a: Scalar, b: Scalar) -> Scalar:
    """a / b, signed, rounded towards zero; 0 where b is 0."""
    return settled(*division.divide_signed(WIDTH, a[:6], b[:6]))


def smod64(a: Scalar, b: Scalar) -> Scalar:
    """The remainder of `sdiv64`, which has the sign of a; a where b is 0."""
    return settled(*division.remainder_signed(WIDTH, a[:6], b[:6]))


def sdiv32(a: Scalar, b: Scalar) -> Scalar:
    """As `sdiv64`, on the low 32 bits, the upper half of the result zero."""
    return of_low(division.divide_signed(HALF, low(a), low(b)))


def smod32(a: Scalar, b: Scalar) -> Scalar:
    """As `smod64`, on the low 32 bits, the upper half of the result zero."""
    return of_low(division.remainder_signed(HALF, low(a), low(b)))


# Shifts


def amounts(bits: int, b: View) -> list[int]:
    """The amounts that a shift by these values may have: their low bits."""
    value, mask, lo, hi = b[:4]
    if not mask:
        return [value & (bits - 1)]
    whole = hi < bits
    return [k for k in range(bits) if not (k ^ value) & ~mask & (bits - 1) and (not whole or lo <= k <= hi)]


def _shift(op: int, a: Scalar, b: Scalar) -> Scalar:
    result = None
    for amount in amounts(WIDTH, b[:6]):
        one = _shift_by(op, a, amount)
        result = one if result is None else join(result, one)
        if result == UNKNOWN:
            break
    assert result is not None
    return result


def _shift_by(op: int, a: Scalar, amount: int) -> Scalar:
    if op == RSH:
        return settled(*shift_right(WIDTH, a[:6], amount))
    if op == ARSH:
        return settled(*shift_arithmetic(WIDTH, a[:6], amount))
    assert op == LSH
    shifted = shift_left(WIDTH, low_bits(a, WIDTH - amount), amount)
    if amount >= HALF:
        return settled(*shifted)
    return settled(*shifted, *shift_left(HALF, low_bits(a, HALF - amount), amount)[2:])


def _shift32(op: int, a: Scalar, b: Scalar) -> Scalar:
    result = None
    for amount in amounts(HALF, low(b)):
        if op == RSH:
            view = shift_right(HALF, low(a), amount)
        elif op == ARSH:
            view = shift_arithmetic(HALF, low(a), amount)
        else:
            assert op == LSH
            view = shift_left(HALF, low_bits(a, HALF - amount), amount)
        one = of_low(view)
        result = one if result is None else join(result, one)
    assert result is not None
    return result


# Moves and byte order


@lru_cache(maxsize=1 << 12)
def zero_extend(a: Scalar, bits: int) -> Scalar:
    """The low `bits` (1 to 64) of a, zeros above."""
    if a[3] >> bits == 0:
        return a
    value, mask, lo, hi, slo, shi = low_bits(a, bits)
    if slo >= 0:
        lo, hi = max(lo, slo), min(hi, shi)
    elif shi < 0:
        lo, hi = max(lo, slo + (1 << bits)), min(hi, shi + (1 << bits))
    if bits == HALF:
        return settled(value, mask, lo, hi, 0, MASK, lo, hi, slo, shi)
    return settled(value, mask, lo, hi, 0, MASK)


def truncate(a: Scalar) -> Scalar:
    """The low 32 bits, zeros above."""
    return zero_extend(a, HALF)


@lru_cache(maxsize=1 << 12)
def sign_extend(a: Scalar, bits: int) -> Scalar:
    """The low `bits` (1 to 64) of a, the highest of them repeated above, to 64 bits."""
    sign = 1 << (bits - 1)
    value, mask, lo, hi, slo, shi = low_bits(a, bits)
    if hi < sign:
        slo, shi = max(slo, lo), min(shi, hi)
    elif lo >= sign:
        slo, shi = max(slo, lo - 2 * sign), min(shi, hi - 2 * sign)
    return settled(((value ^ sign) - sign) & MASK, ((mask ^ sign) - sign) & MASK, 0, MASK, slo, shi)


def byte_swap(a: Scalar, width: int, kind: str) -> Scalar:
    """The low `width` (16, 32, 64) bits in another byte order, zeros above.

    `kind`: "le", to little-endian: as they are on this machine; "be", to big-endian, and "swap", whatever the machine:
    in reverse. Machines are taken as little-endian, as by the runners.
    """
    if kind == "le":
        return zero_extend(a, width)
    if kind not in ("be", "swap"):
        raise ValueError(f"a byte swap is le, be or swap, not {kind}")
    value, mask = swapped(a[0], width), swapped(a[1], width)
    return settled(value, mask, value, value | mask, -MASK, MASK)


def swapped(value: int, width: int) -> int:
    """The low `width` bits with their bytes in reverse order."""
    result = 0
    for _ in range(width // BYTE):
        result = result << BYTE | value & ((1 << BYTE) - 1)
        value >>= BYTE
    return result
