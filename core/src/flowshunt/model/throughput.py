"""The lossless throughput of a test bed in a bypass mode, by a search over the offered rate, and what its cores do."""

from collections.abc import Iterator, Sequence

import attrs
import numpy as np

from flowshunt.model.bed import PARAMETERS, Card, TestBed
from flowshunt.model.spread import Spread, spread
from flowshunt.pipeline.mode import BypassMode
from flowshunt.pipeline.throughput import WIRE_OVERHEAD

FRAMES = 60_000
"""Frames that each buffer sees in one simulation, in the mean."""
LOSSLESS = 1e-5
"""A share of lost frames that counts as none: less than one in 100,000."""
_STEPS = 14


@attrs.frozen
class Load:
    """What a rate does to the host.

    Attributes:
        gbps: the offered rate, in Gbit/s of frames.
        loss: the share of frames that are lost.
        cores: each core's utilisation, 0 to 1, busiest first.
    """

    gbps: float
    loss: float
    cores: tuple[float, ...]

    @property
    def full(self) -> int:
        """Cores that are busy for at least 95 % of the time."""
        return sum(core >= 0.95 for core in self.cores)


@attrs.frozen
class Estimate:
    """The greatest rate without loss, and the load there."""

    mode: BypassMode
    load: Load
    line_limited: bool

    @property
    def gbps(self) -> float:
        """Lossless throughput in Gbit/s of frames."""
        return self.load.gbps


def line_limit(bed: TestBed, card: Card) -> float:
    """What a card's ports carry, in Gbit/s of frames: preamble, gap and check sequence take the rest."""
    return card.line_rate * bed.traffic.frame_bytes / (bed.traffic.frame_bytes + WIRE_OVERHEAD)


def offered(bed: TestBed, mode: BypassMode, gbps: float, spread_: Spread, seed: int = 1) -> Load:
    """Simulate a rate."""
    from flowshunt.model.simulation import serve

    card, host, traffic = bed.cards[mode], bed.host, bed.traffic
    rate = gbps / (8 * traffic.frame_bytes)  # frames per ns
    on_card = card.flow_table and mode is BypassMode.HARDWARE
    copy = 0.0 if card.zero_copy else host.copy_ns
    inspect, skip = host.inspect_ns + copy, host.skip_ns + copy
    if mode is BypassMode.OFF:
        skip = inspect
    line_gap = 8 * (traffic.frame_bytes + WIRE_OVERHEAD) / card.line_rate
    delivered = spread_.inspected if on_card else spread_.inspected + spread_.bypassed
    inspected = spread_.inspected
    lost = frames = 0.0
    cores = []
    out = np.zeros(3)
    for core in range(host.cores):
        share = float(delivered[core])
        if share * rate <= 0:
            cores.append(0.0)
            continue
        factor = 1.0 if card.local or core % host.nodes == 0 else host.remote_factor
        count = max(1000, int(FRAMES * share * host.cores / float(delivered.sum())))
        part = 1.0 if on_card else float(inspected[core]) / share
        room = card.buffer_bytes / traffic.frame_bytes
        serve(
            seed * 1009 + core, count, 1 / (share * rate), line_gap, traffic.burst_frames, inspect * factor,
            skip * factor, part, host.jitter, min(room, count / 8), out,
        )  # fmt: skip
        lost += out[0] * share / count
        frames += share
        cores.append(min(1.0, out[1] / out[2]))
    return Load(gbps, lost / frames if frames else 0.0, tuple(sorted(map(float, cores), reverse=True)))


def estimate(bed: TestBed, mode: BypassMode, *, spread_: Spread | None = None, seed: int = 1) -> Estimate:
    """Search for the greatest rate without loss, up to what the card's ports carry."""
    shares = spread_ if spread_ is not None else spread(bed.traffic, bed.host.cores, seed)
    limit = line_limit(bed, bed.cards[mode])
    at_limit = offered(bed, mode, limit, shares, seed)
    if at_limit.loss < LOSSLESS:
        return Estimate(mode, at_limit, True)
    low, high = 0.0, limit
    best = offered(bed, mode, limit / 1024, shares, seed)
    for _ in range(_STEPS):
        middle = (low + high) / 2
        load = offered(bed, mode, middle, shares, seed)
        if load.loss < LOSSLESS:
            low, best = middle, load
        else:
            high = middle
    return Estimate(mode, best, False)


def sweep(
    bed: TestBed, parameter: str, values: Sequence[float], seed: int = 1
) -> Iterator[tuple[float, list[Estimate]]]:
    """Estimates of all modes for each value of a parameter, such as "traffic.bypass_share"."""
    for value in values:
        whole = parameter in ("host.cores", "traffic.flows")
        changed = bed.with_value(parameter, int(value) if whole else value)
        shares = spread(changed.traffic, changed.host.cores, seed)
        yield value, [estimate(changed, mode, spread_=shares, seed=seed) for mode in changed.cards]


def sensitivity(bed: TestBed, change: float = 0.1, seed: int = 1) -> Iterator[tuple[str, float, list[Estimate]]]:
    """Estimates with each parameter raised and lowered by a share of its value."""
    for parameter in PARAMETERS:
        part, _, name = parameter.partition(".")
        value = getattr(getattr(bed, part), name)
        for factor in (1 - change, 1 + change):
            changed = type(value)(round(value * factor)) if isinstance(value, int) else value * factor
            for _, estimates in sweep(bed, parameter, (changed,), seed):
                yield parameter, factor - 1, estimates
