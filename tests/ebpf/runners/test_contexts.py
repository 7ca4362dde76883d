"""Contexts: which fields a program may use, what they hold, and how packet pointers are loaded."""

import struct

import pytest

from flowshunt.errors import InputError
from flowshunt.insn import (
    ABS,
    ADD,
    ALU64,
    ATOMIC,
    DW,
    IND,
    JEQ,
    JGT,
    JMP,
    LD,
    LDX,
    R0,
    R1,
    R6,
    R10,
    STX,
    B,
    H,
    Instruction,
    W,
    X,
    alu64_imm,
    call_local,
    exit_,
    jmp_imm,
    ld_imm64,
    ldx,
    mov64,
    mov64_imm,
    st,
    stx,
)
from flowshunt_ebpf.contexts.layout import CGROUP_SKB, CONTEXTS, MEMORY, SOCKET_FILTER, TC, XDP
from flowshunt_ebpf.native.emulator import emulate
from flowshunt_ebpf.native.host import host
from flowshunt_ebpf.native.image import prepare
from flowshunt_ebpf.native.interpreter import interpret
from flowshunt_ebpf.native.machine import Machine
from flowshunt_ebpf.program import Program
from flowshunt_ebpf.testing.checked_code import host_checked, vouched

RUNNERS = {
    "interpret": interpret,
    "host": host_checked,
    "host, verified": lambda image, machine: host(image, machine, vouched(image)),
    "unicorn-arm64": lambda image, machine: emulate(image, machine, "arm64"),
}
PACKET = bytes(range(12)) + b"\x08\x00" + bytes(range(50))


def value(context, *instructions, packet=PACKET, fields=None, load=interpret):
    machine = Machine(context)
    machine.set_packet(packet)
    machine.set_context(fields or {})
    outcome = load(prepare(Program(tuple(instructions)), context=context), machine).run()
    assert outcome.fault is None, outcome.fault
    return outcome.value


@pytest.mark.parametrize("load", RUNNERS.values(), ids=list(RUNNERS))
@pytest.mark.parametrize("context", [XDP, TC, CGROUP_SKB], ids=lambda c: c.name)
def test_packet_pointers_are_whole(context, load):
    data, end = next(
        (f.offset, g.offset) for f in context.fields for g in context.fields if (f.name, g.name) == ("data", "data_end")
    )
    read = (
        ldx(W, 2, R1, data),
        ldx(W, 3, R1, end),
        mov64(4, 3),
        Instruction(ALU64 | 0x10 | X, 4, 2),
        mov64(0, 4),
        mov64(5, 2),
        alu64_imm(ADD, 5, 14),
        Instruction(JMP | JGT | X, 5, 3, 1),
        ldx(H, 0, 2, 12),
        exit_(),
    )
    assert value(context, *read, load=load) == 8
    assert value(context, *read, packet=b"abc", load=load) == 3


@pytest.mark.parametrize("load", RUNNERS.values(), ids=list(RUNNERS))
@pytest.mark.parametrize(
    "keep",
    [
        (mov64(R6, R1), mov64_imm(R1, 0), ldx(W, 2, R6, 0)),
        (stx(DW, R10, R1, -8), mov64_imm(R1, 0), ldx(DW, 7, R10, -8), ldx(W, 2, 7, 0)),
        (mov64(R6, R1), jmp_imm(JEQ, R6, 0, 1), mov64(R6, R1), ldx(W, 2, R6, 0)),
        (mov64_imm(7, 3), mov64(R6, R1), alu64_imm(ADD, 7, -1), jmp_imm(0x50, 7, 0, -2), ldx(W, 2, R6, 0)),
    ],
    ids=["moved", "spilled", "branch", "loop"],
)
def test_the_context_is_followed_through_copies(keep, load):
    assert value(XDP, *keep, ldx(B, 0, 2, 5), exit_(), load=load) == 5


@pytest.mark.parametrize("load", RUNNERS.values(), ids=list(RUNNERS))
def test_the_context_is_followed_into_functions(load):
    code = (
        call_local(1),
        exit_(),
        stx(DW, R10, R1, -16),
        ldx(DW, 3, R10, -16),
        ldx(W, 2, 3, 0),
        ldx(B, 0, 2, 7),
        exit_(),
    )
    assert value(XDP, *code, load=load) == 7


@pytest.mark.parametrize("load", RUNNERS.values(), ids=list(RUNNERS))
def test_plain_fields_hold_what_they_were_set_to(load):
    assert value(XDP, ldx(W, 0, R1, 12), exit_(), fields={"ingress_ifindex": 3}, load=load) == 3
    assert value(TC, ldx(W, 0, R1, 8), exit_(), fields={"mark": 0x11223344}, load=load) == 0x11223344
    assert value(TC, ldx(B, 0, R1, 9), exit_(), fields={"mark": 0x11223344}, load=load) == 0x33
    assert value(TC, ldx(W, 0, R1, 56), exit_(), fields={"cb[2]": 9}, load=load) == 9
    assert value(TC, ldx(DW, 0, R1, 152), exit_(), fields={"tstamp": 1 << 40}, load=load) == 1 << 40


@pytest.mark.parametrize("load", RUNNERS.values(), ids=list(RUNNERS))
def test_what_the_packet_says_is_filled_in(load):
    assert value(TC, ldx(W, 0, R1, 0), exit_(), load=load) == 64
    assert value(TC, ldx(W, 0, R1, 16), exit_(), load=load) == 0x0008
    assert value(CGROUP_SKB, ldx(W, 0, R1, 16), exit_(), packet=b"\x45" + bytes(19), load=load) == 0x0008


def test_stores_change_the_context():
    machine = Machine(TC)
    machine.set_packet(PACKET)
    image = prepare(Program((st(W, R1, 8, 77), st(W, R1, 64, 5), mov64_imm(0, 0), exit_())), context=TC)
    for load in RUNNERS.values():
        machine.set_context({"mark": 0, "cb[4]": 0})
        load(image, machine).run()
        assert (machine.context_field("mark"), machine.context_field("cb[4]")) == (77, 5)


@pytest.mark.parametrize(
    ("context", "instruction", "message"),
    [
        (XDP, ldx(DW, 0, R1, 0), "can't use"),
        (XDP, ldx(H, 0, R1, 0), "4 bytes"),
        (XDP, ldx(W, 0, R1, 24), "lie outside"),
        (XDP, ldx(W, 0, R1, -4), "lie outside"),
        (XDP, ldx(W, 0, R1, 2), "can't use|multiples"),
        (XDP, st(W, R1, 12, 1), "read-only"),
        (TC, st(W, R1, 0, 1), "read-only"),
        (TC, st(H, R1, 8, 1), "4 bytes"),
        (TC, ldx(W, 0, R1, 92), "can't use"),
        (TC, ldx(DW, 0, R1, 76), "can't use|4 bytes"),
        (TC, stx(W, R1, R1, 76), "read-only"),
        (SOCKET_FILTER, ldx(W, 0, R1, 76), "can't use"),
        (SOCKET_FILTER, st(W, R1, 8, 1), "read-only"),
        (CGROUP_SKB, ldx(W, 0, R1, 72), "can't use"),
        (XDP, Instruction(STX | ATOMIC | W, R1, 2, 12, ADD), "atomic"),
        (XDP, Instruction(LDX | 0x80 | W, 0, R1, 0), "loaded whole"),
    ],
)  # fmt: skip
def test_what_a_context_does_not_allow_is_refused(context, instruction, message):
    with pytest.raises(InputError, match=message):
        prepare(Program((mov64_imm(2, 0), instruction, mov64_imm(0, 0), exit_())), context=context)


@pytest.mark.parametrize("load", RUNNERS.values(), ids=list(RUNNERS))
@pytest.mark.parametrize("taken", [0, 1])
def test_a_register_that_may_be_something_else_is_looked_at_when_it_runs(load, taken):
    code = (
        mov64_imm(0, taken),
        st(W, R10, -8, 33),
        mov64(R6, R10),
        alu64_imm(ADD, R6, -8),
        jmp_imm(JEQ, R0, 0, 1),
        mov64(R6, R1),
        ldx(W, 2, R6, 0),
        jmp_imm(JEQ, R0, 0, 1),
        ldx(B, 2, 2, 5),
        mov64(0, 2),
        exit_(),
    )
    assert value(XDP, *code, load=load) == (5 if taken else 33)


@pytest.mark.parametrize("load", RUNNERS.values(), ids=list(RUNNERS))
def test_a_context_handed_over_in_a_structure_is_the_context(load):
    code = (
        stx(DW, R10, R1, -16), mov64(R1, R10), alu64_imm(ADD, R1, -16), call_local(1), exit_(),
        ldx(DW, 6, R1, 0), ldx(W, 2, 6, 0), ldx(B, 0, 2, 9), ldx(W, 3, 6, 12), Instruction(0x0F, 0, 3), exit_(),
    )  # fmt: skip
    assert value(XDP, *code, fields={"ingress_ifindex": 100}, load=load) == 109


@pytest.mark.parametrize("load", RUNNERS.values(), ids=list(RUNNERS))
def test_a_spilled_context_survives_a_call_that_gets_an_address_of_the_stack(load):
    code = (
        stx(DW, R10, R1, -8),
        mov64(R1, R10),
        alu64_imm(ADD, R1, -16),
        call_local(4),
        ldx(DW, 6, R10, -8),
        ldx(W, 2, 6, 0),
        ldx(B, 0, 2, 3),
        exit_(),
        st(DW, R1, 0, 7),
        mov64_imm(0, 0),
        exit_(),
    )
    assert value(XDP, *code, load=load) == 3


@pytest.mark.parametrize("load", RUNNERS.values(), ids=list(RUNNERS))
def test_legacy_packet_loads(load):
    def read(*instructions):
        return value(SOCKET_FILTER, mov64(R6, R1), *instructions, exit_(), load=load)

    assert read(Instruction(LD | ABS | H, imm=12)) == 0x0800
    assert read(Instruction(LD | ABS | W, imm=14)) == 0x00010203
    assert read(Instruction(LD | ABS | B, imm=63)) == 49
    assert read(mov64_imm(2, 10), Instruction(LD | IND | H, 0, 2, 0, 2)) == 0x0800
    assert read(Instruction(LD | ABS | B, imm=64), mov64_imm(0, 9)) == 0  # the program ends there
    assert read(Instruction(LD | ABS | W, imm=61), mov64_imm(0, 9)) == 0
    assert read(mov64_imm(2, -1), Instruction(LD | IND | B, 0, 2, 0, 0), mov64_imm(0, 9)) == 0
    assert read(ld_imm64(2, 1 << 40), Instruction(LD | IND | H, 0, 2, 0, 12)) == 0x0800


def test_contexts_have_the_kernels_layout():
    offsets = {f.name: f.offset for f in TC.fields}
    assert (offsets["cb"], offsets["data"], offsets["data_meta"], offsets["tstamp"], offsets["hwtstamp"]) == (
        48,
        76,
        140,
        152,
        184,
    )
    assert {c.name: c.size for c in CONTEXTS.values()} == {
        "xdp": 24,
        "tc": 192,
        "socket": 192,
        "cgroup_skb": 192,
        "memory": 0,
    }


def test_what_a_machine_cannot_hold_is_named():
    machine = Machine(XDP)
    with pytest.raises(InputError, match="3521 bytes"):
        machine.set_packet(bytes(3521))
    with pytest.raises(InputError, match="metadata"):
        machine.set_packet(bytes(64), bytes(5))
    with pytest.raises(InputError, match="no field nonsense"):
        machine.set_context({"nonsense": 1})
    with pytest.raises(InputError, match="room for packets"):
        Machine(XDP, packet_room=1 << 30)
    large = Machine(XDP, packet_room=65535)
    large.set_packet(bytes(65535))
    assert len(large.packet()) == 65535


def test_bare_memory_has_its_length_in_r2():
    assert value(MEMORY, mov64(0, 2), exit_(), packet=bytes(17)) == 17
    assert value(MEMORY, mov64(0, 1), exit_(), packet=b"") == 0
    assert struct.calcsize("<Q") == 8
