"""Machine code out of a relocatable ELF object, as LLVM writes it for x86-64 in its large code model.

Only what such objects hold is read: sections that are loaded, symbols, and absolute 64-bit relocations. Anything else
is refused, so that the caller takes another way.
"""

import ctypes
import mmap
import struct
import weakref
from typing import Final

from flowshunt_ebpf.maps.memory import READ_WRITE, libc, map_anonymous, pages, protect

_HEADER: Final = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION: Final = struct.Struct("<IIQQQQIIQQ")
_SYMBOL: Final = struct.Struct("<IBBHQQ")
_RELOCATION: Final = struct.Struct("<QQq")

_MACHINE_X86_64: Final = 62
_TYPE_RELOCATABLE: Final = 1
_BITS, _SYMBOLS, _RELA, _NO_BITS = 1, 2, 4, 8
_ALLOCATED: Final = 2
_UNDEFINED, _ABSOLUTE, _COMMON = 0, 0xFFF1, 0xFFF2
_ABSOLUTE_64: Final = 1
_COMMON_ROOM: Final = 4096
_MOST_BYTES: Final = 1 << 24


class UnusableObjectError(ValueError):
    """The object holds something that is not read here."""


class ObjectCode:
    """The code of an object, executable and read-only.

    Attributes:
        symbols: the addresses of its defined symbols.
    """

    def __init__(self, data: bytes) -> None:
        try:
            self._load(data)
        except UnusableObjectError:
            raise
        except (struct.error, IndexError, OverflowError, ValueError) as error:
            raise UnusableObjectError(f"broken object: {error}") from None

    def _load(self, data: bytes) -> None:
        header = _HEADER.unpack_from(data)
        if header[0][:5] != b"\x7fELF\x02" or header[1] != _TYPE_RELOCATABLE or header[2] != _MACHINE_X86_64:
            raise UnusableObjectError("no relocatable object for x86-64")
        sections = [_SECTION.unpack_from(data, header[6] + n * header[11]) for n in range(header[12])]
        places, size = [], 0
        for _, kind, flags, _, _, length, _, _, alignment, _ in sections:
            wanted = flags & _ALLOCATED and length and kind in (_BITS, _NO_BITS)  # not what unwinds
            if wanted and max(length, alignment) > _MOST_BYTES:
                raise UnusableObjectError(f"a section of {length} bytes, aligned to {alignment}")
            size = -(-size // max(1, alignment)) * max(1, alignment) if wanted else size
            places.append(size if wanted else None)
            size += length if wanted else 0
        if size > _MOST_BYTES:
            raise UnusableObjectError(f"sections of {size} bytes")
        whole = pages(size + _COMMON_ROOM)
        self.address = map_anonymous(whole, READ_WRITE)
        self._finalizer = weakref.finalize(self, libc().munmap, self.address, whole)
        for section, place in zip(sections, places, strict=True):
            if place is not None and section[1] != _NO_BITS:
                content = data[section[4] : section[4] + section[5]]
                if len(content) != section[5]:
                    raise UnusableObjectError("a section reaches out of the object")
                ctypes.memmove(self.address + place, content, section[5])
        names, values = self._symbols(data, sections, places)
        for section in sections:
            if section[1] == _RELA and places[section[7]] is not None:
                self._relocate(data, section, int(places[section[7]] or 0), sections[section[7]][5], values)
        protect(self.address, whole, mmap.PROT_READ | mmap.PROT_EXEC)
        self.symbols = {name: value for name, value in zip(names, values, strict=True) if name and value}

    def _symbols(
        self, data: bytes, sections: list[tuple[int, ...]], places: list[int | None]
    ) -> tuple[list[str], list[int]]:
        table = next((s for s in sections if s[1] == _SYMBOLS), None)
        if table is None:
            raise UnusableObjectError("no symbols")
        strings = sections[table[6]]
        names, values = [], []
        for at in range(table[4], table[4] + table[5], _SYMBOL.size):
            name_at, _, _, section, value, _ = _SYMBOL.unpack_from(data, at)
            start = strings[4] + name_at
            name = data[start : data.index(b"\0", start)].decode()
            names.append(name)
            if section == _UNDEFINED:
                values.append(_outside(name) if name else 0)
            elif section == _ABSOLUTE:
                values.append(value)
            elif section == _COMMON:  # never used by code that can't raise
                values.append(0)
            else:
                place = places[section]
                if place is not None and value > sections[section][5]:
                    raise UnusableObjectError(f"symbol {name} lies outside its section")
                values.append(self.address + place + value if place is not None else 0)
        return names, values

    def _relocate(self, data: bytes, section: tuple[int, ...], place: int, size: int, values: list[int]) -> None:
        for at in range(section[4], section[4] + section[5], _RELOCATION.size):
            offset, info, addend = _RELOCATION.unpack_from(data, at)
            if info & 0xFFFFFFFF != _ABSOLUTE_64:
                raise UnusableObjectError(f"relocation of kind {info & 0xFFFFFFFF}")
            if offset > size - 8:
                raise UnusableObjectError("a relocation outside its section")
            target = values[info >> 32]
            if not target:
                raise UnusableObjectError("a relocation against a symbol of another kind")
            ctypes.c_uint64.from_address(self.address + place + offset).value = target + addend


def _outside(name: str) -> int:
    """The address of a symbol of this process: the C library's."""
    try:
        return ctypes.cast(getattr(ctypes.CDLL(None), name), ctypes.c_void_p).value or 0
    except AttributeError:
        raise UnusableObjectError(f"this process has no {name}") from None
