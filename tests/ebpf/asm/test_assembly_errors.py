import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowshunt.errors import InputError
from flowshunt_ebpf.asm import AssemblyError, Form, assemble, detect_form

C = [
    ("r0 = 1\nr1 = r2 + 3", 2, 9, "'+' is left over"),
    ("r1 = w2", 1, 6, "expected a 64-bit register"),
    ("w1 += r2", 1, 7, "expected a 32-bit register"),
    ("r1 = 0x100000000", 1, 6, "immediate is 4294967296"),
    ("r1 = 0xffffffff", 1, 6, "load it first"),
    ("w1 = 0x100000000", 1, 6, "-2147483648 to 4294967295 fit"),
    ("r1 = 0x10000000000000000 ll", 1, 6, "immediate is"),
    ("r1 @= 3", 1, 4, "no operator"),
    ("r1", 1, 3, "the line's end is no operator"),
    ("r1 = ", 1, 5, "expected a value"),
    ("r1 = -r2", 1, 7, "must be r1 itself"),
    ("r1 = be16 r2", 1, 11, "must be r1 itself"),
    ("r1 = (s32)w2", 1, 11, "64-bit register"),
    ("w1 = (s32)w2", 1, 7, "expected 's8' or 's16'"),
    ("r0 = *(u24 *)(r1 + 0)", 1, 8, "expected 'u8' or 'u16'"),
    ("r0 = *(u32 *)(r1 + 40000)", 1, 20, "-32768 to 32767 fit"),
    ("r0 = *(u32 *)(w1 + 4)", 1, 15, "64-bit register"),
    ("w0 = *(u64 *)(r1 + 0)", 1, 1, "fills all of r0"),
    ("*(u64 *)(r1 + 0) = w2", 1, 20, "8 bytes do not fit w2"),
    ("r1 = *(u32 *)skb[0]", 1, 14, "into r0"),
    ("if r1 > 3 goto 2", 1, 16, "needs its sign"),
    ("if r1 > 3 goto", 1, 15, "expected a label"),
    ("if r1 = 3 goto +1", 1, 7, "expected '=='"),
    ("goto +40000", 1, 6, "distance is 40000"),
    ("goto nowhere\nexit", 1, 6, "there is no label nowhere"),
    ("a: exit\na: exit", 2, 1, "label a stands twice"),
    ("call nothing", 1, 6, "there is no label nothing"),
    ("call bpf_map_lookup_elem#2", 1, 6, "is helper 1, not 2"),
    ("call kernel-function", 1, 6, "by its BTF id"),
    ("r1 = nothing ll", 1, 6, "there is no map or function nothing"),
    ("r1 = map[nothing]", 1, 10, "there is no map nothing"),
    ("r1 = nothing", 1, 6, "is no value"),
    ("r1 = xchg_64(r2 + 0, r3)", 1, 22, "must be r1 itself"),
    ("r1 = cmpxchg_64(r2 + 0, r0, r3)", 1, 1, "result in r0"),
    ("lock *(u64 *)(r1 + 0) -= r2", 1, 23, "expected '+='"),
    ("r99 = 1", 1, 1, "starts no instruction"),
    ("r1 = 5 ~", 1, 8, "'~' has no meaning"),
    ("nop", 1, 1, "starts no instruction"),
    (".type sailing", 1, 7, "no program type"),
    (".map m hash key", 1, 16, "expected '='"),
    (".map m hash keys=4", 1, 13, "no field of a map"),
    (".map m heap", 1, 8, "no map type"),
    (".map m hash\n.map m hash", 2, 6, "stands twice"),
    (".map m array_of_maps inner=x", 1, 28, "no map x above"),
    ('.map m array contents="0g"', 1, 23, "not hexadecimal"),
    (".function f\n.function g\nexit", 2, 11, "start at one instruction"),
    (".insn 256, 0, 0, 0, 0", 1, 7, "opcode is 256"),
    (".insn 1, 16, 0, 0, 0", 1, 10, "dst is 16"),
]


@pytest.mark.parametrize(("text", "line", "column", "what"), C)
def test_c_errors_have_line_and_column(text, line, column, what):
    with pytest.raises(AssemblyError) as caught:
        assemble(text, form=Form.C)
    assert what in str(caught.value)
    assert (caught.value.line, caught.value.column) == (line, column)


MNEMONIC = [
    ("mov %r1", 1, 8, "expected ','"),
    ("mov %r1, %w2", 1, 10, "64-bit register"),
    ("mov %r1, 0x100000000", 1, 10, "immediate is"),
    ("mov %r1, 4294967295", 1, 10, "immediate is"),
    ("movv %r1, 1", 1, 1, "is no instruction"),
    ("ldxw %w0, [%r1]", 1, 6, "fills all of r0"),
    ("ldxw %r0, %r1", 1, 11, "expected '['"),
    ("ldxw %r0, [%r1+40000]", 1, 15, "offset is 40000"),
    ("lock fetch xchg [%r1], %r2", 1, 12, "always fetches"),
    ("lock nand [%r1], %r2", 1, 6, "no atomic operation"),
    ("jeq %r1, 1, 5", 1, 13, "needs its sign"),
    ("exit now", 1, 6, "left over"),
]


@pytest.mark.parametrize(("text", "line", "column", "what"), MNEMONIC)
def test_mnemonic_errors_have_line_and_column(text, line, column, what):
    with pytest.raises(AssemblyError) as caught:
        assemble(text, form=Form.MNEMONIC)
    assert what in str(caught.value)
    assert (caught.value.line, caught.value.column) == (line, column)


def test_a_file_is_named():
    with pytest.raises(InputError, match=r"^prog\.s:2:1: 'nop' starts no instruction"):
        assemble("exit\nnop", file="prog.s")


def test_a_jump_too_far_points_to_the_long_one():
    text = "goto far\n" + "r0 = 0\n" * 40000 + "far: exit"
    with pytest.raises(AssemblyError, match=r"label far is 40000 slots away .*gotol"):
        assemble(text)
    assert assemble(text.replace("goto", "gotol")).instructions[0].imm == 40000


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("r0 = 0\nexit", Form.C),
        ("exit", Form.C),
        ("mov %r0, 0\nexit", Form.MNEMONIC),
        ("start:\n  ja start", Form.MNEMONIC),
        ("lock add [%r1], %r2", Form.MNEMONIC),
        ("lock *(u64 *)(r1 + 0) += r2", Form.C),
        ("start: goto start", Form.C),
    ],
)
def test_the_form_is_found_from_the_text(text, form):
    assert detect_form(text) is form


WORDS = st.sampled_from(
    ["r0", "w1", "%r2", "=", "+=", "s>>=", "(", ")", "*", "u32", "if", "goto", "lock", "call", "exit", "ll", "+", "-",
     "1", "0x", "[", "]", ",", ":", "#", ";", "//", "mov", "lddw", "ldxw", ".map", ".function", ".insn", "map",
     "code_addr", '"', "\n", "\t", "é", "\0", "name", "0xffffffffffffffffff", "skb", "atomic_fetch_add", "cmpxchg_64",
     "hash", "key"]
)  # fmt: skip


@given(st.lists(WORDS, max_size=25).map(" ".join), st.sampled_from([None, *Form]))
def test_any_text_is_assembled_or_refused_at_a_place(text, form):
    try:
        assemble(text, form=form)
    except AssemblyError as error:
        assert 1 <= error.line <= text.count("\n") + 1
        assert error.column >= 1


@pytest.mark.parametrize("number", ["1" * 5000, "0x" + "f" * 200_000, "0b" + "1" * 129])
def test_a_number_of_any_length_is_refused_at_its_place(number):
    with pytest.raises(AssemblyError, match=f"number has {len(number)} digits") as caught:
        assemble(f"exit\nr0 = {number} ll")
    assert (caught.value.line, caught.value.column) == (2, 6)


@pytest.mark.parametrize(
    "text", ["x" * 100_000, "goto " + "x" * 100_000, "r0 = " + "x" * 100_000 + " ll", '.name "' + "x" * 100_000]
)
def test_a_message_stays_short_however_long_the_line(text):
    with pytest.raises(AssemblyError) as caught:
        assemble(text)
    assert len(str(caught.value)) < 1000


def test_comments_cost_no_more_than_their_length():
    with pytest.raises(AssemblyError, match=r"no meaning|starts no"):
        assemble("/* " * 200_000)
    assert assemble("/**/" * 200_000 + "exit") == assemble("exit")
    assert assemble("/* a */ r0 /**/ = /* b */ 1\nexit") == assemble("r0 = 1\nexit")
