"""What a program says about a map: its type, sizes and first contents. The map itself comes from a runner."""

from enum import IntEnum, IntFlag

import attrs


class MapType(IntEnum):
    """Map types, by the kernel's numbers (`enum bpf_map_type`)."""

    UNSPEC = 0
    HASH = 1
    ARRAY = 2
    PROG_ARRAY = 3
    PERF_EVENT_ARRAY = 4
    PERCPU_HASH = 5
    PERCPU_ARRAY = 6
    STACK_TRACE = 7
    CGROUP_ARRAY = 8
    LRU_HASH = 9
    LRU_PERCPU_HASH = 10
    LPM_TRIE = 11
    ARRAY_OF_MAPS = 12
    HASH_OF_MAPS = 13
    DEVMAP = 14
    SOCKMAP = 15
    CPUMAP = 16
    XSKMAP = 17
    SOCKHASH = 18
    CGROUP_STORAGE = 19
    REUSEPORT_SOCKARRAY = 20
    PERCPU_CGROUP_STORAGE = 21
    QUEUE = 22
    STACK = 23
    SK_STORAGE = 24
    DEVMAP_HASH = 25
    STRUCT_OPS = 26
    RINGBUF = 27
    INODE_STORAGE = 28
    TASK_STORAGE = 29
    BLOOM_FILTER = 30
    USER_RINGBUF = 31
    CGRP_STORAGE = 32
    ARENA = 33


class MapFlag(IntFlag):
    """Creation flags of maps that mean something outside the kernel too (`BPF_F_...`)."""

    NO_PREALLOC = 1 << 0
    NO_COMMON_LRU = 1 << 1
    RDONLY = 1 << 3
    WRONLY = 1 << 4
    ZERO_SEED = 1 << 6
    RDONLY_PROG = 1 << 7
    WRONLY_PROG = 1 << 8
    MMAPABLE = 1 << 10
    PRESERVE_ELEMS = 1 << 11
    INNER_MAP = 1 << 12


class Pinning(IntEnum):
    """Where a map asks to be pinned (`LIBBPF_PIN_...`)."""

    NONE = 0
    BY_NAME = 1


@attrs.frozen
class MapDefinition:
    """A map that a program names.

    Attributes:
        name: as in the source; unique in a program.
        type: a `MapType`, or a number that this version does not know.
        key_size, value_size: bytes.
        max_entries: entries; bytes for ring buffers.
        flags: `MapFlag` bits, and others as they stand.
        inner: for an array or hash of maps, what its inner maps look like.
        pinning: a `Pinning` value.
        contents: for .rodata, .data and .bss: the first bytes of the only value.
        values: entries that the object itself fills, as (key, name of a program or map).
        map_extra: the bloom filter's hash functions, or the arena's address.
        key_type_id, value_type_id: BTF type ids in the program's BTF; 0: none.
        numa_node: where the kernel should put it; None: anywhere.
    """

    name: str
    type: int
    key_size: int
    value_size: int
    max_entries: int
    flags: int = 0
    inner: "MapDefinition | None" = None
    pinning: int = Pinning.NONE
    contents: bytes | None = None
    values: tuple[tuple[int, str], ...] = ()
    map_extra: int = 0
    key_type_id: int = 0
    value_type_id: int = 0
    numa_node: int | None = None

    @property
    def is_constant(self) -> bool:
        """Whether it has contents that nothing changes any more once the program is loaded, such as .rodata."""
        return self.contents is not None and bool(self.flags & MapFlag.RDONLY_PROG)

    @property
    def type_name(self) -> str:
        """The type's name in lower case, as the kernel's tools write it; the number where it is not known."""
        try:
            return MapType(self.type).name.lower()
        except ValueError:
            return str(self.type)
