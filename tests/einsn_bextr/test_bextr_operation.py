"""Bit field extracts: shift and mask, shift and shift, zero- and sign-extended."""

import pytest

from flowshunt.testing import Claim, operation_contract
from flowshunt_ebpf.testing.operation_sites import proved_sites
from flowshunt_einsn_bextr.operation import OPERATION

OPERATIONS = (OPERATION,)
BY_NAME = {"bextr": OPERATION}

FOUND = [
    pytest.param(
        "bextr",
        "r0 = r1; r0 >>= 7; r0 &= 511",
        "dst=0, src=1, start=7, length=9, signed=0, masked=1, wide=1",
        id="shift and mask",
    ),
    pytest.param(
        "bextr",
        "r0 = r1; r0 >>= 40; r0 &= 65535",
        "dst=0, src=1, start=40, length=16, signed=0, masked=1, wide=1",
        id="a half in the upper part",
    ),
    pytest.param(
        "bextr",
        "w0 = w1; w0 >>= 5; w0 &= 63",
        "dst=0, src=1, start=5, length=6, signed=0, masked=1, wide=0",
        id="32 bits",
    ),
    pytest.param(
        "bextr",
        "r1 >>= 20; r1 &= 1048575; r0 = r1",
        "dst=1, src=1, start=20, length=20, signed=0, masked=1, wide=1",
        id="in place",
    ),
    pytest.param(
        "bextr",
        "r0 = r1; r0 <<= 20; r0 >>= 50",
        "dst=0, src=1, start=30, length=14, signed=0, masked=0, wide=1",
        id="two shifts",
    ),
    pytest.param(
        "bextr",
        "r0 = r1; r0 <<= 20; r0 s>>= 50",
        "dst=0, src=1, start=30, length=14, signed=1, masked=0, wide=1",
        id="sign-extended",
    ),
    pytest.param(
        "bextr",
        "w0 = w1; w0 <<= 10; w0 s>>= 20",
        "dst=0, src=1, start=10, length=12, signed=1, masked=0, wide=0",
        id="sign-extended, 32 bits",
    ),
    pytest.param(
        "bextr",
        "r0 = r1; r0 <<= 32; r0 >>= 32",
        "dst=0, src=1, start=0, length=32, signed=0, masked=0, wide=1",
        id="zero extension",
    ),
    pytest.param(
        "bextr",
        "r0 = r1; r0 <<= 32; r0 s>>= 32",
        "dst=0, src=1, start=0, length=32, signed=1, masked=0, wide=1",
        id="sign extension",
    ),
    pytest.param(
        "bextr",
        "r0 = r1; r0 <<= 56; r0 s>>= 56",
        "dst=0, src=1, start=0, length=8, signed=1, masked=0, wide=1",
        id="of a byte",
    ),
    pytest.param(
        "bextr",
        "r0 = r1; r2 += 1; r0 >>= 7; r2 ^= r3; r0 &= 511; r0 += r2",
        "dst=0, src=1, start=7, length=9, signed=0, masked=1, wide=1",
        id="unrelated code between",
    ),
]

LEFT = [
    pytest.param("bextr", "r0 = r1; r0 >>= 7; r0 &= 509", id="a mask with a hole"),
    pytest.param("bextr", "r0 = r1; r0 <<= 20; r0 >>= 10", id="shifted up"),
    pytest.param("bextr", "r0 >>= 7; r1 = r0; r1 &= 511; r0 += r1", id="the shifted value is read later"),
    pytest.param("bextr", "r0 <<= 10; w0 >>= 20", id="mixed widths"),
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
