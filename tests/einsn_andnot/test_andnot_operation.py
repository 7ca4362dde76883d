"""And-not: an AND with a complement, either way round."""

import pytest

from flowshunt.testing import Claim, operation_contract
from flowshunt_ebpf.testing.operation_sites import proved_sites
from flowshunt_einsn_andnot.operation import OPERATION

OPERATIONS = (OPERATION,)
BY_NAME = {"andnot": OPERATION}

FOUND = [
    pytest.param(
        "andnot", "r0 = r1; r0 ^= -1; r0 &= r2", "dst=0, kept=2, cleared=1, complement=15, wide=1", id="64 bits"
    ),
    pytest.param(
        "andnot", "w0 = w1; w0 ^= -1; w0 &= w2", "dst=0, kept=2, cleared=1, complement=15, wide=0", id="32 bits"
    ),
    pytest.param(
        "andnot",
        "r2 ^= -1; r1 &= r2; r0 = r1",
        "dst=1, kept=1, cleared=2, complement=2, wide=1",
        id="onto what is kept",
    ),
]

LEFT = [
    pytest.param("andnot", "r0 ^= -2; r0 &= r2", id="another mask"),
    pytest.param("andnot", "r1 ^= -1; r0 &= r1; r0 += r1", id="a complement that is read later"),
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
    assert proved_sites(text.replace("; ", "\n"), BY_NAME[name], "x86_64") == []
