"""The guide's operation works as written: it keeps the contract, finds its idiom, and is proved."""

import re
from pathlib import Path
from types import ModuleType

import pytest

from flowshunt.operation import ExtendedOperation
from flowshunt.testing import operation_contract
from flowshunt_ebpf.testing.operation_sites import proved_sites

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "write-an-operation.md"


@pytest.fixture(scope="module")
def code() -> str:
    (block,) = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    return block


@pytest.fixture(scope="module")
def operation(code: str) -> ExtendedOperation:
    module = ModuleType("least")
    exec(compile(code, str(GUIDE), "exec"), module.__dict__)
    return module.OPERATION


def test_it_has_under_80_lines(code):
    assert len(code.splitlines()) < 80


def test_it_keeps_the_contract(operation):
    for claim in operation_contract(operation):
        claim.check()


@pytest.mark.parametrize("architecture", ["x86_64", "arm64"])
@pytest.mark.parametrize("condition", ["<", "<="])
def test_its_idiom_becomes_a_proved_site(operation, architecture, condition):
    text = f"r0 = r1\nif r0 {condition} r2 goto +1\nr0 = r2"
    assert proved_sites(text, operation, architecture) == ["dst=0, other=2"]


def test_the_greatest_is_left(operation):
    assert proved_sites("r0 = r1\nif r0 > r2 goto +1\nr0 = r2", operation) == []
