"""Unaligned loads for column kernels: integers out of bytes. The caller has checked that the bytes are there.

Unsigned indices keep Numba from handling negative ones, so that LLVM makes one load and one byte swap of each.
"""

import numpy as np
from numba import types
from numpy.typing import NDArray

from flowshunt.compiled import BYTES, kernel


@kernel(types.int64(BYTES, types.int64), inline=True, entry=False)
def load8(data: NDArray[np.uint8], at: int) -> int:
    """One byte."""
    return np.int64(data[np.uint64(at)])  # type: ignore[return-value]


@kernel(types.int64(BYTES, types.int64), inline=True, entry=False)
def load16(data: NDArray[np.uint8], at: int) -> int:
    """Two bytes in network order."""
    return (load8(data, at) << 8) | load8(data, at + 1)


@kernel(types.int64(BYTES, types.int64), inline=True, entry=False)
def load32(data: NDArray[np.uint8], at: int) -> int:
    """Four bytes in network order, unsigned."""
    return (load16(data, at) << 16) | load16(data, at + 2)


@kernel(types.int64(BYTES, types.int64, types.int64), inline=True, entry=False)
def load32_as(data: NDArray[np.uint8], at: int, big_endian: int) -> int:
    """Four bytes in the byte order of a file, unsigned."""
    value = load32(data, at)
    if big_endian == 0:
        value = ((value & 0xFF) << 24) | ((value & 0xFF00) << 8) | ((value >> 8) & 0xFF00) | (value >> 24)
    return value
