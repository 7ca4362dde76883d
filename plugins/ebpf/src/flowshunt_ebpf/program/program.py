"""A program: instructions that belong together, with the maps, functions and source lines that they name."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from functools import cached_property

import attrs

from flowshunt.errors import InputError
from flowshunt.insn import CALL_K, LD_IMM64, PSEUDO_CALL, PSEUDO_FUNC, Instruction, decode, encode
from flowshunt_ebpf.program.map_definition import MapDefinition
from flowshunt_ebpf.program.program_type import AttachType, ProgramType
from flowshunt_ebpf.program.site import Site


@attrs.frozen
class Function:
    """A named function of a program.

    Attributes:
        start: the index of its first instruction.
        linkage: "static" or "global": the kernel verifies a global function by itself.
        btf_id: the id of its FUNC in the program's BTF; 0: none.
    """

    name: str
    start: int
    linkage: str = "static"
    btf_id: int = 0


@attrs.frozen
class Subprogram:
    """A run of instructions that is entered at its first: the main program, or the target of a local call.

    [start, end) are instruction indices.
    """

    name: str
    start: int
    end: int


@attrs.frozen
class SourceLine:
    """Where instructions from `start` on (up to the next SourceLine) come from.

    Attributes:
        start: instruction index.
        line, column: from 1; 0: not known.
        text: the source line as the compiler kept it; empty where it did not.
        file_offset, text_offset: of both strings in the BTF string table, for the kernel.
    """

    start: int
    file: str
    line: int
    column: int = 0
    text: str = ""
    file_offset: int = 0
    text_offset: int = 0


@attrs.frozen
class Program:
    """Instructions, linked and ready to verify, compile or run.

    A 64-bit load that names a map has the source PSEUDO_MAP_IDX or PSEUDO_MAP_IDX_VALUE and, in the lower half of its
    immediate, the map's index in `maps`; nothing is bound to a file descriptor. Jumps and local calls count in slots.

    Attributes:
        instructions: the main program first, then its subprograms.
        name: the function's name, or what the user calls it.
        type: what it is loaded as.
        attach_type: the expected attach type that its section names; None where it names none.
        attach_to: what follows in the section's name, such as the kernel function of a kprobe.
        section: the object's section; empty for text.
        license: such as "GPL"; some helpers ask for it.
        maps: the maps that its instructions name by index.
        functions: named functions, by start.
        lines: source lines, by start.
        externals: instruction index to the name of the kernel function or variable that it needs; its BTF id stands in
            the immediate where the loader knew it, else 0.
        poisoned: instruction index to why the loader put a call there that must not be reached: the fact that the
            instruction needs is not to be had (CO-RE, a weak kernel function).
        btf: the BTF that type ids and string offsets refer to; empty: none.
        big_endian: the object's byte order.
        sites: runs of instructions that native code may do otherwise, ascending; whoever changes instructions drops
            them.
    """

    instructions: tuple[Instruction, ...]
    name: str = "main"
    type: ProgramType = ProgramType.UNSPEC
    attach_type: AttachType | None = None
    attach_to: str = ""
    section: str = ""
    license: str = ""
    maps: tuple[MapDefinition, ...] = ()
    functions: tuple[Function, ...] = ()
    lines: tuple[SourceLine, ...] = ()
    externals: Mapping[int, str] = attrs.field(factory=dict, hash=False)
    poisoned: Mapping[int, str] = attrs.field(factory=dict, hash=False)
    btf: bytes = attrs.field(default=b"", repr=False)
    big_endian: bool = False
    sites: tuple[Site, ...] = attrs.field(default=(), repr=False, eq=False)

    @classmethod
    def from_bytes(cls, data: bytes, *, name: str = "main", type: ProgramType = ProgramType.UNSPEC) -> "Program":
        """A program from its instructions' bytes, little-endian. Raises InputError, naming the slot."""
        return cls(decode(data), name=name, type=type)

    @classmethod
    def from_instructions(cls, instructions: Iterable[Instruction], *, name: str = "main") -> "Program":
        """A program from instructions alone."""
        return cls(tuple(instructions), name=name)

    def __len__(self) -> int:
        return len(self.instructions)

    def encode(self) -> bytes:
        """The instructions' bytes, in the program's byte order."""
        return encode(self.instructions, big_endian=self.big_endian)

    @property
    def slots(self) -> int:
        """How many slots of 8 bytes the program takes."""
        return self.slot_of[-1]

    @cached_property
    def slot_of(self) -> tuple[int, ...]:
        """Instruction index to its first slot; one entry more than instructions: the end."""
        slots = [0]
        append = slots.append
        slot = 0
        for instruction in self.instructions:
            slot += 2 if instruction.opcode == LD_IMM64 else 1
            append(slot)
        return tuple(slots)

    @cached_property
    def index_of(self) -> dict[int, int]:
        """First slot to instruction index, the end included. A slot that is missing is the second half of a load."""
        return {slot: index for index, slot in enumerate(self.slot_of)}

    def target(self, index: int, distance: int) -> int:
        """The instruction index that lies `distance` slots past the slot after instruction `index`'s first.

        Raises InputError, naming the instruction, where that is outside the program or inside a 64-bit load.
        """
        slot = self.slot_of[index] + 1 + distance
        target = self.index_of.get(slot)
        if target is None or target == len(self.instructions):
            what = "into a 64-bit load's second slot" if 0 <= slot < self.slots else "outside the program"
            raise InputError(f"the target, slot {slot}, lies {what}", self.where(index), "let it reach an instruction")
        return target

    @cached_property
    def subprograms(self) -> tuple[Subprogram, ...]:
        """The main program and the targets of local calls and function loads, by start; one ends where the next starts.

        A named function that nothing refers to starts a subprogram too. Raises InputError for a call to no instruction.
        """
        if not self.instructions:
            return ()
        names = {f.start: f.name for f in self.functions if f.start < len(self.instructions)}
        starts = {0, *names}
        for index, i in enumerate(self.instructions):
            if i.opcode == CALL_K and i.src == PSEUDO_CALL:
                starts.add(self.target(index, i.imm))
            elif i.opcode == LD_IMM64 and i.src == PSEUDO_FUNC:
                starts.add(self.target(index, _signed32(i.imm)))
        ordered = sorted(starts)
        ends = [*ordered[1:], len(self.instructions)]
        names.setdefault(0, self.name)
        return tuple(
            Subprogram(names.get(start, f"function_{start}"), start, end)
            for start, end in zip(ordered, ends, strict=True)
        )

    @cached_property
    def _line_starts(self) -> tuple[int, ...]:
        return tuple(line.start for line in self.lines)

    def line_at(self, index: int) -> SourceLine | None:
        """The source line that an instruction comes from; None where it is not known."""
        at = bisect_right(self._line_starts, index) - 1
        return self.lines[at] if at >= 0 else None

    def where(self, index: int) -> str:
        """An instruction's place, for messages: program, index, and source line where it is known."""
        line = self.line_at(index)
        place = f"program {self.name}, instruction {index}"
        if line is None:
            return place
        text = f": {line.text.strip()}" if line.text.strip() else ""
        return f"{place} ({line.file}:{line.line}{text})"


def _signed32(value: int) -> int:
    return ((value & 0xFFFFFFFF) ^ 0x80000000) - 0x80000000
