"""Bulk copies and fills: runs of loads and stores, up and down, through any temporaries."""

import pytest

from flowshunt.testing import Claim, operation_contract
from flowshunt_ebpf.testing.operation_sites import proved_sites
from flowshunt_einsn_bulkcopy.operation import OPERATIONS

BY_NAME = {operation.name: operation for operation in OPERATIONS}

FOUND = [
    pytest.param(
        "bulkcopy",
        (
            "r3 = *(u64 *)(r1 + 0); *(u64 *)(r1 + 32) = r3; r3 = *(u64 *)(r1 + 8); *(u64 *)(r1 + 40) = r3; "
            "r3 = *(u64 *)(r1 + 16); *(u64 *)(r1 + 48) = r3; r0 = 0"
        ),
        "to=1, from_=1, part=3, to_offset=32, from_offset=0, count=3, unit=3, down=0",
        id="on one base",
    ),
    pytest.param(
        "bulkfill",
        "r1 = 0; *(u64 *)(r10 - 8) = r1; *(u64 *)(r10 - 16) = r1; *(u64 *)(r10 - 24) = r1; r0 = 0",
        "to=10, value=1, offset=-24, count=3, unit=3, kind=3",
        id="zeros on the stack",
    ),
    pytest.param(
        "bulkfill",
        (
            "r2 = 0; *(u8 *)(r1 + 15) = r2; *(u8 *)(r1 + 14) = r2; *(u8 *)(r1 + 13) = r2; *(u8 *)(r1 + 12) = r2; "
            "*(u8 *)(r1 + 11) = r2; *(u8 *)(r1 + 10) = r2; *(u8 *)(r1 + 9) = r2; *(u8 *)(r1 + 8) = r2; "
            "*(u8 *)(r1 + 7) = r2; *(u8 *)(r1 + 6) = r2; *(u8 *)(r1 + 5) = r2; *(u8 *)(r1 + 4) = r2; "
            "*(u8 *)(r1 + 3) = r2; *(u8 *)(r1 + 2) = r2; *(u8 *)(r1 + 1) = r2; *(u8 *)(r1 + 0) = r2; r0 = 0"
        ),
        "to=1, value=2, offset=0, count=16, unit=0, kind=3",
        id="by bytes",
    ),
    pytest.param(
        "bulkfill",
        "*(u64 *)(r1 + 0) = 0; *(u64 *)(r1 + 8) = 0; *(u32 *)(r1 + 16) = 0; r0 = 0",
        "to=1, value=1, offset=0, count=2, unit=3, kind=0",
        id="by an immediate",
    ),
    pytest.param(
        "bulkfill",
        "*(u64 *)(r1 + 24) = r2; *(u64 *)(r1 + 16) = r2; *(u64 *)(r1 + 8) = r2; *(u64 *)(r1 + 0) = r2; r0 = 0",
        "to=1, value=2, offset=0, count=4, unit=3, kind=2",
        id="a register",
    ),
    pytest.param(
        "bulkfill",
        "*(u64 *)(r1 + 0) = -1; *(u64 *)(r1 + 8) = -1; r0 = 0",
        "to=1, value=1, offset=0, count=2, unit=3, kind=1",
        id="ones",
    ),
    pytest.param(
        "bulkfill",
        (
            "r2 = 0; *(u8 *)(r1 + 0) = r2; *(u8 *)(r1 + 1) = r2; *(u8 *)(r1 + 2) = r2; *(u8 *)(r1 + 3) = r2; "
            "*(u8 *)(r1 + 4) = r2; *(u8 *)(r1 + 5) = r2; *(u8 *)(r1 + 6) = r2; *(u8 *)(r1 + 7) = r2; "
            "*(u8 *)(r1 + 8) = r2; *(u8 *)(r1 + 9) = r2; *(u8 *)(r1 + 10) = r2; *(u8 *)(r1 + 11) = r2; "
            "*(u8 *)(r1 + 12) = r2; *(u8 *)(r1 + 13) = r2; *(u8 *)(r1 + 14) = r2; *(u8 *)(r1 + 15) = r2; "
            "*(u8 *)(r1 + 16) = r2; *(u8 *)(r1 + 17) = r2; *(u8 *)(r1 + 18) = r2; *(u8 *)(r1 + 19) = r2; "
            "*(u8 *)(r1 + 20) = r2; *(u8 *)(r1 + 21) = r2; *(u8 *)(r1 + 22) = r2; r0 = 0"
        ),
        "to=1, value=2, offset=0, count=23, unit=0, kind=3",
        id="of an odd length",
    ),
]

LEFT = [
    pytest.param(
        "bulkcopy",
        "r3 = *(u64 *)(r1 + 0); *(u64 *)(r1 + 8) = r3; r3 = *(u64 *)(r1 + 8); *(u64 *)(r1 + 16) = r3; r0 = 0",
        id="ranges that overlap",
    ),
    pytest.param("bulkfill", "*(u64 *)(r1 + 0) = 0; *(u64 *)(r1 + 16) = 0; r0 = 0", id="a hole"),
    pytest.param("bulkfill", "*(u64 *)(r1 + 0) = r2; *(u64 *)(r1 + 8) = r3; r0 = 0", id="two values"),
    pytest.param(
        "bulkcopy",
        ("r3 = *(u64 *)(r1 + 0); *(u64 *)(r1 + 32) = r3; r4 = *(u64 *)(r1 + 8); *(u64 *)(r1 + 40) = r4; r0 = r3"),
        id="the copied value is read later",
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
