"""Putting other instructions in the place of runs of a program, with all that counts in slots or indices kept right."""

from collections.abc import Mapping, Sequence

import attrs

from flowshunt.errors import InputError
from flowshunt.insn import (
    CALL_K,
    EXIT_K,
    GOTOL,
    JMP,
    JMP32,
    LD_IMM64,
    PSEUDO_CALL,
    PSEUDO_FUNC,
    Instruction,
)
from flowshunt_ebpf.program import Program
from flowshunt_ebpf.program.program import SourceLine


@attrs.frozen
class Piece:
    """What takes the place of a run of instructions.

    Attributes:
        start, end: the run, [start, end); an empty one is put before instruction `start`.
        instructions: what stands there afterwards. Jumps in it stay in it or land just past it.
        kept: for each, the index of the old instruction that it is, -1 for a new one.
        line_of: for each, the old instruction whose source line it has.
    """

    start: int
    end: int
    instructions: tuple[Instruction, ...]
    kept: tuple[int, ...]
    line_of: tuple[int, ...]


@attrs.frozen
class Spliced:
    """What comes of it.

    Attributes:
        program: the new program, without sites.
        starts: where each piece starts in it.
        origin: for each new instruction, the old one whose source line it has.
        place: old instructions that still stand, to where.
    """

    program: Program
    starts: tuple[int, ...]
    origin: tuple[int, ...]
    place: Mapping[int, int]


def splice(program: Program, pieces: Sequence[Piece]) -> Spliced:
    """Put pieces in place. They are ascending and don't overlap.

    Jumps, local calls, function addresses, functions, source lines, externals and poisoned instructions follow. What
    goes to a run's start goes to its piece's start.

    Raises InputError, naming the instruction, for a jump into a run from outside, and for one that can no longer reach
    its target in 16 bits.
    """
    old = program.instructions
    new: list[Instruction] = []
    origin: list[int] = []
    line_of: list[int] = []
    starts: list[int] = []
    moved_to = [-1] * (len(old) + 1)
    at = 0

    def keep(end: int) -> None:
        for index in range(at, end):
            if moved_to[index] < 0:  # else it stands behind a piece that was put before it
                moved_to[index] = len(new)
            new.append(old[index])
            origin.append(index)
            line_of.append(index)

    for piece in pieces:
        keep(piece.start)
        starts.append(len(new))
        if moved_to[piece.start] < 0:
            moved_to[piece.start] = len(new)
        new += piece.instructions
        origin += piece.kept
        line_of += piece.line_of
        at = piece.end
    keep(len(old))
    moved_to[len(old)] = len(new)
    outside = _outside(len(old), pieces)
    slots, slot = [0], 0
    for i in new:
        slot += i.slots
        slots.append(slot)
    for index, was in enumerate(origin):
        if was >= 0 and outside[was]:
            new[index] = _retargeted(program, was, index, moved_to, slots)
    place = {was: index for index, was in enumerate(origin) if was >= 0}
    functions = tuple(attrs.evolve(f, start=_moved(program, moved_to, f.start)) for f in program.functions)
    return Spliced(
        attrs.evolve(
            program,
            instructions=tuple(new),
            functions=functions,
            lines=moved_lines(program, line_of, {f.start for f in functions}),
            externals={place[was]: name for was, name in program.externals.items() if was in place},
            poisoned={place[was]: why for was, why in program.poisoned.items() if was in place},
            sites=(),
        ),
        tuple(starts),
        tuple(line_of),
        place,
    )


def position_dependent(i: Instruction) -> bool:
    """Whether an instruction says where something is by its distance: it can't be moved as it is."""
    if i.opcode == CALL_K:
        return i.src == PSEUDO_CALL
    if i.opcode == LD_IMM64:
        return i.src == PSEUDO_FUNC
    return i.opcode & 7 in (JMP, JMP32)


def _outside(count: int, pieces: Sequence[Piece]) -> list[bool]:
    outside = [True] * count
    for piece in pieces:
        for index in range(piece.start, piece.end):
            outside[index] = False
    return outside


def _moved(program: Program, moved_to: Sequence[int], target: int) -> int:
    if moved_to[target] < 0:
        raise InputError("something else leads into a site", program.where(target), "leave the site out")
    return moved_to[target]


def _retargeted(program: Program, was: int, index: int, moved_to: Sequence[int], slots: Sequence[int]) -> Instruction:
    """An instruction outside of all runs, its distance adapted."""
    i = program.instructions[was]
    opcode = i.opcode
    if opcode == LD_IMM64:
        if i.src != PSEUDO_FUNC:
            return i
        low = i.imm & 0xFFFFFFFF
        distance = low - (1 << 32) if low >> 31 else low
    elif opcode & 7 not in (JMP, JMP32) or opcode == EXIT_K:
        return i
    elif opcode == CALL_K:
        if i.src != PSEUDO_CALL:
            return i
        distance = i.imm
    else:
        distance = i.imm if opcode == GOTOL else i.offset
    target = _moved(program, moved_to, program.target(was, distance))
    wanted = slots[target] - slots[index] - 1
    if wanted == distance:
        return i
    if opcode == LD_IMM64:
        return attrs.evolve(i, imm=wanted & 0xFFFFFFFF)
    if opcode in (CALL_K, GOTOL):
        return attrs.evolve(i, imm=wanted)
    if not -0x8000 <= wanted <= 0x7FFF:
        raise InputError(
            f"its target would be {wanted} slots away", program.where(was), "-32768 to 32767 fit: use fewer sites"
        )
    return attrs.evolve(i, offset=wanted)


def moved_lines(program: Program, line_of: Sequence[int], functions: set[int]) -> tuple[SourceLine, ...]:
    """Source lines by the new instructions: one wherever the old one changes, and where a function starts."""
    if not program.lines:
        return ()
    starts = [line.start for line in program.lines]
    number_of, number, at = [], -1, 0
    for index in range(len(program.instructions)):
        while at < len(starts) and starts[at] <= index:
            number, at = at, at + 1
        number_of.append(number)
    found: list[SourceLine] = []
    previous = -1
    for index, was in enumerate(line_of):
        number = number_of[was]
        if number >= 0 and (number != previous or index in functions):
            line = program.lines[number]
            if line.start != index:
                line = SourceLine(
                    index, line.file, line.line, line.column, line.text, line.file_offset, line.text_offset
                )
            found.append(line)
        previous = number
    return tuple(found)
