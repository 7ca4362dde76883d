"""What a run found and cost, as plain numbers that add up and merge."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from flowshunt.engine import RuleProblem, Signature
from flowshunt.pipeline.mode import BypassMode


@attrs.frozen
class Amount:
    """Frames, and their bytes on the wire."""

    frames: int = 0
    bytes: int = 0

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(self.frames + other.frames, self.bytes + other.bytes)


@attrs.frozen
class HostTime:
    """CPU time of the host in ns, by stage. What the NIC does is not in it.

    Attributes:
        receive: copying frames into the packet ring; 0 where the card writes into the application's memory.
        decode: reading headers; 0 where the card hands its layer offsets over.
        flows: finding each frame's flow, counting, ageing.
        inspect: the engine.
        offload: asking the card to learn flows, taking its records in.
        output: writing alerts and flow records.
    """

    receive: int = 0
    decode: int = 0
    flows: int = 0
    inspect: int = 0
    offload: int = 0
    output: int = 0

    @property
    def total(self) -> int:
        """All stages."""
        return self.receive + self.decode + self.flows + self.inspect + self.offload + self.output

    def __add__(self, other: "HostTime") -> "HostTime":
        return HostTime(*(a + b for a, b in zip(attrs.astuple(self), attrs.astuple(other), strict=True)))


@attrs.frozen
class RunResult:
    """One run. `total == inspected + dropped + bypassed_host + bypassed_nic`, to the frame and to the byte.

    Attributes:
        total: what came in.
        delivered: what reached a host buffer.
        inspected: what the engine looked at and let pass.
        dropped: what a rule dropped.
        bypassed_host: frames of bypassed flows that reached the host (software bypass, and those already under way
            when the card learned their flow).
        bypassed_nic: what the card acted on alone, or delivered by a flow's action.
        by_action: all bypassed frames by the action that their flow has.
        host_time: see HostTime.
        nic_ns: CPU time that this machine took to play the NIC.
        host_buffers: per host buffer, what was delivered.
        flows: flows seen; flows_bypassed: by whom; flows_ended: by reason.
        nic_flows: asked, learned, refused (by cause).
        alerts: how often each signature alerted; alert_flows: the same by (gid, sid, flow).
        loaded_rules, skipped_rules: of the engine; engine_counters: whatever else it counted.
        problems: what was wrong with the captures; warnings: what else is worth a line.
        signal: the number of the signal that ended the run before the captures did; 0: none.
    """

    mode: BypassMode
    nic: str
    engine: str
    total: Amount
    delivered: Amount
    inspected: Amount
    dropped: Amount
    bypassed_host: Amount
    bypassed_nic: Amount
    by_action: Mapping[str, Amount]
    host_time: HostTime
    nic_ns: int
    host_buffers: Sequence[Amount]
    flows: int
    flows_bypassed: Mapping[str, int]
    flows_ended: Mapping[str, int]
    flows_overflow: int
    nic_flows: Mapping[str, int]
    alerts: Mapping[Signature, int]
    alert_flows: Mapping[tuple[int, int, str], int]
    loaded_rules: int = 0
    skipped_rules: Sequence[RuleProblem] = ()
    engine_counters: Mapping[str, int] = attrs.field(factory=dict)
    problems: Sequence[str] = ()
    warnings: Sequence[str] = ()
    signal: int = 0

    @property
    def bypassed(self) -> Amount:
        """All that was bypassed, on the card or in the host."""
        return self.bypassed_host + self.bypassed_nic

    @property
    def interrupted(self) -> bool:
        """Whether the run ended before the captures did."""
        return self.signal != 0

    @property
    def host_ns_per_frame(self) -> float:
        """Host CPU time in ns for each frame that came in."""
        return self.host_time.total / self.total.frames if self.total.frames else 0.0

    @property
    def complete(self) -> bool:
        """Whether every capture was read whole."""
        return not self.problems and not self.interrupted


def _sum_maps(left: Mapping[Any, int], right: Mapping[Any, int]) -> dict[Any, int]:
    return dict(Counter(dict(left)) + Counter(dict(right)))


def merge(left: RunResult, right: RunResult) -> RunResult:
    """One result for two partitions of the same run."""
    pairs = zip(left.host_buffers, right.host_buffers, strict=True)
    actions = {*left.by_action, *right.by_action}
    return attrs.evolve(
        left,
        total=left.total + right.total,
        delivered=left.delivered + right.delivered,
        inspected=left.inspected + right.inspected,
        dropped=left.dropped + right.dropped,
        bypassed_host=left.bypassed_host + right.bypassed_host,
        bypassed_nic=left.bypassed_nic + right.bypassed_nic,
        by_action={a: left.by_action.get(a, Amount()) + right.by_action.get(a, Amount()) for a in sorted(actions)},
        host_time=left.host_time + right.host_time,
        nic_ns=left.nic_ns + right.nic_ns,
        host_buffers=tuple(a + b for a, b in pairs),
        flows=left.flows + right.flows,
        flows_bypassed=_sum_maps(left.flows_bypassed, right.flows_bypassed),
        flows_ended=_sum_maps(left.flows_ended, right.flows_ended),
        flows_overflow=left.flows_overflow + right.flows_overflow,
        nic_flows=_sum_maps(left.nic_flows, right.nic_flows),
        alerts=_sum_maps(left.alerts, right.alerts),
        alert_flows=_sum_maps(left.alert_flows, right.alert_flows),
        engine_counters=_sum_maps(left.engine_counters, right.engine_counters),
        problems=(*left.problems, *right.problems),
        warnings=tuple(dict.fromkeys((*left.warnings, *right.warnings))),
        signal=left.signal or right.signal,
    )
