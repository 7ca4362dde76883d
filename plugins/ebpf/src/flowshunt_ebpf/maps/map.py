"""Maps: their memory, and what Python does with them, one entry at a time or in bulk.

A map's memory is a header (`maps.header`) and its elements, at addresses that stay; native code, the interpreter and
NumPy work on the same bytes. Keys and values are bytes here and rows of uint8 arrays in bulk.
"""

import ctypes
import struct
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from flowshunt.errors import InputError
from flowshunt_ebpf.maps import header as h
from flowshunt_ebpf.maps.memory import GuardedMemory
from flowshunt_ebpf.maps.supported import MAP_TYPES, TARGET_MAPS
from flowshunt_ebpf.program import MapDefinition, MapFlag, MapType

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

ANY = 0
"""Update flag: create the entry or change it."""
NO_EXIST = 1
"""Update flag: only create."""
EXIST = 2
"""Update flag: only change."""

MAX_BYTES = 1 << 36
"""A map larger than this is refused: it would not fit any machine's memory."""


def round8(size: int) -> int:
    """A size rounded up to a multiple of 8, as maps place keys and values."""
    return (size + 7) & ~7


class Map:
    """A map. Build one with `flowshunt_ebpf.maps.create`.

    Attributes:
        definition: what the program said of it.
        name: the definition's name.
        address: what a program's map pointer is.
        values_address: the first element.
        values_bytes: bytes of all elements.
        stride: bytes of one element.
        value_offset: where an element's value starts.
        value_stride: bytes from one CPU's value to the next one's.
        cpus: CPUs of a per-CPU map; 1 for others.
        version: changes when an inner map or program is put in or taken out.
    """

    per_cpu = False

    def __init__(self, definition: MapDefinition, *, cpus: int = 1) -> None:
        self.definition = definition
        self.name = definition.name
        self.cpus = cpus if self.per_cpu else 1
        self.version = 0
        self._operations: dict[int, int] = {}
        self.check()
        self.value_stride = round8(definition.value_size)
        sizes = self.layout()
        if sum(sizes) > MAX_BYTES:
            raise self.wrong(f"it would take {sum(sizes) >> 30} GiB", "ask for fewer or smaller entries")
        self.values_bytes = sizes[0]
        self.memory = GuardedMemory(h.HEADER_BYTES, *sizes)
        self.address, self.values_address = self.memory.addresses[:2]
        self._header = self.memory.view(0)
        self.values_view = self.memory.view(1)
        for offset, value in (
            (h.TYPE, definition.type),
            (h.KEY_SIZE, definition.key_size),
            (h.VALUE_SIZE, definition.value_size),
            (h.MAX_ENTRIES, definition.max_entries),
            (h.FLAGS, definition.flags & 0xFFFFFFFF),
            (h.CPUS, self.cpus),
            (h.STRIDE, self.stride),
            (h.VALUE_OFFSET, self.value_offset),
            (h.VALUE_STRIDE, self.value_stride),
        ):
            self.put32(offset, value)
        self.put64(h.VALUES, self.values_address)
        self.put64(h.VALUES_BYTES, self.values_bytes)
        self.start()

    stride: int = 0
    value_offset: int = 0

    def check(self) -> None:
        """Check the definition. Raises InputError."""

    def layout(self) -> Sequence[int]:
        """Set `stride` and `value_offset`; give the sizes of the parts of the map's memory, the elements first."""
        raise NotImplementedError

    def start(self) -> None:
        """Fill in the rest of the header and the first contents."""

    def wrong(self, what: str, way_out: str) -> InputError:
        """An error about this map's definition."""
        return InputError(what, f"map {self.definition.name} ({self.definition.type_name})", way_out)

    def get32(self, offset: int) -> int:
        """A 32-bit field of the header."""
        return int(struct.unpack_from("<I", self._header, offset)[0])

    def put32(self, offset: int, value: int) -> None:
        """Set a 32-bit field of the header."""
        struct.pack_into("<I", self._header, offset, value)

    def get64(self, offset: int) -> int:
        """A 64-bit field of the header."""
        return int(struct.unpack_from("<Q", self._header, offset)[0])

    def put64(self, offset: int, value: int) -> None:
        """Set a 64-bit field of the header."""
        struct.pack_into("<Q", self._header, offset, value)

    @property
    def value_address(self) -> int | None:
        """The address that direct access to values starts from; None where the map has none."""
        return None

    @property
    def pointers(self) -> bool:
        """Whether a lookup hands a pointer to the value to the program, which may then read it."""
        return True

    @property
    def writable(self) -> bool:
        """Whether programs may write its values."""
        return not self.definition.flags & MapFlag.RDONLY_PROG

    def regions(self) -> list[tuple[int, int, int, int, bool]]:
        """What programs may access of it: (address, bytes, stride, accessible bytes of each stride, writable)."""
        if not self.pointers or not self.definition.value_size:
            return []
        limit = self.value_stride * (self.cpus - 1) + self.definition.value_size
        first = self.values_address + self.value_offset
        return [(first, self.values_bytes - self.value_offset, self.stride, limit, self.writable)]

    def as_loaded(self, definition: MapDefinition) -> MapDefinition:
        """A definition of it with its constants as they stand now; the same one where they are as it says."""
        return definition

    def freeze(self) -> None:
        """Let nobody change its constants any more, if it has some: a program is loaded whose verdict rests on them."""

    def check_inner(self, inner: "Map") -> None:
        """Refuse a map for a map of maps whose definition says that its maps are others: programs rely on it.

        As the kernel does (`bpf_map_meta_equal`; arrays have the same number of entries, too). Its operations are made
        ready, too, where those of this one are: a program may be loaded already that calls them.
        """
        for operation in tuple(self._operations):
            inner.operation(operation)
        template = self.definition.inner
        if template is None:
            return
        held = inner.definition
        facts = ["type", "key_size", "value_size", "flags"]
        if held.type in (MapType.ARRAY, MapType.PERCPU_ARRAY):
            facts.append("max_entries")
        for fact in facts:
            here, there = getattr(template, fact), getattr(held, fact)
            if here != there:
                raise self.wrong(f"map {inner.name} has {fact} {there}, not {here}", "put maps in that are as declared")
        if template.inner is not None or held.inner is not None:
            raise self.wrong("maps of maps do not hold maps of maps", "put maps of another type in")

    def inner_maps(self) -> tuple["Map", ...]:
        """The maps that are in it now."""
        return ()

    def operation(self, number: int) -> int:
        """The address of the native code of one of its operations, see `maps.header`; also put into the header."""
        address = self._operations.get(number)
        if address is None:
            from flowshunt_ebpf.maps.operations import operation_address

            address = self._operations[number] = operation_address(self, number)
            self.put64(h.OPERATIONS + 8 * number, address)
        return address

    # One entry at a time

    def lookup(self, key: bytes) -> bytes | None:
        """The value at a key; None where there is none. Of per-CPU maps the values of all CPUs, one after another."""
        address = self._call(h.LOOKUP, self._key(key))
        return self._value_at(address) if address else None

    def update(self, key: bytes, value: bytes, flags: int = ANY) -> None:
        """Put a value at a key: of per-CPU maps one value for all CPUs, or one for each.

        Raises InputError where the map refuses it: it is full, the key is none of its keys, the flag forbids it.
        """
        status = self._call(h.UPDATE, self._key(key), self._value(value)[: self.definition.value_size], flags)
        self._refused(status, "update")
        if self.per_cpu:
            address = self._call(h.LOOKUP, self._key(key))
            whole = self._value(value)
            step = self.value_stride
            for cpu in range(self.cpus):
                part = whole[cpu * step : cpu * step + self.definition.value_size]
                ctypes.memmove(address + cpu * step, part, len(part))

    def delete(self, key: bytes) -> bool:
        """Take a key out. Gives whether it was there."""
        status = self._call(h.DELETE, self._key(key))
        if status == -2:
            return False
        self._refused(status, "delete")
        return True

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        """Keys and values, in no particular order, as they stand when the iteration reaches them."""
        for key, address in self.places():
            yield key, self._value_at(address)

    def places(self) -> Iterator[tuple[bytes, int]]:
        """Keys, and the addresses of their values."""
        raise self.wrong("its entries can't be listed", "look keys up")

    def clear(self) -> None:
        """Take all entries out; set all of an array to zero."""
        for key in [key for key, _ in self.places()]:
            self.delete(key)

    def __len__(self) -> int:
        return self.get32(h.COUNT)

    # In bulk

    def read(self) -> tuple["NDArray[np.uint8]", "NDArray[np.uint8]"]:
        """All entries: uint8[n, key size] and uint8[n, value size]; per CPU uint8[n, CPUs, value size]."""
        import numpy as np

        definition = self.definition
        entries = list(self.places())
        keys = np.frombuffer(b"".join(key for key, _ in entries), np.uint8).reshape(len(entries), definition.key_size)
        width = self.value_stride * self.cpus
        everything = np.frombuffer(self.values_view, np.uint8)
        starts = np.array([place - self.values_address for _, place in entries], np.int64)
        rows = everything[starts[:, None] + np.arange(width)] if entries else np.empty((0, width), np.uint8)
        rows = rows.reshape(len(entries), self.cpus, self.value_stride)[:, :, : definition.value_size]
        return keys.copy(), np.ascontiguousarray(rows if self.per_cpu else rows[:, 0])

    def write(self, keys: Any, values: Any) -> None:
        """Update many entries: keys and values as arrays of n rows, of any dtype, whose rows have the map's sizes.

        Raises InputError at the first entry that the map refuses; those before it are in.
        """
        flat_keys, flat_values = self._flat(keys, values)
        for key, value in zip(flat_keys, flat_values, strict=True):
            self.update(key.tobytes(), value.tobytes())

    # Within

    def _flat(self, keys: Any, values: Any) -> tuple["NDArray[np.uint8]", "NDArray[np.uint8]"]:
        """Rows of bytes. Raises InputError where there are not as many values as keys."""
        import numpy as np

        rows = len(keys)
        if len(values) != rows:
            raise InputError(f"{rows} keys and {len(values)} values", f"map {self.name}", "give a value for each key")
        if not rows:
            d = self.definition
            return np.empty((0, d.key_size), np.uint8), np.empty((0, d.value_size), np.uint8)
        flat_keys = np.ascontiguousarray(keys).view(np.uint8).reshape(rows, -1)
        return flat_keys, np.ascontiguousarray(values).view(np.uint8).reshape(rows, -1)

    def _key(self, key: bytes) -> bytes:
        if len(key) != self.definition.key_size:
            raise InputError(
                f"a key of {len(key)} bytes", f"map {self.name}", f"its keys have {self.definition.key_size} bytes"
            )
        return key

    def _value(self, value: bytes) -> bytes:
        size = self.definition.value_size
        if len(value) == size:
            return value if self.cpus == 1 else (value + bytes(self.value_stride - size)) * self.cpus
        if self.per_cpu and len(value) in (size * self.cpus, self.value_stride * self.cpus):
            step = len(value) // self.cpus
            parts = [value[cpu * step : cpu * step + size] for cpu in range(self.cpus)]
            return b"".join(part + bytes(self.value_stride - size) for part in parts)
        raise InputError(f"a value of {len(value)} bytes", f"map {self.name}", f"its values have {size} bytes")

    def _value_at(self, address: int) -> bytes:
        size, step = self.definition.value_size, self.value_stride
        return b"".join(ctypes.string_at(address + cpu * step, size) for cpu in range(self.cpus))

    def _call(
        self, operation: int, key: Any = None, value: bytes | None = None, flags: int = 0, *, direct: bool = False
    ) -> int:
        from flowshunt_ebpf.maps.operations import call

        return call(self, operation, key, value, flags, direct=direct)

    def _refused(self, status: int, what: str) -> None:
        if status:
            reasons = {
                -2: "there is no such key", -7: "the key is none of the map's, or the map is full",
                -12: "the map has no room left", -17: "the key is there already", -22: "the request is not valid",
                -95: "this map type has no such operation", -28: "the map has no room left",
            }  # fmt: skip
            raise InputError(
                f"{what} refused: {reasons.get(status, f'error {status}')}", f"map {self.name}", "see its definition"
            )


def check_type(definition: MapDefinition) -> None:
    """Raise InputError where maps of this type are not there in user space."""
    if definition.type not in MAP_TYPES:
        known = ", ".join(sorted(t.name.lower() for t in MAP_TYPES))
        raise InputError(
            f"maps of type {definition.type_name} are not there in user space",
            f"map {definition.name}",
            f"these are: {known}",
        )


__all__ = ["ANY", "EXIST", "NO_EXIST", "TARGET_MAPS", "Map", "MapType", "check_type", "round8"]
