"""The semantics of eBPF that proofs rest on give what the interpreter does."""

import random

import pytest

from flowshunt.insn import (
    ALU,
    ALU64,
    DIV,
    DW,
    END,
    JMP,
    JMP32,
    LDX,
    MEM,
    MEMSX,
    MOD,
    MOV,
    NEG,
    ST,
    STX,
    B,
    H,
    Instruction,
    W,
    X,
    alu64,
    alu64_imm,
    atomic,
    call,
    check,
    exit_,
    ja,
    ld_abs,
    ld_imm64,
    may_goto,
    mov64,
    mov64_imm,
)
from flowshunt.insn.opcodes import ADD, ALU_NAMES, CONDITIONS, XOR
from flowshunt_ebpf.contexts.layout import MEMORY
from flowshunt_ebpf.kops.validation.crosscheck import run_concretely
from flowshunt_ebpf.kops.validation.ebpf_semantics import REGISTERS, run_ebpf, straight_end
from flowshunt_ebpf.kops.validation.forward import MEMORY_KEY, NotModelledError, initial
from flowshunt_ebpf.kops.validation.processors import BUFFER_BYTES
from flowshunt_ebpf.kops.validation.term import Valuation
from flowshunt_ebpf.kops.validation.terms import Terms
from flowshunt_ebpf.native.interpreter import interpret
from flowshunt_ebpf.native.workbench import Workbench
from flowshunt_ebpf.program import Program

EDGES = (0, 1, 2, 31, 32, 63, 64, 0x7F, 0x80, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 1 << 63, (1 << 64) - 1, (1 << 63) - 1)
BUFFER = 0x7000_0000


def some(chosen, left):
    """A random valid instruction; `left`: how many follow it."""
    while True:
        dst, src = chosen.randrange(10), chosen.randrange(10)
        imm = chosen.choice((0, 1, -1, 7, 31, 255, -128, 0x7FFFFFFF, -(1 << 31), chosen.getrandbits(31)))
        kind = chosen.random()
        if kind < 0.6:
            op = chosen.choice(list(ALU_NAMES))
            opcode = chosen.choice((ALU, ALU64)) | op | chosen.choice((0, X))
            offset = chosen.choice((0, 0, 8, 16, 32)) if op == MOV else chosen.choice((0, 1)) if op in (DIV, MOD) else 0
            width = chosen.choice((16, 32, 64))
            by_register = bool(opcode & X) and op not in (END, NEG)
            i = Instruction(
                opcode,
                dst,
                src if by_register else 0,
                offset,
                width if op == END else 0 if by_register or op == NEG else imm,
            )
        elif kind < 0.75 and left:
            opcode = chosen.choice((JMP, JMP32)) | chosen.choice(sorted(CONDITIONS)) | chosen.choice((0, X))
            by_register = bool(opcode & X)
            i = Instruction(
                opcode, dst, src if by_register else 0, chosen.randrange(left + 1), 0 if by_register else imm
            )
        elif kind < 0.78 and left:
            i = ja(chosen.randrange(left + 1))
        else:
            size = chosen.choice((B, H, W, DW))
            offset = -chosen.randrange(8, 60)
            i = chosen.choice(
                (
                    Instruction(LDX | MEM | size, dst, 10, offset),
                    Instruction(LDX | MEMSX | size, dst, 10, offset),
                    Instruction(STX | MEM | size, 10, src, offset),
                    Instruction(ST | MEM | size, 10, 0, offset, imm),
                )
            )
        if check(i) is None:
            return i


def body(chosen, length):
    return [some(chosen, length - 1 - n) for n in range(length)]


def test_random_code_gives_what_the_interpreter_does():
    chosen = random.Random(21)
    for _ in range(250):
        values = [chosen.choice(EDGES) if chosen.random() < 0.5 else chosen.getrandbits(64) for _ in range(10)]
        clear = [Instruction(ST | MEM | DW, 10, 0, -8 * n, 0) for n in range(1, 10)]
        start = [ld_imm64(n, value) for n, value in enumerate(values)]
        mixed = [i for n in range(1, 10) for i in (alu64_imm(0x20, 0, 31), alu64(XOR, 0, n))]
        folded = [
            i
            for n in range(1, 9)
            for i in (Instruction(LDX | MEM | DW, 1, 10, -8 * n), alu64_imm(0x20, 0, 31), alu64(ADD, 0, 1))
        ]
        code = [*clear, *start, *body(chosen, chosen.randrange(1, 14)), *mixed, *folded]
        bench = Workbench(Program((*code, exit_()), name="random"), context=MEMORY)
        outcome = interpret(bench.image, bench.machine).run()
        assert outcome.fault is None
        terms = Terms()
        after, _ = run_ebpf(terms, initial(terms, dict.fromkeys(REGISTERS, 64)), code)
        assert Valuation({"r10": 1 << 40}, lambda address: 0).value(after["r0"]) == outcome.value


def test_random_code_gives_what_the_cross_check_computes():
    """In every register and in memory, from any state."""
    chosen = random.Random(22)
    for _ in range(250):
        code = body(chosen, chosen.randrange(1, 14))
        terms = Terms()
        after, _ = run_ebpf(terms, initial(terms, dict.fromkeys(REGISTERS, 64)), code)
        for _ in range(4):
            values = [chosen.choice(EDGES) if chosen.random() < 0.5 else chosen.getrandbits(64) for _ in range(10)]
            values.append(BUFFER + 200)
            content = chosen.randbytes(BUFFER_BYTES)
            registers, memory = list(values), bytearray(content)
            run_concretely(code, registers, memory, BUFFER)
            valuation = Valuation(
                dict(zip(REGISTERS, values, strict=True)), lambda at, content=content: content[at - BUFFER]
            )
            assert [valuation.value(after[name]) for name in REGISTERS] == registers, code
            written = bytearray(content)
            for address, byte in valuation.written(after[MEMORY_KEY]).items():
                written[address - BUFFER] = byte
            assert written == memory


@pytest.mark.parametrize(
    "code",
    [
        [call(1)],
        [exit_()],
        [atomic(DW, ADD, 1, 2, 0)],
        [ld_abs(W, 4)],
        [may_goto(0)],
        [ja(-1)],
        [ja(2)],
        [ja(1), ld_imm64(1, 5)],
        [Instruction(0xFF)],
        [Instruction(ALU64 | MOV | X, 1, 2, 1, 1)],
    ],
)
def test_what_has_no_semantics_is_refused(code):
    terms = Terms()
    with pytest.raises(NotModelledError):
        run_ebpf(terms, initial(terms, dict.fromkeys(REGISTERS, 64)), code)


def test_context_goes_back_to_the_last_instruction_without_semantics():
    plain = (mov64_imm(1, 0), mov64(2, 1))
    assert straight_end([mov64_imm(3, 1), call(5), *plain]) == plain
    assert straight_end([ja(0), *plain]) == plain
    assert straight_end([atomic(DW, ADD, 1, 2, 0), *plain]) == plain
    assert straight_end(plain) == plain
    assert straight_end([*plain, exit_()]) == ()
