"""The fragment check refuses what could reach outside its memory or not end; what passes computes as eBPF says."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowshunt.action import DESCRIPTOR, HOST, STATE_BYTES
from flowshunt.errors import ContractError
from flowshunt.fragments import check_fragment, compile_fragment, constant_outcome, run_fragment
from flowshunt.insn import (
    ADD,
    ALU,
    ALU64,
    AND,
    ARSH,
    DIV,
    DW,
    JEQ,
    JGE,
    JGT,
    JLE,
    JLT,
    JNE,
    JSET,
    JSGE,
    JSGT,
    JSLE,
    JSLT,
    LSH,
    MOD,
    MUL,
    NEG,
    OR,
    RSH,
    SUB,
    XOR,
    B,
    H,
    Instruction,
    W,
    alu64_imm,
    call,
    exit_,
    ja,
    jmp,
    jmp32,
    jmp_imm,
    ld_imm64,
    ldx,
    mov64,
    mov64_imm,
    stx,
)
from flowshunt.insn import st as store

STATE = 2
SET_R0 = mov64_imm(0, HOST)

REFUSED = {
    "empty": (),
    "no disposition": (mov64_imm(3, 1),),
    "one way without a disposition": (ldx(W, 3, 1, 8), jmp_imm(JEQ, 3, 0, 1), SET_R0),
    "call": (SET_R0, call(1)),
    "exit": (SET_R0, exit_()),
    "backward jump": (SET_R0, ja(-1)),
    "jump into a 64-bit load": (SET_R0, ja(1), ld_imm64(3, 5)),
    "jump past the end": (SET_R0, ja(1)),
    "unreachable": (SET_R0, ja(1), mov64_imm(3, 1), SET_R0),
    "register not set": (mov64(0, 3),),
    "pointer as a number": (mov64(0, 1),),
    "pointer changed": (SET_R0, alu64_imm(ADD, 1, 8)),
    "callee-saved register": (SET_R0, mov64_imm(6, 1)),
    "load before the descriptor": (ldx(W, 0, 1, -4),),
    "load past the descriptor": (ldx(DW, 0, 1, DESCRIPTOR.itemsize - 4),),
    "load past the state": (ldx(DW, 0, STATE, STATE_BYTES - 7),),
    "load through a number": (mov64_imm(3, 0), ldx(W, 0, 3, 0)),
    "store to an input": (SET_R0, store(DW, 1, 0, 0)),
    "store over two fields": (SET_R0, store(W, 1, DESCRIPTOR.fields["tx_port"][1], 0)),
    "map": (ld_imm64(0, 1, 1),),
    "signed division": (SET_R0, Instruction(ALU64 | DIV, 0, 0, 1, 3)),
    "unknown operation": (SET_R0, Instruction(ALU64 | 0xE0, 0)),
    "unknown jump": (SET_R0, Instruction(0x05 | 0xE0, 0)),
    "atomic": (SET_R0, Instruction(0xDB, STATE, 0, 0, 0)),
    "too long": (SET_R0,) * 65,
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    with pytest.raises(ContractError):
        check_fragment(REFUSED[name])


def test_state_belongs_to_the_flow_and_lasts():
    count = (ldx(DW, 3, STATE, 8), alu64_imm(ADD, 3, 1), stx(DW, STATE, 3, 8), mov64(0, 3), alu64_imm(AND, 0, 1))
    states = np.zeros((1, STATE_BYTES), np.uint8)
    seen = [int(run_fragment(count, np.zeros(1, DESCRIPTOR), states)[0]) for _ in range(4)]
    assert seen == [1, 0, 1, 0]
    assert states[0, 8] == 4
    assert constant_outcome(count) is None


MASK = (1 << 64) - 1


def _signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def _expected(op: int, left: int, right: int, bits: int) -> int:
    mask = (1 << bits) - 1
    left, right = left & mask, right & mask
    results = {
        ADD: left + right,
        SUB: left - right,
        MUL: left * right,
        DIV: left // right if right else 0,
        MOD: left % right if right else left,
        OR: left | right,
        AND: left & right,
        XOR: left ^ right,
        LSH: left << (right % bits),
        RSH: left >> (right % bits),
        ARSH: _signed(left, bits) >> (right % bits),
        NEG: -left,
    }
    return results[op] & mask


EDGES = st.sampled_from([0, 1, MASK, 1 << 63, 1 << 31, (1 << 31) - 1, (1 << 32) - 1]) | st.integers(0, MASK)


def _value_of(fragment: tuple[Instruction, ...]) -> int:
    states = np.zeros((1, STATE_BYTES), np.uint8)
    run_fragment((*fragment, stx(DW, STATE, 3, 0), SET_R0), np.zeros(1, DESCRIPTOR), states)
    return int(states[0, :8].view(np.uint64)[0])


@given(
    op=st.sampled_from([ADD, SUB, MUL, DIV, MOD, OR, AND, XOR, LSH, RSH, ARSH, NEG]),
    left=EDGES,
    right=EDGES,
    wide=st.booleans(),
)
def test_arithmetic_is_that_of_ebpf(op, left, right, wide):
    source = 0 if op == NEG else 8
    operation = Instruction((ALU64 if wide else ALU) | op | source, 3, 0 if op == NEG else 4)
    got = _value_of((ld_imm64(3, left), ld_imm64(4, right), operation))
    assert got == _expected(op, left, right, 64 if wide else 32)


CONDITIONS = {
    JEQ: lambda a, b, sa, sb: a == b,
    JNE: lambda a, b, sa, sb: a != b,
    JGT: lambda a, b, sa, sb: a > b,
    JGE: lambda a, b, sa, sb: a >= b,
    JLT: lambda a, b, sa, sb: a < b,
    JLE: lambda a, b, sa, sb: a <= b,
    JSGT: lambda a, b, sa, sb: sa > sb,
    JSGE: lambda a, b, sa, sb: sa >= sb,
    JSLT: lambda a, b, sa, sb: sa < sb,
    JSLE: lambda a, b, sa, sb: sa <= sb,
    JSET: lambda a, b, sa, sb: bool(a & b),
}


@given(op=st.sampled_from(sorted(CONDITIONS)), left=EDGES, right=EDGES, wide=st.booleans())
def test_jumps_are_those_of_ebpf(op, left, right, wide):
    bits = 64 if wide else 32
    mask = (1 << bits) - 1
    taken = CONDITIONS[op](left & mask, right & mask, _signed(left, bits), _signed(right, bits))
    jump = (jmp if wide else jmp32)(op, 4, 5, 1)
    got = _value_of((ld_imm64(4, left), ld_imm64(5, right), mov64_imm(3, 1), jump, mov64_imm(3, 0)))
    assert got == int(taken)


@given(
    st.lists(
        st.builds(
            Instruction,
            opcode=st.integers(0, 255),
            dst=st.integers(0, 15),
            src=st.integers(0, 15),
            offset=st.integers(-4, 60),
            imm=st.integers(-(1 << 31), (1 << 31) - 1),
        ),
        max_size=12,
    )
)
def test_whatever_passes_the_check_changes_only_outputs(instructions):
    fragment = (*instructions, SET_R0)
    try:
        compile_fragment(fragment)
    except ContractError:
        return
    descriptors = np.zeros(1, DESCRIPTOR)
    descriptors["timestamp"] = 7
    before = descriptors.copy()
    run_fragment(fragment, descriptors, np.zeros((1, STATE_BYTES), np.uint8))
    for name in DESCRIPTOR.names:
        if name not in ("tx_port", "host_buffer", "deliver"):
            assert descriptors[name] == before[name]


def test_sizes_of_loads_and_stores():
    states = np.arange(STATE_BYTES, dtype=np.uint8)[None].copy()
    fragment = (
        ldx(B, 3, STATE, 1),
        ldx(H, 4, STATE, 2),
        ldx(W, 5, STATE, 4),
        stx(B, STATE, 3, 16),
        stx(H, STATE, 4, 18),
        stx(W, STATE, 5, 20),
        SET_R0,
    )
    run_fragment(fragment, np.zeros(1, DESCRIPTOR), states)
    assert states[0, 16:24].tolist() == [1, 17, 2, 3, 4, 5, 6, 7]


def test_a_number_compared_across_registers():
    fragment = (ldx(W, 3, 1, 8), mov64_imm(4, 100), mov64_imm(0, 0), jmp(JGT, 3, 4, 1), SET_R0)
    descriptors = np.zeros(2, DESCRIPTOR)
    descriptors["wire"] = (99, 101)
    assert run_fragment(fragment, descriptors, np.zeros((2, STATE_BYTES), np.uint8)).tolist() == [HOST, 0]
