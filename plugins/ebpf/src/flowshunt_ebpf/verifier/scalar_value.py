"""Sets of register values: known bits, and intervals in every reading of a register, refined against each other."""

from functools import lru_cache
from typing import Final, NamedTuple

from flowshunt_ebpf.verifier import tnum
from flowshunt_ebpf.verifier.scalar_settle import settle_parts
from flowshunt_ebpf.verifier.scalar_width import (
    LOW,
    LOW_SIGN,
    LOW_SMAX,
    LOW_SMIN,
    MASK,
    SIGN,
    SMAX,
    SMIN,
    WIDTH,
)


class Scalar(NamedTuple):
    """A set of 64-bit values: those that are in all of its parts. Never empty.

    Attributes:
        value: the known bits.
        mask: the bits that are not known.
        umin, umax: bounds of the value, unsigned.
        smin, smax: bounds of the value, signed.
        u32_min, u32_max: bounds of its low half, unsigned.
        s32_min, s32_max: bounds of its low half, signed.
    """

    value: int
    mask: int
    umin: int
    umax: int
    smin: int
    smax: int
    u32_min: int
    u32_max: int
    s32_min: int
    s32_max: int

    @property
    def is_const(self) -> bool:
        """Whether it is one value, `value`."""
        return not self[1]

    def __str__(self) -> str:
        if not self.mask:
            return str(self.smin)
        parts = []
        if self.umin or self.umax != MASK:
            parts.append(f"{self.umin}..{self.umax}")
        if (self.smin, self.smax) not in ((self.umin, self.umax), (SMIN, SMAX)):
            parts.append(f"signed {self.smin}..{self.smax}")
        if (self.u32_min, self.u32_max) != (self.umin, self.umax) and (self.u32_min or self.u32_max != LOW):
            parts.append(f"low half {self.u32_min}..{self.u32_max}")
        if self.mask != (1 << self.umax.bit_length()) - 1:
            parts.append(f"bits {self.value:#x} of {MASK ^ self.mask:#x}")
        return ", ".join(parts) or "any value"


def _make(value: int) -> Scalar:
    signed = (value ^ SIGN) - SIGN
    low = value & LOW
    low_signed = (low ^ LOW_SIGN) - LOW_SIGN
    return Scalar(value, 0, value, value, signed, signed, low, low, low_signed, low_signed)


_KEPT: Final = {value & MASK: _make(value & MASK) for value in range(-256, 4096)}

UNKNOWN: Final = Scalar(0, MASK, 0, MASK, SMIN, SMAX, 0, LOW, LOW_SMIN, LOW_SMAX)
"""Every value."""


def const(value: int) -> Scalar:
    """One value, of any int: its low 64 bits."""
    value &= MASK
    return _KEPT.get(value) or _make(value)


@lru_cache(maxsize=1 << 14)
def settle(
    value: int,
    mask: int,
    umin: int,
    umax: int,
    smin: int,
    smax: int,
    low_umin: int = 0,
    low_umax: int = LOW,
    low_smin: int = LOW_SMIN,
    low_smax: int = LOW_SMAX,
) -> Scalar | None:
    """The set of the values that are in all parts, each part made as small as the others allow; None where empty.

    Parts may be any numbers, also outside the range of their reading, and in any order: an interval whose lower bound
    is above the upper one is empty.
    """
    parts = settle_parts(value, mask, umin, umax, smin, smax, low_umin, low_umax, low_smin, low_smax)
    if parts is None:
        return None
    return Scalar(*parts) if parts[1] else const(parts[0])


def settled(*parts: int) -> Scalar:
    """As `settle`, for parts that hold for at least one value."""
    result = settle(*parts)
    assert result is not None, parts
    return result


@lru_cache(maxsize=1 << 12)
def unsigned_range(lo: int, hi: int) -> Scalar:
    """All values from `lo` to `hi`, unsigned. 0 <= lo <= hi < 2**64."""
    return settled(*tnum.of_range(lo, hi), lo, hi, SMIN, SMAX)


@lru_cache(maxsize=1 << 12)
def signed_range(lo: int, hi: int) -> Scalar:
    """All values from `lo` to `hi`, signed. -2**63 <= lo <= hi < 2**63."""
    return settled(0, MASK, 0, MASK, lo, hi)


def join(a: Scalar, b: Scalar) -> Scalar:
    """The least set that has both."""
    if a == b:
        return a
    value, mask, umin, umax, smin, smax, low_umin, low_umax, low_smin, low_smax = a
    v, m, ulo, uhi, slo, shi, lulo, luhi, lslo, lshi = b
    unknown = mask | m | (value ^ v)
    return settled(
        value & ~unknown,
        unknown,
        umin if umin < ulo else ulo,
        umax if umax > uhi else uhi,
        smin if smin < slo else slo,
        smax if smax > shi else shi,
        low_umin if low_umin < lulo else lulo,
        low_umax if low_umax > luhi else luhi,
        low_smin if low_smin < lslo else lslo,
        low_smax if low_smax > lshi else lshi,
    )


def intersect(a: Scalar, b: Scalar) -> Scalar | None:
    """The values that are in both; None if there are none."""
    if a == b:
        return a
    value, mask, umin, umax, smin, smax, low_umin, low_umax, low_smin, low_smax = a
    v, m, ulo, uhi, slo, shi, lulo, luhi, lslo, lshi = b
    if (value ^ v) & ~(mask | m):
        return None
    both = mask & m
    return settle(
        (value | v) & ~both,
        both,
        umin if umin > ulo else ulo,
        umax if umax < uhi else uhi,
        smin if smin > slo else slo,
        smax if smax < shi else shi,
        low_umin if low_umin > lulo else lulo,
        low_umax if low_umax < luhi else luhi,
        low_smin if low_smin > lslo else lslo,
        low_smax if low_smax < lshi else lshi,
    )


def includes(outer: Scalar, inner: Scalar) -> bool:
    """Whether all values of `inner` are known to be in `outer`."""
    if outer == inner or outer is UNKNOWN:
        return True
    value, mask, umin, umax, smin, smax, low_umin, low_umax, low_smin, low_smax = outer
    v, m, ulo, uhi, slo, shi, lulo, luhi, lslo, lshi = inner
    return (
        umin <= ulo
        and umax >= uhi
        and smin <= slo
        and smax >= shi
        and not (m | (value ^ v)) & ~mask
        and low_umin <= lulo
        and low_umax >= luhi
        and low_smin <= lslo
        and low_smax >= lshi
    )


def contains(a: Scalar, v: int) -> bool:
    """Whether a value, of any int its low 64 bits, is in the set."""
    v &= MASK
    low = v & LOW
    return (
        a.umin <= v <= a.umax
        and not (v ^ a.value) & ~a.mask
        and a.smin <= (v ^ SIGN) - SIGN <= a.smax
        and a.u32_min <= low <= a.u32_max
        and a.s32_min <= (low ^ LOW_SIGN) - LOW_SIGN <= a.s32_max
    )


def truncated(umin: int, umax: int, smin: int, smax: int, bits: int) -> tuple[int, int, int, int]:
    """Bounds of the low `bits` of values: unsigned and signed."""
    ones = (1 << bits) - 1
    half = 1 << (bits - 1)
    lo, hi, slo, shi = 0, ones, -half, half - 1
    for low, high in ((umin, umax), (smin, smax)):
        if low >> bits == high >> bits:
            lo, hi = max(lo, low & ones), min(hi, high & ones)
        if low + half >> bits == high + half >> bits:
            slo, shi = max(slo, (low + half & ones) - half), min(shi, (high + half & ones) - half)
    return lo, hi, slo, shi


def low_bits(a: Scalar, bits: int) -> tuple[int, int, int, int, int, int]:
    """What is known of the low `bits`: value, mask, bounds unsigned and signed."""
    ones = (1 << bits) - 1
    value, mask = a[0] & ones, a[1] & ones
    if bits == WIDTH:
        return a[:6]
    lo, hi, slo, shi = truncated(*a[2:6], bits)
    if bits <= WIDTH // 2:
        lo2, hi2, slo2, shi2 = truncated(*a[6:], bits)
        lo, hi, slo, shi = max(lo, lo2), min(hi, hi2), max(slo, slo2), min(shi, shi2)
    return value, mask, lo, hi, slo, shi
