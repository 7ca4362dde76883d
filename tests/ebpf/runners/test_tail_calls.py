"""Tail calls: to another program, to none, in functions, and no more than the kernel's 33."""

import struct

import pytest

from flowshunt.errors import InputError
from flowshunt.insn import (
    ADD,
    LD_IMM64,
    PSEUDO_MAP_IDX,
    PSEUDO_MAP_IDX_VALUE,
    R1,
    R10,
    Instruction,
    W,
    alu64_imm,
    call,
    call_local,
    exit_,
    ldx,
    mov64,
    mov64_imm,
    st,
    stx,
)
from flowshunt_ebpf.contexts.layout import XDP
from flowshunt_ebpf.kernel.runner import run_in_kernel
from flowshunt_ebpf.kernel.syscall import missing
from flowshunt_ebpf.maps.create import create_all
from flowshunt_ebpf.native.emulator import emulate
from flowshunt_ebpf.native.fault import FaultKind
from flowshunt_ebpf.native.host import host
from flowshunt_ebpf.native.image import prepare
from flowshunt_ebpf.native.interpreter import interpret
from flowshunt_ebpf.native.machine import Machine
from flowshunt_ebpf.program import MapDefinition, MapType, Program, ProgramType
from flowshunt_ebpf.testing.checked_code import host_checked, vouched

PROGRAMS = MapDefinition("programs", MapType.PROG_ARRAY, 4, 4, 4)
COUNT = MapDefinition("count", MapType.ARRAY, 4, 4, 1)
MAPS = (PROGRAMS, COUNT)


RUNNERS = {
    "interpret": interpret,
    "host": host_checked,
    "host, verified": lambda image, machine: host(image, machine, vouched(image)),
    "unicorn-x86_64": lambda image, machine: emulate(image, machine, "x86_64"),
    "unicorn-arm64": lambda image, machine: emulate(image, machine, "arm64"),
}
if missing() is None:
    RUNNERS["kernel"] = run_in_kernel


def jump(index):
    return (Instruction(LD_IMM64, 2, PSEUDO_MAP_IDX, 0, 0), mov64_imm(3, index), call(12))


def program(*instructions):
    return Program(tuple(instructions), type=ProgramType.XDP, maps=MAPS)


@pytest.fixture(params=RUNNERS)
def run(request):
    def run(main, **targets):
        maps = create_all(MAPS)
        machine = Machine(XDP, maps)
        machine.set_packet(bytes(64))
        for index, target in targets.items():
            image = prepare(target, maps)
            maps[0].set_handle(int(index[1:]), machine.add_program(image, vouched(image)))
        loaded = RUNNERS[request.param](prepare(main, maps), machine)
        outcome = loaded.run()
        loaded.close()
        assert outcome.fault is None
        return outcome.value, struct.unpack("<I", maps[1].lookup(bytes(4)))[0]

    return run


def test_the_other_program_goes_on(run):
    main = program(*jump(2), mov64_imm(0, 1), exit_())
    assert run(main, p2=program(ldx(W, 2, R1, 0), mov64_imm(0, 3), exit_())) == (3, 0)


@pytest.mark.parametrize("index", [0, 1, 3, 4, -1])
def test_an_empty_place_is_passed(run, index):
    main = program(mov64(6, 1), *jump(index), mov64(1, 6), ldx(W, 2, R1, 0), mov64_imm(0, 1), exit_())
    assert run(main, p2=program(mov64_imm(0, 3), exit_())) == (1, 0)


def test_a_chain_has_33_links(run):
    again = program(
        Instruction(LD_IMM64, 6, PSEUDO_MAP_IDX_VALUE, 0, 1), ldx(W, 7, 6, 0), alu64_imm(ADD, 7, 1), stx(W, 6, 7, 0),
        *jump(0), mov64_imm(0, 2), exit_(),
    )  # fmt: skip
    assert run(again, p0=again) == (2, 34)


@pytest.mark.parametrize("load", [load for name, load in RUNNERS.items() if name != "kernel"])  # it wants BTF for this
def test_registers_of_a_caller_survive_a_tail_call_in_a_function(load):
    maps = create_all(MAPS)
    machine = Machine(XDP, maps)
    other = program(*(mov64_imm(register, 1) for register in range(6, 10)), st(W, R10, -4, 1), mov64_imm(0, 7), exit_())
    image = prepare(other, maps)
    maps[0].set_handle(1, machine.add_program(image, vouched(image)))
    main = program(
        mov64_imm(6, 11), mov64_imm(7, 22), mov64_imm(8, 33), mov64_imm(9, 44), call_local(5),
        *(Instruction(0x0F, 0, register) for register in range(6, 10)), exit_(),
        *jump(1), mov64_imm(0, 9), exit_(),
    )  # fmt: skip
    machine.set_packet(bytes(64))
    outcome = load(prepare(main, maps), machine).run()
    assert (outcome.value, outcome.fault) == (7 + 11 + 22 + 33 + 44, None)


@pytest.mark.parametrize("load", [load for name, load in RUNNERS.items() if name != "kernel"])
def test_a_chain_that_goes_a_function_deeper_each_time_stops_at_the_stacks_end(load):
    """Even with a verdict: a program by itself can't, so that no verifier sees it."""
    maps = create_all(MAPS)
    machine = Machine(XDP, maps)
    deeper = program(call_local(1), exit_(), *jump(0), st(W, R10, -4, 1), mov64_imm(0, 1), exit_())
    image = prepare(deeper, maps)
    maps[0].set_handle(0, machine.add_program(image, vouched(image)))
    machine.set_packet(bytes(64))
    fault = load(prepare(deeper, maps), machine).run().fault
    assert fault is not None
    assert fault.kind == FaultKind.CALL_DEPTH


def test_a_program_is_refused_that_may_tail_call_one_without_a_verdict():
    maps = create_all(MAPS)
    machine = Machine(XDP, maps)
    machine.set_packet(bytes(64))
    target = prepare(program(mov64_imm(0, 3), exit_()), maps)
    maps[0].set_handle(0, machine.add_program(target))
    image = prepare(program(*jump(0), mov64_imm(0, 1), exit_()), maps)
    with pytest.raises(InputError, match="no verifier has accepted"):
        host(image, machine, vouched(image))
    machine.verdicts[0] = vouched(image)
    with pytest.raises(InputError, match="other bytes"):
        host(image, machine, vouched(image))
    machine.verdicts[0] = vouched(target)
    assert host(image, machine, vouched(image)).run().value == 3
    assert host_checked(image, machine).run().value == 3
