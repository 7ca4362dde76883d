"""Address calculations: scaled index, base, displacement, products by 3, 5 and 9."""

import pytest

from flowshunt.testing import Claim, operation_contract
from flowshunt_ebpf.testing.operation_sites import proved_sites
from flowshunt_einsn_lea.operation import OPERATION

OPERATIONS = (OPERATION,)
BY_NAME = {"lea": OPERATION}

FOUND = [
    pytest.param(
        "lea",
        "r0 = r2; r0 <<= 3; r0 += r1",
        "dst=0, base=1, index=2, scaled=15, shift=3, displacement=0, times=0, wide=1",
        id="scaled",
    ),
    pytest.param(
        "lea",
        "r0 = r1; r2 <<= 2; r0 += r2; r0 += 100",
        "dst=0, base=1, index=2, scaled=15, shift=2, displacement=100, times=0, wide=1",
        id="scaled, displaced",
    ),
    pytest.param(
        "lea",
        "r2 <<= 3; r1 += r2; r0 = r1",
        "dst=1, base=1, index=2, scaled=2, shift=3, displacement=0, times=0, wide=1",
        id="onto the base",
    ),
    pytest.param(
        "lea",
        "r0 = r1; r0 += r2; r0 += -20",
        "dst=0, base=1, index=2, scaled=15, shift=0, displacement=-20, times=0, wide=1",
        id="two registers and a displacement",
    ),
    pytest.param(
        "lea",
        "r0 = r1; r0 *= 5",
        "dst=0, base=1, index=1, scaled=15, shift=2, displacement=0, times=1, wide=1",
        id="times five",
    ),
    pytest.param(
        "lea",
        "r0 = r1; r0 *= 9; r0 += 3",
        "dst=0, base=1, index=1, scaled=15, shift=3, displacement=3, times=1, wide=1",
        id="times nine, displaced",
    ),
    pytest.param(
        "lea",
        "w0 = w1; w2 <<= 3; w0 += w2",
        "dst=0, base=1, index=2, scaled=15, shift=3, displacement=0, times=0, wide=0",
        id="32 bits",
    ),
]

LEFT = [
    pytest.param("lea", "r2 <<= 4; r2 *= 7; r0 = r2", id="scaled by 16"),
    pytest.param("lea", "r2 <<= 3; r1 += r2; r0 = r1; r0 ^= r2", id="a scaled index that is read later"),
    pytest.param("lea", "r0 += r1", id="one addition"),
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
