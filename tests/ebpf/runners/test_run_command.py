"""The commands run, bench and conformance, as users call them."""

import json
import struct

import pytest
from click.testing import CliRunner

from flowshunt.errors import InputError
from flowshunt.insn import DW, JLT, encode, exit_, jmp_imm, ldx, mov64, mov64_imm
from flowshunt_ebpf.cli.group import bpf

COUNTER = """
.type xdp
.map counter array key=4 value=8 entries=4
r6 = r1
*(u32 *)(r10 - 4) = 1
r2 = r10
r2 += -4
r1 = counter ll
call bpf_map_lookup_elem
if r0 == 0 goto out
r1 = *(u64 *)(r0 + 0)
r1 += 1
*(u64 *)(r0 + 0) = r1
r2 = *(u32 *)(r6 + 0)
r3 = *(u32 *)(r6 + 4)
r4 = r2
r4 += 1
if r4 > r3 goto out
*(u8 *)(r2 + 0) = 255
out:
r0 = 2
exit
"""


def call(*args, status=0, stdin=None):
    result = CliRunner().invoke(bpf, list(args), input=stdin, standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    assert (result.return_value or 0) == status, result.output
    return result.output


@pytest.fixture
def counter(tmp_path):
    file = tmp_path / "counter.s"
    file.write_text(COUNTER)
    return str(file)


@pytest.mark.parametrize("runner", ["interpret", "host", "unicorn-x86_64", "unicorn-arm64"])
def test_run_shows_value_packet_and_maps(counter, runner, tmp_path):
    contents = tmp_path / "maps.json"
    contents.write_text('{"counter": {"1": 41}}')
    text = call("run", counter, "--packet", "00 11 22", "--maps", str(contents), "--runner", runner)
    assert "returned 2 (XDP_PASS)" in text
    assert "packet: ff1122" in text
    assert "0x01000000: 0x2a00000000000000" in text


def test_run_gives_json(counter):
    found = json.loads(call("run", counter, "--json", "--repeat", "100"))
    assert found["value"] == 2
    assert found["packet"].startswith("ff")
    assert found["maps"] == {"counter": {"0x01000000": "0x0100000000000000"}}
    assert found["ns_per_run"] > 0


def test_a_stopped_run_says_where_and_has_status_1(tmp_path):
    file = tmp_path / "bad.s"
    file.write_text("r0 = *(u64 *)(r1 + 8)\nexit\n")
    text = call("run", str(file), "--packet", "00112233", "--runner", "interpret", status=1)
    assert "instruction 0: stopped: it accessed memory that is not its own" in text


@pytest.mark.parametrize("command", ["run", "bench"])
def test_the_host_runs_nothing_that_is_rejected(tmp_path, command):
    file = tmp_path / "bad.s"
    file.write_text("r0 = *(u64 *)(r1 + 8)\nexit\n")
    text = call(command, str(file), status=1)
    assert "the verifier rejects it: program main, instruction 0" in text
    assert "returned" not in text


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--packet", "zz"), "hexadecimal"),
        (("--packet", "@/no/such/file"), "no such file"),
        (("--set", "nonsense"), "sets no field"),
        (("--set", "nonsense=1"), "no field nonsense"),
        (("--set", "ingress_ifindex=0x100000000"), "ingress_ifindex is 4294967296 .*32 bits fit"),
        (("--set", "ingress_ifindex=-0x80000001"), "32 bits fit"),
        (("--context", "tc", "--set", "cb[x]=1"), r"no field cb\[x\]"),
        (("--context", "tc", "--set", "cb[]=1"), r"no field cb\[\]"),
        (("--context", "tc", "--set", "cb[9]=1"), r"no field cb\[9\]"),
        (("--packet", "/no/such.pcap:0"), "/no/such.pcap: there is no such capture"),
        (("--maps", "/no/such/file"), "no such file"),
    ],
)  # fmt: skip
def test_wrong_options_are_named(counter, args, message):
    with pytest.raises(InputError, match=message):
        call("run", counter, *args)


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        ("[]", "no JSON object"),
        ("{", "no JSON"),
        ('{"other": {}}', "no map other"),
        ('{"counter": {"x": 1}}', "no number"),
        ('{"counter": {"1": "0x00"}}', "1 bytes"),
        ('{"counter": {"9": 1}}', "none of the map's"),
        ('{"counter": 5}', "no JSON object"),
        ('{"counter": {"1": null}}', "stands for no bytes"),
        ('{"counter": {"1": 99999999999999999999}}', "does not fit"),
        ("[" * 100_000, "nested too deeply"),
        ('{"counter": {"1": %s}}' % ("9" * 5000), "no JSON"),
        ('{"counter": {"%s": 1}}' % ("9" * 100_000), r"'9{99}\.\.\. is no number"),
    ],
)
def test_wrong_map_contents_are_named(counter, tmp_path, contents, message):
    file = tmp_path / "maps.json"
    file.write_text(contents)
    with pytest.raises(InputError, match=message):
        call("run", counter, "--maps", str(file))


def test_a_frame_of_a_capture(counter, tmp_path):
    capture = tmp_path / "two.pcap"
    frames = [bytes([n]) * 60 for n in (1, 2)]
    header = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
    capture.write_bytes(header + b"".join(struct.pack("<IIII", 0, 0, 60, 60) + frame for frame in frames))
    assert json.loads(call("run", counter, "--packet", f"{capture}:1", "--json"))["packet"] == "ff" + "02" * 59
    with pytest.raises(InputError, match="no frame 2"):
        call("run", counter, "--packet", f"{capture}:2")


def test_bench_prints_ratios(counter):
    args = (
        "bench",
        counter,
        "--runner",
        "host",
        "--runner",
        "interpret",
        "--rounds",
        "3",
        "--seconds",
        "0.002",
    )
    found = json.loads(call(*args, "--json"))
    assert [row["name"] for row in found["runners"]] == ["host", "interpret"]
    assert found["runners"][0]["ratio"] == 1
    assert 0 < found["runners"][1]["ratio"] < 1
    assert found["runners"][0]["native_bytes"] > 0
    assert found["verifier"] == "flowshunt"


@pytest.mark.parametrize("runner", ["interpret", "host", "unicorn-x86_64", "unicorn-arm64"])
def test_conformance_speaks_the_suites_protocol(runner):
    program = encode((mov64_imm(0, 0), jmp_imm(JLT, 2, 8, 1), ldx(DW, 0, 1, 0), exit_())).hex(" ")
    memory = struct.pack("<Q", 0x1122334455667788).hex(" ")
    assert call("conformance", memory, "--runner", runner, stdin=program + "\n") == "1122334455667788\n"
    length = encode((mov64(0, 2), exit_())).hex(" ")
    assert call("conformance", "--runner", runner, "--program", length) == "0\n"


def test_conformance_fails_with_a_line_on_standard_error():
    program = encode((ldx(DW, 0, 1, 0), exit_())).hex(" ")
    result = CliRunner().invoke(bpf, ["conformance"], input=program, standalone_mode=False)
    assert result.return_value == 1
    assert result.stdout == ""
    assert "stopped" in result.stderr


def test_conformance_stops_an_endless_program():
    program = (
        encode((mov64_imm(0, 0), mov64_imm(0, 0), exit_()))[:8] + bytes.fromhex("0500ffff00000000") + encode((exit_(),))
    )
    result = CliRunner().invoke(bpf, ["conformance", "--budget", "100"], input=program.hex(" "), standalone_mode=False)
    assert result.return_value == 1
    assert "budget" in result.stderr


def test_queues_and_inner_maps_are_among_what_changed(tmp_path):
    file, contents = tmp_path / "program.s", tmp_path / "maps.json"
    file.write_text("""
        .type xdp
        .map line queue key=0 value=4 entries=4
        .inner slot array key=4 value=8 entries=1
        .map outer array_of_maps key=4 value=4 entries=3 inner=slot
        *(u32 *)(r10 - 4) = 2
        r1 = map[line]
        r2 = r10
        r2 += -4
        r3 = 0
        call bpf_map_push_elem
        r1 = map[outer]
        r2 = r10
        r2 += -4
        call bpf_map_lookup_elem
        if r0 == 0 goto out
        r1 = r0
        *(u32 *)(r10 - 4) = 0
        r2 = r10
        r2 += -4
        call bpf_map_lookup_elem
        if r0 == 0 goto out
        *(u64 *)(r0 + 0) = 9
        out: r0 = 2
        exit
        """)
    contents.write_text(json.dumps({"line": [7], "outer": {"2": {"0": 1}}}))
    arguments = ("run", str(file), "--packet", "00" * 20, "--maps", str(contents))
    found = json.loads(call(*arguments, "--json"))["maps"]
    assert found == {
        "line": ["0x07000000", "0x02000000"],
        "outer[2]": {"0x00000000": "0x0900000000000000"},
    }
    assert "map line:\n  0x07000000, 0x02000000\n" in call(*arguments)
