"""The domain at 2, 4 and 8 bits, tried with all or many abstract values on all their concrete ones."""

import itertools
import random

import pytest

from flowshunt_ebpf.testing.domain_trial import Trial, first_wrong
from flowshunt_ebpf.testing.narrow_domain import load_domain


def intervals(low, high):
    return [(a, b) for a in range(low, high + 1) for b in range(a, high + 1)]


def tnums(bits):
    ones = (1 << bits) - 1
    return [(value, mask) for mask in range(ones + 1) for value in range(ones + 1) if not value & mask]


@pytest.fixture(scope="module")
def two_bits():
    return Trial(load_domain(2))


def test_at_two_bits_settling_keeps_just_the_values_of_all_parts(two_bits):
    for tnum, u, s, low_u, low_s in itertools.product(
        tnums(2), intervals(0, 3), intervals(-2, 1), intervals(0, 1), intervals(-1, 0)
    ):
        assert two_bits.settled((*tnum, *u, *s, *low_u, *low_s)) is None


def test_at_two_bits_all_operations_on_all_sets_are_sound(two_bits):
    settle = two_bits.domain.scalar_value.settle
    sets = {
        settle(*tnum, *u, *s, *low)
        for tnum, u, s, low in itertools.product(tnums(2), intervals(0, 3), intervals(-2, 1), intervals(0, 1))
    } - {None}
    assert len(sets) == 15  # every set of values but the empty one
    for a in sorted(sets):
        assert list(two_bits.unary(a)) == []
        for b in sorted(sets):
            assert list(two_bits.binary(a, b)) == []


@pytest.mark.parametrize(("width", "pairs"), [(4, 400), (8, 8)])
def test_operations_on_many_sets_are_sound(width, pairs):
    assert first_wrong(load_domain(width), pairs=pairs) is None


def test_products_of_all_tnums_of_four_bits_are_sound():
    tnum = load_domain(4).tnum
    members = {(v, m): [x for x in range(16) if x & ~m == v] for v, m in tnums(4)}
    for a, b in itertools.product(members, repeat=2):
        value, mask = tnum.mul(*a, *b, 15)
        assert not value & mask
        assert all((x * y ^ value) & ~mask & 15 == 0 for x in members[a] for y in members[b])


def test_what_settles_is_settled():
    trial = Trial(load_domain(4))
    for a in trial.elements(random.Random(3), 3000):
        assert trial.domain.scalar_value.settle(*a) == a
