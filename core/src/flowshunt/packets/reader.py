"""One capture: opened, its format recognized, read batch by batch until its end or the first damage."""

import mmap
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import attrs
import numpy as np

from flowshunt.errors import InputError
from flowshunt.packets.batch import DECODED_LINKS, FrameBatch
from flowshunt.packets.compression import GzipBytes, ZstdBytes
from flowshunt.packets.indexing import DAMAGED, MORE, Format
from flowshunt.packets.magic import GZIP_MAGIC, PCAPNG_HEADER, ZSTD_MAGIC, recognize
from flowshunt.packets.window import CHUNK, ByteSource, FileBytes, MappedWindow, StreamWindow, mapped_kind

STANDARD_INPUT = "-"


@attrs.frozen
class CaptureProblem:
    """Something about a capture that the user should know.

    Attributes:
        path: the capture.
        offset: the byte in it; of the decompressed stream where it is compressed (`what` says so then).
        what: what is wrong.
        damage: whether frames are missing because of it (the command then exits with 1), or it is just a notice.
    """

    path: str
    offset: int
    what: str
    damage: bool = True

    def __str__(self) -> str:
        return f"{self.path}: byte {self.offset}: {self.what}"


class NotACaptureError(InputError):
    """A file that is no capture."""

    def __init__(self, where: str) -> None:
        super().__init__(
            "not a capture", where, "pcap and pcapng files are read, plain or compressed with gzip or zstd"
        )


Report = Callable[[CaptureProblem], None]


class CaptureReader:
    """Reads one capture. Frames come in the order they stand in it."""

    def __init__(
        self,
        path: str,
        report: Report,
        *,
        links: set[int] | None = None,
        chunk: int = CHUNK,
        stop: Callable[[], bool] | None = None,
    ) -> None:
        """Open `path` ("-" is standard input) and recognize its format.

        `report` is called with each problem; `links` are link types that need no report any more, and grows. A
        pipe that is waited for ends where `stop` turns true. Raises `InputError` for a file that can't be opened or is
        no capture.
        """
        self.path = path
        self._report = report
        self._links = set() if links is None else links
        self._compressed = ""
        self._stop = stop
        self._window: MappedWindow | StreamWindow = self._open(chunk)
        self._position = 0
        self._done = False
        self._closed = False
        self._ahead: FrameBatch | None = None
        self._format: Format | None = None
        try:
            self._recognize()
        except BaseException:
            self.close()
            raise

    @property
    def consumed(self) -> int:
        """Bytes of the file that were used up to now."""
        return self._window.consumed

    def close(self) -> None:
        """Let go of the file."""
        if not self._closed:
            self._done = self._closed = True
            self._ahead = None
            self._window.close()

    def _open(self, chunk: int) -> MappedWindow | StreamWindow:
        descriptor, owned = _descriptor(self.path)
        try:
            mappable = mapped_kind(os.fstat(descriptor).st_mode) and os.lseek(descriptor, 0, os.SEEK_CUR) == 0
            source: ByteSource = FileBytes(descriptor, owned=owned, stop=self._stop)
            start = bytearray(4)
            room, filled = memoryview(start), 0
            while filled < len(start) and (count := source.readinto(room[filled:])):
                filled += count
            if source.damage:
                raise InputError(source.damage, self.path, "name a capture file")
            start = start[:filled]
            if start.startswith((GZIP_MAGIC, ZSTD_MAGIC)):
                self._compressed = "gzip" if start.startswith(GZIP_MAGIC) else "zstd"
                source = FileBytes(descriptor, bytes(start), owned=owned, stop=self._stop)
                source = GzipBytes(source) if self._compressed == "gzip" else ZstdBytes(source)
            elif mappable and (window := _map(descriptor, owned=owned)):
                return window
            else:
                source = FileBytes(descriptor, bytes(start), owned=owned, stop=self._stop)
            return StreamWindow(source, chunk)
        except BaseException:
            if owned:
                os.close(descriptor)
            raise

    def _recognize(self) -> None:
        window = self._window
        while window.end < PCAPNG_HEADER and not window.final:
            self._position = window.advance(0)
        start = window.data[: min(window.end, PCAPNG_HEADER)].tobytes()
        if self._stopped():
            self._done = True
            return
        if not start:
            self._end(0, window.damage or "capture is empty: not even a file header")
            return
        name, length = recognize(start)
        if name == "" and not window.damage:
            raise NotACaptureError(self.path)
        if len(start) < length or name == "":
            self._end(0, window.damage or f"file header is cut off: {len(start)} of {length} bytes")
        elif name == "pcap":
            from flowshunt.packets.pcap import Pcap

            self._format, self._position = Pcap.from_header(start), length
        else:
            from flowshunt.packets.pcapng import Pcapng

            self._format, self._position = Pcapng(), 0

    def peek_timestamp(self) -> int | None:
        """The first frame's timestamp, before anything was read; None where there is no frame."""
        self._ahead = self.read(1, 1)
        return None if self._ahead is None else int(self._ahead.timestamp[0])

    def read(self, frames: int, span: int) -> FrameBatch | None:
        """The next batch, of at most `frames` frames in about `span` bytes; None at the end."""
        if self._ahead is not None:
            batch, self._ahead = self._ahead, None
            return batch
        while not self._done:
            window = self._window
            window.release(self._position)
            assert self._format is not None
            found = self._format.index(window.data, self._position, window.end, frames, span)
            base, self._position = window.base, found.position
            if found.state == DAMAGED:
                self._end(found.position, found.damage)
            if len(found.batch):
                # Reading on, which may have to wait for a pipe, is left to the next call.
                self._check_links(found.batch, base)
                return found.batch
            if found.state == MORE:
                self._continue()
        return None

    def _check_links(self, batch: FrameBatch, base: int) -> None:
        """Report link types that are not decoded, each once, where they appear first."""
        if batch.link[0] in self._links and (batch.link == batch.link[0]).all():
            return
        for link, row in zip(*np.unique(batch.link, return_index=True), strict=True):
            if int(link) not in self._links:
                self._links.add(int(link))
                if int(link) not in DECODED_LINKS:
                    what = f"frames have link type {link}, which is not decoded"
                    self._problem(base + int(batch.offset[row]), what, damage=False)

    def _continue(self) -> None:
        """Get more bytes, or end the capture: well, or in the middle of a record."""
        window = self._window
        if not window.final:
            self._position = window.advance(self._position)
        elif (window.damage or window.end > self._position) and not self._stopped():
            left = window.end - self._position
            assert self._format is not None
            self._end(
                self._position,
                window.damage or f"capture ends in the middle of a {self._format.record}, {left} bytes into it",
            )
        else:
            window.release(self._position)
            self._done = True

    def _stopped(self) -> bool:
        """Whether a pipe may have been left in the middle of something."""
        return not isinstance(self._window, MappedWindow) and self._stop is not None and self._stop()

    def _end(self, position: int, damage: str) -> None:
        self._done = True
        self._problem(self._window.base + position, damage, damage=True)

    def _problem(self, offset: int, what: str, *, damage: bool) -> None:
        if self._compressed:
            what += f" (byte of the decompressed {self._compressed} data)"
        self._report(CaptureProblem(self.path, offset, what, damage))


def input_descriptor() -> int:
    """Standard input's descriptor. Raises `InputError` where it is closed or a terminal."""
    try:
        descriptor = sys.stdin.fileno()
    except (AttributeError, OSError, ValueError):
        raise InputError("standard input is closed", STANDARD_INPUT, "name a capture file") from None
    if os.isatty(descriptor):
        raise InputError("standard input is a terminal", STANDARD_INPUT, "pipe a capture into it, or name a file")
    return descriptor


def _descriptor(path: str) -> tuple[int, bool]:
    """An open descriptor, and whether it is to be closed."""
    if path == STANDARD_INPUT:
        return input_descriptor(), False
    try:
        mode = Path(path).stat().st_mode
        if stat.S_ISSOCK(mode):
            raise InputError("is a socket", path, "name a capture file")
        # Opening a pipe that nobody writes to yet waits, and can't be stopped; reading from it can.
        wait = os.O_NONBLOCK if stat.S_ISFIFO(mode) and sys.platform == "linux" else 0
        descriptor = os.open(path, os.O_RDONLY | wait | getattr(os, "O_CLOEXEC", 0))
        if wait:
            os.set_blocking(descriptor, True)
        return descriptor, True
    except OSError as error:
        raise InputError(
            f"can't be opened: {error.strerror}", path, "name a capture file or a folder of them"
        ) from None


def _map(descriptor: int, *, owned: bool) -> MappedWindow | None:
    """A regular file mapped; None where its file system can't, or it is empty."""
    try:
        mapping = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError):
        return None
    if owned:
        os.close(descriptor)
    return MappedWindow(mapping)
