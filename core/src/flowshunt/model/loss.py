"""What packet loss costs: the engine on a capture of which frames are left out, at random or in bursts."""

import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

import attrs
import numpy as np
from numpy.typing import NDArray

from flowshunt.packets.capture import open_captures
from flowshunt.packets.writer import CaptureWriter
from flowshunt.pipeline.result import RunResult
from flowshunt.pipeline.run import RunConfig, run

KINDS: Final = ("random", "burst")
BURST_FRAMES: Final = 50.0
"""Frames that are lost together in the mean, where losses come in bursts: a buffer that ran over for a moment."""


@attrs.frozen
class LossEffect:
    """What one kind and rate of loss did, over several seeds.

    Attributes:
        kind: "random" or "burst".
        rate: of the frames, 0 to 1.
        frames_lost: the mean share that was really left out.
        alerts_lost: for each seed the share of the alerts without loss that are missing.
        payloads_lost: for each seed the share of the payloads that were put together whole without loss and are not
            now; empty where the engine counts none.
    """

    kind: str
    rate: float
    frames_lost: float
    alerts_lost: tuple[float, ...]
    payloads_lost: tuple[float, ...]

    @property
    def alerts(self) -> tuple[float, float]:
        """Mean and standard error of the lost alerts' share."""
        return _mean(self.alerts_lost)

    @property
    def payloads(self) -> tuple[float, float] | None:
        """Mean and standard error of the lost payloads' share; None where none are counted."""
        return _mean(self.payloads_lost) if self.payloads_lost else None


def _mean(values: tuple[float, ...]) -> tuple[float, float]:
    spread = statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0
    return statistics.fmean(values), spread


def effects(
    config: RunConfig,
    rates: tuple[float, ...],
    *,
    seeds: int = 5,
    progress: Callable[[str], None] = lambda text: None,
) -> Iterator[LossEffect]:
    """Run the engine without loss, then with each rate of each kind, several seeds each. Rates from 0 to 1."""
    progress("without loss")
    base = run(config)
    for kind in KINDS:
        for rate in rates:
            alerts, payloads, lost = [], [], []
            for seed in range(seeds):
                progress(f"{kind} loss of {rate:.2%}, seed {seed + 1} of {seeds}")
                with tempfile.TemporaryDirectory(prefix="flowshunt-loss-") as folder:
                    path = Path(folder) / "lossy.pcap"
                    lost.append(_leave_out(config.captures, path, kind, rate, seed))
                    result = run(attrs.evolve(config, captures=(str(path),)))
                alerts.append(_missing(_alerts(base), _alerts(result)))
                whole = _payloads(base)
                if whole:
                    payloads.append(max(0.0, 1 - _payloads(result) / whole))
            yield LossEffect(kind, rate, statistics.fmean(lost), tuple(alerts), tuple(payloads))


def _alerts(result: RunResult) -> Mapping[tuple[int, int, str], int]:
    return result.alert_flows


def _payloads(result: RunResult) -> int:
    return result.engine_counters.get("payloads.whole", 0)


def _missing(base: Mapping[tuple[int, int, str], int], found: Mapping[tuple[int, int, str], int]) -> float:
    """The share of alerts that are missing, by rule and flow."""
    total = sum(base.values())
    return sum(max(0, count - found.get(key, 0)) for key, count in base.items()) / total if total else 0.0


def _leave_out(captures: tuple[str, ...], path: Path, kind: str, rate: float, seed: int) -> float:
    """Write captures without some of their frames; returns the share that was left out."""
    dice = np.random.default_rng(seed * 7919 + KINDS.index(kind))
    total = kept = 0
    carried = 0
    with open_captures(captures) as source, CaptureWriter(path) as writer:
        for batch in source:
            lost, carried = _lost(dice, len(batch), kind, rate, carried)
            rows = np.flatnonzero(~lost)
            total += len(batch)
            kept += len(rows)
            writer.write_batch(batch.select(rows))
    return 1 - kept / total if total else 0.0


def _lost(dice: np.random.Generator, count: int, kind: str, rate: float, carried: int) -> tuple[NDArray[np.bool_], int]:
    """Which frames of a batch are lost, and how many of the next batch still belong to a burst."""
    if kind == "random":
        return dice.random(count) < rate, 0
    lost = np.zeros(count, np.bool_)
    lost[:carried] = True
    left = max(0, carried - count)
    starts = np.flatnonzero(dice.random(count) < rate / BURST_FRAMES)
    for start, length in zip(starts.tolist(), dice.geometric(1 / BURST_FRAMES, len(starts)).tolist(), strict=True):
        lost[start : start + length] = True
        left = max(left, start + length - count)
    return lost, left
