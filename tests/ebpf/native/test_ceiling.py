"""LLVM's translation of programs computes what the interpreter does; what it does not translate it refuses."""

import attrs
import pytest

from flowshunt.errors import CapabilityError, InputError
from flowshunt_ebpf.asm import assemble
from flowshunt_ebpf.contexts.layout import MEMORY
from flowshunt_ebpf.maps.create import create_all
from flowshunt_ebpf.native.ceiling import compiled_by_llvm
from flowshunt_ebpf.native.image import prepare
from flowshunt_ebpf.native.interpreter import interpret
from flowshunt_ebpf.native.machine import Machine
from flowshunt_ebpf.native.verdict import issue
from flowshunt_ebpf.testing.checked_code import vouched
from flowshunt_ebpf.testing.compare import contents
from flowshunt_ebpf.testing.random_program import random_program

pytest.importorskip("llvmlite")


def run(program, load):
    maps = create_all(program.maps)
    machine = Machine(MEMORY, maps)
    machine.set_packet(bytes(range(64)))
    image = prepare(program, maps, context=MEMORY)
    outcome = load(image, machine, vouched(image)).run()
    assert outcome.fault is None
    return outcome.value, machine.packet(), [contents(m) for m in maps]


@pytest.mark.parametrize("seed", range(40))
def test_random_programs_give_what_the_interpreter_gives(seed):
    program = random_program(seed)
    try:
        found = run(program, compiled_by_llvm)
    except CapabilityError:
        pytest.skip("it has an instruction that is not translated")
    assert found == run(program, lambda image, machine, verdict: interpret(image, machine))


def test_most_random_programs_are_translated():
    translated = 0
    for seed in range(20):
        try:
            run(random_program(seed), compiled_by_llvm)
        except CapabilityError:
            continue
        translated += 1
    assert translated >= 10


@pytest.mark.parametrize(
    ("text", "what"),
    [("may_goto +0\nr0 = 0\nexit", "may_goto"), ("r2 = 0\nr3 = 0\ncall 12\nr0 = 0\nexit", "a tail call")],
)
def test_what_is_not_translated_is_refused_with_its_place(text, what):
    with pytest.raises(CapabilityError, match=f"{what} is not compiled by LLVM here .program main, instruction"):
        run(assemble(text), compiled_by_llvm)


def test_a_program_without_a_verdict_is_refused():
    image = prepare(assemble("r0 = 0\nexit"), context=MEMORY)
    machine = Machine(MEMORY, ())
    good = vouched(image)
    for verdict in (
        attrs.evolve(good),
        issue(attrs.evolve(good, accepted=False)),
        issue(attrs.evolve(good, digest=b"")),
    ):
        with pytest.raises(InputError, match="not about it, or rejects it"):
            compiled_by_llvm(image, machine, verdict)
