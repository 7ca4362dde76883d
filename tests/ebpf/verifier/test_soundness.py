"""What the verifier accepts never faults, and registers stay in the bounds that it claims.

A fixed share of the random programs; `tests/benchmarks/verifier_soundness.py` runs as many as one likes.
"""

from pkgutil import resolve_name

import attrs
import pytest

from flowshunt.insn import ADD
from flowshunt_ebpf.testing.memory_programs import memory_program
from flowshunt_ebpf.testing.soundness import Bench, Tally, try_programs
from flowshunt_ebpf.verifier import branches, verify
from flowshunt_ebpf.verifier.scalar import const


@pytest.fixture(scope="module")
def tally():
    return try_programs(range(700))


def test_no_accepted_program_faults_or_leaves_its_bounds(tally):
    assert tally.violations == {}


def test_many_programs_are_accepted_and_many_are_not(tally):
    assert tally.accepted > 350
    assert tally.rejected > 70
    assert len(tally.rules) > 6


def test_the_runs_are_real(tally):
    assert tally.runs == 4 * tally.accepted
    assert tally.steps > 20 * tally.runs


def test_a_false_claim_is_noticed():
    program = memory_program(1)
    facts = verify(program).facts
    assert facts is not None
    wrong = list(facts.bounds)
    last = len(program) - 1
    assert any(known is not None and known[0] is not None for known in wrong[last:])
    wrong[last] = (const(77), *facts.bounds[last][1:])
    bench = Bench()
    false = attrs.evolve(facts, bounds=tuple(wrong))
    violation = bench.run(bench.prepare(program), false, 1, runs=1, tally=Tally())
    assert violation is not None
    assert violation.index == last
    assert "r0 is claimed to be 77" in violation.what


def test_a_false_place_is_noticed():
    program = memory_program(1)
    facts = verify(program).facts
    assert facts is not None
    wrong = [known and (*known[:10], (known[10][0], known[10][1], -8)) for known in facts.regions]
    bench = Bench()
    false = attrs.evolve(facts, regions=tuple(wrong))
    violation = bench.run(bench.prepare(program), false, 1, runs=1, tally=Tally())
    assert violation is not None
    assert "r10 is claimed to point to byte -8 of frame 0" in violation.what


BREAKS = {
    "states include each other whatever their numbers are": ("inclusion.includes", lambda _: lambda outer, inner: True),
    "the facts are those of the last state": ("facts.join", lambda _: lambda a, b: b),
    "one byte more of the packet is proved": (
        "branches.prove",
        lambda prove: lambda state, kind, id, length: prove(state, kind, id, length + 1),
    ),
    "a comparison tells what is so where it does not hold": ("branches.refine", lambda _: branches.refine_not),
    "a sum is its first operand": (
        "arithmetic.alu64",
        lambda alu64: lambda op, a, b: a if op == ADD else alu64(op, a, b),
    ),
    "what a store overwrites stays": ("stack.Stack._cut", lambda _: lambda self, first, size: None),
}


@pytest.mark.parametrize("name", BREAKS)
def test_a_broken_verifier_is_noticed(name, monkeypatch):
    where, broken = BREAKS[name]
    target = f"flowshunt_ebpf.verifier.{where}"
    monkeypatch.setattr(target, broken(resolve_name(target)))
    for first in range(0, 3000, 100):
        if try_programs(range(first, first + 100)).violations:
            return
    pytest.fail("nothing was noticed")
