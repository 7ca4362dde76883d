"""How many frames are under way at a time."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from flowshunt.packets.batch import FrameBatch

SMALLEST_BURST = 256
LARGEST_BURST = 32768
"""At 20 million frames a second (100 Gbit/s of mixed sizes) this is 1.6 ms."""

UNKNOWN_SIZE_BURST = 16384

LONGEST = 10_000_000_000
"""The most time in ns that a burst may cover: flows that end while nothing comes have to end before what comes then."""

_BURSTS = 32
_BYTES_PER_FRAME = 500


def default_burst(captures: Sequence[str]) -> int:
    """Frames in a burst where the run doesn't say: about 1/32 of the captures, at least 256, at most 32768.

    A burst is what the card takes in while the host looks at the burst before; a verdict takes effect with the next.
    On a saturated link it holds some 10,000 frames. A small capture gets smaller ones, so that verdicts take effect
    within it.
    """
    total = 0
    for capture in map(Path, captures):
        try:
            files = [capture] if not capture.is_dir() else [entry for entry in capture.iterdir() if entry.is_file()]
            total += sum(file.stat().st_size for file in files if file.is_file())
        except OSError:
            return UNKNOWN_SIZE_BURST
        if not capture.is_dir() and not capture.is_file():
            return UNKNOWN_SIZE_BURST
    return min(max(total // (_BURSTS * _BYTES_PER_FRAME), SMALLEST_BURST), LARGEST_BURST)


def parts_of(batch: FrameBatch) -> Iterator[tuple[int, int]]:
    """Where to part a batch, as (first row, row after the last), so that no burst covers more than LONGEST."""
    times = batch.timestamp
    if not len(batch) or int(times.max()) - int(times[0]) <= LONGEST:
        yield 0, len(batch)
        return
    start, limit = 0, int(times[0]) + LONGEST
    for row, time in enumerate(times.tolist()):
        if time > limit:
            if row > start:
                yield start, row
            start, limit = row, time + LONGEST
    yield start, len(batch)
