"""Longest-prefix-match tries, as in the kernel's kernel/bpf/lpm_trie.c.

A node is: children (2 of 32 bits: an eighth of their distance from the first element, which is never used; 0: none),
prefix length (32 bits), flags (32 bits: 1 for a node that only joins two others), the key's data, the value. A key is
its prefix length (32 bits) and its data, the first bit first.
"""

from typing import Any, Final

from flowshunt.compiled import piece
from flowshunt_ebpf.maps.header import (
    COUNT,
    FREE,
    FRESH,
    KEY_SIZE,
    LOCK,
    MAX_ENTRIES,
    ROOT,
    STRIDE,
    VALUE_OFFSET,
    VALUE_SIZE,
    VALUES,
)  # fmt: skip
from flowshunt_ebpf.maps.raw import copy, leading_zeros, load8, load32, load64, lock, store32, unlock

PREFIX: Final = 8
FLAGS: Final = 12
DATA: Final = 16
JOINS: Final = 1


@piece
def _node(m: Any, number: Any) -> Any:
    return load64(m + VALUES) + (number << 3)


@piece
def _number(m: Any, node: Any) -> Any:
    return (node - load64(m + VALUES)) >> 3


@piece
def _bit(data: Any, index: Any) -> Any:
    return (load8(data + (index >> 3)) >> (7 - (index & 7))) & 1


@piece
def _common(node: Any, data: Any, length: Any, size: Any) -> Any:
    """How many leading bits of a node's and a key's prefix are equal; `size`: bytes of a key's data."""
    limit = min(load32(node + PREFIX), length)
    at = 0
    while at + 4 <= size:
        zeros = leading_zeros(load32(node + DATA + at) ^ load32(data + at))
        if zeros < 32:
            return min(limit, 8 * at + zeros)
        at += 4
        if 8 * at >= limit:
            return limit
    while at < size:
        different = load8(node + DATA + at) ^ load8(data + at)
        if different != 0:
            return min(limit, 8 * at + leading_zeros(different))
        at += 1
    return limit


def lookup(m: Any, key: Any, c: Any, d: Any, e: Any, machine: Any) -> Any:
    """The address of the value of the longest prefix that matches."""
    size = load32(m + KEY_SIZE) - 4
    longest = size * 8
    length = load32(key)
    data = key + 4
    if length > longest:
        return 0
    values = load64(m + VALUES)
    number = load32(m + ROOT)
    found = 0
    if size == 4:
        word = load32(data)
        while number != 0:
            node = values + (number << 3)
            prefix = load32(node + PREFIX)
            if prefix > length or leading_zeros(load32(node + DATA) ^ word) < prefix:
                break
            if load32(node + FLAGS) & JOINS == 0:
                found = node
            if prefix == longest:
                break
            number = load32(node + 4 * _bit(data, prefix))
    else:
        while number != 0:
            node = values + (number << 3)
            prefix = load32(node + PREFIX)
            if prefix > length or _common(node, data, length, size) < prefix:
                break
            if load32(node + FLAGS) & JOINS == 0:
                found = node
            if prefix == longest:
                break
            number = load32(node + 4 * _bit(data, prefix))
    return found + load32(m + VALUE_OFFSET) if found != 0 else 0


@piece
def _room(m: Any) -> Any:
    free = load32(m + FREE)
    if free != 0:
        node = _node(m, free)
        store32(m + FREE, load32(node))
    else:
        fresh = load32(m + FRESH)
        store32(m + FRESH, fresh + 1)
        node = load64(m + VALUES) + (fresh + 1) * load32(m + STRIDE)
    store32(node, 0)
    store32(node + 4, 0)
    return node


@piece
def _give_back(m: Any, node: Any) -> Any:
    store32(node, load32(m + FREE))
    store32(m + FREE, _number(m, node))


@piece
def _insert(m: Any, key: Any, value: Any, flags: Any) -> Any:
    longest = (load32(m + KEY_SIZE) - 4) * 8
    length = load32(key)
    data = key + 4
    place = m + ROOT
    node = 0
    same = 0
    for _ in range(longest + 1):
        number = load32(place)
        if number == 0:
            node = 0
            break
        node = _node(m, number)
        same = _common(node, data, length, longest >> 3)
        if load32(node + PREFIX) != same or load32(node + PREFIX) == length:
            break
        place = node + 4 * _bit(data, load32(node + PREFIX))
    exact = node != 0 and load32(node + PREFIX) == same and same == length
    if exact and load32(node + FLAGS) & JOINS == 0:
        if flags == 1:
            return -17
        copy(node + load32(m + VALUE_OFFSET), value, load32(m + VALUE_SIZE))
        return 0
    if flags == 2:
        return -2
    if load32(m + COUNT) >= load32(m + MAX_ENTRIES):
        return -28
    store32(m + COUNT, load32(m + COUNT) + 1)
    if exact:
        store32(node + FLAGS, 0)
        copy(node + DATA, data, longest >> 3)  # past its prefix a joint has the bits of another key
        copy(node + load32(m + VALUE_OFFSET), value, load32(m + VALUE_SIZE))
        return 0
    new = _room(m)
    store32(new + PREFIX, length)
    store32(new + FLAGS, 0)
    copy(new + DATA, data, longest >> 3)
    copy(new + load32(m + VALUE_OFFSET), value, load32(m + VALUE_SIZE))
    if node == 0:
        store32(place, _number(m, new))
    elif same == length:  # the new prefix lies on the way to the node
        store32(new + 4 * _bit(node + DATA, same), _number(m, node))
        store32(place, _number(m, new))
    else:
        joint = _room(m)
        store32(joint + PREFIX, same)
        store32(joint + FLAGS, JOINS)
        copy(joint + DATA, node + DATA, (longest >> 3))
        side = _bit(data, same)
        store32(joint + 4 * side, _number(m, new))
        store32(joint + 4 * (1 - side), _number(m, node))
        store32(place, _number(m, joint))
    return 0


def update(m: Any, key: Any, value: Any, flags: Any, e: Any, machine: Any) -> Any:
    """Create or change the entry of a prefix."""
    if flags < 0 or flags > 2 or load32(key) > (load32(m + KEY_SIZE) - 4) * 8:
        return -22
    lock(m + LOCK)
    status = _insert(m, key, value, flags)
    unlock(m + LOCK)
    return status


@piece
def _remove(m: Any, key: Any) -> Any:
    longest = (load32(m + KEY_SIZE) - 4) * 8
    length = load32(key)
    data = key + 4
    place = m + ROOT
    parent_place = m + ROOT
    parent = 0
    node = 0
    for _ in range(longest + 1):
        number = load32(place)
        if number == 0:
            return -2
        node = _node(m, number)
        same = _common(node, data, length, longest >> 3)
        if load32(node + PREFIX) != same:
            return -2
        if load32(node + PREFIX) == length:
            break
        parent = node
        parent_place = place
        place = node + 4 * _bit(data, load32(node + PREFIX))
    if load32(node + PREFIX) != length or load32(node + FLAGS) & JOINS:
        return -2
    store32(m + COUNT, load32(m + COUNT) - 1)
    left = load32(node)
    right = load32(node + 4)
    if left != 0 and right != 0:
        store32(node + FLAGS, JOINS)
    elif parent != 0 and load32(parent + FLAGS) & JOINS and left == 0 and right == 0:
        other = load32(parent + 4) if place == parent else load32(parent)
        store32(parent_place, other)
        _give_back(m, parent)
        _give_back(m, node)
    else:
        store32(place, left if left != 0 else right)
        _give_back(m, node)
    return 0


def delete(m: Any, key: Any, c: Any, d: Any, e: Any, machine: Any) -> Any:
    """Take the entry of exactly this prefix out."""
    if load32(key) > (load32(m + KEY_SIZE) - 4) * 8:
        return -22
    lock(m + LOCK)
    status = _remove(m, key)
    unlock(m + LOCK)
    return status
