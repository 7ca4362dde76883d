"""Windows over a capture's bytes: a mapped file whole, or a stream chunk by chunk, in bounded memory.

Both have the same members, so that a reader doesn't care which it has:

    data, end   the bytes at hand: data[:end]
    base        where data[0] lies in the capture (in the decompressed stream, where the file is compressed)
    final       no bytes come after these
    damage      why the bytes end too early; "" where they don't
    consumed    bytes of the file itself that were used up to now
"""

import contextlib
import mmap
import os
import select
from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from flowshunt.packets.cut_files import guard

CHUNK = 8 << 20
"""Bytes of a stream that are read at a time."""

_STOP_PATIENCE_MS = 200
"""How often a reader that waits for a pipe looks whether it is to stop."""

_PIPE_PATIENCE_MS = 50
"""How long a slow pipe may hold back bytes that came before they are handed on."""


class ByteSource(Protocol):
    """Bytes in order."""

    @property
    def consumed(self) -> int:
        """Bytes of the file that were used up to now."""

    @property
    def damage(self) -> str:
        """Why the bytes ended too early; "" where they didn't."""

    def readinto(self, room: memoryview) -> int:
        """Put the next bytes into `room`; 0 at the end. May give fewer than fit."""

    def idle(self) -> bool:
        """Whether the next read would have to wait for somebody else."""

    def close(self) -> None:
        """Let go of the file."""


class FileBytes:
    """A file, pipe or device, read by its descriptor."""

    def __init__(
        self, descriptor: int, start: bytes = b"", *, owned: bool = True, stop: Callable[[], bool] | None = None
    ) -> None:
        """Read `start`, then what the descriptor gives. A pipe ends early where `stop` turns true."""
        self.consumed = 0
        self.damage = ""
        self._descriptor = descriptor
        self._start = start
        self._owned = owned
        self._stop = stop
        self._poll: select.poll | None = None
        if not mapped_kind(os.fstat(descriptor).st_mode) and hasattr(select, "poll"):
            self._poll = select.poll()
            self._poll.register(descriptor, select.POLLIN)

    def readinto(self, room: memoryview) -> int:
        """See `ByteSource.readinto`. What the system refuses to read ends the stream with `damage`.

        A pipe that gives nothing is looked at again and again: a signal alone does not end a read.
        """
        if self._start:
            part = self._start[: len(room)]
            room[: len(part)] = part
            self._start = self._start[len(part) :]
            self.consumed += len(part)
            return len(part)
        while self._poll is not None and not self._poll.poll(_STOP_PATIENCE_MS):
            if self._stop is not None and self._stop():
                return 0
        try:
            count = os.readv(self._descriptor, [room])
        except OSError as error:
            self.damage = f"can't be read further: {error.strerror}"
            return 0
        self.consumed += count
        return count

    def idle(self) -> bool:
        """See `ByteSource.idle`."""
        return self._poll is not None and not self._start and not self._poll.poll(_PIPE_PATIENCE_MS)

    def close(self) -> None:
        """See `ByteSource.close`. Standard input stays open."""
        if self._owned and self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1


def mapped_kind(mode: int) -> bool:
    """Whether a file of this `st_mode` can be mapped: a regular one."""
    return (mode & 0o170000) == 0o100000


class StreamWindow:
    """The bytes of a stream, a chunk at a time. Every chunk has memory of its own, so earlier batches stay valid."""

    def __init__(self, source: ByteSource, chunk: int = CHUNK) -> None:
        self.data: NDArray[np.uint8] = np.empty(0, np.uint8)
        self.end = 0
        self.base = 0
        self.final = False
        self._source = source
        self._chunk = chunk

    @property
    def damage(self) -> str:
        """Why the stream ended too early; "" where it didn't."""
        return self._source.damage

    @property
    def consumed(self) -> int:
        """Bytes of the file that were used."""
        return self._source.consumed

    def release(self, position: int) -> None:
        """Nothing to do: a chunk's memory goes when the last batch over it goes."""

    def advance(self, position: int) -> int:
        """Drop the bytes before `position`, read at least one more unless the stream ends; `position` moves to 0."""
        carried = self.end - position
        buffer = np.empty(carried + self._chunk, np.uint8)
        buffer[:carried] = self.data[position : self.end]
        room = memoryview(buffer)  # type: ignore[arg-type]
        filled = carried
        while filled < len(buffer):
            count = self._source.readinto(room[filled:])
            if count == 0:
                self.final = True
                break
            filled += count
            if self._source.idle():
                break
        buffer.flags.writeable = False
        self.data, self.end = buffer, filled
        self.base += position
        return 0

    def close(self) -> None:
        """Let go of the stream and of the last chunk."""
        self._source.close()
        self.data, self.end = np.empty(0, np.uint8), 0


class MappedWindow:
    """A regular file, mapped whole and read only. Pages that were read are handed back to the system."""

    final = True
    base = 0

    def __init__(self, mapping: mmap.mmap) -> None:
        self.data: NDArray[np.uint8] = np.frombuffer(mapping, np.uint8)
        self.end = len(self.data)
        self.damage = ""
        self.consumed = 0
        self._mapping = mapping
        self._released = 0
        guard(self.data)
        self._advise("MADV_SEQUENTIAL", 0, self.end)

    def _advise(self, advice: str, start: int, length: int) -> None:
        option = getattr(mmap, advice, None)
        if option is not None and length > 0:
            with contextlib.suppress(OSError, ValueError):
                self._mapping.madvise(option, start, length)

    def release(self, position: int) -> None:
        """Hand back the pages before `position`, and notice a file that was cut off meanwhile.

        Pages beyond a file's end read as zeros (`flowshunt.packets.cut_files`); the window shrinks with the file.
        """
        self.consumed = position
        start, stop = self._released, position - position % mmap.PAGESIZE
        if stop > start:
            self._advise("MADV_DONTNEED", start, stop - start)
            self._released = stop
        with contextlib.suppress(OSError):
            size = self._mapping.size()
            if size < self.end:
                self.damage = f"file was cut from {self.end} to {size} bytes while it was read"
                self.end = size

    def advance(self, position: int) -> int:
        """There are no more bytes than the mapped ones."""
        return position

    def close(self) -> None:
        """Let go of the mapping: it ends when the last batch over it goes."""
        self.data, self.end = np.empty(0, np.uint8), 0
        del self._mapping
