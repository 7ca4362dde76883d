"""What the loader makes of one source as every compiler from clang 11 on gives it, and of older ways to define maps."""

import pytest

from flowshunt import insn
from flowshunt.insn import check
from flowshunt_ebpf.asm import assemble, disassemble, instruction_text
from flowshunt_ebpf.elf import ObjectError, load_object
from flowshunt_ebpf.native import Workbench
from flowshunt_ebpf.program import AttachType, MapDefinition, MapFlag, MapType, ProgramType, control_flow, liveness

COMPILERS = ("clang11", "clang13", "clang14", "clang15", "clang16", "clang17", "clang19", "clang21", "clang22", "big")


@pytest.fixture(scope="module", params=COMPILERS)
def features(request, objects):
    return load_object(objects / "loader" / f"features.{request.param}.o")


def test_programs_and_their_sections(features):
    assert sorted(features.names) == ["count", "look", "shape"]
    assert features.section_of("look") == "xdp/first"
    count, shape = features.program("count"), features.program("shape")
    assert (count.type, count.attach_type, count.attach_to) == (ProgramType.XDP, AttachType.XDP, "first")
    assert (shape.type, shape.attach_type) == (ProgramType.SCHED_CLS, AttachType.TCX_INGRESS)
    assert count.license == features.license == "Dual BSD/GPL"
    assert features.version == 0x060100


def test_a_program_is_found_by_its_section_where_that_is_clear(features):
    assert features.program("tc/ingress") is features.program("shape")
    with pytest.raises(ObjectError, match=r"section xdp/first has 2 programs .*count, look"):
        features.program("xdp/first")
    with pytest.raises(ObjectError, match=r"has no program missing .*count"):
        features.program("missing")
    with pytest.raises(ObjectError, match="has 3 programs"):
        features.program()


def test_maps_are_what_the_source_says(features):
    maps = features.maps
    assert set(maps) == {"first_inner", "second_inner", "outer", "pinned", ".rodata", ".data", ".bss"}
    inner = maps["first_inner"]
    assert (inner.type, inner.key_size, inner.value_size, inner.max_entries) == (MapType.ARRAY, 4, 8, 4)
    outer = maps["outer"]
    assert (outer.type, outer.key_size, outer.value_size) == (MapType.ARRAY_OF_MAPS, 4, 4)
    assert outer.values == ((0, "first_inner"), (2, "second_inner"))
    assert (outer.inner.type, outer.inner.value_size, outer.inner.max_entries) == (MapType.ARRAY, 8, 4)
    pinned = maps["pinned"]
    assert (pinned.type, pinned.key_size, pinned.value_size, pinned.flags) == (
        MapType.HASH,
        12,
        24,
        MapFlag.NO_PREALLOC,
    )
    assert pinned.pinning == 1
    assert features.btf.type(inner.value_type_id).name == "pair"


def test_a_program_brings_the_maps_that_its_maps_hold(features):
    program = next(p for p in features.programs.values() if "outer" in {m.name for m in p.maps})
    assert {"first_inner", "second_inner"} <= {m.name for m in program.maps}
    if program.big_endian:
        return  # runs nowhere here
    outer = Workbench(program).maps["outer"]
    assert {index: inner.name for index, inner in outer.inner.items()} == {0: "first_inner", 2: "second_inner"}


def test_data_sections_are_maps_with_contents(features):
    order = "big" if features.program("count").big_endian else "little"
    rodata, data, bss = (features.maps[name] for name in (".rodata", ".data", ".bss"))
    assert (7).to_bytes(4, order) in rodata.contents
    assert b"red\0\0\0\0\0green\0\0\0" in rodata.contents
    assert rodata.flags & MapFlag.RDONLY_PROG
    assert data.contents == (3).to_bytes(4, order)
    assert bss.contents == bytes(len(bss.contents))
    assert not data.flags


def test_functions_are_linked_behind_the_program(features):
    program = features.program("count")
    assert [f.name for f in program.functions] == ["count", "each", "thrice", "twice"]
    assert [f.linkage for f in program.functions] == ["global", "static", "global", "static"]
    flow = control_flow(program)
    assert [s.name for s in program.subprograms] == ["count", "each", "thrice", "twice"]
    assert [flow.program.subprograms[n].name for n in sorted(flow.callbacks)] == ["each"]
    called = {program.subprograms[to].name for to in flow.calls.values()}
    assert called == {"thrice", "twice"}
    assert liveness(flow).live_in[0]


def test_every_instruction_is_valid_and_the_text_gives_it_back(features):
    for program in features.programs.values():
        assert [check(i) for i in program.instructions] == [None] * len(program)
        assert assemble(disassemble(program)).instructions == program.instructions


def test_loads_of_variables_point_into_their_map(features):
    program = features.program("count")
    loads = [i for i in program.instructions if i.src == insn.PSEUDO_MAP_IDX_VALUE and i.opcode == insn.LD_IMM64]
    names = {program.maps[i.imm & 0xFFFFFFFF].name for i in loads}
    assert names == {".rodata", ".data", ".bss"}
    hidden = max(i.imm >> 32 for i in loads if program.maps[i.imm & 0xFFFFFFFF].name == ".bss")
    assert 0 < hidden < len(features.maps[".bss"].contents)


def test_source_lines_come_along(features):
    program = features.program("count")
    text = {line.text.strip() for line in program.lines}
    assert "hits++;" in text
    assert "return n * 2;" in text, "lines of called functions too"
    line = program.line_at(len(program) - 1)
    assert (line.file.endswith("loader/features.bpf.c"), line.text.strip()) == (True, "return n * 2;")
    assert "loader/features.bpf.c" in program.where(0)


def test_functions_know_their_type(features):
    for function in features.program("count").functions:
        type_ = features.btf.type(function.btf_id)
        assert (type_.kind.name, type_.name) == ("FUNC", function.name)


def test_all_compilers_give_one_meaning(features, objects):
    """The opcodes of a small program are the same from all of them."""
    reference = load_object(objects / "loader" / "features.clang14.o").program("look")
    found = features.program("look")
    assert [m.name for m in found.maps] == [m.name for m in reference.maps]
    assert sorted(i.opcode for i in found.instructions) == sorted(i.opcode for i in reference.instructions)


def test_modern_instructions_are_read(objects):
    program = load_object(objects / "loader" / "modern.clang22.o").program()
    text = [instruction_text(i) for i in program.instructions]
    assert "r2 = *(s8 *)(r1 + 0)" in text
    assert "w4 s/= w3" in text
    assert "r2 = bswap64 r2" in text
    assert "store_release((u64 *)(r1 + 8), r0)" in text
    assert "r1 = load_acquire((u64 *)(r1 + 8))" in text
    assert "may_goto +1" in text


def test_maps_as_structs(objects):
    legacy = load_object(objects / "loader" / "legacy_maps.o")
    assert legacy.maps == {
        "table": MapDefinition("table", MapType.HASH, 4, 8, 32, MapFlag.NO_PREALLOC),
        "slots": MapDefinition("slots", MapType.ARRAY, 4, 4, 2),
    }
    assert {m.name for m in legacy.program("sort_out").maps} == {"table", "slots"}


def test_maps_in_the_layout_of_iproute2(objects):
    maps = load_object(objects / "loader" / "iproute_maps.o").maps
    assert (maps["inside"].type, maps["inside"].value_size, maps["inside"].pinning) == (MapType.ARRAY, 8, 0)
    assert (maps["outside"].type, maps["outside"].pinning) == (MapType.HASH_OF_MAPS, 1)
    assert maps["outside"].inner == maps["inside"]


def test_a_program_array_names_its_programs(objects):
    balancer = load_object(objects / "load_balancer.o")
    assert balancer.maps["stages"].values == ((0, "pick_server"), (1, "encapsulate"))
    assert set(balancer.names) == {"balance", "pick_server", "encapsulate"}


PROGRAMS = ("packet_parser", "load_balancer", "connection_tracker", "rate_limiter", "checksum_updater")


@pytest.mark.parametrize("name", PROGRAMS)
def test_our_programs_link_and_flow(name, objects):
    for program in load_object(objects / f"{name}.o").programs.values():
        flow = control_flow(program)
        found = liveness(flow)
        assert found.live_in[0] & 0b1100 == 0b1100, "every program reads its context"
        assert found.live_in[0] & ~0b1100 & ((1 << 20) - 1) == 0, "and nothing else that it did not set"
        assert [check(i) for i in program.instructions] == [None] * len(program)


def test_a_path_that_can_not_be_read(tmp_path):
    with pytest.raises(ObjectError, match="can't be read"):
        load_object(tmp_path / "none.o")
