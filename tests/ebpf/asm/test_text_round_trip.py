"""Random instructions through text and back, in both forms; and against LLVM's assembler where it is installed."""

import shutil
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowshunt import insn
from flowshunt.errors import InputError
from flowshunt.insn import Instruction, check, decode
from flowshunt_ebpf.asm import Form, assemble, disassemble, instruction_text
from flowshunt_ebpf.program import Program

REGISTER = st.integers(0, 10)
OFFSET = st.one_of(st.sampled_from((0, 1, 8, 16, 32, -1)), st.integers(-0x8000, 0x7FFF))
IMM = st.one_of(
    st.sampled_from((0, 1, -1, 16, 32, 64, 1 << 16, *insn.ATOMIC_NAMES)), st.integers(-(1 << 31), (1 << 31) - 1)
)
DEFINED = tuple(
    opcode
    for opcode in range(256)
    if "not defined" not in (check(Instruction(opcode)) or "") or check(Instruction(opcode, imm=insn.LOAD_ACQ)) is None
)


@st.composite
def valid(draw) -> Instruction:
    """A valid instruction: random fields, those that must be zero or one of a few taken back."""
    opcode = draw(st.sampled_from(DEFINED))
    zero = st.just(0)
    imm = st.integers(-(1 << 63), (1 << 63) - 1) if opcode == insn.LD_IMM64 else IMM
    fields = [draw(st.one_of(zero, kind)) for kind in (REGISTER, REGISTER, OFFSET, imm)]
    for tried in (
        fields,
        [fields[0], fields[1], fields[2], 0],
        [fields[0], fields[1], 0, fields[3]],
        [fields[0], 0, 0, fields[3]],
        [fields[0], 0, fields[2], fields[3]],
        [fields[0], fields[1], 0, 0],
        [0, fields[1], 0, fields[3]],
        [0, 0, fields[2], 0],
        [0, 0, 0, fields[3]],
        [1, 2, fields[2], draw(st.sampled_from(tuple(insn.ATOMIC_NAMES)))],
        [1, 0, 0, 16],
        [1, 0, 0, 0],
        [1, 2, fields[2], insn.LOAD_ACQ],
        [0, 0, 0, 0],
    ):
        instruction = Instruction(opcode, *tried)
        if check(instruction) is None:
            return instruction
    raise AssertionError(hex(opcode))


@given(valid(), st.sampled_from(Form))
def test_a_valid_instruction_comes_back_from_its_text(instruction, form):
    text = instruction_text(instruction, form)
    assert not text.startswith(".insn")
    assert assemble(text, form=form).instructions == (instruction,)


@settings(max_examples=60, deadline=None)
@given(st.lists(valid(), min_size=1, max_size=40), st.sampled_from(Form))
def test_a_program_comes_back_with_its_labels(instructions, form):
    program = Program.from_instructions(instructions)
    text = disassemble(program, form)
    assert assemble(text, form=form).instructions == program.instructions


@given(st.binary(min_size=8, max_size=64).map(lambda raw: raw[: len(raw) // 8 * 8]), st.sampled_from(Form))
def test_any_instructions_come_back_valid_or_not(raw, form):
    try:
        instructions = decode(raw)
    except InputError:
        return
    program = Program(instructions)
    assert assemble(disassemble(program, form), form=form).instructions == instructions


LLVM_MC = next((found for v in (22, 21, 20) if (found := shutil.which(f"llvm-mc-{v}"))), None)


@pytest.mark.skipif(LLVM_MC is None, reason="needs llvm-mc 20 or later")
@settings(max_examples=15, deadline=None)
@given(st.lists(valid(), min_size=50, max_size=200))
def test_llvm_reads_the_c_form_as_we_do(instructions):
    kept = [i for i in instructions if _llvm_knows(i)]
    text = "\n".join(instruction_text(i) for i in kept)
    command = [LLVM_MC, "-triple=bpfel", "-mcpu=v4", "-show-encoding"]
    shown = subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout
    encoded = "".join(part.split("]")[0].replace("0x", "").replace(",", "") for part in shown.split("encoding: [")[1:])
    assert encoded == Program.from_instructions(kept).encode().hex()


def _llvm_knows(i: Instruction) -> bool:
    if i.opcode == insn.LD_IMM64:
        return i.src == 0
    if i.opcode == insn.GOTOL:
        return -0x8000 <= i.imm < 0x8000
    if i.cls == insn.LD and i.mode == insn.IND:
        return i.imm == 0
    cast = i.opcode == 0xBF and i.offset == insn.ADDRESS_SPACE_CAST
    return i.opcode != insn.CALL_K and not cast
