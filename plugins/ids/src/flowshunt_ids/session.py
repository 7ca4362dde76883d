"""A session: whole datagrams made of fragments, outer packets of tunnels, and the stages for all of them."""

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from flowshunt.engine import Alert, EngineSummary, InspectionBatch, Verdicts
from flowshunt.packets.decode import decode
from flowshunt.packets.headers import TUNNEL_IP4_IN_IP4
from flowshunt.rows import join_rows, take_rows
from flowshunt_ids.fragments import Defragmenter, Reassembled, extended
from flowshunt_ids.host_policies import HostPolicies
from flowshunt_ids.layout import EVENT
from flowshunt_ids.ruleset import RuleSet
from flowshunt_ids.shares import unshared
from flowshunt_ids.stages import Stages
from flowshunt_ids.tracking import special_packets
from flowshunt_ids.tunnels import OuterFlows

_FRAGMENT_HEADER = 44
_NONE_ENDED = np.empty(0, np.int32)


class Session:
    """One run of the engine. Fulfils `flowshunt.engine.EngineSession`."""

    def __init__(self, rule_set: RuleSet, flow_capacity: int, *, workers: int = 1) -> None:
        """workers: how many sessions share the frames of the run."""
        self._set = rule_set
        self._stages = Stages(rule_set, flow_capacity)
        self._unshared = unshared(rule_set.loaded.rules) if workers > 1 else ()
        self._stages.share_limits(workers > 1 and not self._unshared)
        settings = rule_set.settings
        self._defragmenter = Defragmenter(
            settings.defrag_memory,
            HostPolicies(settings.host_policies).for_fragments,
            timeout=settings.defrag_timeout * 1_000_000_000,
        )
        self._outer = OuterFlows()
        self.flow_timeouts = settings.timeouts()

    def inspect(self, batch: InspectionBatch) -> Verdicts:
        """See `flowshunt.engine.EngineSession.inspect`."""
        rows = np.empty(len(batch), np.int64)
        fragments, tunnelled = special_packets(np.ascontiguousarray(batch.headers), rows)
        if tunnelled:
            batch = _without_ip_in_ip(batch)
        if fragments:
            verdicts = self._with_datagrams(batch, rows[:fragments])
        else:
            verdicts = self._stages.run(batch, opening=batch)
        if not tunnelled:
            return verdicts
        alerts = [*verdicts.alerts, *self._outer_packets(batch, np.flatnonzero(batch.headers["depth"]))]
        return attrs.evolve(verdicts, alerts=sorted(alerts, key=lambda alert: alert.row))

    def close(self, flows: NDArray[Any], ended: NDArray[np.int32]) -> Verdicts:
        """See `flowshunt.engine.EngineSession.close`."""
        return self._stages.finish(flows, ended)

    def summary(self) -> EngineSummary:
        """See `flowshunt.engine.EngineSession.summary`."""
        loaded = self._set.loaded
        counters = {
            **self._stages.counters(),
            "defrag.completed": self._defragmenter.completed,
            "defrag.given_up": self._defragmenter.given_up,
            "defrag.memory": self._defragmenter.used,
        }
        return EngineSummary(len(loaded.rules), loaded.problems, loaded.warnings, counters, self._unshared)

    def _with_datagrams(self, batch: InspectionBatch, at: NDArray[np.int64]) -> Verdicts:
        """Run a batch with its fragments (rows `at`) as packets of no flow, and after each that completes a datagram,
        that datagram. What is found in a datagram is told of the fragment that completed it."""
        places = batch.slot[at]
        flows = np.where(places >= 0, batch.flows["id"][places], np.uint64(0))
        wholes = self._defragmenter.add(batch.frames, at, take_rows(batch.headers, at), places, flows)
        count = len(batch)
        frames, datagrams = extended(batch.frames, [row for row, _ in wholes], [whole.packet for _, whole in wholes])
        headers = join_rows([batch.headers, decode(datagrams, depth=0)])
        headers["l4"][at] = 0
        # As in Suricata, a fragment of IPv6 is a packet of the fragment header's own protocol.
        headers["protocol"][at[headers["ip_version"][at] == 6]] = _FRAGMENT_HEADER
        headers["payload_length"][at] = 0
        rows = np.array([row for row, _ in wholes], np.int64)
        slot = np.concatenate([batch.slot, np.array([_slot(batch, whole) for _, whole in wholes], np.int32)])
        slot[at] = -1
        verdicts = self._stages.run(
            attrs.evolve(
                batch,
                frames=frames,
                headers=headers,
                slot=slot,
                direction=np.concatenate([batch.direction, batch.direction[rows]]),
                events=np.zeros(len(slot), np.uint8),
                ended=_NONE_ENDED,
            ),
            opening=batch,
            extra=datagrams.data,
            order=_order(count, rows),
            owned=(at, places),
            noted=np.array(self._defragmenter.events, EVENT),
        )
        disposition = verdicts.disposition[:count]
        np.maximum.at(disposition, rows, verdicts.disposition[count:])
        alerts = [attrs.evolve(a, row=int(rows[a.row - count])) if a.row >= count else a for a in verdicts.alerts]
        return attrs.evolve(verdicts, alerts=alerts, disposition=disposition)

    def _outer_packets(self, batch: InspectionBatch, rows: NDArray[np.int64]) -> Sequence[Alert]:
        """The alerts on the outermost packets of tunnelled frames, by their headers."""
        frames = batch.frames.select(rows)
        headers = decode(frames, depth=0)
        headers["payload_length"] = 0
        outer = attrs.evolve(
            batch,
            frames=frames,
            headers=headers,
            slot=np.full(len(rows), -1, np.int32),
            direction=np.zeros(len(rows), np.uint8),
            events=np.zeros(len(rows), np.uint8),
            ended=_NONE_ENDED,
        )
        verdicts = self._stages.run(outer, repeated=self._outer.is_repeated(frames, headers))
        return [attrs.evolve(alert, row=int(rows[alert.row])) for alert in verdicts.alerts]


def _without_ip_in_ip(batch: InspectionBatch) -> InspectionBatch:
    """The batch without packets that came right in IPv4 packets: as in Suricata, only what is around them counts."""
    inside = batch.headers["tunnel"] == TUNNEL_IP4_IN_IP4
    if not inside.any():
        return batch
    headers, slot = batch.headers.copy(), batch.slot.copy()
    for field in ("ip_version", "l4", "payload_length", "flags"):
        headers[field][inside] = 0
    slot[inside] = -1
    return attrs.evolve(batch, headers=headers, slot=slot)


def _order(count: int, rows: NDArray[np.int64]) -> NDArray[np.int32]:
    """The rows of `count` packets and of datagrams behind them, each after its packet in `rows` (ascending)."""
    total = count + len(rows)
    numbers = np.arange(total, dtype=np.int32)
    places = rows + numbers[1 : len(rows) + 1]
    packets = np.ones(total, np.bool_)
    packets[places] = False
    order = np.empty(total, np.int32)
    order[places] = numbers[count:]
    order[packets] = numbers[:count]
    return order


def _slot(batch: InspectionBatch, whole: Reassembled) -> int:
    """The flow of a datagram's first fragment, where it is still there."""
    return whole.slot if whole.slot >= 0 and int(batch.flows["id"][whole.slot]) == whole.flow else -1
