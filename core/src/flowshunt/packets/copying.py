"""The kernel that copies frames from one buffer to another."""

import numpy as np
from numba import types
from numpy.typing import NDArray

from flowshunt.compiled import BYTES, column, kernel


@kernel(types.void(BYTES, column(np.int64), column(np.uint32), column(np.uint8), column(np.int64)))
def copy_frames(
    data: NDArray[np.uint8],
    offset: NDArray[np.int64],
    captured: NDArray[np.uint32],
    target: NDArray[np.uint8],
    place: NDArray[np.int64],
) -> None:
    """Copy each frame of `data` to its place in `target`. The caller has checked that all lie inside."""
    for i in range(offset.size):
        start, to = np.uint64(offset[i]), np.uint64(place[i])
        for j in range(np.uint64(captured[i])):
            target[to + j] = data[start + j]
