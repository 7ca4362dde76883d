"""Byte swaps: fused with loads and stores, and values made of bytes."""

import pytest

from flowshunt.testing import Claim, operation_contract
from flowshunt_ebpf.testing.operation_sites import proved_sites
from flowshunt_einsn_bswap.operation import OPERATIONS

BY_NAME = {operation.name: operation for operation in OPERATIONS}

FOUND = [
    pytest.param(
        "bswap",
        "r0 = *(u16 *)(r1 + 2); r0 = be16 r0",
        "dst=0, base=1, part=15, whole=15, offset=2, size=1, unit=1, swap=1",
        id="load, 16 bits",
    ),
    pytest.param(
        "bswap",
        "r0 = *(u32 *)(r1 + 12); r0 = be32 r0",
        "dst=0, base=1, part=15, whole=15, offset=12, size=2, unit=2, swap=1",
        id="load, 32 bits",
    ),
    pytest.param(
        "bswap",
        "r0 = *(u64 *)(r1 - 24); r0 = be64 r0",
        "dst=0, base=1, part=15, whole=15, offset=-24, size=3, unit=3, swap=1",
        id="load, 64 bits",
    ),
    pytest.param(
        "bswap",
        "r2 = *(u8 *)(r1 + 1); r0 = *(u8 *)(r1 + 0); r0 <<= 8; r0 |= r2",
        "dst=0, base=1, part=2, whole=15, offset=0, size=1, unit=0, swap=1",
        id="two bytes",
    ),
    pytest.param(
        "bswap",
        "r2 = *(u8 *)(r1 + 1); r1 = *(u8 *)(r1 + 0); r1 <<= 8; r1 |= r2; r0 = r1",
        "dst=1, base=1, part=2, whole=15, offset=0, size=1, unit=0, swap=1",
        id="over the base",
    ),
    pytest.param(
        "bswap",
        (
            "r2 = *(u8 *)(r1 + 0); r2 <<= 24; r0 = *(u8 *)(r1 + 1); r0 <<= 16; r0 |= r2; r2 = *(u8 *)(r1 + 2); "
            "r2 <<= 8; r0 |= r2; r1 = *(u8 *)(r1 + 3); r0 |= r1"
        ),
        "dst=0, base=1, part=2, whole=15, offset=0, size=2, unit=0, swap=1",
        id="four bytes",
    ),
    pytest.param(
        "bswap",
        (
            "r2 = *(u8 *)(r1 + 3); r2 <<= 24; r0 = *(u8 *)(r1 + 2); r0 <<= 16; r0 |= r2; r2 = *(u8 *)(r1 + 1); "
            "r2 <<= 8; r0 |= r2; r1 = *(u8 *)(r1 + 0); r0 |= r1"
        ),
        "dst=0, base=1, part=2, whole=15, offset=0, size=2, unit=0, swap=0",
        id="four bytes, little-endian",
    ),
    pytest.param(
        "bswap",
        (
            "r2 = *(u8 *)(r1 + 1); w2 <<= 8; r0 = *(u8 *)(r1 + 0); w0 <<= 16; w0 |= w2; r2 = *(u8 *)(r1 + 2); "
            "w0 |= w2; r0 <<= 16; r2 = *(u8 *)(r1 + 3); r2 <<= 8; r0 |= r2; r2 = *(u8 *)(r1 + 4); r0 |= r2; "
            "r2 = *(u8 *)(r1 + 5); r0 <<= 16; r2 <<= 8; r0 |= r2; r2 = *(u8 *)(r1 + 6); r0 |= r2; "
            "r1 = *(u8 *)(r1 + 7); r0 <<= 8; r0 |= r1"
        ),
        "dst=0, base=1, part=2, whole=15, offset=0, size=3, unit=0, swap=1",
        id="eight bytes",
    ),
    pytest.param(
        "bswap",
        (
            "r2 = *(u8 *)(r1 + 1); r3 = *(u8 *)(r1 + 2); r3 <<= 8; r3 |= r2; r4 = *(u8 *)(r1 + 3); r4 <<= 16; "
            "r2 = *(u8 *)(r1 + 4); r2 <<= 24; r2 |= r4; r2 |= r3; r3 = *(u8 *)(r1 + 6); w3 <<= 8; "
            "r4 = *(u8 *)(r1 + 5); w3 |= w4; r4 = *(u8 *)(r1 + 7); w4 <<= 16; r0 = *(u8 *)(r1 + 8); w0 <<= 24; "
            "w0 |= w4; w0 |= w3; r0 <<= 32; r0 |= r2"
        ),
        "dst=0, base=1, part=2, whole=15, offset=1, size=3, unit=0, swap=0",
        id="eight bytes of a packed structure",
    ),
    pytest.param(
        "bswap",
        "r2 = *(u16 *)(r1 + 0); r0 = *(u16 *)(r1 + 2); r0 <<= 16; r0 |= r2",
        "dst=0, base=1, part=2, whole=15, offset=0, size=2, unit=1, swap=0",
        id="two halves",
    ),
    pytest.param(
        "bswap_store",
        "r2 = be64 r2; *(u64 *)(r1 + 8) = r2; r0 = 0",
        "base=1, src=2, part=2, offset=8, size=3, unit=3, swap=1",
        id="store, 64 bits",
    ),
    pytest.param(
        "bswap_store",
        "*(u8 *)(r1 + 1) = r2; w2 >>= 8; *(u8 *)(r1 + 0) = r2; r0 = 0",
        "base=1, src=2, part=2, offset=0, size=1, unit=0, swap=1",
        id="store of two bytes",
    ),
    pytest.param(
        "bswap_store",
        (
            "w3 = w2; w3 >>= 8; *(u8 *)(r1 + 2) = r3; w3 = w2; w3 >>= 16; *(u8 *)(r1 + 1) = r3; "
            "*(u8 *)(r1 + 3) = r2; w2 >>= 24; *(u8 *)(r1 + 0) = r2; r0 = 0"
        ),
        "base=1, src=2, part=3, offset=0, size=2, unit=0, swap=1",
        id="store of four bytes",
    ),
]

LEFT = [
    pytest.param(
        "bswap", "r2 = *(u8 *)(r1 + 2); r0 = *(u8 *)(r1 + 0); r0 <<= 8; r0 |= r2", id="a byte that is missing"
    ),
    pytest.param("bswap", "r2 = *(u8 *)(r3 + 1); r0 = *(u8 *)(r1 + 0); r0 <<= 8; r0 |= r2", id="two bases"),
    pytest.param("bswap", "r0 = *(u32 *)(r1 + 12); r0 = be16 r0", id="a swap of fewer bytes"),
    pytest.param("bswap", "r2 = *(u8 *)(r1 + 1); r0 = *(u8 *)(r1 + 0); r0 <<= 7; r0 |= r2", id="bits in the way"),
    pytest.param("bswap_store", "r2 = be64 r2; *(u64 *)(r1 + 8) = r2; r0 = r2", id="a value that is read later"),
    pytest.param(
        "bswap",
        "r2 = *(u8 *)(r1 + 1); *(u8 *)(r3 + 0) = 7; r0 = *(u8 *)(r1 + 0); r0 <<= 8; r0 |= r2",
        id="a store between that may hit",
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


@pytest.mark.parametrize("architecture", ["x86_64", "arm64"])
@pytest.mark.parametrize(("name", "text", "site"), FOUND)
def test_what_compilers_emit_becomes_a_proved_site(name, text, site, architecture):
    assert proved_sites(text.replace("; ", "\n"), BY_NAME[name], architecture) == [site]


@pytest.mark.parametrize(("name", "text"), LEFT)
def test_what_only_looks_like_it_is_left(name, text):
    assert proved_sites(text.replace("; ", "\n"), BY_NAME[name]) == []
