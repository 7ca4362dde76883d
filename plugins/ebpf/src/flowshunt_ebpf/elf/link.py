"""Linking: a function of an object, and all that it calls, to one program whose relocations are filled in."""

from bisect import bisect_left
from collections.abc import Mapping
from typing import Final

import attrs

from flowshunt import insn
from flowshunt.errors import InputError
from flowshunt.insn import Instruction, decode
from flowshunt_ebpf.elf.btf import Btf
from flowshunt_ebpf.elf.btf_ext import BtfExt, CoreRelocation
from flowshunt_ebpf.elf.core_relocate import POISON, CoreRelocator
from flowshunt_ebpf.elf.error import ObjectError
from flowshunt_ebpf.elf.externals import SETTINGS, Externals
from flowshunt_ebpf.elf.functions import CodeFunction
from flowshunt_ebpf.elf.map_section import is_data
from flowshunt_ebpf.elf.reader import STB_LOCAL, STB_WEAK, Elf, Relocation, Section, Symbol
from flowshunt_ebpf.program import Function, MapDefinition, Program, SourceLine, section_kind

R_BPF_64_64: Final = 1
R_BPF_64_32: Final = 10

RELOCATION_NAMES: Final = {
    0: "R_BPF_NONE",
    R_BPF_64_64: "R_BPF_64_64",
    2: "R_BPF_64_ABS64",
    3: "R_BPF_64_ABS32",
    4: "R_BPF_64_NODYLD32",
    R_BPF_64_32: "R_BPF_64_32",
}


@attrs.frozen
class Code:
    """An executable section, decoded: its instructions, and slot to instruction index, the end included."""

    section: Section
    instructions: tuple[Instruction, ...]
    index_of: dict[int, int]
    relocations: dict[int, Relocation]
    core: dict[int, CoreRelocation]


@attrs.frozen
class Linker:
    """What programs of one object are linked from.

    Attributes:
        maps: by section index and byte offset.
        relocator: answers CO-RE relocations; None: there is no target, and why stands in `no_target`.
    """

    elf: Elf
    btf: Btf | None
    ext: BtfExt | None
    maps: Mapping[tuple[int, int], MapDefinition]
    functions: Mapping[tuple[int, int], CodeFunction]
    license: str
    externals: Externals
    relocator: CoreRelocator | None
    no_target: str
    fixed_btf: bytes
    _codes: dict[int, Code] = attrs.field(factory=dict, repr=False)

    def code(self, index: int) -> Code:
        """A section's instructions. Raises ObjectError, naming the section and slot, where they are broken."""
        found = self._codes.get(index)
        if found is None:
            found = self._codes[index] = self._decode(self.elf.sections[index])
        return found

    def _decode(self, section: Section) -> Code:
        place = f"{self.elf.file}: section {section.name}"
        try:
            instructions = decode(section.data, big_endian=self.elf.big_endian)
        except InputError as error:
            raise ObjectError(error.what, f"{place}, {error.where}", "compile it anew") from None
        slots, slot = {}, 0
        for index, i in enumerate(instructions):
            slots[slot] = index
            slot += i.slots
        slots[slot] = len(instructions)
        relocations: dict[int, Relocation] = {}
        for relocation in self.elf.relocations.get(section.index, ()):
            if relocation.offset % 8 or relocation.offset // 8 not in slots:
                raise ObjectError("is not at an instruction", self.place(section, relocation), "compile it anew")
            if relocation.offset in relocations:
                raise ObjectError("comes second at its place", self.place(section, relocation), "compile it anew")
            relocations[relocation.offset] = relocation
        core = {}
        if self.ext is not None:
            for wanted in self.ext.relocations.get(section.name, ()):
                if wanted.offset % 8 or wanted.offset // 8 not in slots:
                    raise ObjectError("is not at an instruction", self.core_place(section, wanted), "compile it anew")
                core[wanted.offset] = wanted
        return Code(section, instructions, slots, relocations, core)

    def place(self, section: Section, relocation: Relocation) -> str:
        """A relocation's place, for messages: section, byte, kind, symbol."""
        symbol = relocation.symbol
        kind = RELOCATION_NAMES.get(relocation.type, f"type {relocation.type}")
        name = symbol.name or f"number {symbol.index}"
        return f"{self.elf.file}: section {section.name}, relocation {kind} at byte {relocation.offset}, symbol {name}"

    def core_place(self, section: Section, relocation: CoreRelocation) -> str:
        """A CO-RE relocation's place, for messages."""
        name = ""
        if self.btf is not None and 0 < relocation.type < len(self.btf):
            name = self.btf.type(relocation.type).name
        of = name or f"number {relocation.type}"
        return f"{self.elf.file}: section {section.name}, CO-RE relocation at byte {relocation.offset}, type {of}"

    def function_at(self, section: int, offset: int, where: str) -> CodeFunction:
        """The function that starts at a byte offset. Raises ObjectError where none does."""
        found = self.functions.get((section, offset))
        if found is None:
            name = self.elf.sections[section].name
            raise ObjectError(f"no function starts at byte {offset} of section {name}", where, "compile it anew")
        return found

    def program(self, main: CodeFunction) -> Program:
        """Link a function with all that it calls. Raises ObjectError, naming section, symbol and relocation."""
        return _Link(self, main).program()


class _Link:
    """The linking of one program."""

    def __init__(self, linker: Linker, main: CodeFunction) -> None:
        self.linker = linker
        self.main = main
        self.out: list[Instruction] = []
        self.slots: list[int] = []
        self.slot = 0
        self.maps: dict[str, int] = {}
        self.definitions: list[MapDefinition] = []
        self.starts: dict[tuple[int, int], int] = {}
        self.waiting = [main]
        self.pending: list[tuple[int, CodeFunction]] = []
        self.functions: list[Function] = []
        self.lines: list[SourceLine] = []
        self.external: dict[int, str] = {}
        self.poisoned: dict[int, str] = {}

    def program(self) -> Program:
        linker = self.linker
        queued = {self._key(self.main)}
        while self.waiting:
            function = self.waiting.pop(0)
            self._append(function)
            for _, callee in self.pending:
                if self._key(callee) not in queued:
                    queued.add(self._key(callee))
                    self.waiting.append(callee)
        for index, callee in self.pending:
            self._fill(index, self.starts[self._key(callee)])
        if self.maps.get(SETTINGS) is not None:  # by now all settings that the program reads have been asked for
            self.definitions[self.maps[SETTINGS]] = linker.externals.settings_map()
        self._add_held_maps()
        section = linker.elf.sections[self.main.section]
        kind = section_kind(section.name)
        return Program(
            tuple(self.out),
            name=self.main.symbol.name or section.name,
            type=kind.type,
            attach_type=kind.attach_type,
            attach_to=kind.attach_to,
            section=section.name,
            license=linker.license,
            maps=tuple(self.definitions),
            functions=tuple(self.functions),
            lines=tuple(self.lines),
            externals=self.external,
            poisoned=self.poisoned,
            btf=linker.fixed_btf,
            big_endian=linker.elf.big_endian,
        )

    @staticmethod
    def _key(function: CodeFunction) -> tuple[int, int]:
        return function.section, function.start

    def _emit(self, instruction: Instruction) -> None:
        self.out.append(instruction)
        self.slots.append(self.slot)
        self.slot += instruction.slots

    def _fill(self, index: int, start: int) -> None:
        """Set the distance of a call or function load, to the instruction index where the function starts."""
        distance = self.slots[start] - self.slots[index] - 1
        instruction = self.out[index]
        if instruction.opcode == insn.LD_IMM64:
            self.out[index] = insn.ld_function(instruction.dst, distance)
        else:
            self.out[index] = insn.call_local(distance)

    def _append(self, function: CodeFunction) -> None:
        linker = self.linker
        code = linker.code(function.section)
        self.starts[self._key(function)] = start = len(self.out)
        first, end = code.index_of.get(function.start), code.index_of.get(function.end)
        if first is None or end is None:
            where = f"{linker.elf.file}: section {code.section.name}, symbol {function.symbol.name}"
            raise ObjectError("starts or ends inside an instruction", where, "compile it anew")
        offset = function.start * 8
        moved: dict[int, int] = {}
        for i in code.instructions[first:end]:
            moved[offset] = len(self.out)
            self._instruction(code, i, offset)
            offset += i.slots * 8
        self._describe(code.section, function, start, moved)

    def _instruction(self, code: Code, i: Instruction, offset: int) -> None:
        core = code.core.get(offset)
        if core is not None:
            self._core(code, i, core)
            return
        relocation = code.relocations.get(offset)
        if relocation is not None:
            self._relocated(code, i, relocation)
            return
        if i.opcode == insn.CALL_K and i.src == insn.PSEUDO_CALL:
            where = f"{self.linker.elf.file}: section {code.section.name}, call at byte {offset}"
            callee = self.linker.function_at(code.section.index, offset + 8 + i.imm * 8, where)
            self.pending.append((len(self.out), callee))
        elif i.opcode == insn.LD_IMM64 and i.src == insn.PSEUDO_FUNC:
            where = f"{self.linker.elf.file}: section {code.section.name}, function load at byte {offset}"
            raise ObjectError("has no relocation", where, "compile it anew")
        self._emit(i)

    def _core(self, code: Code, i: Instruction, relocation: CoreRelocation) -> None:
        linker = self.linker
        where = linker.core_place(code.section, relocation)
        if linker.relocator is None:
            raise ObjectError("has no target to be filled in from", where, linker.no_target)
        answer = linker.relocator.apply(i, relocation, where)
        if isinstance(answer, Instruction):
            self._emit(answer)
            return
        for _ in range(i.slots):
            self.poisoned[len(self.out)] = answer
            self._emit(insn.call(POISON))

    def _relocated(self, code: Code, i: Instruction, relocation: Relocation) -> None:
        where = self.linker.place(code.section, relocation)
        if relocation.type == R_BPF_64_64 and i.opcode == insn.LD_IMM64:
            self._emit(self._load(i, relocation, where))
        elif relocation.type == R_BPF_64_32 and i.opcode == insn.CALL_K:
            self._emit(self._call(i, relocation, where))
        else:
            raise ObjectError(
                f"does not go with an instruction of opcode {i.opcode:#04x}",
                where,
                "R_BPF_64_64 goes with a 64-bit load, R_BPF_64_32 with a call",
            )

    def _call(self, i: Instruction, relocation: Relocation, where: str) -> Instruction:
        symbol = relocation.symbol
        if not symbol.defined:
            if not symbol.name:
                raise ObjectError("calls nothing", where, "compile it anew")
            return self._kernel_function(symbol, where)
        # A global function is named by its own symbol, with -1 in place; a static one by its section and distance.
        offset = symbol.value + (i.imm + 1) * 8
        callee = self._callee(symbol, offset, where)
        self.pending.append((len(self.out), callee))
        return i

    def _callee(self, symbol: Symbol, offset: int, where: str) -> CodeFunction:
        section = self.linker.elf.sections[symbol.section]
        if not section.executable:
            raise ObjectError(f"calls into section {section.name}, which holds no code", where, "compile it anew")
        return self.linker.function_at(section.index, offset, where)

    def _kernel_function(self, symbol: Symbol, where: str) -> Instruction:
        found = self.linker.externals.function(symbol.name)
        if found is None and symbol.binding == STB_WEAK:
            self.poisoned[len(self.out)] = f"weak kernel function {symbol.name} is not there"
            return insn.call(POISON)
        self.external[len(self.out)] = symbol.name
        return insn.call_kfunc(found or 0)

    def _load(self, i: Instruction, relocation: Relocation, where: str) -> Instruction:
        linker, symbol = self.linker, relocation.symbol
        low = insn.signed32(i.imm & 0xFFFFFFFF, wide=False)
        if not symbol.defined:
            return self._external(i, symbol, where)
        section = linker.elf.sections[symbol.section]
        offset = symbol.value + low
        if section.executable:
            callee = self._callee(symbol, offset, where)
            self.pending.append((len(self.out), callee))
            return insn.ld_function(i.dst, 0)
        if is_data(section):
            if not 0 <= offset <= section.size:
                raise ObjectError(f"points to byte {offset}, outside section {section.name}", where, "compile it anew")
            if section.index in linker.elf.relocations:
                raise ObjectError(
                    f"points into section {section.name}, which itself holds addresses",
                    where,
                    "a program's data can't hold addresses; index an array instead",
                )
            number = self._map(linker.maps[section.index, 0])
            return insn.ld_imm64(i.dst, number | offset << 32, insn.PSEUDO_MAP_IDX_VALUE)
        definition = linker.maps.get((section.index, offset))
        if definition is None:
            raise ObjectError(
                f"points to byte {offset} of section {section.name}, which is no map, function or data",
                where,
                "put maps in section .maps and variables in .data, .rodata or .bss",
            )
        return insn.ld_imm64(i.dst, self._map(definition), insn.PSEUDO_MAP_IDX)

    def _external(self, i: Instruction, symbol: Symbol, where: str) -> Instruction:
        if not symbol.name:
            raise ObjectError("loads the address of nothing", where, "compile it anew")
        externals = self.linker.externals
        at = externals.setting(symbol.name, where, weak=symbol.binding == STB_WEAK)
        if at is not None:
            number = self._map(externals.settings_map())
            return insn.ld_imm64(i.dst, number | at << 32, insn.PSEUDO_MAP_IDX_VALUE)
        found = externals.variable(symbol.name)
        if found is None and symbol.binding == STB_WEAK:
            return insn.ld_imm64(i.dst, 0)
        self.external[len(self.out)] = symbol.name
        return insn.ld_imm64(i.dst, found or 0, insn.PSEUDO_BTF_ID)

    def _map(self, definition: MapDefinition) -> int:
        number = self.maps.get(definition.name)
        if number is None:
            number = self.maps[definition.name] = len(self.definitions)
            self.definitions.append(definition)
        return number

    def _add_held_maps(self) -> None:
        """Maps that maps of the program hold from the start come with it, though no instruction names them."""
        known = {definition.name: definition for definition in self.linker.maps.values()}
        for definition in tuple(self.definitions):
            if definition.inner is not None:
                for _, name in definition.values:
                    if name in known:
                        self._map(known[name])

    def _describe(self, section: Section, function: CodeFunction, start: int, moved: dict[int, int]) -> None:
        """Carry over the function's name and source lines; `moved` is byte offset to instruction index."""
        linker = self.linker
        btf, ext = linker.btf, linker.ext
        type_id = 0
        begin, end = function.start * 8, function.end * 8
        if ext is not None and btf is not None:
            type_id = next((f.type for f in ext.functions.get(section.name, ()) if f.offset == begin), 0)
            rows = ext.lines.get(section.name, ())
            offsets = [row.offset for row in rows]
            for row in rows[bisect_left(offsets, begin) : bisect_left(offsets, end)]:
                if row.offset in moved:
                    self.lines.append(
                        SourceLine(
                            moved[row.offset],
                            btf.string(row.file_offset),
                            row.line,
                            row.column,
                            btf.string(row.text_offset),
                            row.file_offset,
                            row.text_offset,
                        )
                    )
        linkage = "static" if function.symbol.binding == STB_LOCAL else "global"
        name = function.symbol.name or f"{section.name}_{function.start}"
        self.functions.append(Function(name, start, linkage, type_id))
