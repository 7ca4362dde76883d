"""The pcap format (draft-ietf-opsawg-pcap): the file header, and the kernel that finds the records.

    file header, 24 bytes:  magic 4 | major 2 | minor 2 | reserved 8 | snaplen 4 | FCS and link type 4
    record header:          seconds 4 | fraction 4 | captured length 4 | original length 4   (8 more in Kuznetzov's)

The magic number tells the byte order and the unit of the fraction. The upper bits of the last word say how many bytes
of frame check sequence each frame ends with: bit 26 that it is known, bits 28 to 31 its length in units of 16 bits.
"""

import attrs
import numpy as np
from numba import types
from numpy.typing import NDArray

from flowshunt.compiled import BYTES, column, kernel
from flowshunt.packets.indexing import DAMAGED, FULL, MAX_CAPTURED, MORE, Columns, Indexed
from flowshunt.packets.loads import load32_as
from flowshunt.packets.magic import PCAP_MAGICS, PCAP_MODIFIED, PCAP_NANOSECONDS
from flowshunt.packets.read_ahead import ask_ahead

RECORD_HEADER = 16
MODIFIED_RECORD_HEADER = 24

_FCS_KNOWN = 1 << 26


@kernel(
    types.UniTuple(types.int64, 3)(
        BYTES,
        types.UniTuple(types.int64, 3),
        types.UniTuple(types.int64, 4),
        column(np.int64),
        column(np.uint32),
        column(np.uint32),
        column(np.int64),
    )
)
def index_records(
    data: NDArray[np.uint8],
    bounds: tuple[int, int, int],
    layout: tuple[int, int, int, int],
    offset: NDArray[np.int64],
    captured: NDArray[np.uint32],
    wire: NDArray[np.uint32],
    timestamp: NDArray[np.int64],
) -> tuple[int, int, int]:
    """Walk records in `data[start:end]` until the columns are full or `stop` is passed.

    `bounds` is (start, end, stop), with 0 <= start and end <= len(data); `layout` is (big endian, record header
    length, ns a fraction unit, FCS bytes). Returns (frames, position, state).
    """
    at, end, stop = bounds
    big_endian, header, tick, fcs = layout
    count = 0
    state = FULL
    asked = at
    while count < offset.size and at < stop:
        if end - at < header:
            state = MORE
            break
        asked = ask_ahead(data, at, asked, end)
        length = load32_as(data, at + 8, big_endian)
        if length > MAX_CAPTURED:
            state = DAMAGED
            break
        if end - at - header < length:
            state = MORE
            break
        seconds = load32_as(data, at, big_endian)
        fraction = load32_as(data, at + 4, big_endian)
        # Tags that the driver put back make some frames longer than their stated length.
        original = max(max(load32_as(data, at + 12, big_endian), length) - fcs, 0)
        offset[count] = at + header
        captured[count] = min(length, original)
        wire[count] = original
        timestamp[count] = seconds * 1_000_000_000 + fraction * tick
        count += 1
        at += header + length
    return count, at, state


@attrs.define(eq=False)
class Pcap:
    """One pcap file, read from its header on."""

    big_endian: bool
    header: int
    tick: int
    link: int
    fcs: int
    record: str = "record"

    @classmethod
    def from_header(cls, header: bytes) -> "Pcap":
        """The format that a 24-byte file header describes. The caller has seen one of `PCAP_MAGICS` in it."""
        order = "big" if int.from_bytes(header[:4], "big") in PCAP_MAGICS else "little"
        magic = int.from_bytes(header[:4], order)  # type: ignore[arg-type]
        word = int.from_bytes(header[20:24], order)  # type: ignore[arg-type]
        return cls(
            big_endian=order == "big",
            header=MODIFIED_RECORD_HEADER if magic == PCAP_MODIFIED else RECORD_HEADER,
            tick=1 if magic == PCAP_NANOSECONDS else 1000,
            link=word & 0xFFFF,
            fcs=(word >> 28) * 2 if word & _FCS_KNOWN else 0,
        )

    def index(self, data: NDArray[np.uint8], start: int, end: int, frames: int, span: int) -> Indexed:
        """See `Format.index`."""
        columns = Columns.empty(frames)
        count, position, state = index_records(
            data,
            (start, end, start + span),
            (int(self.big_endian), self.header, self.tick, self.fcs),
            columns.offset,
            columns.captured,
            columns.wire,
            columns.timestamp,
        )
        damage = ""
        if state == DAMAGED:
            length = int.from_bytes(
                data[position + 8 : position + 12].tobytes(), "big" if self.big_endian else "little"
            )
            damage = f"record states {length} captured bytes, more than {MAX_CAPTURED}"
        return Indexed(columns.batch(data, count, 0, self.link), position, state, damage)
