"""`flowshunt bpf optimize`, and run, bench and verify with what it writes."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from flowshunt.errors import InputError
from flowshunt.plugins import load_plugins
from flowshunt_ebpf.asm import assemble
from flowshunt_ebpf.cli.group import bpf
from flowshunt_ebpf.kops.encoding import is_encoded
from flowshunt_ebpf.program import Program

pytestmark = pytest.mark.skipif("rotate" not in load_plugins().operations, reason="no plugin rotates")

TEXT = """
.name mixer
.type xdp
    r6 = *(u32 *)(r1 + 0)
    r7 = *(u32 *)(r1 + 4)
    r2 = r6
    r2 += 16
    if r2 > r7 goto out
    r1 = *(u64 *)(r6 + 0)
    r2 = r1
    r5 = 7
    r2 <<= 13
    r1 >>= 51
    r1 |= r2
    r1 += r5
    *(u64 *)(r6 + 0) = r1
out:
    r0 = 2
    exit
"""


@pytest.fixture
def text(tmp_path: Path) -> str:
    file = tmp_path / "mixer.s"
    file.write_text(TEXT)
    return str(file)


def call(*args: str, status: int = 0) -> str:
    result = CliRunner().invoke(bpf, list(args), standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    assert (result.return_value or 0) == status, result.output
    return result.output


def test_it_tells_of_each_site(text):
    (row,) = json.loads(call("optimize", text, "--ops", "rotate", "--json"))["programs"]
    assert (row["found"], row["admissible"], row["proved"], row["used"]) == (1, 1, 1, 1)
    (site,) = row["sites"]
    assert (site["operation"], site["index"], site["used"], site["reason"]) == ("rotate", 10, True, None)
    assert row["verifier"] == {"before": True, "after": True}
    assert row["native_bytes"]["after"] < row["native_bytes"]["before"]


def test_it_shows_the_program_before_and_after(text):
    shown = call("optimize", text, "--ops", "rotate", "--policy", "all", "-v", "--arch", "arm64")
    assert "1 found, 1 admissible, 1 used" in shown
    assert "verifier: accepted before, accepted after" in shown
    assert "ror x0, x0, #0x33" in shown
    assert "| rotate" in shown


@pytest.mark.parametrize("name", ["out.s", "out.bin"])
def test_what_it_writes_is_read_back_and_runs_everywhere(text, tmp_path, name):
    out = str(tmp_path / name)
    call("optimize", text, "--ops", "rotate", "-o", out)
    written = Program.from_bytes(Path(out).read_bytes()) if name == "out.bin" else assemble(Path(out).read_text())
    assert is_encoded(written)
    context = ("--context", "xdp")
    packet = ("--packet", "0123456789abcdef" * 8)
    wanted = json.loads(call("run", text, *packet, "--json"))
    assert wanted["packet_changed"]
    for runner in ("interpret", "host", "unicorn-x86_64", "unicorn-arm64"):
        found = json.loads(call("run", out, *context, *packet, "--runner", runner, "--json"))
        assert (found["value"], found["packet"]) == (wanted["value"], wanted["packet"])
    assert "accepted" in call("verify", out, *context)
    assert ".insn 0xb7" in call("disasm", out)
    assert ".insn" not in call("disasm", out, "--native", "x86_64")


@pytest.mark.parametrize("policy", ["none", "all", "static"])
def test_run_takes_a_policy(text, policy):
    packet = ("--packet", "0123456789abcdef" * 8)
    wanted = json.loads(call("run", text, *packet, "--json"))
    for runner in ("host", "unicorn-arm64"):
        assert json.loads(call("run", text, *packet, "--policy", policy, "--runner", runner, "--json")) == wanted


def test_bench_has_a_column_for_each_policy_and_the_ceiling(text):
    args = ("bench", text, "--runner", "host", "--policy", "static", "--policy", "all", "--ops", "rotate", "--ceiling")
    found = json.loads(call(*args, "--rounds", "3", "--seconds", "0.002", "--json"))
    assert [row["name"] for row in found["runners"]] == ["host", "LLVM -O3", "host, static", "host, all"]
    sizes = {row["name"]: row["native_bytes"] for row in found["runners"]}
    assert all(sizes.values())
    assert sizes["host, static"] < sizes["host"]


def test_a_measurement_is_saved_and_used_again(text, tmp_path):
    plan = str(tmp_path / "plan.json")
    packet = "0123456789abcdef" * 8
    measured = ("--packet", packet, "--rounds", "3", "--save-policy", plan, "--ops", "rotate", "--json")
    (row,) = json.loads(call("optimize", text, *measured))["programs"]
    assert set(row["profile"]["families"]) == {"rotate"}
    assert row["profile"]["ratio"] >= 0.98
    (again,) = json.loads(call("optimize", text, "--plan", plan, "--ops", "rotate", "--json"))["programs"]
    assert again["used"] == row["used"]
    other = tmp_path / "other.s"
    other.write_text(TEXT.replace("r5 = 7", "r5 = 8"))
    with pytest.raises(InputError, match="about other instructions"):
        call("optimize", str(other), "--plan", plan)


def test_a_program_that_the_verifier_rejects_has_status_1(tmp_path):
    file = tmp_path / "wild.s"
    file.write_text(TEXT.replace("if r2 > r7 goto out", "r2 = 0"))
    assert "verifier: REJECTED before, REJECTED after" in call("optimize", str(file), status=1)


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        (("--ops", "spun"), "there is no extended operation 'spun'"),
        (("--plan", "nothing.json"), "nothing.json"),
        (("--profile", "nothing.pcap"), "there is no such capture"),
        (("--policy", "profile"), "needs a measurement"),
        (("--packet", "00", "--policy", "all"), "a measurement decides by itself"),
        (("--section", "xdp"), "is no object"),
        (("-o", "/nowhere/out.s"), "/nowhere/out.s"),
    ],
)
def test_bad_usage_says_what_and_where(text, args, reason):
    with pytest.raises(InputError, match=reason):
        call("optimize", text, *args)


def test_all_programs_of_a_section_are_told_of():
    objects = Path(__file__).parents[1] / "objects"
    file = str(objects / "load_balancer.o")
    rows = json.loads(call("optimize", file, "--section", "xdp", "--policy", "none", "--json"))["programs"]
    assert {row["used"] for row in rows} == {0}
    with pytest.raises(InputError, match="programs are chosen"):
        call("optimize", file, "-o", "out.s")
    with pytest.raises(InputError, match="sections with programs"):
        call("optimize", file, "--section", "tc")
