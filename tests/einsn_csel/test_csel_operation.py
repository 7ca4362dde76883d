"""Conditional selects: triangles and diamonds, on every comparison."""

import pytest

from flowshunt.testing import Claim, operation_contract
from flowshunt_ebpf.testing.operation_sites import proved_sites
from flowshunt_einsn_csel.operation import OPERATION

OPERATIONS = (OPERATION,)
BY_NAME = {"csel": OPERATION}

FOUND = [
    pytest.param(
        "csel",
        "r0 = r2; if r1 == r3 goto +1; r0 = r4",
        "dst=0, left=1, condition=1, wide=1, by_number=0, right=3, taken_kind=0, taken=0, other_kind=0, other=4",
        id="triangle on ==",
    ),
    pytest.param(
        "csel",
        "r0 = r2; if r1 != r3 goto +1; r0 = r4",
        "dst=0, left=1, condition=5, wide=1, by_number=0, right=3, taken_kind=0, taken=0, other_kind=0, other=4",
        id="triangle on !=",
    ),
    pytest.param(
        "csel",
        "r0 = r2; if r1 > r3 goto +1; r0 = r4",
        "dst=0, left=1, condition=2, wide=1, by_number=0, right=3, taken_kind=0, taken=0, other_kind=0, other=4",
        id="triangle on >",
    ),
    pytest.param(
        "csel",
        "r0 = r2; if r1 >= r3 goto +1; r0 = r4",
        "dst=0, left=1, condition=3, wide=1, by_number=0, right=3, taken_kind=0, taken=0, other_kind=0, other=4",
        id="triangle on >=",
    ),
    pytest.param(
        "csel",
        "r0 = r2; if r1 < r3 goto +1; r0 = r4",
        "dst=0, left=1, condition=10, wide=1, by_number=0, right=3, taken_kind=0, taken=0, other_kind=0, other=4",
        id="triangle on <",
    ),
    pytest.param(
        "csel",
        "r0 = r2; if r1 <= r3 goto +1; r0 = r4",
        "dst=0, left=1, condition=11, wide=1, by_number=0, right=3, taken_kind=0, taken=0, other_kind=0, other=4",
        id="triangle on <=",
    ),
    pytest.param(
        "csel",
        "r0 = r2; if r1 s> r3 goto +1; r0 = r4",
        "dst=0, left=1, condition=6, wide=1, by_number=0, right=3, taken_kind=0, taken=0, other_kind=0, other=4",
        id="triangle on s>",
    ),
    pytest.param(
        "csel",
        "r0 = r2; if r1 s>= r3 goto +1; r0 = r4",
        "dst=0, left=1, condition=7, wide=1, by_number=0, right=3, taken_kind=0, taken=0, other_kind=0, other=4",
        id="triangle on s>=",
    ),
    pytest.param(
        "csel",
        "r0 = r2; if r1 s< r3 goto +1; r0 = r4",
        "dst=0, left=1, condition=12, wide=1, by_number=0, right=3, taken_kind=0, taken=0, other_kind=0, other=4",
        id="triangle on s<",
    ),
    pytest.param(
        "csel",
        "r0 = r2; if r1 s<= r3 goto +1; r0 = r4",
        "dst=0, left=1, condition=13, wide=1, by_number=0, right=3, taken_kind=0, taken=0, other_kind=0, other=4",
        id="triangle on s<=",
    ),
    pytest.param(
        "csel",
        "r0 = r2; if r1 & r3 goto +1; r0 = r4",
        "dst=0, left=1, condition=4, wide=1, by_number=0, right=3, taken_kind=0, taken=0, other_kind=0, other=4",
        id="triangle on &",
    ),
    pytest.param(
        "csel",
        "r0 = r2; if w1 == 7 goto +1; r0 = r4",
        "dst=0, left=1, condition=1, wide=0, by_number=1, right=7, taken_kind=0, taken=0, other_kind=0, other=4",
        id="32-bit triangle on ==",
    ),
    pytest.param(
        "csel",
        "r0 = r2; if w1 != 7 goto +1; r0 = r4",
        "dst=0, left=1, condition=5, wide=0, by_number=1, right=7, taken_kind=0, taken=0, other_kind=0, other=4",
        id="32-bit triangle on !=",
    ),
    pytest.param(
        "csel",
        "r0 = r2; if w1 > 7 goto +1; r0 = r4",
        "dst=0, left=1, condition=2, wide=0, by_number=1, right=7, taken_kind=0, taken=0, other_kind=0, other=4",
        id="32-bit triangle on >",
    ),
    pytest.param(
        "csel",
        "r0 = r2; if w1 >= 7 goto +1; r0 = r4",
        "dst=0, left=1, condition=3, wide=0, by_number=1, right=7, taken_kind=0, taken=0, other_kind=0, other=4",
        id="32-bit triangle on >=",
    ),
    pytest.param(
        "csel",
        "r0 = r2; if w1 < 7 goto +1; r0 = r4",
        "dst=0, left=1, condition=10, wide=0, by_number=1, right=7, taken_kind=0, taken=0, other_kind=0, other=4",
        id="32-bit triangle on <",
    ),
    pytest.param(
        "csel",
        "r0 = r2; if w1 <= 7 goto +1; r0 = r4",
        "dst=0, left=1, condition=11, wide=0, by_number=1, right=7, taken_kind=0, taken=0, other_kind=0, other=4",
        id="32-bit triangle on <=",
    ),
    pytest.param(
        "csel",
        "r0 = r2; if w1 s> 7 goto +1; r0 = r4",
        "dst=0, left=1, condition=6, wide=0, by_number=1, right=7, taken_kind=0, taken=0, other_kind=0, other=4",
        id="32-bit triangle on s>",
    ),
    pytest.param(
        "csel",
        "r0 = r2; if w1 s>= 7 goto +1; r0 = r4",
        "dst=0, left=1, condition=7, wide=0, by_number=1, right=7, taken_kind=0, taken=0, other_kind=0, other=4",
        id="32-bit triangle on s>=",
    ),
    pytest.param(
        "csel",
        "r0 = r2; if w1 s< 7 goto +1; r0 = r4",
        "dst=0, left=1, condition=12, wide=0, by_number=1, right=7, taken_kind=0, taken=0, other_kind=0, other=4",
        id="32-bit triangle on s<",
    ),
    pytest.param(
        "csel",
        "r0 = r2; if w1 s<= 7 goto +1; r0 = r4",
        "dst=0, left=1, condition=13, wide=0, by_number=1, right=7, taken_kind=0, taken=0, other_kind=0, other=4",
        id="32-bit triangle on s<=",
    ),
    pytest.param(
        "csel",
        "r0 = r2; if w1 & 7 goto +1; r0 = r4",
        "dst=0, left=1, condition=4, wide=0, by_number=1, right=7, taken_kind=0, taken=0, other_kind=0, other=4",
        id="32-bit triangle on &",
    ),
    pytest.param(
        "csel",
        "w0 = 2; if w1 > 1023 goto +1; w0 = 1",
        "dst=0, left=1, condition=2, wide=0, by_number=1, right=1023, taken_kind=0, taken=0, other_kind=3, other=1",
        id="a constant",
    ),
    pytest.param(
        "csel",
        "r0 = 0; if w1 == 65535 goto +1; r0 = -1",
        "dst=0, left=1, condition=1, wide=0, by_number=1, right=65535, taken_kind=0, taken=0, other_kind=2, other=-1",
        id="a port number",
    ),
    pytest.param(
        "csel",
        "r0 = r2; if r1 s> -70000 goto +1; r0 = r3",
        "dst=0, left=1, condition=6, wide=1, by_number=1, right=-70000, taken_kind=0, taken=0, other_kind=0, other=3",
        id="a negative limit",
    ),
    pytest.param(
        "csel",
        "if r1 > r2 goto +2; r0 = r3; goto +1; r0 = r4",
        "dst=0, left=1, condition=2, wide=1, by_number=0, right=2, taken_kind=0, taken=4, other_kind=0, other=3",
        id="diamond of registers",
    ),
    pytest.param(
        "csel",
        "if w1 == 0 goto +2; w0 = 5; goto +1; w0 = -3",
        "dst=0, left=1, condition=1, wide=0, by_number=1, right=0, taken_kind=3, taken=-3, other_kind=3, other=5",
        id="diamond of constants",
    ),
    pytest.param(
        "csel",
        "if r1 & 16 goto +2; r0 = r3; goto +1; r0 = 9",
        "dst=0, left=1, condition=4, wide=1, by_number=1, right=16, taken_kind=2, taken=9, other_kind=0, other=3",
        id="diamond on JSET",
    ),
    pytest.param(
        "csel",
        "if r1 > r2 goto +1; r1 = r2; r0 = r1",
        "dst=1, left=1, condition=2, wide=1, by_number=0, right=2, taken_kind=0, taken=1, other_kind=0, other=2",
        id="the result is compared",
    ),
    pytest.param(
        "csel",
        "r0 = r2; if r1 == 0 goto +1; w0 = w3",
        "dst=0, left=1, condition=1, wide=1, by_number=1, right=0, taken_kind=0, taken=0, other_kind=1, other=3",
        id="the low half",
    ),
    pytest.param(
        "csel",
        "if r1 s< 0 goto +2; r1 = r1; goto +1; r1 = 0; r0 = r1",
        "dst=1, left=1, condition=7, wide=1, by_number=1, right=0, taken_kind=0, taken=1, other_kind=2, other=0",
        id="all from one register",
    ),
]

LEFT = [
    pytest.param("csel", "r0 = r2; if r1 == 0 goto +2; r0 = r3; r0 += 1", id="two instructions under the jump"),
    pytest.param("csel", "if r1 > r2 goto +2; r0 = r3; goto +1; r3 = r4; r0 += r3", id="different registers"),
    pytest.param("csel", "r0 = r2; if r4 == 0 goto +1; if r1 == 0 goto +1; r0 = r3", id="a jump from elsewhere"),
    pytest.param("csel", "r0 = r2; if r1 == 0 goto +1; r0 = 4096", id="a large constant"),
    pytest.param("csel", "r0 = r2; if r1 == 1000000 goto +1; r0 = 1", id="a limit out of range"),
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
