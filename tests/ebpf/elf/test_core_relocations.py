"""CO-RE: each program of core.bpf.c asks one fact, answered from the types of core_target.bpf.c.

struct thing there: added 0, small 8 (u64), next 16, wide 24, tag 32, renamed 36, {half 40, other 42 | either 40},
points[8] 44, bit fields in the word at byte 104, from its bit 32 on: filler 3, low 5, high 9; sign 112; 120 in all.
"""

import attrs
import pytest

from flowshunt import insn
from flowshunt_ebpf.asm import instruction_text
from flowshunt_ebpf.elf import Btf, ObjectError, load_object
from flowshunt_ebpf.elf.btf_ext import CoreRelocation
from flowshunt_ebpf.elf.core_access import essential_name
from flowshunt_ebpf.elf.core_relocate import POISON, CoreRelocator


@pytest.fixture(scope="module")
def target(objects) -> Btf:
    return load_object(objects / "loader" / "core_target.o").btf


@pytest.fixture(scope="module")
def core(objects, target):
    return load_object(objects / "loader" / "core.o", target=target)


@pytest.fixture(scope="module")
def itself(objects):
    """The object against its own types: every fact stays."""
    types = load_object(objects / "loader" / "core.o").btf
    return load_object(objects / "loader" / "core.o", target=types)


ANSWERS = {
    "load_moved": "r0 = *(u64 *)(r1 + 8)",
    "load_wide": "r0 = *(u64 *)(r1 + 24)",
    "load_element": "r0 = *(u32 *)(r1 + 64)",
    "load_anonymous": "r0 = *(u16 *)(r1 + 42)",
    "load_through_pointer": "r1 = *(u64 *)(r1 + 16)",
    "load_flavor": "r0 = *(u32 *)(r1 + 36)",
    "load_narrow": "r0 = *(u64 *)(r1 + 24)",
    "offset_of_small": "r0 = 8",
    "offset_of_element": "r0 = 68",
    "size_of_wide": "r0 = 8",
    "size_of_points": "r0 = 64",
    "exists_small": "r0 = 1",
    "exists_lost": "r0 = 0",
    "exists_absent": "r0 = 0",
    "signed_small": "r0 = 0",
    "signed_high": "r0 = 1",
    "offset_of_high": "r0 = 104",
    "size_of_high": "r0 = 8",
    "lshift_of_high": "r0 = 15",
    "rshift_of_high": "r0 = 55",
    "type_exists": "r0 = 1",
    "type_absent": "r0 = 0",
    "type_size": "r0 = 120",
    "size_of_absent": "r0 = 0",
    "callback_exists": "r0 = 1",
    "value_of_green": "r0 = 0x14 ll",
    "exists_green": "r0 = 0x1 ll",
    "exists_gone": "r0 = 0x0 ll",
}


@pytest.mark.parametrize("name", ANSWERS)
def test_the_target_answers(core, name):
    assert instruction_text(core.program(name).instructions[0]) == ANSWERS[name]


def test_a_store_moves_and_widens_too(core):
    assert "*(u64 *)(r1 + 8) = r2" in [instruction_text(i) for i in core.program("store_moved").instructions]


UNCHANGED = {
    "load_moved": "r0 = *(u32 *)(r1 + 4)",
    "load_element": "r0 = *(u32 *)(r1 + 48)",
    "load_lost": "r0 = *(u8 *)(r1 + 64)",
    "load_sign": "r0 = *(u32 *)(r1 + 68)",
    "size_of_points": "r0 = 32",
    "offset_of_high": "r0 = 24",
    "size_of_high": "r0 = 4",
    "lshift_of_high": "r0 = 52",
    "rshift_of_high": "r0 = 57",
    "exists_lost": "r0 = 1",
    "value_of_green": "r0 = 0x2 ll",
    "exists_gone": "r0 = 0x1 ll",
    "value_of_gone": "r0 = 0x9 ll",
}


@pytest.mark.parametrize("name", UNCHANGED)
def test_against_its_own_types_nothing_changes(itself, name):
    assert instruction_text(itself.program(name).instructions[0]) == UNCHANGED[name]


def test_type_ids_are_local_or_the_targets(core, target):
    local = core.program("type_local_id").instructions[0]
    assert core.btf.type(local.imm).name == "thing"
    there = core.program("type_target_id").instructions[0]
    assert target.type(there.imm).name == "thing"


@pytest.mark.parametrize("name", ["load_lost", "size_of_lost", "value_of_gone"])
def test_a_missing_fact_poisons_its_instruction(core, name):
    program = core.program(name)
    assert program.instructions[0] == insn.call(POISON)
    assert "not in" in program.poisoned[0]
    assert program.slots == core.program(name).slots


def test_a_poisoned_wide_load_keeps_its_slots(core):
    program = core.program("value_of_gone")
    assert program.instructions[:2] == (insn.call(POISON), insn.call(POISON))
    assert "color___old's GONE" in program.poisoned[1]


def test_a_signed_field_of_another_size_is_refused(core):
    with pytest.raises(ObjectError, match=r"section socket, CO-RE relocation at byte \d+, type thing: .*4 bytes.* 8"):
        core.program("load_sign")


def relocator(core, target):
    return CoreRelocator(core.btf, target, big_endian=False)


def test_a_program_without_a_target_says_what_to_give(objects, monkeypatch):
    monkeypatch.setattr("flowshunt_ebpf.elf.object.kernel_btf", lambda: None)
    without = load_object(objects / "loader" / "core.o")
    with pytest.raises(ObjectError, match=r"no target to be filled in from \(give a target's BTF"):
        without.program("load_moved")


@pytest.mark.parametrize(
    ("access", "kind", "what"),
    [
        ("0:99", 0, "has 10 members, no 99"),
        ("0:6:9", 0, "4 elements, no 9"),
        ("0:0:0", 0, "INT has no members"),
        ("0:x", 0, "access string '0:x'"),
        ("", 0, "access string"),
        ("0:" * 80 + "0", 0, "access string"),
        ("1", 8, "not '0'"),
        ("0", 99, "unknown fact 99"),
        ("9", 11, "no enumerator"),
    ],
)
def test_a_broken_question_is_refused(core, target, access, kind, what):
    thing = core.btf.find("thing").id
    with pytest.raises(ObjectError, match=what):
        relocator(core, target).answers(CoreRelocation(0, thing, access, kind), "here")


def test_an_instruction_that_holds_something_else_is_refused(core, target):
    thing = core.btf.find("thing").id
    with pytest.raises(ObjectError, match="holds 12, its own types say 4"):
        relocator(core, target).apply(insn.ldx(insn.W, 0, 1, 12), CoreRelocation(0, thing, "0:1", 0), "here")
    with pytest.raises(ObjectError, match="holds no such fact"):
        relocator(core, target).apply(insn.exit_(), CoreRelocation(0, thing, "0:1", 0), "here")


@pytest.mark.parametrize(
    ("name", "essential"),
    [
        ("task___old", "task"),
        ("task", "task"),
        ("a___b___c", "a___b"),
        ("___x", "___x"),
        ("x___", "x___"),
        ("a____b", "a____b"),
    ],
)
def test_flavors(name, essential):
    assert essential_name(name) == essential


def test_the_running_kernels_types_answer(objects):
    """Where there are any: task_struct has a pid, whatever else moved."""
    from flowshunt_ebpf.elf import Kind, kernel_btf

    kernel = kernel_btf()
    if kernel is None:
        pytest.skip("the running kernel shows no BTF")
    task = kernel.find("task_struct", Kind.STRUCT)
    pid = next(n for n, m in enumerate(task.members) if m.name == "pid")
    local, there = CoreRelocator(kernel, kernel, big_endian=False).answers(
        CoreRelocation(0, task.id, f"0:{pid}", 0), "here"
    )
    assert local == there == attrs.evolve(there, value=task.members[pid].offset // 8)
