"""Loads, stores and atomics, on every runner that needs no privilege."""

import struct

import pytest

from flowshunt.insn import (
    ADD,
    AND,
    ATOMIC,
    CMPXCHG,
    DW,
    FETCH,
    LDX,
    LOAD_ACQ,
    MEM,
    MEMSX,
    OR,
    R0,
    R10,
    ST,
    STORE_REL,
    STX,
    XCHG,
    XOR,
    B,
    H,
    Instruction,
    W,
    exit_,
    ld_imm64,
    ldx,
    mov64,
    mov64_imm,
    stx,
)
from flowshunt_ebpf.native.emulator import emulate
from flowshunt_ebpf.native.image import prepare
from flowshunt_ebpf.native.interpreter import interpret
from flowshunt_ebpf.native.machine import Machine
from flowshunt_ebpf.program import Program
from flowshunt_ebpf.testing.checked_code import host_checked

RUNNERS = {
    "interpret": interpret,
    "host": host_checked,
    "unicorn-x86_64": lambda image, machine: emulate(image, machine, "x86_64"),
    "unicorn-arm64": lambda image, machine: emulate(image, machine, "arm64"),
}
OLD, GIVEN = 0xF0E1D2C3_B4A59687, 0x0F1F2F3F_4F5F6F7F
MASK = {W: 0xFFFFFFFF, DW: 0xFFFFFFFFFFFFFFFF}


@pytest.fixture(params=RUNNERS)
def run(request):
    def run(*instructions, memory=b""):
        machine = Machine()
        machine.set_packet(memory)
        outcome = RUNNERS[request.param](prepare(Program((*instructions, exit_()))), machine).run()
        assert outcome.fault is None
        return outcome.value, machine.packet()

    return run


@pytest.mark.parametrize(
    ("size", "mode", "expected"),
    [(B, MEM, 0x87), (H, MEM, 0x9687), (W, MEM, 0xB4A59687), (DW, MEM, OLD),
     (B, MEMSX, 0xFFFFFFFFFFFFFF87), (H, MEMSX, 0xFFFFFFFFFFFF9687), (W, MEMSX, 0xFFFFFFFFB4A59687)],
)  # fmt: skip
@pytest.mark.parametrize("offset", [0, 1, 255, 256, 4095])
def test_loads(run, size, mode, expected, offset):
    memory = bytes(offset) + struct.pack("<Q", OLD)
    memory = memory[:3512]
    if offset == 4095:  # out of the machine's usual room: by a register
        value, _ = run(
            ld_imm64(2, 3000),
            mov64(3, 1),
            Instruction(0x0F, 3, 2),
            Instruction(0x07, 3, imm=-95),
            Instruction(LDX | mode | size, 0, 3, -2905),
            memory=struct.pack("<Q", OLD) + bytes(3000),
        )
    else:
        value, _ = run(Instruction(LDX | mode | size, 0, 1, offset), memory=memory)
    assert value == expected


@pytest.mark.parametrize("size", [B, H, W, DW])
@pytest.mark.parametrize("register", range(10))
def test_stores_of_any_register(run, size, register):
    """Bytes of rsi, rdi and rbp need a prefix on x86."""
    base = 1 if register != 1 else 2
    count = {B: 1, H: 2, W: 4, DW: 8}[size]
    _, after = run(
        mov64(base, 1),
        ld_imm64(register, GIVEN),
        Instruction(STX | MEM | size, base, register, 3),
        mov64_imm(0, 0),
        memory=bytes(16),
    )
    assert after == bytes(3) + struct.pack("<Q", GIVEN)[:count] + bytes(13 - count)


@pytest.mark.parametrize("size", [B, H, W, DW])
@pytest.mark.parametrize("imm", [0, 1, -1, 0x7F, 0x80, 0x8000, -0x80000000, 0x7FFFFFFF])
def test_stores_of_immediates(run, size, imm):
    count = {B: 1, H: 2, W: 4, DW: 8}[size]
    _, after = run(Instruction(ST | MEM | size, 1, 0, 4, imm), mov64_imm(0, 0), memory=b"\x55" * 16)
    assert after == b"\x55" * 4 + (imm & (1 << 64) - 1).to_bytes(8, "little")[:count] + b"\x55" * (12 - count)


@pytest.mark.parametrize("size", [W, DW])
@pytest.mark.parametrize("fetch", [0, FETCH])
@pytest.mark.parametrize(
    ("op", "meaning"), [(ADD, int.__add__), (OR, int.__or__), (AND, int.__and__), (XOR, int.__xor__)]
)
@pytest.mark.parametrize("register", [0, 2, 3, 4, 6, 9])
def test_atomic_arithmetic(run, size, fetch, op, meaning, register):
    mask = MASK[size]
    memory = struct.pack("<QQ", 0, OLD)
    value, after = run(
        ld_imm64(register, GIVEN),
        Instruction(STX | ATOMIC | size, 1, register, 8, op | fetch),
        mov64(R0, register),
        memory=memory,
    )
    assert value == ((OLD & mask) if fetch else GIVEN)
    new = meaning(OLD, GIVEN) & mask
    assert struct.unpack_from("<Q", after, 8)[0] == OLD & ~mask | new


def test_atomic_on_the_address_in_r0(run):
    """x86's compare-exchange loop needs rax, which is r0."""
    memory = struct.pack("<Q", OLD)
    value, after = run(
        mov64(R0, 1),
        ld_imm64(3, GIVEN),
        Instruction(STX | ATOMIC | DW, R0, 3, 0, XOR | FETCH),
        mov64(R0, 3),
        memory=memory,
    )
    assert (value, struct.unpack("<Q", after)[0]) == (OLD, OLD ^ GIVEN)


@pytest.mark.parametrize("size", [W, DW])
def test_exchange(run, size):
    mask = MASK[size]
    value, after = run(
        ld_imm64(3, GIVEN), Instruction(STX | ATOMIC | size, 1, 3, 0, XCHG), mov64(0, 3), memory=struct.pack("<Q", OLD)
    )
    assert value == OLD & mask
    assert struct.unpack("<Q", after)[0] == OLD & ~mask | GIVEN & mask


@pytest.mark.parametrize("size", [W, DW])
@pytest.mark.parametrize("equal", [True, False])
def test_compare_exchange(run, size, equal):
    mask = MASK[size]
    compared = OLD if equal else OLD ^ 1
    value, after = run(
        ld_imm64(0, compared),
        ld_imm64(3, GIVEN),
        Instruction(STX | ATOMIC | size, 1, 3, 0, CMPXCHG),
        memory=struct.pack("<Q", OLD),
    )
    assert value == OLD & mask
    assert struct.unpack("<Q", after)[0] == (OLD & ~mask | GIVEN & mask if equal else OLD)


@pytest.mark.parametrize("size", [B, H, W, DW])
def test_ordered_load_and_store(run, size):
    count = {B: 1, H: 2, W: 4, DW: 8}[size]
    mask = (1 << 8 * count) - 1
    value, after = run(
        ld_imm64(3, GIVEN),
        Instruction(STX | ATOMIC | size, 1, 3, 8, STORE_REL),
        Instruction(STX | ATOMIC | size, 0, 1, 0, LOAD_ACQ),
        memory=struct.pack("<QQ", OLD, 0),
    )
    assert value == OLD & mask
    assert struct.unpack("<QQ", after) == (OLD, GIVEN & mask)


@pytest.mark.parametrize("offset", [-8, -256, -264, -512])
def test_stack(run, offset):
    value, _ = run(ld_imm64(3, GIVEN), stx(DW, R10, 3, offset), ldx(DW, R0, R10, offset))
    assert value == GIVEN
