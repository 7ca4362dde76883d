"""The command verify, as users call it."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from flowshunt.errors import InputError
from flowshunt_ebpf.cli.group import bpf
from flowshunt_ebpf.kernel import syscall

OBJECTS = Path(__file__).parents[1] / "objects"
SHORT = """
.type xdp
r2 = *(u32 *)(r1 + 0)
r3 = *(u32 *)(r1 + 4)
r4 = r2
r4 += 14
if r4 > r3 goto out
r0 = *(u32 *)(r2 + 14)
out:
r0 = 2
exit
"""
DEAD = """
.type xdp
call bpf_get_prandom_u32
r0 &= 3
if r0 > 3 goto never
exit
never:
r0 = 1
exit
"""


def call(*args, status=0, stdin=None):
    result = CliRunner().invoke(bpf, ["verify", *map(str, args)], input=stdin, standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    assert (result.return_value or 0) == status, result.output
    return result.output


@pytest.fixture
def short(tmp_path):
    file = tmp_path / "short.s"
    file.write_text(SHORT)
    return file


def test_all_programs_of_an_object_are_verified():
    text = call(OBJECTS / "load_balancer.o")
    for name in ("balance", "pick_server", "encapsulate"):
        assert f"{name} (xdp, section xdp): accepted" in text


def test_one_program_is_chosen():
    text = call(OBJECTS / "load_balancer.o", "-p", "balance")
    assert "balance" in text
    assert "encapsulate" not in text


def test_a_rejection_says_what_was_known_and_what_was_needed_and_has_status_1(short):
    text = call(short, status=1)
    assert "instruction 5" in text
    assert "14 bytes proved" in text
    assert "bytes 14 to 17" in text
    assert "instruction 4, not taken" in text
    assert "rule packet-bounds" in text


def test_json_has_verdict_rejection_and_effort(short):
    (found,) = json.loads(call(short, "--json", status=1))["programs"]
    assert found["accepted"] is False
    assert found["rejection"]["index"] == 5
    assert found["rejection"]["rule"] == "packet-bounds"
    assert found["rejection"]["path"] == [{"index": 4, "taken": False}]
    assert found["effort"]["instructions"] >= 5


def test_the_listing_has_what_is_known_at_each_instruction(tmp_path):
    file = tmp_path / "dead.s"
    file.write_text(DEAD)
    text = call(file, "-v")
    assert "if r0 > 3 goto" in text
    assert "r0 0..3" in text
    assert "never reached: instructions 4-5" in text
    (found,) = json.loads(call(file, "-v", "--json"))["programs"]
    assert found["bounds"][2]["r0"]["unsigned"] == [0, 3]
    assert found["bounds"][4] is None
    assert found["unreached"] == [4, 5]


def test_a_limit_that_is_reached_is_a_rejection(short):
    (found,) = json.loads(call(short, "--json", "--limit", "instructions=2", status=1))["programs"]
    assert found["rejection"]["limit"] is True


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--limit", "instructions"), "is no limit"),
        (("--limit", "luck=3"), "limits are instructions"),
        (("--limit", "states=none"), "is no number above 0"),
        (("--limit", "states=0"), "is no number above 0"),
        (("--section", "xdp"), "no object"),
        (("-p", "other"), "no object"),
    ],
)
def test_what_is_asked_for_wrongly_is_said(short, args, message):
    with pytest.raises(InputError, match=message):
        call(short, *args)


def test_a_section_that_is_not_there_is_said():
    with pytest.raises(InputError, match="no programs in section tc"):
        call(OBJECTS / "load_balancer.o", "--section", "tc")


def test_a_program_of_another_kind_is_not_verified_and_has_status_2(tmp_path):
    file = tmp_path / "probe.s"
    file.write_text(".type kprobe\nr0 = 0\nexit\n")
    assert "not verified" in call(file, status=2)


def test_both_verdicts_stand_side_by_side(short):
    if syscall.missing():
        pytest.skip(syscall.missing())
    text = call(short, "--against", "kernel", status=1)
    assert "rejected: rule packet-bounds" in text
    assert f"{syscall.release()}  rejected: " in text
    assert "the two agree" in text


def test_the_kernel_is_not_asked_about_bare_memory(tmp_path):
    file = tmp_path / "memory.s"
    file.write_text("r0 = 0\nexit\n")
    assert "the kernel was not asked: " in call(file, "--against", "kernel")
