"""Writing captures: pcap, streamed to disk in constant memory."""

import struct
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from flowshunt.errors import InputError
from flowshunt.packets.batch import LINK_ETHERNET, FrameBatch
from flowshunt.packets.indexing import MAX_CAPTURED
from flowshunt.packets.magic import PCAP_MICROSECONDS, PCAP_NANOSECONDS

_RECORD_HEADER = 16
_BUFFERED = 4 << 20
_SECOND = 1_000_000_000
_END_OF_TIME = (1 << 32) * _SECOND
"""pcap's seconds have 32 bits, without sign."""


class CaptureWriter:
    """A pcap file that grows frame by frame. A context manager: leaving it writes what is buffered and closes the file.

    Every method raises `InputError` where the file can't be written, as on a full disk.
    """

    def __init__(self, path: str | Path, *, nanosecond: bool = True, link: int = LINK_ETHERNET) -> None:
        """Make the file, or empty it. Without `nanosecond`, timestamps are rounded down to microseconds."""
        self.path = str(path)
        self.link = link
        self.frames_written = 0
        self._unit = 1 if nanosecond else 1000
        self._buffer = bytearray()
        magic = PCAP_NANOSECONDS if nanosecond else PCAP_MICROSECONDS
        try:
            self._file = Path(path).open("wb", buffering=0)  # noqa: SIM115 -- closed by close()
        except OSError as error:
            raise self._failure(error) from None
        self._buffer += struct.pack("<IHHiIII", magic, 2, 4, 0, 0, MAX_CAPTURED, link)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def write(self, timestamp_ns: int, frame: bytes, wire: int | None = None) -> None:
        """Add one frame: ns since 1970-01-01 UTC, its captured bytes, and its bytes on the wire where they are more.

        Raises ValueError for what pcap can't hold: times before 1970 or after 2106, frames of more than 256 KiB.
        """
        if not 0 <= timestamp_ns < _END_OF_TIME or len(frame) > MAX_CAPTURED:
            raise ValueError(f"pcap can't hold a frame of {len(frame)} bytes at {timestamp_ns} ns")
        seconds, fraction = divmod(timestamp_ns, _SECOND)
        length = len(frame) if wire is None else wire
        self._buffer += struct.pack("<IIII", seconds, fraction // self._unit, len(frame), length)
        self._buffer += frame
        self.frames_written += 1
        if len(self._buffer) >= _BUFFERED:
            self.flush()

    def write_batch(self, batch: FrameBatch) -> None:
        """Add the frames of a batch. They must have the file's link type.

        Raises ValueError as `write` does.
        """
        if len(batch) == 0:
            return
        if (batch.link != self.link).any():
            other = int(batch.link[batch.link != self.link][0])
            raise InputError(
                f"a frame has link type {other}, but the capture has {self.link}", self.path, "write one file each"
            )
        if (
            int(batch.timestamp.min()) < 0
            or int(batch.timestamp.max()) >= _END_OF_TIME
            or int(batch.captured.max()) > MAX_CAPTURED
        ):
            raise ValueError("the batch has frames that pcap can't hold")
        if int(batch.offset.min()) < 0 or int((batch.offset + batch.captured).max()) > len(batch.data):
            raise ValueError("the batch has frames outside its buffer")
        ends = np.cumsum(batch.captured.astype(np.int64) + _RECORD_HEADER)
        start = 0
        while start < len(batch):
            written = int(ends[start - 1]) if start else 0
            stop = max(start + 1, int(np.searchsorted(ends, written + _BUFFERED, side="right")))
            self._buffer += memoryview(self._records(batch.select(slice(start, stop))))  # type: ignore[arg-type]
            self.flush()
            start = stop
        self.frames_written += len(batch)

    def _records(self, batch: FrameBatch) -> NDArray[np.uint8]:
        from flowshunt.packets.copying import copy_frames

        count = len(batch)
        seconds, fraction = np.divmod(batch.timestamp, _SECOND)
        headers = np.empty((count, 4), "<u4")
        headers[:, 0] = seconds
        headers[:, 1] = fraction // self._unit
        headers[:, 2] = batch.captured
        headers[:, 3] = batch.wire
        ends = np.cumsum(batch.captured.astype(np.int64) + _RECORD_HEADER)
        starts = ends - batch.captured - _RECORD_HEADER
        records = np.empty(int(ends[-1]), np.uint8)
        copy_frames(
            headers.view(np.uint8).ravel(),
            np.arange(count, dtype=np.int64) * _RECORD_HEADER,
            np.full(count, _RECORD_HEADER, np.uint32),
            records,
            starts,
        )
        offset, captured = np.ascontiguousarray(batch.offset), np.ascontiguousarray(batch.captured)
        copy_frames(batch.data, offset, captured, records, starts + _RECORD_HEADER)
        return records

    def flush(self) -> None:
        """Hand everything that is buffered to the system."""
        rest = memoryview(bytes(self._buffer))
        self._buffer.clear()
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            raise self._failure(error) from None

    def close(self) -> None:
        """Write what is buffered and close the file. Closing twice is harmless."""
        if self._file.closed:
            return
        try:
            self.flush()
        finally:
            self._close_file()

    def _close_file(self) -> None:
        try:
            self._file.close()
        except OSError as error:
            raise self._failure(error) from None

    def _failure(self, error: OSError) -> InputError:
        return InputError(f"can't be written: {error.strerror}", self.path, "free some space or choose another place")
