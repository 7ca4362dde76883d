"""ELF64 relocatable files, read with every offset and size checked before it is used.

Little- or big-endian; the layout is that of the System V ABI's "Object Files" chapter. A file may come from anywhere:
what lies outside it, overlaps, or claims more than `LIMIT` bytes is refused, and nothing is allocated on its word.
"""

import struct
from itertools import pairwise
from typing import Final

import attrs

from flowshunt_ebpf.elf.error import ObjectError

LIMIT: Final = 1 << 26
"""Bytes that a file, or a section without bytes in the file, may have."""

MOST_SECTIONS: Final = 1 << 16

EM_NONE: Final = 0
EM_BPF: Final = 247
ET_REL: Final = 1

SHT_PROGBITS: Final = 1
SHT_SYMTAB: Final = 2
SHT_STRTAB: Final = 3
SHT_RELA: Final = 4
SHT_NOBITS: Final = 8
SHT_REL: Final = 9

SHF_WRITE: Final = 1
SHF_ALLOC: Final = 2
SHF_EXECINSTR: Final = 4

SHN_UNDEF: Final = 0
SHN_LORESERVE: Final = 0xFF00
SHN_COMMON: Final = 0xFFF2

STB_LOCAL, STB_GLOBAL, STB_WEAK = 0, 1, 2
STT_NOTYPE, STT_OBJECT, STT_FUNC, STT_SECTION, STT_FILE = 0, 1, 2, 3, 4

_HEADER_BYTES: Final = 64
_SECTION_BYTES: Final = 64
_SYMBOL_BYTES: Final = 24


@attrs.frozen
class Section:
    """A section: its place in the section table, and its bytes (empty where it has none in the file).

    Attributes:
        size: bytes; for SHT_NOBITS what it takes in memory.
    """

    index: int
    name: str
    type: int
    flags: int
    size: int
    link: int
    info: int
    entry_size: int
    data: memoryview = attrs.field(repr=False)

    @property
    def executable(self) -> bool:
        """Whether it holds instructions."""
        return self.type == SHT_PROGBITS and bool(self.flags & SHF_EXECINSTR)


@attrs.frozen
class Symbol:
    """A symbol. `section` is an index into `Elf.sections`; 0: undefined; from 0xff00 on: absolute and the like."""

    index: int
    name: str
    value: int
    size: int
    type: int
    binding: int
    section: int

    @property
    def defined(self) -> bool:
        """Whether it stands in a section of this file."""
        return 0 < self.section < SHN_LORESERVE


@attrs.frozen
class Relocation:
    """A place to fill in: byte offset in its section, the kind, the symbol; `addend` is None where it is in place."""

    offset: int
    type: int
    symbol: Symbol
    addend: int | None = None


@attrs.frozen
class Elf:
    """A relocatable file.

    Attributes:
        file: its name, for messages.
        relocations: section index to what is to be filled in there, by offset.
    """

    file: str
    big_endian: bool
    machine: int
    sections: tuple[Section, ...]
    symbols: tuple[Symbol, ...]
    relocations: dict[int, tuple[Relocation, ...]]

    def section(self, name: str) -> Section | None:
        """The first section of a name; None where there is none."""
        return next((s for s in self.sections if s.name == name), None)


def read_elf(data: bytes, file: str) -> Elf:
    """Read a relocatable ELF64 file. Raises ObjectError for anything that is not one, or not whole."""
    return _Reader(data, file).read()


class _Reader:
    def __init__(self, data: bytes, file: str) -> None:
        self.data = memoryview(data)
        self.file = file
        self.order = "<"

    def error(self, what: str, place: str = "", way_out: str = "compile it anew") -> ObjectError:
        return ObjectError(what, f"{self.file}: {place}" if place else self.file, way_out)

    def read(self) -> Elf:
        data = self.data
        if len(data) > LIMIT:
            raise self.error(f"has {len(data)} bytes, more than {LIMIT}", way_out="strip its debug sections")
        if len(data) < _HEADER_BYTES or bytes(data[:4]) != b"\x7fELF":
            raise self.error("is no ELF file", way_out="give an object made by clang -target bpf")
        if data[4] != 2 or data[5] not in (1, 2):
            raise self.error("is no 64-bit ELF file", way_out="give an object made by clang -target bpf")
        self.order = "<" if data[5] == 1 else ">"
        kind, machine = struct.unpack_from(self.order + "HH", data, 16)
        if kind != ET_REL:
            raise self.error(
                f"has ELF type {kind}, not 1 (relocatable)", way_out="give what clang -c makes, not a linked file"
            )
        sections = self._sections()
        symbols = self._symbols(sections)
        return Elf(self.file, self.order == ">", machine, sections, symbols, self._relocations(sections, symbols))

    def _sections(self) -> tuple[Section, ...]:
        data = self.data
        (table,) = struct.unpack_from(self.order + "Q", data, 40)
        entry, count, names = struct.unpack_from(self.order + "HHH", data, 58)
        if table == 0:
            return ()
        if entry != _SECTION_BYTES:
            raise self.error(f"section headers have {entry} bytes, not {_SECTION_BYTES}", "ELF header")
        if table > len(data) - _SECTION_BYTES:
            raise self.error("lies outside the file", "section table")
        headers = struct.Struct(self.order + "IIQQQQIIQQ")
        first = headers.unpack_from(data, table)
        count = count or first[5]
        names = first[6] if names == 0xFFFF else names
        if count > MOST_SECTIONS or table + count * _SECTION_BYTES > len(data):
            raise self.error(f"{count} sections do not fit in the file", "section table")
        rows = [headers.unpack_from(data, table + n * _SECTION_BYTES) for n in range(count)]
        views = [self._view(n, row) for n, row in enumerate(rows)]
        self._refuse_overlap(rows, table, count)
        if count and names >= count:
            raise self.error(f"section names stand in section {names} of {count}", "ELF header")
        strings = views[names] if count else self.data[:0]
        return tuple(
            Section(
                index,
                self._string(strings, row[0], f"section {index}'s name"),
                row[1],
                row[2],
                row[5] if row[1] == SHT_NOBITS else len(view),
                row[6],
                row[7],
                row[9],
                view,
            )
            for index, (row, view) in enumerate(zip(rows, views, strict=True))
        )

    def _view(self, index: int, row: tuple[int, ...]) -> memoryview:
        kind, offset, size = row[1], row[4], row[5]
        if kind == 0:
            return self.data[:0]
        if kind == SHT_NOBITS:
            if size > LIMIT:
                raise self.error(f"claims {size} bytes, more than {LIMIT}", f"section {index}")
            return self.data[:0]
        if offset > len(self.data) or size > len(self.data) - offset:
            raise self.error(
                f"bytes {offset} to {offset + size} lie outside the file of {len(self.data)} bytes", f"section {index}"
            )
        return self.data[offset : offset + size]

    def _refuse_overlap(self, rows: list[tuple[int, ...]], table: int, count: int) -> None:
        spans = [(0, _HEADER_BYTES, "the ELF header"), (table, table + count * _SECTION_BYTES, "the section table")]
        for index, row in enumerate(rows):
            if row[1] not in (0, SHT_NOBITS) and row[5]:
                spans.append((row[4], row[4] + row[5], f"section {index}"))
        spans.sort()
        for (_, end, one), (start, _, other) in pairwise(spans):
            if start < end:
                raise self.error(f"overlaps {one}", other)

    def _string(self, strings: memoryview, offset: int, what: str) -> str:
        if offset == 0 and not strings:
            return ""
        if offset >= len(strings):
            raise self.error(f"{what} lies outside its string table")
        raw = bytes(strings[offset : offset + 4096])
        end = raw.find(b"\0")
        if end < 0:
            raise self.error(f"{what} does not end")
        try:
            text = raw[:end].decode("utf-8")
        except UnicodeDecodeError:
            raise self.error(f"{what} is not text") from None
        if not text.isprintable():
            raise self.error(f"{what} holds characters that can't be printed")
        return text

    def _symbols(self, sections: tuple[Section, ...]) -> tuple[Symbol, ...]:
        tables = [s for s in sections if s.type == SHT_SYMTAB]
        if not tables:
            return ()
        if len(tables) > 1:
            raise self.error("there are two symbol tables", f"section {tables[1].index}")
        table = tables[0]
        if table.entry_size != _SYMBOL_BYTES or table.size % _SYMBOL_BYTES:
            raise self.error(f"entries have {table.entry_size} bytes, not {_SYMBOL_BYTES}", f"section {table.name}")
        if not 0 < table.link < len(sections) or sections[table.link].type != SHT_STRTAB:
            raise self.error("has no string table", f"section {table.name}")
        strings = sections[table.link].data
        symbols = []
        rows = struct.iter_unpack(self.order + "IBBHQQ", table.data)
        for index, (name, info, _, section, value, size) in enumerate(rows):
            place = f"symbol {index}"
            kind = info & 15
            if section >= len(sections) and section < SHN_LORESERVE:
                raise self.error(f"stands in section {section} of {len(sections)}", place)
            if section == SHN_COMMON:
                raise self.error("is common: it has no place", place, "compile with -fno-common")
            text = self._string(strings, name, f"{place}'s name")
            if 0 < section < SHN_LORESERVE:
                room = sections[section].size
                if value > room or size > room - value:
                    raise self.error(
                        f"bytes {value} to {value + size} lie outside section {sections[section].name} of {room} bytes",
                        f"symbol {text or index}",
                    )
                if kind == STT_SECTION and not text:
                    text = sections[section].name
            symbols.append(Symbol(index, text, value, size, kind, info >> 4, section))
        return tuple(symbols)

    def _relocations(
        self, sections: tuple[Section, ...], symbols: tuple[Symbol, ...]
    ) -> dict[int, tuple[Relocation, ...]]:
        found: dict[int, list[Relocation]] = {}
        for section in sections:
            if section.type not in (SHT_REL, SHT_RELA):
                continue
            addends = section.type == SHT_RELA
            bytes_ = 24 if addends else 16
            place = f"section {section.name}"
            if section.entry_size != bytes_ or section.size % bytes_:
                raise self.error(f"entries have {section.entry_size} bytes, not {bytes_}", place)
            if not 0 < section.info < len(sections):
                raise self.error(f"fills in section {section.info} of {len(sections)}", place)
            target = sections[section.info]
            rows = struct.iter_unpack(self.order + ("QQq" if addends else "QQ"), section.data)
            for number, (offset, info, *addend) in enumerate(rows):
                if info >> 32 >= len(symbols):
                    raise self.error(f"names symbol {info >> 32} of {len(symbols)}", f"{place}, relocation {number}")
                if offset >= len(target.data):
                    raise self.error(
                        f"byte {offset} lies outside section {target.name} of {len(target.data)} bytes",
                        f"{place}, relocation {number}",
                    )
                found.setdefault(target.index, []).append(
                    Relocation(offset, info & 0xFFFFFFFF, symbols[info >> 32], addend[0] if addends else None)
                )
        return {index: tuple(sorted(rows, key=lambda r: r.offset)) for index, rows in found.items()}
