"""Captures: files, folders and standard input, read as frame batches in time order."""

import os
import stat
from collections.abc import Generator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import attrs

from flowshunt.errors import InputError
from flowshunt.packets.batch import FrameBatch
from flowshunt.packets.reader import STANDARD_INPUT, CaptureProblem, CaptureReader

__all__ = ["CaptureProblem", "CaptureSource", "open_captures"]

BATCH_FRAMES = 16384
BATCH_BYTES = 24 << 20
"""About how many bytes of a capture one batch covers, so that large frames don't make it large."""


class CaptureSource:
    """Frame batches out of one or more captures. A context manager; iterate it once.

    A batch and the columns in it stay valid as long as they are referred to, but memory stays low only if batches are
    let go.

    Attributes:
        problems: what was found wrong so far; fills while reading.
        total_bytes: size of all captures on disk, or None where one of them is a stream.
        frames_read: frames given out so far.
    """

    def __init__(self, paths: Sequence[str], problems: list[CaptureProblem], batch_frames: int) -> None:
        self.problems = problems
        self.frames_read = 0
        self.total_bytes = _total(paths)
        self._batch_frames = batch_frames
        self._paths = paths
        self._finished_bytes = 0
        self._reader: CaptureReader | None = None
        self._batches = self._iterate()

    @property
    def bytes_read(self) -> int:
        """Bytes of the captures on disk that were used so far, for progress against `total_bytes`."""
        return self._finished_bytes + (self._reader.consumed if self._reader else 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Generator[FrameBatch]:
        return self._batches

    def close(self) -> None:
        """Let go of every capture."""
        self._batches.close()
        if self._reader:
            self._reader.close()

    def _iterate(self) -> Generator[FrameBatch]:
        for path in self._paths:
            self._reader = CaptureReader(path, self.problems.append)
            while (batch := self._reader.read(self._batch_frames, BATCH_BYTES)) is not None:
                batch = attrs.evolve(batch, first=self.frames_read)
                self.frames_read += len(batch)
                yield batch
            self._finished_bytes += self._reader.consumed
            self._reader.close()
            self._reader = None


def open_captures(paths: Sequence[str | Path], *, batch_frames: int = BATCH_FRAMES) -> CaptureSource:
    """Open captures for reading in time order."""
    if not paths:
        raise InputError("no capture given", "", "name capture files, folders, or - for standard input")
    problems: list[CaptureProblem] = []
    return CaptureSource([str(p) for p in paths], problems, batch_frames)


def _total(paths: Sequence[str]) -> int | None:
    total = 0
    for path in paths:
        if path == STANDARD_INPUT:
            return None
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            return None
        total += status.st_size
    return total
