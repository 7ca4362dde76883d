"""From a packet that belongs to a stream to what others read: its payload kept, acknowledged data handed on."""

# ruff: noqa: PLR1714, SIM102, SIM109 -- kernels compare scalars

from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from flowshunt.compiled import BYTES, kernel
from flowshunt_ids.events import number
from flowshunt_ids.layout import (
    SEGMENT_END,
    SEGMENT_ESTABLISHED,
    SEGMENT_GAP,
    SEGMENT_MIDSTREAM,
    SEGMENT_TO_CLIENT,
    SIDE_APP,
    SIDE_DEPTH,
    SIDE_ENDED,
    SIDE_GAP,
    SIDE_KEEPS,
    SIDE_NEWS,
    SIDE_RESET,
    SIDE_STREAM,
    TCP_CLOSED,
    TCP_CLOSING,
    TCP_ESTABLISHED,
    TCP_FIN_WAIT_1,
    TCP_TIME_WAIT,
)
from flowshunt_ids.streams.checks import (
    COMPARE_OVERLAPS,
    DEPTH,
    IS_LOSSY,
    IS_MIDSTREAM,
    IS_RESET,
    SESSIONS,
    SETTINGS,
    SIDES,
    URGENT_GAP,
    URGENT_INLINE,
    URGENT_OUT_OF_BAND,
    URGENT_POLICY,
)
from flowshunt_ids.streams.packet import (
    ACK,
    FAST_OPEN,
    FIN,
    FLAGS,
    LENGTH,
    PACKET,
    RST,
    SEQ,
    SOURCE,
    SYN,
    URG,
    URGENT,
    ahead,
    note,
    wrap,
)
from flowshunt_ids.streams.pool import DEPTH_REACHED, GAPS, POOL, Pool
from flowshunt_ids.streams.reassembly import (
    DIFFERENT,
    FULL,
    MANY,
    OUTPUT,
    Output,
    add_mark,
    add_segment,
    insert,
    prune,
    read,
)

_I64 = types.int64
_MOST_URGENT = 65535
_KEPT_TO_COMPARE = 4096

_DEPTH = number("stream.reassembly_depth_reached")
_GAP = number("stream.reassembly_seq_gap")
_NO_MEMORY = number("stream.reassembly_insert_memcap")
_TOO_MANY = number("stream.reassembly_insert_limit")
_DIFFERS = number("stream.reassembly_overlap_different_data")
_TOO_URGENT = number("stream.reassembly_urgent_oob_limit_reached")


@kernel(_I64(SESSIONS, _I64), entry=False)
def marks_of(sessions: NDArray[Any], side: int) -> Any:
    """The marks of a side's data: whose it is, and whether the connection counts as established."""
    session = sessions[side >> 1]
    marks = np.int64(SEGMENT_ESTABLISHED if session.tcp >= TCP_ESTABLISHED else 0)
    return marks | (SEGMENT_TO_CLIENT if (side ^ np.int64(session.client)) & 1 else 0)


@kernel(types.void(POOL, SESSIONS, SIDES, PACKET, _I64, _I64, types.boolean, OUTPUT), entry=False)
def hand_on(
    pool: Pool,
    sessions: NDArray[Any],
    sides: NDArray[Any],
    packet: NDArray[np.int64],
    side: int,
    row: int,
    last: bool,
    app: Output,
) -> None:
    """Give a side's acknowledged data to its parser, as segments of `app` with marks for holes and the end.

    last: the flow ends, and what is not acknowledged counts as well. A hole is passed once it is acknowledged. A reset
    that may be forged ends nothing yet.
    """
    me = sides[side]
    if not me.flags & SIDE_APP or me.flags & SIDE_ENDED:
        return
    session = sessions[side >> 1]
    state = session.tcp
    slot = side >> 1
    limit: Any = np.int64(me.right)
    everything = last and (state < TCP_CLOSED or session.stream & IS_RESET != 0)
    if not everything and ahead(me.acked, limit) < 0:
        limit = np.int64(me.acked)
    at: Any = np.int64(me.parsed)
    if ahead(limit, at) > 0:
        marks = marks_of(sessions, side)
        if session.stream & IS_MIDSTREAM:
            marks |= SEGMENT_MIDSTREAM
        seen = wrap(np.int64(me.acked) - (1 if state >= TCP_FIN_WAIT_1 else 0))
        while ahead(limit, at) > 0:
            first = app.counts[1]
            length, following = read(pool, sides, side, at, limit, app)
            add_segment(app, first, row, slot, 0, 0, length, marks)
            at = wrap(at + length)
            if ahead(following, limit) > 0:
                following = limit
            hole = min(ahead(following, at), ahead(seen, at))
            if hole <= 0:
                break
            add_mark(app, row, slot, hole, marks | SEGMENT_GAP)
            me.flags |= SIDE_GAP
            session.stream |= IS_LOSSY
            pool.state[GAPS] += 1
            if row >= 0:
                note(packet, _GAP)
            at = wrap(at + hole)
        me.parsed = at
        me.flags |= SIDE_NEWS
    doubtful = (me.flags | sides[side ^ 1].flags) & SIDE_RESET
    closed = state == TCP_CLOSED or (state >= TCP_CLOSING and ahead(me.right, at) <= 0)
    if last or me.flags & SIDE_DEPTH or (closed and not doubtful):
        add_mark(app, row, slot, 0, marks_of(sessions, side) | SEGMENT_END)
        me.flags |= SIDE_ENDED | SIDE_NEWS


@kernel(_I64(SIDES, PACKET, _I64, _I64, _I64, SETTINGS), entry=False)
def _within_depth(
    sides: NDArray[Any], packet: NDArray[np.int64], side: int, seq: int, length: int, settings: NDArray[np.int64]
) -> Any:
    """How much of a segment is kept: all of it, or nothing once it would end beyond the reassembly depth."""
    depth = settings[DEPTH]
    if depth == 0:
        return length
    me = sides[side]
    if me.flags & SIDE_DEPTH:
        return 0
    kept = ahead(me.base, me.start) & 0xFFFFFFFF
    if kept + ahead(wrap(seq + length), me.base) > depth:
        me.flags |= SIDE_DEPTH
        return 0
    return length


@kernel(types.boolean(POOL, SESSIONS, SIDES, PACKET, _I64, SETTINGS, BYTES, BYTES), entry=False)
def _keep(
    pool: Pool,
    sessions: NDArray[Any],
    sides: NDArray[Any],
    packet: NDArray[np.int64],
    side: int,
    settings: NDArray[np.int64],
    data: NDArray[np.uint8],
    extra: NDArray[np.uint8],
) -> bool:
    """Keep a packet's payload, but for urgent bytes and what is too much; False: there was no memory."""
    session, length = sessions[side >> 1], packet[LENGTH]
    urgent = np.int64(session.urgent[side & 1])
    seq: Any = wrap(packet[SEQ] - urgent)
    policy = settings[URGENT_POLICY]
    if packet[FLAGS] & URG and policy != URGENT_INLINE and 0 < packet[URGENT] <= length:
        if urgent < _MOST_URGENT:
            if policy == URGENT_OUT_OF_BAND:
                session.urgent[side & 1] = urgent + 1
                if urgent + 1 == _MOST_URGENT:
                    note(packet, _TOO_URGENT)
        if policy == URGENT_GAP or urgent < _MOST_URGENT:
            length -= 1
        if length == 0:
            return True
    if packet[FLAGS] & SYN and packet[FAST_OPEN]:
        seq = wrap(seq + 1)
    kept = _within_depth(sides, packet, side, seq, length, settings)
    if sides[side].flags & SIDE_DEPTH:
        note(packet, _DEPTH)
    if kept <= 0 or not sides[side].flags & SIDE_KEEPS:
        return True
    done = insert(pool, sides, side, seq, kept, packet[SOURCE], settings[COMPARE_OVERLAPS] != 0, data, extra)
    if done == DIFFERENT:
        note(packet, _DIFFERS)
    elif done == FULL or done == MANY:
        note(packet, _NO_MEMORY if done == FULL else _TOO_MANY)
        session.stream |= IS_LOSSY
        return False
    return True


@kernel(types.boolean(POOL, SESSIONS, SIDES, PACKET, _I64, _I64, SETTINGS, BYTES, BYTES, OUTPUT), entry=False)
def take_data(
    pool: Pool,
    sessions: NDArray[Any],
    sides: NDArray[Any],
    packet: NDArray[np.int64],
    side: int,
    row: int,
    settings: NDArray[np.int64],
    data: NDArray[np.uint8],
    extra: NDArray[np.uint8],
    app: Output,
) -> bool:
    """A packet that belongs to a connection: what it acknowledges is handed on, its payload is kept.

    Returns whether its payload went into the stream (if it has any).
    """
    flags = packet[FLAGS]
    state = sessions[side >> 1].tcp
    others, mine = True, False
    if flags & RST:
        others, mine = False, True
    elif flags & FIN and state > TCP_TIME_WAIT:
        others, mine = flags & ACK != 0, True
    elif state == TCP_CLOSED:
        mine = True
    if others:
        hand_on(pool, sessions, sides, packet, side ^ 1, row, False, app)
    added = False
    if packet[LENGTH] > 0 and not flags & RST:
        reached = sides[side].flags & SIDE_DEPTH
        added = _keep(pool, sessions, sides, packet, side, settings, data, extra)
        if sides[side].flags & SIDE_DEPTH and not reached:
            pool.state[DEPTH_REACHED] += 1
        mine = mine or sides[side].flags & SIDE_DEPTH != 0
    if mine:
        hand_on(pool, sessions, sides, packet, side, row, False, app)
    return added


@kernel(types.void(POOL, SIDES, _I64, SETTINGS), entry=False)
def drop_read(pool: Pool, sides: NDArray[Any], side: int, settings: NDArray[np.int64]) -> None:
    """Drop what nothing reads any more: it is acknowledged, inspected and handed on.

    Where overlaps are compared, a window of it stays: bytes may be forged after others were acknowledged.
    """
    me = sides[side]
    left: Any = np.int64(me.acked)
    if not me.flags & SIDE_STREAM:
        me.seen = me.acked
    elif ahead(me.seen, left) < 0:
        left = np.int64(me.seen)
    if me.flags & SIDE_APP and not me.flags & SIDE_ENDED and ahead(me.parsed, left) < 0:
        left = np.int64(me.parsed)
    if settings[COMPARE_OVERLAPS]:
        window = np.int64(me.window)
        left -= window if window else _KEPT_TO_COMPARE
    prune(pool, sides, side, left)
