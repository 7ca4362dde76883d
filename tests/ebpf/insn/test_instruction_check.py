"""`check` against RFC 9669's opcode table (appendix A), written out by opcode, and Linux's additions."""

import pytest

from flowshunt import insn
from flowshunt.insn import Instruction, check

ALU_OPS = {0x00, 0x10, 0x20, 0x30, 0x40, 0x50, 0x60, 0x70, 0x90, 0xA0, 0xB0, 0xC0}
JUMP_OPS = {0x10, 0x20, 0x30, 0x40, 0x50, 0x60, 0x70, 0xA0, 0xB0, 0xC0, 0xD0}
DEFINED = (
    {op | source | cls for op in ALU_OPS for source in (0, 8) for cls in (4, 7)}
    | {op | source | cls for op in JUMP_OPS for source in (0, 8) for cls in (5, 6)}
    | {0x84, 0x87, 0xD4, 0xDC, 0xD7}
    | {0x05, 0x06, 0x85, 0x8D, 0x95, 0xE5}
    | {0x18, 0x20, 0x28, 0x30, 0x40, 0x48, 0x50}
    | {0x61, 0x69, 0x71, 0x79, 0x81, 0x89, 0x91}
    | {0x62, 0x6A, 0x72, 0x7A, 0x63, 0x6B, 0x73, 0x7B}
    | {0xC3, 0xDB, 0xCB, 0xD3}
)


def valid_form(opcode: int) -> Instruction:
    """The opcode with operands that make it valid, if anything does."""
    if opcode in (0xD4, 0xDC, 0xD7):
        return Instruction(opcode, 1, imm=32)
    if opcode in (0xCB, 0xD3):
        return Instruction(opcode, 1, 2, imm=insn.LOAD_ACQ)
    return Instruction(opcode)


@pytest.mark.parametrize("opcode", range(256))
def test_exactly_the_defined_opcodes_are_valid(opcode):
    wrong = check(valid_form(opcode))
    assert (wrong is None) == (opcode in DEFINED), wrong
    if opcode not in DEFINED:
        assert "not defined" in wrong


VALID = [
    insn.alu64(insn.DIV, 1, 2, signed=True),
    insn.alu32_imm(insn.MOD, 1, 7, signed=True),
    insn.movsx64(1, 2, 32),
    insn.movsx32(1, 2, 16),
    insn.bswap(3, 64),
    insn.to_be(3, 16),
    insn.ldxsx(insn.W, 1, 2, -4),
    insn.ld_abs(insn.H, 12),
    insn.ld_ind(insn.B, 3, 0),
    insn.atomic(insn.DW, insn.ADD, 10, 1, -8),
    insn.atomic(insn.W, insn.XOR | insn.FETCH, 10, 1, -8),
    insn.atomic(insn.W, insn.XCHG, 10, 1, -8),
    insn.atomic(insn.DW, insn.CMPXCHG, 10, 10, -8),
    insn.load_acquire(insn.B, 1, 2, 3),
    insn.store_release(insn.DW, 1, 10, 3),
    insn.gotol(70000),
    insn.may_goto(-3),
    insn.call(1),
    insn.call_local(-5),
    insn.call_kfunc(1234, 2),
    insn.callx(3),
    insn.jmp32_imm(insn.JSLE, 1, 0xFFFFFFFF, 4),
    insn.ld_imm64(1, -1),
    insn.ld_map_fd(1, 5),
    insn.ld_map_value(1, 5, 4096),
    insn.ld_function(1, -20),
    insn.ld_imm64(1, 77, insn.PSEUDO_BTF_ID),
    insn.ld_imm64(1, 1 | 8 << 32, insn.PSEUDO_MAP_IDX_VALUE),
    Instruction(0xBF, 1, 2, insn.ADDRESS_SPACE_CAST, 1),
]


@pytest.mark.parametrize("instruction", VALID, ids=repr)
def test_what_constructors_give_is_valid(instruction):
    assert check(instruction) is None


REFUSED = [
    (Instruction(0xB7, dst=10), "r10, the frame pointer, can't be written"),
    (Instruction(0xB7, dst=11), "r11 is not a register"),
    (Instruction(0xBF, dst=1, src=12), "src is r12"),
    (Instruction(0xB7, src=1), "src is reserved and must be 0, not 1"),
    (Instruction(0x0F, imm=1), "imm is reserved"),
    (Instruction(0x07, offset=1), "offset is reserved"),
    (Instruction(0x3F, offset=2), "offset of a division is 0 or 1"),
    (Instruction(0xBC, offset=32), "offset of a move is the bits to extend"),
    (Instruction(0xBF, offset=1, imm=3), "address space cast"),
    (Instruction(0xD7, imm=24), "width, 16, 32 or 64, not 24"),
    (Instruction(0xD4, imm=16, offset=1), "offset is reserved"),
    (Instruction(0x87, imm=1), "imm is reserved"),
    (Instruction(0x05, imm=1), "imm is reserved"),
    (Instruction(0x06, offset=1), "offset is reserved"),
    (Instruction(0x85, src=3), "src of a call is 0"),
    (Instruction(0x85, dst=1), "dst is reserved"),
    (Instruction(0x95, imm=1), "imm is reserved"),
    (Instruction(0xE5, src=1), "src is reserved"),
    (Instruction(0x18, src=7), "src of a 64-bit immediate load is 0 to 6"),
    (Instruction(0x18, src=1, imm=1 << 32), "upper half of a map"),
    (Instruction(0x18, offset=1), "offset is reserved"),
    (Instruction(0x61, imm=1), "imm is reserved"),
    (Instruction(0x61, dst=10), "frame pointer"),
    (Instruction(0x7A, src=1), "src is reserved"),
    (Instruction(0x7B, imm=1), "imm is reserved"),
    (Instruction(0xDB, imm=0x02), "atomic operation 0x2 is not defined"),
    (Instruction(0xDB, src=10, imm=insn.XCHG), "frame pointer"),
    (Instruction(0xCB, imm=insn.ADD), "atomic ADD takes 4 or 8 bytes, not 2"),
    (Instruction(0xDB, dst=10, imm=insn.LOAD_ACQ), "frame pointer"),
    (Instruction(0x20, dst=1), "dst is reserved"),
    (Instruction(0x20, src=1), "src is reserved"),
    (Instruction(0x8D, dst=11), "dst is r11"),
    (Instruction(0x15, imm=1, src=1), "src is reserved"),
    (Instruction(0x1D, imm=1), "imm is reserved"),
]


@pytest.mark.parametrize(("instruction", "why"), REFUSED, ids=repr)
def test_the_reason_is_told(instruction, why):
    assert why in (check(instruction) or "")


def test_64_bit_forms_refuse_an_immediate_that_would_change():
    with pytest.raises(ValueError, match="sign-extended"):
        insn.mov64_imm(1, 0x80000000)
    with pytest.raises(ValueError, match="sign-extended"):
        insn.st(insn.DW, 10, -8, 0xFFFFFFFF)
    assert insn.mov32_imm(1, 0xFFFFFFFF).imm == -1
    assert insn.st(insn.W, 10, -8, 0xFFFFFFFF).imm == -1


def test_constructors_refuse_widths_that_do_not_exist():
    for wrong in (lambda: insn.movsx32(1, 2, 32), lambda: insn.movsx64(1, 2, 64), lambda: insn.bswap(1, 8)):
        with pytest.raises(ValueError, match="takes"):
            wrong()
    with pytest.raises(ValueError, match="signed form"):
        insn.alu64(insn.ADD, 1, 2, signed=True)
    with pytest.raises(ValueError, match="64 bits"):
        insn.ld_imm64(1, 1 << 64)
