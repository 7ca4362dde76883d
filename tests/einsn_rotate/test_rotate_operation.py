"""Rotates: what clang emits for them, by constants and registers, 32 and 64 bits."""

import pytest

from flowshunt.testing import Claim, operation_contract
from flowshunt_ebpf.testing.operation_sites import proved_sites
from flowshunt_einsn_rotate.operation import OPERATION

OPERATIONS = (OPERATION,)
BY_NAME = {"rotate": OPERATION}

FOUND = [
    pytest.param(
        "rotate",
        "r0 = r1; r1 >>= 51; r0 <<= 13; r0 |= r1",
        "dst=0, src=1, count=1, shifted=1, negated=15, amount=13, by_register=0, right=0, wide=1",
        id="64 bits",
    ),
    pytest.param(
        "rotate",
        "w0 = w1; w1 >>= 25; w0 <<= 7; w0 |= w1",
        "dst=0, src=1, count=1, shifted=1, negated=15, amount=7, by_register=0, right=0, wide=0",
        id="32 bits",
    ),
    pytest.param(
        "rotate",
        "r0 = r2; w0 ^= w1; w1 = w0; w1 >>= 27; w0 <<= 5; w0 |= w1; w0 += 1",
        "dst=0, src=0, count=0, shifted=1, negated=15, amount=5, by_register=0, right=0, wide=0",
        id="in an accumulator",
    ),
    pytest.param(
        "rotate",
        "r3 = r2; r3 &= 63; r0 = r1; r0 <<= r3; w2 = -w2; r2 &= 63; r1 >>= r2; r0 |= r1",
        "dst=0, src=1, count=2, shifted=1, negated=2, amount=0, by_register=1, right=0, wide=1",
        id="left by a masked register",
    ),
    pytest.param(
        "rotate",
        "r0 = r1; r1 = 64; r1 -= r2; r3 = r0; r3 <<= r2; r0 >>= r1; r0 |= r3",
        "dst=0, src=0, count=2, shifted=1, negated=3, amount=0, by_register=1, right=0, wide=1",
        id="left by a register",
    ),
    pytest.param(
        "rotate",
        "r0 = r1; r1 = 64; r1 -= r2; r3 = r0; r3 >>= r2; r0 <<= r1; r0 |= r3",
        "dst=0, src=0, count=2, shifted=1, negated=3, amount=0, by_register=1, right=1, wide=1",
        id="right by a register",
    ),
    pytest.param(
        "rotate",
        "w3 = w2; w3 &= 31; w0 = w1; w0 <<= w3; w2 = -w2; w2 &= 31; w1 >>= w2; w0 |= w1",
        "dst=0, src=1, count=2, shifted=1, negated=2, amount=0, by_register=1, right=0, wide=0",
        id="32 bits by a masked register",
    ),
    pytest.param(
        "rotate",
        "w0 = w1; w1 = 32; w1 -= w2; w3 = w0; w3 <<= w2; w0 >>= w1; w0 |= w3",
        "dst=0, src=0, count=2, shifted=1, negated=3, amount=0, by_register=1, right=0, wide=0",
        id="32 bits by a register",
    ),
    pytest.param(
        "rotate",
        "r0 = r1; r4 = 7; r1 >>= 51; r4 += r5; r0 <<= 13; r5 *= 3; r0 |= r1; r0 += r4; r0 ^= r5",
        "dst=0, src=1, count=1, shifted=1, negated=15, amount=13, by_register=0, right=0, wide=1",
        id="unrelated code between",
    ),
    pytest.param(
        "rotate",
        "r6 = r7; r8 = r7; r8 <<= 9; r6 >>= 55; r8 |= r6; r0 = r8",
        "dst=8, src=7, count=7, shifted=6, negated=15, amount=9, by_register=0, right=0, wide=1",
        id="other temporaries, other way round",
    ),
    pytest.param(
        "rotate",
        "r0 = r1; r2 = 51; r3 = 13; r1 >>= r2; r0 <<= r3; r0 |= r1",
        "dst=0, src=1, count=1, shifted=1, negated=15, amount=13, by_register=0, right=0, wide=1",
        id="counts in registers",
    ),
]

LEFT = [
    pytest.param("rotate", "r0 = r1; r1 >>= 50; r0 <<= 13; r0 |= r1", id="counts that don't add up"),
    pytest.param("rotate", "r0 = r2; r1 >>= 51; r0 <<= 13; r0 |= r1", id="two values"),
    pytest.param("rotate", "r0 = r1; r1 >>= 51; r0 <<= 13; r0 |= r1; r0 += r1", id="a shifted half that is read later"),
    pytest.param("rotate", "r0 = r1; if r2 == 0 goto +1; r1 >>= 51; r0 <<= 13; r0 |= r1", id="a jump into it"),
    pytest.param("rotate", "r0 = r1; r1 s>>= 51; r0 <<= 13; r0 |= r1", id="arithmetic shift"),
    pytest.param("rotate", "r0 = r1; w1 >>= 25; r0 <<= 7; r0 |= r1", id="mixed widths"),
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


@pytest.mark.parametrize("architecture", ["x86_64", "arm64"])
@pytest.mark.parametrize(("name", "text", "site"), FOUND)
def test_what_compilers_emit_becomes_a_proved_site(name, text, site, architecture):
    assert proved_sites(text.replace("; ", "\n"), BY_NAME[name], architecture) == [site]


@pytest.mark.parametrize(("name", "text"), LEFT)
def test_what_only_looks_like_it_is_left(name, text):
    assert proved_sites(text.replace("; ", "\n"), BY_NAME[name]) == []
