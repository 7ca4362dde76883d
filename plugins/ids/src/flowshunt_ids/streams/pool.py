"""Memory of pending stream data: nodes (runs of bytes of one side) and the arena that keeps them between batches.

Blocks of the arena have sizes of 16 bytes times a power of two; freed blocks are kept in one list for each size.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from flowshunt.compiled import BYTES, column, kernel
from flowshunt_ids.layout import NODE, SIDE, SIDE_TOUCHED
from flowshunt_ids.memory import copy_bytes

_I64 = types.int64

SMALLEST = 16
SIZES = 17
"""Block sizes: 16 bytes to 1 MiB."""

FREE_NODE = 0
"""Head of the list of free nodes."""
NODES_USED = 1
ARENA_TOP = 2
"""Where the arena was never used."""
ARENA_USED = 3
"""Bytes in blocks that are in use."""
RETIRED = 4
"""Head of the list of nodes whose bytes are read until the batch ends."""
LOST_BYTES = 5
"""Stream bytes given up because memory ran out."""
GAPS = 6
"""Holes that were passed over."""
DEPTH_REACHED = 7
"""Sides that reached the reassembly depth."""
HELD = 8
"""Bytes of the segments that are kept."""
LIMIT = 9
"""The most of them."""
LISTS = 16
"""The first of SIZES heads of free blocks."""
STATE_SIZE = LISTS + SIZES


class Pool(NamedTuple):
    """The nodes, the arena's bytes, and int64[STATE_SIZE] of the counters and list heads above."""

    nodes: NDArray[Any]
    arena: NDArray[np.uint8]
    state: NDArray[np.int64]


POOL = types.NamedTuple([column(NODE), column(np.uint8), column(np.int64)], Pool)


def new_pool(nodes: int, limit: int) -> Pool:
    """An empty pool: a number of nodes, and the most bytes that are kept.

    Blocks are up to twice as large as what is in them; the system gives memory only for what was used.
    """
    arena = 2 * limit + (1 << 20)
    state = np.zeros(STATE_SIZE, np.int64)
    state[[FREE_NODE, RETIRED]] = -1
    state[LISTS:] = -1
    state[LIMIT] = limit
    return grown(Pool(np.empty(0, NODE), np.empty(arena, np.uint8), state), nodes)


def grown(pool: Pool, nodes: int) -> Pool:
    """The pool with room for more nodes."""
    old = len(pool.nodes)
    more = np.empty(nodes, NODE)
    more[:old] = pool.nodes
    following = np.arange(old + 1, nodes + 1, dtype=np.int32)
    following[-1] = pool.state[FREE_NODE]
    more["next"][old:] = following
    more["block"][old:] = -1
    pool.state[FREE_NODE] = old
    return Pool(more, pool.arena, pool.state)


@kernel(_I64(POOL), inline=True, entry=False)
def take_node(pool: Pool) -> Any:
    """A free node; -1: none is left."""
    node = pool.state[FREE_NODE]
    if node >= 0:
        pool.state[FREE_NODE] = pool.nodes[node].next
        pool.state[NODES_USED] += 1
    return node


@kernel(_I64(POOL, _I64), entry=False)
def take_block(pool: Pool, length: int) -> Any:
    """A block of at least `length` bytes; -1: the arena is full. Its size is `block_size(length)`."""
    size, place = np.int64(SMALLEST), np.int64(LISTS)
    while size < length:
        size <<= 1
        place += 1
    if place >= LISTS + SIZES:
        return -1
    block = pool.state[place]
    if block >= 0:
        following = np.int64(0)
        for step in range(8):
            following = (following << 8) | np.int64(pool.arena[block + step])
        pool.state[place] = following - 1
    else:
        block = pool.state[ARENA_TOP]
        if block + size > len(pool.arena):
            return -1
        pool.state[ARENA_TOP] = block + size
    pool.state[ARENA_USED] += size
    return block


@kernel(types.void(POOL, _I64, _I64), entry=False)
def give_block(pool: Pool, block: int, length: int) -> None:
    """Free a block that was taken for `length` bytes."""
    size, place = np.int64(SMALLEST), np.int64(LISTS)
    while size < length:
        size <<= 1
        place += 1
    following = pool.state[place] + 1
    for step in range(8):
        pool.arena[block + step] = np.uint8(following >> (56 - 8 * step) & 255)
    pool.state[place] = block
    pool.state[ARENA_USED] -= size


@kernel(types.void(POOL, _I64), entry=False)
def give_node(pool: Pool, node: int) -> None:
    """Free a node and its block."""
    mine = pool.nodes[node]
    if mine.block >= 0:
        give_block(pool, mine.block, mine.capacity)
        mine.block = -1
    mine.next = pool.state[FREE_NODE]
    pool.state[FREE_NODE] = node
    pool.state[NODES_USED] -= 1


@kernel(types.void(POOL, _I64), entry=False)
def retire(pool: Pool, node: int) -> None:
    """Free a node that was part of a list, its block only when the batch ends; until then its bytes can be read."""
    pool.state[HELD] -= pool.nodes[node].length
    if pool.nodes[node].block < 0:
        give_node(pool, node)
    else:
        pool.nodes[node].next = pool.state[RETIRED]
        pool.state[RETIRED] = node


@kernel(types.boolean(column(np.uint8), _I64, BYTES, BYTES, _I64, _I64), entry=False)
def copy_frame_bytes(
    target: NDArray[np.uint8],
    at: int,
    data: NDArray[np.uint8],
    extra: NDArray[np.uint8],
    source: int,
    count: int,
) -> bool:
    """Copy bytes of a batch's frames to target[at:], where there is room; see `layout.Packets` for `extra`."""
    if source >= len(data):
        if source + count > len(data) + len(extra):
            return False
        copy_bytes(target, at, extra, source - len(data), count)
        return True
    if source < 0 or source + count > len(data):
        return False
    copy_bytes(target, at, data, source, count)
    return True


@kernel(types.void(POOL, column(SIDE), column(np.int32), _I64, BYTES, BYTES))
def keep_pending(
    pool: Pool,
    sides: NDArray[Any],
    touched: NDArray[np.int32],
    count: int,
    data: NDArray[np.uint8],
    extra: NDArray[np.uint8],
) -> None:
    """End a batch: move what is still kept out of its buffer, and free the blocks that were read until now.

    touched: the sides that got data in this batch. Where the arena is full, bytes are lost: they read as zeros.
    """
    node = np.int64(pool.state[RETIRED])
    while node >= 0:
        following = np.int64(pool.nodes[node].next)
        give_node(pool, node)
        node = following
    pool.state[RETIRED] = -1
    for at in range(count):
        side = np.int64(touched[at])
        sides[side].flags &= ~SIDE_TOUCHED
        node = np.int64(sides[side].head)
        while node >= 0:
            mine = pool.nodes[node]
            if mine.block < 0:
                length, source = np.int64(mine.length), np.int64(mine.source)
                block = np.int64(-1) if source < 0 else take_block(pool, length)
                mine.source = block
                mine.block = block
                mine.capacity = length
                if block < 0 or not copy_frame_bytes(pool.arena, block, data, extra, source, length):
                    pool.state[LOST_BYTES] += length
            node = np.int64(mine.next)
