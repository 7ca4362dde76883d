"""Kernels for changes to a flow table that no frame makes: insert, find, remove, bypass, account."""

from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from flowshunt.compiled import column, kernel, matrix
from flowshunt.flows.key import flow_hash
from flowshunt.flows.layout import ACKED_0, ACTIVE, CLOCK, FIN_0, FLOW_WORDS, HANDSHAKE, HIGH, KEY_0, KEY_1, SEEN_0
from flowshunt.flows.life_cycle import ROWS, Rows, end_flow, id_hash, retime, start_flow
from flowshunt.flows.record import EndReason, TcpState
from flowshunt.flows.slot_index import index_put
from flowshunt.flows.tracking import lookup, take_row

_I64 = types.int64
_SLOTS = column(np.int32, readonly=True)
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


@kernel(types.Tuple((_I64, types.uint32))(ROWS, _FLOWS, _I64), entry=False)
def _locate(rows: Rows, flows: NDArray[Any], at: int) -> tuple[int, Any]:
    flow = flows[at]
    ends = np.uint64(flow.ports) | (np.uint64(flow.vlans) << np.uint64(32))
    kind = np.uint64(flow.kind)
    s0, s1, d0, d1 = flow.source_0, flow.source_1, flow.destination_0, flow.destination_1
    key = flow_hash(np.uint64(rows.state[KEY_0]), np.uint64(rows.state[KEY_1]), s0, s1, d0, d1, ends, kind)
    slot, _ = lookup(rows, key, s0, s1, d0, d1, ends, kind)
    return slot, key


@kernel(types.void(ROWS, _FLOWS, column(np.int32)))
def find_flows(rows: Rows, flows: NDArray[Any], slots: NDArray[np.int32]) -> None:
    """The slot of each flow's key, either way round; -1 where it is not in the table."""
    for at in range(len(flows)):
        slots[at] = _locate(rows, flows, at)[0]


@kernel(types.void(ROWS, column(np.uint64, readonly=True), column(np.int32)))
def find_numbers(rows: Rows, numbers: NDArray[np.uint64], slots: NDArray[np.int32]) -> None:
    """The slot of each flow id; -1 where it is not in the table."""
    ids = rows.ids
    mask = np.uint64(len(ids) - 1)
    for at in range(len(numbers)):
        slots[at] = -1
        key = np.uint64(id_hash(numbers[at]))
        place = key & mask
        while ids[place] != 0:
            entry = ids[place]
            slot = np.int64(entry & np.uint64(0xFFFFFFFF)) - 1
            if entry >> np.uint64(32) == key and rows.records[slot].id == numbers[at]:
                slots[at] = slot
                break
            place = (place + np.uint64(1)) & mask


@kernel(types.void(ROWS))
def index_ids(rows: Rows) -> None:
    """Enter every live flow into the index of ids."""
    for slot in range(rows.state[HIGH]):
        if rows.life[slot].bucket != 0:
            index_put(rows.ids, id_hash(rows.records[slot].id), slot)


@kernel(_I64(ROWS, _FLOWS, types.uint8, _I64, column(np.int32), column(np.uint8)))
def insert_flows(
    rows: Rows, flows: NDArray[Any], action: int, start: int, slots: NDArray[np.int32], status: NDArray[np.uint8]
) -> int:
    """Insert flows from `start` on; returns where it stopped: k, or the flow that found no free row or index place."""
    for at in range(start, len(flows)):
        slots[at] = -1
        flow = flows[at]
        version = np.int64(flow.kind) >> 8
        if flow.id == 0 or version not in (4, 6):
            status[at] = UNUSABLE
            continue
        slot, key = _locate(rows, flows, at)
        if slot >= 0 and rows.records[slot].id == flow.id:
            rows.records[slot].action = action
            slots[at] = slot
            status[at] = PRESENT
            continue
        if 2 * (rows.state[ACTIVE] + 1) > len(rows.index):
            return at
        if slot >= 0:
            end_flow(rows, slot, _UNLEARNED)
        slot = take_row(rows)
        if slot < 0:
            return at
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
        record.action = action
        record.port = flow.port
        record.flags = flow.flags
        record.first = flow.first
        record.last = flow.last
        bits = np.int64(flow.packets_0 != 0) * SEEN_0 | np.int64(flow.packets_1 != 0) * (SEEN_0 * 2)
        if flow.tcp_state >= _ESTABLISHED:
            bits |= HANDSHAKE
        # A FIN that was seen elsewhere: its sequence number is not known here, so it counts as acknowledged.
        if flow.tcp_flags_0 & 1:
            bits |= FIN_0 | ACKED_0
        if flow.tcp_flags_1 & 1:
            bits |= (FIN_0 | ACKED_0) << 1
        rows.life[slot].bits = np.uint8(bits)
        rows.life[slot].seen = rows.state[CLOCK]
        start_flow(rows, slot, key, flow.id)
        slots[at] = slot
        status[at] = INSERTED
    return len(flows)


@kernel(_I64(ROWS, _SLOTS, _I64))
def remove_slots(rows: Rows, slots: NDArray[np.int32], reason: int) -> int:
    """End the live flows among `slots`; returns how many there were."""
    removed = 0
    for at in range(len(slots)):
        slot = np.int64(slots[at])
        if 0 <= slot < rows.state[HIGH] and rows.life[slot].bucket != 0:
            end_flow(rows, slot, reason)
            removed += 1
    return removed


@kernel(types.void(ROWS, _SLOTS, types.uint8, types.uint8))
def mark_slots(rows: Rows, slots: NDArray[np.int32], action: int, bypass: int) -> None:
    """Set action and bypass of the live flows among `slots`."""
    for at in range(len(slots)):
        slot = np.int64(slots[at])
        if 0 <= slot < rows.state[HIGH] and rows.life[slot].bucket != 0:
            rows.records[slot].action = action
            rows.records[slot].bypass = bypass
            rows.life[slot].seen = rows.state[CLOCK]
            retime(rows, slot)


@kernel(
    types.void(
        ROWS,
        _SLOTS,
        matrix(np.uint64, readonly=True),
        matrix(np.uint64, readonly=True),
        column(np.int64, readonly=True),
    )
)
def account_slots(
    rows: Rows,
    slots: NDArray[np.int32],
    packets: NDArray[np.uint64],
    octets: NDArray[np.uint64],
    last: NDArray[np.int64],
) -> None:
    """Add what a NIC counted to the live flows among `slots`, to the totals and to the bypassed part."""
    for at in range(len(slots)):
        slot = np.int64(slots[at])
        if 0 <= slot < rows.state[HIGH] and rows.life[slot].bucket != 0:
            record = rows.records[slot]
            record.packets_0 += packets[at, 0]
            record.packets_1 += packets[at, 1]
            record.bytes_0 += octets[at, 0]
            record.bytes_1 += octets[at, 1]
            record.bypassed_packets_0 += packets[at, 0]
            record.bypassed_packets_1 += packets[at, 1]
            record.bypassed_bytes_0 += octets[at, 0]
            record.bypassed_bytes_1 += octets[at, 1]
            record.last = max(record.last, last[at])
            rows.life[slot].seen = rows.state[CLOCK]
