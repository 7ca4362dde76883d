"""What a conditional jump tells of the values that it compares.

Model: regs_refine_cond_op and is_branch_taken of kernel/bpf/verifier.c.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Final

from flowshunt.insn import JEQ, JGE, JGT, JLE, JLT, JNE, JSET, JSGE, JSGT, JSLE, JSLT
from flowshunt_ebpf.verifier.scalar_value import Scalar, intersect, settle
from flowshunt_ebpf.verifier.scalar_width import (
    LOW,
    LOW_SIGN,
    SIGN,
)

Pair = tuple[Scalar, Scalar] | None

_OPPOSITE: Final = {
    JEQ: JNE,
    JNE: JEQ,
    JGT: JLE,
    JLE: JGT,
    JGE: JLT,
    JLT: JGE,
    JSGT: JSLE,
    JSLE: JSGT,
    JSGE: JSLT,
    JSLT: JSGE,
}
_SWAPPED: Final = {JGT: JLT, JGE: JLE, JSGT: JSLT, JSGE: JSLE}

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
    """Whether a comparison of two values, unsigned, holds. Not `wide`: of their low halves."""
    if not wide:
        a &= LOW
        b &= LOW
    if op in _SIGNED:
        sign = SIGN if wide else LOW_SIGN
        a = (a ^ sign) - sign
        b = (b ^ sign) - sign
    return _COMPARE[op](a, b)


def refine(op: int, a: Scalar, b: Scalar, wide: bool) -> Pair:
    """Both operands where the jump condition `a op b` holds; None if it can't hold.

    `op`: a condition of `flowshunt.insn`; `wide`: JMP, else JMP32.
    """
    if not a[1] and not b[1]:
        return (a, b) if holds(op, a[0], b[0], wide=wide) else None
    return _refine(op, a, b, wide)


def refine_not(op: int, a: Scalar, b: Scalar, wide: bool) -> Pair:
    """Both operands where the jump condition `a op b` does not hold; None if it always holds."""
    if not a[1] and not b[1]:
        return None if holds(op, a[0], b[0], wide=wide) else (a, b)
    if op == JSET:
        return _refine_clear(a, b, wide)
    return _refine(_OPPOSITE[op], a, b, wide)


def decide(op: int, a: Scalar, b: Scalar, wide: bool) -> bool | None:
    """Whether the jump condition holds for all values (True) or for none (False); None where that is not known."""
    if not a[1] and not b[1]:
        return holds(op, a[0], b[0], wide=wide)
    if refine(op, a, b, wide) is None:
        return False
    return True if refine_not(op, a, b, wide) is None else None


@lru_cache(maxsize=1 << 13)
def _refine(op: int, a: Scalar, b: Scalar, wide: bool) -> Pair:
    if op in _SWAPPED:
        swapped = _refine(_SWAPPED[op], b, a, wide)
        return None if swapped is None else (swapped[1], swapped[0])
    if op in (JLT, JLE):
        return _refine_less(a, b, wide, signed=False, strict=op == JLT)
    if op in (JSLT, JSLE):
        return _refine_less(a, b, wide, signed=True, strict=op == JSLT)
    if op == JEQ:
        return _refine_equal(a, b, wide)
    if op == JNE:
        return _both(_without(a, b, wide), _without(b, a, wide))
    assert op == JSET
    return _refine_set(a, b, wide)


def _both(a: Scalar | None, b: Scalar | None) -> Pair:
    return None if a is None or b is None else (a, b)


def _refine_less(a: Scalar, b: Scalar, wide: bool, *, signed: bool, strict: bool) -> Pair:
    """a < b, or a <= b if not strict."""
    at = (2 if wide else 6) + (2 if signed else 0)  # where the lower bound stands in a scalar
    step = 1 if strict else 0
    greatest = b[at + 1] - step
    least = a[at] + step
    if greatest < a[at] or least > b[at + 1]:
        return None
    below = a if a[at + 1] <= greatest else settle(*a[: at + 1], greatest, *a[at + 2 :])
    above = b if b[at] >= least else settle(*b[:at], least, *b[at + 1 :])
    return _both(below, above)


def _refine_equal(a: Scalar, b: Scalar, wide: bool) -> Pair:
    if wide:
        same = intersect(a, b)
        return None if same is None else (same, same)
    av, am, bv, bm = a[0] & LOW, a[1] & LOW, b[0] & LOW, b[1] & LOW
    if (av ^ bv) & ~(am | bm):
        return None
    mask = am & bm
    value = (av | bv) & ~mask
    bounds = (max(a[6], b[6]), min(a[7], b[7]), max(a[8], b[8]), min(a[9], b[9]))
    return _both(
        settle(a[0] & ~LOW | value, a[1] & ~LOW | mask, *a[2:6], *bounds),
        settle(b[0] & ~LOW | value, b[1] & ~LOW | mask, *b[2:6], *bounds),
    )


def _without(a: Scalar, b: Scalar, wide: bool) -> Scalar | None:
    """a without b, if that is one value at a bound of a."""
    if wide:
        if b[1]:
            return a
        value, first = b[0], 2
        signed = (value ^ SIGN) - SIGN
    else:
        if b[1] & LOW:
            return a
        value, first = b[0] & LOW, 6
        signed = (value ^ LOW_SIGN) - LOW_SIGN
    umin, umax, smin, smax = bounds = a[first : first + 4]
    changed = (
        umin + (umin == value),
        umax - (umax == value),
        smin + (smin == signed),
        smax - (smax == signed),
    )
    if changed == bounds:
        return a
    return settle(*a[:first], *changed, *a[first + 4 :])


def _refine_set(a: Scalar, b: Scalar, wide: bool) -> Pair:
    """a & b is not 0: there is a bit that both have."""
    common = (a[0] | a[1]) & (b[0] | b[1])
    if not wide:
        common &= LOW
    if not common:
        return None
    one = common if not common & (common - 1) else 0
    least = common & -common
    return _both(_with_bit(a, one, least, wide), _with_bit(b, one, least, wide))


def _with_bit(a: Scalar, one: int, least: int, wide: bool) -> Scalar | None:
    value, mask = a[0] | one & a[1], a[1] & ~one
    if wide:
        return settle(value, mask, max(a[2], least), *a[3:])
    return settle(value, mask, max(a[2], least), *a[3:6], max(a[6], least), *a[7:])


def _refine_clear(a: Scalar, b: Scalar, wide: bool) -> Pair:
    """a & b is 0: what one has for sure, the other has not."""
    zeros_a, zeros_b = b[0], a[0]
    if not wide:
        zeros_a &= LOW
        zeros_b &= LOW
    if a[0] & zeros_a:
        return None
    return _both(
        settle(a[0], a[1] & ~zeros_a, *a[2:]),
        settle(b[0], b[1] & ~zeros_b, *b[2:]),
    )
