"""Arithmetic with an operand in memory, and on memory in place."""

import pytest

from flowshunt.testing import Claim, operation_contract
from flowshunt_ebpf.testing.operation_sites import proved_sites
from flowshunt_einsn_loadop.operation import OPERATIONS

BY_NAME = {operation.name: operation for operation in OPERATIONS}

FOUND = [
    pytest.param(
        "loadop",
        "r2 = *(u64 *)(r1 + 8); r0 += r2",
        "dst=0, base=1, loaded=2, offset=8, operation=0, wide=1",
        id="64 bits, add",
    ),
    pytest.param(
        "loadop",
        "r2 = *(u64 *)(r1 + 8); r0 -= r2",
        "dst=0, base=1, loaded=2, offset=8, operation=1, wide=1",
        id="64 bits, sub",
    ),
    pytest.param(
        "loadop",
        "r2 = *(u64 *)(r1 + 8); r0 &= r2",
        "dst=0, base=1, loaded=2, offset=8, operation=2, wide=1",
        id="64 bits, and",
    ),
    pytest.param(
        "loadop",
        "r2 = *(u64 *)(r1 + 8); r0 |= r2",
        "dst=0, base=1, loaded=2, offset=8, operation=3, wide=1",
        id="64 bits, or",
    ),
    pytest.param(
        "loadop",
        "r2 = *(u64 *)(r1 + 8); r0 ^= r2",
        "dst=0, base=1, loaded=2, offset=8, operation=4, wide=1",
        id="64 bits, xor",
    ),
    pytest.param(
        "loadop",
        "r2 = *(u64 *)(r1 + 8); r0 *= r2",
        "dst=0, base=1, loaded=2, offset=8, operation=5, wide=1",
        id="64 bits, mul",
    ),
    pytest.param(
        "loadop",
        "r2 = *(u32 *)(r1 - 4); w0 += w2",
        "dst=0, base=1, loaded=2, offset=-4, operation=0, wide=0",
        id="32 bits",
    ),
    pytest.param(
        "memop",
        "r2 = *(u64 *)(r1 + 8); r2 += 1; *(u64 *)(r1 + 8) = r2; r0 = 0",
        "base=1, operand=1, loaded=2, offset=8, operation=0, size=3, by_number=1, number=1",
        id="a counter",
    ),
    pytest.param(
        "memop",
        "r3 = *(u32 *)(r1 + 4); w3 += w2; *(u32 *)(r1 + 4) = r3; r0 = 0",
        "base=1, operand=2, loaded=3, offset=4, operation=0, size=2, by_number=0, number=0",
        id="a sum",
    ),
    pytest.param(
        "memop",
        "r3 = *(u8 *)(r1 + 4); r3 |= 16; *(u8 *)(r1 + 4) = r3; r0 = 0",
        "base=1, operand=1, loaded=3, offset=4, operation=3, size=0, by_number=1, number=16",
        id="flags of a byte",
    ),
    pytest.param(
        "memop",
        "r3 = *(u16 *)(r1 + 4); r3 ^= r2; *(u16 *)(r1 + 4) = r3; r0 = 0",
        "base=1, operand=2, loaded=3, offset=4, operation=4, size=1, by_number=0, number=0",
        id="half a word",
    ),
]

LEFT = [
    pytest.param("loadop", "r2 = *(u64 *)(r1 + 8); r0 += r2; r0 ^= r2", id="the loaded value is read later"),
    pytest.param("loadop", "r2 = *(u32 *)(r1 + 8); r0 += r2", id="32 bits of 64"),
    pytest.param("loadop", "r2 = *(u64 *)(r1 + 8); r1 += r2; r0 = r1", id="the base is changed"),
    pytest.param("memop", "r2 = *(u64 *)(r1 + 8); r2 += 1; *(u64 *)(r1 + 16) = r2; r0 = 0", id="another place"),
    pytest.param(
        "memop", "r2 = *(u64 *)(r1 + 8); r2 += 1; *(u64 *)(r1 + 8) = r2; r0 = r2", id="the changed value is read later"
    ),
]


def known(operation):
    """The payloads of the table."""
    texts = [case.values[2] for case in FOUND if case.values[0] == operation.name]
    fields = [dict(part.split("=") for part in text.split(", ")) for text in texts]
    return [operation.layout.encode(**{name: int(value) for name, value in one.items()}) for one in fields]


CLAIMS = [claim for operation in OPERATIONS for claim in operation_contract(operation, known(operation))]


@pytest.mark.parametrize("claim", CLAIMS, ids=str)
def test_contract(claim: Claim):
    claim.check()


@pytest.mark.parametrize("architecture", ["x86_64"])
@pytest.mark.parametrize(("name", "text", "site"), FOUND)
def test_what_compilers_emit_becomes_a_proved_site(name, text, site, architecture):
    assert proved_sites(text.replace("; ", "\n"), BY_NAME[name], architecture) == [site]


@pytest.mark.parametrize(("name", "text"), LEFT)
def test_what_only_looks_like_it_is_left(name, text):
    assert proved_sites(text.replace("; ", "\n"), BY_NAME[name], "x86_64") == []
