"""Every instruction on the values at which it changes its mind, on every runner that needs no privilege."""

import struct

import pytest

from flowshunt.insn import (
    ADD,
    ALU,
    ALU64,
    AND,
    ARSH,
    DIV,
    DW,
    END,
    JEQ,
    JGE,
    JGT,
    JLE,
    JLT,
    JMP,
    JMP32,
    JNE,
    JSET,
    JSGE,
    JSGT,
    JSLE,
    JSLT,
    LSH,
    MOD,
    MOV,
    MUL,
    NEG,
    OR,
    RSH,
    SUB,
    XOR,
    Instruction,
    K,
    X,
    exit_,
    ldx,
    mov64,
    mov64_imm,
    stx,
)
from flowshunt_ebpf.native.emulator import emulate
from flowshunt_ebpf.native.host import host
from flowshunt_ebpf.native.image import prepare
from flowshunt_ebpf.native.interpreter import interpret
from flowshunt_ebpf.native.machine import Machine
from flowshunt_ebpf.program import Program
from flowshunt_ebpf.testing.checked_code import vouched
from flowshunt_ebpf.testing.random_program import EDGES

RUNNERS = {
    "interpret": lambda image, machine, verdict: interpret(image, machine),
    "host": host,
    "unicorn-x86_64": lambda image, machine, verdict: emulate(image, machine, "x86_64", verdict),
    "unicorn-arm64": lambda image, machine, verdict: emulate(image, machine, "arm64", verdict),
}

MIN64, MAX64, ONES = 1 << 63, (1 << 63) - 1, (1 << 64) - 1
MIN32, ONES32 = 1 << 31, (1 << 32) - 1

# instruction on r2 (and r3), r2, r3, what r2 is afterwards; by hand from RFC 9669
VECTORS = [
    (Instruction(ALU64 | ADD | X, 2, 3), ONES, 1, 0),
    (Instruction(ALU | ADD | X, 2, 3), 0x1_FFFFFFFF, 1, 0),
    (Instruction(ALU64 | ADD | K, 2, imm=-1), 0, 0, ONES),
    (Instruction(ALU | ADD | K, 2, imm=-1), 0, 0, ONES32),
    (Instruction(ALU64 | SUB | X, 2, 3), 0, 1, ONES),
    (Instruction(ALU | SUB | X, 2, 3), 0x5_00000000, 1, ONES32),
    (Instruction(ALU64 | MUL | X, 2, 3), MIN64, ONES, MIN64),
    (Instruction(ALU | MUL | X, 2, 3), MIN32, ONES32, MIN32),
    (Instruction(ALU64 | MUL | K, 2, imm=-2), 3, 0, ONES - 5),
    (Instruction(ALU64 | DIV | X, 2, 3), 7, 0, 0),
    (Instruction(ALU | DIV | X, 2, 3), 7, 0x1_00000000, 0),
    (Instruction(ALU64 | DIV | X, 2, 3), ONES, 2, MAX64),
    (Instruction(ALU64 | DIV | K, 2, imm=-1), ONES, 0, 1),
    (Instruction(ALU64 | DIV | X, 2, 3, 1), MIN64, ONES, MIN64),
    (Instruction(ALU | DIV | X, 2, 3, 1), MIN32, ONES32, MIN32),
    (Instruction(ALU64 | DIV | X, 2, 3, 1), ONES - 6, 2, ONES - 2),
    (Instruction(ALU | DIV | K, 2, offset=1, imm=-1), MIN32, 0, MIN32),
    (Instruction(ALU64 | DIV | X, 2, 3, 1), 5, 0, 0),
    (Instruction(ALU64 | MOD | X, 2, 3), 7, 0, 7),
    (Instruction(ALU | MOD | X, 2, 3), 0x9_00000007, 0, 7),
    (Instruction(ALU64 | MOD | X, 2, 3, 1), MIN64, ONES, 0),
    (Instruction(ALU | MOD | X, 2, 3, 1), MIN32, ONES32, 0),
    (Instruction(ALU64 | MOD | X, 2, 3, 1), ONES - 6, 4, ONES - 2),
    (Instruction(ALU64 | MOD | K, 2, offset=1, imm=-4), 7, 0, 3),
    (Instruction(ALU64 | OR | X, 2, 3), 0xF0, 0x0F, 0xFF),
    (Instruction(ALU64 | AND | K, 2, imm=-16), ONES, 0, ONES - 15),
    (Instruction(ALU | XOR | K, 2, imm=-1), 0xFFFFFFFF_00000000, 0, ONES32),
    (Instruction(ALU64 | LSH | X, 2, 3), 1, 64, 1),
    (Instruction(ALU64 | LSH | X, 2, 3), 1, 63, MIN64),
    (Instruction(ALU | LSH | X, 2, 3), 0xA_00000001, 32, 1),
    (Instruction(ALU64 | RSH | X, 2, 3), MIN64, 127, 1),
    (Instruction(ALU | RSH | K, 2, imm=0), 0x1_80000000, 0, MIN32),
    (Instruction(ALU64 | ARSH | X, 2, 3), MIN64, 63, ONES),
    (Instruction(ALU | ARSH | X, 2, 3), MIN32, 31, ONES32),
    (Instruction(ALU64 | NEG, 2), MIN64, 0, MIN64),
    (Instruction(ALU | NEG, 2), MIN32, 0, MIN32),
    (Instruction(ALU64 | MOV | K, 2, imm=-1), 0, 0, ONES),
    (Instruction(ALU | MOV | K, 2, imm=-1), 0, 0, ONES32),
    (Instruction(ALU64 | MOV | X, 2, 3, 8), 0, 0x80, ONES - 127),
    (Instruction(ALU64 | MOV | X, 2, 3, 16), 0, 0x17FFF, 0x7FFF),
    (Instruction(ALU64 | MOV | X, 2, 3, 32), 0, MIN32, 0xFFFFFFFF80000000),
    (Instruction(ALU | MOV | X, 2, 3, 8), 0, 0xFF, ONES32),
    (Instruction(ALU | MOV | X, 2, 3), 0, ONES, ONES32),
    (Instruction(ALU | END | K, 2, imm=16), 0x1122334455667788, 0, 0x7788),
    (Instruction(ALU | END | X, 2, imm=16), 0x1122334455667788, 0, 0x8877),
    (Instruction(ALU | END | X, 2, imm=32), 0x1122334455667788, 0, 0x88776655),
    (Instruction(ALU64 | END | K, 2, imm=64), 0x1122334455667788, 0, 0x8877665544332211),
]  # fmt: skip

BINARY = (ADD, SUB, MUL, DIV, OR, AND, LSH, RSH, MOD, XOR, ARSH, MOV)
CONDITIONS = (JEQ, JGT, JGE, JSET, JNE, JSGT, JSGE, JLT, JLE, JSLT, JSLE)


def outcome(body, memory, runner, *, verified=True):
    program = Program((*body, mov64_imm(0, 0), exit_()))
    machine = Machine(packet_room=1 << 16)
    image = prepare(program)
    machine.set_packet(memory)
    verdict = vouched(image) if verified else None
    result = RUNNERS[runner](image, machine, verdict).run()
    assert result.fault is None
    return machine.packet()


@pytest.mark.parametrize("runner", RUNNERS)
def test_vectors_by_hand(runner):
    memory = b"".join(struct.pack("<QQ", left, right) for _, left, right, _ in VECTORS)
    body = [mov64(9, 1)]
    for number, (instruction, *_) in enumerate(VECTORS):
        body += [ldx(DW, 2, 9, 16 * number), ldx(DW, 3, 9, 16 * number + 8), instruction, stx(DW, 9, 2, 16 * number)]
    after = outcome(body, memory, runner)
    for number, (instruction, left, right, expected) in enumerate(VECTORS):
        assert struct.unpack_from("<Q", after, 16 * number)[0] == expected, (instruction, hex(left), hex(right))


def operations():
    for cls in (ALU64, ALU):
        for op in BINARY:
            for offset in (0, 1) if op in (DIV, MOD) else (0,):
                yield (
                    f"{'alu64' if cls == ALU64 else 'alu32'}-{op:#x}-{offset}",
                    Instruction(cls | op | X, 2, 3, offset),
                )
        yield f"neg-{cls}", Instruction(cls | NEG, 2)
        for bits in (8, 16, 32) if cls == ALU64 else (8, 16):
            yield f"movsx-{cls}-{bits}", Instruction(cls | MOV | X, 2, 3, bits)
        for bits in (16, 32, 64):
            yield f"end-{cls}-{bits}", Instruction(cls | END | K, 2, imm=bits)
            if cls == ALU:
                yield f"be-{bits}", Instruction(cls | END | X, 2, imm=bits)


@pytest.mark.parametrize(("name", "instruction"), list(operations()), ids=[name for name, _ in operations()])
def test_all_pairs_of_edge_values_agree(name, instruction):
    memory = b"".join(struct.pack("<QQ", left, right) for left in EDGES for right in EDGES)
    body = [mov64(9, 1)]
    for number in range(len(EDGES) ** 2):
        at = 16 * number
        body += [ldx(DW, 2, 9, at), ldx(DW, 3, 9, at + 8), instruction, stx(DW, 9, 2, at)]
    expected = outcome(body, memory, "interpret")
    for runner in list(RUNNERS)[1:]:
        assert outcome(body, memory, runner) == expected, runner


@pytest.mark.parametrize("dst", range(10))
@pytest.mark.parametrize("src", range(10))
def test_division_and_shifts_in_any_registers(dst, src):
    """The registers that x86 divides in and shifts by are eBPF's r0, r3 and r4."""
    places = (-8, -16, -24, -32, -40, -48)
    body = []
    for op, offset, place in zip((DIV, DIV, MOD, MOD, LSH, ARSH), (0, 1, 0, 1, 0, 0), places, strict=True):
        body += [mov64_imm(r, 1000 + r) for r in range(10)]
        body += [mov64_imm(dst, -1234567), mov64_imm(src, 7) if src != dst else mov64_imm(src, 9)]
        body += [Instruction(ALU64 | op | X, dst, src, offset), Instruction(ALU | op | X, dst, src, offset)]
        body += [stx(DW, 10, dst, place)]
        body += [Instruction(ALU64 | XOR | X, dst, r) for r in range(10) if r != dst]
        body += [stx(DW, 10, dst, place - 48)]
    program = Program((*body, mov64_imm(0, 0), exit_()))
    image = prepare(program)
    machine = Machine()
    verdict = vouched(image)
    stacks = set()
    for load in RUNNERS.values():
        assert load(image, machine, verdict).run().fault is None
        stacks.add(bytes(machine.stack))
    assert len(stacks) == 1


@pytest.mark.parametrize("cls", [JMP, JMP32])
@pytest.mark.parametrize("op", CONDITIONS)
def test_all_conditions_on_edge_values_agree(cls, op):
    pairs = [(left, right) for left in EDGES for right in EDGES]
    memory = b"".join(struct.pack("<QQ", *pair) for pair in pairs)
    body = [mov64(9, 1)]
    for number in range(len(pairs)):
        at = 16 * number
        body += [ldx(DW, 2, 9, at), ldx(DW, 3, 9, at + 8), mov64_imm(4, 1), Instruction(cls | op | X, 2, 3, 1)]
        body += [mov64_imm(4, 0), stx(DW, 9, 4, at)]
    expected = outcome(body, memory, "interpret")
    for runner in list(RUNNERS)[1:]:
        assert outcome(body, memory, runner) == expected, runner


@pytest.mark.parametrize(
    "imm",
    [0, 1, -1, 2, 0x7FF, 0x800, -0x7FF, -0x800, 0xFFF, 0x1000, -0x1000, 0x7FFFFFFF, -0x80000000, 0xFF00, 0x55555555],
)
def test_immediates_of_every_shape_agree(imm):
    memory = b"".join(struct.pack("<Q", value) for value in EDGES)
    body = [mov64(9, 1), mov64_imm(5, 0)]
    for number in range(len(EDGES)):
        body.append(ldx(DW, 2, 9, 8 * number))
        for op in (ADD, SUB, MUL, OR, AND, XOR):
            body += [
                Instruction(ALU64 | op | K, 2, imm=imm),
                Instruction(ALU | ADD | X, 5, 2),
                Instruction(ALU | op | K, 2, imm=imm),
            ]
        for op in CONDITIONS:
            body += [Instruction(JMP | op | K, 2, 0, 1, imm), Instruction(ALU64 | MUL | K, 5, imm=3)]
            body += [Instruction(JMP32 | op | K, 2, 0, 1, imm), Instruction(ALU64 | ADD | K, 5, imm=1)]
        body += [Instruction(ALU64 | ADD | X, 2, 5), stx(DW, 9, 2, 8 * number)]
    expected = outcome(body, memory, "interpret")
    for runner in list(RUNNERS)[1:]:
        assert outcome(body, memory, runner) == expected, runner
