"""The kernel that takes a batch of frames through a flow table: find or create flows, count, follow their state."""

from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from flowshunt.compiled import BYTES, column, kernel
from flowshunt.engine import ESTABLISHED, NEW
from flowshunt.flows.fragment_table import DATAGRAMS, datagram_ports
from flowshunt.flows.key import TCP, addresses, flow_hash, has_ports, readable, swap_ports
from flowshunt.flows.layout import (
    ACTIVE,
    BATCH,
    CLOCK,
    FRAGMENTS_MATCHED,
    FRAGMENTS_UNMATCHED,
    FREE,
    HAND,
    HANDSHAKE,
    HIGH,
    KEY_0,
    KEY_1,
    LIMIT,
    NEXT_ID,
    OVERFLOW,
    SEEN_0,
    STRAY,
    STRAY_SLOT,
)
from flowshunt.flows.life_cycle import (
    ROWS,
    Rows,
    end_flow,
    observe,
    restarts,
    retime,
    start_flow,
    tcp_step,
)
from flowshunt.flows.record import Bypass, EndReason, TcpState
from flowshunt.packets.headers import FRAGMENT, HEADER, LATER_FRAGMENT

_I64 = types.int64
_U64 = types.uint64

_TCP_END = int(EndReason.TCP_END)
_TIMEOUT = int(EndReason.TIMEOUT)
_DISPLACED = int(EndReason.DISPLACED)
_CLOSED = int(TcpState.CLOSED)
_SYN_SENT = int(TcpState.SYN_SENT)
_SYN_RECEIVED = int(TcpState.SYN_RECEIVED)
_CAPTURE = int(Bypass.CAPTURE)

_SYN = 2
_ACK = 16

EVICTION_SAMPLE = 64
"""Rows that a search for a flow to evict looks at."""

CREATE = 1
"""Mode bit: frames of unknown flows start flows."""
AUTO_UNLEARN = 2
"""Mode bit: a TCP flow ends with the frame that closes it."""


@kernel(types.UniTuple(_I64, 2)(ROWS, types.uint32, _U64, _U64, _U64, _U64, _U64, _U64), inline=True, entry=False)
def lookup(rows: Rows, key: Any, s0: Any, s1: Any, d0: Any, d1: Any, ends: Any, kind: Any) -> tuple[int, int]:
    """The slot of a key, or -1, and the direction: 0 where the key's source is the initiator."""
    index = rows.index
    mask = np.uint64(len(index) - 1)
    place = np.uint64(key) & mask
    back = swap_ports(ends)
    while index[place] != 0:
        entry = index[place]
        if entry >> np.uint64(32) == np.uint64(key):
            slot = np.int64(entry & np.uint64(0xFFFFFFFF)) - 1
            record = rows.records[slot]
            own = np.uint64(record.ports) | (np.uint64(record.vlans) << np.uint64(32))
            if np.uint64(record.kind) == kind:
                if (
                    own == ends
                    and record.source_0 == s0
                    and record.destination_0 == d0
                    and record.source_1 == s1
                    and record.destination_1 == d1
                ):
                    return slot, np.int64(0)
                if (
                    own == back
                    and record.source_0 == d0
                    and record.destination_0 == s0
                    and record.source_1 == d1
                    and record.destination_1 == s1
                ):
                    return slot, np.int64(1)
        place = (place + np.uint64(1)) & mask
    return np.int64(-1), np.int64(0)


@kernel(types.void(ROWS), entry=False)
def _evict(rows: Rows) -> None:
    """End the flow that can best be spared among a sample of rows, none of this batch; nothing where there is none.

    TCP flows that have closed go first, flows that a NIC has taken over last, among equals the least recently seen.
    """
    state = rows.state
    high = state[HIGH]
    batch = np.uint32(state[BATCH])
    best = np.int64(-1)
    best_rank = np.int64(0)
    hand = state[HAND]
    for _ in range(min(high, EVICTION_SAMPLE)):
        if hand >= high:
            hand = 0
        row = rows.life[hand]
        if row.bucket != 0 and row.batch != batch:
            record = rows.records[hand]
            rank = np.int64(1)
            if record.bypass == _CAPTURE:
                rank = 0
            elif record.tcp_state == _CLOSED:
                rank = 2
            if best < 0 or rank > best_rank or (rank == best_rank and row.seen < rows.life[best].seen):
                best = hand
                best_rank = rank
        hand += 1
    state[HAND] = hand
    if best >= 0:
        end_flow(rows, best, _DISPLACED)


@kernel(_I64(ROWS), inline=True, entry=False)
def take_row(rows: Rows) -> int:
    """A row for a new flow, or -1 where there is none left."""
    state = rows.state
    if state[FREE] > 0:
        state[FREE] -= 1
        return np.int64(rows.free[state[FREE]])
    if state[HIGH] < len(rows.life):
        state[HIGH] += 1
        return state[HIGH] - 1
    return np.int64(-1)


@kernel(
    _I64(
        ROWS,
        DATAGRAMS,
        BYTES,
        column(np.int64, readonly=True),
        column(np.uint32, readonly=True),
        column(np.uint32, readonly=True),
        column(np.int64, readonly=True),
        column(np.uint16, readonly=True),
        column(HEADER, readonly=True),
        _I64,
        _I64,
        column(np.int32),
        column(np.uint8),
        column(np.uint8),
    )
)
def track_frames(
    rows: Rows,
    datagrams: NDArray[Any],
    data: NDArray[np.uint8],
    offset: NDArray[np.int64],
    captured: NDArray[np.uint32],
    wire: NDArray[np.uint32],
    timestamp: NDArray[np.int64],
    port: NDArray[np.uint16],
    headers: NDArray[Any],
    mode: int,
    start: int,
    slots: NDArray[np.int32],
    directions: NDArray[np.uint8],
    events: NDArray[np.uint8],
) -> int:
    """Take the frames from `start` on; returns where it stopped: n, or the frame that needs a larger index."""
    state = rows.state
    k0 = np.uint64(state[KEY_0])
    k1 = np.uint64(state[KEY_1])
    batch = np.uint32(state[BATCH])
    for at in range(start, len(headers)):
        if mode & CREATE and 2 * (state[ACTIVE] + 1) > len(rows.index):
            return at
        now = observe(rows, timestamp[at])
        slots[at] = -1
        directions[at] = 0
        events[at] = 0
        header = headers[at]
        version = np.int64(header.ip_version)
        l3 = np.int64(header.l3)
        if not readable(version, l3, offset[at], np.int64(captured[at]), len(data)):
            continue
        s0, s1, d0, d1 = addresses(data, offset[at] + l3, version)
        protocol = np.int64(header.protocol)
        kind = np.uint64(protocol) | (np.uint64(version) << np.uint64(8))
        vlans = (np.uint64(header.vlan) | (np.uint64(header.inner_vlan) << np.uint64(16))) << np.uint64(32)
        flags = np.int64(header.flags)
        ports = np.int64(0)
        if has_ports(protocol):
            if header.l4 != 0:
                ports = np.int64(header.source_port) | (np.int64(header.destination_port) << 16)
            if flags & FRAGMENT:
                label = np.uint64(header.fragment_id) | vlans
                entered = np.int64(-1) if flags & LATER_FRAGMENT else ports
                ports = datagram_ports(datagrams, k0, k1, s0, s1, d0, d1, label, kind, state[CLOCK], entered)
                if flags & LATER_FRAGMENT:
                    state[FRAGMENTS_UNMATCHED if ports < 0 else FRAGMENTS_MATCHED] += 1
                    ports = max(ports, 0)
        ends = np.uint64(ports) | vlans
        tcp_flags = np.int64(-1)
        if protocol == TCP and header.l4 != 0:
            tcp_flags = np.int64(header.tcp_flags)
        key = flow_hash(k0, k1, s0, s1, d0, d1, ends, kind)
        slot, direction = lookup(rows, key, s0, s1, d0, d1, ends, kind)
        if slot >= 0:
            if now - rows.life[slot].seen > rows.timeouts[rows.life[slot].timer]:
                end_flow(rows, slot, _TIMEOUT)
                slot = np.int64(-1)
            elif tcp_flags >= 0 and restarts(rows, slot, tcp_flags):
                end_flow(rows, slot, _TCP_END)
                slot = np.int64(-1)
        if slot < 0:
            if not mode & CREATE:
                continue
            if state[ACTIVE] >= state[LIMIT]:
                _evict(rows)
            slot = take_row(rows)
            if slot < 0:
                state[OVERFLOW] += 1
                continue
            direction = np.int64(tcp_flags >= 0 and tcp_flags & (_SYN | _ACK) == (_SYN | _ACK))
            record = rows.records[slot]
            if direction == 1:
                record.source_0, record.source_1, record.destination_0, record.destination_1 = d0, d1, s0, s1
                record.ports = np.uint32(swap_ports(ends) & np.uint64(0xFFFFFFFF))
            else:
                record.source_0, record.source_1, record.destination_0, record.destination_1 = s0, s1, d0, d1
                record.ports = np.uint32(ends & np.uint64(0xFFFFFFFF))
            record.vlans = np.uint32(ends >> np.uint64(32))
            record.kind = np.uint16(kind)
            record.first = timestamp[at]
            record.port = port[at]
            if tcp_flags >= 0 and tcp_flags & _SYN:
                record.tcp_state = np.uint8(_SYN_RECEIVED if direction else _SYN_SENT)
            rows.life[slot].seen = state[CLOCK]
            start_flow(rows, slot, key, np.uint64(state[NEXT_ID]))
            state[NEXT_ID] += 1
            events[at] = NEW
        record = rows.records[slot]
        row = rows.life[slot]
        row.seen = state[CLOCK]
        row.batch = batch
        if state[STRAY] != 0:
            state[STRAY_SLOT] = slot + 1
        record.last = timestamp[at]
        size = np.uint64(wire[at])
        one = np.uint64(1)
        if direction == 0:
            record.packets_0 += one
            record.bytes_0 += size
        else:
            record.packets_1 += one
            record.bytes_1 += size
        if mode & CREATE and record.bypass != 0:
            if direction == 0:
                record.bypassed_packets_0 += one
                record.bypassed_bytes_0 += size
            else:
                record.bypassed_packets_1 += one
                record.bypassed_bytes_1 += size
        bits = np.int64(row.bits)
        if not bits & (SEEN_0 << direction):
            row.bits = np.uint8(bits | (SEEN_0 << direction))
            retime(rows, slot)
        if tcp_flags >= 0:
            end = np.uint32(header.seq + header.payload_length + ((tcp_flags & _SYN) >> 1))
            tcp_step(rows, slot, direction, tcp_flags, end, header.ack)
        if protocol == TCP:
            established = np.int64(row.bits) & HANDSHAKE != 0
        else:
            established = np.int64(row.bits) & (SEEN_0 * 3) == SEEN_0 * 3
        if established:
            events[at] |= np.uint8(ESTABLISHED)
        slots[at] = slot
        directions[at] = direction
        if mode & AUTO_UNLEARN and protocol == TCP and record.tcp_state == _CLOSED:
            end_flow(rows, slot, _TCP_END)
    return len(headers)
