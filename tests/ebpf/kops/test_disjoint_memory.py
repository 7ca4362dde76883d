"""Native forms that need ranges of memory apart are used only where the verifier knows that they are."""

import attrs
import pytest

from flowshunt.host_registers import HostRegisters
from flowshunt.insn import DW, ldx, stx
from flowshunt.operation import Disjoint, ExtendedOperation, Match, NativeEmit
from flowshunt.payload import Layout, Values, source, temporary
from flowshunt_ebpf.asm import assemble
from flowshunt_ebpf.kops.apart import attach_forms
from flowshunt_ebpf.kops.encoding import lower, restore, site_of
from flowshunt_ebpf.kops.optimize import Target, optimize
from flowshunt_ebpf.kops.policy import Policy
from flowshunt_ebpf.kops.proving import Validation
from flowshunt_ebpf.kops.registry import by_id

LAYOUT = Layout(source("to"), source("from_"), temporary("part"))


def recognize(view):
    for at in view.having(0x79):
        four = view.instructions[at : at + 4]
        if [i.opcode for i in four] == [0x79, 0x7B, 0x79, 0x7B] and [i.offset for i in four] == [0, 0, 8, 8]:
            payload = LAYOUT.encode(to=four[1].dst, from_=four[0].src, part=four[0].dst)
            yield Match(tuple(range(at, at + 4)), payload)


def emit(v: Values, r: HostRegisters) -> str:
    return f"movdqu xmm0, [{r(v.from_)}]\nmovdqu [{r(v.to)}], xmm0"


COPY = ExtendedOperation(
    name="copy16",
    summary="copy 16 bytes",
    layout=LAYOUT,
    proof=lambda v: (
        ldx(DW, v.part, v.from_, 0),
        stx(DW, v.to, v.part, 0),
        ldx(DW, v.part, v.from_, 8),
        stx(DW, v.to, v.part, 8),
    ),
    recognizer=recognize,
    emits={"x86_64": (NativeEmit(emit),)},
    max_instructions=4,
    max_bytes=16,
    admissible=lambda v: "bad registers" if v.part in (v.to, v.from_) or v.part > 9 or v.to == v.from_ else None,
    assumes=lambda v: (Disjoint(v.to, 0, v.from_, 0, 16),),
)
COPY16 = """
    r5 = *(u64 *)(r3 + 0)
    *(u64 *)(r4 + 0) = r5
    r5 = *(u64 *)(r3 + 8)
    *(u64 *)(r4 + 8) = r5
out:
    r0 = 0
    exit
"""
PACKET = ".type xdp\nr3 = *(u32 *)(r1 + 0)\nr2 = *(u32 *)(r1 + 4)\nr0 = r3\nr0 += 64\nif r0 > r2 goto out\n"
TARGET = Target("x86_64", frozenset())


def used(text):
    found = optimize(assemble(text), policy=Policy.ALL, operations={"copy16": COPY}, target=TARGET)
    return [(f.used, f.proved) for f in found.rewritten.findings]


KNOWN = {
    "packet to stack": PACKET + "r4 = r10\nr4 += -16\n",
    "two places of the stack": ".type xdp\nr3 = r10\nr3 += -16\nr4 = r10\nr4 += -32\n*(u64 *)(r10 - 16) = 1\n"
    "*(u64 *)(r10 - 8) = 2\n",
}


@pytest.mark.parametrize("where", KNOWN)
def test_ranges_in_different_memory_are_known_to_be_apart(where):
    assert used(KNOWN[where] + COPY16) == [(True, None)]


UNKNOWN = {
    "within the packet": PACKET + "r4 = r3\nr4 += 8\n",
    "overlapping on the stack": ".type xdp\nr3 = r10\nr3 += -32\nr4 = r10\nr4 += -24\n*(u64 *)(r10 - 32) = 1\n"
    "*(u64 *)(r10 - 24) = 2\n*(u64 *)(r10 - 16) = 2\n",
    "rejected by the verifier": ".type xdp\nr3 = r1\nr4 = r2\n",
}


@pytest.mark.parametrize("where", UNKNOWN)
def test_ranges_that_may_overlap_are_left_alone(where):
    ((was_used, why),) = used(UNKNOWN[where] + COPY16)
    assert not was_used
    assert "don't overlap" in why


@pytest.mark.parametrize(("text", "forms"), [(KNOWN["packet to stack"], 1), (UNKNOWN["within the packet"], 0)])
def test_a_program_that_comes_with_sites_is_asked_the_same(text, forms):
    program = assemble(text + COPY16)
    start = len(program) - 6
    payload = LAYOUT.encode(to=4, from_=3, part=5)
    operations = {"copy16": COPY}
    encoded = restore(attrs.evolve(program, sites=(site_of(COPY, payload, start, 4),)), operations)
    lowered = lower(encoded, by_id([COPY]))
    armed = attach_forms(lowered, operations, Validation(), "x86_64", frozenset())
    assert [len(site.forms) for site in armed.sites] == [forms]
