"""Two slots for a site, to plain eBPF and back."""

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowshunt.errors import InputError
from flowshunt.insn import Instruction, check, exit_, ja, jmp_imm, mov64_imm
from flowshunt.insn.opcodes import JEQ
from flowshunt_ebpf.asm import assemble, disassemble
from flowshunt_ebpf.kops.encoding import encode_site, is_encoded, lower, restore, sidecar_payload
from flowshunt_ebpf.kops.registry import by_id
from flowshunt_ebpf.program import Program
from flowshunt_ebpf.testing.sample_operations import HINT, LEAST, SAMPLES, SPIN

KNOWN = by_id(SAMPLES.values())
SPINS = SPIN.layout.encode(dst=3, src=1, tmp=2, amount=13, wide=1)


def with_site(*slots):
    return Program.from_instructions((*slots, exit_()))


@given(st.integers(0, (1 << 52) - 1), st.integers(0, (1 << 31) - 1))
def test_every_payload_survives_its_slots(payload, operation):
    sidecar, call = encode_site(operation, payload)
    (again, call_again) = Program.from_bytes(Program.from_instructions((sidecar, call)).encode()).instructions
    assert (again, call_again) == (sidecar, call)
    assert sidecar_payload(again) == payload


def test_neither_slot_is_plain_ebpf():
    assert all(check(slot) for slot in encode_site(SPIN.id, SPINS))


def test_the_bits_stand_where_the_mechanism_has_them():
    sidecar, call = encode_site(5, 0x700ABCDE_1234_5)
    assert sidecar == Instruction(0xB7, 5, 3, 0x1234, 0x700ABCDE)
    assert call == Instruction(0x85, 0, 4, 0, 5)


def test_a_site_is_lowered_to_its_proof_sequence():
    program = lower(with_site(*encode_site(SPIN.id, SPINS)), KNOWN)
    assert program.instructions == (*SPIN.proof_sequence(SPINS), exit_())
    (site,) = program.sites
    assert (site.start, site.length, site.operation, site.payload) == (0, 5, "spin", SPINS)
    assert site.changes == 1 << 3 | 1 << 2
    assert not is_encoded(program)


JUMPS = """
    if r1 == 0 goto over
    if r1 == 1 goto here
    r0 = 0
here:
    {site}
    r0 = r3
    if r0 != 7 goto here
    call sub
over:
    exit
.function sub
    {site}
    r0 = r3
    exit
"""


def encoded_text():
    sidecar, call = encode_site(SPIN.id, SPINS)
    slots = [f".insn 0x{i.opcode:x}, {i.dst}, {i.src}, {i.offset}, {i.imm}" for i in (sidecar, call)]
    return assemble(JUMPS.replace("{site}", "\n".join(slots)))


def test_jumps_calls_and_functions_follow():
    plain = "r2 = r1\nr2 <<= 13\nr3 = r1\nr3 >>= 51\nr3 |= r2"
    lowered = lower(encoded_text(), KNOWN)
    wanted = assemble(JUMPS.replace("{site}", plain))
    assert lowered.instructions == wanted.instructions
    assert [f.start for f in lowered.functions] == [f.start for f in wanted.functions]


def test_restoring_gives_back_the_same_bytes():
    encoded = encoded_text()
    lowered = lower(encoded, KNOWN)
    assert restore(lowered, SAMPLES).encode() == encoded.encode()
    assert lower(restore(lowered, SAMPLES), KNOWN).encode() == lowered.encode()


def test_a_program_with_sites_survives_as_text():
    encoded = encoded_text()
    assert assemble(disassemble(encoded)).encode() == encoded.encode()


def test_a_jump_to_an_operation_that_does_nothing_still_reaches_it():
    hint = encode_site(HINT.id, HINT.layout.encode(base=1))
    lowered = lower(with_site(jmp_imm(JEQ, 1, 0, 1), mov64_imm(0, 1), *hint), KNOWN)
    assert lowered.instructions == (jmp_imm(JEQ, 1, 0, 1), mov64_imm(0, 1), ja(0), exit_())


@pytest.mark.parametrize(
    ("slots", "reason"),
    [
        (encode_site(SPIN.id, SPINS)[:1], "sidecar lacks its call"),
        (encode_site(SPIN.id, SPINS)[1:], "call lacks its sidecar"),
        ((encode_site(SPIN.id, SPINS)[0], mov64_imm(0, 1)), "sidecar lacks its call"),
        ((encode_site(SPIN.id, SPINS)[0], Instruction(0x85, 1, 4, 0, SPIN.id)), "sidecar lacks its call"),
        ((encode_site(SPIN.id, SPINS)[0], Instruction(0x85, 0, 4, 1, SPIN.id)), "sidecar lacks its call"),
        (encode_site(77, SPINS), "extended operation 0x4d, which is not installed"),
        (encode_site(SPIN.id, SPINS | 1 << 51), "none of spin: bits from 19 on are not zero"),
        (encode_site(SPIN.id, SPINS | 15), "none of spin: dst is 15"),
        (encode_site(LEAST.id, 0x11), "none of least: one register is no choice"),
        ((jmp_imm(JEQ, 1, 0, 1), *encode_site(SPIN.id, SPINS)), "leads into a site"),
    ],
)
def test_what_is_no_site_is_refused_with_its_place(slots, reason):
    with pytest.raises(InputError, match=reason) as caught:
        lower(with_site(*slots), KNOWN)
    assert "instruction" in str(caught.value)


def test_a_proof_sequence_against_the_rules_is_refused():
    nested = attrs.evolve(SPIN, proof=lambda v: encode_site(SPIN.id, SPINS))
    with pytest.raises(InputError, match="instruction 0 is not plain eBPF"):
        lower(with_site(*encode_site(SPIN.id, SPINS)), {SPIN.id: nested})


def test_a_site_that_was_changed_is_not_restored():
    lowered = lower(with_site(*encode_site(SPIN.id, SPINS)), KNOWN)
    changed = attrs.evolve(lowered, instructions=(mov64_imm(2, 0), *lowered.instructions[1:]))
    with pytest.raises(InputError, match="no site of spin any more"):
        restore(changed, SAMPLES)


def test_a_jump_that_would_reach_too_far_is_refused():
    far = (jmp_imm(JEQ, 1, 0, 32767), *encode_site(SPIN.id, SPINS), *(mov64_imm(0, 1) for _ in range(32765)))
    with pytest.raises(InputError, match="its target would be 32770 slots away"):
        lower(with_site(*far), KNOWN)
