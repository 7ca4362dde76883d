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


@kernel(types.void(INDEX, types.uint32, types.int64), entry=False)
def index_put(index: NDArray[np.uint64], key: Any, slot: int) -> None:
    """Add an entry. The caller keeps the index at most half full."""
    mask = np.uint64(len(index) - 1)
    place = np.uint64(key) & mask
    while index[place] != 0:
        place = (place + np.uint64(1)) & mask
    index[place] = (np.uint64(key) << np.uint64(32)) | np.uint64(slot + 1)


@kernel(types.boolean(INDEX, types.uint32, types.int64), entry=False)
def index_drop(index: NDArray[np.uint64], key: Any, slot: int) -> bool:
    """Remove an entry; False where it is not there."""
    one = np.uint64(1)
    mask = np.uint64(len(index) - 1)
    wanted = (np.uint64(key) << np.uint64(32)) | np.uint64(slot + 1)
    hole = np.uint64(key) & mask
    while index[hole] != wanted:
        if index[hole] == 0:
            return False
        hole = (hole + one) & mask
    place = (hole + one) & mask
    while index[place] != 0:
        entry = index[place]
        home = (entry >> np.uint64(32)) & mask
        # The entry may move up only if its home does not lie behind the hole.
        if ((place - home) & mask) >= ((place - hole) & mask):
            index[hole] = entry
            hole = place
        place = (place + one) & mask
    index[hole] = np.uint64(0)
    return True


@kernel(types.void(INDEX, INDEX))
def index_copy(old: NDArray[np.uint64], new: NDArray[np.uint64]) -> None:
    """Put every entry of one index into another, empty one that is larger."""
    mask = np.uint64(len(new) - 1)
    for at in range(len(old)):
        entry = old[at]
        if entry != 0:
            place = (entry >> np.uint64(32)) & mask
            while new[place] != 0:
                place = (place + np.uint64(1)) & mask
            new[place] = entry
