"""Telling plain frames, in compiled code: Ethernet with tags, IP without options, TCP, UDP or an echo, all in order."""

# ruff: noqa: PLR1714 -- kernels compare scalars

from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from flowshunt.compiled import BYTES, column, kernel
from flowshunt.packets.batch import LINK_ETHERNET, FrameBatch
from flowshunt_ids.decode_events.walk import frame_events
from flowshunt_ids.layout import EVENT

_I64 = types.int64


@kernel(_I64(BYTES, _I64), inline=True, entry=False)
def _word(data: NDArray[np.uint8], at: int) -> Any:
    return (np.int64(data[at]) << 8) | np.int64(data[at + 1])


@kernel(types.boolean(BYTES, _I64, _I64, _I64), entry=False)
def _plain_transport(data: NDArray[np.uint8], protocol: int, at: int, end: int) -> bool:
    if protocol == 6:
        if at + 20 > end:
            return False
        size = 4 * (np.int64(data[at + 12]) >> 4)
        if size == 20:
            return True
        return bool(
            size == 32
            and at + 32 <= end
            and data[at + 20] == 1
            and data[at + 21] == 1
            and data[at + 22] == 8
            and data[at + 23] == 10
        )
    if at + 8 > end:
        return False
    if protocol == 17:
        source, destination, length = _word(data, at), _word(data, at + 2), _word(data, at + 4)
        if length < 8 or at + length > end:
            return False
        plain = True
        for port in (3544, 6081, 4789):
            if source == port or destination == port:
                plain = False
        return plain
    return protocol == 1 and (data[at] == 0 or data[at] == 8) and data[at + 1] == 0


@kernel(types.boolean(BYTES, _I64, _I64), entry=False)
def _is_plain(data: NDArray[np.uint8], at: int, end: int) -> bool:
    """Whether the Ethernet frame data[at:end] is plain."""
    if at + 14 > end:
        return False
    kind = _word(data, at + 12)
    at += 14
    for _tag in range(2):
        if kind == 0x8100 or kind == 0x88A8:
            if at + 4 > end:
                return False
            kind = _word(data, at + 2)
            at += 4
    if kind == 0x0806:
        return True
    if kind == 0x0800:
        if at + 20 > end or data[at] != 0x45:
            return False
        length = _word(data, at + 2)
        if length < 20 or at + length > end or _word(data, at + 6) & 0x3FFF:
            return False
        return _plain_transport(data, np.int64(data[at + 9]), at + 20, at + length)
    if kind == 0x86DD:
        if at + 40 > end or data[at] >> 4 != 6:
            return False
        length = 40 + _word(data, at + 4)
        if at + length > end or data[at + 6] == 1:
            return False
        return _plain_transport(data, np.int64(data[at + 6]), at + 40, at + length)
    return False


@kernel(
    _I64(
        BYTES,
        column(np.int64, readonly=True),
        column(np.uint32, readonly=True),
        column(np.uint16, readonly=True),
        column(np.int64),
    )
)
def _others(
    data: NDArray[np.uint8],
    offset: NDArray[np.int64],
    captured: NDArray[np.uint32],
    link: NDArray[np.uint16],
    rows: NDArray[np.int64],
) -> Any:
    """List the frames that are not plain in `rows` (room for all); returns how many there are."""
    count = np.int64(0)
    for row in range(len(offset)):
        begin = offset[row]
        end = begin + np.int64(captured[row])
        if begin < 0 or end > len(data):
            continue
        if link[row] != LINK_ETHERNET or not _is_plain(data, begin, end):
            rows[count] = row
            count += 1
    return count


def decode_events(frames: FrameBatch) -> NDArray[Any]:
    """EVENT rows of a batch's frames, in order. Rows that point past the frames' data are passed over."""
    rows = np.empty(len(frames), np.int64)
    columns = [_read_only(column) for column in (frames.data, frames.offset, frames.captured, frames.link)]
    count = _others(*columns, rows)
    found: list[tuple[int, int]] = []
    data = frames.data
    chosen = rows[:count]
    places = zip(
        chosen.tolist(),
        frames.offset[chosen].tolist(),
        frames.captured[chosen].tolist(),
        frames.link[chosen].tolist(),
        strict=True,
    )
    for row, begin, length, link in places:
        found.extend((row, event) for event in frame_events(data[begin : begin + length].tobytes(), link))
    return np.array(found, EVENT)


def _read_only(column: NDArray[Any]) -> NDArray[Any]:
    view = np.ascontiguousarray(column).view()
    view.flags.writeable = False
    return view
