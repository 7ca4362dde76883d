"""The domain at 64 bits: whatever values two sets stand for, what the interpreter computes of them is in the result."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowshunt.insn import (
    ADD,
    ALU,
    ALU64,
    AND,
    ARSH,
    DIV,
    END,
    JEQ,
    JGE,
    JGT,
    JLE,
    JLT,
    JNE,
    JSET,
    JSGE,
    JSGT,
    JSLE,
    JSLT,
    LSH,
    MOD,
    MOV,
    MUL,
    NEG,
    OR,
    RSH,
    SUB,
    XOR,
    Instruction,
    K,
    X,
)
from flowshunt_ebpf.native.semantics import arithmetic, holds, signed
from flowshunt_ebpf.testing.random_program import EDGES
from flowshunt_ebpf.verifier import scalar
from flowshunt_ebpf.verifier.scalar import (
    UNKNOWN,
    Scalar,
    alu32,
    alu64,
    byte_swap,
    const,
    contains,
    decide,
    includes,
    intersect,
    join,
    refine,
    refine_not,
    sign_extend,
    signed_range,
    truncate,
    unsigned_range,
    zero_extend,
)
from flowshunt_ebpf.verifier.scalar_value import settle

ONES = (1 << 64) - 1
LOW = (1 << 32) - 1

near_edges = st.builds(lambda edge, off: (edge + off) & ONES, st.sampled_from(EDGES), st.integers(-3, 3))
values = st.one_of(near_edges, st.integers(0, 300), st.integers(0, ONES))


@st.composite
def sets(draw):
    """A set and a value in it: known bits and bounds drawn around the value, each left out as often as not."""
    x = draw(values)
    mask = draw(st.one_of(st.just(ONES), st.just(0), values, st.builds(lambda n: (1 << n) - 1, st.integers(0, 64))))
    parts = [x & ~mask, mask]
    for bits, sign in ((64, False), (64, True), (32, False), (32, True)):
        least, most = (-1 << bits - 1, (1 << bits - 1) - 1) if sign else (0, (1 << bits) - 1)
        y = signed(x, bits) if sign else x & most
        around = [least, most]
        if draw(st.booleans()):
            below, above = draw(values), draw(values)
            around = [max(least, y - below), min(most, y + above)]
        parts += around
    a = settle(*parts)
    assert a is not None
    assert contains(a, x)
    return a, x


ARITHMETIC = (ADD, SUB, MUL, DIV, MOD, AND, OR, XOR, LSH, RSH, ARSH, MOV, NEG)


@pytest.mark.parametrize("op", ARITHMETIC)
@given(sets(), sets())
def test_arithmetic_on_64_bits(op, a, b):
    source = K if op == NEG else X
    assert contains(alu64(op, a[0], b[0]), arithmetic(Instruction(ALU64 | op | source, 0, 1), a[1], b[1]))


@pytest.mark.parametrize("op", ARITHMETIC)
@given(sets(), sets())
def test_arithmetic_on_32_bits(op, a, b):
    source = K if op == NEG else X
    assert contains(alu32(op, a[0], b[0]), arithmetic(Instruction(ALU | op | source, 0, 1), a[1], b[1]))


@pytest.mark.parametrize(("name", "op"), [("sdiv", DIV), ("smod", MOD)])
@given(sets(), sets())
def test_signed_division(name, op, a, b):
    wide = arithmetic(Instruction(ALU64 | op | X, 0, 1, 1), a[1], b[1])
    assert contains(getattr(scalar, f"{name}64")(a[0], b[0]), wide)
    narrow = arithmetic(Instruction(ALU | op | X, 0, 1, 1), a[1], b[1])
    assert contains(getattr(scalar, f"{name}32")(a[0], b[0]), narrow)


@pytest.mark.parametrize("width", [16, 32, 64])
@given(sets())
def test_byte_orders(width, a):
    for kind, opcode in (("le", ALU | END | K), ("be", ALU | END | X), ("swap", ALU64 | END | K)):
        assert contains(byte_swap(a[0], width, kind), arithmetic(Instruction(opcode, 0, 0, 0, width), a[1], 0))


@given(sets(), st.integers(1, 64))
def test_extensions(a, bits):
    low = a[1] & ((1 << bits) - 1)
    assert contains(zero_extend(a[0], bits), low)
    assert contains(sign_extend(a[0], bits), signed(low, bits))
    assert contains(truncate(a[0]), a[1] & LOW)


@pytest.mark.parametrize("op", [JEQ, JNE, JGT, JGE, JLT, JLE, JSET, JSGT, JSGE, JSLT, JSLE])
@given(sets(), sets(), st.booleans())
def test_comparisons(op, a, b, wide):
    truth = holds(op, a[1], b[1], wide=wide)
    assert decide(op, a[0], b[0], wide) in (None, truth)
    result = (refine if truth else refine_not)(op, a[0], b[0], wide)
    assert result is not None
    for known, before, x in zip(result, (a[0], b[0]), (a[1], b[1]), strict=True):
        assert contains(known, x)
        assert includes(before, known)


@given(sets(), sets())
def test_sets_of_two(a, b):
    both = join(a[0], b[0])
    assert contains(both, a[1])
    assert contains(both, b[1])
    assert includes(both, a[0])
    assert includes(both, b[0])
    common = intersect(a[0], b[0])
    assert (common is not None and contains(common, a[1])) == contains(b[0], a[1])
    if includes(a[0], b[0]):
        assert contains(a[0], b[1])


@given(sets())
def test_settled_parts_stay_as_they_are_and_agree(a):
    known, x = a
    assert settle(*known) == known
    assert known.is_const == (known.umin == known.umax) == (not known.mask)
    assert includes(UNKNOWN, known)
    assert includes(known, const(x))
    assert known == Scalar(*known)
    assert hash(known) == hash(Scalar(*known))


@given(values, values)
def test_ranges(x, y):
    low, high = sorted((x, y))
    assert (unsigned_range(low, high).umin, unsigned_range(low, high).umax) == (low, high)
    low, high = sorted((signed(x, 64), signed(y, 64)))
    assert (signed_range(low, high).smin, signed_range(low, high).smax) == (low, high)


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("5", const(5)),
        ("-1", const(-1)),
        ("any value", UNKNOWN),
        ("0..255", unsigned_range(0, 255)),
        ("0..252, bits 0x0 of 0xffffffffffffff03", alu64(AND, UNKNOWN, const(0xFC))),
        ("signed -5..5", signed_range(-5, 5)),
    ],
)
def test_what_is_known_is_said_in_short(text, known):
    assert str(known) == text
