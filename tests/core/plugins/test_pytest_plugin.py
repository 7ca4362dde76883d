"""The pytest plugin: the marker `flowshunt_contract` gives a test one claim at a time."""

pytest_plugins = ["pytester"]

TEST = """
import pytest
from flowshunt.action import OffloadAction
from flowshunt.insn import R0, exit_, mov64_imm

GOOD = OffloadAction("good", "s", lambda parameters: (mov64_imm(R0, 0),))
BAD = OffloadAction("bad", "s", lambda parameters: (exit_(),))

@pytest.mark.flowshunt_contract({objects})
def test_contract(claim):
    claim.check()
"""


def test_each_claim_is_a_test(pytester):
    pytester.makepyfile(TEST.format(objects="GOOD"))
    pytester.runpytest("--strict-markers").assert_outcomes(passed=5)


def test_a_claim_that_does_not_hold_is_a_failed_test(pytester):
    pytester.makepyfile(TEST.format(objects="GOOD, BAD"))
    outcome = pytester.runpytest("--strict-markers", "-rf")
    counts = outcome.parseoutcomes()
    assert counts["passed"] + counts["failed"] == 10
    outcome.stdout.fnmatch_lines(["*FAILED*offload-action-bad-every-parameter-gives-a-sound-fragment*"])


def test_what_has_no_contract_is_an_error(pytester):
    pytester.makepyfile(TEST.format(objects="'thing'"))
    outcome = pytester.runpytest("--strict-markers")
    assert outcome.ret != 0
    outcome.stdout.fnmatch_lines(["*'thing' is no NIC model, offload action, extended operation or detection engine*"])


def test_other_tests_are_left_alone(pytester):
    pytester.makepyfile(
        "import pytest\n@pytest.fixture\ndef claim(): return 1\ndef test_own(claim): assert claim == 1\n"
    )
    pytester.runpytest().assert_outcomes(passed=1)
