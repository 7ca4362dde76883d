"""Each transfer function broken on purpose: the trial of the domain at a few bits must notice.

A break is a text that stands once in a module, and what is put in its place.
"""

import pytest

from flowshunt_ebpf.testing.domain_trial import first_wrong
from flowshunt_ebpf.testing.narrow_domain import load_domain

BREAKS = {
    "tnum.add forgets the carry": (
        "tnum",
        "unknown = ((least + am + bm) ^ least | am | bm) & ones",
        "unknown = (am | bm) & ones",
    ),
    "tnum.sub forgets the borrow": (
        "tnum",
        "unknown = ((difference + am) ^ (difference - bm) | am | bm) & ones",
        "unknown = ((difference + am) ^ difference | am | bm) & ones",
    ),
    "tnum.conjunction takes a bit as known that one operand may have": (
        "tnum",
        "return ones, (av | am) & (bv | bm) & ~ones",
        "return ones, am & bm & ~ones",
    ),
    "tnum.disjunction forgets an operand's unknown bits": ("tnum", "(am | bm) & ~ones", "am & ~ones"),
    "tnum.exclusive takes bits as known that cancel": ("tnum", "    unknown = am | bm\n", "    unknown = am ^ bm\n"),
    "tnum.mul adds a row that may be missing": (
        "tnum",
        "value, mask = union(value, mask, *add(value, mask, bv, bm, ones))",
        "value, mask = add(value, mask, bv, bm, ones)",
    ),
    "tnum.mul forgets that a factor's unknown bit adds the other's known ones": (
        "tnum",
        "add(value, mask, 0, bv | bm, ones)",
        "add(value, mask, 0, bm, ones)",
    ),
    "tnum.mul of anything keeps one zero too many": (
        "tnum",
        "return 0, ones & -(possible & -possible)",
        "return 0, ones & -(possible & -possible) << 1 & ones",
    ),
    "tnum.arithmetic_shift brings in zeros as known": (
        "tnum",
        "((am ^ sign) - sign >> amount) & ones",
        "am >> amount",
    ),
    "tnum.union forgets the bits that differ": ("tnum", "unknown = am | bm | (av ^ bv)", "unknown = am | bm"),
    "tnum.of_range takes one bit too many as known": (
        "tnum",
        "unknown = (1 << (low ^ high).bit_length()) - 1",
        "unknown = (1 << (low ^ high).bit_length()) - 1 >> 1",
    ),
    "tnum.at_least goes too far": ("tnum", "top = free & -free", "top = 1 << (free.bit_length() - 1)"),
    "a sum's bounds ignore that it wraps around": (
        "scalar_arithmetic",
        "if lo >> bits == hi >> bits:",
        "if lo & ones <= hi & ones:",
    ),
    "a sum's signed bounds ignore that it wraps around": (
        "scalar_arithmetic",
        "if slo >> bits == shi >> bits:",
        "if True:",
    ),
    "a difference's bounds are those of equal ends": (
        "scalar_arithmetic",
        "alo - bhi, ahi - blo, aslo - bshi, ashi - bslo",
        "alo - blo, ahi - bhi, aslo - bshi, ashi - bslo",
    ),
    "a signed product is extreme at equal ends only": (
        "scalar_arithmetic",
        "(aslo * bslo, aslo * bshi, ashi * bslo, ashi * bshi)",
        "(aslo * bslo, ashi * bshi)",
    ),
    "a conjunction is not below the smaller operand": (
        "scalar_arithmetic",
        "return value, mask, value, min(value | mask, a[3], b[3])",
        "return value, mask, min(a[2], b[2]), min(value | mask, a[3], b[3])",
    ),
    "a disjunction is not above the greater operand": (
        "scalar_arithmetic",
        "max(value, a[2], b[2]), value | mask",
        "max(value, a[2], b[2]), max(a[3], b[3])",
    ),
    "an arithmetic shift is like a logical one": (
        "scalar_arithmetic",
        "return value, mask, 0, ones, slo >> amount, shi >> amount",
        "return value, mask, 0, ones >> amount, slo >> amount, shi >> amount",
    ),
    "a shift's amount is not cut to the width": (
        "scalar_arithmetic",
        "if not (k ^ value) & ~mask & (bits - 1) and (not whole or lo <= k <= hi)",
        "if lo <= k <= hi",
    ),
    "a sign extension keeps the bounds of zeros": (
        "scalar_arithmetic",
        "slo, shi = max(slo, lo - 2 * sign), min(shi, hi - 2 * sign)",
        "slo, shi = lo, hi",
    ),
    "a swap leaves the bytes' order": (
        "scalar_arithmetic",
        "result = result << BYTE | value & ((1 << BYTE) - 1)",
        "result = value",
    ),
    "the low half's bounds stand for all": (
        "scalar_arithmetic",
        "    return settled(value, mask, lo, hi, 0, MASK, lo, hi, slo, shi)\n\n\n",
        "    return settled(value, mask, lo, hi, slo, shi)\n\n\n",
    ),
    "a quotient forgets that division by 0 gives 0": (
        "scalar_division",
        "lo = alo // bhi if blo else 0",
        "lo = alo // max(bhi, 1)",
    ),
    "a remainder is below the divisor's least value": (
        "scalar_division",
        "lo, hi = 0, min(ahi, bhi - 1)",
        "lo, hi = 0, min(ahi, blo - 1)",
    ),
    "a signed quotient is extreme at the bounds only": (
        "scalar_division",
        "        divisors.append(-1)",
        "        pass",
    ),
    "a signed quotient does not overflow": (
        "scalar_division",
        "if alo == -half and blo <= -1 <= bhi:",
        "if False:",
    ),
    "a signed remainder is never negative": ("scalar_division", "max(lo, 1 - furthest)", "max(lo, 0)"),
    "low bits ignore a carry into the upper ones": (
        "scalar_value",
        "if low >> bits == high >> bits:",
        "if low & ones <= high & ones:",
    ),
    "a join keeps the greater lower bound": (
        "scalar_value",
        "umin if umin < ulo else ulo",
        "umin if umin > ulo else ulo",
    ),
    "inclusion ignores the known bits": ("scalar_value", "        and not (m | (value ^ v)) & ~mask\n", ""),
    "less is less by two": ("scalar_refine", "step = 1 if strict else 0", "step = 2 if strict else 0"),
    "less or equal is less": ("scalar_refine", "step = 1 if strict else 0", "step = 1"),
    "unequal excludes a value inside": (
        "scalar_refine",
        "umin + (umin == value)",
        "umin + (umin <= value)",
    ),
    "a narrow equality holds for all bits": (
        "scalar_refine",
        "    if wide:\n        same = intersect",
        "    if True:\n        same = intersect",
    ),
    "a bit test sets each bit that may be set": (
        "scalar_refine",
        "one = common if not common & (common - 1) else 0",
        "one = common",
    ),
    "a failed bit test clears bits that may be set": (
        "scalar_refine",
        "zeros_a, zeros_b = b[0], a[0]",
        "zeros_a, zeros_b = b[0] | b[1], a[0]",
    ),
    "the opposite of less is greater": ("scalar_refine", "    JLT: JGE,", "    JLT: JGT,"),
    "the readings' bounds are mixed up": (
        "scalar_settle",
        "n_lo = max(umin, sign, smin + whole)",
        "n_lo = max(umin, sign, smax + whole)",
    ),
    "members of a tnum are below the bound": (
        "scalar_settle",
        "        high = at_most(value, mask, high, ones)",
        "        high = at_most(value, mask, high, ones) - 1",
    ),
    "a bound skips a low half that is allowed": (
        "scalar_settle",
        "part = LOW + 1 + (q_lo if q_lo <= q_hi else r_lo)",
        "part = LOW + 1 + r_lo",
    ),
    "the low half of an interval that wraps around": (
        "scalar_settle",
        "((start, LOW), (0, end))",
        "((start, LOW),)",
    ),
    "bits shared by one interval only": (
        "scalar_settle",
        " | (a_lo ^ b_lo)",
        "",
    ),
}


@pytest.mark.parametrize("name", BREAKS)
def test_a_broken_transfer_function_is_noticed(name):
    module, old, new = BREAKS[name]
    for width, pairs in ((4, 300), (8, 10)):
        try:
            if first_wrong(load_domain(width, {module: (old, new)}), pairs=pairs) is not None:
                return
        except AssertionError:  # of a set that should not be empty
            return
    pytest.fail("nothing was noticed")


def test_the_domain_itself_is_not_found_wrong():
    for width, pairs in ((4, 300), (8, 10)):
        assert first_wrong(load_domain(width), pairs=pairs) is None
