"""Bypass off, in software and in hardware on the same captures: what it saves, and which alerts it costs."""

import signal
from collections.abc import Callable, Mapping, Sequence
from statistics import median

import attrs

from flowshunt.engine import Signature
from flowshunt.errors import Terminated
from flowshunt.nic import NicModel
from flowshunt.pipeline.host import Sink
from flowshunt.pipeline.mode import BypassMode
from flowshunt.pipeline.result import RunResult
from flowshunt.pipeline.run import RunConfig, run
from flowshunt.pipeline.throughput import Throughput, implied_throughput


@attrs.frozen
class AlertChange:
    """A signature that alerts more or less often than without bypass, and in which flows."""

    signature: Signature
    count: int
    flows: Sequence[tuple[str, int]]


@attrs.frozen
class ModeFigures:
    """One mode beside the others. Ratios are to no bypass; `host_ns_per_frame` is the median over the rounds."""

    result: RunResult
    host_ns_per_frame: float
    cost_ratio: float
    throughput: Throughput
    lost: Sequence[AlertChange]
    gained: Sequence[AlertChange]


@attrs.frozen
class Comparison:
    """Three modes side by side.

    Attributes:
        captures: what was run.
        rounds: how often each mode ran, in turn.
        modes: by mode, in the order off, software, hardware; modes that an interruption left out are missing.
        signal: the number of the signal that ended the comparison early; 0: none.
    """

    captures: tuple[str, ...]
    rounds: int
    modes: Mapping[BypassMode, ModeFigures]
    signal: int = 0

    @property
    def hardware_to_software(self) -> float | None:
        """Host cost per frame of hardware bypass over that of software bypass."""
        hardware = self.modes.get(BypassMode.HARDWARE)
        software = self.modes.get(BypassMode.SOFTWARE)
        if hardware is None or software is None or not software.host_ns_per_frame:
            return None
        return hardware.host_ns_per_frame / software.host_ns_per_frame

    @property
    def complete(self) -> bool:
        """Whether every mode ran over every capture, whole."""
        return (
            not self.signal
            and len(self.modes) == len(BypassMode)
            and all(m.result.complete for m in self.modes.values())
        )


def _changes(
    more: Mapping[tuple[int, int, str], int],
    less: Mapping[tuple[int, int, str], int],
    signatures: Mapping[tuple[int, int], Signature],
) -> list[AlertChange]:
    """Alerts of `more` that `less` lacks, by signature."""
    by_signature: dict[tuple[int, int], list[tuple[str, int]]] = {}
    for (gid, sid, flow), count in more.items():
        missing = count - less.get((gid, sid, flow), 0)
        if missing > 0:
            by_signature.setdefault((gid, sid), []).append((flow, missing))
    return [
        AlertChange(signatures[key], sum(count for _, count in flows), sorted(flows))
        for key, flows in sorted(by_signature.items())
    ]


def compare(
    config: RunConfig,
    software_model: NicModel,
    *,
    cores: int,
    rounds: int = 1,
    sinks: Mapping[BypassMode, Sink] | None = None,
    progress: Callable[[BypassMode, int, int, int | None], None] | None = None,
) -> Comparison:
    """Run each mode `rounds` times in turn. `config.mode` is passed over.

    config.model is the NIC of hardware bypass; software_model is that of the two modes that need no flow table.
    Events go to `sinks` in the first round. `progress` is called with mode, round, bytes read, bytes in all.
    """
    results: dict[BypassMode, list[RunResult]] = {}
    ended_by = 0
    for number in range(rounds):
        for mode in BypassMode:
            model = config.model if mode is BypassMode.HARDWARE else software_model
            sink = (sinks or {}).get(mode) if number == 0 else None

            def told(done: int, total: int | None, mode: BypassMode = mode, number: int = number) -> None:
                if progress is not None:
                    progress(mode, number, done, total)

            try:
                result = run(attrs.evolve(config, mode=mode, model=model), sink, told)
            except KeyboardInterrupt as stopped:  # while a mode gets ready; what the modes before found stays
                if not results:
                    raise
                ended_by = signal.SIGTERM if isinstance(stopped, Terminated) else signal.SIGINT
                break
            results.setdefault(mode, []).append(result)
            ended_by = result.signal
            if ended_by:
                break
        if ended_by:
            break
    return attrs.evolve(_comparison(config, software_model, cores, rounds, results), signal=int(ended_by))


def _comparison(
    config: RunConfig,
    software_model: NicModel,
    cores: int,
    rounds: int,
    results: Mapping[BypassMode, Sequence[RunResult]],
) -> Comparison:
    base = results[BypassMode.OFF][0]
    signatures = {(s.gid, s.sid): s for of_mode in results.values() for r in of_mode for s in r.alerts}
    base_cost = median(r.host_ns_per_frame for r in results[BypassMode.OFF])
    modes = {}
    for mode, of_mode in results.items():
        model = config.model if mode is BypassMode.HARDWARE else software_model
        first = of_mode[0]
        cost = median(r.host_ns_per_frame for r in of_mode)
        typical = min(of_mode, key=lambda r: abs(r.host_ns_per_frame - cost))
        comparable = mode is not BypassMode.OFF and not first.interrupted and not base.interrupted
        modes[mode] = ModeFigures(
            result=first,
            host_ns_per_frame=cost,
            cost_ratio=cost / base_cost if base_cost else 1.0,
            throughput=implied_throughput(typical, model.line_rate, cores),
            lost=_changes(base.alert_flows, first.alert_flows, signatures) if comparable else (),
            gained=_changes(first.alert_flows, base.alert_flows, signatures) if comparable else (),
        )
    return Comparison(config.captures, rounds, modes)
