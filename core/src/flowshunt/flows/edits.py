"""The kernel for what is done to a flow table without frames: find, insert, end, retime, let time pass."""

from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from flowshunt.compiled import column, kernel
from flowshunt.flows.layout import ACKED_0, FIN_0, FLOW_WORDS, HANDSHAKE, SEEN_0
from flowshunt.flows.life_cycle import ROWS, Rows, end_flow, id_hash, observe, retime, start_flow
from flowshunt.flows.record import EndReason, TcpState
from flowshunt.flows.siphash import flow_hash
from flowshunt.flows.tracking import lookup, take_row
from flowshunt.prefetch import prefetch

_I64 = types.int64
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

FIND = 0
"""Give the slot of each flow by its key, either way round; -1: it is not in the table."""
FIND_ID = 1
"""Give the slot of each flow by its id; -1: it is not in the table."""
INSERT = 2
"""Put each flow into the table with the action `argument`, give its slot and status."""
END = 3
"""End the flows in the slots given, for the reason `argument`. Slots without a live flow are passed over."""
MARK = 4
"""Give the flows in the slots given the action `argument & 255` and the bypass `argument >> 8`, and choose their timers
anew, from now on. Slots without a live flow are passed over."""
ACCOUNT = 5
"""Add the packets and bytes of `flows` to those in the slots given, to their totals and to their bypassed part, and
take their last times. Slots without a live flow are passed over."""
OBSERVE = 6
"""Take the time `argument` into packet time, unless it repeats one that was not believed."""

_ROWS_AHEAD = 16
"""How many slots ahead of its turn a row is asked for: flows that end together lie far apart in memory."""
_NEIGHBOURS_AHEAD = 8
"""How many ahead, when the row itself is there, what it points to is."""

_0 = np.uint64(0)
_1 = np.uint64(1)
_32 = np.uint64(32)
_LOWER = np.uint64(0xFFFFFFFF)


@kernel(_I64(ROWS, _I64, _I64, _I64, _FLOWS, column(np.int32), column(np.uint8)))
def edit_rows(
    rows: Rows,
    what: int,
    argument: int,
    start: int,
    flows: NDArray[Any],
    slots: NDArray[np.int32],
    status: NDArray[np.uint8],
) -> int:
    """Do one of the things above to `flows` or `slots` from `start` on.

    Returns where it stopped: the length of `slots`, or the flow that found no free row or no place in the index. END
    returns how many flows it ended.
    """
    state = rows.state[0]
    ids = rows.ids
    mask = np.uint64(len(ids) - 1)
    ended = 0
    if what == OBSERVE and (state.stray == 0 or argument != state.stray_time):
        observe(rows, argument)
    places_mask = np.uint64(len(rows.places) - 1)
    for at in range(start, len(slots)):
        if what >= END:
            ahead = at + _ROWS_AHEAD
            if ahead < len(slots):
                coming = np.int64(slots[ahead])
                prefetch(rows.life, coming, 0)
                prefetch(rows.records, coming, 0)
                prefetch(rows.records, coming, 64)
                if what == END:
                    prefetch(rows.hashes, coming, 0)
                elif what == ACCOUNT:
                    prefetch(rows.records, coming, 128)
            ahead = at + _NEIGHBOURS_AHEAD
            if ahead < len(slots) and slots[ahead] >= 0 and slots[ahead] < state.high:
                coming = np.int64(slots[ahead])
                neighbours = rows.life[coming]
                prefetch(rows.life, np.int64(neighbours.before) - 1, 0)
                prefetch(rows.life, np.int64(neighbours.after) - 1, 0)
                if what == END:
                    prefetch(rows.places, np.uint64(rows.hashes[coming]) & places_mask, 0)
                    if state.by_id:
                        prefetch(ids, id_hash(rows.records[coming].id) & mask, 0)
            slot: Any = np.int64(slots[at])
            if slot < 0 or slot >= state.high or rows.life[slot].bucket == 0:
                continue
            if what == END:
                end_flow(rows, slot, argument)
                ended += 1
                continue
            rows.life[slot].seen = state.clock
            marked = rows.records[slot]
            if what == MARK:
                marked.action = argument & 255
                marked.bypass = argument >> 8
                retime(rows, slot)
            else:
                counted = flows[at]
                marked.packets_0 += counted.packets_0
                marked.packets_1 += counted.packets_1
                marked.bytes_0 += counted.bytes_0
                marked.bytes_1 += counted.bytes_1
                marked.bypassed_packets_0 += counted.packets_0
                marked.bypassed_packets_1 += counted.packets_1
                marked.bypassed_bytes_0 += counted.bytes_0
                marked.bypassed_bytes_1 += counted.bytes_1
                if counted.last > marked.last:  # noqa: PLR1730
                    marked.last = counted.last
            continue
        flow = flows[at]
        slots[at] = -1
        if what == FIND_ID:
            ahead = at + _ROWS_AHEAD
            if ahead < len(slots):
                prefetch(ids, id_hash(flows[ahead].id) & mask, 0)
            ahead = at + _NEIGHBOURS_AHEAD
            if ahead < len(slots):
                prefetch(rows.records, np.int64(ids[id_hash(flows[ahead].id) & mask] & _LOWER) - 1, 0)
            key = id_hash(flow.id)
            place = key & mask
            while ids[place] != _0:
                slot = np.int64(ids[place] & _LOWER) - 1
                if rows.records[slot].id == flow.id:
                    slots[at] = slot
                    break
                place = (place + _1) & mask
            continue
        s0, s1, d0, d1, kind = flow.source_0, flow.source_1, flow.destination_0, flow.destination_1, flow.kind
        ends = flow.ports | (flow.vlans << _32)
        key = flow_hash(state.key_0, state.key_1, s0, s1, d0, d1, ends, kind)
        slot = lookup(rows.records, rows.places, key, s0, s1, d0, d1, ends, kind) >> 1  # -1 stays -1
        if what == INSERT:
            answer = PRESENT
            version = kind >> 8
            if flow.id == _0 or (version != 4 and version != 6):  # noqa: PLR1714
                slot = -1
                answer = UNUSABLE
            elif slot < 0 or rows.records[slot].id != flow.id:
                if 2 * (state.active + 1) > len(rows.places):
                    return at
                if slot >= 0:
                    end_flow(rows, slot, _UNLEARNED)
                slot = take_row(rows)
                if slot < 0:
                    return at
                answer = INSERTED
                record = rows.records[slot]
                record.source_0 = s0
                record.source_1 = s1
                record.destination_0 = d0
                record.destination_1 = d1
                record.ports = flow.ports
                record.vlans = flow.vlans
                record.kind = kind
                record.tcp_state = flow.tcp_state
                record.tcp_flags_0 = flow.tcp_flags_0
                record.tcp_flags_1 = flow.tcp_flags_1
                record.port = flow.port
                record.first = flow.first
                record.last = flow.last
                bits: Any = 0
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
            if slot >= 0:
                rows.records[slot].action = argument
            status[at] = answer
        slots[at] = slot
    return ended if what == END else len(slots)
