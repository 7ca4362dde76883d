"""How flows of unequal sizes spread over host buffers."""

import attrs
import numpy as np
from numpy.typing import NDArray

from flowshunt.model.bed import Traffic


@attrs.frozen(eq=False)
class Spread:
    """Each buffer's share of the frames.

    Attributes:
        inspected: float64[buffers], shares of all frames that are to be inspected.
        bypassed: float64[buffers], shares of all frames whose flows are bypassed. Both together add up to 1.
    """

    inspected: NDArray[np.float64]
    bypassed: NDArray[np.float64]


def spread(traffic: Traffic, buffers: int, seed: int) -> Spread:
    """Draw flow sizes from a Pareto distribution and hash each flow to a buffer.

    Which flows are bypassed is drawn, whatever their size, until they carry the share that the traffic says.
    """
    dice = np.random.default_rng(seed)
    sizes = dice.pareto(traffic.skew, traffic.flows) + 1.0
    # One flow carries at most its share; what is cut off is laid on all alike by the division.
    np.minimum(sizes, traffic.largest_share * sizes.sum(), out=sizes)
    sizes /= sizes.sum()
    buffer = dice.integers(0, buffers, traffic.flows)
    order = dice.permutation(traffic.flows)
    bypassed = np.zeros(traffic.flows, np.bool_)
    bypassed[order[np.cumsum(sizes[order]) <= traffic.bypass_share]] = True
    return Spread(
        np.bincount(buffer[~bypassed], sizes[~bypassed], buffers).astype(np.float64),
        np.bincount(buffer[bypassed], sizes[bypassed], buffers).astype(np.float64),
    )


def measured_spread(frames: NDArray[np.int64], bypass_share: float) -> Spread:
    """The spread of traffic that was measured: frames delivered to each host buffer. Raises ValueError for none."""
    total = int(frames.sum())
    if not total:
        raise ValueError("no frame was delivered")
    shares = frames / total
    return Spread(shares * (1 - bypass_share), shares * bypass_share)
