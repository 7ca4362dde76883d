"""What each text form means: every spelling that LLVM, the kernel's tools and mnemonic assemblers use, by its bytes."""

import pytest

from flowshunt.insn import encode
from flowshunt_ebpf.asm import Form, assemble, disassemble, instruction_text

# The C-like spelling (the one that is printed), the mnemonic one (likewise), the bytes of RFC 9669.
BOTH = [
    ("r1 = r2", "mov %r1, %r2", "bf21000000000000"),
    ("w1 = w2", "mov32 %r1, %r2", "bc21000000000000"),
    ("r1 = -5", "mov %r1, -5", "b7010000fbffffff"),
    ("w1 = 5", "mov32 %r1, 5", "b401000005000000"),
    ("r1 += r2", "add %r1, %r2", "0f21000000000000"),
    ("w1 -= 7", "sub32 %r1, 7", "1401000007000000"),
    ("r1 *= r2", "mul %r1, %r2", "2f21000000000000"),
    ("r1 /= r2", "div %r1, %r2", "3f21000000000000"),
    ("r1 s/= r2", "sdiv %r1, %r2", "3f21010000000000"),
    ("w1 s%= 3", "smod32 %r1, 3", "9401010003000000"),
    ("w1 %= w2", "mod32 %r1, %r2", "9c21000000000000"),
    ("r1 |= 0x100", "or %r1, 256", "4701000000010000"),
    ("w1 &= 0xff000000", "and32 %r1, -16777216", "54010000000000ff"),
    ("r1 ^= -1", "xor %r1, -1", "a7010000ffffffff"),
    ("r1 <<= 32", "lsh %r1, 32", "6701000020000000"),
    ("r1 >>= r2", "rsh %r1, %r2", "7f21000000000000"),
    ("w1 s>>= 31", "arsh32 %r1, 31", "c40100001f000000"),
    ("r1 = -r1", "neg %r1", "8701000000000000"),
    ("w1 = -w1", "neg32 %r1", "8401000000000000"),
    ("r1 = (s8)r2", "movsx864 %r1, %r2", "bf21080000000000"),
    ("r1 = (s32)r2", "movsx3264 %r1, %r2", "bf21200000000000"),
    ("w1 = (s16)w2", "movsx1632 %r1, %r2", "bc21100000000000"),
    ("r1 = addr_space_cast(r2, 1, 0)", "addr_space_cast %r1, %r2, 1, 0", "bf21010000000100"),
    ("r1 = be16 r1", "be16 %r1", "dc01000010000000"),
    ("r1 = le64 r1", "le64 %r1", "d401000040000000"),
    ("r1 = bswap32 r1", "bswap32 %r1", "d701000020000000"),
    ("r0 = *(u8 *)(r1 + 14)", "ldxb %r0, [%r1+14]", "71100e0000000000"),
    ("r0 = *(u16 *)(r1 + 0)", "ldxh %r0, [%r1]", "6910000000000000"),
    ("r0 = *(u32 *)(r10 - 4)", "ldxw %r0, [%r10-4]", "61a0fcff00000000"),
    ("r0 = *(u64 *)(r1 + 8)", "ldxdw %r0, [%r1+8]", "7910080000000000"),
    ("r0 = *(s8 *)(r1 + 1)", "ldxsb %r0, [%r1+1]", "9110010000000000"),
    ("r0 = *(s32 *)(r1 + 4)", "ldxsw %r0, [%r1+4]", "8110040000000000"),
    ("*(u8 *)(r1 + 0) = r2", "stxb [%r1], %r2", "7321000000000000"),
    ("*(u64 *)(r10 - 8) = r1", "stxdw [%r10-8], %r1", "7b1af8ff00000000"),
    ("*(u16 *)(r1 + 2) = 65535", "sth [%r1+2], 65535", "6a010200ffff0000"),
    ("*(u64 *)(r10 - 8) = -1", "stdw [%r10-8], -1", "7a0af8ffffffffff"),
    ("lock *(u64 *)(r10 - 8) += r1", "lock add [%r10-8], %r1", "db1af8ff00000000"),
    ("lock *(u32 *)(r2 + 0) ^= w1", "lock xor32 [%r2], %r1", "c3120000a0000000"),
    ("r1 = atomic_fetch_or((u64 *)(r2 + 0), r1)", "lock fetch or [%r2], %r1", "db12000041000000"),
    ("w1 = atomic_fetch_and((u32 *)(r2 + 0), w1)", "lock fetch and32 [%r2], %r1", "c312000051000000"),
    ("r1 = xchg_64(r2 + 0, r1)", "lock xchg [%r2], %r1", "db120000e1000000"),
    ("w1 = xchg32_32(r2 + 4, w1)", "lock xchg32 [%r2+4], %r1", "c3120400e1000000"),
    ("r0 = cmpxchg_64(r2 - 8, r0, r1)", "lock cmpxchg [%r2-8], %r1", "db12f8fff1000000"),
    ("w0 = cmpxchg32_32(r2 + 0, w0, w1)", "lock cmpxchg32 [%r2], %r1", "c3120000f1000000"),
    ("r1 = load_acquire((u64 *)(r2 + 0))", "ldacqdw %r1, [%r2]", "db21000000010000"),
    ("w1 = load_acquire((u8 *)(r2 + 3))", "ldacqb %r1, [%r2+3]", "d321030000010000"),
    ("store_release((u16 *)(r2 + 0), w1)", "strelh [%r2], %r1", "cb12000010010000"),
    ("goto +2", "ja +2", "0500020000000000"),
    ("gotol -70000", "ja32 -70000", "0600000090eefeff"),
    ("may_goto -3", "may_goto -3", "e500fdff00000000"),
    ("if r1 == 5 goto +1", "jeq %r1, 5, +1", "1501010005000000"),
    ("if w1 s> -3 goto +2", "jsgt32 %r1, -3, +2", "66010200fdffffff"),
    ("if r1 & 0x8000 goto -1", "jset %r1, 32768, -1", "4501ffff00800000"),
    ("if r1 != r2 goto +0", "jne %r1, %r2, +0", "5d21000000000000"),
    ("if w1 <= w2 goto +9", "jle32 %r1, %r2, +9", "be21090000000000"),
    ("if r1 s< r2 goto +9", "jslt %r1, %r2, +9", "cd21090000000000"),
    ("call bpf_map_lookup_elem#1", "call helper bpf_map_lookup_elem", "8500000001000000"),
    ("call 5000", "call helper 5000", "8500000088130000"),
    ("call pc+3", "call local +3", "8510000003000000"),
    ("call kernel-function#77", "call runtime 77", "852000004d000000"),
    ("call kernel-function#77@2", "call runtime 77, 2", "852002004d000000"),
    ("callx r3", "callx %r3", "8d03000000000000"),
    ("exit", "exit", "9500000000000000"),
    ("r0 = *(u16 *)skb[12]", "ldabsh 12", "280000000c000000"),
    ("r0 = *(u8 *)skb[r3]", "ldindb %r3", "5030000000000000"),
    ("r0 = *(u32 *)skb[r3 + 2]", "ldindw %r3, 2", "4030000002000000"),
    ("r1 = 0xffffffffffffffff ll", "lddw %r1, 0xffffffffffffffff", "18010000ffffffff00000000ffffffff"),
    ("r1 = map_by_fd(5)", "lddw %r1, map_by_fd(5)", "18110000050000000000000000000000"),
    ("r1 = map_val(map_by_fd(5)) + 16", "lddw %r1, map_val(map_by_fd(5)) + 16", "18210000050000000000000010000000"),
    ("r1 = var_addr(9)", "lddw %r1, var_addr(9)", "18310000090000000000000000000000"),
    ("r1 = var_addr(9, 4)", "lddw %r1, var_addr(9, 4)", "18310000090000000000000004000000"),
    ("r1 = code_addr(-2)", "lddw %r1, code_addr(-2)", "18410000feffffff0000000000000000"),
    ("r1 = map_by_idx(0)", "lddw %r1, map_by_idx(0)", "18510000000000000000000000000000"),
    ("r1 = map_val(map_by_idx(1)) + 0", "lddw %r1, map_val(map_by_idx(1)) + 0", "18610000010000000000000000000000"),
    (".insn 0xb7, 3, 15, -1, 5", ".insn 0xb7, 3, 15, -1, 5", "b7f3ffff05000000"),
]


@pytest.mark.parametrize(("c", "mnemonic", "data"), BOTH)
def test_both_forms_mean_the_same_bytes(c, mnemonic, data):
    assert assemble(c, form=Form.C).encode().hex() == data
    assert assemble(mnemonic, form=Form.MNEMONIC).encode().hex() == data


@pytest.mark.parametrize(("c", "mnemonic", "data"), BOTH)
def test_what_is_printed_is_the_first_spelling(c, mnemonic, data):
    (instruction,) = assemble(c, form=Form.C).instructions
    assert instruction_text(instruction, Form.C) == c
    assert instruction_text(instruction, Form.MNEMONIC) == mnemonic


# Spellings of other tools, and the printed one.
OTHER_C = [
    ("r1=r2", "r1 = r2"),
    ("r0 = *(u32 *)(r1 +4)", "r0 = *(u32 *)(r1 + 4)"),
    ("r0 = *(u32 *)(r1 + 0x4)", "r0 = *(u32 *)(r1 + 4)"),
    ("r0 = *(u32 *)(r1 + -4)", "r0 = *(u32 *)(r1 - 4)"),
    ("w0 = *(u32 *)(r1 + 4)", "r0 = *(u32 *)(r1 + 4)"),
    ("*(u32 *)(r1 + 4) = w2", "*(u32 *)(r1 + 4) = r2"),
    ("if r1 s> 0x5 goto pc+2", "if r1 s> 5 goto +2"),
    ("goto pc-1", "goto -1"),
    ("goto +0x2 <LBB0_2>", "goto +2"),
    ("r1 = 0x123 LL", "r1 = 0x123 ll"),
    ("r1 = 0b101", "r1 = 5"),
    ("r1 = 0o17", "r1 = 15"),
    ("r1 = +5", "r1 = 5"),
    ("call 1", "call bpf_map_lookup_elem#1"),
    ("call bpf_map_lookup_elem", "call bpf_map_lookup_elem#1"),
    ("call map_lookup_elem#1", "call bpf_map_lookup_elem#1"),
    ("r1 = atomic64_fetch_add((u64 *)(r2 +0), r1)", "r1 = atomic_fetch_add((u64 *)(r2 + 0), r1)"),
    ("r1 = atomic_fetch_add((u32 *)(r2 +0), r1)", "w1 = atomic_fetch_add((u32 *)(r2 + 0), w1)"),
    ("r0 = atomic64_cmpxchg((u64 *)(r2 +0), r0, r1)", "r0 = cmpxchg_64(r2 + 0, r0, r1)"),
    ("r1 = atomic64_xchg((u64 *)(r2 +0), r1)", "r1 = xchg_64(r2 + 0, r1)"),
    ("   12: (b7) r1 = 3", "r1 = 3"),
    ("       3:\tb7 01 00 00 03 00 00 00\tr1 = 0x3", "r1 = 3"),
    ("r1 = 3 // why", "r1 = 3"),
    ("r1 = 3 ; why", "r1 = 3"),
    ("r1 = 3 # why", "r1 = 3"),
    ("/* why */ r1 = 3", "r1 = 3"),
]


@pytest.mark.parametrize(("text", "printed"), OTHER_C)
def test_other_spellings_of_the_c_form(text, printed):
    (instruction,) = assemble(text, form=Form.C).instructions
    assert instruction_text(instruction) == printed


OTHER_MNEMONIC = [
    ("mov64 %r1, %r2", "mov %r1, %r2"),
    ("mov32 %w1, %w2", "mov32 %r1, %r2"),
    ("jgt32 %w1, 3, +1", "jgt32 %r1, 3, +1"),
    ("mov %r1, 0xffffffff", "mov %r1, -1"),
    ("swap16 %r1", "bswap16 %r1"),
    ("call 1", "call helper bpf_map_lookup_elem"),
    ("call %r2", "callx %r2"),
    ("call helper map_lookup_elem", "call helper bpf_map_lookup_elem"),
    ("ldxw %r0, [%r1+0x10]", "ldxw %r0, [%r1+16]"),
]


@pytest.mark.parametrize(("text", "printed"), OTHER_MNEMONIC)
def test_other_spellings_of_the_mnemonic_form(text, printed):
    (instruction,) = assemble(text, form=Form.MNEMONIC).instructions
    assert instruction_text(instruction, Form.MNEMONIC) == printed


PROGRAM = """
.name count_flows
.section "xdp"
.license "GPL"
.inner slot array key=4 value=8 entries=1
.map flows lru_hash key=4 value=8 entries=1000 flags=2
.map outer array_of_maps key=4 value=4 entries=3 inner=slot fill=0:first
.map .rodata array key=4 value=4 entries=1 flags=128 contents="01020304"
.function count_flows global
    r6 = r1
again: r1 = flows ll
    r2 = map[.rodata][0] + 2
    r3 = leaf ll
    call bpf_loop
    call leaf
    if r0 != 0 goto again
    goto exit
    exit
leaf:
    r0 = 1
    exit
"""


@pytest.mark.parametrize("form", Form)
def test_a_whole_program_comes_back(form):
    program = assemble(PROGRAM)
    assert program.name == "count_flows"
    assert program.type.name == "XDP"
    assert [m.name for m in program.maps] == ["flows", "outer", ".rodata"]
    assert [(f.name, f.linkage) for f in program.functions] == [("count_flows", "global"), ("leaf", "static")]
    assert [s.name for s in program.subprograms] == ["count_flows", "leaf"]
    assert program.instructions[1].imm == 0
    assert program.instructions[2].imm == 2 | 2 << 32
    text = disassemble(program, form)
    assert assemble(text) == program
    assert assemble(text, form=form) == program


def test_labels_count_slots_of_wide_loads():
    program = assemble("goto end\n r1 = 5 ll\n end: exit")
    assert program.instructions[0].offset == 2


def test_a_label_may_stand_behind_the_last_instruction():
    assert assemble("goto end\nr0 = 0\nend:").instructions[0].offset == 1


def test_a_helper_does_not_hide_a_function_of_its_name():
    program = assemble("call helper\nexit\n.function bpf_get_prandom_u32\nhelper: r0 = 0\nexit")
    assert assemble(disassemble(program)).instructions == program.instructions


def test_encoding_is_what_insn_encodes():
    program = assemble("r0 = 0\nexit")
    assert program.encode() == encode(program.instructions)
