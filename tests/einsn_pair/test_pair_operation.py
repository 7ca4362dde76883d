"""Pairs of loads and stores."""

import pytest

from flowshunt.testing import Claim, operation_contract
from flowshunt_ebpf.testing.operation_sites import proved_sites
from flowshunt_einsn_pair.operation import OPERATIONS

BY_NAME = {operation.name: operation for operation in OPERATIONS}

FOUND = [
    pytest.param(
        "loadpair",
        "r2 = *(u64 *)(r1 + 16); r3 = *(u64 *)(r1 + 24); r0 = r2; r0 += r3",
        "first=2, second=3, base=1, offset=16",
        id="loads",
    ),
    pytest.param(
        "loadpair",
        "r2 = *(u64 *)(r1 - 8); r3 = *(u64 *)(r1 - 16); r0 = r2; r0 += r3",
        "first=3, second=2, base=1, offset=-16",
        id="loads, the upper first",
    ),
    pytest.param(
        "storepair",
        "*(u64 *)(r10 - 16) = r2; *(u64 *)(r10 - 8) = r3; r0 = 0",
        "first=2, second=3, base=10, offset=-16",
        id="stores",
    ),
]

LEFT = [
    pytest.param(
        "loadpair", "r2 = *(u64 *)(r1 + 1024); r3 = *(u64 *)(r1 + 1032); r0 = r2; r0 += r3", id="out of reach"
    ),
    pytest.param("storepair", "*(u64 *)(r10 - 32) = r2; *(u64 *)(r10 - 8) = r3; r0 = 0", id="apart"),
    pytest.param(
        "loadpair", "r1 = *(u64 *)(r1 + 16); r3 = *(u64 *)(r1 + 24); r0 = r1; r0 += r3", id="the base is loaded"
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


@pytest.mark.parametrize("architecture", ["arm64"])
@pytest.mark.parametrize(("name", "text", "site"), FOUND)
def test_what_compilers_emit_becomes_a_proved_site(name, text, site, architecture):
    assert proved_sites(text.replace("; ", "\n"), BY_NAME[name], architecture) == [site]


@pytest.mark.parametrize(("name", "text"), LEFT)
def test_what_only_looks_like_it_is_left(name, text):
    assert proved_sites(text.replace("; ", "\n"), BY_NAME[name], "arm64") == []
