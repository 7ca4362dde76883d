"""Our verdict on the corpus, on our own objects, and on what helpers are given is the kernel's.

The kernel's is what the corpus records, so that most of this needs no privilege; that the record is true is tested
beside it.
"""

from pathlib import Path

import pytest

from flowshunt_ebpf.elf import load_object
from flowshunt_ebpf.kernel.judge import judge
from flowshunt_ebpf.verifier import Limits, verify

OBJECTS = Path(__file__).parents[2] / "objects"
DOCUMENT = Path(__file__).parents[4] / "docs" / "verifier.md"
LIMITS = Limits(instructions=40_000)
OURS = [
    (file.relative_to(OBJECTS).as_posix(), name)
    for file in sorted([*OBJECTS.glob("*.o"), *OBJECTS.glob("large/*.o")])
    for name in load_object(file).names
]


def test_the_verdict_is_the_kernels(case):
    verdict = verify(case.program(), limits=LIMITS)
    assert verdict.accepted == case.accepted, verdict.reason
    if not case.accepted:
        assert verdict.rejection.rule == case.rule
    if not case.difference:
        assert case.accepted == case.kernel_accepts


def test_what_is_refused_here_alone_is_documented(cases):
    text = " ".join(DOCUMENT.read_text(encoding="utf-8").split())
    for case in cases:
        if case.difference:
            assert case.kernel_accepts, case.name
            assert case.name in text


@pytest.mark.parametrize(("file", "name"), OURS)
def test_our_own_programs_are_accepted(file, name):
    verdict = verify(load_object(OBJECTS / file).program(name))
    assert verdict.accepted, verdict.reason


@pytest.mark.parametrize(("file", "name"), OURS)
def test_the_kernel_accepts_our_own_programs(file, name, kernel):
    judgement = judge(load_object(OBJECTS / file).program(name))
    assert judgement.accepted, judgement.reason


def test_some_of_our_programs_are_large():
    sizes = sorted(len(load_object(OBJECTS / file).program(name)) for file, name in OURS)
    assert sizes[-1] > 3000
    assert sum(size > 1000 for size in sizes) >= 4
