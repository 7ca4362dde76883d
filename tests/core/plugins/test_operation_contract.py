"""The operation contract tests pass for sound operations, and fail for operations with one fault each."""

import importlib
import itertools

import attrs
import pytest

from flowshunt.insn import (
    JEQ,
    LSH,
    R1,
    RSH,
    Instruction,
    W,
    alu64_imm,
    call,
    exit_,
    ja,
    jmp_imm,
    ld_abs,
    ld_imm64,
    ld_map_fd,
    may_goto,
    mov64_imm,
)
from flowshunt.operation import Match, NativeEmit
from flowshunt.plugins import load_plugins
from flowshunt.scaffold import write_plugin
from flowshunt.testing import examine, operation_contract


@pytest.mark.parametrize("name", load_plugins().operations)
def test_installed_operations_keep_the_contract(name):
    assert [o for o in examine(operation_contract(load_plugins().operations[name])) if not o.passed] == []


@pytest.fixture
def operation(tmp_path, monkeypatch):
    """The operation that `flowshunt plugins new operation` writes: align down by two shifts."""
    folder = write_plugin("operation", "spoiled", tmp_path)
    monkeypatch.syspath_prepend(str(folder / "src"))
    yield importlib.import_module("flowshunt_einsn_spoiled.operation").OPERATION
    for name in ("", ".operation"):
        monkeypatch.delitem(importlib.sys.modules, f"flowshunt_einsn_spoiled{name}")


def failing_claims(operation, **changes):
    spoiled = attrs.evolve(operation, **changes)
    return {outcome.claim.name for outcome in examine(operation_contract(spoiled)) if not outcome.passed}


def test_the_operation_of_the_template_passes(operation):
    assert failing_claims(operation) == set()


BROKEN_SEQUENCES = {
    "empty": (),
    "too long": (mov64_imm(R1, 0),) * 3,
    "a call": (call(1),),
    "an exit": (exit_(),),
    "a jump back": (mov64_imm(R1, 0), ja(-2)),
    "a jump past the end": (jmp_imm(JEQ, R1, 0, 1),),
    "a jump into a wide load": (ja(1), ld_imm64(R1, 1 << 40)),
    "a map": (ld_map_fd(R1, 3),),
    "a packet load": (ld_abs(W, 0),),
    "a loop": (may_goto(0),),
    "a register that does not exist": (mov64_imm(11, 0),),
    "no eBPF at all": (Instruction(0xFF),),
    "no instruction at all": ("r1 = 0",),
}


@pytest.mark.parametrize("fault", BROKEN_SEQUENCES)
def test_a_proof_sequence_against_the_rules_is_caught(operation, fault):
    failed = failing_claims(operation, proof=lambda values: BROKEN_SEQUENCES[fault])
    assert "proof-sequences-obey-the-rules" in failed


@pytest.mark.parametrize("sequence", [(ja(0),), (jmp_imm(JEQ, R1, 0, 1), mov64_imm(R1, 0)), (ld_imm64(R1, 1 << 40),)])
def test_jumps_inside_and_just_past_the_end_are_allowed(operation, sequence):
    assert "proof-sequences-obey-the-rules" not in failing_claims(operation, proof=lambda values: sequence)


def test_a_proof_sequence_that_changes_is_caught(operation):
    numbers = itertools.count()
    failed = failing_claims(operation, proof=lambda values: (mov64_imm(R1, next(numbers)),))
    assert "proof-sequences-are-pure" in failed


def test_an_operation_that_takes_no_payload_is_caught(operation):
    assert "payloads-are-judged" in failing_claims(operation, admissible=lambda values: "no")


def test_an_operation_whose_verdict_on_a_payload_changes_is_caught(operation):
    numbers = itertools.count()
    judge = lambda values: None if next(numbers) % 2 else "not now"  # noqa: E731
    assert "payloads-are-judged" in failing_claims(operation, admissible=judge)


@pytest.mark.parametrize(
    "emit",
    [
        lambda values, register: "",
        lambda values, register: b"nop",
        lambda values, register: f"and {register(values.dst, 65)}, 0",
        lambda values, register: f"and {register(12, 64)}, 0",
        lambda values, register: f"and {register(values.nothing, 64)}, 0",
    ],
    ids=["always declined", "bytes", "odd width", "no such register", "no such field"],
)
def test_a_native_form_that_gives_no_text_is_caught(operation, emit):
    assert failing_claims(operation, emits={"x86_64": (NativeEmit(emit),)}) == {"emits-are-pure-text"}


def test_a_native_form_that_changes_is_caught(operation):
    numbers = itertools.count()
    emit = NativeEmit(lambda values, register: f"mov eax, {next(numbers)}")
    assert failing_claims(operation, emits={"arm64": (emit,)}) == {"emits-are-pure-text"}


def test_a_recognizer_that_finds_nothing_is_caught(operation):
    assert failing_claims(operation, recognizer=lambda view: []) == {"the-recognizer-finds-its-own-idiom"}


@pytest.mark.parametrize(
    "match",
    [
        Match((-1, 0), 0x11),
        Match((), 0x11),
        Match((0, 1 << 10), 0x11),
        Match((1, 0), 0x11),
        Match((0,), 1 << 60),
        Match((), 0x11, at=1 << 10),
        (0, 1, 0x11),
    ],
    ids=["before", "empty", "beyond", "not ascending", "no payload", "put beyond", "no Match"],
)
def test_a_match_outside_the_program_is_caught(operation, match):
    recognize = lambda view: [*operation.recognizer(view), match] if view.instructions else []  # noqa: E731
    assert "matches-lie-in-the-program" in failing_claims(operation, recognizer=recognize)


def test_a_recognizer_that_looks_past_the_end_is_caught(operation):
    def recognize(view):
        program = view.instructions
        return [
            Match((at, at + 1), 0x11)
            for at in range(len(program))
            if program[at].opcode == alu64_imm(RSH, 0, 1).opcode
            and program[at + 1].opcode == alu64_imm(LSH, 0, 1).opcode
        ]

    assert "matches-lie-in-the-program" in failing_claims(operation, recognizer=recognize)
