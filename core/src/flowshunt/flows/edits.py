"""Kernels for changes to a flow table that no frame makes: insert, find, end and retime."""

from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from flowshunt.compiled import column, kernel
from flowshunt.flows.key import flow_hash
from flowshunt.flows.layout import ACKED_0, FIN_0, FLOW_WORDS, HANDSHAKE, SEEN_0
from flowshunt.flows.life_cycle import ROWS, Rows, end_flow, id_hash, retime, start_flow
from flowshunt.flows.record import EndReason, TcpState
from flowshunt.flows.tracking import lookup, take_row

_I64 = types.int64
_U64 = types.uint64
_SLOTS = column(np.int32)
_FLOWS = column(FLOW_WORDS, readonly=True)

INSERTED = 0
"""`FlowTable.insert`: the flow is in the table now."""
PRESENT = 1
"""`FlowTable.insert`: the flow was there, under the same id; its action was changed."""
FULL = 2
"""`FlowTable.insert`: refused, no row is free."""
UNUSABLE = 3
"""`FlowTable.insert`: refused, the record has no id or no IP version."""

_UNLEARNED = int(EndReason.UNLEARNED)
_ESTABLISHED = int(TcpState.ESTABLISHED)
_FIN = 1

_0 = np.uint64(0)
_1 = np.uint64(1)
_32 = np.uint64(32)
_LOWER = np.uint64(0xFFFFFFFF)


@kernel(_U64(ROWS, _FLOWS, _I64), entry=False)
def _hash(rows: Rows, flows: NDArray[Any], at: int) -> Any:
    flow = flows[at]
    state = rows.state[0]
    ends = flow.ports | (flow.vlans << _32)
    return flow_hash(
        state.key_0,
        state.key_1,
        flow.source_0,
        flow.source_1,
        flow.destination_0,
        flow.destination_1,
        ends,
        flow.kind,
    )


@kernel(_I64(ROWS, _FLOWS, _I64, _U64), entry=False)
def _locate(rows: Rows, flows: NDArray[Any], at: int, key: Any) -> int:
    flow = flows[at]
    found = lookup(
        rows.records,
        rows.hashes,
        key,
        flow.source_0,
        flow.source_1,
        flow.destination_0,
        flow.destination_1,
        flow.ports | (flow.vlans << _32),
        flow.kind,
    )
    return found >> 1  # -1 stays -1


@kernel(types.void(ROWS, _FLOWS, _I64, _SLOTS))
def find_flows(rows: Rows, flows: NDArray[Any], by_id: int, slots: NDArray[np.int32]) -> None:
    """The slot of each flow by its key, either way round, or by its id; -1 where it is not in the table."""
    ids = rows.ids
    mask = np.uint64(len(ids) - 1)
    for at in range(len(flows)):
        if by_id == 0:
            slots[at] = _locate(rows, flows, at, _hash(rows, flows, at))
            continue
        slots[at] = -1
        number = flows[at].id
        key = id_hash(number)
        place = key & mask
        while True:
            entry = ids[place]
            if entry == _0:
                break
            slot = np.int64(entry & _LOWER) - 1
            if entry >> _32 == key and rows.records[slot].id == number:
                slots[at] = slot
                break
            place = (place + _1) & mask


@kernel(_I64(ROWS, _FLOWS, _I64, _I64, _SLOTS, column(np.uint8)))
def insert_flows(
    rows: Rows, flows: NDArray[Any], action: int, start: int, slots: NDArray[np.int32], status: NDArray[np.uint8]
) -> int:
    """Insert flows from `start` on; returns where it stopped: k, or the flow that found no free row or index place."""
    state = rows.state[0]
    for at in range(start, len(flows)):
        flow = flows[at]
        slot = -1
        answer = UNUSABLE
        version = flow.kind >> 8
        if flow.id != _0 and (version == 4 or version == 6):  # noqa: PLR1714
            key = _hash(rows, flows, at)
            slot = _locate(rows, flows, at, key)
            if slot >= 0 and rows.records[slot].id == flow.id:
                answer = PRESENT
            else:
                if 2 * (state.active + 1) > len(rows.hashes):
                    return at
                if slot >= 0:
                    end_flow(rows, slot, _UNLEARNED)
                slot = take_row(rows)
                if slot < 0:
                    return at
                answer = INSERTED
                record = rows.records[slot]
                record.source_0 = flow.source_0
                record.source_1 = flow.source_1
                record.destination_0 = flow.destination_0
                record.destination_1 = flow.destination_1
                record.ports = flow.ports
                record.vlans = flow.vlans
                record.kind = flow.kind
                record.tcp_state = flow.tcp_state
                record.tcp_flags_0 = flow.tcp_flags_0
                record.tcp_flags_1 = flow.tcp_flags_1
                record.port = flow.port
                record.first = flow.first
                record.last = flow.last
                bits = 0
                if flow.packets_0 != _0:
                    bits |= SEEN_0
                if flow.packets_1 != _0:
                    bits |= SEEN_0 << 1
                if flow.tcp_state >= _ESTABLISHED:
                    bits |= HANDSHAKE
                # The number after a FIN that was seen elsewhere is not known here: it counts as acknowledged.
                if flow.tcp_flags_0 & _FIN:
                    bits |= FIN_0 | ACKED_0
                if flow.tcp_flags_1 & _FIN:
                    bits |= (FIN_0 | ACKED_0) << 1
                rows.life[slot].bits = bits
                start_flow(rows, slot, key, flow.id)
            rows.records[slot].action = action
        slots[at] = slot
        status[at] = answer
    return len(flows)


@kernel(types.void(ROWS, _SLOTS, _I64))
def settle_slots(rows: Rows, slots: NDArray[np.int32], reason: int) -> None:
    """End the flows in `slots`, all live, none twice; with reason 0 choose their timers anew, from now on."""
    for at in range(len(slots)):
        slot = np.int64(slots[at])
        if reason != 0:
            end_flow(rows, slot, reason)
        else:
            rows.life[slot].seen = rows.state[0].clock
            retime(rows, slot)
