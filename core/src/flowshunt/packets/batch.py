"""Frame batches: many frames as columns over one buffer, with no Python object a frame."""

from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

LINK_NULL = 0
LINK_ETHERNET = 1
LINK_PPP = 9
LINK_RAW_BSD = 12
LINK_RAW_OPENBSD = 14
LINK_RAW = 101
LINK_CISCO_HDLC = 104
LINK_LOOP = 108
LINK_LINUX_SLL = 113
LINK_IPV4 = 228
LINK_IPV6 = 229
LINK_LINUX_SLL2 = 276

DECODED_LINKS = frozenset(
    {
        LINK_NULL,
        LINK_ETHERNET,
        LINK_PPP,
        LINK_RAW_BSD,
        LINK_RAW_OPENBSD,
        LINK_RAW,
        LINK_CISCO_HDLC,
        LINK_LOOP,
        LINK_LINUX_SLL,
        LINK_IPV4,
        LINK_IPV6,
        LINK_LINUX_SLL2,
    }
)
"""The link types that header decoding knows; frames of others are delivered, but not decoded."""


@attrs.frozen(eq=False)
class FrameBatch:
    """A run of frames, as columns of equal length n over one buffer.

    Attributes:
        data: uint8[m], read only: the buffer that every frame lies in (a mapped capture, or one chunk of a stream).
        offset: int64[n], where each frame's first captured byte lies in `data`.
        captured: uint32[n], the bytes of each frame that `data` holds.
        wire: uint32[n], the bytes each frame had on the wire, without the frame check sequence.
        timestamp: int64[n], nanoseconds since 1970-01-01 UTC.
        port: uint16[n], the NIC port (capture interface) that each frame came in by.
        link: uint16[n], the LINKTYPE value of each frame's first header.
        first: the number of the first frame in its run, counted from 0.
    """

    data: NDArray[np.uint8]
    offset: NDArray[np.int64]
    captured: NDArray[np.uint32]
    wire: NDArray[np.uint32]
    timestamp: NDArray[np.int64]
    port: NDArray[np.uint16]
    link: NDArray[np.uint16]
    first: int = 0

    @classmethod
    def empty(cls) -> "FrameBatch":
        """A batch of no frames."""
        data, offset, timestamp = np.empty(0, np.uint8), np.empty(0, np.int64), np.empty(0, np.int64)
        lengths, numbers = np.empty((2, 0), np.uint32), np.empty((2, 0), np.uint16)
        return cls(data, offset, lengths[0], lengths[1], timestamp, numbers[0], numbers[1])

    def __len__(self) -> int:
        return len(self.offset)

    def select(self, rows: Any) -> "FrameBatch":
        """The frames at `rows` (int64 indices, a bool mask or a slice) over the same buffer."""
        return attrs.evolve(
            self,
            offset=self.offset[rows],
            captured=self.captured[rows],
            wire=self.wire[rows],
            timestamp=self.timestamp[rows],
            port=self.port[rows],
            link=self.link[rows],
        )

    def frame(self, row: int) -> bytes:
        """A copy of one frame's captured bytes, for display and tests."""
        start = int(self.offset[row])
        return self.data[start : start + int(self.captured[row])].tobytes()
