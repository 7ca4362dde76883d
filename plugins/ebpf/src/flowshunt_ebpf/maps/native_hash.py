"""Hash tables: lookup, update, delete, eviction. Nodes never move, so that programs may keep pointers to values.

A node is: next (32 bits, 1 + index), hash (32 bits), key, value of each CPU; in LRU tables 8 more bytes, of which the
first is set when the entry is used. Free nodes form a chain; nodes from FRESH on were never used.
"""

from typing import Any

from flowshunt.compiled import piece
from flowshunt_ebpf.maps.header import (
    BUCKET_MASK,
    BUCKETS,
    COUNT,
    CPUS,
    FREE,
    FRESH,
    HAND,
    KEY_SIZE,
    LOCK,
    MAX_ENTRIES,
    NODE_HASH,
    NODE_KEY,
    NODE_NEXT,
    SEED,
    STRIDE,
    VALUE_OFFSET,
    VALUE_SIZE,
    VALUE_STRIDE,
    VALUES,
)  # fmt: skip
from flowshunt_ebpf.maps.raw import (
    copy,
    equal,
    fill_zero,
    load8,
    load32,
    load64,
    lock,
    shift_right,
    store8,
    store32,
    unlock,
)

# The offsets of the state block that maps need; they are those of native.state, which stands above this room.
MACHINE_CPU = 120

_MULTIPLIER = -7046029254386353131  # 0x9E3779B97F4A7C15, the golden ratio of 2**64


@piece
def hash_key(key: Any, size: Any, seed: Any) -> Any:
    """A 32-bit hash of a key."""
    value = seed * _MULTIPLIER + size
    at = 0
    while at + 8 <= size:
        value = (value ^ load64(key + at)) * _MULTIPLIER
        value ^= shift_right(value, 32)
        at += 8
    if at + 4 <= size:
        value = (value ^ load32(key + at)) * _MULTIPLIER
        value ^= shift_right(value, 32)
        at += 4
    while at < size:
        value = (value ^ load8(key + at)) * _MULTIPLIER
        value ^= shift_right(value, 32)
        at += 1
    value *= _MULTIPLIER
    return shift_right(value, 32)


@piece
def find(m: Any, key: Any, hashed: Any) -> Any:
    """The address of a key's node; 0 for none."""
    size = load32(m + KEY_SIZE)
    values = load64(m + VALUES)
    stride = load32(m + STRIDE)
    number = load32(load64(m + BUCKETS) + 4 * (hashed & load32(m + BUCKET_MASK)))
    left = load32(m + MAX_ENTRIES)
    while number != 0 and left >= 0:
        node = values + (number - 1) * stride
        if load32(node + NODE_HASH) == hashed and equal(node + NODE_KEY, key, size):
            return node
        number = load32(node + NODE_NEXT)
        left -= 1
    return 0


@piece
def node_of(m: Any, key: Any) -> Any:
    """The address of a key's node; 0 for none."""
    return find(m, key, hash_key(key, load32(m + KEY_SIZE), load32(m + SEED)))


@piece
def own_value(m: Any, node: Any, machine: Any) -> Any:
    """The address of a node's value, the machine's CPU's one in a per-CPU table."""
    value = node + load32(m + VALUE_OFFSET)
    cpus = load32(m + CPUS)
    if cpus > 1 and machine != 0:
        value += (load32(machine + MACHINE_CPU) % cpus) * load32(m + VALUE_STRIDE)
    return value


@piece
def _unlink(m: Any, node: Any) -> Any:
    values = load64(m + VALUES)
    stride = load32(m + STRIDE)
    number = (node - values) // stride + 1
    place = load64(m + BUCKETS) + 4 * (load32(node + NODE_HASH) & load32(m + BUCKET_MASK))
    left = load32(m + MAX_ENTRIES)
    while left >= 0:
        current = load32(place)
        if current == 0:
            return
        if current == number:
            store32(place, load32(node + NODE_NEXT))
            return
        place = values + (current - 1) * stride + NODE_NEXT
        left -= 1


@piece
def _evict(m: Any) -> Any:
    """Unlink the next node that was not used since the hand last passed; gives its address."""
    values = load64(m + VALUES)
    stride = load32(m + STRIDE)
    capacity = load32(m + MAX_ENTRIES)
    hand = load32(m + HAND)
    while True:
        hand = hand + 1 if hand + 1 < capacity else 0
        node = values + hand * stride
        if load8(node + stride - 8) == 0:
            break
        store8(node + stride - 8, 0)
    store32(m + HAND, hand)
    _unlink(m, node)
    return node


@piece
def _room(m: Any, evicting: Any) -> Any:
    """A node for a new entry; 0 where there is none."""
    values = load64(m + VALUES)
    stride = load32(m + STRIDE)
    free = load32(m + FREE)
    if free != 0:
        node = values + (free - 1) * stride
        store32(m + FREE, load32(node + NODE_NEXT))
    else:
        fresh = load32(m + FRESH)
        if fresh >= load32(m + MAX_ENTRIES):
            return _evict(m) if evicting else 0
        store32(m + FRESH, fresh + 1)
        node = values + fresh * stride
    store32(m + COUNT, load32(m + COUNT) + 1)
    return node


@piece
def _put(m: Any, key: Any, value: Any, flags: Any, machine: Any, evicting: Any) -> Any:
    flags &= ~4  # BPF_F_LOCK: the whole update is locked
    if flags < 0 or flags > 2:
        return -22
    size = load32(m + KEY_SIZE)
    hashed = hash_key(key, size, load32(m + SEED))
    lock(m + LOCK)
    node = find(m, key, hashed)
    status = 0
    if node != 0:
        if flags == 1:
            status = -17
        elif load32(m + CPUS) > 1 and machine == 0:
            copy(node + load32(m + VALUE_OFFSET), value, load32(m + CPUS) * load32(m + VALUE_STRIDE))
        else:
            copy(own_value(m, node, machine), value, load32(m + VALUE_SIZE))
    elif flags == 2:
        status = -2
    else:
        node = _room(m, evicting)
        if node == 0:
            status = -7
        else:
            place = load64(m + BUCKETS) + 4 * (hashed & load32(m + BUCKET_MASK))
            copy(node + NODE_KEY, key, size)
            cpus = load32(m + CPUS)
            if cpus > 1 and machine == 0:
                copy(node + load32(m + VALUE_OFFSET), value, cpus * load32(m + VALUE_STRIDE))
            else:
                if cpus > 1:
                    fill_zero(node + load32(m + VALUE_OFFSET), cpus * load32(m + VALUE_STRIDE))
                copy(own_value(m, node, machine), value, load32(m + VALUE_SIZE))
            if evicting:
                store8(node + load32(m + STRIDE) - 8, 0)
            store32(node + NODE_HASH, hashed)
            store32(node + NODE_NEXT, load32(place))
            store32(place, (node - load64(m + VALUES)) // load32(m + STRIDE) + 1)
    unlock(m + LOCK)
    return status


def lookup(m: Any, key: Any, c: Any, d: Any, e: Any, machine: Any) -> Any:
    """The address of a key's value."""
    node = node_of(m, key)
    return own_value(m, node, machine) if node != 0 else 0


def lookup_lru(m: Any, key: Any, c: Any, d: Any, e: Any, machine: Any) -> Any:
    """The same; the entry counts as used."""
    node = node_of(m, key)
    if node == 0:
        return 0
    if machine != 0:
        store8(node + load32(m + STRIDE) - 8, 1)
    return own_value(m, node, machine)


def lookup_map(m: Any, key: Any, c: Any, d: Any, e: Any, machine: Any) -> Any:
    """The address of the map at a key."""
    node = node_of(m, key)
    return load64(node + load32(m + VALUE_OFFSET)) if node != 0 else 0


def lookup_cpu(m: Any, key: Any, cpu: Any, d: Any, e: Any, machine: Any) -> Any:
    """The address of a key's value for one CPU."""
    node = node_of(m, key)
    cpu &= 0xFFFFFFFF
    if node == 0 or cpu >= load32(m + CPUS):
        return 0
    return node + load32(m + VALUE_OFFSET) + cpu * load32(m + VALUE_STRIDE)


def update(m: Any, key: Any, value: Any, flags: Any, e: Any, machine: Any) -> Any:
    """Create or change an entry."""
    return _put(m, key, value, flags, machine, False)


def update_lru(m: Any, key: Any, value: Any, flags: Any, e: Any, machine: Any) -> Any:
    """Create or change an entry; a full table gives up another one."""
    return _put(m, key, value, flags, machine, True)


def delete(m: Any, key: Any, c: Any, d: Any, e: Any, machine: Any) -> Any:
    """Take an entry out."""
    lock(m + LOCK)
    node = node_of(m, key)
    status = -2
    if node != 0:
        _unlink(m, node)
        store32(node + NODE_NEXT, load32(m + FREE))
        store32(m + FREE, (node - load64(m + VALUES)) // load32(m + STRIDE) + 1)
        store32(m + COUNT, load32(m + COUNT) - 1)
        status = 0
    unlock(m + LOCK)
    return status


def collect(m: Any, out: Any, room: Any, d: Any, e: Any, machine: Any) -> Any:
    """Write the addresses of all nodes, 8 bytes each, as far as there is room; gives how many."""
    values = load64(m + VALUES)
    stride = load32(m + STRIDE)
    buckets = load64(m + BUCKETS)
    count = 0
    lock(m + LOCK)
    for bucket in range(load32(m + BUCKET_MASK) + 1):
        number = load32(buckets + 4 * bucket)
        while number != 0 and count < room:
            node = values + (number - 1) * stride
            out_place = out + 8 * count
            store32(out_place, node & 0xFFFFFFFF)
            store32(out_place + 4, shift_right(node, 32))
            count += 1
            number = load32(node + NODE_NEXT)
    unlock(m + LOCK)
    return count


def update_many(m: Any, keys: Any, values: Any, rows: Any, evicting: Any, machine: Any) -> Any:
    """Update `rows` entries from dense keys and values (per CPU: all CPUs'); gives the number of those that went in."""
    key_size = load32(m + KEY_SIZE)
    value_size = load32(m + VALUE_SIZE) if load32(m + CPUS) == 1 else load32(m + CPUS) * load32(m + VALUE_STRIDE)
    for row in range(rows):
        if _put(m, keys + row * key_size, values + row * value_size, 0, 0, evicting != 0) != 0:
            return row
    return rows
