"""Known bits and intervals refined against each other.

An unsigned and a signed interval of the same values say exactly this: where the values are whose sign bit is 0, and
where those are whose sign bit is 1; two intervals, either may be empty. So do those of the low half. In this form each
rule below moves a bound to the next value that another part allows. The kernel's reg_bounds_sync
(kernel/bpf/verifier.c) has the same rules in other words, and some of them weaker.
"""

from flowshunt_ebpf.verifier.scalar_width import LOW, LOW_SIGN, LOW_SMAX, MASK, SIGN
from flowshunt_ebpf.verifier.tnum import at_least, at_most

Parts = tuple[int, int, int, int, int, int, int, int, int, int]
"""Value and mask, bounds unsigned, bounds signed; the low half's bounds unsigned, signed."""

State = tuple[int, int, int, int, int, int, int, int, int, int]
"""Value and mask; bounds of the values without and with sign bit; those of the low half. Bounds of none are crossed."""

_ROUNDS = 6
"""Rules feed each other; this often they are tried. Most values need two rounds, the second to see that it is done."""


def settle_parts(
    value: int,
    mask: int,
    umin: int,
    umax: int,
    smin: int,
    smax: int,
    low_umin: int,
    low_umax: int,
    low_smin: int,
    low_smax: int,
) -> Parts | None:
    """All parts of a set, each as small as the others allow; None where no value is in all of them."""
    if umax <= LOW_SMAX or (smin >= 0 and smax <= LOW_SMAX):
        return _settle_small(value, mask, max(umin, smin, low_umin, low_smin), min(umax, smax, low_umax, low_smax))
    state: State = (
        value,
        mask,
        *by_sign(umin, umax, smin, smax, SIGN),
        *by_sign(low_umin, low_umax, low_smin, low_smax, LOW_SIGN),
    )
    for _ in range(_ROUNDS):
        after = refined(*state)
        if after is None:
            return None
        if after == state:
            break
        state = after
    return assembled(*state)


def refined(
    value: int,
    mask: int,
    p_lo: int,
    p_hi: int,
    n_lo: int,
    n_hi: int,
    q_lo: int,
    q_hi: int,
    r_lo: int,
    r_hi: int,
) -> State | None:
    """Each rule once; None where nothing is left."""
    p_lo, p_hi = members(value, mask, p_lo, p_hi, MASK)
    n_lo, n_hi = members(value, mask, n_lo, n_hi, MASK)
    q_lo, q_hi = members(value & LOW, mask & LOW, q_lo, q_hi, LOW)
    r_lo, r_hi = members(value & LOW, mask & LOW, r_lo, r_hi, LOW)
    if q_lo > q_hi and r_lo > r_hi:
        return None
    p_lo, p_hi = with_low_half(p_lo, p_hi, q_lo, q_hi, r_lo, r_hi)
    n_lo, n_hi = with_low_half(n_lo, n_hi, q_lo, q_hi, r_lo, r_hi)
    if p_lo > p_hi and n_lo > n_hi:
        return None
    q_lo, q_hi, r_lo, r_hi = low_half(p_lo, p_hi, n_lo, n_hi, q_lo, q_hi, r_lo, r_hi)
    if q_lo > q_hi and r_lo > r_hi:
        return None
    common, differ = common_bits(p_lo, p_hi, n_lo, n_hi)
    low_common, low_differ = common_bits(q_lo, q_hi, r_lo, r_hi)
    known = ~differ & MASK | ~low_differ & LOW
    common |= low_common
    if (value ^ common) & ~mask & known:
        return None
    return value | common & mask, mask & ~known, p_lo, p_hi, n_lo, n_hi, q_lo, q_hi, r_lo, r_hi


def assembled(
    value: int,
    mask: int,
    p_lo: int,
    p_hi: int,
    n_lo: int,
    n_hi: int,
    q_lo: int,
    q_hi: int,
    r_lo: int,
    r_hi: int,
) -> Parts:
    """The parts of a set from its intervals by sign."""
    if p_lo > p_hi:
        umin, umax, smin, smax = n_lo, n_hi, n_lo - 2 * SIGN, n_hi - 2 * SIGN
    elif n_lo > n_hi:
        umin, umax, smin, smax = p_lo, p_hi, p_lo, p_hi
    else:
        umin, umax, smin, smax = p_lo, n_hi, n_lo - 2 * SIGN, p_hi
    if q_lo > q_hi:
        return value, mask, umin, umax, smin, smax, r_lo, r_hi, r_lo - 2 * LOW_SIGN, r_hi - 2 * LOW_SIGN
    if r_lo > r_hi:
        return value, mask, umin, umax, smin, smax, q_lo, q_hi, q_lo, q_hi
    return value, mask, umin, umax, smin, smax, q_lo, r_hi, r_lo - 2 * LOW_SIGN, q_hi


def _settle_small(value: int, mask: int, low: int, high: int) -> Parts | None:
    """The same for sets of values that are the same number in every reading."""
    low = max(low, 0)
    if value > high:
        return None
    for _ in range(_ROUNDS):
        if low > high:
            return None
        if low & ~mask & MASK != value:
            low = at_least(value, mask, low)
            if low < 0 or low > high:
                return None
        if high & ~mask & MASK != value:
            high = at_most(value, mask, high, MASK)
        unknown = (1 << (low ^ high).bit_length()) - 1
        if not mask & ~unknown:
            break
        value |= low & mask & ~unknown
        mask &= unknown
    return value, mask, low, high, low, high, low, high, low, high


def by_sign(umin: int, umax: int, smin: int, smax: int, sign: int) -> tuple[int, int, int, int]:
    """Bounds of the values without and with the sign bit, unsigned; an interval of none has its bounds crossed."""
    whole = sign << 1
    p_lo = max(umin, smin, 0)
    p_hi = min(umax, smax, sign - 1)
    n_lo = max(umin, sign, smin + whole)
    n_hi = min(umax, whole - 1, smax + whole)
    return p_lo, p_hi, n_lo, n_hi


def members(value: int, mask: int, low: int, high: int, ones: int) -> tuple[int, int]:
    """An interval's least and greatest members of a tnum; crossed where there is none."""
    if low > high:
        return 1, 0
    if low & ~mask & ones != value:
        low = at_least(value, mask, low)
        if low < 0 or low > high:
            return 1, 0
    if high & ~mask & ones != value:
        high = at_most(value, mask, high, ones)
    return low, high


def with_low_half(low: int, high: int, q_lo: int, q_hi: int, r_lo: int, r_hi: int) -> tuple[int, int]:
    """An interval's least and greatest values whose low half is from q_lo to q_hi or from r_lo to r_hi."""
    if low > high:
        return 1, 0
    if not q_lo and r_hi == LOW and q_hi + 1 == r_lo:
        return low, high
    part = low & LOW
    if q_lo <= q_hi and part <= q_hi:
        part = max(part, q_lo)
    elif r_lo <= r_hi and part <= r_hi:
        part = max(part, r_lo)
    else:
        part = LOW + 1 + (q_lo if q_lo <= q_hi else r_lo)
    low = (low & ~LOW) + part
    part = high & LOW
    if r_lo <= r_hi and part >= r_lo:
        part = min(part, r_hi)
    elif q_lo <= q_hi and part >= q_lo:
        part = min(part, q_hi)
    else:
        part = (r_hi if r_lo <= r_hi else q_hi) - LOW - 1
    high = (high & ~LOW) + part
    return low, high


def low_half(
    p_lo: int, p_hi: int, n_lo: int, n_hi: int, q_lo: int, q_hi: int, r_lo: int, r_hi: int
) -> tuple[int, int, int, int]:
    """The low half's intervals without and with sign bit, as far as the whole's two intervals allow."""
    if p_hi - p_lo >= LOW or n_hi - n_lo >= LOW:
        return q_lo, q_hi, r_lo, r_hi
    to = [(1, 0), (1, 0)]
    for low, high in ((p_lo, p_hi), (n_lo, n_hi)):
        if low > high:
            continue
        start, end = low & LOW, high & LOW
        arcs = ((start, end),) if start <= end else ((start, LOW), (0, end))
        for arc_lo, arc_hi in arcs:
            for which, (lo, hi) in enumerate(((q_lo, q_hi), (r_lo, r_hi))):
                first, last = max(lo, arc_lo), min(hi, arc_hi)
                if first <= last:
                    so_far = to[which]
                    to[which] = (
                        (min(first, so_far[0]), max(last, so_far[1])) if so_far[0] <= so_far[1] else (first, last)
                    )
    return *to[0], *to[1]


def common_bits(a_lo: int, a_hi: int, b_lo: int, b_hi: int) -> tuple[int, int]:
    """The bits that all values of one or two intervals share, and those in which they may differ. One is not empty."""
    if a_lo > a_hi:
        a_lo, a_hi = b_lo, b_hi
    differ = (1 << (a_lo ^ a_hi).bit_length()) - 1
    if b_lo <= b_hi:
        differ |= (1 << (b_lo ^ b_hi).bit_length()) - 1 | (a_lo ^ b_lo)
    return a_lo & ~differ, differ
