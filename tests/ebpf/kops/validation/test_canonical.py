"""Two obligations share a proof only where a bijection of registers makes one of the other."""

import itertools
import random

from flowshunt.host_registers import BY_ARCHITECTURE
from flowshunt.insn import ADD, DW, alu64, ldx, mov64, stx
from flowshunt_ebpf.kops.validation.canonical import renamed_emit, renamed_site
from flowshunt_ebpf.kops.validation.obligations import Emit, Replacement, decode, host_names
from flowshunt_ebpf.kops.validation.x86_64_decode import Place, Register
from flowshunt_ebpf.native.assembler import assemble
from flowshunt_ebpf.program import live_set
from flowshunt_einsn_csel.operation import OPERATION as CSEL
from flowshunt_einsn_rotate.operation import OPERATION as ROTATE


def emit(architecture, text, sequence=(), clobbers=0):
    return Emit(architecture, tuple(sequence), decode(architecture, assemble(architecture, text)), clobbers)


def x86(text, **other):
    return renamed_emit(emit("x86_64", text, **other))


def arm(text, **other):
    return renamed_emit(emit("arm64", text, **other))


def test_other_registers_are_the_same_obligation():
    assert x86("rol rdi, 13") == x86("rol r15, 13")
    assert x86("mov rdi, [rsi+rdx*8+4]") == x86("mov r15, [rbx+rbp*8+4]")
    assert arm("add x0, x1, x2") == arm("add x19, x20, x7")
    assert x86("mov rdi, rsi", sequence=[mov64(1, 2)]) == x86("mov rsi, rbx", sequence=[mov64(2, 6)])


def test_another_alias_count_width_or_scratch_register_is_another_obligation():
    different = [
        x86(text)
        for text in (
            "rol rdi, 13",
            "rol rdi, 14",
            "rol edi, 13",
            "ror rdi, 13",
            "mov rdi, rsi",
            "mov rdi, rdi",
            "mov rdi, r11",
            "mov r11, rdi",
            "mov r10, rdi",
            "mov r12, rdi",
            "mov rdi, [rsi+8]",
            "mov rdi, [rsi+9]",
            "mov rdi, [rdi+8]",
            "mov edi, [rsi+8]",
            "movdqu xmm0, [rsi]",
            "movdqu xmm1, [rsi]",
            "mov rdi, [rsi+rdx]",
            "mov rdi, [rsi+rdx*2]",
        )
    ]
    assert len(set(different)) == len(different)
    assert x86("mov rdi, rsi", sequence=[mov64(1, 2)]) != x86("mov rdi, rsi", sequence=[mov64(2, 1)])
    assert x86("mov rdi, rsi", clobbers=2) != x86("mov rdi, rsi", clobbers=4)


def test_a_register_that_an_instruction_names_implicitly_is_not_renamed_away():
    assert x86("shl rdi, cl") != x86("shlx rdi, rdi, rcx")
    swapped = "mov {0}, {1}\nshl {1}, cl"
    assert x86(swapped.format("rdi", "rcx")) != x86(swapped.format("rcx", "rdi"))
    assert x86("mov ecx, 8\nrep movsb", sequence=[ldx(DW, 0, 2, 0), stx(DW, 1, 0, 0)]) != x86(
        "mov ecx, 8\nrep movsb", sequence=[ldx(DW, 0, 1, 0), stx(DW, 2, 0, 0)]
    )


def test_numbers_of_vector_registers_and_of_prefetches_are_not_registers():
    assert arm("prfm pldl1keep, [x1]") == arm("prfm pldl1keep, [x2]")
    assert arm("prfm pldl1keep, [x1]") != arm("prfm pldl1strm, [x1]")
    assert arm("ldr q0, [x1]") != arm("ldr q1, [x1]")
    assert arm("ldr q0, [x1]") == arm("ldr q0, [x19]")
    assert arm("mov v0.d[0], x1") != arm("mov v1.d[0], x1")
    assert arm("fmov d0, x1") == arm("fmov d0, x2") != arm("fmov d1, x1")


def test_sites_are_renamed_as_a_whole():
    def site(a, b, live):
        return renamed_site(Replacement((mov64(a, b), alu64(ADD, a, b)), (alu64(ADD, a, b),), live_set.whole(live)))

    assert site(1, 2, 1) == site(7, 4, 7)
    assert site(1, 2, 1) != site(1, 2, 2)
    assert site(1, 1, 1) != site(1, 2, 1)


def test_equal_texts_mean_that_a_bijection_makes_one_of_the_other():
    """The bijection is found by the operands' order; nothing else of the decoded code may differ."""
    chosen = random.Random(2)
    by_text = {}
    for operation in (ROTATE, CSEL):
        for _ in range(4000):
            payload = 0
            for field in reversed(operation.layout.fields):
                value = chosen.randrange(field.low, min(field.high, 14) + 1) if field.bits > 1 else chosen.randrange(2)
                payload = payload << field.bits | (value & ((1 << field.bits) - 1))
            if operation.check_payload(payload) is None:
                _, text = operation.emit("x86_64", payload, frozenset(), BY_ARCHITECTURE["x86_64"])
                one = emit("x86_64", text, operation.proof_sequence(payload), operation.use(payload).clobbers)
                by_text.setdefault(renamed_emit(one), []).append(one)
    groups = [group for group in by_text.values() if len(group) > 1]
    assert len(groups) > 10
    host = {name: number for number, name in enumerate(host_names("x86_64"))}
    for group in groups:
        for one, other in itertools.pairwise(group):
            bijection = {}
            for left, right in zip(named(one, host), named(other, host), strict=True):
                assert bijection.setdefault(left, right) == right
            assert len(set(bijection.values())) == len(bijection)


def named(one, host):
    """The eBPF registers of the machine code, in order; and what must stay as it is, as text."""
    for instruction in one.code:
        yield instruction.mnemonic
        for operand in instruction.operands:
            if isinstance(operand, Register):
                yield host.get(operand.full, operand.full)
                yield ("width", operand.width)
            elif isinstance(operand, Place):
                yield from (host.get(operand.base, operand.base), host.get(operand.index, operand.index))
                yield (operand.scale, operand.displacement, operand.size)
            else:
                yield ("number", operand.value)
