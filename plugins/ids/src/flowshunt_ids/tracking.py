"""One pass over a batch: follow every packet's flow, and collect what is to be inspected as segments."""

# ruff: noqa: PLR1714, SIM102 -- kernels compare scalars

from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from flowshunt.compiled import BYTES, column, kernel
from flowshunt.engine import DROPPED, SKIPPED
from flowshunt.packets.headers import FRAGMENT, HEADER
from flowshunt.prefetch import prefetch
from flowshunt_ids.layout import (
    EVENT,
    GROUP,
    GROUP_DROP,
    GROUP_PASS,
    GROUP_PAYLOAD,
    GROUP_RULES,
    PACKETS,
    ROW_ADDED,
    ROW_ESTABLISHED,
    ROW_FIRST,
    ROW_PASSED,
    SEGMENT_CHUNK,
    SEGMENT_DATAGRAM,
    SEGMENT_ESTABLISHED,
    SEGMENT_LOOK,
    SEGMENT_PACKET,
    SEGMENT_STREAM,
    SEGMENT_TO_CLIENT,
    SESSION,
    SESSION_BYPASSED,
    SESSION_IDLE,
    SESSION_KNOWN,
    SESSION_MESSAGES,
    SESSION_QUIET,
    SIDE,
    SIDE_APP,
    SIDE_DEPTH,
    SIDE_FIRST,
    SIDE_KEEPS,
    SIDE_NEWS,
    SIDE_STREAM,
    SIDE_TOUCHED,
    SIDE_TRIGGER,
    TCP_ESTABLISHED,
    TCP_TIME_WAIT,
    Packets,
)
from flowshunt_ids.streams.checks import CHUNK_TO_SERVER, STREAM_BYPASS
from flowshunt_ids.streams.delivery import drop_read, hand_on, marks_of, take_data
from flowshunt_ids.streams.handshake import DATA, begins_anew, forget_queue, renew
from flowshunt_ids.streams.packet import (
    ACK,
    ESTABLISHED,
    EVENTS,
    FIN,
    FIRST_EVENT,
    FLAGS,
    PACKET,
    RST,
    SYN,
    ahead,
    read_packet,
)
from flowshunt_ids.streams.pool import POOL, Pool
from flowshunt_ids.streams.reassembly import (
    OUTPUT,
    Output,
    add_mark,
    add_piece,
    add_segment,
    forget,
    inspect_pending,
)
from flowshunt_ids.streams.tcp import follow

_I64 = types.int64
_SIDES = column(SIDE)
_SESSIONS = column(SESSION)
_HEADERS = column(HEADER, readonly=True)
_TCP = 6
_EVENTS = column(EVENT)
_AHEAD = 8
"""Packets ahead whose flow's memory is asked for."""


@kernel(types.boolean(_SESSIONS, _SIDES, _I64, _I64), inline=True, entry=False)
def _due(sessions: NDArray[Any], sides: NDArray[Any], side: int, chunk: int) -> bool:
    """Whether a side's raw data is inspected with its packet at hand."""
    me = sides[side]
    if me.head < 0 or me.seen == me.right:
        return False
    ready = ahead(me.acked, me.seen)
    if me.flags & (SIDE_DEPTH | SIDE_TRIGGER) or sessions[side >> 1].tcp > TCP_TIME_WAIT:
        return bool(ready > 0)
    return bool(ready >= chunk)


@kernel(types.boolean(BYTES, _I64, _I64), entry=False)
def _begins_http(data: NDArray[np.uint8], at: int, length: int) -> bool:
    """Whether a client's first bytes are the begin of an HTTP request: a method in capitals, then a blank."""
    if length < 8 or at < 0 or at + 8 > len(data):
        return False
    word = np.uint32(0)
    for step in range(4):
        word = (word << np.uint32(8)) | np.uint32(data[at + step])
    return bool(
        word == 0x47455420  # "GET "
        or word == 0x504F5354  # "POST"
        or word == 0x48454144  # "HEAD"
        or word == 0x50555420  # "PUT "
        or word == 0x4F505449  # "OPTI"
        or word == 0x44454C45  # "DELE"
        or word == 0x434F4E4E  # "CONN"
        or word == 0x50415443  # "PATC"
        or word == 0x54524143  # "TRAC"
    )


@kernel(
    types.void(POOL, column(GROUP, readonly=True), _SESSIONS, _SIDES, PACKET, _I64, OUTPUT, OUTPUT, _I64), entry=False
)
def _flush(
    pool: Pool,
    groups: NDArray[Any],
    sessions: NDArray[Any],
    sides: NDArray[Any],
    packet: NDArray[np.int64],
    slot: int,
    out: Output,
    app: Output,
    row: int,
) -> None:
    """Give out what a connection that ended has pending, acknowledged or not."""
    for side in range(2 * slot, 2 * slot + 2):
        if not sides[side].flags & SIDE_KEEPS:
            continue
        marks = marks_of(sessions, side)
        hand_on(pool, sessions, sides, packet, side, row, True, app)
        if sides[side].flags & SIDE_STREAM:
            scan = groups[sides[side].group].stream_scan
            inspect_pending(pool, sides, side, True, out, row, scan, marks | SEGMENT_STREAM | SEGMENT_CHUNK)
        forget(pool, sides, side)
    for side in range(2 * slot, 2 * slot + 2):
        if sides[side].flags & SIDE_APP:
            add_mark(app, row, slot, 0, marks_of(sessions, side) | SEGMENT_LOOK)


@kernel(
    types.UniTuple(_I64, 2)(
        POOL, column(GROUP, readonly=True), _SESSIONS, _SIDES, PACKET, PACKETS, _I64, _I64, _I64,
        column(np.int64, readonly=True), OUTPUT, OUTPUT, _EVENTS, _I64,
    ),
    entry=False,
)  # fmt: skip
def _track_tcp(
    pool: Pool,
    groups: NDArray[Any],
    sessions: NDArray[Any],
    sides: NDArray[Any],
    packet: NDArray[np.int64],
    packets: Packets,
    row: int,
    side: int,
    time: int,
    settings: NDArray[np.int64],
    out: Output,
    app: Output,
    events: NDArray[Any],
    event_count: int,
) -> Any:
    """Follow one TCP packet. Returns its row flags, and how many events there are then."""
    base = packets.offset[row]
    end = base + np.int64(packets.captured[row])
    read_packet(packet, packets.headers, row, packets.data, base, end, time)
    session = side >> 1
    if packet[FLAGS] & (SYN | ACK | RST | FIN) == SYN and begins_anew(sessions, sides, packet, side):
        _flush(pool, groups, sessions, sides, packet, session, out, app, -1)
        renew(pool, sessions, sides, session)
    flags = ROW_ESTABLISHED if sessions[session].tcp >= TCP_ESTABLISHED else 0
    if follow(pool, sessions, sides, packet, side, settings) == DATA:
        if take_data(pool, sessions, sides, packet, side, row, settings, packets.data, packets.extra, app):
            flags |= ROW_ADDED
            length = np.int64(packets.headers[row].payload_length)
            client = (side ^ np.int64(sessions[session].client)) & 1 == 0
            if client and packets.headers[row].seq == sides[side].start:
                if _begins_http(packets.data, base + np.int64(packets.headers[row].payload), length):
                    sessions[session].flags |= SESSION_MESSAGES
            elif sessions[session].flags & SESSION_MESSAGES:
                sides[side ^ 1].flags |= SIDE_TRIGGER
    if packet[ESTABLISHED]:
        flags |= ROW_ESTABLISHED
    for number in range(packet[EVENTS]):
        if event_count < len(events):
            events[event_count].row = row
            events[event_count].event = packet[FIRST_EVENT + number]
            event_count += 1
    return flags, event_count


@kernel(types.void(_HEADERS, OUTPUT, _I64, _I64, _I64, _I64, _I64, _I64), inline=True, entry=False)
def _whole_payload(
    headers: NDArray[Any], out: Output, row: int, base: int, slot: int, group: int, scan: int, flags: int
) -> None:
    """A packet's payload as a segment."""
    first = out.counts[1]
    length = np.int64(headers[row].payload_length)
    if add_piece(out, base + np.int64(headers[row].payload), length, 0):
        add_segment(out, first, row, slot, group, scan, length, flags)


@kernel(
    _I64(
        POOL,
        column(GROUP, readonly=True),
        _SESSIONS,
        _SIDES,
        OUTPUT,
        OUTPUT,
        PACKETS,
        column(np.int32, readonly=True),
        column(np.uint8, readonly=True),
        column(np.int32),
        column(np.uint8),
        column(np.uint8),
        column(np.int32),
        column(np.int32),
        column(np.int32, readonly=True),
        column(np.int64, readonly=True),
        column(np.int64, readonly=True),
        PACKET,
        _EVENTS,
    )
)
def track(
    pool: Pool,
    groups: NDArray[Any],
    sessions: NDArray[Any],
    sides: NDArray[Any],
    out: Output,
    app: Output,
    packets: Packets,
    slot: NDArray[np.int32],
    direction: NDArray[np.uint8],
    row_group: NDArray[np.int32],
    row_flags: NDArray[np.uint8],
    disposition: NDArray[np.uint8],
    touched: NDArray[np.int32],
    bypasses: NDArray[np.int32],
    order: NDArray[np.int32],
    settings: NDArray[np.int64],
    times: NDArray[np.int64],
    packet: NDArray[np.int64],
    events: NDArray[Any],
) -> Any:
    """Follow the packets of a batch in the order of their rows in `order`.

    app: what goes to parsers, see `hand_on`, with marks for when rules look at it and where a direction ends.
    row_group: for rows of no flow the group (-1: none), for the others it is filled in. row_flags (ROW_), disposition:
    filled in. touched: sides that have data of this batch, room for one a row; bypasses: pairs of slot and request
    number, room for two pairs a row. times: ns, of each row. packet: working memory.
    events: what is odd about TCP packets, in their order.
    Returns the number of pairs; the number of touched sides is `out.counts[2]`, that of events `out.counts[3]`.
    """
    bypass_count = np.int64(0)
    touched_count = np.int64(0)
    event_count = np.int64(0)
    packet[:] = 0
    data, headers = packets.data, packets.headers
    limit = len(data) + len(packets.extra)
    for turn in range(len(order)):
        if turn + _AHEAD < len(order):
            coming = np.int64(order[turn + _AHEAD])
            if 0 <= coming < len(slot) and 0 <= slot[coming] < len(sessions):
                side = 2 * np.int64(slot[coming]) + np.int64(direction[coming] & 1)
                prefetch(sessions, np.int64(slot[coming]), 0)
                prefetch(sides, side, 0)
                prefetch(sides, side, 64)
                prefetch(sides, side ^ 1, 0)
        row = np.int64(order[turn])
        if row < 0 or row >= len(slot):
            continue
        disposition[row] = 0
        at = np.int64(slot[row])
        base = packets.offset[row]
        end = base + np.int64(packets.captured[row])
        header = headers[row]
        fragment = (header.flags & FRAGMENT) != 0
        length = np.int64(header.payload_length)
        if base < 0 or end > limit or np.int64(header.payload) + length > end - base:
            row_flags[row] = ROW_PASSED
            continue
        if at < 0 or at >= len(sessions):
            group = np.int64(row_group[row])
            if group < 0 or groups[group].flags & GROUP_PASS or not groups[group].flags & GROUP_RULES:
                row_flags[row] = ROW_PASSED
                continue
            row_flags[row] = ROW_FIRST
            if groups[group].flags & GROUP_PAYLOAD and length > 0 and not fragment:
                kind = SEGMENT_PACKET | SEGMENT_STREAM if header.protocol == _TCP else SEGMENT_DATAGRAM
                _whole_payload(headers, out, row, base, -1, group, groups[group].packet_scan, kind)
            continue
        session = sessions[at]
        if session.flags & (SESSION_BYPASSED | SESSION_QUIET | SESSION_IDLE):
            if session.flags & SESSION_BYPASSED:
                disposition[row] = SKIPPED
            row_flags[row] = ROW_PASSED
            continue
        side = 2 * at + np.int64(direction[row] & 1)
        group = sides[side].group
        row_group[row] = group
        wanted = groups[group].flags
        flags: Any = np.int64(0)
        if not sides[side].flags & SIDE_FIRST:
            sides[side].flags |= SIDE_FIRST
            flags = ROW_FIRST
            if groups[group].request != 0:
                sessions[at].flags |= SESSION_BYPASSED
                sessions[at].stopped = turn
                bypasses[2 * bypass_count] = np.int32(at)
                bypasses[2 * bypass_count + 1] = np.int32(groups[group].request - 1)
                bypass_count += 1
                if wanted & GROUP_DROP:
                    disposition[row] = DROPPED
            if wanted & (GROUP_PASS | GROUP_DROP):
                sessions[at].flags |= SESSION_QUIET
            if wanted & GROUP_PASS:
                row_flags[row] = ROW_PASSED
                continue
        if header.protocol == _TCP:
            if header.l4 != 0 and not fragment:
                pending = sides[side].flags & SIDE_DEPTH
                found, event_count = _track_tcp(
                    pool,
                    groups,
                    sessions,
                    sides,
                    packet,
                    packets,
                    row,
                    side,
                    times[row],
                    settings,
                    out,
                    app,
                    events,
                    event_count,
                )
                flags |= found
                if flags & ROW_ADDED and not sides[side].flags & SIDE_TOUCHED:
                    sides[side].flags |= SIDE_TOUCHED
                    touched[touched_count] = np.int32(side)
                    touched_count += 1
                if settings[STREAM_BYPASS] and sides[side].flags & SIDE_DEPTH and not pending:
                    sessions[at].flags |= SESSION_BYPASSED
                    sessions[at].stopped = turn
                    bypasses[2 * bypass_count] = np.int32(at)
                    bypasses[2 * bypass_count + 1] = np.int32(settings[STREAM_BYPASS] - 1)
                    bypass_count += 1
        elif sides[side ^ 1].flags & SIDE_FIRST:
            flags |= ROW_ESTABLISHED
        row_flags[row] = np.uint8(flags)
        to_client = (side ^ np.int64(session.client)) & 1 != 0
        marks = (SEGMENT_ESTABLISHED if flags & ROW_ESTABLISHED else 0) | (SEGMENT_TO_CLIENT if to_client else 0)
        if sides[side].flags & SIDE_APP and header.protocol != _TCP and length > 0 and not fragment:
            first = app.counts[1]
            if add_piece(app, base + np.int64(header.payload), length, 0):
                add_segment(app, first, row, at, 0, 0, length, marks | SEGMENT_LOOK)
        if header.protocol == _TCP and sides[side].flags & SIDE_KEEPS:
            if sides[side].flags & SIDE_STREAM and _due(
                sessions, sides, side, settings[CHUNK_TO_SERVER + (1 if to_client else 0)]
            ):
                before = sides[side].seen
                inspect_pending(
                    pool,
                    sides,
                    side,
                    False,
                    out,
                    row,
                    groups[group].stream_scan,
                    marks | SEGMENT_STREAM | SEGMENT_CHUNK,
                )
                if sides[side].seen != before:
                    sides[side].flags &= ~SIDE_TRIGGER
            if sides[side].flags & SIDE_NEWS:
                add_mark(app, row, at, 0, marks | SEGMENT_LOOK)
                sides[side].flags &= ~SIDE_NEWS
            drop_read(pool, sides, side, settings)
            if sides[side].flags & SIDE_STREAM and length > 0 and not flags & ROW_ADDED and not fragment:
                _whole_payload(
                    headers,
                    out,
                    row,
                    base,
                    at,
                    group,
                    groups[group].stream_scan,
                    marks | SEGMENT_STREAM,
                )
        if wanted & GROUP_PAYLOAD and length > 0 and not fragment:
            marks |= SEGMENT_PACKET if header.protocol == _TCP else SEGMENT_DATAGRAM
            _whole_payload(headers, out, row, base, at, group, groups[group].packet_scan, marks)
    out.counts[2] = touched_count
    out.counts[3] = event_count
    return bypass_count


@kernel(types.UniTuple(_I64, 2)(_HEADERS, column(np.int64)))
def special_packets(headers: NDArray[Any], fragments: NDArray[np.int64]) -> Any:
    """How many packets of a batch (HEADER[n]) are fragments, and how many came in a tunnel.

    fragments: int64[n], begins with the rows of the fragments then.
    """
    count, tunnelled = np.int64(0), np.int64(0)
    for row in range(min(len(headers), len(fragments))):
        if headers[row].flags & FRAGMENT:
            fragments[count] = row
            count += 1
        if headers[row].depth:
            tunnelled += 1
    return count, tunnelled


@kernel(
    types.void(
        POOL,
        column(GROUP, readonly=True),
        _SESSIONS,
        _SIDES,
        OUTPUT,
        OUTPUT,
        column(np.int32, readonly=True),
        PACKET,
    )
)
def end_flows(
    pool: Pool,
    groups: NDArray[Any],
    sessions: NDArray[Any],
    sides: NDArray[Any],
    out: Output,
    app: Output,
    ended: NDArray[np.int32],
    packet: NDArray[np.int64],
) -> None:
    """Give out what flows that ended have pending, acknowledged or not. packet: working memory."""
    packet[:] = 0
    for at in range(len(ended)):
        slot = np.int64(ended[at])
        if slot < 0 or slot >= len(sessions) or not sessions[slot].flags & SESSION_KNOWN:
            continue
        forget_queue(pool, sessions, slot)
        quiet = (sessions[slot].flags & (SESSION_BYPASSED | SESSION_QUIET | SESSION_IDLE)) != 0
        if not quiet:
            _flush(pool, groups, sessions, sides, packet, slot, out, app, -1)
        for side in range(2 * slot, 2 * slot + 2):
            if sides[side].flags & SIDE_KEEPS:
                forget(pool, sides, side)
                sides[side].flags &= ~SIDE_KEEPS


@kernel(types.void(POOL, _SESSIONS, _SIDES, column(np.int32, readonly=True)))
def close_flows(pool: Pool, sessions: NDArray[Any], sides: NDArray[Any], slots: NDArray[np.int32]) -> None:
    """Give up what flows have pending that are not inspected any more."""
    for at in range(len(slots)):
        slot = np.int64(slots[at])
        if sessions[slot].flags & SESSION_KNOWN:
            forget_queue(pool, sessions, slot)
        for side in range(2 * slot, 2 * slot + 2):
            if sides[side].flags & SIDE_KEEPS:
                forget(pool, sides, side)
                sides[side].flags &= ~SIDE_KEEPS


@kernel(types.void(POOL, _SIDES, column(np.int32, readonly=True)))
def stop_parsing(pool: Pool, sides: NDArray[Any], slots: NDArray[np.int32]) -> None:
    """Give no more of these flows to parsers; what no rule wants of their streams either is given up."""
    for at in range(len(slots)):
        for side in range(2 * np.int64(slots[at]), 2 * np.int64(slots[at]) + 2):
            if sides[side].flags & SIDE_APP and not sides[side].flags & SIDE_STREAM:
                forget(pool, sides, side)
            sides[side].flags &= ~SIDE_APP
