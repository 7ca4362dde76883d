"""One capture: opened, its format recognized, read batch by batch until its end or the first damage."""

import mmap
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import attrs

from flowshunt.errors import InputError
from flowshunt.packets.batch import FrameBatch
from flowshunt.packets.compression import GZIP_MAGIC, ZSTD_MAGIC, GzipBytes, ZstdBytes
from flowshunt.packets.indexing import DAMAGED, MORE, Format
from flowshunt.packets.window import CHUNK, ByteSource, FileBytes, MappedWindow, StreamWindow, mapped_kind

STANDARD_INPUT = "-"

_LONGEST_HEADER = 24


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

    def __init__(self, path: str, report: Report, *, chunk: int = CHUNK) -> None:
        """Open `path` ("-" is standard input) and recognize its format.

        Raises `InputError` for a file that can't be opened or is no capture. `report` is called with each problem.
        """
        self.path = path
        self._report = report
        self._compressed = ""
        self._window: MappedWindow | StreamWindow = self._open(chunk)
        self._position = 0
        self._done = False
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
        self._done = True
        self._window.close()

    def _open(self, chunk: int) -> MappedWindow | StreamWindow:
        descriptor, owned = _descriptor(self.path)
        try:
            source: ByteSource = FileBytes(descriptor, owned=owned)
            start = bytearray(4)
            room, filled = memoryview(start), 0
            while filled < len(start) and (count := source.readinto(room[filled:])):
                filled += count
            if source.damage:
                raise InputError(source.damage, self.path, "name a capture file")
            start = start[:filled]
            if start.startswith((GZIP_MAGIC, ZSTD_MAGIC)):
                self._compressed = "gzip" if start.startswith(GZIP_MAGIC) else "zstd"
                source = FileBytes(descriptor, bytes(start), owned=owned)
                source = GzipBytes(source) if self._compressed == "gzip" else ZstdBytes(source)
            elif mapped_kind(os.fstat(descriptor).st_mode) and (window := _map(descriptor, owned=owned)):
                return window
            else:
                source = FileBytes(descriptor, bytes(start), owned=owned)
            return StreamWindow(source, chunk)
        except BaseException:
            if owned:
                os.close(descriptor)
            raise

    def _recognize(self) -> None:
        from flowshunt.packets.pcap import FILE_HEADER, MAGICS, Pcap

        window = self._window
        while window.end < _LONGEST_HEADER and not window.final:
            self._position = window.advance(0)
        start = window.data[: min(window.end, _LONGEST_HEADER)].tobytes()
        if not start:
            self._end(0, window.damage or "capture is empty: not even a file header")
        elif int.from_bytes(start[:4], "big") in MAGICS or int.from_bytes(start[:4], "little") in MAGICS:
            if len(start) < FILE_HEADER:
                self._end(0, window.damage or f"file header is cut off: {len(start)} of {FILE_HEADER} bytes")
                return
            self._format = Pcap.from_header(start)
            self._position = FILE_HEADER
        elif window.damage:
            self._end(0, window.damage)
        else:
            raise NotACaptureError(self.path)

    def read(self, frames: int, span: int) -> FrameBatch | None:
        """The next batch, of at most `frames` frames in about `span` bytes; None at the end."""
        while not self._done:
            window = self._window
            window.release(self._position)
            assert self._format is not None
            found = self._format.index(window.data, self._position, window.end, frames, span)
            self._position = found.position
            if found.state == DAMAGED:
                self._end(found.position, found.damage)
            elif found.state == MORE:
                self._continue()
            if len(found.batch):
                return found.batch
        return None

    def _continue(self) -> None:
        """Get more bytes, or end the capture: well, or in the middle of a record."""
        window = self._window
        if not window.final:
            self._position = window.advance(self._position)
        elif window.damage or window.end > self._position:
            left = window.end - self._position
            assert self._format is not None
            self._end(
                self._position,
                window.damage or f"capture ends in the middle of a {self._format.record}, {left} bytes into it",
            )
        else:
            self._done = True

    def _end(self, position: int, damage: str) -> None:
        self._done = True
        if self._compressed:
            damage += f" (byte of the decompressed {self._compressed} data)"
        self._report(CaptureProblem(self.path, self._window.base + position, damage))


def _descriptor(path: str) -> tuple[int, bool]:
    """An open descriptor, and whether it is to be closed."""
    if path == STANDARD_INPUT:
        try:
            return sys.stdin.fileno(), False
        except (AttributeError, OSError, ValueError):
            raise InputError("standard input is closed", path, "name a capture file") from None
    try:
        if stat.S_ISSOCK(Path(path).stat().st_mode):
            raise InputError("is a socket", path, "name a capture file")
        return os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0)), True
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
