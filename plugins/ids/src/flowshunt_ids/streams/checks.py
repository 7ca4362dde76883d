"""What a TCP packet is checked for, and what it updates: acknowledgements, timestamps, retransmissions, resets.

The rules are those that Suricata states for its stream engine; where an operating system differs from others, the
receiver's policy (`host-os-policy`) decides.
"""

# ruff: noqa: PLR1714, SIM102, SIM109 -- kernels compare scalars

from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from flowshunt.compiled import column, kernel
from flowshunt_ids.events import number
from flowshunt_ids.layout import (
    POLICIES,
    SESSION,
    SIDE,
    SIDE_RESET,
    SIDE_ZERO_STAMP,
    TCP_CLOSED,
    TCP_SYN_SENT,
)
from flowshunt_ids.streams.packet import (
    ACK,
    ACK_NUMBER,
    END,
    FIRST_SACK,
    FLAGS,
    LENGTH,
    PACKET,
    RST,
    SACKS,
    SECONDS,
    SEQ,
    SIGNED,
    STAMP,
    STAMPED,
    TO_CLIENT,
    WINDOW,
    ahead,
    note,
    wrap,
)

_I64 = types.int64
SIDES = column(SIDE)
SESSIONS = column(SESSION)

IS_MIDSTREAM = 1 << 0
"""SESSION's stream: picked up in the middle."""
IS_MIDSTREAM_NEW = 1 << 1
"""Picked up by a packet of the client, nothing of the server was seen yet."""
IS_MIDSTREAM_ANSWER = 1 << 2
"""Picked up by a SYN-ACK."""
HAS_STAMPS = 1 << 3
"""Both sides use timestamps."""
HAS_SCALE = 1 << 4
"""The client's SYN has a window scale."""
IS_RESET = 1 << 5
"""Closed by a reset."""
IS_ASYNC = 1 << 6
"""Only one side is seen."""
IS_FOUR_WAY = 1 << 7
"""The handshake is SYN, SYN, SYN-ACK, ACK."""
IS_EVASION = 1 << 8
"""The handshake's last packet acknowledged a wrong number."""
OFFERS_SACK = 1 << 9
USES_SACK = 1 << 10
IS_LOSSY = 1 << 11
"""Bytes are missing, so resets are taken as they come."""
IS_CONFIRMED = 1 << 12
"""The server has sent something after the handshake."""
IS_FAST_OPEN = 1 << 13
IGNORED_FAST_OPEN = 1 << 14
PROBES_TO_SERVER = 1 << 15
"""A zero-window probe is under way."""
PROBES_TO_CLIENT = 1 << 16

CHUNK_TO_SERVER = 0
CHUNK_TO_CLIENT = 1
DEPTH = 2
MIDSTREAM = 3
STREAM_BYPASS = 4
"""1 + the bypass request of a side that reaches the depth; 0: none."""
ASYNC = 5
"""Whether connections of which one side is seen are followed."""
LIBERAL_STAMPS = 6
URGENT_POLICY = 7
"""What becomes of urgent bytes: one of the URGENT_ values."""
MAX_SYNS = 8
MAX_ANSWERS = 9
COMPARE_OVERLAPS = 10
"""Whether overlapping data is compared, for the event."""
SETTINGS_SIZE = 11
"""Places in the settings that kernels take: chunk sizes, depth (0: none), and the options above."""

URGENT_INLINE, URGENT_OUT_OF_BAND, URGENT_GAP = 0, 1, 2

SETTINGS = column(np.int64, readonly=True)

_OLD_LINUX, _LINUX, _SOLARIS, _HPUX11, _WINDOWS, _VISTA, _WINDOWS_2003 = (
    POLICIES.index(name) for name in ("old-linux", "linux", "solaris", "hpux11", "windows", "vista", "windows2k3")
)
_FOREVER = 2_073_600
"""24 days in seconds: how long a timestamp is compared (RFC 7323, section 5.5)."""

_INVALID_ACK = number("stream.pkt_invalid_ack")
_INVALID_STAMP = number("stream.pkt_invalid_timestamp")
_RETRANSMISSION = number("stream.pkt_retransmission")
_RST_WITH_DATA = number("stream.rst_with_data")
_RST_INVALID_ACK = number("stream.rst_invalid_ack")


@kernel(types.void(SESSIONS, _I64, _I64), entry=False)
def set_state(sessions: NDArray[Any], session: int, state: int) -> None:
    """Bring a connection into a state."""
    if sessions[session].tcp != state:
        sessions[session].previous = sessions[session].tcp
        sessions[session].tcp = state


@kernel(types.boolean(SESSIONS, SIDES, PACKET, _I64), entry=False)
def valid_ack(sessions: NDArray[Any], sides: NDArray[Any], packet: NDArray[np.int64], side: int) -> bool:
    """Whether what a packet acknowledges can be: neither long acknowledged nor beyond the window of `side`'s data."""
    if not packet[FLAGS] & ACK:
        return True
    session = sessions[side >> 1]
    acked = np.int64(sides[side].acked)
    over = ahead(packet[ACK_NUMBER], acked)
    inside = ahead(packet[ACK_NUMBER], sides[side].edge) <= 0
    if over == 0 or (over > 0 and inside):
        return True
    if over < 0:
        window = np.int64(sides[side].window)
        if window == 0 or over >= -window:
            return True
    elif session.stream & IS_ASYNC:
        return True
    elif session.tcp == TCP_SYN_SENT and not inside:
        if packet[TO_CLIENT] and packet[FLAGS] & RST and packet[ACK_NUMBER] == np.int64(sides[side].start):
            return True
    note(packet, _INVALID_ACK)
    return False


@kernel(types.void(SIDES, _I64), entry=False)
def _prune_sacked(sides: NDArray[Any], side: int) -> None:
    """Forget ranges that are acknowledged as a whole by now."""
    me = sides[side]
    kept = 0
    for place in range(me.ranges):
        begin, end = me.sacked[2 * place], me.sacked[2 * place + 1]
        if ahead(end, me.acked) > 0:
            me.sacked[2 * kept] = begin if ahead(begin, me.acked) > 0 else me.acked
            me.sacked[2 * kept + 1] = end
            kept += 1
    me.ranges = kept


@kernel(types.void(SIDES, _I64, _I64), entry=False)
def update_acked(sides: NDArray[Any], side: int, ack: int) -> None:
    """The data of `side` is acknowledged up to `ack`."""
    if ahead(ack, sides[side].acked) > 0:
        sides[side].acked = ack
        if sides[side].ranges:
            _prune_sacked(sides, side)


@kernel(types.void(SESSIONS, SIDES, _I64, _I64), entry=False)
def update_expected(sessions: NDArray[Any], sides: NDArray[Any], side: int, seq: int) -> None:
    """`side` goes on at `seq`. Where only one side is seen, that counts as acknowledged."""
    sides[side].expected = seq
    if sessions[side >> 1].stream & IS_ASYNC and ahead(seq, sides[side].acked) > 0:
        sides[side].acked = seq


@kernel(types.void(SIDES, PACKET, _I64), entry=False)
def update_sacked(sides: NDArray[Any], packet: NDArray[np.int64], side: int) -> None:
    """Take in the ranges that a packet acknowledges selectively (RFC 2018): the first and the third on.

    Four ranges are kept; what is acknowledged twice (RFC 2883) or lies outside the window is passed over.
    """
    me = sides[side]
    for place in range(packet[SACKS]):
        begin, end = packet[FIRST_SACK + 2 * place], packet[FIRST_SACK + 2 * place + 1]
        if place == 1 or ahead(begin, packet[ACK_NUMBER]) < 0 or ahead(end, me.acked) <= 0 or ahead(begin, end) >= 0:
            continue
        if ahead(end, me.edge) > 0 or ahead(begin, np.int64(me.acked) + np.int64(me.window)) > 0:
            continue
        kept = 0
        for old in range(me.ranges):
            low, high = np.int64(me.sacked[2 * old]), np.int64(me.sacked[2 * old + 1])
            if ahead(low, end) > 0 or ahead(begin, high) > 0:
                me.sacked[2 * kept], me.sacked[2 * kept + 1] = low, high
                kept += 1
            else:
                begin = low if ahead(low, begin) < 0 else begin
                end = high if ahead(high, end) > 0 else end
        if kept < 4:
            me.sacked[2 * kept], me.sacked[2 * kept + 1] = begin, end
            kept += 1
        me.ranges = kept
    _prune_sacked(sides, side)


@kernel(types.boolean(SIDES, PACKET, _I64), entry=False)
def repeats_sacked(sides: NDArray[Any], packet: NDArray[np.int64], side: int) -> bool:
    """Whether all that a packet acknowledges selectively was acknowledged before."""
    me = sides[side]
    for place in range(packet[SACKS]):
        begin, end = packet[FIRST_SACK + 2 * place], packet[FIRST_SACK + 2 * place + 1]
        known = ahead(end, me.acked) <= 0
        for old in range(me.ranges):
            if ahead(begin, me.sacked[2 * old]) >= 0 and ahead(end, me.sacked[2 * old + 1]) <= 0:
                known = True
        if not known:
            return False
    return True


@kernel(types.void(SIDES, _I64), entry=False)
def update_edge(sides: NDArray[Any], side: int) -> None:
    """Move the edge of the window of `side`'s data, which never goes back."""
    me = sides[side]
    edge: Any = np.int64(me.acked) + np.int64(me.window)
    for place in range(me.ranges):
        edge += ahead(me.sacked[2 * place + 1], me.sacked[2 * place])
    if ahead(edge, me.edge) > 0:
        me.edge = wrap(edge)


@kernel(types.boolean(SESSIONS, SIDES, PACKET, _I64, types.boolean, SETTINGS), entry=False)
def stamp(
    sessions: NDArray[Any],
    sides: NDArray[Any],
    packet: NDArray[np.int64],
    side: int,
    keep: bool,
    settings: NDArray[np.int64],
) -> bool:
    """Whether a packet's timestamp can be (RFC 7323, section 5: it never goes back); `keep`: remember it."""
    session, me = sessions[side >> 1], sides[side]
    policy = me.policy
    if not packet[STAMPED]:
        if keep and policy == _SOLARIS:
            session.stream &= ~HAS_STAMPS
        return True
    value, last, when = packet[STAMP], np.int64(me.stamp), np.int64(me.stamped)
    in_order = packet[SEQ] == np.int64(me.expected)
    check = True
    if me.flags & SIDE_ZERO_STAMP:
        if policy == _LINUX or policy == _WINDOWS_2003:
            check = False
            if keep:
                session.stream &= ~HAS_STAMPS
        elif policy == _OLD_LINUX or policy == _WINDOWS or policy == _VISTA:
            if keep:
                me.flags &= ~SIDE_ZERO_STAMP
            if in_order:
                check = False
                if keep:
                    me.stamp = value
    if policy == _HPUX11 and not in_order:
        check = False
    if value == 0 and not (
        policy == _OLD_LINUX or policy == _WINDOWS or policy == _WINDOWS_2003 or policy == _VISTA or policy == _SOLARIS
    ):
        note(packet, _INVALID_STAMP)
        return False
    if not check:
        return True
    moved = ahead(value, last)
    if policy == _LINUX or settings[LIBERAL_STAMPS]:
        moved = ahead(value + 1, last)
    if when == 0 and session.stream & IS_MIDSTREAM:
        when = packet[SECONDS]
        if keep:
            me.stamped = when
    old = packet[SECONDS] > wrap(when + _FOREVER)
    if moved < 0 or (me.stamp != 0 and old):
        if not (in_order and old):
            note(packet, _INVALID_STAMP)
            return False
        if keep:
            me.stamp = value
            me.stamped = packet[SECONDS]
    elif keep:
        if in_order:
            me.stamp = value
        me.stamped = packet[SECONDS]
    return True


@kernel(types.boolean(SESSIONS, SIDES, PACKET, _I64, SETTINGS), entry=False)
def valid_stamp(
    sessions: NDArray[Any], sides: NDArray[Any], packet: NDArray[np.int64], side: int, settings: NDArray[np.int64]
) -> bool:
    """Whether a packet's timestamp can be, where the connection uses them."""
    return not sessions[side >> 1].stream & HAS_STAMPS or stamp(sessions, sides, packet, side, False, settings)


@kernel(types.void(SESSIONS, SIDES, PACKET, _I64, SETTINGS), entry=False)
def take_stamp(
    sessions: NDArray[Any], sides: NDArray[Any], packet: NDArray[np.int64], side: int, settings: NDArray[np.int64]
) -> None:
    """Remember a packet's timestamp, where the connection uses them."""
    if sessions[side >> 1].stream & HAS_STAMPS:
        stamp(sessions, sides, packet, side, True, settings)


@kernel(types.boolean(SIDES, PACKET, _I64), entry=False)
def is_retransmission(sides: NDArray[Any], packet: NDArray[np.int64], side: int) -> bool:
    """Whether a packet has data that was sent before."""
    if packet[LENGTH] == 0:
        return False
    me = sides[side]
    past = ahead(packet[END], me.acked)
    if past <= 0 or (past > 0 and ahead(packet[SEQ], me.acked) < 0) or ahead(packet[END], me.expected) <= 0:
        note(packet, _RETRANSMISSION)
        return True
    return False


@kernel(types.boolean(SESSIONS, SIDES, PACKET, _I64, SETTINGS), entry=False)
def valid_reset(
    sessions: NDArray[Any], sides: NDArray[Any], packet: NDArray[np.int64], side: int, settings: NDArray[np.int64]
) -> bool:
    """Whether the receiver of a reset takes it."""
    session, me = sessions[side >> 1], sides[side]
    if session.stream & IS_LOSSY:
        return True
    if not valid_stamp(sessions, sides, packet, side, settings):
        return False
    if packet[LENGTH]:
        note(packet, _RST_WITH_DATA)
    if packet[FLAGS] & ACK and packet[ACK_NUMBER] and not valid_ack(sessions, sides, packet, side ^ 1):
        note(packet, _RST_INVALID_ACK)
        return False
    if packet[SIGNED]:
        sides[side ^ 1].flags |= SIDE_RESET
    beyond = ahead(packet[SEQ], me.expected)
    if session.stream & IS_ASYNC or me.policy == _HPUX11:
        return bool(beyond >= 0)
    if me.policy == _OLD_LINUX or me.policy == _LINUX or me.policy == _SOLARIS:
        return bool(
            ahead(packet[END], me.acked) >= 0 and ahead(packet[SEQ], np.int64(me.expected) + np.int64(me.window)) < 0
        )
    return bool(beyond == 0)


@kernel(types.void(SESSIONS, SIDES, PACKET, _I64, SETTINGS), entry=False)
def take_reset(
    sessions: NDArray[Any], sides: NDArray[Any], packet: NDArray[np.int64], side: int, settings: NDArray[np.int64]
) -> None:
    """Close a connection by a reset that is valid."""
    session = side >> 1
    sessions[session].stream |= IS_RESET
    set_state(sessions, session, TCP_CLOSED)
    if packet[FLAGS] & ACK and valid_ack(sessions, sides, packet, side ^ 1):
        update_acked(sides, side ^ 1, packet[ACK_NUMBER])
    update_acked(sides, side, packet[SEQ])
    take_stamp(sessions, sides, packet, side, settings)


@kernel(types.void(SIDES, PACKET, _I64), entry=False)
def take_window(sides: NDArray[Any], packet: NDArray[np.int64], side: int) -> None:
    """A packet announces the window for the data of `side`."""
    sides[side].window = packet[WINDOW] << np.int64(sides[side].scale & 15)
