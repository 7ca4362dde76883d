"""Shares of a run's frames, one for each worker: all frames between two hosts are in the same share."""

from typing import Any

import attrs
import numpy as np
from numba import types
from numpy.typing import NDArray

from flowshunt.compiled import BYTES, column, kernel
from flowshunt.packets.batch import FrameBatch
from flowshunt.packets.decode import decode
from flowshunt.packets.headers import HEADER

_FACTOR = 0x9E3779B97F4A7C15


@kernel(
    types.int64(
        BYTES,
        column(np.int64, readonly=True),
        column(np.uint32, readonly=True),
        column(HEADER, readonly=True),
        types.int64,
        types.int64,
        column(np.int64),
    )
)
def _rows_of(
    data: NDArray[np.uint8],
    offset: NDArray[np.int64],
    captured: NDArray[np.uint32],
    headers: NDArray[Any],
    number: int,
    count: int,
    rows: NDArray[np.int64],
) -> Any:
    """List the rows of share `number` of `count` in `rows` (room for all); returns how many there are."""
    found = np.int64(0)
    for row in range(len(headers)):
        header = headers[row]
        mixed = np.uint64(0)
        size = np.int64(4 if header.ip_version == 4 else 16)
        at = offset[row] + np.int64(header.l3) + (12 if header.ip_version == 4 else 8)
        end = offset[row] + np.int64(captured[row])
        if header.ip_version != 0 and at >= 0 and at + 2 * size <= end <= len(data):
            for step in range(size):
                source, destination = np.uint64(data[at + step]), np.uint64(data[at + size + step])
                mixed = (mixed ^ ((source ^ destination) | (source + destination) << np.uint64(8))) * np.uint64(_FACTOR)
                mixed ^= mixed >> np.uint64(29)
        if np.int64(mixed >> np.uint64(33)) % count == number:
            rows[found] = row
            found += 1
    return found


@attrs.frozen
class Share:
    """Share `number` (from 0) of `count`."""

    number: int
    count: int

    def rows(self, batch: FrameBatch) -> NDArray[np.int64]:
        """The rows of a batch that are in this share, by the addresses of their outermost IP header.

        Ports don't count, so that fragments are with their flows; what is no IP packet is in share 0.
        """
        headers = decode(batch, depth=0)
        rows = np.empty(len(batch), np.int64)
        columns = [_read_only(column) for column in (batch.data, batch.offset, batch.captured, headers)]
        found = _rows_of(*columns, self.number, self.count, rows)
        return rows[:found]


def _read_only(column: NDArray[Any]) -> NDArray[Any]:
    view = np.ascontiguousarray(column).view()
    view.flags.writeable = False
    return view
