"""The action contract tests pass for sound actions, and fail for actions with one fault each."""

import itertools

import pytest

from flowshunt.action import DESCRIPTOR, HOST, TRANSMIT, OffloadAction, Parameter
from flowshunt.insn import DW, JEQ, R0, R1, R2, R3, H, W, call, exit_, ja, jmp_imm, ldx, mov64, mov64_imm, st, stx
from flowshunt.plugins import load_plugins
from flowshunt.testing import action_contract, examine

DROP = (mov64_imm(R0, 0),)


@pytest.mark.parametrize("name", load_plugins().actions)
def test_installed_actions_keep_the_contract(name):
    assert [o for o in examine(action_contract(load_plugins().actions[name])) if not o.passed] == []


def failing_claims(fragment, *parameters):
    action = OffloadAction("test", "a test", fragment, tuple(parameters))
    return {outcome.claim.name for outcome in examine(action_contract(action)) if not outcome.passed}


def test_a_sound_action_passes():
    assert failing_claims(lambda parameters: DROP, Parameter("a", "s", 0, 9, 3), Parameter("b", "s")) == set()


UNSOUND = {
    "it exits": (mov64_imm(R0, 0), exit_()),
    "it calls": (call(5), mov64_imm(R0, 0)),
    "it jumps back": (mov64_imm(R0, 0), ja(-1)),
    "it jumps too far": (mov64_imm(R0, 0), jmp_imm(JEQ, R0, 0, 1)),
    "it leaves no disposition on one way": (mov64_imm(R3, 0), jmp_imm(JEQ, R3, 0, 1), mov64_imm(R0, 0)),
    "it writes an input": (st(W, R1, DESCRIPTOR.fields["wire"][1], 0), *DROP),
    "it writes past its bytes": (stx(DW, R2, R2, 28), *DROP),
    "it reads past the descriptor": (ldx(DW, R3, R1, 44), *DROP),
    "it leaks a pointer": (mov64(R0, R1),),
    "it is empty": (),
    "it is too long": tuple(mov64_imm(R0, 0) for _ in range(100)),
}


@pytest.mark.parametrize("fault", UNSOUND)
def test_an_unsound_fragment_is_caught(fault):
    assert "every-parameter-gives-a-sound-fragment" in failing_claims(lambda parameters: UNSOUND[fault])


def test_a_fragment_that_is_unsound_at_one_end_of_its_range_is_caught():
    def fragment(parameters):
        return (st(H, R1, DESCRIPTOR.fields["tx_port"][1] + (parameters["port"] == 8), 0), mov64_imm(R0, HOST))

    assert failing_claims(fragment, Parameter("port", "s", 0, 7)) == set()
    assert "every-parameter-gives-a-sound-fragment" in failing_claims(fragment, Parameter("port", "s", 0, 8))


def test_a_range_that_the_fragment_can_not_encode_is_caught():
    failed = failing_claims(
        lambda parameters: (mov64_imm(R0, parameters["n"] & 0), mov64_imm(R3, parameters["n"])), BIG
    )
    assert "every-parameter-gives-a-sound-fragment" in failed


BIG = Parameter("n", "s", 0, 1 << 40)


def test_a_disposition_without_meaning_is_caught():
    assert failing_claims(lambda parameters: (mov64_imm(R0, 4),)) == {"a-fragment-leaves-a-disposition"}


def test_sending_without_a_port_is_caught():
    assert failing_claims(lambda parameters: (mov64_imm(R0, TRANSMIT),)) == {"a-fragment-leaves-a-disposition"}


def test_delivering_more_than_there_is_is_caught():
    deliver = DESCRIPTOR.fields["deliver"][1]
    failed = failing_claims(lambda parameters: (st(W, R1, deliver, 9000), mov64_imm(R0, HOST)))
    assert failed == {"a-fragment-leaves-a-disposition"}


def test_a_fragment_that_changes_from_call_to_call_is_caught():
    counter = itertools.count()
    failed = failing_claims(lambda parameters: (mov64_imm(R3, next(counter)), mov64_imm(R0, 0)))
    assert failed == {"a-fragment-depends-on-its-parameters-alone"}


def test_an_action_that_takes_any_parameter_is_caught():
    class Lax(OffloadAction):
        def check(self, given):
            return {"a": 1, **given}

    lax = Lax("lax", "takes anything", lambda parameters: DROP, (Parameter("a", "s", 0, 5),))
    failed = {outcome.claim.name for outcome in examine(action_contract(lax)) if not outcome.passed}
    assert failed == {"wrong-parameters-are-refused"}
