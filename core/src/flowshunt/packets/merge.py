"""Several captures as one, in time order: one after the other where they don't overlap, merged where they do.

Each capture keeps its own frame order, even where its timestamps go backwards: what counts is the latest timestamp that
it has had so far. Frames of the same time come in the order in which the captures were given.
"""

from collections.abc import Callable, Iterator, Sequence

import attrs
import numpy as np
from numpy.typing import NDArray

from flowshunt.packets.batch import FrameBatch
from flowshunt.packets.reader import CaptureReader

LEAST_SPAN = 1 << 20


@attrs.frozen
class Pending:
    """A capture that waits for its time: its place among the captures given, its first timestamp, how to open it."""

    order: int
    first: int
    open: Callable[[], CaptureReader | None]

    @property
    def rank(self) -> tuple[int, int]:
        """Captures are opened, and frames of the same time given, by this."""
        return self.first, self.order


class _Run:
    """A capture that is open, and those of its frames that have not been given out."""

    def __init__(self, order: int, reader: CaptureReader) -> None:
        self.order = order
        self.reader = reader
        self.batch: FrameBatch | None = None
        self.time: NDArray[np.int64] = np.empty(0, np.int64)
        self._latest = np.iinfo(np.int64).min

    def load(self, frames: int, span: int) -> bool:
        """Have frames at hand; False where there are no more."""
        if self.batch is None:
            self.batch = self.reader.read(frames, span)
            if self.batch is None:
                return False
            self.time = np.maximum(np.maximum.accumulate(self.batch.timestamp), self._latest)
            self._latest = int(self.time[-1])
        return True

    @property
    def rank(self) -> tuple[int, int]:
        """Where the last frame at hand stands in the order of all frames."""
        return int(self.time[-1]), self.order

    def before(self, rank: tuple[int, int], *, inclusive: bool) -> int:
        """How many of the frames at hand stand before `rank`."""
        time, order = rank
        same = self.order < order or (inclusive and self.order == order)
        return int(np.searchsorted(self.time, time, side="right" if same else "left"))

    def take(self, count: int) -> tuple[FrameBatch, NDArray[np.int64]]:
        """The first `count` of the frames at hand, and their places in time."""
        assert self.batch is not None
        taken = self.batch.select(slice(0, count)), self.time[:count]
        rest = len(self.batch) - count
        self.batch, self.time = (self.batch.select(slice(count, None)) if rest else None), self.time[count:]
        return taken


def merge(captures: Sequence[Pending], batch_frames: int, batch_bytes: int) -> Iterator[FrameBatch]:
    """All frames of the captures in time order, in batches of at most `batch_frames` frames."""
    pending = sorted(captures, key=lambda capture: capture.rank, reverse=True)
    runs: list[_Run] = []
    while runs or pending:
        if not runs:
            _open_next(pending, runs)
        frames = max(1, batch_frames // max(1, len(runs)))
        span = max(LEAST_SPAN, batch_bytes // max(1, len(runs)))
        runs = [run for run in runs if run.load(frames, span)]
        if not runs:
            continue
        bound, inclusive = min(run.rank for run in runs), True
        if pending and pending[-1].rank < bound:
            bound, inclusive = pending[-1].rank, False
        counts = [run.before(bound, inclusive=inclusive) for run in runs]
        parts = [run.take(count) for run, count in zip(runs, counts, strict=True) if count]
        if not parts:
            _open_next(pending, runs)
        elif len(parts) == 1:
            yield from _pieces(parts[0][0], batch_frames)
        else:
            yield from _interleave(parts, batch_frames)


def _open_next(pending: list[Pending], runs: list[_Run]) -> None:
    capture = pending.pop()
    reader = capture.open()
    if reader is not None:
        runs.append(_Run(capture.order, reader))
        runs.sort(key=lambda run: run.order)


def _pieces(batch: FrameBatch, batch_frames: int) -> Iterator[FrameBatch]:
    if len(batch) <= batch_frames:
        yield batch
        return
    for start in range(0, len(batch), batch_frames):
        yield batch.select(slice(start, start + batch_frames))


def _interleave(parts: Sequence[tuple[FrameBatch, NDArray[np.int64]]], batch_frames: int) -> Iterator[FrameBatch]:
    """Frames of several captures in order of time, copied into one buffer a batch. `parts` come by capture order."""
    from flowshunt.packets.copying import copy_frames

    batches = [batch for batch, _ in parts]
    order = np.argsort(np.concatenate([time for _, time in parts]), kind="stable")
    captured = np.concatenate([batch.captured for batch in batches])
    wire = np.concatenate([batch.wire for batch in batches])
    timestamp = np.concatenate([batch.timestamp for batch in batches])
    port = np.concatenate([batch.port for batch in batches])
    link = np.concatenate([batch.link for batch in batches])
    part = np.repeat(np.arange(len(batches)), [len(batch) for batch in batches])
    row = np.concatenate([np.arange(len(batch)) for batch in batches])
    for start in range(0, len(order), batch_frames):
        chosen = order[start : start + batch_frames]
        ends = np.cumsum(captured[chosen], dtype=np.int64)
        offset = ends - captured[chosen]
        data = np.empty(int(ends[-1]), np.uint8)
        for index, batch in enumerate(batches):
            here = np.flatnonzero(part[chosen] == index)
            rows = row[chosen[here]]
            copy_frames(batch.data, batch.offset[rows], batch.captured[rows], data, offset[here])
        data.flags.writeable = False
        yield FrameBatch(data, offset, captured[chosen], wire[chosen], timestamp[chosen], port[chosen], link[chosen])
