"""An index from hashes to slots: open addressing with linear probing, and deletion that leaves nothing behind.

The index is uint64[2^k], at most half full. An entry is hash << 32 | slot + 1; 0 is free. An entry lies at the first
free place from `hash & (size - 1)` on; removing one moves the entries after it up, so that chains never outlive their
members. What a hash stands for is compared by the caller, in the slots found.
"""

from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from flowshunt.compiled import column, kernel

INDEX = column(np.uint64)
SMALLEST = 1 << 10
"""Places in a new index."""

_U64 = types.uint64
_0 = np.uint64(0)
_1 = np.uint64(1)
_32 = np.uint64(32)


@kernel(types.void(INDEX, _U64, types.int64), inline=True, entry=False)
def index_put(index: NDArray[np.uint64], key: Any, slot: int) -> None:
    """Add an entry for a 32-bit hash. The caller keeps the index at most half full."""
    mask = np.uint64(len(index) - 1)
    place = key & mask
    while index[place] != _0:
        place = (place + _1) & mask
    index[place] = (key << _32) | np.uint64(slot + 1)


@kernel(types.void(INDEX, _U64, types.int64), entry=False)
def index_drop(index: NDArray[np.uint64], key: Any, slot: int) -> None:
    """Remove an entry; nothing happens where it is not there."""
    mask = np.uint64(len(index) - 1)
    wanted = (key << _32) | np.uint64(slot + 1)
    hole = key & mask
    while True:
        entry = index[hole]
        if entry == wanted:
            break
        if entry == _0:
            return
        hole = (hole + _1) & mask
    place = hole
    while True:
        place = (place + _1) & mask
        entry = index[place]
        if entry == _0:
            break
        # The entry may move up only if its home does not lie after the hole.
        if ((place - (entry >> _32)) & mask) >= ((place - hole) & mask):
            index[hole] = entry
            hole = place
    index[hole] = _0


def index_of(entries: NDArray[np.uint64], size: int) -> NDArray[np.uint64]:
    """A new index of `size` places with the given entries, such as those of a smaller one; zeros are passed over."""
    index = np.zeros(size, np.uint64)
    mask = np.uint64(size - 1)
    waiting = entries[entries != 0]
    place = (waiting >> np.uint64(32)) & mask
    while len(waiting):
        free = index[place] == 0
        index[place[free]] = waiting[free]
        left = index[place] != waiting
        waiting = waiting[left]
        place = (place[left] + np.uint64(1)) & mask
    return index
