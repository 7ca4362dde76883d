"""Arrays and what is built like them: per-CPU arrays, program arrays, arrays of maps, redirect targets, global data."""

import struct
from collections.abc import Iterator, Sequence
from typing import Any

import attrs

from flowshunt.errors import InputError
from flowshunt_ebpf.maps import header as h
from flowshunt_ebpf.maps.map import ANY, NO_EXIST, Map, round8
from flowshunt_ebpf.program import MapDefinition, MapType


class ArrayMap(Map):
    """An array: 32-bit keys from 0, every entry there from the start."""

    def check(self) -> None:
        """An array's keys are 32 bits wide."""
        d = self.definition
        if d.key_size != 4:
            raise self.wrong(f"its keys have {d.key_size} bytes", "keys of arrays have 4")
        if not d.value_size or not d.max_entries:
            raise self.wrong("it has no entry, or entries of no size", "give value_size and max_entries")

    def layout(self) -> Sequence[int]:
        """Values one after another, each CPU's beside the others'."""
        self.stride = self.value_stride * self.cpus
        return (self.stride * self.definition.max_entries,)

    def start(self) -> None:
        """Copy the object's initial contents."""
        self.put32(h.COUNT, self.definition.max_entries)
        contents = self.definition.contents
        if contents:
            self.values_view[: len(contents)] = contents

    frozen: bool = False

    def as_loaded(self, definition: MapDefinition) -> MapDefinition:
        """See `Map.as_loaded`."""
        if not definition.is_constant:
            return definition
        now = bytes(self.values_view[: definition.value_size])
        before = (definition.contents or b"").ljust(definition.value_size, b"\0")
        return definition if now == before else attrs.evolve(definition, contents=now)

    def freeze(self) -> None:
        """See `Map.freeze`."""
        if self.definition.is_constant and not self.frozen:
            self.frozen = True
            self.values_view = self.values_view.toreadonly()

    def _changes(self) -> None:
        if self.frozen:
            raise self.wrong("a program is loaded that rests on its constants", "set them before")

    @property
    def value_address(self) -> int | None:
        """Values are named directly, as global variables are."""
        return None if self.per_cpu else self.values_address

    def places(self) -> Iterator[tuple[bytes, int]]:
        """All entries, in order."""
        for index in range(self.definition.max_entries):
            yield struct.pack("<I", index), self.values_address + index * self.stride

    def lookup(self, key: bytes) -> bytes | None:
        """See `Map.lookup`."""
        index = self._index(key)
        return None if index is None else self._value_at(self.values_address + index * self.stride)

    def update(self, key: bytes, value: bytes, flags: int = ANY) -> None:
        """See `Map.update`. Entries of arrays exist always."""
        self._changes()
        index = self._index(key)
        self._refused(-7 if index is None else -17 if flags == NO_EXIST else 0, "update")
        assert index is not None
        whole = self._value(value)
        self.values_view[index * self.stride : index * self.stride + len(whole)] = whole

    def clear(self) -> None:
        """Set all of it to zero."""
        self._changes()
        self.values_view[:] = bytes(self.values_bytes)

    def write(self, keys: Any, values: Any) -> None:
        """See `Map.write`; in one step."""
        import numpy as np

        self._changes()
        d = self.definition
        rows = len(keys)
        flat_keys, flat = self._flat(keys, values)
        if flat_keys.shape[1] != d.key_size:
            raise InputError(f"keys of {flat_keys.shape[1]} bytes", f"map {self.name}", "its keys have 4 bytes")
        index = flat_keys.copy().view("<u4")
        if flat.shape[1] != d.value_size or self.per_cpu:
            super().write(keys, values)
            return
        if rows and int(index.max()) >= d.max_entries:
            raise InputError(f"key {int(index.max())}", f"map {self.name}", f"its keys are below {d.max_entries}")
        table = np.frombuffer(self.values_view, np.uint8).reshape(d.max_entries, self.stride)
        table[index[:, 0], : d.value_size] = flat

    def read(self) -> tuple[Any, Any]:
        """See `Map.read`; in one step."""
        import numpy as np

        d = self.definition
        keys = np.arange(d.max_entries, dtype="<u4").view(np.uint8).reshape(-1, 4)
        table = np.frombuffer(self.values_view, np.uint8).reshape(d.max_entries, self.cpus, self.value_stride)
        values = table[:, :, : d.value_size].copy()
        return keys, values if self.per_cpu else np.ascontiguousarray(values[:, 0])

    def _index(self, key: bytes) -> int | None:
        index = int(struct.unpack("<I", self._key(key))[0])
        return index if index < self.definition.max_entries else None


class PerCpuArrayMap(ArrayMap):
    """An array with a value for each CPU."""

    per_cpu = True


MAX_PROGRAMS = 4096
"""Programs that a machine has at most; handles are not greater."""


class _HandleArray(ArrayMap):
    """An array of handles that programs can't read."""

    def layout(self) -> Sequence[int]:
        """8 bytes each."""
        self.stride = 8
        return (8 * self.definition.max_entries,)

    @property
    def pointers(self) -> bool:
        """Programs get no pointer to the elements."""
        return False

    @property
    def value_address(self) -> int | None:
        """Its elements can't be named."""
        return None

    def update(self, key: bytes, value: bytes, flags: int = ANY) -> None:
        """Raises InputError: elements are set by what they stand for."""
        raise self.wrong("its elements are no bytes", "put what they stand for in")

    def write(self, keys: Any, values: Any) -> None:
        """Raises InputError, as `update`."""
        raise self.wrong("its elements are no bytes", "put what they stand for in")

    def _set(self, index: int, handle: int) -> None:
        if not 0 <= index < self.definition.max_entries:
            raise InputError(f"key {index}", f"map {self.name}", f"its keys are below {self.definition.max_entries}")
        struct.pack_into("<Q", self.values_view, 8 * index, handle)
        self.version += 1


class ProgramArrayMap(_HandleArray):
    """Programs to tail-call. Elements are 1 + the program's number in the machine; see `Machine.add_program`."""

    def set_handle(self, index: int, handle: int) -> None:
        """Set an element to a handle that `Machine.add_program` gave; 0 empties it. Raises InputError for others."""
        if not 0 <= handle <= MAX_PROGRAMS:
            raise InputError(f"handle {handle}", f"map {self.name}", "take it from Machine.add_program")
        self._set(index, handle)


class MapArrayMap(_HandleArray):
    """An array of maps."""

    def start(self) -> None:
        """Start empty."""
        self.inner: dict[int, Map] = {}
        self.put32(h.MAP_IN_MAP, 1)

    def put(self, index: int, inner: Map | None) -> None:
        """Put a map in, or take it out (None)."""
        if inner is None:
            self._set(index, 0)
            self.inner.pop(index, None)
        else:  # which may be empty, and so count as false
            self.check_inner(inner)
            self._set(index, inner.address)
            self.inner[index] = inner

    def inner_maps(self) -> tuple[Map, ...]:
        """See `Map.inner_maps`."""
        return tuple(self.inner.values())


class TargetArrayMap(ArrayMap):
    """Redirect targets: interface indices (devmap), queue sizes (cpumap), sockets (xskmap); 0 is none."""

    def check(self) -> None:
        """Values have 4 bytes, or 8 with a program's descriptor."""
        super().check()
        if self.definition.value_size not in (4, 8):
            raise self.wrong(f"its values have {self.definition.value_size} bytes", "redirect targets have 4 or 8")

    @property
    def writable(self) -> bool:
        """Programs only read it."""
        return False


ARRAYS = {
    MapType.ARRAY: ArrayMap,
    MapType.PERCPU_ARRAY: PerCpuArrayMap,
    MapType.PROG_ARRAY: ProgramArrayMap,
    MapType.ARRAY_OF_MAPS: MapArrayMap,
    MapType.DEVMAP: TargetArrayMap,
    MapType.CPUMAP: TargetArrayMap,
    MapType.XSKMAP: TargetArrayMap,
}

__all__ = ["ARRAYS", "ArrayMap", "MapArrayMap", "PerCpuArrayMap", "ProgramArrayMap", "TargetArrayMap", "round8"]
