"""Frame batches out of bytes, for tests."""

import numpy as np

from flowshunt.packets.batch import FrameBatch
from flowshunt.packets.decode import decode
from flowshunt.packets.headers import HEADER


def batch_of(frames, *, link=1):
    """A batch of frames one after the other, in a buffer that ends where the last one does."""
    data = np.frombuffer(b"".join(frames), np.uint8)
    sizes = np.array([len(frame) for frame in frames], np.uint32)
    count = len(frames)
    return FrameBatch(
        data,
        np.cumsum(sizes, dtype=np.int64) - sizes,
        sizes,
        sizes,
        np.zeros(count, np.int64),
        np.zeros(count, np.uint16),
        np.full(count, link, np.uint16),
    )


def row_of(frame, *, link=1, depth=8):
    """One frame's row, as a dict of numbers."""
    row = decode(batch_of([frame], link=link), depth=depth)[0]
    return {name: int(row[name]) for name in HEADER.names if name != "pad"}
