"""Proved machine code in the place of a site: on the host and emulated, and lowered wherever it may not be."""

import attrs
import pytest

from flowshunt.host_registers import ARM64 as ARM64_REGISTERS
from flowshunt.host_registers import X86_64 as X86_64_REGISTERS
from flowshunt_ebpf.asm import assemble
from flowshunt_ebpf.contexts.layout import MEMORY, XDP
from flowshunt_ebpf.kops.apart import attach_forms
from flowshunt_ebpf.kops.policy import Policy, weight
from flowshunt_ebpf.kops.rewrite import rewrite
from flowshunt_ebpf.native import arm64, assembler, x86_64
from flowshunt_ebpf.native.emulator import emulate
from flowshunt_ebpf.native.host import architecture as host_architecture
from flowshunt_ebpf.native.image import prepare
from flowshunt_ebpf.native.interpreter import interpret
from flowshunt_ebpf.native.jit import compile_image
from flowshunt_ebpf.native.machine import Machine
from flowshunt_ebpf.program import proof_token
from flowshunt_ebpf.program.program_type import ProgramType
from flowshunt_ebpf.testing.checked_code import vouched
from flowshunt_ebpf.testing.sample_operations import HINT, LEAST, SAMPLES, SPIN, Believer

TEXT = """
    r6 = *(u64 *)(r1 + 0)
    r7 = *(u64 *)(r1 + 8)
    r2 = r6
    r2 <<= 13
    r6 >>= 51
    r6 |= r2
    w3 = w7
    w3 >>= 27
    w7 <<= 5
    w7 |= w3
    if r6 > r7 goto +1
    r7 = r6
    call sub
    r0 ^= r7
    exit
.function sub
    r8 = r7
    r8 <<= 1
    r7 >>= 63
    r7 |= r8
    r0 = r7
    exit
"""


def with_sites(architecture, features=frozenset(), text=TEXT, operations=(SPIN, LEAST, HINT)):
    made = rewrite(
        assemble(text),
        operations,
        Believer(),
        weight(Policy.ALL),
        architecture=architecture,
        features=frozenset(features),
    )
    return made.program


def code_of(program, architecture, *, features=frozenset(), checked=False, context=MEMORY):
    image = prepare(program, context=context)
    return compile_image(
        image, architecture, checked=checked, features=frozenset(features), helper_address=lambda number: number << 16
    ).code


def test_register_names_are_those_of_the_code_generators():
    assert X86_64_REGISTERS.names == {64: x86_64.R64, 32: x86_64.R32, 16: x86_64.R16, 8: x86_64.R8}
    assert ARM64_REGISTERS.names == {64: arm64.XR, 32: arm64.WR}


@pytest.mark.parametrize("architecture", ["x86_64", "arm64"])
def test_the_proved_bytes_stand_in_the_code(architecture):
    program = with_sites(architecture)
    assert [s.operation for s in program.sites] == ["hint", "hint", "spin", "spin", "least", "spin"]
    code = code_of(program, architecture)
    at = 0
    for site in program.sites:
        at = code.index(site.forms[0].code, at) + len(site.forms[0].code)
    assert len(code) < len(code_of(attrs.evolve(program, sites=()), architecture))


@pytest.mark.parametrize("architecture", ["x86_64", "arm64"])
def test_code_that_checks_accesses_has_no_native_sites(architecture):
    program = with_sites(architecture)
    assert code_of(program, architecture, checked=True) == code_of(
        attrs.evolve(program, sites=()), architecture, checked=True
    )


def lowered_code(program):
    return code_of(attrs.evolve(program, sites=()), "x86_64")


def spoiled(program, **changes):
    """The program with its third site, a rotation, changed."""
    site = program.sites[2]
    if "form" in changes:
        changes["forms"] = (attrs.evolve(site.forms[0], **changes.pop("form")),)
    sites = (attrs.evolve(site, **changes),)
    return attrs.evolve(program, sites=sites)


@pytest.mark.parametrize(
    "changes",
    [
        {"form": {"token": b""}},
        {"form": {"code": b"\x90"}},
        {"form": {"architecture": "arm64"}},
        {"form": {"features": frozenset({"bmi2"})}},
        {"changes": 0},
        {"length": 3},
        {"start": 3},
        {"forms": ()},
    ],
    ids=str,
)
def test_a_site_whose_form_is_not_proved_for_exactly_this_stays_lowered(changes):
    program = spoiled(with_sites("x86_64"), **changes)
    assert code_of(program, "x86_64") == lowered_code(program)


def test_a_site_whose_instructions_changed_stays_lowered():
    program = with_sites("x86_64")
    start = program.sites[2].start
    instructions = list(program.instructions)
    instructions[start + 1] = attrs.evolve(instructions[start + 1], imm=12)
    changed = attrs.evolve(program, instructions=tuple(instructions), sites=program.sites[2:3])
    assert code_of(changed, "x86_64") == lowered_code(changed)


def sealed_site(program, start, length, code=b"\x90"):
    """A site with a form whose token is right: only where it lies can be wrong."""
    own = program.instructions[start : start + length]
    from flowshunt_ebpf.program import NativeForm, Site

    form = NativeForm("x86_64", frozenset(), code, proof_token(own, 4, "x86_64", code))
    return Site(start, length, "spin", 0, 4, (form,))


@pytest.mark.parametrize(
    ("text", "start", "length"),
    [
        ("if r1 == 0 goto +1\nr2 = 1\nr2 = 2\nr0 = 0\nexit", 1, 2),  # a jump lands inside
        ("if r1 == 0 goto +1\nr2 = 2\nr0 = 0\nexit", 0, 1),  # a jump leads out
        ("r2 = 1\nr2 = 2\nif r1 == 0 goto -2\nr0 = 0\nexit", 0, 2),  # from behind
        ("r0 = 0\nexit\n.function f\nr2 = 1\nexit", 1, 2),  # two functions
        ("r0 = 0\nr2 = 1\nexit", 1, 2),  # to the end
        ("r0 = 0\nr2 = 1\nexit", 1, 0),
    ],
)
def test_a_site_against_the_site_rules_stays_lowered(text, start, length):
    program = assemble(text)
    wrong = attrs.evolve(program, sites=(sealed_site(program, start, length),))
    assert code_of(wrong, "x86_64") == lowered_code(program)


def test_overlapping_sites_are_not_both_used():
    program = assemble("r2 = 1\nr2 = 2\nr2 = 3\nr0 = 0\nexit")
    both = attrs.evolve(program, sites=(sealed_site(program, 0, 2), sealed_site(program, 1, 2)))
    first = attrs.evolve(program, sites=both.sites[:1])
    assert code_of(both, "x86_64") == code_of(first, "x86_64") != lowered_code(program)


def test_a_load_of_a_packet_pointer_stays_out_of_sites():
    program = attrs.evolve(assemble("r2 = *(u32 *)(r1 + 0)\nr0 = r2\nexit"), type=ProgramType.XDP)
    site = attrs.evolve(program, sites=(sealed_site(program, 0, 1),))
    assert code_of(site, "x86_64", context=XDP) == code_of(program, "x86_64", context=XDP)


def test_a_function_saves_the_registers_that_a_site_changes():
    program = with_sites("x86_64", text=TEXT.replace("r8", "r9"))
    spin = program.sites[-1]
    assert spin.changes >> 9 & 1
    code = code_of(program, "x86_64")
    assert code[code.index(spin.forms[0].code) :].count(assembler.assemble("x86_64", "pop r15")) >= 1


PACKETS = [bytes(16), bytes(range(16)), b"\xff" * 8 + bytes(8), bytes(8) + b"\x80" * 8, bytes(range(200, 216))]


def outcomes(program, load):
    machine = Machine(MEMORY, ())
    image = prepare(program, context=MEMORY)
    verdict = vouched(image)
    loaded = load(image, machine, verdict)
    found = []
    for packet in PACKETS:
        machine.set_packet(packet)
        outcome = loaded.run()
        found.append((outcome.value, outcome.fault))
    loaded.close()
    return found


@pytest.mark.parametrize("features", [frozenset(), frozenset({"bmi2"})], ids=["plain", "bmi2"])
@pytest.mark.parametrize("architecture", ["x86_64", "arm64"])
def test_native_sites_compute_what_the_plain_program_does(architecture, features):
    program = with_sites(architecture, features if architecture == "x86_64" else ())
    wanted = outcomes(assemble(TEXT), lambda image, machine, verdict: interpret(image, machine))
    assert outcomes(program, lambda image, machine, verdict: interpret(image, machine)) == wanted
    emulated = outcomes(program, lambda i, m, v: emulate(i, m, architecture, v, features=features))
    assert emulated == wanted


@pytest.mark.skipif(host_architecture() not in ("x86_64", "arm64"), reason="no code generator for this machine")
def test_native_sites_run_on_the_host():
    from flowshunt_ebpf.native.host import features, host

    program = with_sites(host_architecture(), features())
    wanted = outcomes(assemble(TEXT), lambda image, machine, verdict: interpret(image, machine))
    assert outcomes(program, host) == wanted


def test_sites_of_an_encoded_program_get_their_forms():
    from flowshunt_ebpf.kops.encoding import lower, restore
    from flowshunt_ebpf.kops.registry import by_id

    program = with_sites("arm64")
    again = lower(restore(program, SAMPLES), by_id(SAMPLES.values()))
    assert all(site.forms == () for site in again.sites)
    armed = attach_forms(again, SAMPLES, Believer(), "arm64", frozenset())
    assert armed.sites == program.sites
