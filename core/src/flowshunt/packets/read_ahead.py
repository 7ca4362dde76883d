"""Asking for a capture's next bytes before a walk gets there: where a record ends is known only from its header, so
without this every header waits for memory."""

import numpy as np
from numba import types
from numpy.typing import NDArray

from flowshunt.compiled import BYTES, kernel
from flowshunt.prefetch import prefetch

AHEAD = 2048
"""How far ahead, in bytes: measured: more no longer helps. Larger frames are skipped over, not asked for whole."""

_LINE = 64


@kernel(types.int64(BYTES, types.int64, types.int64, types.int64), inline=True, entry=False)
def ask_ahead(data: NDArray[np.uint8], at: int, asked: int, end: int) -> int:
    """Ask for the bytes from `at` on, as far as that was not done (up to `asked`). Returns how far it now is."""
    asked = max(asked, at)
    while asked < at + AHEAD and asked < end:
        prefetch(data, asked, 0)
        asked += _LINE
    return asked
