"""Hash tables, tries, queues, stacks and bloom filters, as Python sees them."""

import ctypes
import struct
from collections.abc import Iterator, Sequence
from typing import Any

from flowshunt_ebpf.maps import header as h
from flowshunt_ebpf.maps.map import ANY, Map, round8
from flowshunt_ebpf.program import MapType

_MAX_ENTRIES = 1 << 30


class HashMap(Map):
    """A hash table."""

    lru = False

    def check(self) -> None:
        """Keys and values have some size, and there is room for an entry."""
        d = self.definition
        if not d.key_size or not d.value_size or not d.max_entries:
            raise self.wrong(
                "it has no entry, or keys or values of no size", "give key_size, value_size and max_entries"
            )
        if d.max_entries > _MAX_ENTRIES or d.key_size > 512:
            raise self.wrong("it is too large", f"keys have up to 512 bytes; {_MAX_ENTRIES} entries are possible")

    def layout(self) -> Sequence[int]:
        """Nodes, then the heads of their chains."""
        d = self.definition
        self.value_offset = h.NODE_KEY + round8(d.key_size)
        self.stride = self.value_offset + self.value_stride * self.cpus + (8 if self.lru else 0)
        self.buckets = 1 << max(1, d.max_entries - 1).bit_length()
        return self.stride * d.max_entries, 4 * self.buckets

    def start(self) -> None:
        """Start empty."""
        self.put64(h.BUCKETS, self.memory.addresses[2])
        self.put32(h.BUCKET_MASK, self.buckets - 1)
        self.put32(h.SEED, 0x5EED)

    def node_addresses(self) -> "ctypes.Array[ctypes.c_int64]":
        """The addresses of all nodes."""
        out = (ctypes.c_int64 * self.definition.max_entries)()
        from flowshunt_ebpf.maps.operations import collect

        return (ctypes.c_int64 * collect(self, ctypes.addressof(out), len(out))).from_buffer(out)

    def places(self) -> Iterator[tuple[bytes, int]]:
        """All entries."""
        size = self.definition.key_size
        for node in self.node_addresses():
            yield ctypes.string_at(node + h.NODE_KEY, size), node + self.value_offset

    def read(self) -> tuple[Any, Any]:
        """See `Map.read`; in one step."""
        import numpy as np

        d = self.definition
        starts = np.frombuffer(memoryview(self.node_addresses()), np.int64) - self.values_address
        everything = np.frombuffer(self.values_view, np.uint8)
        keys = everything[starts[:, None] + (h.NODE_KEY + np.arange(d.key_size))]
        width = self.value_stride * self.cpus
        rows = everything[starts[:, None] + (self.value_offset + np.arange(width))]
        rows = rows.reshape(len(starts), self.cpus, self.value_stride)[:, :, : d.value_size]
        return keys, np.ascontiguousarray(rows if self.per_cpu else rows[:, 0])

    def write(self, keys: Any, values: Any) -> None:
        """See `Map.write`; in one step."""
        import numpy as np

        from flowshunt_ebpf.maps.operations import update_many

        d = self.definition
        rows = len(keys)
        flat_keys, flat = self._flat(keys, values)
        if rows and (flat_keys.shape[1] != d.key_size or (self.cpus == 1 and flat.shape[1] != d.value_size)):
            self._key(flat_keys[0].tobytes())
            self._value(flat[0].tobytes())
        if self.cpus > 1:
            whole = np.zeros((rows, self.cpus, self.value_stride), np.uint8)
            if rows and flat.shape[1] not in (d.value_size, d.value_size * self.cpus):
                raise self.wrong(f"values of {flat.shape[1]} bytes", f"give {d.value_size}, or that for each CPU")
            whole[:, :, : d.value_size] = flat.reshape(rows, flat.shape[1] // d.value_size, d.value_size)
            flat = whole.reshape(rows, self.cpus * self.value_stride)
        done = update_many(self, flat_keys.ctypes.data, flat.ctypes.data, rows)
        if done < rows:
            self._refused(-7, f"update of row {done}")

    def update(self, key: bytes, value: bytes, flags: int = ANY) -> None:
        """See `Map.update`."""
        self._refused(self._call(h.UPDATE, self._key(key), self._value(value), flags), "update")


class PerCpuHashMap(HashMap):
    """A hash table with a value for each CPU."""

    per_cpu = True


class LruHashMap(HashMap):
    """A hash table that gives up an entry that was not used for a while, where it is full."""

    lru = True


class LruPerCpuHashMap(LruHashMap):
    """The same with a value for each CPU."""

    per_cpu = True


class MapHashMap(HashMap):
    """A hash table of maps."""

    def layout(self) -> Sequence[int]:
        """Its values are addresses of maps."""
        self.value_stride = 8
        return super().layout()

    def start(self) -> None:
        """Start empty."""
        super().start()
        self.inner: dict[bytes, Map] = {}
        self.put32(h.VALUE_SIZE, 8)
        self.put32(h.MAP_IN_MAP, 1)

    @property
    def pointers(self) -> bool:
        """Programs get the inner map, no pointer into this one."""
        return False

    def update(self, key: bytes, value: bytes, flags: int = ANY) -> None:
        """Raises InputError: its values are maps."""
        raise self.wrong("its values are no bytes", "put maps in")

    def write(self, keys: Any, values: Any) -> None:
        """Raises InputError: its values are maps."""
        raise self.wrong("its values are no bytes", "put maps in")

    def put(self, key: bytes, inner: Map | None) -> None:
        """Put a map in, or take it out (None)."""
        if inner is None:
            self.delete(key)
            self.inner.pop(key, None)
        else:
            self.check_inner(inner)
            self._refused(self._call(h.UPDATE, self._key(key), struct.pack("<Q", inner.address)), "update")
            self.inner[key] = inner
        self.version += 1

    def inner_maps(self) -> tuple[Map, ...]:
        """See `Map.inner_maps`."""
        return tuple(self.inner.values())


class TargetHashMap(HashMap):
    """Interface indices by a 32-bit key (devmap_hash)."""

    @property
    def writable(self) -> bool:
        """Programs only read it."""
        return False


class TrieMap(Map):
    """Longest-prefix match. A key is the prefix's length in bits (32 bits, little-endian) and the data."""

    def check(self) -> None:
        """A key has a length and 1 to 256 bytes of data."""
        d = self.definition
        if not 5 <= d.key_size <= 260 or not d.value_size or not 0 < d.max_entries < _MAX_ENTRIES:
            raise self.wrong("its keys, values or entries have no size that a trie allows", "keys have 5 to 260 bytes")

    def layout(self) -> Sequence[int]:
        """Twice as many nodes as entries: some only join others."""
        d = self.definition
        self.value_offset = 16 + round8(d.key_size - 4)
        self.stride = self.value_offset + self.value_stride
        return (self.stride * (2 * d.max_entries + 2),)

    def places(self) -> Iterator[tuple[bytes, int]]:
        """All prefixes, a shorter one before those that it holds."""
        numbers = [self.get32(h.ROOT)]
        data = self.definition.key_size - 4
        while numbers:
            number = numbers.pop()
            if number:
                at = 8 * number
                left, right, length, flags = struct.unpack_from("<4I", self.values_view, at)
                if not flags & 1:
                    key = struct.pack("<I", length) + bytes(self.values_view[at + 16 : at + 16 + data])
                    yield key, self.values_address + at + self.value_offset
                numbers += [right, left]


class QueueMap(Map):
    """A queue (first in, first out) or a stack (last in, first out)."""

    def check(self) -> None:
        """It has no keys."""
        d = self.definition
        if d.key_size or not d.value_size or not d.max_entries:
            raise self.wrong("it has keys, or values or entries of no size", "key_size is 0 here")

    def layout(self) -> Sequence[int]:
        """Values one after another."""
        self.stride = self.value_stride
        return (self.stride * self.definition.max_entries,)

    @property
    def pointers(self) -> bool:
        """Values are copied."""
        return False

    def push(self, value: bytes, flags: int = ANY) -> None:
        """Put a value in; flag EXIST: a full one gives up its oldest."""
        self._refused(self._call(h.PUSH, self._value(value), None, flags, direct=True), "push")

    def pop(self) -> bytes | None:
        """Take a value out; None where there is none."""
        return self._taken(h.POP)

    def peek(self) -> bytes | None:
        """The value that `pop` would take."""
        return self._taken(h.PEEK)

    def values(self) -> list[bytes]:
        """All values, the oldest first."""
        size, entries = self.definition.value_size, self.definition.max_entries
        places = (self.stride * (n % entries) for n in range(self.get64(h.TAIL), self.get64(h.HEAD)))
        return [bytes(self.values_view[place : place + size]) for place in places]

    def _taken(self, operation: int) -> bytes | None:
        room = ctypes.create_string_buffer(self.definition.value_size)
        status = self._call(operation, room, None, 0, direct=True)
        return room.raw if status == 0 else None

    def clear(self) -> None:
        """Empty it."""
        self.put64(h.TAIL, self.get64(h.HEAD))

    def __len__(self) -> int:
        return self.get64(h.HEAD) - self.get64(h.TAIL)


class BloomMap(QueueMap):
    """A bloom filter: says whether a value may have been put in."""

    def layout(self) -> Sequence[int]:
        """As many bits as the kernel takes: 7/5 of entries times hash functions, rounded up to a power of two."""
        d = self.definition
        self.hashes = d.map_extra & 15 or 5
        wanted = d.max_entries * self.hashes * 7 // 5
        self.bits = 1 << max(6, (wanted - 1).bit_length())
        return (self.bits // 8,)

    def start(self) -> None:
        """Start empty."""
        self.put32(h.BUCKET_MASK, self.bits - 1)
        self.put32(h.HASHES, self.hashes)
        self.put32(h.SEED, 0x5EED)

    def values(self) -> list[bytes]:
        """Raises InputError: a bloom filter does not know them."""
        raise self.wrong("its values can't be listed", "ask for them with `holds`")

    def holds(self, value: bytes) -> bool:
        """Whether a value may have been put in; False is sure."""
        return self._call(h.PEEK, self._value(value), None, 0, direct=True) == 0

    def clear(self) -> None:
        """Empty it."""
        self.values_view[:] = bytes(self.values_bytes)

    def __len__(self) -> int:
        return 0


TABLES = {
    MapType.HASH: HashMap,
    MapType.PERCPU_HASH: PerCpuHashMap,
    MapType.LRU_HASH: LruHashMap,
    MapType.LRU_PERCPU_HASH: LruPerCpuHashMap,
    MapType.HASH_OF_MAPS: MapHashMap,
    MapType.DEVMAP_HASH: TargetHashMap,
    MapType.LPM_TRIE: TrieMap,
    MapType.QUEUE: QueueMap,
    MapType.STACK: QueueMap,
    MapType.BLOOM_FILTER: BloomMap,
}
