"""The kernel's copies of a machine's maps: contents go in before a run and come back after it."""

import os
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from flowshunt.errors import InputError
from flowshunt_ebpf.kernel import load
from flowshunt_ebpf.kernel.syscall import KernelError
from flowshunt_ebpf.maps.map import Map
from flowshunt_ebpf.maps.rings import RingMap
from flowshunt_ebpf.maps.supported import TARGET_MAPS
from flowshunt_ebpf.maps.tables import BloomMap, QueueMap
from flowshunt_ebpf.program import MapFlag, MapType

_LISTED: Final = frozenset(
    {
        MapType.HASH, MapType.ARRAY, MapType.PERCPU_HASH, MapType.PERCPU_ARRAY, MapType.LRU_HASH,
        MapType.LRU_PERCPU_HASH, MapType.LPM_TRIE,
    }
)  # fmt: skip
"""Map types whose contents go into the kernel and come back."""
_PER_CPU: Final = frozenset({MapType.PERCPU_HASH, MapType.PERCPU_ARRAY, MapType.LRU_PERCPU_HASH})


def possible_cpus() -> int:
    """For how many CPUs the kernel keeps per-CPU values."""
    text = Path("/sys/devices/system/cpu/possible").read_text(encoding="ascii")
    return max(int(part) for part in text.strip().replace("-", ",").split(",")) + 1


class KernelMaps:
    """Maps in the kernel that stand for maps in user space, inner maps included.

    Attributes:
        btf_fd: of the BTF that their types are from; 0: none.
    """

    def __init__(self, maps: Sequence[Map], btf: bytes = b"") -> None:
        self.maps = tuple(maps)
        self._fds: dict[int, int] = {}
        self.btf_fd = load.load_btf(btf)
        try:
            for m in self.maps:
                if id(m) not in self._fds:
                    self._fds[id(m)] = load.create_map(m.as_loaded(m.definition), btf_fd=self.btf_fd)
                fd = self._fds[id(m)]
                for key, inner in _inner(m):
                    if id(inner) not in self._fds:
                        self._fds[id(inner)] = load.create_map(inner.definition)
                    load.update(fd, key, struct.pack("<I", self._fds[id(inner)]))
        except OSError:
            self.close()
            raise

    def descriptor(self, m: Map) -> int:
        """The file descriptor of a map's copy."""
        return self._fds[id(m)]

    def push(self) -> None:
        """Copy the contents into the kernel."""
        for m in self._every():
            push_map(m, self._fds[id(m)])

    def pull(self) -> None:
        """Copy the contents back."""
        for m in self._every():
            pull_map(m, self._fds[id(m)])

    def _every(self) -> list[Map]:
        every = [*self.maps, *(inner for m in self.maps for inner in m.inner_maps())]
        return list({id(m): m for m in every}.values())

    def close(self) -> None:
        """Give the maps back."""
        for fd in self._fds.values():
            os.close(fd)
        self._fds = {}
        if self.btf_fd:
            os.close(self.btf_fd)
            self.btf_fd = 0


def _inner(m: Map) -> Iterator[tuple[bytes, Map]]:
    for key, inner in getattr(m, "inner", {}).items():
        yield key if isinstance(key, bytes) else struct.pack("<I", key), inner


def _width(m: Map) -> int:
    size = m.definition.value_size
    return m.value_stride * possible_cpus() if m.definition.type in _PER_CPU else size


def run_cpu() -> int:
    """The CPU that programs are run on, so that it is known whose values of per-CPU maps they change."""
    return min(os.sched_getaffinity(0))


@contextmanager
def pinned() -> Iterator[None]:
    """Keep this thread on `run_cpu` meanwhile."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def _push_targets(m: Map, fd: int) -> None:
    wanted = {key: value for key, value in m.items() if any(value)}
    for key in load.keys(fd, m.definition.key_size):
        if key not in wanted:
            load.delete(fd, key)
    for key, value in wanted.items():
        try:
            load.update(fd, key, value)
        except KernelError as error:
            raise InputError(
                f"the kernel refuses the redirect target {int.from_bytes(value[:4], 'little')}: {error.strerror}",
                f"map {m.name}",
                "name interfaces, processors or sockets that this machine has",
            ) from None


def push_map(m: Map, fd: int) -> None:
    """Copy a map's contents into the kernel's. The only value of a per-CPU map is that of `run_cpu`.

    Raises InputError for redirect targets that the kernel does not have.
    """
    if m.definition.type in TARGET_MAPS:
        _push_targets(m, fd)
    elif isinstance(m, QueueMap) and not isinstance(m, BloomMap):
        load.pop_all(fd, m.definition.value_size)
        for value in m.values():
            load.update(fd, b"", value)
    elif m.definition.type == MapType.RINGBUF:
        load.ring_records(fd, m.definition.max_entries)
    if m.definition.type not in _LISTED or m.definition.flags & MapFlag.RDONLY_PROG:
        return
    wanted = dict(m.items())
    if m.definition.type not in (MapType.ARRAY, MapType.PERCPU_ARRAY):
        for key in load.keys(fd, m.definition.key_size):
            if key not in wanted:
                load.delete(fd, key)
    first = run_cpu() * m.value_stride if m.cpus == 1 else 0
    size, step = m.definition.value_size, m.value_stride
    for key, value in wanted.items():
        if m.definition.type in _PER_CPU:
            parts = [value[cpu * size : (cpu + 1) * size].ljust(step, b"\0") for cpu in range(m.cpus)]
            load.update(fd, key, (bytes(first) + b"".join(parts) + bytes(_width(m)))[: _width(m)])
        else:
            load.update(fd, key, value)


def pull_map(m: Map, fd: int) -> None:
    """Copy the kernel's map's contents back, the other way round; records of a ring come to those that are there."""
    if isinstance(m, QueueMap) and not isinstance(m, BloomMap):
        popped = load.pop_all(fd, m.definition.value_size)
        m.clear()
        for one in reversed(popped) if m.definition.type == MapType.STACK else popped:
            m.push(one)
    elif isinstance(m, RingMap) and m.definition.type == MapType.RINGBUF:
        m.append(load.ring_records(fd, m.definition.max_entries))
    if m.definition.type not in _LISTED or m.definition.flags & MapFlag.RDONLY_PROG:
        return
    found = {}
    for key in load.keys(fd, m.definition.key_size):
        value = load.lookup(fd, key, _width(m))
        if value is not None:
            found[key] = value
    if m.definition.type not in (MapType.ARRAY, MapType.PERCPU_ARRAY):
        for key in [key for key, _ in m.items() if key not in found]:
            m.delete(key)
    size, step = m.definition.value_size, m.value_stride
    for key, value in found.items():
        if m.definition.type in _PER_CPU:
            parts = [value[at : at + size] for at in range(0, len(value), step)]
            m.update(key, parts[run_cpu()] if m.cpus == 1 else b"".join((parts + [bytes(size)] * m.cpus)[: m.cpus]))
        else:
            m.update(key, value)
