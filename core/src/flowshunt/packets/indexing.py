"""What every capture format shares: the columns that an indexing kernel fills, and how its walk ended."""

from typing import Any, Protocol

import attrs
import numpy as np
from numpy.typing import NDArray

from flowshunt.packets.batch import FrameBatch

MAX_CAPTURED = 262144
"""The most bytes that one frame may have captured, as in libpcap. More is damage."""

MORE = 0
"""The walk came to the end of the bytes at hand, or to a record that goes past it."""
FULL = 1
"""The walk filled its columns, or went as far as it was told to."""
DAMAGED = 2
"""The walk met a record that can't be: `Indexed.position` is where it starts."""
OTHER = 3
"""The walk met a block that isn't for it (pcapng: a section header or an interface description)."""


@attrs.frozen(eq=False)
class Indexed:
    """One walk's result: the frames found, where the walk stands now, how it ended, and what is damaged."""

    batch: FrameBatch
    position: int
    state: int
    damage: str = ""


class Format(Protocol):
    """A capture format at work on one file: walks over windows of its bytes, in order."""

    record: str
    """What a frame is kept in, for messages."""

    def index(self, data: NDArray[np.uint8], start: int, end: int, frames: int, span: int) -> Indexed:
        """Find up to `frames` frames in `data[start:end]`, and stop after about `span` bytes."""


@attrs.define(eq=False)
class Columns:
    """Room for one batch's columns."""

    offset: NDArray[np.int64]
    captured: NDArray[np.uint32]
    wire: NDArray[np.uint32]
    timestamp: NDArray[np.int64]

    @classmethod
    def empty(cls, frames: int) -> "Columns":
        """Columns for so many frames, not yet filled."""
        return cls(
            np.empty(frames, np.int64),
            np.empty(frames, np.uint32),
            np.empty(frames, np.uint32),
            np.empty(frames, np.int64),
        )

    def batch(self, data: NDArray[np.uint8], count: int, port: Any, link: Any) -> FrameBatch:
        """The first `count` frames as a batch; `port` and `link` are columns, or numbers that hold for all."""
        return FrameBatch(
            data,
            self.offset[:count],
            self.captured[:count],
            self.wire[:count],
            self.timestamp[:count],
            port[:count] if isinstance(port, np.ndarray) else np.full(count, port, np.uint16),
            link[:count] if isinstance(link, np.ndarray) else np.full(count, link, np.uint16),
        )
