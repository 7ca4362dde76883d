"""The section .BTF.ext: which function and source line instructions belong to, and what CO-RE is to fill in.

header    | magic: 16 | version: 8 | flags: 8 | header bytes: 32 | offset, bytes: 32, 32 of each table |
a table   | record bytes: 32 | then for each section: name offset: 32, records: 32, the records |
"""

import struct
from typing import Final

import attrs

from flowshunt_ebpf.elf.btf import MAGIC, Btf
from flowshunt_ebpf.elf.error import ObjectError


@attrs.frozen
class FunctionInfo:
    """The FUNC type of the function that starts at a byte offset in its section."""

    offset: int
    type: int


@attrs.frozen
class LineInfo:
    """The source line of the instruction at a byte offset in its section; string offsets as the kernel takes them."""

    offset: int
    file_offset: int
    text_offset: int
    line: int
    column: int


@attrs.frozen
class CoreRelocation:
    """What CO-RE fills in at a byte offset in its section: a fact of `kind` on what `access` picks from a type."""

    offset: int
    type: int
    access: str
    kind: int


@attrs.frozen
class BtfExt:
    """The tables, by section name; records in the order of the file."""

    functions: dict[str, tuple[FunctionInfo, ...]]
    lines: dict[str, tuple[LineInfo, ...]]
    relocations: dict[str, tuple[CoreRelocation, ...]]


_MOST_COLUMN: Final = 0x3FF


def read_btf_ext(data: memoryview, btf: Btf, file: str) -> BtfExt:
    """Read the section. Raises ObjectError where a table lies outside it or is not whole."""
    order = "<" if len(data) > 1 and data[0] == MAGIC & 0xFF else ">"
    if len(data) < 24:
        raise _error("is shorter than its header", file)
    magic, version, _, length = struct.unpack_from(order + "HBBI", data)
    if magic != MAGIC or version != 1 or length < 24:
        raise _error(f"has magic {magic:#x}, version {version}, {length} bytes of header", file)
    spans = [struct.unpack_from(order + "II", data, at) for at in (8, 16)]
    spans.append(struct.unpack_from(order + "II", data, 24) if length >= 32 and len(data) >= 32 else (0, 0))
    tables = []
    for (offset, size), fields, name in zip(spans, (2, 4, 4), ("functions", "lines", "relocations"), strict=True):
        if length + offset + size > len(data):
            raise _error(f"{name} lie outside it", file)
        tables.append(_table(data[length + offset : length + offset + size], order, fields, btf, f"{file}, {name}"))
    functions, lines, relocations = tables
    return BtfExt(
        {s: tuple(FunctionInfo(o, t) for o, t in rows) for s, rows in functions.items()},
        {s: tuple(LineInfo(o, f, t, lc >> 10, lc & _MOST_COLUMN) for o, f, t, lc in rows) for s, rows in lines.items()},
        {s: tuple(CoreRelocation(o, t, btf.string(a), k) for o, t, a, k in rows) for s, rows in relocations.items()},
    )


def _error(what: str, place: str) -> ObjectError:
    return ObjectError(what, f"{place}, .BTF.ext", "compile it anew")


def _table(data: memoryview, order: str, fields: int, btf: Btf, place: str) -> dict[str, list[tuple[int, ...]]]:
    """Section name to rows; records may be longer than what is known of them."""
    found: dict[str, list[tuple[int, ...]]] = {}
    if not data:
        return found
    if len(data) < 4:
        raise _error("ends inside its record size", place)
    (bytes_,) = struct.unpack_from(order + "I", data)
    if bytes_ < 4 * fields or bytes_ % 4 or bytes_ > 256:
        raise _error(f"has records of {bytes_} bytes, at least {4 * fields} are known", place)
    at = 4
    row = struct.Struct(order + f"{fields}I")
    while at < len(data):
        if len(data) - at < 8:
            raise _error("ends inside a section's header", place)
        name, count = struct.unpack_from(order + "II", data, at)
        at += 8
        if count > (len(data) - at) // bytes_:
            raise _error(f"{count} records do not fit", place)
        rows = found.setdefault(btf.string(name), [])
        rows.extend(row.unpack_from(data, at + n * bytes_) for n in range(count))
        at += count * bytes_
    return found
