"""The domain's functions proved sound by two solvers, most of them at 64 bits.

What is proved is the code itself: `flowshunt_ebpf.testing.symbolic` runs it on unknown integers along every path. A
claim says: whatever the operands' abstract values, and whatever concrete values they stand for, the concrete result is
in the abstract one. Results are taken as they are before `settle` refines their parts against each other, and `settle`
is proved apart. What has too many paths for that (products of tnums, variable shifts) is tried out in
`test_domain_exhaustively`.
"""

import itertools

import pytest
import z3

from flowshunt.insn import JEQ, JGE, JGT, JLE, JLT, JNE, JSET, JSGE, JSGT, JSLE, JSLT
from flowshunt_ebpf.testing.narrow_domain import load_domain
from flowshunt_ebpf.testing.symbolic import Explorer, Number, as_term, between, every, implies, member
from flowshunt_ebpf.verifier import scalar_arithmetic, scalar_division, scalar_value, tnum
from flowshunt_ebpf.verifier.scalar_value import Scalar

pytestmark = pytest.mark.slow

ONES = (1 << 64) - 1


def numbers(e, names, low, high):
    return [e.number(name, low, high) for name in names.split()]


def signed(value, bits):
    return (value ^ 1 << bits - 1) - (1 << bits - 1)


def view(e, name, bits):
    """Unknown value, mask and bounds, and an unknown value that is in them."""
    ones, half = (1 << bits) - 1, 1 << bits - 1
    value, mask, lo, hi, x = numbers(e, " ".join(name + part for part in ("v", "m", "lo", "hi", "")), 0, ones)
    slo, shi = numbers(e, f"{name}slo {name}shi", -half, half - 1)
    e.assume(value & mask == 0, inside((value, mask, lo, hi, slo, shi), x, bits))
    return (value, mask, lo, hi, slo, shi), x


def inside(view, x, bits):
    value, mask, lo, hi, slo, shi = view
    return every(member(x, value, mask), between(lo, x, hi), between(slo, signed(x, bits), shi))


def scalar(e, name, d):
    w = d.scalar_width
    whole, x = view(e, name, w.WIDTH)
    lo, hi = numbers(e, f"{name}lowlo {name}lowhi", 0, w.LOW)
    slo, shi = numbers(e, f"{name}lowslo {name}lowshi", w.LOW_SMIN, w.LOW_SMAX)
    a = (*whole, lo, hi, slo, shi)
    e.assume(inside_scalar(a, x, d))
    return a, x


def inside_scalar(parts, x, d):
    w = d.scalar_width
    parts = (*parts, *(0, w.LOW, w.LOW_SMIN, w.LOW_SMAX)[len(parts) - 6 :])
    low = x & w.LOW
    return every(
        inside(parts[:6], x, w.WIDTH),
        between(parts[6], low, parts[7]),
        between(parts[8], signed(low, w.HALF), parts[9]),
    )


def unsettled(width):
    """The domain with results left as they are before their parts refine each other."""
    d = load_domain(width)
    for module in (d.scalar_value, d.scalar_arithmetic, d.scalar_refine):
        module.settle = module.settled = lambda *parts: parts
    return d


# Known bits

TNUM_OPERATIONS = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "conjunction": lambda x, y: x & y,
    "disjunction": lambda x, y: x | y,
    "exclusive": lambda x, y: x ^ y,
}


@pytest.mark.parametrize("name", TNUM_OPERATIONS)
def test_known_bits_of_a_result_are_those_of_each_result(name):
    e = Explorer(70)
    av, am, bv, bm, x, y = numbers(e, "av am bv bm x y", 0, ONES)
    e.assume(av & am == 0, bv & bm == 0, member(x, av, am), member(y, bv, bm))
    ones = (ONES,) if name in ("add", "sub") else ()
    paths = e.paths(lambda: getattr(tnum, name)(av, am, bv, bm, *ones))
    e.prove(paths, lambda r: every(r[0] & r[1] == 0, member(TNUM_OPERATIONS[name](x, y) & ONES, *r)))


def test_a_union_has_the_members_of_both():
    e = Explorer(70)
    av, am, bv, bm, x = numbers(e, "av am bv bm x", 0, ONES)
    e.assume(av & am == 0, bv & bm == 0, z3.Or(member(x, av, am), member(x, bv, bm)))
    e.prove(e.paths(lambda: tnum.union(av, am, bv, bm)), lambda r: every(r[0] & r[1] == 0, member(x, *r)))


def test_the_tnum_of_a_range_has_all_of_it():
    e = Explorer(70)
    low, high, x = numbers(e, "low high x", 0, ONES)
    e.assume(between(low, x, high))
    e.prove(e.paths(lambda: tnum.of_range(low, high)), lambda r: every(r[0] & r[1] == 0, member(x, *r)))


def test_the_least_member_from_a_bound_on_is_a_member_and_no_other_is_below_it():
    e = Explorer(70)
    value, mask, bound, x = numbers(e, "value mask bound x", 0, ONES)
    e.assume(value & mask == 0, member(x, value, mask), x >= bound)
    e.prove(
        e.paths(lambda: tnum.at_least(value, mask, bound)),
        lambda r: isinstance(r, Number) and every(r <= x, r >= bound, member(r, value, mask)),
    )


def test_there_is_no_member_from_a_bound_on_if_none_is_found():
    e = Explorer(70)
    value, mask, bound = numbers(e, "value mask bound", 0, ONES)
    e.assume(value & mask == 0, value | mask < bound)
    e.prove(e.paths(lambda: tnum.at_least(value, mask, bound)), lambda r: not isinstance(r, Number) and r == -1)


def test_the_greatest_member_up_to_a_bound_is_a_member_and_no_other_is_above_it():
    e = Explorer(70)
    value, mask, bound, x = numbers(e, "value mask bound x", 0, ONES)
    e.assume(value & mask == 0, member(x, value, mask), x <= bound)
    e.prove(
        e.paths(lambda: tnum.at_most(value, mask, bound, ONES)),
        lambda r: isinstance(r, Number) and every(r >= x, r <= bound, member(r, value, mask)),
    )


@pytest.mark.parametrize("amount", [0, 1, 31, 32, 63])
def test_known_bits_of_an_arithmetic_shift(amount):
    e = Explorer(70)
    value, mask, x = numbers(e, "value mask x", 0, ONES)
    e.assume(value & mask == 0, member(x, value, mask))
    e.prove(
        e.paths(lambda: tnum.arithmetic_shift(value, mask, amount, 1 << 63, ONES)),
        lambda r: every(r[0] & r[1] == 0, member((signed(x, 64) >> amount) & ONES, *r)),
    )


# Arithmetic on known bits and bounds

ARITHMETIC = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "conjunction": lambda x, y: x & y,
    "disjunction": lambda x, y: x | y,
    "exclusive": lambda x, y: x ^ y,
}


@pytest.mark.parametrize("bits", [8, 32])
@pytest.mark.parametrize("name", ARITHMETIC)
def test_a_result_is_inside_what_is_said_of_it(name, bits):
    e = Explorer(bits + 8)
    (a, x), (b, y) = view(e, "a", bits), view(e, "b", bits)
    paths = e.paths(lambda: getattr(scalar_arithmetic, name)(bits, a, b))
    e.prove(paths, lambda r: inside(r, ARITHMETIC[name](x, y) & (1 << bits) - 1, bits))


def test_a_product_is_inside_its_bounds():
    bits = 4
    e = Explorer(4 * bits + 4)
    (a, x), (b, y) = view(e, "a", bits), view(e, "b", bits)
    known = (0, (1 << bits) - 1)  # the tnums are tried out elsewhere
    paths = e.paths(lambda: scalar_arithmetic.mul(bits, (*known, *a[2:]), (*known, *b[2:])))
    e.prove(paths, lambda r: inside(r, x * y & (1 << bits) - 1, bits))


@pytest.mark.parametrize("amount", [0, 1, 7, 31, 32, 33, 63])
def test_a_shift_by_a_known_amount_is_inside_what_is_said_of_it(amount):
    right = Explorer(140)
    a, x = view(right, "a", 64)
    paths = right.paths(lambda: scalar_arithmetic.shift_right(64, a, amount))
    right.prove(paths, lambda r: inside(r, x >> amount, 64))
    paths = right.paths(lambda: scalar_arithmetic.shift_arithmetic(64, a, amount))
    right.prove(paths, lambda r: inside(r, signed(x, 64) >> amount & ONES, 64))
    left = Explorer(140)
    low, x = view(left, "low", 64 - amount)
    paths = left.paths(lambda: scalar_arithmetic.shift_left(64, low, amount))
    left.prove(paths, lambda r: inside(r, x << amount, 64))


@pytest.mark.parametrize("bits", [1, 8, 32])
def test_low_bits_are_inside_their_bounds(bits):
    e = Explorer(70)
    a, x = view(e, "a", 64)
    paths = e.paths(lambda: scalar_value.truncated(*a[2:], bits))
    low = x & (1 << bits) - 1
    e.prove(paths, lambda r: every(between(r[0], low, r[1]), between(r[2], signed(low, bits), r[3])))


def truncating(x, y):
    """x / y rounded towards zero, without a fork; 0 where y is 0."""
    room = x.explorer.room
    return Number(x.explorer, z3.If(y.term == 0, z3.BitVecVal(0, room), x.term / y.term))


def rest(x, y):
    return Number(x.explorer, z3.If(y.term == 0, x.term, z3.SRem(x.term, y.term)))


DIVISION = {
    "divide": lambda x, y, bits: truncating(x, y),
    "remainder": lambda x, y, bits: rest(x, y),
    "divide_signed": lambda x, y, bits: truncating(signed(x, bits), signed(y, bits)),
    "remainder_signed": lambda x, y, bits: rest(signed(x, bits), signed(y, bits)),
}


@pytest.mark.parametrize("name", DIVISION)
def test_a_quotient_or_remainder_is_inside_what_is_said_of_it(name):
    bits = 4
    e = Explorer(14)
    (a, x), (b, y) = view(e, "a", bits), view(e, "b", bits)
    paths = e.paths(lambda: getattr(scalar_division, name)(bits, a, b))
    e.prove(paths, lambda r: inside(r, DIVISION[name](x, y, bits) & (1 << bits) - 1, bits))


# Moves and byte order


@pytest.mark.parametrize("bits", [8, 16, 32])
def test_extended_low_bits_are_inside_what_is_said_of_them(bits):
    d = unsettled(64)
    e = Explorer(76)
    a, x = scalar(e, "a", d)
    known, low = view(e, "low", bits)  # what low_bits finds, proved above
    e.assume(low == x & (1 << bits) - 1)
    d.scalar_arithmetic.low_bits = lambda _a, _bits: known
    paths = e.paths(lambda: d.scalar_arithmetic.zero_extend.__wrapped__(a, bits))
    e.prove(paths, lambda r: inside_scalar(r, low, d))
    paths = e.paths(lambda: d.scalar_arithmetic.sign_extend.__wrapped__(a, bits))
    e.prove(paths, lambda r: inside_scalar(r, signed(low, bits) & ONES, d))


@pytest.mark.parametrize("width", [16, 32, 64])
def test_bytes_in_another_order_are_inside_what_is_said_of_them(width):
    d = unsettled(64)
    e = Explorer(76)
    a, x = scalar(e, "a", d)
    octets = [x >> 8 * at & 0xFF for at in range(width // 8)]
    swapped = sum(octet << 8 * (len(octets) - 1 - at) for at, octet in enumerate(octets))
    e.prove(e.paths(lambda: d.scalar_arithmetic.byte_swap(a, width, "be")), lambda r: inside_scalar(r, swapped, d))


# Comparisons

NARROW = 8

CONDITIONS = {
    JEQ: lambda a, b: a == b,
    JNE: lambda a, b: a != b,
    JGT: lambda a, b: a > b,
    JGE: lambda a, b: a >= b,
    JLT: lambda a, b: a < b,
    JLE: lambda a, b: a <= b,
    JSET: lambda a, b: (a & b) != 0,
    JSGT: lambda a, b: a > b,
    JSGE: lambda a, b: a >= b,
    JSLT: lambda a, b: a < b,
    JSLE: lambda a, b: a <= b,
}


def condition(op, x, y, wide):
    bits = NARROW if wide else NARROW // 2
    x, y = (x, y) if wide else (x & (1 << bits) - 1, y & (1 << bits) - 1)
    if op in (JSGT, JSGE, JSLT, JSLE):
        x, y = signed(x, bits), signed(y, bits)
    return CONDITIONS[op](x, y)


@pytest.mark.parametrize("wide", [True, False])
@pytest.mark.parametrize("op", CONDITIONS)
@pytest.mark.parametrize("way", ["refine", "refine_not"])
def test_values_for_which_a_condition_holds_are_not_lost(way, op, wide):
    d = unsettled(NARROW)
    e = Explorer(NARROW + 8)
    (a, x), (b, y) = scalar(e, "a", d), scalar(e, "b", d)
    holds = as_term(condition(op, x, y, wide))
    e.assume(holds if way == "refine" else z3.Not(holds))
    refine = d.scalar_refine
    refine._refine = refine._refine.__wrapped__
    refine.holds = lambda op, x, y, *, wide: condition(op, x, y, wide)
    paths = e.paths(lambda: getattr(refine, way)(op, a, b, wide))
    e.prove(paths, lambda r: r is not None and every(inside_scalar(r[0], x, d), inside_scalar(r[1], y, d)))


# Settling: each step by itself, then all together, the steps known by what was proved of them


def in_either(x, a_lo, a_hi, b_lo, b_hi):
    return z3.Or(between(a_lo, x, a_hi), between(b_lo, x, b_hi))


@pytest.mark.parametrize("bits", [32, 64])
def test_intervals_by_sign_have_what_is_in_both_readings(bits):
    d = load_domain(64)
    e = Explorer(72)
    a, x = view(e, "a", bits)
    sign = 1 << bits - 1
    e.prove(
        e.paths(lambda: d.scalar_settle.by_sign(*a[2:], sign)),
        lambda r: z3.If(as_term(x < sign), between(r[0], x, r[1]), between(r[2], x, r[3])),
    )


def test_members_of_a_tnum_in_an_interval_stay_in_it():
    d = load_domain(64)
    ones = d.scalar_width.LOW
    e = Explorer(40)
    value, mask, low, high, x = numbers(e, "value mask low high x", 0, ones)
    e.assume(value & mask == 0, member(x, value, mask), between(low, x, high))
    paths = e.paths(lambda: d.scalar_settle.members(value, mask, low, high, ones))
    e.prove(paths, lambda r: between(r[0], x, r[1]))


def low_intervals(e, w, x):
    """The low half's two intervals, one of them with the low half of x."""
    q_lo, q_hi = numbers(e, "q_lo q_hi", -w.LOW - 1, w.LOW_SMAX)
    r_lo, r_hi = numbers(e, "r_lo r_hi", w.LOW_SIGN, 2 * w.LOW + 1)
    e.assume(implies(q_lo <= q_hi, q_lo >= 0), implies(r_lo <= r_hi, r_hi <= w.LOW))
    e.assume(in_either(x & w.LOW, q_lo, q_hi, r_lo, r_hi))
    return q_lo, q_hi, r_lo, r_hi


def test_values_of_an_interval_whose_low_half_is_allowed_stay_in_it():
    d = load_domain(64)
    e = Explorer(72)
    low, high, x = numbers(e, "low high x", 0, ONES)
    e.assume(between(low, x, high))
    allowed = low_intervals(e, d.scalar_width, x)
    e.prove(e.paths(lambda: d.scalar_settle.with_low_half(low, high, *allowed)), lambda r: between(r[0], x, r[1]))


def test_low_halves_of_two_intervals_stay_allowed():
    """It has too many paths; at 4 bits all intervals can be tried."""
    low_half = load_domain(4).scalar_settle.low_half

    def intervals(low, high):
        return [(1, 0), *((a, b) for a in range(low, high + 1) for b in range(a, high + 1))]

    for p, n in itertools.product(intervals(0, 7), intervals(8, 15)):
        values = {*range(p[0], p[1] + 1), *range(n[0], n[1] + 1)}
        for q, r in itertools.product(intervals(0, 1), intervals(2, 3)):
            parts = {x & 3 for x in values} & {*range(q[0], q[1] + 1), *range(r[0], r[1] + 1)}
            q_lo, q_hi, r_lo, r_hi = low_half(*p, *n, *q, *r)
            assert parts <= {*range(max(q_lo, 0), q_hi + 1), *range(max(r_lo, 0), r_hi + 1)}


def test_bits_that_intervals_share_are_those_of_each_value():
    d = load_domain(64)
    e = Explorer(72)
    x, a_lo, a_hi, b_lo, b_hi = numbers(e, "x a_lo a_hi b_lo b_hi", 0, ONES)
    e.assume(in_either(x, a_lo, a_hi, b_lo, b_hi))
    paths = e.paths(lambda: d.scalar_settle.common_bits(a_lo, a_hi, b_lo, b_hi))
    e.prove(paths, lambda r: every(member(x, *r), r[0] & r[1] == 0, between(0, r[1], ONES), between(0, r[0], ONES)))


def test_small_values_stay_in_a_settled_set():
    d = load_domain(16)
    d.scalar_settle._ROUNDS = 1  # a round keeps the value from any state that has it
    e = Explorer(24)
    value, mask, low, high, x = numbers(e, "value mask low high x", 0, d.scalar_width.MASK)
    e.assume(value & mask == 0, member(x, value, mask), between(low, x, high), high <= d.scalar_width.LOW_SMAX)
    paths = e.paths(lambda: d.scalar_settle._settle_small(value, mask, low, high))
    e.prove(paths, lambda r: r is not None and every(r[0] & r[1] == 0, inside_scalar(r, x, d)))


def state_with(e, w, x):
    """Unknown intervals by sign and an unknown tnum that have a value."""
    value, mask, p_lo, p_hi = numbers(e, "value mask p_lo p_hi", 0, w.MASK)
    n_lo, n_hi = numbers(e, "n_lo n_hi", 0, w.MASK)
    state = (value, mask, p_lo, p_hi, n_lo, n_hi, *numbers(e, "q_lo q_hi r_lo r_hi", 0, w.LOW))
    e.assume(value & mask == 0, in_state(state, x, w))
    return state


def in_state(state, x, w):
    value, mask, p_lo, p_hi, n_lo, n_hi, q_lo, q_hi, r_lo, r_hi = state
    low = x & w.LOW
    return every(
        member(x, value, mask),
        z3.If(as_term(x < w.SIGN), between(p_lo, x, p_hi), between(n_lo, x, n_hi)),
        z3.If(as_term(low < w.LOW_SIGN), between(q_lo, low, q_hi), between(r_lo, low, r_hi)),
    )


def test_values_stay_in_a_refined_state():
    """A round keeps the value that it started with, and so does any number of rounds.

    The steps are replaced by what the tests above prove of them.
    """
    d = load_domain(16)
    w, settle = d.scalar_width, d.scalar_settle
    e = Explorer(24)
    x = e.number("x", 0, w.MASK)
    low = x & w.LOW
    state = state_with(e, w, x)
    proved = []

    def some(count):
        return [Number(e, z3.BitVec(f"step{len(proved)}_{n}", e.room)) for n in range(count)]

    def members(value, mask, lo, hi, ones):
        y, result = x if ones == w.MASK else low, some(2)
        proved.append(z3.Implies(z3.And(member(y, value, mask), between(lo, y, hi)), between(result[0], y, result[1])))
        return result

    def with_low_half(lo, hi, *allowed):
        result = some(2)
        proved.append(
            z3.Implies(z3.And(between(lo, x, hi), in_either(low, *allowed)), between(result[0], x, result[1]))
        )
        return result

    def low_half(p_lo, p_hi, n_lo, n_hi, q_lo, q_hi, r_lo, r_hi):
        result = some(4)
        kept = z3.And(in_either(x, p_lo, p_hi, n_lo, n_hi), in_either(low, q_lo, q_hi, r_lo, r_hi))
        positive, negative = between(result[0], low, result[1]), between(result[2], low, result[3])
        proved.append(z3.Implies(kept, z3.If(as_term(low < w.LOW_SIGN), positive, negative)))
        return result

    def common_bits(*bounds):
        of = x if not any(proved_half in map(id, bounds) for proved_half in halves) else low
        ones = w.MASK if of is x else w.LOW
        result = some(2)
        bits = z3.And(between(0, result[0], ones), between(0, result[1], ones), as_term(result[0] & result[1] == 0))
        proved.append(z3.And(bits, z3.Implies(in_either(of, *bounds), member(of, *result))))
        return result

    halves = set()

    def low_half_noted(*bounds):
        result = low_half(*bounds)
        halves.update(map(id, result))
        return result

    settle.members, settle.with_low_half = members, with_low_half
    settle.low_half, settle.common_bits = low_half_noted, common_bits

    def run():
        proved.clear()
        halves.clear()
        return settle.refined(*state), z3.And(*proved)

    def sound(outcome):
        result, given = outcome
        if result is None:
            return z3.Not(given)
        parts = [*in_state(result, x, w).children(), as_term(result[0] & result[1] == 0)]
        return every(*(z3.Implies(given, part) for part in parts))

    e.prove(e.paths(run), sound)


def test_values_of_a_state_are_in_the_set_made_of_it():
    d = load_domain(64)
    w = d.scalar_width
    e = Explorer(72)
    x = e.number("x", 0, ONES)
    state = state_with(e, w, x)
    p_lo, p_hi, n_lo, n_hi, q_lo, q_hi, r_lo, r_hi = state[2:]
    e.assume(implies(p_lo <= p_hi, p_hi < w.SIGN), implies(n_lo <= n_hi, n_lo >= w.SIGN))
    e.assume(implies(q_lo <= q_hi, q_hi < w.LOW_SIGN), implies(r_lo <= r_hi, r_lo >= w.LOW_SIGN))
    e.prove(e.paths(lambda: d.scalar_settle.assembled(*state)), lambda r: inside_scalar(r, x, d))


# Sets


def test_a_value_that_is_contained_is_inside_and_the_other_way_round():
    d = load_domain(64)
    e = Explorer(72)
    w = d.scalar_width
    whole = numbers(e, "value mask lo hi x", 0, w.MASK)
    a = Scalar(
        *whole[:4],
        *numbers(e, "slo shi", w.SMIN, w.SMAX),
        *numbers(e, "l h", 0, w.LOW),
        *numbers(e, "sl sh", w.LOW_SMIN, w.LOW_SMAX),
    )
    x = whole[4]
    e.assume(a.value & a.mask == 0)
    paths = e.paths(lambda: bool(d.scalar_value.contains(a, x)))
    e.prove(paths, lambda r: inside_scalar(a, x, d) == z3.BoolVal(r))


def test_what_includes_another_set_has_its_values():
    d = load_domain(64)
    e = Explorer(72)
    inner, x = scalar(e, "inner", d)
    outer, _ = scalar(e, "outer", d)
    paths = e.paths(lambda: bool(d.scalar_value.includes(outer, inner)))
    e.prove(paths, lambda r: inside_scalar(outer, x, d) if r else True)
