"""Arrays, queues, stacks and bloom filters: their operations."""

from typing import Any

from flowshunt.compiled import piece
from flowshunt_ebpf.maps.header import (
    BUCKET_MASK,
    CPUS,
    HASHES,
    HEAD,
    LOCK,
    MAX_ENTRIES,
    SEED,
    STRIDE,
    TAIL,
    VALUE_SIZE,
    VALUE_STRIDE,
    VALUES,
)  # fmt: skip
from flowshunt_ebpf.maps.native_hash import MACHINE_CPU, hash_key
from flowshunt_ebpf.maps.raw import copy, fill_zero, load8, load32, load64, lock, store8, store64, unlock


@piece
def element(m: Any, key: Any) -> Any:
    """The address of the element at a 32-bit key; 0 outside."""
    index = load32(key)
    if index >= load32(m + MAX_ENTRIES):
        return 0
    return load64(m + VALUES) + index * load32(m + STRIDE)


def lookup(m: Any, key: Any, c: Any, d: Any, e: Any, machine: Any) -> Any:
    """The address of a value."""
    return element(m, key)


def lookup_own(m: Any, key: Any, c: Any, d: Any, e: Any, machine: Any) -> Any:
    """The address of the machine's CPU's value."""
    place = element(m, key)
    if place != 0 and machine != 0:
        place += (load32(machine + MACHINE_CPU) % load32(m + CPUS)) * load32(m + VALUE_STRIDE)
    return place


def lookup_cpu(m: Any, key: Any, cpu: Any, d: Any, e: Any, machine: Any) -> Any:
    """The address of one CPU's value."""
    place = element(m, key)
    cpu &= 0xFFFFFFFF
    return place + cpu * load32(m + VALUE_STRIDE) if place != 0 and cpu < load32(m + CPUS) else 0


def lookup_map(m: Any, key: Any, c: Any, d: Any, e: Any, machine: Any) -> Any:
    """The address of the map at a key."""
    place = element(m, key)
    return load64(place) if place != 0 else 0


def update(m: Any, key: Any, value: Any, flags: Any, e: Any, machine: Any) -> Any:
    """Change a value: the machine's CPU's one in a per-CPU array."""
    flags &= ~4
    if flags < 0 or flags > 2:
        return -22
    place = element(m, key)
    if place == 0:
        return -7
    if flags == 1:
        return -17
    if load32(m + CPUS) > 1 and machine != 0:
        place += (load32(machine + MACHINE_CPU) % load32(m + CPUS)) * load32(m + VALUE_STRIDE)
    copy(place, value, load32(m + VALUE_SIZE))
    return 0


def refuse(m: Any, key: Any, c: Any, d: Any, e: Any, machine: Any) -> Any:
    """An operation that is not valid for the map type."""
    return -22


def nothing(m: Any, key: Any, c: Any, d: Any, e: Any, machine: Any) -> Any:
    """A lookup in a map type that has none."""
    return 0


def unsupported(m: Any, key: Any, c: Any, d: Any, e: Any, machine: Any) -> Any:
    """An operation that the map type does not have (-EOPNOTSUPP)."""
    return -95


def push(m: Any, value: Any, flags: Any, d: Any, e: Any, machine: Any) -> Any:
    """Put a value into a queue or stack; flag 2 (BPF_EXIST): a full one gives up its oldest."""
    if flags & ~2 != 0:
        return -22
    capacity = load32(m + MAX_ENTRIES)
    lock(m + LOCK)
    head = load64(m + HEAD)
    status = 0
    if head - load64(m + TAIL) >= capacity:
        if flags == 2:
            store64(m + TAIL, load64(m + TAIL) + 1)
        else:
            status = -7
    if status == 0:
        copy(load64(m + VALUES) + (head % capacity) * load32(m + STRIDE), value, load32(m + VALUE_SIZE))
        store64(m + HEAD, head + 1)
    unlock(m + LOCK)
    return status


@piece
def _take(m: Any, value: Any, newest: Any, keep: Any) -> Any:
    size = load32(m + VALUE_SIZE)
    lock(m + LOCK)
    head = load64(m + HEAD)
    tail = load64(m + TAIL)
    status = 0
    if head == tail:
        fill_zero(value, size)
        status = -2
    else:
        position = head - 1 if newest else tail
        copy(value, load64(m + VALUES) + (position % load32(m + MAX_ENTRIES)) * load32(m + STRIDE), size)
        if not keep and newest:
            store64(m + HEAD, head - 1)
        elif not keep:
            store64(m + TAIL, tail + 1)
    unlock(m + LOCK)
    return status


def pop_oldest(m: Any, value: Any, c: Any, d: Any, e: Any, machine: Any) -> Any:
    """Take the oldest value out of a queue."""
    return _take(m, value, False, False)


def pop_newest(m: Any, value: Any, c: Any, d: Any, e: Any, machine: Any) -> Any:
    """Take the newest value off a stack."""
    return _take(m, value, True, False)


def peek_oldest(m: Any, value: Any, c: Any, d: Any, e: Any, machine: Any) -> Any:
    """Copy the oldest value of a queue."""
    return _take(m, value, False, True)


def peek_newest(m: Any, value: Any, c: Any, d: Any, e: Any, machine: Any) -> Any:
    """Copy the newest value of a stack."""
    return _take(m, value, True, True)


def bloom_push(m: Any, value: Any, flags: Any, d: Any, e: Any, machine: Any) -> Any:
    """Add a value to a bloom filter."""
    if flags != 0:
        return -22
    bits = load64(m + VALUES)
    lock(m + LOCK)
    for number in range(load32(m + HASHES)):
        bit = hash_key(value, load32(m + VALUE_SIZE), load32(m + SEED) + number) & load32(m + BUCKET_MASK)
        place = bits + (bit >> 3)
        store8(place, load8(place) | (1 << (bit & 7)))
    unlock(m + LOCK)
    return 0


def bloom_peek(m: Any, value: Any, c: Any, d: Any, e: Any, machine: Any) -> Any:
    """Whether a value may be in a bloom filter: 0; -2 where it is not."""
    bits = load64(m + VALUES)
    for number in range(load32(m + HASHES)):
        bit = hash_key(value, load32(m + VALUE_SIZE), load32(m + SEED) + number) & load32(m + BUCKET_MASK)
        if (load8(bits + (bit >> 3)) >> (bit & 7)) & 1 == 0:
            return -2
    return 0
