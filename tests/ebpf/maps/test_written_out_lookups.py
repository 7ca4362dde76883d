"""Hash lookups that the x86-64 JIT writes out find what the shared native code finds."""

import struct

import pytest

from flowshunt.insn import (
    ADD,
    DW,
    JEQ,
    LD_IMM64,
    PSEUDO_MAP_IDX,
    R0,
    R10,
    B,
    Instruction,
    alu64_imm,
    call,
    exit_,
    jmp_imm,
    ldx,
    mov64,
    mov64_imm,
    st,
)
from flowshunt_ebpf.contexts.layout import MEMORY
from flowshunt_ebpf.maps.create import create
from flowshunt_ebpf.native.host import architecture, host
from flowshunt_ebpf.native.image import prepare
from flowshunt_ebpf.native.machine import Machine
from flowshunt_ebpf.program import MapDefinition, MapType, Program
from flowshunt_ebpf.testing.checked_code import vouched

pytestmark = pytest.mark.skipif(architecture() != "x86_64", reason="only the x86-64 JIT writes them out")

KINDS = (MapType.HASH, MapType.LRU_HASH, MapType.PERCPU_HASH, MapType.LRU_PERCPU_HASH)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("key_size", [1, 2, 3, 4, 5, 7, 8, 12, 13, 20, 44, 63, 64, 65])
def test_every_key_is_found_and_no_other(kind, key_size):
    definition = MapDefinition("m", kind, key_size, 8, 7)  # few buckets: chains are walked
    m = create(definition, cpus=3)
    machine = Machine(MEMORY, (m,), cpu=2)
    keys = [bytes([n]) * (key_size - 1) + bytes([n + 1]) for n in range(10)]
    for number, key in enumerate(keys[:6]):
        m.update(key, struct.pack("<Q", 100 + number))
    for number, key in enumerate(keys):
        code = [st(B, R10, -72 + at, byte) for at, byte in enumerate(key)]
        code += [
            mov64(2, R10),
            alu64_imm(ADD, 2, -72),
            Instruction(LD_IMM64, 1, PSEUDO_MAP_IDX, 0, 0),
            mov64_imm(8, 5),
            call(1),
        ]
        code += [jmp_imm(JEQ, R0, 0, 1), ldx(DW, R0, R0, 0), exit_()]
        program = Program(tuple(code), maps=(definition,))
        image = prepare(program, (m,))
        loaded = host(image, machine, vouched(image))
        assert loaded.run().value == (100 + number if number < 6 else 0)


def test_a_lookup_in_a_lru_table_counts_as_use():
    definition = MapDefinition("m", MapType.LRU_HASH, 4, 8, 4)
    m = create(definition)
    for number in range(4):
        m.update(struct.pack("<I", number), bytes(8))
    code = (
        st(DW, R10, -8, 2),
        mov64(2, R10),
        alu64_imm(ADD, 2, -8),
        Instruction(LD_IMM64, 1, PSEUDO_MAP_IDX, 0, 0),
        call(1),
        mov64_imm(0, 0),
        exit_(),
    )
    program = Program(code, maps=(definition,))
    image = prepare(program, (m,))
    loaded = host(image, Machine(MEMORY, (m,)), vouched(image))
    for number in range(10, 13):
        loaded.run()
        m.update(struct.pack("<I", number), bytes(8))
    assert m.lookup(struct.pack("<I", 2)) is not None
