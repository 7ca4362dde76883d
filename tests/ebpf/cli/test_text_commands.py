"""`flowshunt bpf asm`, `disasm` and `info`, as a user calls them."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from flowshunt.cli import main
from flowshunt_ebpf.asm import assemble

OBJECTS = Path(__file__).parents[1] / "objects"
TEXT = "r0 = 1 ll\nif r1 == 0 goto out\nr0 = 2\nout: exit\n"


def flowshunt(*words: str, given: str | bytes | None = None):
    return CliRunner().invoke(main, ["bpf", *map(str, words)], input=given)


def test_asm_prints_a_slot_a_line():
    result = flowshunt("asm", "-", given=TEXT)
    assert result.exit_code == 0
    assert result.output.split("\n")[:3] == [
        "18 00 00 00 01 00 00 00",
        "00 00 00 00 00 00 00 00",
        "15 01 01 00 00 00 00 00",
    ]


def test_asm_writes_bytes_that_disasm_reads(tmp_path):
    assert flowshunt("asm", "-", "-o", tmp_path / "p.bin", given=TEXT).exit_code == 0
    assert (tmp_path / "p.bin").read_bytes() == assemble(TEXT).encode()
    result = flowshunt("disasm", tmp_path / "p.bin")
    assert assemble(result.output).instructions == assemble(TEXT).instructions


def test_asm_tells_fields_as_json():
    rows = json.loads(flowshunt("asm", "-", "--json", given=TEXT).output)
    assert rows["slots"] == 5
    assert rows["instructions"][1] == {
        "slot": 2, "opcode": 0x15, "dst": 1, "src": 0, "offset": 1, "imm": 0, "text": "if r1 == 0 goto L3",
    }  # fmt: skip


def test_asm_names_line_and_column(tmp_path):
    (tmp_path / "p.s").write_text("r0 = 0\nr0 = r1 +\n")
    result = flowshunt("asm", tmp_path / "p.s")
    assert result.exit_code == 2
    assert "p.s:2:9: '+' is left over" in result.stderr


def test_asm_strict_refuses_what_is_not_valid():
    result = flowshunt("asm", "-", "--strict", given="r10 = 1\nexit")
    assert result.exit_code == 2
    assert "instruction 0 is not valid: r10, the frame pointer" in result.stderr
    assert flowshunt("asm", "-", given="r10 = 1\nexit").exit_code == 0


@pytest.mark.parametrize("form", ["c", "mnemonic"])
def test_disasm_gives_a_text_to_assemble(form):
    result = flowshunt("disasm", OBJECTS / "load_balancer.o", "-p", "encapsulate", "--form", form)
    assert result.exit_code == 0
    program = assemble(result.output)
    assert program.name == "encapsulate"
    assert "servers" in [m.name for m in program.maps]


def test_disasm_lists_bytes_and_source():
    result = flowshunt("disasm", OBJECTS / "rate_limiter.o", "--listing")
    lines = result.output.split("\n")
    assert any(line.startswith("; ") and "(./rate_limiter.bpf.c:" in line for line in lines)
    assert any("85 00 00 00 05 00 00 00" in line and "call bpf_ktime_get_ns#5" in line for line in lines)
    assert "take:" in lines


@pytest.mark.parametrize(("architecture", "leave"), [("x86_64", "ret"), ("arm64", "ret")])
def test_disasm_shows_machine_code_beside_the_instructions(architecture, leave):
    pytest.importorskip("keystone")
    result = flowshunt("disasm", OBJECTS / "checksum_updater.o", "--native", architecture, "--json")
    assert result.exit_code == 0, result.stderr
    rows = json.loads(result.output)
    offsets = [line["offset"] for row in rows for line in row["native"]]
    assert offsets == sorted(set(offsets)), "each byte of code stands with one instruction"
    last = rows[-1]
    assert (last["text"], last["native"][-1]["text"]) == ("exit", leave)
    assert sum("source" in row for row in rows) > 100
    listing = flowshunt("disasm", OBJECTS / "checksum_updater.o", "--native", architecture).output
    assert "; ip->ttl--;" in listing


def test_disasm_reads_hexadecimal():
    result = flowshunt("disasm", "-", given="b7 00 00 00 01 00 00 00\n95 00 00 00 00 00 00 00\n")
    assert result.output == "    r0 = 1\n    exit\n"


def test_disasm_of_a_poisoned_instruction_says_why():
    result = flowshunt(
        "disasm", OBJECTS / "loader/core.o", "-p", "load_lost", "--listing", "--btf", OBJECTS / "loader/core_target.o"
    )
    assert "poisoned: field byte offset of thing.lost is not in" in result.output


def test_info_shows_an_object():
    result = flowshunt("info", OBJECTS / "load_balancer.o", "--json")
    facts = json.loads(result.output)
    assert facts["license"] == "GPL"
    by_name = {p["name"]: p for p in facts["programs"]}
    assert by_name["balance"]["type"] == "xdp"
    assert "bpf_tail_call" in by_name["balance"]["helpers"]
    assert [f["name"] for f in by_name["pick_server"]["functions"]] == ["pick_server", "mix"]
    stages = next(m for m in facts["maps"] if m["name"] == "stages")
    assert stages["filled_with"] == {"0": "pick_server", "1": "encapsulate"}
    shown = flowshunt("info", OBJECTS / "load_balancer.o").output
    assert "stages: prog_array, key 4 B, value 4 B, 2 entries, holds pick_server, encapsulate" in shown


def test_info_goes_on_where_one_program_can_not_be_linked():
    result = flowshunt("info", OBJECTS / "loader/core.o", "--btf", OBJECTS / "loader/core_target.o")
    assert result.exit_code == 1
    assert "can't be used:" in result.output
    assert "program exists_small" in result.output


@pytest.mark.parametrize("command", ["asm", "disasm", "info"])
def test_a_file_that_is_not_there(command):
    result = flowshunt(command, "no/such/file")
    assert result.exit_code == 2
    assert "no/such/file: there is no such file" in result.stderr
    assert len(result.stderr.strip().split("\n")) == 1


@pytest.mark.parametrize("given", [b"\x7fELF", b"\x7fELF" + bytes(200), b"\x00\x01\x02", b"\xff" * 15])
@pytest.mark.parametrize("command", ["disasm", "info"])
def test_rubbish_is_refused_on_one_line(command, given, tmp_path):
    (tmp_path / "rubbish").write_bytes(given)
    result = flowshunt(command, tmp_path / "rubbish")
    assert result.exit_code == 2
    assert len(result.stderr.strip().split("\n")) == 1


@pytest.mark.parametrize(("file", "what"), [(".", "is a folder"), ("/dev/zero", "is no regular file")])
@pytest.mark.parametrize("command", ["asm", "disasm", "info", "run", "bench"])
def test_what_is_no_file_to_read_is_named_for_what_it_is(command, file, what):
    result = flowshunt(command, file)
    assert result.exit_code == 2
    assert f"{file}: {what}" in result.stderr


@pytest.mark.parametrize("option", ["--maps", "--packet", "--btf"])
def test_files_of_options_are_read_with_the_same_care(option, tmp_path):
    (tmp_path / "maps.json").write_text("{}")
    prefix = "@" if option == "--packet" else ""
    for name, what in ((".", "is a folder"), ("/dev/zero", "is no regular file"), ("no/file", "no such file")):
        result = flowshunt("run", OBJECTS / "rate_limiter.o", option, prefix + name)
        assert (result.exit_code, what in result.stderr) == (2, True), result.stderr


def test_a_file_beyond_the_bound_is_refused_not_cut(tmp_path):
    with (tmp_path / "huge").open("wb") as file:
        file.truncate((64 << 20) + 1)
    result = flowshunt("disasm", tmp_path / "huge")
    assert result.exit_code == 2
    assert "more than 64 MiB" in result.stderr
