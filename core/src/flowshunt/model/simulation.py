"""The discrete-event simulation of one host buffer and the core that serves it, in compiled code."""

from typing import Any

import numpy as np
from numba import types

from flowshunt.compiled import column, kernel


@kernel(types.void(types.int64, types.int64, types.float64, types.float64, types.float64, types.float64, types.float64,
                   types.float64, types.float64, types.float64, column(np.float64)))  # fmt: skip
def serve(
    seed: int,
    frames: int,
    gap_ns: float,
    line_gap_ns: float,
    burst: float,
    inspect_ns: float,
    skip_ns: float,
    inspected_share: float,
    jitter: float,
    room: float,
    out: Any,
) -> None:
    """Let frames arrive at a buffer and be served in order; those that find it full are lost.

    Args:
        gap_ns: mean time between frames; bursts of `burst` frames in the mean arrive `line_gap_ns` apart.
        inspect_ns, skip_ns: mean time for a frame that is inspected, and one that is not.
        inspected_share: of the frames, those to inspect.
        jitter: standard deviation of a frame's time over its mean (gamma-like, by a two-point mixture).
        room: frames that the buffer holds.
        out: float64[3]: frames lost, ns that the core worked, ns in all.
    """
    state = np.uint64(seed) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(0x2545F4914F6CDD1D)
    now = 0.0
    free = 0.0
    busy = 0.0
    lost = 0.0
    in_burst = 0
    # A burst's further frames are a rounded-down exponential: their mean is not quite `burst`.
    further = 1.0 / (np.exp(1.0 / burst) - 1.0) if burst > 0.0 else 0.0
    pause = max(line_gap_ns, gap_ns * (1.0 + further) - line_gap_ns * further)
    for _ in range(frames):
        state ^= state << np.uint64(13)
        state ^= state >> np.uint64(7)
        state ^= state << np.uint64(17)
        first = np.float64(state >> np.uint64(11)) / 9007199254740992.0
        state ^= state << np.uint64(13)
        state ^= state >> np.uint64(7)
        state ^= state << np.uint64(17)
        second = np.float64(state >> np.uint64(11)) / 9007199254740992.0
        if in_burst > 0:
            now += line_gap_ns
            in_burst -= 1
        else:
            now += -np.log(1.0 - first) * pause
            in_burst = int(-np.log(1.0 - second) * burst)
        cost = inspect_ns if second < inspected_share else skip_ns
        # Two values around the mean, alike in number, that have the wanted spread.
        cost *= 1.0 + jitter if first < 0.5 else 1.0 - jitter
        waiting = free - now
        mean = inspect_ns * inspected_share + skip_ns * (1.0 - inspected_share)
        if waiting > room * mean:
            lost += 1.0
            continue
        free = (free if waiting > 0.0 else now) + cost
        busy += cost
    out[0] = lost
    out[1] = busy
    out[2] = now
