"""The life of a flow in compiled code: packet time, timers, and how a flow starts and ends.

**Packet time** is the greatest timestamp seen. One frame alone can't move it by more than an hour either way: a time
that far off counts only for that frame's own flow until the next frame is as far off on the same side. Then packet
time jumps ahead to the nearer of the two; or, behind, it goes on from where it stands with the new timestamps (so it
never goes back, and flows never end because a clock did).

**Timers.** Each live flow stands in a wheel of one bucket a second. When packet time enters a second, the buckets up to
it are walked: a flow whose deadline (its last frame's packet time plus its timeout) lies in an earlier second ends with
TIMEOUT, another goes to the bucket of its deadline. So each flow is touched about once a timeout, not once a second.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from flowshunt.compiled import column, kernel
from flowshunt.flows.key import TCP, UDP
from flowshunt.flows.layout import (
    FLOW_WORDS,
    HANDSHAKE,
    LIFE,
    SECOND,
    SEEN_0,
    STATE,
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
_U64 = types.uint64

_ICMP = 1
_ICMPV6 = 58

_CLOSED = int(TcpState.CLOSED)
_LOCAL = int(Bypass.LOCAL)
_CAPTURE = int(Bypass.CAPTURE)
_TIMEOUT = int(EndReason.TIMEOUT)
_BOTH_SEEN = SEEN_0 * 3

STEP = 3600 * SECOND
"""How far one frame alone can move packet time, in ns."""
_LATEST = (1 << 62) - 1
ID_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_32 = np.uint64(32)


class Rows(NamedTuple):
    """The arrays of a flow table, as kernels take them. All but the indices and the last three have a place a row."""

    records: NDArray[Any]
    life: NDArray[Any]
    hashes: NDArray[np.uint32]
    """The hash of each row's key."""
    spare: NDArray[np.int32]
    """From the front, the stack of free rows; from the back, the list of rows whose flows have ended."""
    places: NDArray[np.uint64]
    """From hashes of keys to rows."""
    ids: NDArray[np.uint64]
    """From hashes of flow ids to rows."""
    wheel: NDArray[np.int32]
    """The first row of each bucket, + 1."""
    timeouts: NDArray[np.int64]
    """In ns, by timer."""
    state: NDArray[Any]


ROWS = types.NamedTuple(
    [
        column(FLOW_WORDS),
        column(LIFE),
        column(np.uint32),
        column(np.int32),
        INDEX,
        INDEX,
        column(np.int32),
        column(np.int64),
        column(STATE),
    ],
    Rows,
)


@kernel(types.void(ROWS, _I64, types.boolean), entry=False)
def schedule(rows: Rows, slot: int, live: bool) -> None:
    """Take a flow out of the bucket that it is in; a live one then goes into the bucket of its deadline."""
    life = rows.life
    row = life[slot]
    if row.bucket != 0:
        if row.after != 0:
            life[row.after - 1].before = row.before
        if row.before != 0:
            life[row.before - 1].after = row.after
        else:
            rows.wheel[row.bucket - 1] = row.after
        row.bucket = 0
    if live:
        next_second = rows.state[0].turn // SECOND
        due = (row.seen + rows.timeouts[row.timer]) // SECOND + 1
        if due < next_second:
            due = next_second
        elif due > next_second + (WHEEL - 2):
            due = next_second + (WHEEL - 2)
        due &= WHEEL - 1
        if row.timer == TIMER_NEVER:
            due = WHEEL
        head = rows.wheel[due]
        row.after = head
        row.before = 0
        row.bucket = due + 1
        if head != 0:
            life[head - 1].before = slot + 1
        rows.wheel[due] = slot + 1


@kernel(types.void(ROWS, _I64), entry=False)
def retime(rows: Rows, slot: int) -> None:
    """Choose a flow's timer by its protocol, state and bypass, and schedule it where that changes."""
    record = rows.records[slot]
    row = rows.life[slot]
    protocol = record.kind & 0xFF
    if record.bypass == _CAPTURE:
        timer = TIMER_NEVER
    elif record.bypass == _LOCAL:
        timer = TIMER_BYPASSED
    elif protocol == TCP:
        timer = TIMER_TCP_NEW
        if record.tcp_state == _CLOSED:
            timer = TIMER_TCP_CLOSED
        elif row.bits & HANDSHAKE:
            timer = TIMER_TCP_ESTABLISHED
    else:
        timer = TIMER_OTHER_NEW
        if protocol == UDP:
            timer = TIMER_UDP_NEW
        elif protocol == _ICMP or protocol == _ICMPV6:  # noqa: PLR1714, SIM109
            timer = TIMER_ICMP_NEW
        if row.bits & _BOTH_SEEN == _BOTH_SEEN:
            timer += 1
    if timer != row.timer or row.bucket == 0:
        row.timer = timer
        schedule(rows, slot, True)


@kernel(_U64(_U64), inline=True, entry=False)
def id_hash(number: Any) -> Any:
    """The hash of a flow id in the index of ids."""
    return (number * ID_FACTOR) >> _32


@kernel(types.void(ROWS, _I64, _U64, _U64), entry=False)
def start_flow(rows: Rows, slot: int, key: Any, number: Any) -> None:
    """Bring a row whose key and state are set into the table. `key`: its hash, `number`: its id."""
    rows.records[slot].id = number
    rows.hashes[slot] = key
    index_put(rows.places, key, slot)
    state = rows.state[0]
    if state.by_id:
        index_put(rows.ids, id_hash(number), slot)
    rows.life[slot].seen = state.clock
    retime(rows, slot)
    state.active += 1
    state.created += 1


@kernel(types.void(ROWS, _I64, _I64), entry=False)
def end_flow(rows: Rows, slot: int, reason: int) -> None:
    """End a live flow: out of the indices and the wheel, into the list of ended flows."""
    record = rows.records[slot]
    state = rows.state[0]
    index_drop(rows.places, np.uint64(rows.hashes[slot]), slot)
    if state.by_id:
        index_drop(rows.ids, id_hash(record.id), slot)
    schedule(rows, slot, False)
    record.end_reason = reason
    state.ended += 1
    rows.spare[len(rows.spare) - state.ended] = slot
    state.active -= 1
    state.ended_by[reason] += 1


@kernel(_I64(ROWS, _I64), entry=False)
def observe(rows: Rows, timestamp: int) -> int:
    """Take a timestamp into packet time and end what it makes idle. Returns the frame's own time, at least the clock's.

    Where `stray` is set after it, the caller notes the frame's row in `stray_slot`.
    """
    state = rows.state[0]
    life = rows.life
    if timestamp < 0:
        timestamp = 0
    elif timestamp > _LATEST:
        timestamp = _LATEST
    clock = state.clock
    own = timestamp + state.shift
    if own > _LATEST:  # noqa: PLR1730
        own = _LATEST
    stray = 0
    if state.started == 0:
        state.started = 1
        clock = timestamp
        for slot in range(state.high):  # flows that were inserted before count from now on
            life[slot].seen = timestamp
    elif own > clock + STEP:
        if state.stray == 1:
            before = state.stray_time + state.shift
            clock = before if before < own else own
            if state.stray_slot != 0:
                life[state.stray_slot - 1].seen = clock
        else:
            stray = 1
    elif own < clock - STEP:
        if state.stray == -1:
            nearer = state.stray_time if state.stray_time > timestamp else timestamp
            state.shift = clock - nearer
        else:
            stray = -1
    elif own > clock:
        clock = own
    state.clock = clock
    state.stray = stray
    state.stray_slot = 0
    state.stray_time = timestamp
    if clock >= state.turn:
        first = state.turn // SECOND
        second = clock // SECOND
        state.turn = (second + 1) * SECOND
        if first <= second - WHEEL:
            first = second - WHEEL + 1
        for passed in range(first, second + 1):
            at = rows.wheel[passed & (WHEEL - 1)]
            while at != 0:
                slot = at - 1
                row = life[slot]
                at = row.after
                if (row.seen + rows.timeouts[row.timer]) // SECOND < second:
                    end_flow(rows, slot, _TIMEOUT)
                else:
                    schedule(rows, slot, True)
    return own if own > clock else clock
