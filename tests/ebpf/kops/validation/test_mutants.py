"""Every wrong native form, proof sequence and rewrite is refused, and the right one beside it is proved."""

import importlib.util
import sys
from pathlib import Path

import attrs
import pytest

from flowshunt.host_registers import BY_ARCHITECTURE
from flowshunt.operation import NativeEmit
from flowshunt_ebpf.asm import assemble as assemble_text
from flowshunt_ebpf.kops.validation import Proof, Prover, Refusal, prove_emit, prove_form, prove_site
from flowshunt_ebpf.kops.validation.cache import ProofCache
from flowshunt_ebpf.program import live_set


def _data():
    specification = importlib.util.spec_from_file_location("kops_mutants", Path(__file__).with_name("mutants.py"))
    module = importlib.util.module_from_spec(specification)
    sys.modules[specification.name] = module
    specification.loader.exec_module(module)
    return module


MUTANTS = _data()
PROVER = Prover(ProofCache(None, use_shipped=False))


def named(cases):
    return pytest.mark.parametrize("case", cases, ids=[f"{n}-{case.what}" for n, case in enumerate(cases)])


@named(MUTANTS.WRONG_EMITS)
def test_a_wrong_native_form_is_refused(case):
    operation = case.operation
    payload = operation.layout.encode(**case.values)
    assert operation.check_payload(payload) is None
    form, text = operation.emit(case.architecture, payload, case.features, BY_ARCHITECTURE[case.architecture])
    assert isinstance(prove_form(operation, payload, case.architecture, form, text, PROVER), Proof), text
    assert case.right in text, text
    wrong = text.replace(case.right, case.wrong) if case.right else f"{text}\n{case.wrong}"
    assert wrong != text
    roomy = attrs.evolve(operation, max_bytes=256)
    refused = prove_form(roomy, payload, case.architecture, NativeEmit(lambda v, r: wrong), wrong, PROVER)
    assert isinstance(refused, Refusal) and refused.reason, wrong


@named(MUTANTS.WRONG_SEQUENCES)
def test_a_native_form_is_refused_for_a_wrong_proof_sequence(case):
    operation = case.operation
    payload = operation.layout.encode(**case.values)
    changed = tuple(case.change(operation.proof_sequence(payload)))
    assert changed != operation.proof_sequence(payload)
    wrong = attrs.evolve(operation, proof=lambda values: changed)
    for architecture in ("x86_64", "arm64"):
        assert isinstance(prove_emit(operation, payload, architecture, MUTANTS.BMI, PROVER), Proof)
        assert isinstance(prove_emit(wrong, payload, architecture, MUTANTS.BMI, PROVER), Refusal)


def judged(case):
    original, rewritten = (assemble_text(text).instructions for text in (case.original, case.rewritten))
    live = sum(live_set.whole(register) for register in case.live)
    lost = {len(rewritten): sum(1 << register for register in case.lost)}
    return prove_site(original, rewritten, live, lost=lost, prover=PROVER)


@named(MUTANTS.RIGHT_REWRITES)
def test_a_right_rewrite_is_proved(case):
    assert isinstance(judged(case), Proof)


@named(MUTANTS.WRONG_REWRITES)
def test_a_wrong_rewrite_is_refused(case):
    refused = judged(case)
    assert isinstance(refused, Refusal) and "counterexample" in refused.reason


def test_there_are_enough_of_them():
    assert len(MUTANTS.WRONG_EMITS) + len(MUTANTS.WRONG_SEQUENCES) + len(MUTANTS.WRONG_REWRITES) >= 60
