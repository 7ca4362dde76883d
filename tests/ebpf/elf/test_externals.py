"""Kernel functions, variables and settings that an object asks for by name."""

import pytest

from flowshunt import insn
from flowshunt_ebpf.elf import ObjectError, load_object
from flowshunt_ebpf.elf.externals import _kernel_version

SETTINGS = {"LINUX_KERNEL_VERSION": 0x060102, "CONFIG_HZ": 250, "CONFIG_DEFAULT_HOSTNAME": '"gate"'}


@pytest.fixture
def no_kernel(monkeypatch):
    monkeypatch.setattr("flowshunt_ebpf.elf.object.kernel_btf", lambda: None)
    monkeypatch.setattr("flowshunt_ebpf.elf.externals._kernel_settings", dict)


def test_settings_become_a_read_only_map(objects, no_kernel):
    program = load_object(objects / "loader" / "externs.o", settings=SETTINGS).program("settings")
    (settings,) = program.maps
    assert settings.name == ".kconfig"
    loads = [i.imm >> 32 for i in program.instructions if i.opcode == insn.LD_IMM64]
    assert sorted(loads) == [0, 8, 16, 32]
    contents = settings.contents
    assert contents[0:4] == (0x060102).to_bytes(4, "little")
    assert contents[8:16] == (250).to_bytes(8, "little")
    assert contents[16:32] == b"gate".ljust(16, b"\0")
    assert contents[32] == 0, "a weak setting without a value is 0"


def test_a_setting_without_a_value_is_named(objects, no_kernel):
    with pytest.raises(ObjectError, match=r"section xdp, relocation R_BPF_64_64 at byte \d+, symbol CONFIG_HZ: "):
        load_object(objects / "loader" / "externs.o").program("settings")


@pytest.mark.parametrize(
    ("value", "what"),
    [('"text"', "is text, its type is not"), (1 << 70, "too large for 8 bytes"), ("much", "no number")],
)
def test_a_setting_of_another_kind_is_named(objects, no_kernel, value, what):
    with pytest.raises(ObjectError, match=what):
        load_object(objects / "loader" / "externs.o", settings=SETTINGS | {"CONFIG_HZ": value}).program("settings")


def test_kernel_functions_and_variables_keep_their_names(objects, no_kernel):
    held = load_object(objects / "loader" / "externs.o", settings=SETTINGS)
    functions = held.program("functions")
    assert functions.instructions[0] == insn.call_kfunc(0)
    assert functions.externals == {0: "bpf_rcu_read_lock"}
    assert list(functions.poisoned.values()) == ["weak kernel function no_such_function is not there"]
    variables = held.program("variables")
    assert list(variables.externals.values()) == ["bpf_prog_active"]
    assert variables.instructions[0] == insn.ld_imm64(variables.instructions[0].dst, 0)


def test_a_target_gives_their_ids(objects):
    from flowshunt_ebpf.elf import kernel_btf

    kernel = kernel_btf()
    if kernel is None or kernel.find("bpf_rcu_read_lock") is None:
        pytest.skip("the running kernel shows no BTF, or has no bpf_rcu_read_lock")
    program = load_object(objects / "loader" / "externs.o", target=kernel, settings=SETTINGS).program("functions")
    assert kernel.type(program.instructions[0].imm).name == "bpf_rcu_read_lock"


@pytest.mark.parametrize(
    ("release", "number"),
    [("6.1.0-13-amd64", 0x060100), ("5.15.300", 0x050FFF), ("6.18.44-x", 0x06122C), ("7", 0x070000)],
)
def test_the_kernels_version_as_a_number(release, number):
    assert _kernel_version(release) == number
