"""A session: whole datagrams made of fragments, outer packets of tunnels, and the stages for all of them."""

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from flowshunt.engine import Alert, EngineSummary, InspectionBatch, Verdicts
from flowshunt.packets.decode import decode
from flowshunt.packets.headers import FRAGMENT
from flowshunt_ids.fragments import Defragmenter, Reassembled, packet_batch
from flowshunt_ids.ruleset import RuleSet
from flowshunt_ids.stages import Stages
from flowshunt_ids.tunnels import OuterFlows

_NONE_ENDED = np.empty(0, np.int32)


class Session:
    """One run of the engine. Fulfils `flowshunt.engine.EngineSession`."""

    def __init__(self, rule_set: RuleSet, flow_capacity: int) -> None:
        self._set = rule_set
        self._stages = Stages(rule_set, flow_capacity)
        self._defragmenter = Defragmenter(rule_set.settings.defrag_memory)
        self._outer = OuterFlows()
        self._closed = False

    def inspect(self, batch: InspectionBatch) -> Verdicts:
        """See `flowshunt.engine.EngineSession.inspect`."""
        stages = self._stages
        ended = stages.finish(batch.flows, batch.ended) if len(batch.ended) else None
        stages.open(batch)
        fragments = (batch.headers["flags"] & FRAGMENT) != 0
        tunnelled = np.flatnonzero(batch.headers["depth"])
        parts = self._with_fragments(batch, fragments) if fragments.any() else [(0, stages.run(batch))]
        alerts = list(ended.alerts) if ended is not None else []
        if len(parts) == 1 and not alerts and not len(tunnelled):
            return parts[0][1]
        found = [_moved(alert, first) for first, verdicts in parts for alert in verdicts.alerts]
        if len(tunnelled):
            found.extend(self._outer_packets(batch, tunnelled))
            found.sort(key=lambda alert: alert.row)
        return _merged([*alerts, *found], [verdicts for _first, verdicts in parts], len(batch))

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
        return EngineSummary(len(loaded.rules), loaded.problems, loaded.warnings, counters)

    def _with_fragments(self, batch: InspectionBatch, fragments: NDArray[np.bool_]) -> list[tuple[int, Verdicts]]:
        """Run a batch in parts: up to each fragment that completes a datagram, then the datagram. Gives for each part
        the row that its first row stands for; a datagram stands for the fragment that completed it."""
        parts: list[tuple[int, Verdicts]] = []
        begin = 0
        for row in np.flatnonzero(fragments).tolist():
            slot = int(batch.slot[row])
            flow = int(batch.flows["id"][slot]) if slot >= 0 else 0
            whole = self._defragmenter.add(batch.frames, row, batch.headers[row], slot, flow)
            if whole is None:
                continue
            parts.append((begin, self._part(batch, fragments, begin, row + 1)))
            parts.append((row, self._datagram(batch, row, whole)))
            begin = row + 1
        parts.append((begin, self._part(batch, fragments, begin, len(batch))))
        return parts

    def _part(self, batch: InspectionBatch, fragments: NDArray[np.bool_], begin: int, end: int) -> Verdicts:
        rows = slice(begin, end)
        slot = batch.slot[rows]
        alone = fragments[rows]
        headers = batch.headers[rows].copy()
        headers["l4"][alone] = 0
        headers["payload_length"][alone] = 0
        part = attrs.evolve(
            batch,
            frames=batch.frames.select(rows),
            headers=headers,
            slot=np.where(alone, np.int32(-1), slot),
            direction=batch.direction[rows],
            events=batch.events[rows],
            ended=_NONE_ENDED,
        )
        return self._stages.run(part, owner=np.where(alone, slot, np.int32(-1)))

    def _datagram(self, batch: InspectionBatch, row: int, whole: Reassembled) -> Verdicts:
        frames = packet_batch(whole.packet, int(batch.frames.timestamp[row]), int(batch.frames.port[row]))
        known = whole.slot >= 0 and int(batch.flows["id"][whole.slot]) == whole.flow
        single = attrs.evolve(
            batch,
            frames=frames,
            headers=decode(frames, depth=0),
            slot=np.array([whole.slot if known else -1], np.int32),
            direction=batch.direction[row : row + 1],
            events=np.zeros(1, np.uint8),
            ended=_NONE_ENDED,
        )
        return self._stages.run(single)

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


def _moved(alert: Alert, first: int) -> Alert:
    return attrs.evolve(alert, row=alert.row + first) if first else alert


def _merged(alerts: list[Alert], parts: Sequence[Verdicts], rows: int) -> Verdicts:
    """One answer out of those to the parts of a batch. The parts of `rows` rows are in order; those of one row that
    are datagrams come after the row that they stand for."""
    disposition = np.zeros(rows, np.uint8)
    at = 0
    for number, verdicts in enumerate(parts):
        if number % 2:
            disposition[at - 1] = max(disposition[at - 1], verdicts.disposition[0])
        else:
            disposition[at : at + len(verdicts.disposition)] = verdicts.disposition
            at += len(verdicts.disposition)
    slots = np.concatenate([verdicts.bypass_slot for verdicts in parts])
    requests = np.concatenate([verdicts.bypass_request for verdicts in parts])
    _values, first = np.unique(slots, return_index=True)
    first.sort()
    return Verdicts(alerts, disposition, slots[first], requests[first], parts[-1].requests)
