"""The host's side: decode, find flows, skip bypassed ones, inspect, offload. Times each stage with the CPU's clock."""

import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, Protocol

import attrs
import numpy as np
from numpy.typing import NDArray

from flowshunt.engine import (
    DROPPED,
    INSPECTED,
    SKIPPED,
    BypassRequest,
    EngineSession,
    EngineSummary,
    InspectionBatch,
    Signature,
    Verdicts,
)
from flowshunt.errors import ContractError
from flowshunt.flows.record import Bypass, EndReason
from flowshunt.flows.table import Ended, FlowTable
from flowshunt.nic import ALREADY_LEARNED, LEARNED, Nic
from flowshunt.packets.batch import FrameBatch
from flowshunt.packets.decode import decode
from flowshunt.packets.headers import HEADER
from flowshunt.pipeline.alert import AlertRecord, resolve
from flowshunt.pipeline.mode import BypassMode
from flowshunt.pipeline.result import Amount, HostTime


class Sink(Protocol):
    """Where a run's events go."""

    def alerts(self, alerts: Sequence[AlertRecord]) -> None:
        """Alerts, in the order in which their frames came."""

    def flows(self, records: NDArray[Any], actions: Sequence[str]) -> None:
        """FLOW[k] of flows that ended; `actions` names the numbers in their `action` field (0: none)."""


@attrs.define
class _Clock:
    stages: dict[str, int] = attrs.field(factory=lambda: dict.fromkeys(attrs.fields_dict(HostTime), 0))
    last: int = 0

    def start(self) -> None:
        self.last = time.thread_time_ns()

    def lap(self, stage: str) -> None:
        now = time.thread_time_ns()
        self.stages[stage] += now - self.last
        self.last = now


def _amount(frames: FrameBatch, chosen: NDArray[np.bool_]) -> Amount:
    return Amount(int(np.count_nonzero(chosen)), int(frames.wire[chosen].sum(dtype=np.int64)))


_NOTHING = (
    FrameBatch.empty(),
    np.empty(0, HEADER),
    np.empty(0, np.int64),
    np.empty(0, np.int32),
    np.empty(0, np.uint8),
    np.empty(0, np.uint8),
)


class Host:
    """The host of one partition: its flow table, its engine session, and what they counted."""

    def __init__(
        self,
        nic: Nic,
        session: EngineSession,
        table: FlowTable,
        mode: BypassMode,
        sink: Sink | None,
        *,
        engine_name: str = "",
        override: BypassRequest | None = None,
    ) -> None:
        self._nic = nic
        self._session = session
        self._table = table
        self._mode = mode
        self._sink = sink
        self._engine_name = engine_name
        self._override = override
        self._clock = _Clock()
        self._ended: Ended | None = None
        self._flows_view = table.records.view()
        self._flows_view.flags.writeable = False
        self._action_numbers: dict[str, int] = {}
        self.action_names: list[str] = ["none"]
        self.inspected = Amount()
        self.dropped = Amount()
        self.bypassed = Amount()
        self.by_action: dict[str, Amount] = {}
        self.flows_bypassed: Counter[str] = Counter()
        self.flows_ended: Counter[str] = Counter()
        self.alerts: Counter[Signature] = Counter()
        self.alert_flows: Counter[tuple[int, int, str]] = Counter()

    @property
    def time(self) -> HostTime:
        """CPU time so far."""
        return HostTime(**self._clock.stages)

    def session_summary(self) -> EngineSummary:
        """What the engine says of itself."""
        return self._session.summary()

    def receive(self, frames: FrameBatch, headers: NDArray[Any] | None, numbers: NDArray[np.int64]) -> None:
        """Take frames that the card delivered for inspection, with its layer offsets if it hands them over.

        numbers: int64[n], each frame's number in the run.
        """
        clock = self._clock
        clock.start()
        if headers is None:
            headers = decode(frames)
            clock.lap("decode")
        tracking = self._table.track(frames, headers)
        slot, direction, events = tracking.slot, tracking.direction, tracking.events
        skip = (self._table.records["bypass"][slot] != Bypass.NONE) & (slot >= 0)
        if skip.any():
            self._count_bypassed(frames, slot, skip)
            rows = np.flatnonzero(~skip)
            frames, headers, numbers = frames.select(rows), headers[rows], numbers[rows]
            slot, direction, events = slot[rows], direction[rows], events[rows]
        clock.lap("flows")
        if len(frames):
            self._inspect(frames, headers, numbers, slot, direction, events)

    def _inspect(
        self,
        frames: FrameBatch,
        headers: NDArray[Any],
        numbers: NDArray[np.int64],
        slot: NDArray[np.int32],
        direction: NDArray[np.uint8],
        events: NDArray[np.uint8],
    ) -> None:
        clock = self._clock
        ended, self._ended = self._ended, None
        ended_slots = np.empty(0, np.int32) if ended is None else ended.slots
        batch = InspectionBatch(frames, headers, slot, direction, events, self._flows_view, ended_slots)
        verdicts = self._session.inspect(batch)
        if verdicts.disposition.shape != (len(frames),):
            raise ContractError(
                f"engine {self._engine_name}: {verdicts.disposition.shape} dispositions for {len(frames)} frames"
            )
        clock.lap("inspect")
        self._count_inspected(frames, slot, direction, verdicts)
        self._report(verdicts, frames, headers, numbers)
        self._finish(ended)
        clock.lap("output")
        if len(verdicts.bypass_slot):
            self._offload(verdicts)
            clock.lap("offload")

    def _count_inspected(
        self, frames: FrameBatch, slot: NDArray[np.int32], direction: NDArray[np.uint8], verdicts: Verdicts
    ) -> None:
        counts = np.bincount(verdicts.disposition, minlength=3)
        if len(counts) > 3:
            raise ContractError(f"engine {self._engine_name}: disposition {len(counts) - 1} has no meaning")
        sizes = np.bincount(verdicts.disposition, weights=frames.wire, minlength=3)
        self.inspected += Amount(int(counts[INSPECTED]), int(sizes[INSPECTED]))
        self.dropped += Amount(int(counts[DROPPED]), int(sizes[DROPPED]))
        if counts[SKIPPED]:
            skipped = Amount(int(counts[SKIPPED]), int(sizes[SKIPPED]))
            self.bypassed += skipped
            self._count_in_flight(frames, slot, direction, verdicts)

    def _count_in_flight(
        self, frames: FrameBatch, slot: NDArray[np.int32], direction: NDArray[np.uint8], verdicts: Verdicts
    ) -> None:
        """Frames that came after their flow's verdict in the same batch: bypassed packets of the flow, by action."""
        rows = np.flatnonzero(verdicts.disposition == SKIPPED)
        np.add.at(self._table.records["bypassed_packets"], (slot[rows], direction[rows]), 1)
        np.add.at(self._table.records["bypassed_bytes"], (slot[rows], direction[rows]), frames.wire[rows])
        order = np.argsort(verdicts.bypass_slot)
        place = np.searchsorted(verdicts.bypass_slot, slot[rows], sorter=order)
        place = order[np.minimum(place, len(order) - 1)]
        if (verdicts.bypass_slot[place] != slot[rows]).any():
            raise ContractError(f"engine {self._engine_name}: a frame is skipped, but its flow is not bypassed")
        chosen = verdicts.bypass_request[place]
        for index in np.unique(chosen).tolist():
            name = self._wanted(verdicts.requests[index]).action
            part = rows[chosen == index]
            amount = Amount(len(part), int(frames.wire[part].sum(dtype=np.int64)))
            self.by_action[name] = self.by_action.get(name, Amount()) + amount

    def _count_bypassed(self, frames: FrameBatch, slot: NDArray[np.int32], skip: NDArray[np.bool_]) -> None:
        self.bypassed += _amount(frames, skip)
        numbers = self._table.records["action"][slot]
        for number in np.unique(numbers[skip]).tolist():
            name = self.action_names[number]
            amount = _amount(frames, skip & (numbers == number))
            self.by_action[name] = self.by_action.get(name, Amount()) + amount

    def _report(
        self,
        verdicts: Verdicts,
        frames: FrameBatch,
        headers: NDArray[Any],
        numbers: NDArray[np.int64],
    ) -> None:
        if not verdicts.alerts:
            return
        records = self._table.records
        resolved = []
        for alert in verdicts.alerts:
            record = resolve(alert, frames, headers, numbers, records[alert.slot] if alert.slot >= 0 else None)
            resolved.append(record)
            signature = record.signature
            self.alerts[signature] += 1
            self.alert_flows[signature.gid, signature.sid, record.flow_label] += 1
        if self._sink is not None:
            self._sink.alerts(resolved)

    def _wanted(self, request: BypassRequest) -> BypassRequest:
        return request if self._override is None else self._override

    def _number(self, action: str) -> int:
        number = self._action_numbers.get(action)
        if number is None:
            number = self._action_numbers[action] = min(len(self.action_names), 255)
            if len(self.action_names) < 256:
                self.action_names.append(action)
        return number

    def _offload(self, verdicts: Verdicts) -> None:
        records = self._table.records
        for index, asked in enumerate(verdicts.requests):
            request = self._wanted(asked)
            slots = verdicts.bypass_slot[verdicts.bypass_request == index]
            slots = slots[(records["id"][slots] != 0) & (records["end_reason"][slots] == EndReason.NONE)]
            if not len(slots):
                continue
            number = self._number(request.action)
            if self._mode is BypassMode.HARDWARE:
                status = self._nic.learn(records[slots], request.action, request.parameters)
                learned = (status == LEARNED) | (status == ALREADY_LEARNED)
                self._table.bypass(slots[learned], number, Bypass.CAPTURE)
                self.flows_bypassed["capture"] += int(np.count_nonzero(learned))
                slots = slots[~learned]
            self._table.bypass(slots, number, Bypass.LOCAL)
            self.flows_bypassed["local"] += len(slots)

    def end_of_burst(self, now: int) -> None:
        """Take in the card's flow records, age the host's flows to `now` (ns), and find those that ended."""
        records = self._nic.ended(now) if self._mode is BypassMode.HARDWARE else None
        self._clock.start()
        if self._ended is not None:
            self._inspect(*_NOTHING)
        if records is not None and len(records):
            self._take_in(records)
            self._clock.lap("offload")
        self._table.expire(now)
        ended = self._table.drain()
        if len(ended):
            self._ended = ended
        self._clock.lap("flows")

    def close(self) -> None:
        """End every flow, on the card and in the host, and give the engine its last word."""
        records = self._nic.close()
        self._clock.start()
        if self._ended is not None:
            self._inspect(*_NOTHING)
        if len(records):
            self._take_in(records)
        self._clock.lap("offload")
        self._table.close()
        ended = self._table.drain()
        self._clock.lap("flows")
        verdicts = self._session.close(self._flows_view, ended.slots)
        self._clock.lap("inspect")
        frames, headers, numbers, *_ = _NOTHING
        self._report(verdicts, frames, headers, numbers)
        self._finish(ended)
        self._clock.lap("output")

    def _take_in(self, records: NDArray[Any]) -> None:
        """Add what the card counted to the host's records, and end those flows for the card's reason."""
        slots = self._table.find_ids(records["id"])
        known = slots >= 0
        slots, records = slots[known], records[known]
        self._table.account(slots, records["packets"], records["bytes"], records["last"])
        for reason in np.unique(records["end_reason"]).tolist():
            self._table.remove(slots[records["end_reason"] == reason], EndReason(reason))

    def _finish(self, ended: Ended | None) -> None:
        """Count flows that ended, and write their records."""
        if ended is None or not len(ended):
            return
        reasons, counts = np.unique(ended.records["end_reason"], return_counts=True)
        for reason, count in zip(reasons.tolist(), counts.tolist(), strict=True):
            self.flows_ended[EndReason(reason).name.lower()] += count
        if self._sink is not None:
            self._sink.flows(ended.records, self.action_names)
