"""Maps that an object defines: by BTF in section `.maps`, or as structs in section `maps`; and its data sections.

A BTF-defined map is a variable whose struct type carries the facts: `__uint(name, n)` as a pointer to an array of n
elements, `__type(name, t)` as a pointer to t, `__array(values, t)` as an array of pointers that the object may fill.
"""

import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs

from flowshunt_ebpf.elf.btf import COMPOSITES, ENUMS, Btf, Kind, Member, Type
from flowshunt_ebpf.elf.error import ObjectError
from flowshunt_ebpf.elf.reader import SHT_NOBITS, STT_FUNC, STT_OBJECT, STT_SECTION, Elf, Relocation, Section, Symbol
from flowshunt_ebpf.program.map_definition import MapDefinition, MapFlag, MapType

_OF_MAPS: Final = frozenset({MapType.ARRAY_OF_MAPS, MapType.HASH_OF_MAPS})

_NUMBERS: Final = {
    "type": "type",
    "max_entries": "max_entries",
    "map_flags": "flags",
    "key_size": "key_size",
    "value_size": "value_size",
    "pinning": "pinning",
    "numa_node": "numa_node",
    "map_extra": "map_extra",
}

DATA_SECTIONS: Final = (".rodata", ".data", ".bss")
"""Sections of these names, or of these with a dot and more, become maps of one value."""


def maps_of(elf: Elf, btf: Btf | None) -> dict[tuple[int, int], MapDefinition]:
    """All maps of an object by (section index, byte offset in it). Raises ObjectError, naming the map."""
    found: dict[tuple[int, int], MapDefinition] = {}
    for section in elf.sections:
        if section.name == ".maps":
            if btf is None:
                raise ObjectError("defines maps by BTF but has none", f"{elf.file}: section .maps", "compile with -g")
            for offset, definition in _BtfMaps(elf, btf, section).read().items():
                found[section.index, offset] = definition
        elif section.name == "maps":
            for offset, definition in _legacy_maps(elf, section).items():
                found[section.index, offset] = definition
        elif is_data(section):
            found[section.index, 0] = _data_map(elf, btf, section)
    names = [definition.name for definition in found.values()]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ObjectError("is defined twice", f"{elf.file}: map {twice}", "rename one of them")
    return found


def is_data(section: Section) -> bool:
    """Whether a section holds a program's constants or variables."""
    return any(section.name == name or section.name.startswith(f"{name}.") for name in DATA_SECTIONS) and (
        section.size > 0
    )


def _data_map(elf: Elf, btf: Btf | None, section: Section) -> MapDefinition:
    contents = bytes(section.size) if section.type == SHT_NOBITS else bytes(section.data)
    type_ = btf.find(section.name, Kind.DATASEC) if btf is not None else None
    return MapDefinition(
        section.name,
        MapType.ARRAY,
        key_size=4,
        value_size=len(contents),
        max_entries=1,
        flags=MapFlag.RDONLY_PROG if section.name.startswith(".rodata") else 0,
        contents=contents,
        value_type_id=type_.id if type_ is not None else 0,
    )


class _BtfMaps:
    def __init__(self, elf: Elf, btf: Btf, section: Section) -> None:
        self.elf = elf
        self.btf = btf
        self.section = section
        self.symbols = {
            s.value: s
            for s in elf.symbols
            if s.section == section.index and s.type not in (STT_SECTION, STT_FUNC) and s.name
        }
        self.relocations = elf.relocations.get(section.index, ())

    def error(self, what: str, name: str, way_out: str = "define it with the macros of bpf_helpers.h") -> ObjectError:
        return ObjectError(what, f"{self.elf.file}: map {name}", way_out)

    def read(self) -> dict[int, MapDefinition]:
        types = self._variables()
        found: dict[int, MapDefinition] = {}
        values: dict[int, Member] = {}
        for offset, symbol in sorted(self.symbols.items()):
            type_ = types.get(symbol.name)
            if type_ is None:
                raise self.error("has no BTF", symbol.name, "compile with -g")
            found[offset], member = self._definition(symbol.name, type_, inner=False)
            if member is not None:
                values[offset] = member
        for offset, member in values.items():
            found[offset] = attrs.evolve(found[offset], values=self._filled(offset, member, found[offset].name))
        return found

    def _variables(self) -> dict[str, Type]:
        section = self.btf.find(".maps", Kind.DATASEC)
        variables = [self.btf.type(m.type) for m in section.members] if section is not None else []
        return {v.name: self.btf.strip(v.type) for v in variables if v.kind is Kind.VAR}

    def _definition(self, name: str, type_: Type, *, inner: bool) -> tuple[MapDefinition, Member | None]:
        if type_.kind is not Kind.STRUCT:
            raise self.error("is no struct", name)
        facts: dict[str, Any] = {}
        nested: MapDefinition | None = None
        values: Member | None = None
        for member in type_.members:
            if member.name in _NUMBERS:
                facts[_NUMBERS[member.name]] = self._number(name, member)
            elif member.name in ("key", "value"):
                pointed = self._pointed(name, member)
                facts[f"{member.name}_type_id"] = pointed
                size = self.btf.size_of(pointed)
                if facts.setdefault(f"{member.name}_size", size) != size:
                    raise self.error(f"gives two sizes of its {member.name}", name)
            elif member.name == "values":
                values = member
                if inner:
                    raise self.error("is an inner map of an inner map", name, "the kernel allows one level")
                nested = self._inner(name, member)
            else:
                raise self.error(f"has the unknown field {member.name!r}", name)
        if "type" not in facts:
            raise self.error("has no type", name)
        if facts["type"] in _OF_MAPS or facts["type"] == MapType.PROG_ARRAY:
            facts.setdefault("key_size", 4)
            facts.setdefault("value_size", 4)
        return attrs.evolve(MapDefinition(name, 0, 0, 0, 0), inner=nested, **facts), values

    def _number(self, name: str, member: Member) -> int:
        """`int (*field)[n]`: n; or the only enumerator of an enum."""
        type_ = self.btf.strip(member.type)
        if type_.kind in ENUMS and len(type_.members) == 1:
            return type_.members[0].value
        if type_.kind is Kind.PTR:
            array = self.btf.strip(type_.type)
            if array.kind is Kind.ARRAY:
                return array.length
        raise self.error(f"gives {member.name} in no known way", name)

    def _pointed(self, name: str, member: Member) -> int:
        type_ = self.btf.strip(member.type)
        if type_.kind is not Kind.PTR:
            raise self.error(f"gives {member.name} in no known way", name)
        return type_.type

    def _inner(self, name: str, member: Member) -> MapDefinition | None:
        array = self.btf.strip(member.type)
        if array.kind is not Kind.ARRAY:
            raise self.error("has values that are no array", name)
        pointer = self.btf.strip(array.type)
        if pointer.kind is not Kind.PTR:
            raise self.error("has values that are no pointers", name)
        pointed = self.btf.strip(pointer.type)
        if pointed.kind is Kind.FUNC_PROTO or pointed.kind not in COMPOSITES:
            return None
        return self._definition(f"{name}.inner", pointed, inner=True)[0]

    def _filled(self, offset: int, member: Member, name: str) -> tuple[tuple[int, str], ...]:
        start = offset + member.offset // 8
        end = offset + self.symbols[offset].size
        found = []
        for relocation in self.relocations:
            if not start <= relocation.offset < end:
                continue
            found.append(((relocation.offset - start) // 8, self._target(relocation, name)))
        return tuple(found)

    def _target(self, relocation: Relocation, name: str) -> str:
        symbol = relocation.symbol
        if relocation.offset > len(self.section.data) - 8:
            raise self.error(f"is filled at byte {relocation.offset}, where no address fits", name)
        if symbol.defined and symbol.section == self.section.index:
            (addend,) = struct.unpack_from(">Q" if self.elf.big_endian else "<Q", self.section.data, relocation.offset)
            at = symbol.value + (addend if symbol.type == STT_SECTION else 0)
            if at in self.symbols:
                return self.symbols[at].name
        if symbol.defined and symbol.type == STT_FUNC:
            return symbol.name
        raise self.error(f"is filled with {symbol.name or symbol.index!r}, neither a map nor a program", name)


_LEGACY_BYTES: Final = 20
_IPROUTE_BYTES: Final = 36


def _legacy_maps(elf: Elf, section: Section) -> dict[int, MapDefinition]:
    """`struct bpf_map_def` (20 bytes, or more that are zero), or iproute2's `struct bpf_elf_map` (36 bytes)."""
    symbols: list[Symbol] = sorted(
        (s for s in elf.symbols if s.section == section.index and s.type in (0, STT_OBJECT) and s.name),
        key=lambda s: s.value,
    )
    place = f"{elf.file}: section maps"
    if not symbols:
        raise ObjectError("has no symbol that names a map", place, "declare each map as a variable in it")
    bytes_ = section.size // len(symbols)
    if section.size % len(symbols) or bytes_ < _LEGACY_BYTES or section.type == SHT_NOBITS:
        raise ObjectError(f"{section.size} bytes do not hold {len(symbols)} maps", place, "use BTF-defined maps")
    order = ">" if elf.big_endian else "<"
    rows = {}
    for symbol in symbols:
        if symbol.value % bytes_ or symbol.value > section.size - bytes_:
            raise ObjectError(f"starts at byte {symbol.value}, where no map starts", f"{place}, map {symbol.name}")
        rows[symbol.value] = struct.unpack_from(order + f"{bytes_ // 4}I", section.data, symbol.value)
    if bytes_ == _IPROUTE_BYTES:
        return _iproute_maps(symbols, rows)
    for symbol in symbols:
        if any(rows[symbol.value][5:]):
            raise ObjectError(
                "sets fields behind map_flags, which have no known meaning",
                f"{place}, map {symbol.name}",
                "use BTF-defined maps",
            )
    return {s.value: _plain(s.name, rows[s.value]) for s in symbols}


def _plain(name: str, row: Sequence[int], pinning: int = 0) -> MapDefinition:
    type_, key, value, entries, flags = row[:5]
    return MapDefinition(name, type_, key, value, entries, flags, pinning=pinning)


def _iproute_maps(symbols: list[Symbol], rows: Mapping[int, tuple[int, ...]]) -> dict[int, MapDefinition]:
    """type, key, value, entries, flags, id, pinning, inner id, inner index."""
    plain = {s.value: _plain(s.name, rows[s.value], int(rows[s.value][6] != 0)) for s in symbols}
    by_id = {rows[at][5]: definition for at, definition in plain.items() if rows[at][5]}
    found = {}
    for at, definition in plain.items():
        inner = by_id.get(rows[at][7]) if definition.type in _OF_MAPS else None
        found[at] = attrs.evolve(definition, inner=inner)
    return found
