"""Known bits: a tnum is a pair (value, mask); bits of the mask are unknown, of the others the value is known.

No bit is in both. The functions take the two numbers of each operand as they are, and give a pair: they are on the
verifier's hottest path. The algorithms are those that kernel/bpf/tnum.c made known, and the paper behind it:
Vishwanathan, Shachnai, Narayana, Nagarakatte, "Sound, Precise, and Fast Abstract Interpretation with Tristate Numbers"
(CGO 2022).
"""

Tnum = tuple[int, int]


def add(av: int, am: int, bv: int, bm: int, ones: int) -> Tnum:
    """a + b. `ones`: all bits of the width set. A bit is unknown if it is in an operand, or if the carry into it is."""
    least = av + bv
    unknown = ((least + am + bm) ^ least | am | bm) & ones
    return least & ~unknown & ones, unknown


def sub(av: int, am: int, bv: int, bm: int, ones: int) -> Tnum:
    """a - b, as for `add`: the borrow into a bit is known where the largest and the least difference agree."""
    difference = av - bv
    unknown = ((difference + am) ^ (difference - bm) | am | bm) & ones
    return difference & ~unknown & ones, unknown


def conjunction(av: int, am: int, bv: int, bm: int) -> Tnum:
    """a & b."""
    ones = av & bv
    return ones, (av | am) & (bv | bm) & ~ones


def disjunction(av: int, am: int, bv: int, bm: int) -> Tnum:
    """a | b."""
    ones = av | bv
    return ones, (am | bm) & ~ones


def exclusive(av: int, am: int, bv: int, bm: int) -> Tnum:
    """a ^ b."""
    unknown = am | bm
    return (av ^ bv) & ~unknown, unknown


def mul(av: int, am: int, bv: int, bm: int, ones: int) -> Tnum:
    """a * b: what two ways of long multiplication both say.

    One adds up the known part and the uncertainties apart (tnum_mul of Linux 5.15), the other takes a row for an
    unknown bit of `a` as added or not (Linux 6.18). Neither is always the more precise, and the operands' order matters
    to both.
    """
    if not am and not av & (av - 1):  # 0, or a power of two
        return bv * av & ones, bm * av & ones
    if not bm and not bv & (bv - 1):
        return av * bv & ones, am * bv & ones
    if ones in (am, bm):  # anything, times a number: only the zeros at its end are sure
        possible = bv | bm if am == ones else av | am
        return 0, ones & -(possible & -possible)
    value, mask = _mul_rows(av, am, bv, bm, ones)
    for other in (_mul_rows(bv, bm, av, am, ones), _mul_apart(av, am, bv, bm, ones), _mul_apart(bv, bm, av, am, ones)):
        value, mask = value | other[0], mask & other[1]
    return value & ~mask, mask


def _mul_rows(av: int, am: int, bv: int, bm: int, ones: int) -> Tnum:
    value = mask = 0
    while av or am:
        if av & 1:
            value, mask = add(value, mask, bv, bm, ones)
        elif am & 1:
            value, mask = union(value, mask, *add(value, mask, bv, bm, ones))
        av >>= 1
        am >>= 1
        bv = bv << 1 & ones
        bm = bm << 1 & ones
    return value, mask


def _mul_apart(av: int, am: int, bv: int, bm: int, ones: int) -> Tnum:
    known = av * bv & ones
    mask = value = 0  # of the sum of what is uncertain
    while av or am:
        if av & 1:
            value, mask = add(value, mask, 0, bm, ones)
        elif am & 1:
            value, mask = add(value, mask, 0, bv | bm, ones)
        av >>= 1
        am >>= 1
        bv = bv << 1 & ones
        bm = bm << 1 & ones
    return add(known, 0, value, mask, ones)


def arithmetic_shift(av: int, am: int, amount: int, sign: int, ones: int) -> Tnum:
    """a >> amount, the sign bit repeated, also where it is unknown."""
    return ((av ^ sign) - sign >> amount) & ones, ((am ^ sign) - sign >> amount) & ones


def union(av: int, am: int, bv: int, bm: int) -> Tnum:
    """The least tnum that has both: bits that differ are unknown."""
    unknown = am | bm | (av ^ bv)
    return av & ~unknown, unknown


def of_range(low: int, high: int) -> Tnum:
    """The least tnum that has all from `low` to `high`: the bits above the highest that differs."""
    unknown = (1 << (low ^ high).bit_length()) - 1
    return low & ~unknown, unknown


def at_least(value: int, mask: int, bound: int) -> int:
    """The least member that is not below `bound`; -1 if there is none."""
    follow = bound & mask | value
    wrong = follow ^ bound
    if not wrong:
        return bound
    top = 1 << (wrong.bit_length() - 1)
    if not value & top:  # the member that follows the bound is below it: step up at the next unknown bit over that
        free = mask & ~bound & -(top << 1)
        if not free:
            return -1
        top = free & -free
        follow |= top
    return follow & -top | value & (top - 1)


def at_most(value: int, mask: int, bound: int, ones: int) -> int:
    """The greatest member that is not above `bound`; -1 if there is none."""
    mirrored = at_least(ones ^ value ^ mask, mask, ones ^ bound)
    return mirrored if mirrored < 0 else ones ^ mirrored
