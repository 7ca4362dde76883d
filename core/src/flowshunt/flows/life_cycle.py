"""The life of a flow in compiled code: packet time, timers, TCP state, and how a flow starts and ends.

**Packet time** is the greatest timestamp seen. One frame alone can't move it by more than an hour either way: a time
that far off counts only for that frame's own flow until the next frame is as far off on the same side. Then packet
time jumps ahead to the nearer of the two; or, behind, it goes on from where it stands with the new timestamps (so it
never goes back, and flows never end because a clock did).

**Timers.** Each live flow stands in a wheel of one bucket a second. When packet time enters a second, the buckets up to
it are walked: a flow whose deadline (its last frame's packet time plus its timeout) lies in an earlier second ends with
TIMEOUT, another goes to the bucket of its deadline. So each flow is touched about once a timeout, not once a second.

**TCP** is followed from the middle. SYN, SYN-ACK and the initiator's ACK make the handshake; a FIN starts CLOSING, and
CLOSED is reached when both FINs are acknowledged, or by RST (whose sequence number is not checked).
"""

from typing import Any, NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from flowshunt.compiled import column, kernel
from flowshunt.flows.key import TCP, flow_hash
from flowshunt.flows.layout import (
    ACKED_0,
    ACTIVE,
    CLOCK,
    CREATED,
    ENDED,
    ENDED_BY,
    FIN_0,
    FLOW_WORDS,
    HANDSHAKE,
    HIGH,
    IDS,
    KEY_0,
    KEY_1,
    LIFE,
    SECOND,
    SEEN_0,
    SHIFT,
    STARTED,
    STRAY,
    STRAY_SLOT,
    STRAY_TIME,
    TICK,
    TIMER_BYPASSED,
    TIMER_ICMP_NEW,
    TIMER_NEVER,
    TIMER_OTHER_NEW,
    TIMER_TCP_CLOSED,
    TIMER_TCP_ESTABLISHED,
    TIMER_TCP_NEW,
    TIMER_UDP_NEW,
    WHEEL,
)
from flowshunt.flows.record import Bypass, EndReason, TcpState
from flowshunt.flows.slot_index import INDEX, index_drop, index_put

_I64 = types.int64
_U8 = types.uint8

_UDP = 17
_ICMP = 1
_ICMPV6 = 58

_FIN = 1
_SYN = 2
_RST = 4
_ACK = 16

_NONE = int(TcpState.NONE)
_SYN_SENT = int(TcpState.SYN_SENT)
_SYN_RECEIVED = int(TcpState.SYN_RECEIVED)
_ESTABLISHED = int(TcpState.ESTABLISHED)
_CLOSING = int(TcpState.CLOSING)
_CLOSED = int(TcpState.CLOSED)
_LOCAL = int(Bypass.LOCAL)
_CAPTURE = int(Bypass.CAPTURE)
_TIMEOUT = int(EndReason.TIMEOUT)

_STEP = 3600 * SECOND
_LATEST = (1 << 62) - 1


class Rows(NamedTuple):
    """The arrays of a flow table, as kernels take them."""

    records: NDArray[Any]
    life: NDArray[Any]
    index: NDArray[np.uint64]
    ids: NDArray[np.uint64]
    wheel: NDArray[np.uint32]
    free: NDArray[np.int32]
    ended: NDArray[np.int32]
    timeouts: NDArray[np.int64]
    state: NDArray[np.int64]


ROWS = types.NamedTuple(
    [
        column(FLOW_WORDS),
        column(LIFE),
        INDEX,
        INDEX,
        column(np.uint32),
        column(np.int32),
        column(np.int32),
        column(np.int64),
        column(np.int64),
    ],
    Rows,
)


@kernel(types.uint32(ROWS, _I64), entry=False)
def record_hash(rows: Rows, slot: int) -> Any:
    """The hash of a record's key."""
    record = rows.records[slot]
    return flow_hash(
        np.uint64(rows.state[KEY_0]),
        np.uint64(rows.state[KEY_1]),
        record.source_0,
        record.source_1,
        record.destination_0,
        record.destination_1,
        np.uint64(record.ports) | (np.uint64(record.vlans) << np.uint64(32)),
        np.uint64(record.kind),
    )


@kernel(types.uint32(types.uint64), inline=True, entry=False)
def id_hash(number: Any) -> Any:
    """Where a flow id lies in the index of ids."""
    word = number * np.uint64(0x9E3779B97F4A7C15)
    return np.uint32(word >> np.uint64(32))


@kernel(types.void(ROWS, _I64), inline=True, entry=False)
def _unlink(rows: Rows, slot: int) -> None:
    row = rows.life[slot]
    if row.after != 0:
        rows.life[np.int64(row.after) - 1].before = row.before
    if row.before != 0:
        rows.life[np.int64(row.before) - 1].after = row.after
    else:
        rows.wheel[np.int64(row.bucket) - 1] = row.after
    row.bucket = np.uint16(0)


@kernel(types.void(ROWS, _I64), entry=False)
def schedule(rows: Rows, slot: int) -> None:
    """Put a live flow into the bucket of its deadline, out of the one that it is in."""
    row = rows.life[slot]
    if row.bucket != 0:
        _unlink(rows, slot)
    tick = rows.state[TICK]
    due = (row.seen + rows.timeouts[row.timer]) // SECOND + 1
    due = min(max(due, tick + 1), tick + WHEEL - 1)
    bucket = due & (WHEEL - 1)
    head = rows.wheel[bucket]
    row.after = head
    row.before = np.uint32(0)
    row.bucket = np.uint16(bucket + 1)
    if head != 0:
        rows.life[np.int64(head) - 1].before = np.uint32(slot + 1)
    rows.wheel[bucket] = np.uint32(slot + 1)


@kernel(types.void(ROWS, _I64), entry=False)
def retime(rows: Rows, slot: int) -> None:
    """Choose a flow's timer by its protocol, state and bypass, and schedule it where that changes."""
    record = rows.records[slot]
    row = rows.life[slot]
    protocol = np.int64(record.kind) & 0xFF
    both = (np.int64(row.bits) // SEEN_0) & 3 == 3
    if record.bypass == _CAPTURE:
        timer = TIMER_NEVER
    elif record.bypass == _LOCAL:
        timer = TIMER_BYPASSED
    elif protocol == TCP:
        if record.tcp_state == _CLOSED:
            timer = TIMER_TCP_CLOSED
        else:
            timer = TIMER_TCP_ESTABLISHED if row.bits & HANDSHAKE else TIMER_TCP_NEW
    else:
        if protocol == _UDP:
            timer = TIMER_UDP_NEW
        else:
            timer = TIMER_ICMP_NEW if protocol in (_ICMP, _ICMPV6) else TIMER_OTHER_NEW
        if both:
            timer += 1
    if timer != row.timer or row.bucket == 0:
        row.timer = np.uint8(timer)
        schedule(rows, slot)


@kernel(types.void(ROWS, _I64, _I64), entry=False)
def end_flow(rows: Rows, slot: int, reason: int) -> None:
    """End a live flow: out of the indices and the wheel, into the list of ended flows."""
    record = rows.records[slot]
    index_drop(rows.index, record_hash(rows, slot), slot)
    if rows.state[IDS]:
        index_drop(rows.ids, id_hash(record.id), slot)
    _unlink(rows, slot)
    record.end_reason = np.uint8(reason)
    rows.ended[rows.state[ENDED]] = slot
    rows.state[ENDED] += 1
    rows.state[ACTIVE] -= 1
    rows.state[ENDED_BY + reason] += 1


@kernel(types.void(ROWS, _I64), entry=False)
def _turn(rows: Rows, second: int) -> None:
    """Turn the wheel up to a second."""
    first = max(rows.state[TICK] + 1, second - WHEEL + 1)
    rows.state[TICK] = second
    for passed in range(first, second + 1):
        bucket = passed & (WHEEL - 1)
        at = np.int64(rows.wheel[bucket])
        while at != 0:
            slot = at - 1
            row = rows.life[slot]
            at = np.int64(row.after)
            if (row.seen + rows.timeouts[row.timer]) // SECOND < second:
                end_flow(rows, slot, _TIMEOUT)
            else:
                schedule(rows, slot)


@kernel(_I64(ROWS, _I64))
def observe(rows: Rows, timestamp: int) -> int:
    """Take a timestamp into packet time and end what it makes idle. Returns the frame's own time, at least the clock's.

    The caller notes the frame's row in STRAY_SLOT where STRAY is set.
    """
    state = rows.state
    timestamp = min(max(timestamp, 0), _LATEST)
    if state[STARTED] == 0:
        state[STARTED] = 1
        state[CLOCK] = timestamp
        state[TICK] = timestamp // SECOND
        for slot in range(state[HIGH]):  # flows that were inserted before the first frame
            if rows.life[slot].bucket != 0:
                rows.life[slot].seen = timestamp
                schedule(rows, slot)
        return timestamp
    clock = state[CLOCK]
    own = min(timestamp + state[SHIFT], _LATEST)
    stray = 0
    if own > clock + _STEP:
        if state[STRAY] == 1:
            state[CLOCK] = min(own, state[STRAY_TIME] + state[SHIFT], _LATEST)
            stray_slot = state[STRAY_SLOT] - 1
            if stray_slot >= 0:
                rows.life[stray_slot].seen = state[CLOCK]
        else:
            stray = 1
    elif own < clock - _STEP:
        if state[STRAY] == -1:
            state[SHIFT] = clock - max(timestamp, state[STRAY_TIME])
        else:
            stray = -1
    else:
        state[CLOCK] = max(clock, own)
    state[STRAY] = stray
    state[STRAY_SLOT] = 0
    if stray != 0:
        state[STRAY_TIME] = timestamp
    second = state[CLOCK] // SECOND
    if second > state[TICK]:
        _turn(rows, second)
    return max(own, state[CLOCK])


@kernel(types.boolean(ROWS, _I64, _I64), inline=True, entry=False)
def restarts(rows: Rows, slot: int, tcp_flags: int) -> bool:
    """Whether a TCP frame starts a connection anew on its tuple: a SYN where the last one was reset, has closed (the
    last acknowledgement may be missing) or was never seen to open."""
    if tcp_flags & (_SYN | _ACK | _RST | _FIN) != _SYN:
        return False
    tcp_state = rows.records[slot].tcp_state
    fins = np.int64(rows.life[slot].bits) & (FIN_0 * 3)
    return tcp_state in (_NONE, _CLOSED) or fins == FIN_0 * 3


@kernel(types.void(ROWS, _I64, _I64, _I64, types.uint32, types.uint32), entry=False)
def tcp_step(rows: Rows, slot: int, direction: int, tcp_flags: int, end: Any, ack: Any) -> None:
    """Take one TCP header into a flow's state. `end`: the sequence number after the segment's payload."""
    record = rows.records[slot]
    row = rows.life[slot]
    bits = np.int64(row.bits)
    state = np.int64(record.tcp_state)
    if direction == 0:
        record.tcp_flags_0 |= np.uint8(tcp_flags)
    else:
        record.tcp_flags_1 |= np.uint8(tcp_flags)
    if tcp_flags & _RST:
        state = _CLOSED
    else:
        if state == _SYN_SENT and direction == 1 and tcp_flags & _SYN:
            state = _SYN_RECEIVED
        elif state == _SYN_RECEIVED and direction == 0 and tcp_flags & _ACK:
            state = _ESTABLISHED
            bits |= HANDSHAKE
        if tcp_flags & _FIN:
            bits |= FIN_0 << direction
            after = end + np.uint32(1)
            if direction == 0:
                row.fin_0 = after
            else:
                row.fin_1 = after
        if tcp_flags & _ACK and bits & (FIN_0 << (1 - direction)):
            fin = row.fin_1 if direction == 0 else row.fin_0
            if np.int32(ack - fin) >= 0:
                bits |= ACKED_0 << (1 - direction)
        if bits & (ACKED_0 * 3) == ACKED_0 * 3:
            state = _CLOSED
        elif state in (_NONE, _ESTABLISHED) and bits & (FIN_0 * 3):
            state = _CLOSING
    if state != record.tcp_state or bits != row.bits:
        record.tcp_state = np.uint8(state)
        row.bits = np.uint8(bits)
        retime(rows, slot)


@kernel(types.void(ROWS, _I64, types.uint32, types.uint64), entry=False)
def start_flow(rows: Rows, slot: int, key: Any, number: Any) -> None:
    """Bring a row whose key and first frame are set into the table: indices, wheel, counters."""
    rows.records[slot].id = number
    index_put(rows.index, key, slot)
    if rows.state[IDS]:
        index_put(rows.ids, id_hash(number), slot)
    retime(rows, slot)
    rows.state[ACTIVE] += 1
    rows.state[CREATED] += 1
