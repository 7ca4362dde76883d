"""The kernel that takes a batch of frames through a flow table: find or start flows, count, follow their state."""

from typing import Any

import numpy as np
from numba import from_dtype, types
from numpy.typing import NDArray

from flowshunt.compiled import BYTES, column, kernel
from flowshunt.engine import ESTABLISHED, NEW
from flowshunt.flows.fragment_table import DATAGRAMS, complete_fragment
from flowshunt.flows.key import KEY, KEY_FRAGMENT, KEY_NONE, KEYS, TCP, read_keys, swap_ports
from flowshunt.flows.layout import HANDSHAKE, SEEN_0
from flowshunt.flows.life_cycle import ROWS, STEP, Rows, end_flow, observe, retime, start_flow
from flowshunt.flows.record import Bypass, EndReason, TcpState
from flowshunt.flows.slot_index import INDEX
from flowshunt.flows.tcp import ACK, SYN, restarts, tcp_step
from flowshunt.packets.headers import HEADER, LATER_FRAGMENT
from flowshunt.prefetch import prefetch

_I64 = types.int64
_U64 = types.uint64
_RECORDS = ROWS.types[0]

_TCP_END = int(EndReason.TCP_END)
_TIMEOUT = int(EndReason.TIMEOUT)
_DISPLACED = int(EndReason.DISPLACED)
_CLOSED = int(TcpState.CLOSED)
_SYN_SENT = int(TcpState.SYN_SENT)
_SYN_RECEIVED = int(TcpState.SYN_RECEIVED)
_CAPTURE = int(Bypass.CAPTURE)
_BOTH_SEEN = SEEN_0 * 3

BLOCK = 256
"""Frames whose keys are read ahead."""
_INDEX_AHEAD = 24
"""How many frames ahead of its turn a frame's place in the index is asked for."""
_ROWS_AHEAD = 12
"""How many frames ahead its row is."""

EVICTION_SAMPLE = 64
"""Rows that a search for a flow to evict looks at."""

CREATE = 1
"""Mode bit: frames of unknown flows start flows."""
AUTO_UNLEARN = 2
"""Mode bit: a TCP flow ends with the frame that closes it."""

_0 = np.uint64(0)
_1 = np.uint64(1)
_32 = np.uint64(32)
_LOWER = np.uint64(0xFFFFFFFF)


@kernel(_I64(_RECORDS, INDEX, _U64, _U64, _U64, _U64, _U64, _U64, _U64), entry=False)
def lookup(
    records: NDArray[Any],
    index: NDArray[np.uint64],
    hashed: Any,
    s0: Any,
    s1: Any,
    d0: Any,
    d1: Any,
    ends: Any,
    kind: Any,
) -> int:
    """Twice the slot of a key, plus 1 where the key's source is not the initiator; -1 where there is no such flow."""
    mask = np.uint64(len(index) - 1)
    place = hashed & mask
    while True:
        entry = index[place]
        if entry == _0:
            return -1
        if entry >> _32 == hashed:
            slot: Any = np.int64(entry & _LOWER) - 1
            record = records[slot]
            own = record.ports | (record.vlans << _32)
            if record.kind == kind:
                if (
                    own == ends
                    and record.source_0 == s0
                    and record.destination_0 == d0
                    and record.source_1 == s1
                    and record.destination_1 == d1
                ):
                    return 2 * slot
                if (
                    own == swap_ports(ends)
                    and record.source_0 == d0
                    and record.destination_0 == s0
                    and record.source_1 == d1
                    and record.destination_1 == s1
                ):
                    return 2 * slot + 1
        place = (place + _1) & mask


@kernel(_I64(ROWS), inline=True, entry=False)
def take_row(rows: Rows) -> int:
    """A row for a new flow, all zero, or -1 where there is none left."""
    state = rows.state[0]
    if state.free > 0:
        state.free -= 1
        return rows.spare[state.free]
    if state.high < len(rows.life):
        state.high += 1
        return state.high - 1
    return -1


@kernel(_I64(ROWS, from_dtype(KEY), _I64, _I64, types.uint16), entry=False)
def _start(rows: Rows, key: Any, tcp_flags: int, timestamp: int, port: int) -> int:
    """Start the flow of a frame; returns as `lookup` does, -1 where there is no row left.

    At the limit of live flows it ends the one that can best be spared among a sample of rows, none of this batch: TCP
    flows that have closed first, flows that a NIC has taken over last, among equals the least recently seen. Where no
    row is left, it brings a table that is above the limit back to it, for the batches to come: one that a single batch
    or `insert` has filled would otherwise stay full until its flows time out.
    """
    state = rows.state[0]
    slot = take_row(rows)
    least = state.limit if slot >= 0 else state.limit + 1
    for _ in range(2):  # a second search only where an earlier one found none
        if state.active < least:
            break
        best = -1
        best_rank = 0
        best_seen = 0
        for _ in range(EVICTION_SAMPLE):
            if state.hand >= state.high:
                state.hand = 0
            at = state.hand
            state.hand += 1
            row = rows.life[at]
            if row.bucket == 0 or row.batch == state.batch:
                continue
            rank = 1
            if rows.records[at].bypass == _CAPTURE:
                rank = 0
            elif rows.records[at].tcp_state == _CLOSED:
                rank = 2
            if best < 0 or rank > best_rank or (rank == best_rank and row.seen < best_seen):
                best = at
                best_rank = rank
                best_seen = row.seen
        if best >= 0:
            end_flow(rows, best, _DISPLACED)
    if slot < 0:
        state.overflow += 1
        return -1
    record = rows.records[slot]
    direction = 0
    ends = key.ends
    s0, s1, d0, d1 = key.source_0, key.source_1, key.destination_0, key.destination_1
    if tcp_flags >= 0 and tcp_flags & SYN:
        record.tcp_state = _SYN_SENT
        if tcp_flags & ACK:
            record.tcp_state = _SYN_RECEIVED
            back = swap_ports(ends)
            if s0 != d0 or s1 != d1 or ends != back:  # both directions of a packet to its own sender are 0
                direction = 1
                ends = back
                s0, s1, d0, d1 = d0, d1, s0, s1
    record.source_0 = s0
    record.source_1 = s1
    record.destination_0 = d0
    record.destination_1 = d1
    record.ports = ends & _LOWER
    record.vlans = ends >> _32
    record.kind = key.kind
    record.first = timestamp
    record.port = port
    start_flow(rows, slot, key.hash, state.next_id)
    state.next_id += _1
    return 2 * slot + direction


@kernel(
    _I64(
        ROWS,
        DATAGRAMS,
        KEYS,
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
    keys: NDArray[Any],
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
    state = rows.state[0]
    records = rows.records
    life = rows.life
    index = rows.places
    mask = np.uint64(len(index) - 1)
    batch = state.batch
    count = len(headers)
    stop = start
    base = start
    ahead = 0
    for at in range(start, count):
        if at == stop:
            base = at
            stop = at + BLOCK if at + BLOCK < count else count
            read_keys(data, offset, captured, headers, base, stop, state.key_0, state.key_1, 0, keys)
            for i in range(_INDEX_AHEAD if stop - base > _INDEX_AHEAD else stop - base):
                prefetch(index, keys[i].hash & mask, 0)
        ahead = at + _INDEX_AHEAD
        if ahead < stop:
            prefetch(index, keys[ahead - base].hash & mask, 0)
        ahead = at + _ROWS_AHEAD
        if ahead < stop:
            # Most keys lie at their first place. Any other row that is asked for here does no harm.
            guess = np.int64(index[keys[ahead - base].hash & mask] & _LOWER) - 1
            prefetch(life, guess, 0)
            prefetch(records, guess, 8)
            prefetch(records, guess, 60)
            prefetch(records, guess, 107)
        if mode & CREATE and 2 * (state.active + 1) > len(index):
            return at

        own = timestamp[at] + state.shift
        now = state.clock
        if own >= state.turn or own < now - STEP or own > now + STEP or state.stray != 0:
            now = observe(rows, timestamp[at])
        elif own > now:
            now = own
            state.clock = own

        slots[at] = -1
        directions[at] = 0
        events[at] = 0
        key = keys[at - base]
        if key.found == KEY_NONE:
            continue
        header = headers[at]
        if key.found == KEY_FRAGMENT:
            complete_fragment(datagrams, state, key, header.fragment_id, header.flags & LATER_FRAGMENT)
        tcp_flags = -1
        if header.protocol == TCP and header.l4 != 0:
            tcp_flags = header.tcp_flags
        event = 0
        found = lookup(
            records,
            index,
            key.hash,
            key.source_0,
            key.source_1,
            key.destination_0,
            key.destination_1,
            key.ends,
            key.kind,
        )
        if found >= 0:
            slot = found >> 1
            row = life[slot]
            if now - row.seen > rows.timeouts[row.timer]:
                end_flow(rows, slot, _TIMEOUT)
                found = -1
            elif tcp_flags & (SYN | ACK) == SYN and restarts(records[slot], life[slot], tcp_flags):
                end_flow(rows, slot, _TCP_END)
                found = -1
        if found < 0:
            if mode & CREATE == 0:
                continue
            found = _start(rows, key, tcp_flags, timestamp[at], port[at])
            if found < 0:
                continue
            event = NEW
        slot = found >> 1
        direction = found & 1
        record = records[slot]
        row = life[slot]
        row.seen = state.clock
        row.batch = batch
        if state.stray != 0:
            state.stray_slot = slot + 1
        record.last = timestamp[at]
        size = wire[at]
        if direction == 0:
            record.packets_0 += _1
            record.bytes_0 += size
        else:
            record.packets_1 += _1
            record.bytes_1 += size
        if mode & CREATE and record.bypass != 0:
            if direction == 0:
                record.bypassed_packets_0 += _1
                record.bypassed_bytes_0 += size
            else:
                record.bypassed_packets_1 += _1
                record.bypassed_bytes_1 += size
        changed = False
        if row.bits & (SEEN_0 << direction) == 0:
            row.bits |= SEEN_0 << direction
            changed = True
        if tcp_flags >= 0:
            end = np.int64(header.seq) + np.int64(header.payload_length)
            if tcp_flags & SYN:
                end += 1
            if tcp_step(record, row, direction, tcp_flags, end, np.int64(header.ack)):
                changed = True
        if changed:
            retime(rows, slot)
        if header.protocol == TCP:
            if row.bits & HANDSHAKE:
                event |= ESTABLISHED
        elif row.bits & _BOTH_SEEN == _BOTH_SEEN:
            event |= ESTABLISHED
        slots[at] = slot
        directions[at] = direction
        events[at] = event
        if mode & AUTO_UNLEARN and header.protocol == TCP and record.tcp_state == _CLOSED:
            end_flow(rows, slot, _TCP_END)
    return count
