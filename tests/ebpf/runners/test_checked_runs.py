"""Programs that nobody verified: what they may not do stops them, at the same place on every runner."""

import attrs
import pytest

from flowshunt.errors import InputError
from flowshunt.insn import (
    ADD,
    ALU64,
    DW,
    JEQ,
    JNE,
    LD_IMM64,
    MOV,
    PSEUDO_FUNC,
    PSEUDO_MAP_IDX,
    PSEUDO_MAP_IDX_VALUE,
    R0,
    R1,
    R2,
    R10,
    Instruction,
    W,
    X,
    alu64_imm,
    call,
    call_local,
    exit_,
    ja,
    jmp_imm,
    ld_imm64,
    ldx,
    mov64,
    mov64_imm,
    stx,
)
from flowshunt_ebpf.contexts.layout import MEMORY, XDP
from flowshunt_ebpf.maps.create import create_all
from flowshunt_ebpf.native.emulator import emulate
from flowshunt_ebpf.native.fault import FaultKind
from flowshunt_ebpf.native.host import host
from flowshunt_ebpf.native.image import prepare
from flowshunt_ebpf.native.interpreter import interpret
from flowshunt_ebpf.native.machine import Machine
from flowshunt_ebpf.native.verdict import Verdict, digest
from flowshunt_ebpf.program import MapDefinition, MapFlag, MapType, Program, ProgramType
from flowshunt_ebpf.testing.checked_code import host_checked
from flowshunt_ebpf.verifier import verify

RUNNERS = {
    "interpret": interpret,
    "host": host_checked,
    "unicorn-x86_64": lambda image, machine: emulate(image, machine, "x86_64"),
    "unicorn-arm64": lambda image, machine: emulate(image, machine, "arm64"),
}
ARRAY = MapDefinition("array", MapType.ARRAY, 4, 12, 4)
HASH = MapDefinition("hash", MapType.HASH, 4, 8, 4)
CONSTANT = MapDefinition("constant", MapType.ARRAY, 4, 8, 1, flags=MapFlag.RDONLY_PROG)
MAPS = (ARRAY, HASH, CONSTANT)


@pytest.fixture(params=RUNNERS)
def stop(request):
    """Run a program; give the kind and place of the fault (None: it came to its end)."""

    def stop(*instructions, context=MEMORY, memory=bytes(16), budget=10_000):
        maps = create_all(MAPS)
        machine = Machine(context, maps)
        machine.set_packet(memory)
        image = prepare(Program(tuple(instructions), maps=MAPS), maps, context=context)
        fault = RUNNERS[request.param](image, machine).run(budget=budget).fault
        return (fault.kind, fault.index) if fault else None

    return stop


def value_of(number, register):
    return Instruction(LD_IMM64, register, PSEUDO_MAP_IDX_VALUE, 0, number)


def test_an_access_just_inside_memory_is_fine(stop):
    assert stop(ldx(DW, R0, R1, 8), exit_()) is None


@pytest.mark.parametrize("offset", [-1, 9, 16, 4096, 32767, -32768])
def test_an_access_outside_memory_stops(stop, offset):
    assert stop(mov64_imm(0, 0), ldx(DW, R0, R1, offset), exit_()) == (FaultKind.ACCESS, 1)


@pytest.mark.parametrize("address", [0, 8, 0x1000, (1 << 64) - 8, 1 << 63, (1 << 64) - 1])
def test_an_access_to_any_address_stops(stop, address):
    signed = address - (1 << 64) if address >> 63 else address
    assert stop(ld_imm64(3, signed), ldx(DW, R0, 3, 0), exit_()) == (FaultKind.ACCESS, 1)


def test_the_stack_ends_eight_frames_down(stop):
    assert stop(mov64(2, R10), alu64_imm(ADD, 2, -4096), stx(DW, 2, 2, 0), mov64_imm(0, 0), exit_()) is None
    assert stop(mov64(2, R10), alu64_imm(ADD, 2, -4096), stx(DW, 2, 2, -1), exit_()) == (FaultKind.ACCESS, 2)
    assert stop(stx(DW, R10, 1, -7), exit_()) == (FaultKind.ACCESS, 0)


def test_a_map_value_ends_before_its_padding(stop):
    assert stop(value_of(0, 2), ldx(W, R0, 2, 8), exit_()) is None
    assert stop(value_of(0, 2), ldx(DW, R0, 2, 8), exit_()) == (FaultKind.ACCESS, 1)
    assert stop(value_of(0, 2), ldx(W, R0, 2, 12), exit_()) == (FaultKind.ACCESS, 1)
    assert stop(value_of(0, 2), ldx(W, R0, 2, 16), exit_()) is None  # the next element's
    assert stop(value_of(0, 2), ldx(W, R0, 2, 64), exit_()) == (FaultKind.ACCESS, 1)


def test_a_map_header_is_out_of_reach(stop):
    assert stop(Instruction(LD_IMM64, 2, PSEUDO_MAP_IDX, 0, 0), ldx(DW, R0, 2, 32), exit_()) == (FaultKind.ACCESS, 1)


def test_constants_are_not_written(stop):
    assert stop(value_of(2, 2), ldx(DW, R0, 2, 0), exit_()) is None
    assert stop(value_of(2, 2), stx(DW, 2, 2, 0), exit_()) == (FaultKind.ACCESS, 1)


def test_an_endless_loop_stops(stop):
    assert stop(mov64_imm(0, 0), ja(-2), exit_()) == (FaultKind.BUDGET, 1)


def test_endless_calls_stop(stop):
    """10 calls in each of 8 nested functions would be 10^8 runs of the last."""
    nested = []
    for _ in range(7):
        nested += [call_local(10 - k) for k in range(10)] + [exit_()]
    assert stop(*nested, mov64_imm(0, 0), exit_(), budget=5000)[0] == FaultKind.BUDGET


def test_recursion_stops(stop):
    assert stop(call_local(1), exit_(), call_local(-1), exit_())[0] == FaultKind.CALL_DEPTH


def test_eight_functions_deep_is_fine(stop):
    body = []
    for _ in range(7):
        body += [call_local(1), exit_()]
    assert stop(*body, mov64_imm(0, 0), exit_()) is None
    assert stop(call_local(1), exit_(), *body, mov64_imm(0, 0), exit_())[0] == FaultKind.CALL_DEPTH


def test_a_context_field_is_read_through_the_context_alone(stop):
    """The analysis takes r6 for the context; a spilled copy that a helper overwrote is not it."""
    code = (
        stx(DW, R10, R1, -8),
        mov64(2, R10), alu64_imm(ADD, 2, -4), mov64_imm(3, 0), stx(W, R10, 3, -4),
        mov64(3, R10), alu64_imm(ADD, 3, -8), Instruction(LD_IMM64, 1, PSEUDO_MAP_IDX, 0, 1),
        mov64_imm(4, 0), call(2),
        ldx(DW, 6, R10, -8), ldx(W, R0, 6, 12), exit_(),
    )  # fmt: skip
    assert stop(*code, context=XDP)[0] in (FaultKind.CONTEXT, FaultKind.ACCESS)


def test_packet_pointers_are_widened_and_bounded(stop):
    read = (ldx(W, 2, R1, 0), ldx(W, 3, R1, 4), ldx(DW, R0, 2, 8), exit_())
    assert stop(*read, context=XDP) is None
    assert stop(*read, context=XDP, memory=bytes(15)) == (FaultKind.ACCESS, 2)
    assert stop(ldx(W, 3, R1, 4), ldx(DW, R0, 3, 0), exit_(), context=XDP) == (FaultKind.ACCESS, 1)
    assert stop(ldx(W, 3, R1, 0), ldx(DW, R0, 3, -8), exit_(), context=XDP) == (FaultKind.ACCESS, 1)


def key_on_stack(distance):
    return (mov64(2, R10), alu64_imm(ADD, 2, distance), Instruction(LD_IMM64, 1, PSEUDO_MAP_IDX, 0, 1))


@pytest.mark.parametrize("number", [1, 2, 3])
def test_helpers_get_memory_of_the_programs_own(stop, number):
    assert stop(*key_on_stack(-8), mov64(3, 2), mov64_imm(4, 0), call(number), mov64_imm(0, 0), exit_()) is None
    assert stop(*key_on_stack(-2), mov64(3, 2), mov64_imm(4, 0), call(number), exit_()) == (FaultKind.ARGUMENT, 5)


def test_a_helper_gets_a_map_where_it_takes_one(stop):
    assert stop(mov64(2, R10), alu64_imm(ADD, 2, -8), mov64(1, 2), call(1), exit_()) == (FaultKind.ARGUMENT, 3)
    forged = (
        mov64(2, R10),
        alu64_imm(ADD, 2, -8),
        Instruction(LD_IMM64, 1, PSEUDO_MAP_IDX, 0, 1),
        alu64_imm(ADD, 1, 8),
    )
    assert stop(*forged, call(3), exit_()) == (FaultKind.ARGUMENT, 4)


def test_a_lookup_in_an_array_checks_its_key(stop):
    forged = (mov64_imm(2, 64), Instruction(LD_IMM64, 1, PSEUDO_MAP_IDX, 0, 0), call(1), exit_())
    assert stop(*forged) == (FaultKind.ARGUMENT, 2)


def test_a_size_has_32_bits_and_a_sign(stop):
    text = (mov64(2, R10), alu64_imm(ADD, 2, -8), mov64_imm(3, 0), stx(DW, R10, 3, -8), mov64(3, 2), mov64(1, 2))
    assert stop(*text, mov64_imm(2, 8), call(182), exit_()) is None
    for size in (-1, 9, 0x7FFFFFFF):
        assert stop(*text, mov64_imm(2, size), call(182), exit_())[0] == FaultKind.ARGUMENT


def test_a_callback_is_a_function_of_the_program(stop):
    body = (mov64_imm(1, 3), mov64_imm(3, 0), mov64_imm(4, 0))
    good = (Instruction(LD_IMM64, 2, PSEUDO_FUNC, 0, 6), *body, call(181), exit_(), mov64_imm(0, 0), exit_())
    assert stop(*good) is None
    bad = (
        Instruction(LD_IMM64, 2, PSEUDO_FUNC, 0, 7),
        *body,
        alu64_imm(ADD, 2, 1),
        call(181),
        exit_(),
        mov64_imm(0, 0),
        exit_(),
    )
    assert stop(*bad)[0] == FaultKind.CALLBACK


def test_arguments_are_forgotten_after_a_call(stop):
    """Else a program without a verdict would see addresses, or what helpers left in registers."""
    forgotten = (mov64_imm(5, 7), call(8), mov64(0, 5), jmp_imm(JEQ, 0, 0, 1), ldx(DW, 0, 0, 0), exit_())
    assert stop(*forgotten) is None
    inside = (mov64_imm(1, 7), call_local(2), jmp_imm(JNE, 1, 0, -3), exit_(), mov64_imm(0, 0), exit_())
    assert stop(*inside) is None


def test_the_host_runner_takes_only_a_verdict_about_this_program():
    program = Program((mov64_imm(0, 0), exit_()))
    other = Program((mov64_imm(0, 1), exit_()))
    image, machine = prepare(program), Machine()
    assert not host(image, machine, verify(program)).checked
    for bad, why in (
        (None, "no verifier has accepted it"),
        (verify(Program((mov64(0, 3), exit_()))), "rejects it"),
        (verify(other), "about other bytes"),
        (verify(program, context=XDP), "another context"),
        (Verdict(True, digest(program, MEMORY), "by hand"), "no verifier issued"),
        (attrs.evolve(verify(other), digest=digest(program, MEMORY)), "no verifier issued"),
    ):
        with pytest.raises(InputError, match=why):
            host(image, machine, bad)


def test_a_verdict_is_about_the_maps_sizes_too():
    program = Program((mov64_imm(0, 0), exit_()), maps=(ARRAY,))
    larger = Program(program.instructions, maps=(MapDefinition("array", MapType.ARRAY, 4, 16, 4),))
    assert digest(program, XDP) != digest(larger, XDP)


@pytest.mark.parametrize(
    ("instructions", "message"),
    [
        ((Instruction(0x8D, 2), exit_()), "callx"),
        ((call(9999), exit_()), "9999"),
        ((call(12, ), exit_()), None),
        ((call(69), exit_()), "fib_lookup"),
        ((ja(5), exit_()), "outside the program"),
        ((mov64_imm(0, 0),), "past its end"),
        ((Instruction(0x85, 0, 2, 0, 5), exit_()), "kernel function"),
        ((Instruction(LD_IMM64, 1, PSEUDO_MAP_IDX, 0, 9), exit_()), "map 9"),
        ((Instruction(ALU64 | MOV | X, 10, 1), exit_()), "r10"),
        ((Instruction(0xFF), exit_()), "not defined"),
        ((), "no instruction"),
    ],
)  # fmt: skip
def test_what_cannot_run_is_refused_at_load(instructions, message):
    program = Program(tuple(instructions), type=ProgramType.XDP, maps=MAPS)
    if message is None:
        prepare(program, create_all(MAPS))
        return
    with pytest.raises(InputError, match=message):
        prepare(program, create_all(MAPS))


def test_a_poisoned_instruction_is_not_passed():
    reached = Program((call(0xBAD2310), exit_()), poisoned={0: "the target lacks a field"})
    passed = Program((mov64_imm(0, 0), ja(1), call(0xBAD2310), exit_()), poisoned={2: "the target lacks a field"})
    for program, kind in ((reached, FaultKind.POISONED), (passed, None)):
        image, machine = prepare(program), Machine()
        for load in RUNNERS.values():
            fault = load(image, machine).run().fault
            assert (fault.kind if fault else None) == kind


def test_a_host_fault_is_told_in_words():
    program = Program((ldx(DW, R0, R2, 0), exit_()), name="reader")
    outcome = host_checked(prepare(program), Machine()).run()
    text = outcome.fault.describe(program)
    assert text.startswith("program reader, instruction 0: stopped: it accessed memory")


@pytest.mark.parametrize("name", ["host", "unicorn-x86_64", "unicorn-arm64"])
def test_may_goto_ends_a_loop_after_the_kernels_count(name):
    """The interpreter would take seconds."""
    code = (mov64_imm(0, 0), Instruction(0xE5, 0, 0, 2), alu64_imm(ADD, 0, 1), ja(-3), exit_())
    machine = Machine()
    outcome = RUNNERS[name](prepare(Program(code)), machine).run(budget=1 << 40)
    assert (outcome.value, outcome.fault) == (8_388_608, None)


@pytest.mark.parametrize("load", RUNNERS.values(), ids=list(RUNNERS))
def test_may_goto_counts_for_each_function(load):
    code = (call_local(1), exit_(), mov64_imm(0, 5), Instruction(0xE5, 0, 0, 1), mov64_imm(0, 6), exit_())
    assert load(prepare(Program(code)), Machine()).run().value == 6


@pytest.mark.parametrize("load", [interpret, host_checked, lambda i, m: emulate(i, m, "arm64")])
def test_a_program_runs_only_on_a_machine_of_its_context(load):
    image = prepare(Program((mov64_imm(0, 0), exit_())), context=XDP)
    with pytest.raises(InputError, match="the machine has memory"):
        load(image, Machine(MEMORY))
