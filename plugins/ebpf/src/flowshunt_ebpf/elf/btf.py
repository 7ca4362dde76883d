"""BTF, the kernel's type format (Documentation/bpf/btf.rst): types by number and by name.

A kernel's BTF has well over 100,000 types, so a blob is only walked when it is opened (each type's place and name); a
type is decoded when it is asked for. Every offset is checked: a blob may come from anywhere.

    header    | magic: 16 | version: 8 | flags: 8 | header bytes: 32 | types' offset, bytes: 32, 32 | strings' |
    a type    | name offset: 32 | kind flag: 1, unused: 2, kind: 5, unused: 8, vlen: 16 | size or type: 32 | by kind |
"""

import struct
from array import array
from collections.abc import Iterator
from enum import IntEnum
from functools import cached_property
from typing import Final

import attrs

from flowshunt_ebpf.elf.error import ObjectError

MAGIC: Final = 0xEB9F
MOST_TYPES: Final = 1 << 20


class Kind(IntEnum):
    """Kinds of types, by BTF's numbers."""

    VOID = 0
    INT = 1
    PTR = 2
    ARRAY = 3
    STRUCT = 4
    UNION = 5
    ENUM = 6
    FWD = 7
    TYPEDEF = 8
    VOLATILE = 9
    CONST = 10
    RESTRICT = 11
    FUNC = 12
    FUNC_PROTO = 13
    VAR = 14
    DATASEC = 15
    FLOAT = 16
    DECL_TAG = 17
    TYPE_TAG = 18
    ENUM64 = 19


MODIFIERS: Final = frozenset({Kind.TYPEDEF, Kind.VOLATILE, Kind.CONST, Kind.RESTRICT, Kind.TYPE_TAG})
COMPOSITES: Final = frozenset({Kind.STRUCT, Kind.UNION})
ENUMS: Final = frozenset({Kind.ENUM, Kind.ENUM64})

_TRAILING: Final = {
    Kind.INT: (4, 0), Kind.ARRAY: (12, 0), Kind.STRUCT: (0, 12), Kind.UNION: (0, 12), Kind.ENUM: (0, 8),
    Kind.FUNC_PROTO: (0, 8), Kind.VAR: (4, 0), Kind.DATASEC: (0, 12), Kind.DECL_TAG: (4, 0), Kind.ENUM64: (0, 12),
}  # fmt: skip
"""Bytes that follow a type: once, and for each of its members."""

_FIXED = tuple(_TRAILING.get(Kind(kind), (0, 0))[0] if kind < 20 else 0 for kind in range(32))
_EACH = tuple(_TRAILING.get(Kind(kind), (0, 0))[1] if kind < 20 else 0 for kind in range(32))


@attrs.frozen
class Member:
    """A member of a struct or union, a parameter, an enumerator, or a variable of a DATASEC.

    Attributes:
        type: type id; 0 for enumerators.
        offset: bits for structs and unions; bytes for DATASEC.
        bits: of a bit field; 0: none. Bytes for DATASEC.
        value: of an enumerator.
    """

    name: str
    type: int = 0
    offset: int = 0
    bits: int = 0
    value: int = 0


@attrs.frozen
class Type:
    """A type.

    Attributes:
        size: bytes, for kinds that have a size.
        type: the type id that it refers to, for those that refer; an array's element.
        length: an array's elements.
        flag: the kind flag: signed for enums, bit fields for structs, union for forward declarations.
        encoding: an INT's: 1 signed, 2 char, 4 bool; a FUNC's or VAR's linkage: 0 static, 1 global, 2 extern.
        bits: an INT's width, and its offset in bits.
        component: what a DECL_TAG marks: -1 the type itself, else a member.
    """

    id: int
    kind: Kind
    name: str
    size: int = 0
    type: int = 0
    members: tuple[Member, ...] = ()
    length: int = 0
    flag: bool = False
    encoding: int = 0
    bits: int = 0
    bit_offset: int = 0
    component: int = -1


VOID: Final = Type(0, Kind.VOID, "")


class Btf:
    """An opened BTF blob.

    Attributes:
        file: where it comes from, for messages.
        raw: the blob itself.
    """

    def __init__(self, raw: bytes, file: str) -> None:
        """Index a blob. Raises ObjectError where it is not BTF or not whole."""
        self.raw = raw
        self.file = file
        self._types: dict[int, Type] = {}
        self._texts: dict[int, str] = {}
        self._by_name: dict[str, list[int]] = {}
        self._order, self._strings, types = self._header()
        self._names = array("I", [0])
        self._places = self._index(types)

    def _error(self, what: str, place: str = "") -> ObjectError:
        return ObjectError(what, f"{self.file}, BTF{' ' + place if place else ''}", "compile it anew")

    def _header(self) -> tuple[str, memoryview, tuple[int, int]]:
        raw = memoryview(self.raw)
        if len(raw) < 24:
            raise self._error("is shorter than its header")
        order = "<" if raw[0] == MAGIC & 0xFF else ">"
        magic, version, _, length, type_offset, type_bytes, string_offset, string_bytes = struct.unpack_from(
            order + "HBBIIIII", raw
        )
        if magic != MAGIC or version != 1:
            raise self._error(f"has magic {magic:#x}, version {version}; {MAGIC:#x}, version 1 are known")
        for name, offset, size in (("types", type_offset, type_bytes), ("strings", string_offset, string_bytes)):
            if length < 24 or length + offset + size > len(raw):
                raise self._error(f"{name} lie outside it")
        strings = raw[length + string_offset : length + string_offset + string_bytes]
        if string_bytes and (strings[0] or strings[-1]):
            raise self._error("strings do not start and end with a zero")
        return order, strings, (length + type_offset, length + type_offset + type_bytes)

    def _index(self, span: tuple[int, int]) -> "array[int]":
        """Where each type starts; ids count from 1, so place 0 is void's. Their names' offsets are noted on the way."""
        at, end = span
        places = array("I", [0])
        unpack = struct.Struct(self._order + "II").unpack_from
        raw, fixed, each = self.raw, _FIXED, _EACH
        append, append_name = places.append, self._names.append
        while at < end:
            if end - at < 12:
                raise self._error("ends inside it", f"type {len(places)}")
            name, info = unpack(raw, at)
            kind = info >> 24 & 31
            append(at)
            append_name(name)
            at += 12 + fixed[kind] + each[kind] * (info & 0xFFFF)
        if at != end:
            raise self._error("ends inside it", f"type {len(places) - 1}")
        if len(places) > MOST_TYPES:
            raise self._error(f"has {len(places)} types, more than {MOST_TYPES}")
        return places

    def __len__(self) -> int:
        """How many types there are, void included."""
        return len(self._places)

    def string(self, offset: int) -> str:
        """A string by its offset; what can't be printed comes as "?". Raises ObjectError where it lies outside."""
        found = self._texts.get(offset)
        if found is None:
            found = self._texts[offset] = self._string(offset)
        return found

    def _string(self, offset: int) -> str:
        if offset == 0:
            return ""
        if offset >= len(self._strings):
            raise self._error(f"string {offset} lies outside the {len(self._strings)} bytes of strings")
        start = self._base + offset
        text = self.raw[start : self.raw.index(b"\0", start)].decode("utf-8", "replace")
        if text.replace("\t", "").isprintable():
            return text
        return "".join(c if c.isprintable() or c == "\t" else "?" for c in text)

    @cached_property
    def _base(self) -> int:
        length, _, _, string_offset = struct.unpack_from(self._order + "IIII", self.raw, 4)
        return int(length) + int(string_offset)

    def kind(self, id_: int) -> Kind:
        """A type's kind."""
        return self.type(id_).kind if id_ in self._types else self._kind(id_)

    def _kind(self, id_: int) -> Kind:
        if id_ == 0:
            return Kind.VOID
        if not 0 <= id_ < len(self._places):
            raise self._error(f"there is no such type; {len(self._places) - 1} is the last", f"type {id_}")
        (info,) = struct.unpack_from(self._order + "I", self.raw, self._places[id_] + 4)
        kind = info >> 24 & 31
        if kind not in Kind._value2member_map_ or kind == 0:
            raise self._error(f"has the unknown kind {kind}", f"type {id_}")
        return Kind(kind)

    def type(self, id_: int) -> Type:
        """A type by its id. Raises ObjectError for an id that does not exist or a kind that is not known."""
        found = self._types.get(id_)
        if found is None:
            found = self._types[id_] = self._decode(id_)
        return found

    def _decode(self, id_: int) -> Type:
        kind = self._kind(id_)
        if kind is Kind.VOID:
            return VOID
        at = self._places[id_]
        unpack = struct.unpack_from
        order, raw = self._order, self.raw
        name_offset, info, size = unpack(order + "III", raw, at)
        name, count, flag = self.string(name_offset), info & 0xFFFF, bool(info >> 31)
        at += 12
        if kind is Kind.INT:
            (word,) = unpack(order + "I", raw, at)
            return Type(id_, kind, name, size, encoding=word >> 24 & 15, bits=word & 255, bit_offset=word >> 16 & 255)
        if kind is Kind.ARRAY:
            element, _, length = unpack(order + "III", raw, at)
            return Type(id_, kind, name, type=element, length=length)
        if kind in COMPOSITES:
            return Type(id_, kind, name, size, members=self._fields(at, count, flag), flag=flag)
        if kind in ENUMS:
            return Type(id_, kind, name, size, members=self._enumerators(kind, at, count, flag), flag=flag)
        if kind is Kind.FUNC_PROTO:
            rows = (unpack(order + "II", raw, at + 8 * n) for n in range(count))
            return Type(id_, kind, name, type=size, members=tuple(Member(self.string(n), t) for n, t in rows))
        if kind is Kind.DATASEC:
            rows = (unpack(order + "III", raw, at + 12 * n) for n in range(count))
            return Type(id_, kind, name, size, members=tuple(Member("", t, o, s) for t, o, s in rows))
        if kind is Kind.VAR:
            return Type(id_, kind, name, type=size, encoding=unpack(order + "I", raw, at)[0])
        if kind is Kind.DECL_TAG:
            return Type(id_, kind, name, type=size, component=unpack(order + "i", raw, at)[0])
        if kind is Kind.FLOAT:
            return Type(id_, kind, name, size)
        return Type(id_, kind, name, type=size, flag=flag, encoding=count if kind is Kind.FUNC else 0)

    def _fields(self, at: int, count: int, flag: bool) -> tuple[Member, ...]:
        members = []
        for n in range(count):
            name, type_, offset = struct.unpack_from(self._order + "III", self.raw, at + 12 * n)
            bits = offset >> 24 if flag else 0
            members.append(Member(self.string(name), type_, offset & 0xFFFFFF if flag else offset, bits))
        return tuple(members)

    def _enumerators(self, kind: Kind, at: int, count: int, signed: bool) -> tuple[Member, ...]:
        members = []
        for n in range(count):
            if kind is Kind.ENUM:
                name, value = struct.unpack_from(self._order + ("Ii" if signed else "II"), self.raw, at + 8 * n)
            else:
                name, low, high = struct.unpack_from(self._order + "III", self.raw, at + 12 * n)
                value = low | high << 32
                if signed and value >> 63:
                    value -= 1 << 64
            members.append(Member(self.string(name), value=value))
        return tuple(members)

    def find(self, name: str, *kinds: Kind) -> Type | None:
        """The first type of a name, of one of these kinds (any where none is given)."""
        for id_ in self.named(name):
            if not kinds or self.kind(id_) in kinds:
                return self.type(id_)
        return None

    def named(self, name: str) -> list[int]:
        """The ids of the types that have a name, ascending."""
        found = self._by_name.get(name)
        if found is None:
            found = self._by_name[name] = sorted(
                id_ for offset in self._offsets(b"\0" + name.encode() + b"\0") for id_ in self._with(offset + 1)
            )
        return found

    def names_with(self, part: str) -> set[str]:
        """All strings that have `part` in them; type names among them."""
        strings, base = self.raw, self._base
        found = set()
        for offset in self._offsets(part.encode()):
            start = strings.rindex(b"\0", base, base + offset + 1) + 1
            found.add(self.string(start - base))
        return found

    def _offsets(self, wanted: bytes) -> Iterator[int]:
        """Where bytes stand in the strings, by their offsets."""
        base, end = self._base, self._base + len(self._strings)
        at = self.raw.find(wanted, base, end)
        while at >= 0:
            yield at - base
            at = self.raw.find(wanted, at + 1, end)

    def _with(self, offset: int) -> Iterator[int]:
        """The ids of the types whose name stands at an offset."""
        names = self._names
        at = 0
        while True:
            try:
                at = names.index(offset, at + 1)
            except ValueError:
                return
            yield at

    def place(self, id_: int) -> int:
        """Where a type starts in the blob. Raises ObjectError for an id that does not exist."""
        self._kind(id_)
        return self._places[id_]

    @property
    def order(self) -> str:
        """The byte order, as `struct` writes it."""
        return self._order

    def strip(self, id_: int) -> Type:
        """A type without its typedefs and qualifiers. Raises ObjectError where these go round in a circle."""
        found = self.type(id_)
        for _ in range(64):
            if found.kind not in MODIFIERS:
                return found
            found = self.type(found.type)
        raise self._error("typedefs or qualifiers go round in a circle", f"type {id_}")

    def size_of(self, id_: int) -> int:
        """A type's bytes. Raises ObjectError for types without a size, and for more than 4 GiB."""
        elements = 1
        for _ in range(64):
            found = self.strip(id_)
            if found.kind is Kind.PTR:
                return elements * 8
            if found.kind is Kind.ARRAY:
                elements *= found.length
                id_ = found.type
                continue
            if found.kind in COMPOSITES or found.kind in ENUMS or found.kind in (Kind.INT, Kind.FLOAT, Kind.DATASEC):
                if elements * found.size >= 1 << 32:
                    raise self._error("has 4 GiB or more", f"type {id_}")
                return elements * found.size
            if found.kind is Kind.VAR:
                id_ = found.type
                continue
            break
        raise self._error("has no size", f"type {id_}")


def read_btf(data: bytes, file: str) -> Btf:
    """BTF from a file's bytes: a bare blob, or an ELF file (a vmlinux, a module, an object) with a section .BTF.

    Raises ObjectError where there is none.
    """
    if data[:4] != b"\x7fELF":
        return Btf(data, file)
    blob = _section_of_elf(data, b".BTF")
    if blob is None:
        raise ObjectError("has no section .BTF", file, "give one with types, such as /sys/kernel/btf/vmlinux")
    return Btf(blob, file)


def _section_of_elf(data: bytes, wanted: bytes) -> bytes | None:
    """A section's bytes by name, from any 64-bit ELF file, linked or not; None where it is not there or not whole."""
    if len(data) < 64 or data[4] != 2:
        return None
    order = "<" if data[5] == 1 else ">"
    (table,) = struct.unpack_from(order + "Q", data, 40)
    entry, count, names = struct.unpack_from(order + "HHH", data, 58)
    if entry != 64 or table + count * 64 > len(data) or names >= count:
        return None
    (names_offset,) = struct.unpack_from(order + "Q", data, table + names * 64 + 24)
    for n in range(count):
        name, _, _, _, offset, size = struct.unpack_from(order + "IIQQQQ", data, table + n * 64)
        start = names_offset + name
        if data[start : start + len(wanted) + 1] == wanted + b"\0" and offset + size <= len(data):
            return data[offset : offset + size]
    return None
