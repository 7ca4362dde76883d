"""`flowshunt bpf prove`: what it prints, and how it ends."""

import json
from pathlib import Path

import attrs
import pytest
from click.testing import CliRunner

from flowshunt.errors import InputError
from flowshunt.operation import NativeEmit
from flowshunt_ebpf.cli.prove import prove
from flowshunt_ebpf.kops import registry
from flowshunt_ebpf.kops.validation import cache
from flowshunt_einsn_rotate.operation import OPERATION as ROTATE

OBJECTS = Path(__file__).parents[2] / "objects"


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("FLOWSHUNT_CACHE", str(tmp_path))
    cache.default_cache.cache_clear()
    yield
    cache.default_cache.cache_clear()


def run(*arguments):
    return CliRunner().invoke(prove, arguments, standalone_mode=False)


def test_an_operation_is_proved_form_by_form():
    result = run("rotate", "--limit", "4", "--jobs", "1", "--json")
    assert result.return_value == 0, result.output
    said = json.loads(result.output)
    assert {(form["architecture"], form["number"]) for form in said["forms"]} == {
        ("x86_64", 0),
        ("x86_64", 1),
        ("arm64", 0),
    }
    for form in said["forms"]:
        assert form["payloads"] == 4 and 0 < form["proofs"] <= 4 and form["refused"] == []
        assert form["unicorn"] > 0
    assert said["unproved"] == 0 and len(said["solvers"]) == 2


def test_one_solver_may_be_asked_alone():
    result = run("rotate", "--limit", "2", "--arch", "arm64", "--solver", "z3", "--jobs", "1", "--json")
    assert [name.split()[0] for name in json.loads(result.output)["solvers"]] == ["z3"]


def test_a_wrong_operation_ends_with_1_and_a_counterexample(monkeypatch):
    wrong = attrs.evolve(
        ROTATE,
        emits={"x86_64": (NativeEmit(lambda v, r: f"rol {r(v.dst)}, {v.amount + 1}" if not v.by_register else ""),)},
    )
    monkeypatch.setattr(registry, "installed_operations", lambda: {"rotate": wrong})
    result = run("rotate", "--limit", "3", "--arch", "x86_64", "--jobs", "1")
    assert result.return_value == 1
    assert "counterexample" in result.output and "machine code: rol" in result.output


def test_the_sites_of_a_program_are_proved():
    result = run(str(OBJECTS / "packet_parser.o"), "--arch", "x86_64", "--json")
    said = json.loads(result.output)
    assert result.return_value == 0 and said["unproved"] == 0
    assert {row["obligation"] for row in said["sites"]} == {"original == proof sequence", "machine code of x86_64"}
    assert any("packet_parser.bpf.c" in row["where"] for row in said["sites"])


def test_what_was_proved_before_comes_from_the_cache():
    first = json.loads(run(str(OBJECTS / "rate_limiter.o"), "--arch", "x86_64", "--json").output)
    second = json.loads(run(str(OBJECTS / "rate_limiter.o"), "--arch", "x86_64", "--json").output)
    assert len(second["sites"]) == len(first["sites"]) > 0
    assert all(row["source"] != "solved" for row in second["sites"])


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ((), "nothing to prove is named"),
        (("no such thing",), "neither an operation nor a file"),
        (("--rebuild",), "--all alone"),
        (("--all", "--rebuild", "--solver", "z3"), "--all alone"),
    ],
)
def test_wrong_usage_is_told(arguments, what):
    result = run(*arguments)
    assert isinstance(result.exception, InputError) and what in str(result.exception)
