"""Rewritten programs kept between runs count for the same program and choice alone, and only if nobody touched them."""

import functools

import attrs
import pytest

from flowshunt_ebpf.asm import assemble
from flowshunt_ebpf.kops import optimize as module
from flowshunt_ebpf.kops.kept import keep, kept_name, read_kept
from flowshunt_ebpf.kops.optimize import Target, optimize
from flowshunt_ebpf.kops.policy import Policy, weight
from flowshunt_ebpf.kops.rewrite import rewrite
from flowshunt_ebpf.program import SourceLine
from flowshunt_ebpf.testing.sample_operations import LEAST, SPIN, Believer

TEXT = """
.type xdp
.function first
    r2 = r1
    r5 = 7
    r2 <<= 13
    r1 >>= 51
    r1 |= r2
    r0 = r1
    call second
    exit
.function second
    r0 = r5
    exit
"""
PROGRAM = attrs.evolve(
    assemble(TEXT),
    lines=tuple(SourceLine(at, "x.c", at + 1, text=str(at)) for at in range(10)),
    externals={6: "a"},
    poisoned={9: "b"},
)
TARGET = Target("x86_64", frozenset({"bmi2"}))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("FLOWSHUNT_CACHE", str(tmp_path))
    return tmp_path / "rewrites"


def name(program=PROGRAM, policy=Policy.ALL, operations=(SPIN,), features=frozenset()):
    return kept_name(program, policy, None, operations, "x86_64", features)


def made():
    return rewrite(PROGRAM, [SPIN], Believer(), weight(Policy.ALL), architecture="x86_64", features=frozenset({"bmi2"}))


def test_what_is_kept_is_read_back_whole(folder):
    rewritten = made()
    assert rewritten.program.sites
    keep("some", rewritten)
    again = read_kept("some", PROGRAM)
    assert again is not None
    assert again.program == rewritten.program
    assert again.program.sites == rewritten.program.sites
    assert (again.origin, again.findings, again.places) == (rewritten.origin, rewritten.findings, rewritten.places)


def test_what_is_not_there_or_was_touched_does_not_count(folder):
    assert read_kept("some", PROGRAM) is None
    keep("some", made())
    file = folder / "some"
    data = file.read_bytes()
    for wrong in (data[:-1], data[:40], b"", data.replace(b"spin", b"spun"), b"\0" * 32 + data[32:]):
        file.write_bytes(wrong)
        assert read_kept("some", PROGRAM) is None
    file.write_bytes(data)
    assert read_kept("some", PROGRAM) is not None
    (folder / "other").write_bytes(data)
    assert read_kept("other", PROGRAM) is None


def test_the_name_says_all_that_it_depends_on():
    names = {
        name(),
        name(assemble(TEXT.replace("r5 = 7", "r5 = 8"))),
        name(attrs.evolve(PROGRAM, license="GPL")),
        name(policy=Policy.STATIC),
        name(operations=(SPIN, LEAST)),
        name(operations=(LEAST,)),
        name(features=frozenset({"bmi2"})),
    }
    assert len(names) == 7
    assert name() == name(attrs.evolve(PROGRAM))


def test_a_second_load_finds_and_proves_nothing_anew(folder, monkeypatch):
    first = optimize(assemble(TEXT), policy=Policy.ALL, target=TARGET)
    monkeypatch.setattr(module, "rewrite", lambda *args, **more: pytest.fail("made anew"))
    second = optimize(assemble(TEXT), policy=Policy.ALL, target=TARGET)
    assert second.program == first.program
    assert second.program.sites == first.program.sites


def test_an_operation_may_be_made_of_callables_that_are_no_plain_functions():
    class Turning:
        def __call__(self, values):
            return SPIN.proof(values)

    for proof in (functools.partial(SPIN.proof), Turning(), functools.lru_cache(SPIN.proof)):
        operation = attrs.evolve(SPIN, proof=proof)
        assert kept_name(PROGRAM, Policy.ALL, None, [operation], "x86_64", frozenset())
