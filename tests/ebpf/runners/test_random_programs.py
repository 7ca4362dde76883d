"""Random programs leave the same registers, memory and maps behind on every runner."""

import random
import struct

import attrs
import pytest

from flowshunt.insn import Instruction
from flowshunt_ebpf.contexts.layout import XDP
from flowshunt_ebpf.kernel.syscall import missing
from flowshunt_ebpf.native import x86_64
from flowshunt_ebpf.testing.compare import Comparison, difference
from flowshunt_ebpf.testing.random_program import MAPS, random_program

PROGRAMS = 60
IN_KERNEL = 25


class Runs:
    def __init__(self, *, kernel):
        self.comparison = Comparison(MAPS, context=XDP, kernel=kernel, trusted=True)

    def fill(self):
        out, shared, table = self.comparison.maps
        for m in (out, shared, table):
            m.clear()
        shared.update(bytes(4), bytes(range(64)))
        for number in (1, 3, 5):
            table.update(struct.pack("<I", number), struct.pack("<Q", number * 0x1111111111111111))

    def difference(self, program, *, checked=None):
        return difference(self.comparison.states(program, bytes(64), self.fill, checked=checked))


@pytest.fixture(scope="module")
def runs():
    return Runs(kernel=False)


def test_all_runners_agree(runs):
    for seed in range(PROGRAMS):
        assert runs.difference(random_program(seed)) is None, f"seed {seed}"


@pytest.mark.skipif(missing() is not None, reason=f"the kernel runner can't run here: {missing()}")
def test_the_kernel_agrees():
    kernel = Runs(kernel=True)
    for seed in range(10_000, 10_000 + IN_KERNEL):
        assert kernel.difference(random_program(seed), checked=False) is None, f"seed {seed}"


def test_a_wrong_code_generator_is_noticed(runs, monkeypatch):
    """The comparison can fail: a shift that goes the wrong way is found within a few programs."""
    monkeypatch.setitem(x86_64._SHIFT, 0x70, "sar")
    monkeypatch.setitem(x86_64._SHIFT_X, 0x70, "sarx")
    assert any(runs.difference(random_program(seed), checked=False) for seed in range(150))


def test_programs_that_do_anything_stop_alike():
    """Instructions of random fields: most access memory that is not theirs, and all runners say where."""
    comparison = Comparison((), context=XDP)
    stopped = 0
    for seed in range(150):
        rng = random.Random(seed)
        base = random_program(seed % 7, length=10)
        body = [i for i in base.instructions if i.opcode not in (0x85, 0x18)][:40]
        for _ in range(6):
            at = rng.randrange(len(body))
            body[at] = Instruction(
                rng.choice((0x61, 0x71, 0x79, 0x7B, 0x63, 0xDB)),
                rng.randrange(10),
                rng.randrange(10),
                rng.randrange(-600, 600),
            )
        body = [attrs.evolve(i, offset=0) if i.opcode & 7 in (5, 6) and i.opcode != 0x95 else i for i in body]
        program = attrs.evolve(base, instructions=(*body, Instruction(0x95)), maps=())
        try:
            found = difference(comparison.states(program, bytes(64), lambda: None))
        except Exception as error:  # not well-formed: refused at load, by the image that all share
            assert "program" in str(error)
            continue
        assert found is None, f"seed {seed}"
        stopped += 1
    assert stopped > 20


def test_a_large_program_with_far_branches():
    """Conditional branches reach 1 MiB on ARM64; farther ones take two instructions."""
    piece = [
        Instruction(0x07, 6, imm=1),
        Instruction(0xDB, 10, 6, -8, 1),
        Instruction(0x79, 7, 10, -8),
        Instruction(0x0F, 0, 7),
    ]
    body = [Instruction(0x7A, 10, 0, -8, 0), Instruction(0xB7, 0), Instruction(0xB7, 6)] + piece * 5000
    far = [
        Instruction(0x15, 6, 0, 32000, 99),
        Instruction(0x06, 0, 0, 0, 2),
        Instruction(0xB7, 0, imm=1),
        Instruction(0x95),
    ]
    program = attrs.evolve(
        random_program(0), instructions=(*body[:3], *far, *body[3:], *piece * 4000, Instruction(0x95)), maps=()
    )
    comparison = Comparison((), context=XDP)
    assert difference(comparison.states(program, bytes(64), lambda: None)) is None
