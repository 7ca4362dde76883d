"""An object's BTF as the kernel takes it: what the compiler left to the loader is filled in, in place.

- A section's size, and the offsets of its variables, which must ascend (Linux, kernel/bpf/btf.c).
- Externals: the kernel knows none in a program's BTF. Variables become global ones; functions static ones whose
  parameters have names; a section that holds functions, which are no variables, becomes a nameless struct of integers.
"""

import struct

from flowshunt_ebpf.elf.btf import Btf, Kind, Type
from flowshunt_ebpf.elf.reader import Elf

_EXTERN = 2
_GLOBAL = 1


def complete_btf(elf: Elf, btf: Btf | None) -> bytes:
    """The blob, completed; as long as before. Empty where there is none. Raises ObjectError for a broken type."""
    if btf is None:
        return b""
    raw = bytearray(btf.raw)
    sizes = {s.name: s.size for s in elf.sections}
    places = {(elf.sections[s.section].name, s.name): s.value for s in elf.symbols if s.defined and s.name}
    for id_ in range(1, len(btf)):
        kind = btf.kind(id_)
        if kind is Kind.DATASEC:
            _section(raw, btf, btf.type(id_), sizes, places)
        elif kind is Kind.VAR and btf.type(id_).encoding == _EXTERN:
            struct.pack_into(btf.order + "I", raw, btf.place(id_) + 12, _GLOBAL)
        elif kind is Kind.FUNC and btf.type(id_).encoding == _EXTERN:
            _function(raw, btf, btf.type(id_))
    return bytes(raw)


def _section(
    raw: bytearray, btf: Btf, section: Type, sizes: dict[str, int], places: dict[tuple[str, str], int]
) -> None:
    at, order = btf.place(section.id), btf.order
    if any(btf.kind(member.type) is not Kind.VAR for member in section.members):
        _struct(raw, btf, section)
        return
    rows = []
    end = 0
    for member in section.members:
        known = places.get((section.name, btf.type(member.type).name))
        offset = member.offset or (known if known is not None else end)
        size = member.bits or btf.size_of(member.type)
        rows.append((offset, member.type, size))
        end = -(-(offset + size) // 8) * 8
    struct.pack_into(order + "I", raw, at + 8, section.size or sizes.get(section.name, end) & 0xFFFFFFFF)
    for n, (offset, type_, size) in enumerate(sorted(rows)):
        struct.pack_into(order + "III", raw, at + 12 + 12 * n, type_, offset, size)


def _struct(raw: bytearray, btf: Btf, section: Type) -> None:
    integer = next((n for n in range(1, len(btf)) if btf.kind(n) is Kind.INT and btf.type(n).size == 4), 0)
    count = len(section.members)
    at = btf.place(section.id)
    struct.pack_into(btf.order + "III", raw, at, 0, Kind.STRUCT << 24 | count, 4 * count)
    for n in range(count):
        struct.pack_into(btf.order + "III", raw, at + 12 + 12 * n, 0, integer, 32 * n)


def _function(raw: bytearray, btf: Btf, function: Type) -> None:
    """Make it static, and lend its own name to parameters without one."""
    at, order = btf.place(function.id), btf.order
    (name,) = struct.unpack_from(order + "I", raw, at)
    struct.pack_into(order + "I", raw, at + 4, Kind.FUNC << 24)
    proto = btf.type(function.type)
    if proto.kind is not Kind.FUNC_PROTO:
        return
    for n, parameter in enumerate(proto.members):
        if not parameter.name and parameter.type:
            struct.pack_into(order + "I", raw, btf.place(proto.id) + 12 + 8 * n, name)
