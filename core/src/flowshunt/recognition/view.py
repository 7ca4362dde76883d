"""A program as recognizers see it: instructions, where jumps go, and which instruction's result each operand is."""

from bisect import bisect_right
from collections.abc import Sequence
from functools import cached_property

from flowshunt.insn import (
    ALU,
    CALL_K,
    DW,
    END,
    EXIT_K,
    GOTOL,
    JA_K,
    JMP,
    JMP32,
    LD_IMM64,
    LDX,
    MEM,
    PSEUDO_CALL,
    PSEUDO_FUNC,
    REGISTERS,
    Instruction,
)
from flowshunt.insn.registers import reads, writes

MOV64_X = 0xBF
MOV32_X = 0xBC
_ENDS = frozenset({JA_K, GOTOL, EXIT_K})


class View:
    """A program, and what it computes from what inside each straight run of instructions.

    A *run* is entered at its first instruction alone and left after its last alone. Inside a run, an operand's *value*
    is the index of the instruction that made it, looked at through moves; or ~r where register r came into the run with
    it. Two operands of one run with the same value are equal.

    Args:
        instructions: the program.
        live_out: for each instruction, the registers that are read after it before they are written, one bit each;
            None: computed here, coarsely.
    """

    def __init__(self, instructions: Sequence[Instruction], live_out: Sequence[int] | None = None) -> None:
        self.instructions = tuple(instructions)
        self.targets, starts = _targets(self.instructions)
        ends = {
            index + 1
            for index, i in enumerate(self.instructions)
            if i.opcode & 7 in (JMP, JMP32) and i.opcode != CALL_K
        }
        self.run_starts: tuple[int, ...] = tuple(
            sorted(s for s in {0, *starts, *ends} if 0 <= s < len(self.instructions))
        )
        self.entered: frozenset[int] = frozenset(starts)
        """Instructions that jumps, calls or callbacks land on."""
        self._live_out = live_out

    def run_of(self, index: int) -> tuple[int, int]:
        """The run [start, end) that an instruction stands in."""
        at = bisect_right(self.run_starts, index)
        end = self.run_starts[at] if at < len(self.run_starts) else len(self.instructions)
        return self.run_starts[at - 1], end

    def having(self, *opcodes: int) -> Sequence[int]:
        """The instructions with one of some opcodes, ascending."""
        if len(opcodes) == 1:
            return self._by_opcode.get(opcodes[0], ())
        return sorted(index for opcode in set(opcodes) for index in self._by_opcode.get(opcode, ()))

    def dst_value(self, index: int) -> int:
        """The value that the register `dst` has before an instruction."""
        return self.value(self._dst_definition[index])

    def src_value(self, index: int) -> int:
        """The value that the register `src` has before an instruction."""
        return self.value(self._src_definition[index])

    def dst_definition(self, index: int) -> int:
        """The instruction of the run that wrote `dst` before an instruction, moves included; ~r where none did."""
        return self._dst_definition[index]

    def src_definition(self, index: int) -> int:
        """The instruction of the run that wrote `src` before an instruction, moves included; ~r where none did."""
        return self._src_definition[index]

    def value(self, definition: int, bits: int = 64) -> int:
        """What a definition's value is, looked at through moves. `bits` 32: only its low half counts.

        Then 32-bit moves are looked through too; else only those of values whose upper half is zero anyway.
        """
        while definition >= 0 and self.moves(definition, bits):
            definition = self._src_definition[definition]
        return definition

    def moves(self, definition: int, bits: int = 64) -> bool:
        """Whether an instruction does no more than to move a value, as far as the low `bits` bits count."""
        i = self.instructions[definition]
        if i.offset or i.opcode not in (MOV64_X, MOV32_X):
            return False
        return i.opcode == MOV64_X or bits == 32 or self._zero_extended(self._src_definition[definition])

    def _zero_extended(self, definition: int) -> bool:
        """Whether the upper half of a definition's value is zero."""
        while definition >= 0:
            i = self.instructions[definition]
            if i.opcode & 7 == ALU:
                return i.op != END or i.imm != 64
            if i.opcode & 7 == LDX:
                return i.mode == MEM and i.size != DW
            if i.opcode != MOV64_X or i.offset:
                return False
            definition = self._src_definition[definition]
        return False

    def value_in(self, register: int, index: int) -> int:
        """The value that a register has just before an instruction."""
        return self.value(self.definition_of(register, index))

    def definition_of(self, register: int, index: int) -> int:
        """The instruction of the run that wrote a register before an instruction; ~register where none did."""
        start = self.run_of(index)[0]
        bit = 1 << register
        for at in range(index - 1, start - 1, -1):
            if writes(self.instructions[at]) & bit:
                return at
        return ~register

    def readers(self, index: int) -> tuple[int, ...]:
        """The instructions of the run that read what an instruction wrote, one entry an operand."""
        return tuple(self._readers[index])

    def only_reader(self, index: int) -> int:
        """The one instruction that reads what an instruction wrote; -1 where none, several or another run's do."""
        readers = self._readers[index]
        return readers[0] if len(set(readers)) == 1 and index not in self._escaping else -1

    def escapes(self, index: int) -> bool:
        """Whether what an instruction wrote is read after its run."""
        return index in self._escaping

    def live_after(self, index: int) -> int:
        """The registers that are read after an instruction before they are written, one bit each."""
        return self._live[index]

    @cached_property
    def _live(self) -> Sequence[int]:
        return self._live_out if self._live_out is not None else _live_out(self)

    @cached_property
    def _by_opcode(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for index, i in enumerate(self.instructions):
            found.setdefault(i.opcode, []).append(index)
        return found

    @cached_property
    def _dst_definition(self) -> list[int]:
        return self._flow[0]

    @cached_property
    def _src_definition(self) -> list[int]:
        return self._flow[1]

    @cached_property
    def _readers(self) -> list[list[int]]:
        return self._flow[2]

    @cached_property
    def _escaping(self) -> set[int]:
        return self._flow[3]

    @cached_property
    def _flow(self) -> tuple[list[int], list[int], list[list[int]], set[int]]:
        """For each instruction the definitions of dst and src and its readers; and what is read after its run."""
        instructions = self.instructions
        count = len(instructions)
        of_dst, of_src = [-1] * count, [-1] * count
        readers: list[list[int]] = [[] for _ in instructions]
        escaping: set[int] = set()
        last = [~r for r in range(16)]
        starts, bounds = set(self.run_starts), {*self.run_starts[1:], count}
        for index, i in enumerate(instructions):
            of_dst[index], of_src[index] = last[i.dst], last[i.src]
            read = reads(i)
            if i.opcode == CALL_K and index not in starts:  # which arguments it has, the live registers tell
                read &= self._live[index - 1]
            while read:
                low = read & -read
                definition = last[low.bit_length() - 1]
                if definition >= 0:
                    readers[definition].append(index)
                read ^= low
            written = writes(i)
            while written:
                low = written & -written
                last[low.bit_length() - 1] = index
                written ^= low
            if index + 1 in bounds:
                live = self._live[index]
                for register in range(REGISTERS):
                    if last[register] >= 0 and live >> register & 1:
                        escaping.add(last[register])
                    last[register] = ~register
        return of_dst, of_src, readers, escaping


def _targets(instructions: tuple[Instruction, ...]) -> tuple[tuple[int, ...], set[int]]:
    """For each instruction where it jumps to, -1 for others; and all that jumps, calls and callbacks land on.

    A target outside the program, or inside a 64-bit load, counts as none.
    """
    index_of: dict[int, int] = {}
    slots, slot = [], 0
    for index, i in enumerate(instructions):
        index_of[slot] = index
        slots.append(slot)
        slot += i.slots
    targets, landed = [-1] * len(instructions), set()
    for index, i in enumerate(instructions):
        opcode = i.opcode
        if opcode == LD_IMM64 and i.src == PSEUDO_FUNC:
            low = i.imm & 0xFFFFFFFF
            landed.add(index_of.get(slots[index] + 1 + (low - (1 << 32) if low >> 31 else low), -1))
        elif opcode & 7 in (JMP, JMP32) and opcode != EXIT_K:
            if opcode == CALL_K:
                if i.src == PSEUDO_CALL:
                    landed.add(index_of.get(slots[index] + 1 + i.imm, -1))
                continue
            target = index_of.get(slots[index] + 1 + (i.imm if opcode == GOTOL else i.offset), -1)
            targets[index] = target
            landed.add(target)
    landed.discard(-1)
    return tuple(targets), landed


def _live_out(view: View) -> list[int]:
    """Live registers after each instruction, by a backward data flow over the runs; calls read all arguments."""
    instructions, starts = view.instructions, view.run_starts
    ends = [*starts[1:], len(instructions)]
    number = {start: n for n, start in enumerate(starts)}
    live_in = [0] * len(starts)
    live = [0] * len(instructions)
    changed = True
    while changed:
        changed = False
        for n in range(len(starts) - 1, -1, -1):
            last = ends[n] - 1
            now = 0
            if instructions[last].opcode not in _ENDS and n + 1 < len(starts):
                now |= live_in[n + 1]
            if view.targets[last] >= 0:
                now |= live_in[number[view.targets[last]]]
            for index in range(last, starts[n] - 1, -1):
                live[index] = now
                now = now & ~writes(instructions[index]) | reads(instructions[index])
            if now != live_in[n]:
                live_in[n] = now
                changed = True
    return live
