"""Captures: files, folders and standard input, read as frame batches in time order."""

import stat
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import attrs
import numpy as np

from flowshunt.errors import InputError
from flowshunt.packets.batch import FrameBatch
from flowshunt.packets.merge import Pending, merge
from flowshunt.packets.reader import STANDARD_INPUT, CaptureProblem, CaptureReader, NotACaptureError

__all__ = ["CaptureProblem", "CaptureSource", "open_captures"]

BATCH_FRAMES = 16384
BATCH_BYTES = 24 << 20
"""About how many bytes of a capture one batch covers, so that large frames don't make it large."""

_FIRST = np.iinfo(np.int64).min
_PEEK = 64 << 10


class CaptureSource:
    """Frame batches out of one or more captures, in time order. A context manager; iterate it once.

    A batch and its columns stay valid as long as they are referred to; memory stays low only if batches are let go.

    Attributes:
        problems: what was found wrong so far; fills while reading. Those with `damage` mean that frames are missing.
        total_bytes: size of all captures on disk, or None where one of them is a stream.
        frames_read: frames given out so far.
    """

    def __init__(self, paths: Sequence[str | Path], batch_frames: int, stop: Callable[[], bool] | None) -> None:
        """See `open_captures`."""
        self.problems: list[CaptureProblem] = []
        self.total_bytes: int | None = 0
        self.frames_read = 0
        self._batch_frames = batch_frames
        self._stop = stop
        self._links: set[int] = set()
        self._readers: list[CaptureReader] = []
        self._captures: list[Pending] = []
        self._streams: list[str] = []
        self._batches = self._iterate()
        found = [entry for path in paths for entry in self._expand(str(path))]
        try:
            for path, explicit in found:
                self._add(path, explicit=explicit, alone=len(found) == 1)
        except BaseException:
            self.close()
            raise
        if not self._captures and not self._streams and not any(p.damage for p in self.problems):
            raise InputError("holds no capture", ", ".join(map(str, paths)), "name a capture file or a folder of them")

    @property
    def bytes_read(self) -> int:
        """Bytes of the captures on disk that were used so far, for progress against `total_bytes`."""
        return sum(reader.consumed for reader in self._readers)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Generator[FrameBatch]:
        return self._batches

    def close(self) -> None:
        """Let go of every capture. Batches that were given out stay valid."""
        self._batches.close()
        self._close_readers()

    def _close_readers(self) -> None:
        for reader in self._readers:
            reader.close()
        self._captures.clear()

    def _expand(self, path: str) -> list[tuple[str, bool]]:
        """The captures that an argument names, and whether it names them by themselves."""
        if path in (STANDARD_INPUT, "") or not Path(path).is_dir():
            return [(path, True)]
        try:
            entries = sorted(entry for entry in Path(path).iterdir() if not entry.name.startswith("."))
        except OSError as error:
            raise InputError(f"can't be listed: {error.strerror}", path, "name a folder that can be read") from None
        found = []
        for entry in entries:
            if entry.is_file():
                found.append((str(entry), False))
            elif not entry.is_dir():
                self._notice(str(entry), "not a file: skipped")
        return found

    def _notice(self, path: str, what: str, *, damage: bool = False) -> None:
        self.problems.append(CaptureProblem(path, 0, what, damage))

    def _add(self, path: str, *, explicit: bool, alone: bool) -> None:
        """Take in one capture: check it, and learn when it starts, unless it is a stream that can be read just once."""
        size = _regular_size(path)
        if size is None:
            if path in self._streams:
                raise InputError("is a stream, and named twice", path, "name it once")
            self._streams.append(path)
            self.total_bytes = None
            return
        try:
            if alone and explicit:
                self._captures.append(_opened(0, _FIRST, self._open(path)))
            else:
                first = _first_timestamp(path)
                self._captures.append(Pending(len(self._captures), first, lambda: self._reopen(path)))
        except NotACaptureError:
            if explicit:
                raise
            self._notice(path, "not a capture: skipped")
            return
        except InputError as error:
            if explicit:
                raise
            self._notice(path, f"{error.what}: skipped", damage=True)
            return
        if self.total_bytes is not None:
            self.total_bytes += size

    def _open(self, path: str) -> CaptureReader:
        reader = CaptureReader(path, self.problems.append, links=self._links, stop=self._stop)
        self._readers.append(reader)
        return reader

    def _reopen(self, path: str) -> CaptureReader | None:
        """Open a capture that was checked before; one that is gone since is damage, and the rest goes on."""
        try:
            return self._open(path)
        except InputError as error:
            self._notice(path, error.what, damage=True)
            return None

    def _iterate(self) -> Generator[FrameBatch]:
        captures = list(self._captures)
        for path in self._streams:
            reader = self._open(path)
            first = reader.peek_timestamp() if len(captures) + len(self._streams) > 1 else None
            captures.append(_opened(len(captures), _FIRST if first is None else first, reader))
        try:
            for batch in self._in_order(captures):
                numbered = attrs.evolve(batch, first=self.frames_read)
                self.frames_read += len(batch)
                yield numbered
        finally:
            self._close_readers()

    def _in_order(self, captures: Sequence[Pending]) -> Generator[FrameBatch]:
        if len(captures) > 1:
            yield from merge(captures, self._batch_frames, BATCH_BYTES)
            return
        for capture in captures:
            reader = capture.open()
            while reader is not None and (batch := reader.read(self._batch_frames, BATCH_BYTES)) is not None:
                yield batch


def open_captures(
    paths: Sequence[str | Path], *, batch_frames: int = BATCH_FRAMES, stop: Callable[[], bool] | None = None
) -> CaptureSource:
    """Open captures for reading in time order.

    `paths` are capture files (pcap or pcapng, plain or compressed with gzip or zstd), folders (every capture in them,
    not in folders below), pipes, and "-" for standard input. Each batch has at most `batch_frames` frames.

    Where `stop` turns true while a pipe keeps a reader waiting, that pipe ends there, without damage.

    Raises `InputError` for a path that is missing, can't be read, or is no capture. Streams are opened, and so judged,
    when reading starts.
    """
    if isinstance(paths, str | Path):
        paths = [paths]
    if not paths:
        raise InputError("no capture given", "", "name capture files, folders, or - for standard input")
    if batch_frames < 1:
        raise ValueError(f"batch_frames is {batch_frames}, less than 1")
    return CaptureSource(paths, batch_frames, stop)


def _opened(order: int, first: int, reader: CaptureReader) -> Pending:
    return Pending(order, first, lambda: reader)


def _regular_size(path: str) -> int | None:
    """A regular file's size in bytes; None for streams."""
    if not path:
        raise InputError("a capture's name is empty", "", "name a capture file or a folder of them")
    if path == STANDARD_INPUT:
        return None
    try:
        status = Path(path).stat()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"can't be opened: {reason}", path, "name a capture file or a folder of them") from None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def _first_timestamp(path: str) -> int:
    """When a capture starts; before everything else where it has no frame. Its problems are met again later."""
    reader = CaptureReader(path, lambda problem: None, chunk=_PEEK)
    try:
        first = reader.peek_timestamp()
    finally:
        reader.close()
    return _FIRST if first is None else first
