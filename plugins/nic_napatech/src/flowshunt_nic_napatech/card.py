"""An open SmartNIC: parse, match the flow table, act, choose a host buffer, hand over descriptors."""

import functools
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flowshunt.action import DESCRIPTOR, HOST, NO_PORT, TRANSMIT
from flowshunt.flows.hashing import symmetric_hash
from flowshunt.flows.record import FLOW, EndReason, FlowTimeouts
from flowshunt.flows.table import INSERTED, PRESENT, FlowTable, Tracking
from flowshunt.fragment_kernel import run_fragments
from flowshunt.nic import (
    ALREADY_LEARNED,
    LEARNED,
    NOT_OFFLOADED,
    TABLE_FULL,
    Delivery,
    NicConfig,
    NicStatistics,
)
from flowshunt.nic_counters import NicCounters
from flowshunt.packets.batch import FrameBatch
from flowshunt.packets.decode import decode
from flowshunt.rows import take_rows
from flowshunt_nic_napatech.action_table import ActionTable
from flowshunt_nic_napatech.data_path import act

if TYPE_CHECKING:
    from flowshunt_nic_napatech.model import SmartNicModel

_DEFAULT_FLOWS = 1 << 22
"""Rows of the flow table where the run doesn't say; memory is taken only for rows that are used."""

_IDLE_SECONDS = 100.0
"""Idle time after which a learned flow leaves the table: the bypassed-flow timeout of the application it serves."""

_FIELDS: Any = FLOW.fields
_STATE_OFFSET: int = _FIELDS["state"][1]

_TIMEOUTS = FlowTimeouts(*[_IDLE_SECONDS] * 10)


@functools.cache
def _touch_kernels() -> None:
    """Let each kernel of the table run once: their first calls take milliseconds, which no flow should wait for."""
    table = FlowTable(2)
    flow = np.zeros(1, FLOW)
    flow["id"], flow["ip_version"], flow["protocol"] = 1, 4, 17
    table.insert(flow, 1)
    slots = table.find_ids(flow["id"])
    table.account(slots, flow)
    table.remove(slots, EndReason.UNLEARNED)
    table.expire(0)
    table.drain()


class SmartNic:
    """An open card. Flows are matched by the innermost five-tuple and VLAN ids, both directions as one.

    A TCP flow leaves the table after a reset, or after both ends have closed (automatic unlearn); any flow after 100 s
    without a frame. A full table refuses new flows.
    """

    def __init__(self, model: "SmartNicModel", config: NicConfig, host_buffers: int) -> None:
        self._ports = model.ports
        self._host_buffers = host_buffers
        capacity = config.flow_capacity or min(model.flow_table_capacity, _DEFAULT_FLOWS)
        self._table = FlowTable(capacity, _TIMEOUTS, seed=config.seed)
        self._actions = ActionTable(config.actions, model.ports, host_buffers)
        self._counters = NicCounters(host_buffers)
        self._asked = 0
        self._learned = 0
        self._refused: Counter[str] = Counter()
        _touch_kernels()

    def receive(self, batch: FrameBatch) -> Delivery:
        """Run the data path over a batch."""
        headers = decode(batch)
        count = len(batch)
        match = self._table.match(batch, headers, tcp_auto_unlearn=True)
        action = np.empty(count, np.uint8)
        disposition = np.empty(count, np.uint8)
        interpreted = np.empty(count, np.int64)
        flow_action = self._table.records["action"][match.slot]
        open_rows = act(match.slot, flow_action, self._actions.outcome, action, disposition, interpreted)
        buffer_override = None
        deliver = None
        if open_rows:
            rows = interpreted[:open_rows]
            buffer_override, deliver = self._carry_out(batch, headers, match, action, disposition, rows)
        rows = np.flatnonzero(disposition & HOST)
        delivered = batch if len(rows) == count else batch.select(rows)
        delivered_headers = headers if len(rows) == count else take_rows(headers, rows)
        buffers = (symmetric_hash(delivered, delivered_headers) % np.uint32(self._host_buffers)).astype(np.uint16)
        captured = None
        if match.slot.size and self._table.active:
            buffers, captured = self._redirect(delivered, rows, action, buffers, buffer_override, deliver)
        self._counters.count(batch, delivered, buffers, action)
        return Delivery(rows, buffers, delivered_headers, disposition, action, captured)

    def _carry_out(
        self,
        batch: FrameBatch,
        headers: NDArray[Any],
        match: Tracking,
        action: NDArray[np.uint8],
        disposition: NDArray[np.uint8],
        rows: NDArray[np.int64],
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Run the fragments of `rows`; sets their dispositions, returns host buffer and bytes for every row (or -1)."""
        part = batch.select(rows)
        slots = match.slot[rows]
        descriptors = np.zeros(len(rows), DESCRIPTOR)
        descriptors["timestamp"] = part.timestamp
        descriptors["wire"] = part.wire
        descriptors["captured"] = part.captured
        descriptors["deliver"] = part.captured
        descriptors["hash"] = symmetric_hash(part, take_rows(headers, rows))
        descriptors["port"] = part.port
        descriptors["tx_port"] = NO_PORT
        peer = part.port ^ np.uint16(1)
        descriptors["peer_port"] = np.where(peer < self._ports, peer, NO_PORT)
        descriptors["host_buffer"] = descriptors["hash"] % np.uint32(self._host_buffers)
        descriptors["direction"] = match.direction[rows]
        descriptors["flow_id"] = self._table.records["id"][slots]
        result = np.zeros(len(rows), np.uint8)
        records = self._table.records
        memory = records.view(np.uint8).reshape(len(records), records.dtype.itemsize)
        run_fragments(
            self._actions.code,
            self._actions.bounds,
            self._actions.fragment_index[action[rows]],
            descriptors.view(np.uint8).reshape(len(rows), DESCRIPTOR.itemsize),
            memory,
            _STATE_OFFSET,
            slots,
            result,
        )
        sent_nowhere = (result & TRANSMIT != 0) & (descriptors["tx_port"] >= self._ports)
        result[sent_nowhere] &= ~np.uint8(TRANSMIT)
        disposition[rows] = result
        buffers = np.full(len(batch), -1, np.int64)
        valid = descriptors["host_buffer"] < self._host_buffers
        buffers[rows[valid]] = descriptors["host_buffer"][valid]
        deliver = np.full(len(batch), -1, np.int64)
        deliver[rows] = descriptors["deliver"]
        return buffers, deliver

    def _redirect(
        self,
        delivered: FrameBatch,
        rows: NDArray[np.int64],
        action: NDArray[np.uint8],
        buffers: NDArray[np.uint16],
        interpreted_buffer: NDArray[np.int64] | None,
        interpreted_deliver: NDArray[np.int64] | None,
    ) -> tuple[NDArray[np.uint16], NDArray[np.uint32] | None]:
        """The host buffers and delivered bytes that actions set, where they set any."""
        number = action[rows]
        if not number.any():
            return buffers, None
        wanted = self._actions.host_buffer[number]
        length = self._actions.deliver[number]
        if interpreted_buffer is not None and interpreted_deliver is not None:
            own = interpreted_buffer[rows]
            wanted = np.where(own >= 0, own, wanted)
            own = interpreted_deliver[rows]
            length = np.where(own >= 0, own, length)
        buffers = np.where(wanted >= 0, wanted, buffers).astype(np.uint16)
        sliced = (length >= 0) & (length < delivered.captured)
        if not sliced.any():
            return buffers, None
        return buffers, np.where(sliced, length, delivered.captured).astype(np.uint32)

    def learn(self, flows: NDArray[Any], action: str, parameters: Mapping[str, int]) -> NDArray[np.uint8]:
        """Put flows into the table. A flow that is there already takes the new action and keeps its counters."""
        self._asked += len(flows)
        number = self._actions.number(action, parameters)
        if isinstance(number, str):
            self._refused[number] += len(flows)
            return np.full(len(flows), NOT_OFFLOADED, np.uint8)
        _, status = self._table.insert(flows, number)
        answer = np.full(len(flows), TABLE_FULL, np.uint8)
        answer[status == INSERTED] = LEARNED
        answer[status == PRESENT] = ALREADY_LEARNED
        learned = int(np.count_nonzero(answer == LEARNED))
        full = int(np.count_nonzero(answer == TABLE_FULL))
        self._learned += learned
        if full:
            self._refused["table full"] += full
        return answer

    def unlearn(self, ids: NDArray[np.uint64]) -> None:
        """Take flows out of the table; their records say UNLEARNED."""
        slots = self._table.find_ids(ids)
        self._table.remove(slots[slots >= 0], EndReason.UNLEARNED)

    def ended(self, now: int) -> NDArray[Any]:
        """Records of flows that left the table since the last call, aged to `now`."""
        self._table.expire(now)
        return self._table.drain().records

    def statistics(self) -> NicStatistics:
        """The counters so far."""
        return self._counters.statistics(
            self._actions.names,
            flows_asked=self._asked,
            flows_learned=self._learned,
            flows_refused=dict(self._refused),
            active_flows=self._table.active,
        )

    def close(self) -> NDArray[Any]:
        """End every flow and return the last records."""
        self._table.close()
        return self._table.drain().records
