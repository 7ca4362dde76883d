"""Proofs of Python functions: every path is found, and what is not so is refuted."""

import pytest
import z3

from flowshunt_ebpf.testing.symbolic import Explorer, check_with_bitwuzla, every


def absolute(x):
    return -x if x < 0 else x


def clamped(x, low, high):
    return max(low, min(high, x))


def digits(x):
    count = 0
    while x:
        x >>= 1
        count += 1
    return count


def test_every_path_is_found():
    e = Explorer(16)
    x = e.number("x", -100, 100)
    assert len(e.paths(lambda: absolute(x))) == 2
    assert len(e.paths(lambda: clamped(x, -5, 5))) == 3
    e.assume(x >= 0)
    assert len(e.paths(lambda: absolute(x))) == 1
    assert sorted(p.result for p in e.paths(lambda: digits(x))) == list(range(8))


def test_what_is_so_is_proved():
    e = Explorer(16)
    x = e.number("x", -100, 100)
    e.prove(e.paths(lambda: absolute(x)), lambda r: every(r >= 0, r <= 100))
    e.prove(e.paths(lambda: x // 7 * 7 + x % 7), lambda r: r == x)
    e.prove(e.paths(lambda: (x.bit_length(), digits(absolute(x)))), lambda r: r[0] == r[1])


def test_what_is_not_so_is_refuted_with_values():
    e = Explorer(16)
    x = e.number("x", -100, 100)
    with pytest.raises(AssertionError, match=r"z3: sat: .*x = "):
        e.prove(e.paths(lambda: absolute(x)), lambda r: r < 100)


def test_a_number_that_outgrows_its_room_refutes():
    e = Explorer(8)
    x = e.number("x", 0, 100)
    e.prove(e.paths(lambda: x + 27), lambda r: True)
    with pytest.raises(AssertionError, match="z3: sat"):
        e.prove(e.paths(lambda: x + 28), lambda r: True)


@pytest.mark.parametrize("operation", [lambda x: x // 7, lambda x: x % 7, lambda x: 7 - x, lambda x: ~x ^ (x & 12 | 3)])
@pytest.mark.parametrize("value", [-9, -7, -1, 0, 1, 6, 7, 20])
def test_operators_mean_what_they_do_on_integers(operation, value):
    e = Explorer(16)
    x = e.number("x", value, value)
    e.prove(e.paths(lambda: operation(x)), lambda r: r == operation(value))


def test_other_uses_of_a_number_fail():
    e = Explorer(16)
    x = e.number("x", 0, 3)
    with pytest.raises(TypeError):
        e.paths(lambda: [1, 2, 3, 4][x])
    with pytest.raises(TypeError, match="outside a run"):
        bool(x)


def test_the_second_solver_reads_what_the_first_writes():
    solver = z3.Solver()
    x = z3.BitVec("x", 8)
    solver.add(x * x == 49, x > 50)
    assert check_with_bitwuzla(solver.to_smt2()) == "sat"
    solver.add(x < 100)
    assert check_with_bitwuzla(solver.to_smt2()) == str(solver.check())
