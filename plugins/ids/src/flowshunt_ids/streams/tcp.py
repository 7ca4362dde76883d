"""TCP as seen from the middle: which packets belong to a connection, and when its data is inspected.

The rules are Suricata's in IDS mode: a connection counts from its handshake on (or from its middle, where that is
allowed); data is inspected once the other side has acknowledged it and a chunk of it is there, at FIN, reset and end.
"""

# ruff: noqa: PLR1714 -- kernels compare scalars

from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from flowshunt.compiled import BYTES, column, kernel
from flowshunt.flows.record import TcpState
from flowshunt.packets.headers import HEADER
from flowshunt_ids.layout import (
    NO_SCALE,
    ROW_ADDED,
    ROW_ESTABLISHED,
    SESSION,
    SESSION_MESSAGES,
    SIDE,
    SIDE_ALL,
    SIDE_DEPTH,
    SIDE_FLUSH,
    SIDE_KEEPS,
    SIDE_STARTED,
    SIDE_TRIGGER,
)
from flowshunt_ids.streams.pool import DEPTH_REACHED, POOL, Pool
from flowshunt_ids.streams.reassembly import distance, insert_next

_I64 = types.int64
_SIDES = column(SIDE)
_SESSIONS = column(SESSION)
_HEADERS = column(HEADER, readonly=True)

FIN, SYN, RST, ACK = 1, 2, 4, 16

_NONE = int(TcpState.NONE)
_SYN_SENT = int(TcpState.SYN_SENT)
_SYN_RECEIVED = int(TcpState.SYN_RECEIVED)
_ESTABLISHED = int(TcpState.ESTABLISHED)
_CLOSING = int(TcpState.CLOSING)
_CLOSED = int(TcpState.CLOSED)

_MAX_SCALE = 14
"""RFC 7323, section 2.3."""

CHUNK_TO_SERVER = 0
CHUNK_TO_CLIENT = 1
DEPTH = 2
MIDSTREAM = 3
STREAM_BYPASS = 4
"""1 + the bypass request of a side that reaches the depth; 0: none."""
SETTINGS_SIZE = 5
"""Places in the settings that kernels take: chunk sizes, depth (0: none), and whether to pick up in the middle."""


@kernel(types.uint16(BYTES, _I64, _I64), entry=False)
def _window_scale(data: NDArray[np.uint8], header: int, end: int) -> Any:
    """The window scale option of the TCP header at `header`."""
    if header + 20 > end or end > len(data):
        return np.uint16(NO_SCALE)
    last: Any = min(end, header + 4 * (np.int64(data[header + 12]) >> 4))
    at: Any = header + 20
    while at + 1 < last:
        kind = data[at]
        if kind == 0:
            break
        if kind == 1:
            at += 1
            continue
        if kind == 3 and at + 2 < last:
            return np.uint16(data[at + 2] if data[at + 2] < _MAX_SCALE else _MAX_SCALE)
        at += max(np.int64(data[at + 1]), 2)
    return np.uint16(NO_SCALE)


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


@kernel(types.void(_SIDES, _I64, types.uint32), entry=False)
def _start(sides: NDArray[Any], side: int, seq: Any) -> None:
    """Set where a side's stream begins."""
    me = sides[side]
    me.start = me.seen = me.next = me.acked = me.parsed = seq
    me.edge = np.uint32(seq + np.uint32(65535))
    me.flags |= SIDE_STARTED


@kernel(_I64(_SESSIONS, _SIDES, _HEADERS, _I64, _I64, BYTES, _I64, _I64), entry=False)
def _handshake(
    sessions: NDArray[Any],
    sides: NDArray[Any],
    headers: NDArray[Any],
    row: int,
    side: int,
    data: NDArray[np.uint8],
    base: int,
    end: int,
) -> Any:
    """Follow a packet with SYN. Returns row flags."""
    me = sides[side]
    header = headers[row]
    other = side ^ 1
    session = side >> 1
    state = sessions[session].tcp
    if not header.tcp_flags & ACK:
        if state == _NONE or (state == _SYN_SENT and sessions[session].client == side & 1):
            sessions[session].tcp = _SYN_SENT
            sessions[session].client = side & 1
            _start(sides, side, np.uint32(header.seq + np.uint32(1)))
            me.scale = _window_scale(data, base + np.int64(header.l4), end)
    elif state == _SYN_SENT and sessions[session].client != side & 1 and header.ack == sides[other].start:
        sessions[session].tcp = _SYN_RECEIVED
        _start(sides, side, np.uint32(header.seq + np.uint32(1)))
        me.scale = _window_scale(data, base + np.int64(header.l4), end)
        if me.scale == NO_SCALE or sides[other].scale == NO_SCALE:
            me.scale = sides[other].scale = 0
        sides[other].edge = np.uint32(header.ack + np.uint32(header.window))
    return ROW_ESTABLISHED if state >= _ESTABLISHED else 0


@kernel(_I64(_SESSIONS, _SIDES, _HEADERS, _I64, _I64), entry=False)
def _reset(sessions: NDArray[Any], sides: NDArray[Any], headers: NDArray[Any], row: int, side: int) -> Any:
    """Follow a packet with RST. Returns row flags."""
    me = sides[side]
    header = headers[row]
    session = side >> 1
    state = sessions[session].tcp
    if state == _NONE:
        return 0
    valid = not me.flags & SIDE_STARTED
    if not valid:
        valid = distance(header.seq, me.acked) >= 0 and distance(header.seq, me.edge) <= 0
    if valid:
        sessions[session].tcp = _CLOSED
        me.flags |= SIDE_ALL
        sides[side ^ 1].flags |= SIDE_ALL
    return ROW_ESTABLISHED if state >= _ESTABLISHED else 0


@kernel(
    _I64(POOL, _SESSIONS, _SIDES, _HEADERS, _I64, _I64, BYTES, _I64, _I64, column(np.int64, readonly=True)),
    inline=True,
    entry=False,
)
def follow(
    pool: Pool,
    sessions: NDArray[Any],
    sides: NDArray[Any],
    headers: NDArray[Any],
    row: int,
    side: int,
    data: NDArray[np.uint8],
    base: int,
    end: int,
    settings: NDArray[np.int64],
) -> Any:
    """Follow one TCP packet of a side; its frame is data[base:end]. Returns row flags (ROW_ESTABLISHED, ROW_ADDED)."""
    me = sides[side]
    header = headers[row]
    flags = np.int64(header.tcp_flags)
    length = np.int64(header.payload_length)
    if flags & RST:
        return _reset(sessions, sides, headers, row, side)
    if flags & SYN:
        return _handshake(sessions, sides, headers, row, side, data, base, end)
    other = side ^ 1
    session = side >> 1
    state: Any = sessions[session].tcp
    if not flags & ACK or (state == _NONE and not settings[MIDSTREAM]) or state == _SYN_SENT:
        return ROW_ESTABLISHED if state >= _ESTABLISHED else 0
    if state == _NONE:
        _start(sides, side, header.seq)
        _start(sides, other, header.ack)
        me.scale = sides[other].scale = _MAX_SCALE
        me.edge = np.uint32(header.seq + np.uint32(65535 << _MAX_SCALE))
        sides[other].edge = np.uint32(header.ack + np.uint32(65535 << _MAX_SCALE))
        state = _ESTABLISHED
        sessions[session].tcp = state
    result: Any = ROW_ESTABLISHED if state >= _ESTABLISHED else 0
    if state == _CLOSED:
        return result
    scale = me.scale
    if distance(header.ack, sides[other].edge) > 0:
        return result
    if length > 0 and (distance(np.uint32(np.int64(header.seq) + length), me.edge) > 0 and header.seq != me.next):
        return result
    if distance(header.ack, sides[other].acked) > 0:
        sides[other].acked = header.ack
    window = np.uint32(np.int64(header.ack) + (np.int64(header.window) << (scale if scale <= _MAX_SCALE else 0)))
    if distance(window, sides[other].edge) > 0:
        sides[other].edge = window
    if state == _SYN_RECEIVED:
        sessions[session].tcp = _ESTABLISHED
        if length > 0 and sessions[session].client == side & 1:
            result = ROW_ESTABLISHED
    if length > 0:
        result |= ROW_ADDED
        if header.seq == me.start and sessions[session].client == side & 1:
            if _begins_http(data, base + np.int64(header.payload), length):
                sessions[session].flags |= SESSION_MESSAGES
        elif sessions[session].flags & SESSION_MESSAGES:
            sides[other].flags |= SIDE_TRIGGER
        if me.flags & SIDE_KEEPS and not me.flags & SIDE_DEPTH:
            kept: Any = length
            depth = settings[DEPTH]
            if depth > 0:
                room = depth - np.int64(np.uint32(header.seq - me.start))
                if np.int64(np.uint32(header.seq - me.start)) >= 1 << 31:
                    room = length
                kept = min(length, room)
            if kept > 0:
                insert_next(pool, sides, side, header.seq, kept, base + np.int64(header.payload))
            if depth > 0 and np.int64(np.uint32(me.next - me.start)) >= depth:
                me.flags |= SIDE_DEPTH | SIDE_ALL
                pool.state[DEPTH_REACHED] += 1
    if flags & FIN:
        me.flags |= SIDE_FLUSH
        if sides[other].flags & SIDE_FLUSH:
            sessions[session].tcp = _CLOSING
    return result
