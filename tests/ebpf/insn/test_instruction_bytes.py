import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowshunt.errors import InputError
from flowshunt.insn import DW, LD_IMM64, Instruction, decode, encode, exit_, ld_imm64, mov64_imm, stx

RAW = st.binary(max_size=160)


def test_little_endian_slot_follows_rfc_9669():
    assert encode([stx(DW, 10, 3, -8)]) == bytes.fromhex("7b3af8ff00000000")
    assert encode([mov64_imm(2, -2)]) == bytes.fromhex("b7020000feffffff")


def test_big_endian_slot_swaps_nibbles_and_bytes():
    assert encode([stx(DW, 10, 3, -8)], big_endian=True) == bytes.fromhex("7ba3fff800000000")
    assert encode([ld_imm64(1, 0x1122334455667788)], big_endian=True) == bytes.fromhex(
        "18100000556677880000000011223344"
    )


def test_wide_load_is_one_instruction_of_two_slots():
    data = bytes.fromhex("1801000088776655 0000000044332211 9500000000000000")
    load, leave = decode(data)
    assert (load.imm, load.slots, load.dst) == (0x1122334455667788, 2, 1)
    assert leave == exit_()


def test_wide_load_keeps_its_sign():
    (load,) = decode(encode([ld_imm64(1, 0xFFFFFFFFFFFFFFFF)]))
    assert load.imm == -1


@given(RAW, st.booleans())
def test_any_bytes_come_back_or_the_error_names_the_slot(data, big_endian):
    try:
        instructions = decode(data, big_endian=big_endian)
    except InputError as error:
        slot = int(error.where.removeprefix("slot "))
        assert 0 <= slot <= len(data) // 8
    else:
        assert encode(instructions, big_endian=big_endian) == data


@pytest.mark.parametrize(
    ("data", "slot", "what"),
    [
        ("95", 0, "1 bytes are left over"),
        ("9500000000000000 9500", 1, "left over"),
        ("9500000000000000 1800000000000000", 1, "lacks its second slot"),
        ("1800000000000000 0100000000000000", 1, "more than an immediate"),
        ("1800000000000000 0001000000000000", 1, "more than an immediate"),
        ("1800000000000000 0000010000000000", 1, "more than an immediate"),
    ],
)
def test_broken_bytes_are_refused_by_slot(data, slot, what):
    with pytest.raises(InputError, match=what) as caught:
        decode(bytes.fromhex(data))
    assert caught.value.where == f"slot {slot}"


@pytest.mark.parametrize(
    ("instruction", "field"),
    [
        (Instruction(0x100), "opcode"),
        (Instruction(0xB7, dst=16), "dst"),
        (Instruction(0xB7, src=-1), "src"),
        (Instruction(0x05, offset=0x8000), "offset"),
        (Instruction(0xB7, imm=1 << 32), "imm"),
        (Instruction(LD_IMM64, imm=1 << 64), "imm"),
    ],
)
def test_a_field_that_does_not_fit_is_named(instruction, field):
    with pytest.raises(InputError, match=f"slot 3: {field} is"):
        encode([ld_imm64(0, 0), exit_(), instruction])
