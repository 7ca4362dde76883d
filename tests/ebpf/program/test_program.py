import re
from pathlib import Path

import pytest

from flowshunt import insn
from flowshunt.errors import InputError
from flowshunt_ebpf.program import (
    HELPERS,
    AttachType,
    MapType,
    Program,
    ProgramType,
    SourceLine,
    helper_arguments,
    helper_name,
    section_kind,
)

HEADER = Path("/usr/include/linux/bpf.h")


def test_indices_and_slots_differ_behind_a_wide_load():
    program = Program.from_instructions([insn.ld_imm64(1, 5), insn.mov64_imm(0, 0), insn.exit_()])
    assert program.slots == 4
    assert program.slot_of == (0, 2, 3, 4)
    assert program.index_of == {0: 0, 2: 1, 3: 2, 4: 3}
    assert len(program) == 3
    assert Program.from_bytes(program.encode()).instructions == program.instructions


def test_a_target_is_counted_from_the_slot_behind_the_first():
    program = Program.from_instructions([insn.ld_imm64(1, 5), insn.mov64_imm(0, 0), insn.exit_()])
    assert program.target(0, 1) == 1
    assert program.target(2, -4) == 0
    for index, distance, what in ((0, 0, "second slot"), (1, 5, "outside"), (0, -2, "outside"), (1, 1, "outside")):
        with pytest.raises(InputError, match=what):
            program.target(index, distance)


def test_a_big_endian_program_encodes_its_own_order():
    program = Program((insn.mov64_imm(1, 1), insn.exit_()), big_endian=True)
    assert program.encode() == bytes.fromhex("b7100000000000019500000000000000")


def test_source_lines_hold_until_the_next():
    lines = (SourceLine(0, "a.c", 3), SourceLine(2, "a.c", 4, text="\treturn 0;"))
    program = Program((insn.mov64_imm(0, 0), insn.ja(0), insn.exit_()), name="f", lines=lines)
    assert [program.line_at(n).line for n in range(3)] == [3, 3, 4]
    assert program.where(1) == "program f, instruction 1 (a.c:3)"
    assert program.where(2) == "program f, instruction 2 (a.c:4: return 0;)"
    assert Program((insn.exit_(),)).line_at(0) is None


P, A = ProgramType, AttachType
SECTIONS = [
    ("xdp", P.XDP, A.XDP, ""),
    ("xdp/cpumap", P.XDP, A.XDP_CPUMAP, ""),
    ("xdp.frags/devmap", P.XDP, A.XDP_DEVMAP, ""),
    ("xdp/main", P.XDP, A.XDP, "main"),
    ("xdp_pass", P.XDP, A.XDP, "pass"),
    ("tc", P.SCHED_CLS, None, ""),
    ("tcx/egress", P.SCHED_CLS, A.TCX_EGRESS, ""),
    ("classifier/2", P.SCHED_CLS, None, "2"),
    ("socket1", P.UNSPEC, None, ""),
    ("socket", P.SOCKET_FILTER, None, ""),
    ("cgroup_skb/ingress", P.CGROUP_SKB, A.CGROUP_INET_INGRESS, ""),
    ("cgroup/skb", P.CGROUP_SKB, None, ""),
    ("?cgroup/connect4", P.CGROUP_SOCK_ADDR, A.CGROUP_INET4_CONNECT, ""),
    ("kprobe/do_exit", P.KPROBE, None, "do_exit"),
    ("fentry.s/vfs_read", P.TRACING, A.TRACE_FENTRY, "vfs_read"),
    ("tracepoint/sched/sched_switch", P.TRACEPOINT, None, "sched/sched_switch"),
    ("sk_skb/stream_verdict", P.SK_SKB, A.SK_SKB_STREAM_VERDICT, ""),
    ("struct_ops/init", P.STRUCT_OPS, None, "init"),
    (".text", P.UNSPEC, None, ""),
    ("xdpfoo", P.UNSPEC, None, ""),
]


@pytest.mark.parametrize(("section", "type_", "attach", "rest"), SECTIONS)
def test_a_section_name_says_what_its_programs_are(section, type_, attach, rest):
    kind = section_kind(section)
    assert (kind.type, kind.attach_type, kind.attach_to) == (type_, attach, rest)
    assert kind.sleepable == (".s/" in section)


def enum(name: str) -> dict[str, int]:
    """An enum of the kernel's header that counts from 0, by name."""
    body = re.search(rf"^enum {name} \{{(.*?)^\}};", HEADER.read_text(), re.MULTILINE | re.DOTALL).group(1)
    body = re.sub(r"/\*.*?\*/", "", body, flags=re.DOTALL)
    names = [word.split("=")[0].strip() for word in body.split(",") if word.strip()]
    return {n: at for at, n in enumerate(names) if not n.startswith("__")}


needs_header = pytest.mark.skipif(not HEADER.exists(), reason="needs the kernel's headers (linux-libc-dev)")


@needs_header
@pytest.mark.parametrize(
    ("ours", "name", "prefix"),
    [
        (ProgramType, "bpf_prog_type", "BPF_PROG_TYPE_"),
        (AttachType, "bpf_attach_type", "BPF_"),
        (MapType, "bpf_map_type", "BPF_MAP_TYPE_"),
    ],
)
def test_numbers_are_the_kernels(ours, name, prefix):
    theirs = enum(name)
    assert len(theirs) > 25
    for word, number in theirs.items():
        assert ours(number).name in (word.removeprefix(prefix), word.removeprefix(prefix).removesuffix("_DEPRECATED"))


@needs_header
def test_helpers_are_the_kernels():
    text = HEADER.read_text()
    listed = re.findall(r"^\tFN\((\w+)(?:, (\d+))?", text, re.MULTILINE)
    assert len(listed) > 200
    for at, (name, number) in enumerate(listed):
        if name != "unspec":
            assert HELPERS[int(number) if number else at][0] == name
    signatures = dict(re.findall(r"^ \* \w[\w ]*? \*?bpf_(\w+)\(([^)]*)\)$", text, re.MULTILINE))
    assert len(signatures) > 150
    numbers = {name: number for number, (name, _) in HELPERS.items()}
    for name, parameters in signatures.items():
        if name in numbers and "..." not in parameters:
            count = 0 if parameters.strip() == "void" else parameters.count(",") + 1
            assert helper_arguments(numbers[name]) == count, name


def test_helpers_that_are_not_known():
    assert helper_name(1) == "bpf_map_lookup_elem"
    assert helper_name(5000) is None
    assert helper_arguments(5000) == 5
