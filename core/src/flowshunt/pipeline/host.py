"""The host's side: decode, find flows, skip bypassed ones, inspect, offload. Times each stage with the CPU's clock."""

import time
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any, Protocol

import attrs
import numpy as np
from numpy.typing import NDArray

from flowshunt.engine import (
    DROPPED,
    INSPECTED,
    BypassRequest,
    EngineSession,
    EngineSummary,
    InspectionBatch,
    Signature,
    Verdicts,
)
from flowshunt.errors import ContractError, InputError
from flowshunt.flows.record import Bypass, EndReason, TcpState
from flowshunt.flows.table import Ended, FlowTable
from flowshunt.nic import ALREADY_LEARNED, LEARNED, Nic
from flowshunt.packets.batch import FrameBatch
from flowshunt.packets.copying import copy_frames
from flowshunt.packets.decode import decode
from flowshunt.packets.headers import HEADER
from flowshunt.pipeline.accounting import ACTIONS, set_aside, settle
from flowshunt.pipeline.alert import AlertRecord, EventRecord, in_order, resolve, resolve_event
from flowshunt.pipeline.mode import BypassMode
from flowshunt.pipeline.result import Amount, HostTime
from flowshunt.rows import take_rows


class Sink(Protocol):
    """Where a run's events go."""

    def alerts(self, alerts: Sequence[AlertRecord]) -> None:
        """Alerts, in the order in which their frames came."""

    def told(self, events: Sequence[EventRecord]) -> None:
        """What the engine tells beside alerts, of the types that were asked for."""

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


class _PacketRing:
    """The kernel's ring of a NIC that can't write into the application's memory: each frame is copied once."""

    def __init__(self) -> None:
        self._memory = np.empty(1 << 20, np.uint8)

    def copy(self, frames: FrameBatch) -> FrameBatch:
        """The same frames in the ring. Valid until the next call."""
        end = np.cumsum(frames.captured, dtype=np.int64)
        size = int(end[-1])
        if size > len(self._memory):
            self._memory = np.empty(2 * size, np.uint8)
        place = end - frames.captured
        copy_frames(frames.data, frames.offset, frames.captured, self._memory, place)
        return attrs.evolve(frames, data=self._memory, offset=place)


_NOTHING = (
    FrameBatch.empty(),
    np.empty(0, HEADER),
    np.empty(0, np.int64),
    np.empty(0, np.int32),
    np.empty(0, np.uint8),
    np.empty(0, np.uint8),
)


def _add_counts(record: NDArray[Any], counted: NDArray[Any]) -> None:
    """Add what the card counted of a flow to its record (both FLOW[1])."""
    for field in ("packets", "bytes"):
        record[field] += counted[field]
        record[f"bypassed_{field}"] += counted[field]
    record["last"] = np.maximum(record["last"], counted["last"])


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
        zero_copy: bool = True,
        actions: Collection[str] | None = None,
        engine_name: str = "",
        override: BypassRequest | None = None,
    ) -> None:
        self._nic = nic
        self._session = session
        self._table = table
        self._mode = mode
        self._sink = sink
        self._engine_name = engine_name
        self._actions = actions
        self._override = override
        self._zero_copy = zero_copy
        self._ring = _PacketRing()
        self._clock = _Clock()
        self._ended: Ended | None = None
        self._displaced: dict[int, NDArray[Any]] = {}
        self._early: dict[int, NDArray[Any]] = {}
        self._flows_view = table.records.view()
        self._flows_view.flags.writeable = False
        self._action_numbers: dict[str, int] = {}
        self.action_names: list[str] = ["none"]
        self._by_disposition = np.zeros((3, 2), np.int64)
        self._by_action = np.zeros((ACTIONS, 2), np.int64)
        self.flows_bypassed: Counter[str] = Counter()
        self.flows_ended: Counter[str] = Counter()
        self.alerts: Counter[Signature] = Counter()
        self.alert_flows: Counter[tuple[int, int, str]] = Counter()

    @property
    def inspected(self) -> Amount:
        """What the engine let pass."""
        return Amount(*self._by_disposition[INSPECTED].tolist())

    @property
    def dropped(self) -> Amount:
        """What a rule dropped."""
        return Amount(*self._by_disposition[DROPPED].tolist())

    @property
    def bypassed(self) -> Amount:
        """Frames of bypassed flows that reached the host."""
        return Amount(*self._by_action.sum(axis=0).tolist())

    @property
    def by_action(self) -> dict[str, Amount]:
        """The same by the name of their flow's action."""
        counted = self._by_action.tolist()
        return {name: Amount(*counted[number]) for number, name in enumerate(self.action_names)}

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
        if not self._zero_copy:
            frames = self._ring.copy(frames)
            clock.lap("receive")
        if headers is None:
            headers = decode(frames)
            clock.lap("decode")
        tracking = self._table.track(frames, headers)
        slot, direction, events = tracking.slot, tracking.direction, tracking.events
        rows = np.empty(len(frames), np.int64)
        kept = set_aside(slot, frames.wire, self._table.records, self._by_action, rows)
        if kept < len(frames):
            rows = rows[:kept]
            frames, headers, numbers = frames.select(rows), take_rows(headers, rows), numbers[rows]
            slot, direction, events = slot[rows], direction[rows], events[rows]
        clock.lap("flows")
        if kept:
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
        if len(verdicts.bypass_slot):
            self._offload(verdicts)
            clock.lap("offload")
        wrong = settle(
            verdicts.disposition,
            slot,
            direction,
            frames.wire,
            self._table.records,
            self._by_disposition,
            self._by_action,
        )
        if wrong >= 0:
            raise ContractError(
                f"engine {self._engine_name}: frame {numbers[wrong]} has disposition {verdicts.disposition[wrong]}, "
                "which is unknown or skips a flow that is not bypassed"
            )
        self._report(verdicts, frames, headers, numbers)
        self._finish(ended)
        clock.lap("output")

    def _report(
        self,
        verdicts: Verdicts,
        frames: FrameBatch,
        headers: NDArray[Any],
        numbers: NDArray[np.int64],
    ) -> None:
        records = self._table.records
        if verdicts.events and self._sink is not None:
            told = [resolve_event(event, frames, numbers, records[event.slot]) for event in verdicts.events]
            self._sink.told(told)
        if not verdicts.alerts:
            return
        resolved = []
        for alert in verdicts.alerts:
            record = resolve(alert, frames, headers, numbers, records[alert.slot] if alert.slot >= 0 else None)
            resolved.append(record)
            signature = record.signature
            self.alerts[signature] += 1
            self.alert_flows[signature.gid, signature.sid, record.flow_label] += 1
        if self._sink is not None:
            self._sink.alerts(in_order(resolved))

    def _wanted(self, request: BypassRequest) -> BypassRequest:
        return request if self._override is None else self._override

    def _number(self, action: str) -> int:
        number = self._action_numbers.get(action)
        if number is None:
            if self._actions is not None and action not in self._actions:
                raise InputError(
                    f"asks to bypass flows by the offload action {action!r}, which there is not",
                    f"engine {self._engine_name}",
                    f"there are {', '.join(sorted(self._actions)) or 'none'}",
                )
            number = self._action_numbers[action] = min(len(self.action_names), ACTIONS - 1)
            if len(self.action_names) < ACTIONS:
                self.action_names.append(action)
        return number

    def _offload(self, verdicts: Verdicts) -> None:
        """Have the card act on flows, and mark all of them, so that the host skips what it still gets of them.

        The host keeps TCP flows that have closed already (of those little can follow), and what the card refuses.
        """
        records = self._table.records
        alike: dict[tuple[str, tuple[tuple[str, int], ...]], list[int]] = {}
        for index, asked in enumerate(verdicts.requests):
            request = self._wanted(asked)
            alike.setdefault((request.action, tuple(request.parameters.items())), []).append(index)
        for indices in alike.values():
            request = self._wanted(verdicts.requests[indices[0]])
            slots = verdicts.bypass_slot
            if len(alike) > 1:
                slots = slots[np.isin(verdicts.bypass_request, indices)]
            if not len(slots):
                continue
            number = self._number(request.action)
            if self._mode is BypassMode.HARDWARE:
                flows = take_rows(records, slots)
                lasting = np.flatnonzero(
                    (flows["end_reason"] == EndReason.NONE) & (flows["tcp_state"] != TcpState.CLOSED)
                )
                status = self._nic.learn(take_rows(flows, lasting), request.action, request.parameters)
                learned = lasting[(status == LEARNED) | (status == ALREADY_LEARNED)]
                self._table.bypass(slots[learned], number, Bypass.CAPTURE)
                self.flows_bypassed["capture"] += len(learned)
                left = np.ones(len(slots), np.bool_)
                left[learned] = False
                slots = slots[left]
            if len(slots):
                self._table.bypass(slots, number, Bypass.LOCAL)
                ended = slots[records["end_reason"][slots] != EndReason.NONE]
                records["action"][ended] = number
                records["bypass"][ended] = Bypass.LOCAL
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
            self._ended = self._without_displaced(ended)
        self._early.clear()
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
        if (slots < 0).any():
            self._complete_displaced(records[slots < 0])
        self._table.account(slots, records)
        reasons = records["end_reason"]
        for reason in np.flatnonzero(np.bincount(reasons)).tolist():
            self._table.remove(slots[reasons == reason], EndReason(reason))

    def _without_displaced(self, ended: Ended) -> Ended:
        """Keep back the records of flows that the host had to displace while the card acts on them.

        The card is told to forget them; their records are complete with what it counted, which comes with its own.
        """
        records = ended.records
        displaced = (records["bypass"] == Bypass.CAPTURE) & (records["end_reason"] == EndReason.DISPLACED)
        if not displaced.any():
            return ended
        rows = np.flatnonzero(displaced)
        self._nic.unlearn(records["id"][rows])
        for row in rows.tolist():
            number = int(records["id"][row])
            counted = self._early.pop(number, None)
            if counted is not None:
                _add_counts(records[row : row + 1], counted)
                displaced[row] = False
            else:
                self._displaced[number] = records[row : row + 1].copy()
        return Ended(records[~displaced], ended.slots)

    def _complete_displaced(self, counted: NDArray[Any]) -> None:
        """Finish the records kept back for which the card has handed over its counts (FLOW[k]).

        Counts of a flow that is displaced in this very burst come before its record does: they wait for it.
        """
        for at, number in enumerate(counted["id"].tolist()):
            record = self._displaced.pop(number, None)
            if record is None:
                self._early[number] = counted[at : at + 1]
                continue
            _add_counts(record, counted[at : at + 1])
            self._finish(Ended(record, np.empty(0, np.int32)))

    def _finish(self, ended: Ended | None) -> None:
        """Count flows that ended, and write their records."""
        if ended is None or not len(ended.records):
            return
        counts = np.bincount(ended.records["end_reason"])
        for reason in np.flatnonzero(counts).tolist():
            self.flows_ended[EndReason(reason).name.lower()] += int(counts[reason])
        if self._sink is not None:
            self._sink.flows(ended.records, self.action_names)
