"""What proofs say of memory: overlaps, assumptions, and bytes that nobody may touch."""

import attrs
import pytest

from flowshunt.insn import (
    ADD,
    AND,
    DW,
    MUL,
    RSH,
    SUB,
    B,
    W,
    alu64,
    alu64_imm,
    jmp_imm,
    ld_imm64,
    ldx,
    mov64,
    mov64_imm,
    st,
    stx,
)
from flowshunt.insn.opcodes import JEQ
from flowshunt.operation import Disjoint
from flowshunt_ebpf.kops.validation import Proof, Prover, Refusal, prove_site
from flowshunt_ebpf.kops.validation.decide import decide
from flowshunt_ebpf.kops.validation.forward import NotModelledError
from flowshunt_ebpf.kops.validation.obligations import Emit, decode, emit_obligation
from flowshunt_ebpf.native.assembler import assemble

NOBODY = Prover(None)


def judged(architecture, sequence, text, *, clobbers=0, disjoint=(), timeout=20):
    """Whether code (r0 is rax, r1 rdi, r2 rsi) does what a sequence does."""
    emit = Emit(architecture, tuple(sequence), decode(architecture, assemble(architecture, text)), clobbers, disjoint)
    return decide("emit", b"", lambda asked, plan: emit_obligation(emit, asked, plan), timeout=timeout)


def copied(size):
    """From r1 to r2, 8 bytes at a time through r0."""
    return [i for at in range(0, size, 8) for i in (ldx(DW, 0, 1, at), stx(DW, 2, 0, at))]


def wide(size):
    return [f"movdqu xmm{at // 16 % 8}, [rdi+{at}]\nmovdqu [rsi+{at}], xmm{at // 16 % 8}" for at in range(0, size, 16)]


def narrow(size):
    return [f"mov r11, [rdi+{at}]\nmov [rsi+{at}], r11" for at in range(0, size, 8)]


def guarded(size, bound):
    """16 bytes at a time where the ranges lie `bound` apart either way, else 8 at a time in the sequence's order."""
    tests = [f"mov r11, {a}\nsub r11, {b}\ncmp r11, {bound}\njb slow" for a, b in (("rsi", "rdi"), ("rdi", "rsi"))]
    return "\n".join([*tests, *wide(size), "jmp done", "slow:", *narrow(size), "done:"])


@pytest.mark.parametrize("size", [16, 48, 128])
def test_wide_moves_differ_where_ranges_overlap_and_are_proved_where_they_may_not(size):
    text = "\n".join(wide(size))
    refused = judged("x86_64", copied(size), text, clobbers=1)
    assert isinstance(refused, Refusal) and "the byte at" in refused.reason
    distance = (refused.counterexample["r2"] - refused.counterexample["r1"]) % 2**64
    assert distance < size or 2**64 - distance < size, "the counterexample is one in which they overlap"
    assert isinstance(judged("x86_64", copied(size), text, clobbers=1, disjoint=(Disjoint(1, 0, 2, 0, size),)), Proof)


def test_an_assumption_about_a_shorter_range_is_not_enough():
    text = "\n".join(wide(48))
    for too_little in (Disjoint(1, 0, 2, 0, 8), Disjoint(1, 24, 2, 0, 24), Disjoint(1, 0, 2, 40, 48)):
        assert isinstance(judged("x86_64", copied(48), text, clobbers=1, disjoint=(too_little,), timeout=3), Refusal)


def test_moves_in_the_same_order_are_equal_whatever_overlaps():
    assert isinstance(judged("x86_64", copied(64), "\n".join(narrow(64)), clobbers=1), Proof)


@pytest.mark.parametrize("size", [16, 64])
def test_a_test_at_run_time_makes_an_assumption_unnecessary(size):
    assert isinstance(judged("x86_64", copied(size), guarded(size, size), clobbers=1), Proof)


@pytest.mark.parametrize("bound", [1, 8, 15])
def test_a_test_at_run_time_that_lets_overlaps_through_is_refused(bound):
    assert isinstance(judged("x86_64", copied(32), guarded(32, bound), clobbers=1, timeout=3), Refusal)


def test_string_moves_copy_byte_by_byte():
    save = "mov r9, rdi\nmov r10, rsi\nmov r11, rcx\nxchg rdi, rsi\nmov ecx, 32\nrep movsb\n"
    save += "mov rdi, r9\nmov rsi, r10\nmov rcx, r11"
    assert isinstance(judged("x86_64", copied(32), save, clobbers=1), Refusal), "with ranges that overlap it is not"
    apart = (Disjoint(1, 0, 2, 0, 32),)
    assert isinstance(judged("x86_64", copied(32), save, clobbers=1, disjoint=apart), Proof)
    assert isinstance(judged("x86_64", copied(32), save.replace("32", "31"), clobbers=1, disjoint=apart), Refusal)
    assert isinstance(
        judged("x86_64", copied(32), save.replace("mov rcx, r11", ""), clobbers=1, disjoint=apart), Refusal
    )


LOAD = (ldx(W, 0, 1, 8),)


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("mov eax, [rdi+8]", True),
        ("movzx eax, byte ptr [rdi+8]\nmov eax, [rdi+8]", True),
        ("mov r11, [rdi+8]\nmov eax, r11d", False),  # 4 bytes more, which may lie on a page that is not there
        ("mov r11, [rdi+4]\nshr r11, 32\nmov eax, r11d", False),
        ("mov eax, [rdi+8]\nmov [rdi+8], eax", False),  # the same value, but the memory may be read-only
        ("mov eax, [rdi+8]\nprefetcht0 [rdi+4096]", True),
        ("mov eax, [rdi+8]\nmov r11, [rsp]", False),
        ("mov eax, [rdi+8]\nmov [rsp-8], rax", False),
    ],
)
def test_only_bytes_that_the_proof_sequence_touches_may_be_touched(text, holds):
    assert isinstance(judged("x86_64", LOAD, text), Proof if holds else Refusal)


def test_a_load_on_one_way_alone_may_not_be_done_on_both():
    """if r2 == 0 skip the load; the address may be wrong there."""
    sequence = (mov64_imm(0, 0), jmp_imm(JEQ, 2, 0, 1), ldx(DW, 0, 1, 0))
    branch = "xor eax, eax\ntest rsi, rsi\nje over\nmov rax, [rdi]\nover:"
    always = "mov r11, [rdi]\nxor eax, eax\ntest rsi, rsi\ncmovne rax, r11"
    assert isinstance(judged("x86_64", sequence, branch), Proof)
    refused = judged("x86_64", sequence, always)
    assert isinstance(refused, Refusal) and "reads the byte" in refused.reason
    assert refused.counterexample["r2"] == 0


def test_a_store_on_one_way_alone_is_compared_on_both():
    sequence = (jmp_imm(JEQ, 2, 0, 1), st(DW, 1, 0, 7))
    branch = "test rsi, rsi\n{} over\nmov qword ptr [rdi], 7\nover:"
    assert isinstance(judged("x86_64", sequence, branch.format("je")), Proof)
    assert isinstance(judged("x86_64", sequence, branch.format("jne")), Refusal)
    assert isinstance(judged("x86_64", sequence, "mov qword ptr [rdi], 7"), Refusal)


def test_what_a_code_generator_relies_on_must_stay():
    for text in ("mov r12, rax", "add rsp, 8", "mov rbx, rdi"):
        assert isinstance(judged("x86_64", (mov64_imm(0, 1),), f"mov eax, 1\n{text}"), Refusal)
    for text in ("mov x28, x0", "add sp, sp, #16", "mov x5, x0", "mov x18, x0", "mov x30, x0", "fmov d9, x0"):
        assert isinstance(judged("arm64", (mov64_imm(0, 1),), f"mov x7, #1\n{text}"), Refusal)
    for text in ("mov r11, rax", "mov r9, 5", "pxor xmm3, xmm3"):
        assert isinstance(judged("x86_64", (mov64_imm(0, 1),), f"mov eax, 1\n{text}"), Proof)


def test_too_many_ways_through_the_code_are_refused():
    text = "\n".join(f"test rsi, {1 << n}\nje l{n}\nmov byte ptr [rdi], 7\nl{n}:" for n in range(7))
    refused = judged("x86_64", (st(B, 1, 0, 7),), text)
    assert isinstance(refused, Refusal) and "ways through" in refused.reason


def test_code_without_semantics_raises_and_is_no_proof():
    with pytest.raises(NotModelledError, match="not modelled"):
        judged("x86_64", (mov64_imm(0, 1),), "mov eax, 1\ncpuid")


def test_a_site_may_use_what_always_runs_before_it():
    original, rewritten = (stx(DW, 10, 1, -8),), (st(DW, 10, -8, 0),)
    assert isinstance(prove_site(original, rewritten, 0, prover=NOBODY), Refusal)
    assert isinstance(prove_site(original, rewritten, 0, context=(mov64_imm(1, 0),), prover=NOBODY), Proof)
    assert isinstance(prove_site(original, rewritten, 0, context=(mov64_imm(1, 1),), prover=NOBODY), Refusal)


def test_a_site_with_known_ranges_is_proved_for_those_alone():
    original = (ldx(DW, 3, 1, 0), ldx(DW, 4, 1, 8), stx(DW, 2, 3, 0), stx(DW, 2, 4, 8))
    rewritten = (ldx(DW, 3, 1, 0), stx(DW, 2, 3, 0), ldx(DW, 3, 1, 8), stx(DW, 2, 3, 8))
    assert isinstance(prove_site(original, rewritten, 0, prover=NOBODY), Refusal)
    apart = (Disjoint(1, 0, 2, 0, 16),)
    proof = prove_site(original, rewritten, 0, disjoint=apart, prover=NOBODY)
    assert isinstance(proof, Proof) and proof.disjoint == apart
    assert isinstance(
        prove_site(original, rewritten, 0, disjoint=(attrs.evolve(apart[0], size=8),), prover=NOBODY), Refusal
    )


def test_a_solver_out_of_time_is_a_refusal():
    """Bits counted by sums of neighbours and a product: equal to popcnt, and not to be found so in a moment."""
    count = (
        ld_imm64(3, 0x5555555555555555),
        mov64(2, 1),
        alu64_imm(RSH, 2, 1),
        alu64(AND, 2, 3),
        alu64(SUB, 1, 2),
        ld_imm64(3, 0x3333333333333333),
        mov64(2, 1),
        alu64(AND, 1, 3),
        alu64_imm(RSH, 2, 2),
        alu64(AND, 2, 3),
        alu64(ADD, 1, 2),
        mov64(2, 1),
        alu64_imm(RSH, 2, 4),
        alu64(ADD, 1, 2),
        ld_imm64(3, 0x0F0F0F0F0F0F0F0F),
        alu64(AND, 1, 3),
        ld_imm64(3, 0x0101010101010101),
        alu64(MUL, 1, 3),
        alu64_imm(RSH, 1, 56),
    )
    emit = Emit("x86_64", count, decode("x86_64", assemble("x86_64", "popcnt rdi, rdi")), 0b1100)
    refused = decide("emit", b"", lambda asked, plan: emit_obligation(emit, asked, plan), timeout=0.2)
    assert isinstance(refused, Refusal) and "in time" in refused.reason
