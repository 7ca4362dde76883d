"""How connections begin: the states before ESTABLISHED, connections picked up in their middle, and queued SYN-ACKs.

Each state is a kernel that takes a packet of a side; it returns NOTHING, DATA (its payload belongs to the stream) or
REFUSED (an event says why).
"""

# ruff: noqa: PLR1714, SIM102, SIM109 -- kernels compare scalars

from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from flowshunt.compiled import kernel
from flowshunt_ids.events import number
from flowshunt_ids.layout import (
    POLICIES,
    POLICY_BSD,
    SIDE_KEEPS,
    SIDE_RESET,
    SIDE_TIMESTAMP,
    SIDE_TOUCHED,
    SIDE_ZERO_STAMP,
    TCP_CLOSED,
    TCP_ESTABLISHED,
    TCP_FIN_WAIT_1,
    TCP_LAST_ACK,
    TCP_NONE,
    TCP_SYN_RECEIVED,
    TCP_SYN_SENT,
)
from flowshunt_ids.streams.checks import (
    ASYNC,
    HAS_SCALE,
    HAS_STAMPS,
    IGNORED_FAST_OPEN,
    IS_ASYNC,
    IS_EVASION,
    IS_FAST_OPEN,
    IS_FOUR_WAY,
    IS_MIDSTREAM,
    IS_MIDSTREAM_ANSWER,
    IS_MIDSTREAM_NEW,
    IS_RESET,
    MAX_ANSWERS,
    MAX_SYNS,
    MIDSTREAM,
    OFFERS_SACK,
    SESSIONS,
    SETTINGS,
    SIDES,
    USES_SACK,
    set_state,
    take_stamp,
    take_window,
    update_acked,
    update_expected,
    valid_ack,
    valid_reset,
    valid_stamp,
)
from flowshunt_ids.streams.closing import take_fin
from flowshunt_ids.streams.packet import (
    ACK,
    ACK_NUMBER,
    ECHO,
    END,
    ESTABLISHED,
    FAST_OPEN,
    FIN,
    FLAGS,
    LENGTH,
    PACKET,
    RST,
    SACK_OK,
    SCALE,
    SECONDS,
    SEQ,
    STAMP,
    STAMPED,
    SYN,
    TO_CLIENT,
    WINDOW,
    ahead,
    note,
    wrap,
)
from flowshunt_ids.streams.pool import POOL, Pool, give_node, take_node
from flowshunt_ids.streams.reassembly import forget

_I64 = types.int64

NOTHING, DATA, REFUSED = 0, 1, -1

_QUEUED_STAMP, _QUEUED_SCALE, _QUEUED_SACK = 1, 2, 4
_MAX_SCALE = 14
_OLD_LINUX, _LINUX, _SOLARIS = (POLICIES.index(name) for name in ("old-linux", "linux", "solaris"))

_RST_BUT_NO_SESSION = number("stream.rst_but_no_session")
_FIN_BUT_NO_SESSION = number("stream.fin_but_no_session")
_WRONG_ACK = number("stream.3whs_synack_with_wrong_ack")
_FAST_OPEN_IGNORED = number("stream.3whs_synack_tfo_data_ignored")
_INVALID_STAMP = number("stream.pkt_invalid_timestamp")
_WRONG_DIRECTION = number("stream.3whs_synack_in_wrong_direction")
_FOUR_WAY_WRONG_ACK = number("stream.4whs_synack_with_wrong_ack")
_FOUR_WAY_WRONG_SYN = number("stream.4whs_synack_with_wrong_syn")
_FOUR_WAY_WRONG_SEQ = number("stream.4whs_wrong_seq")
_FOUR_WAY_INVALID_ACK = number("stream.4whs_invalid_ack")
_SYN_FLOOD = number("stream.3whs_syn_flood")
_ANSWER_FLOOD = number("stream.3whs_synack_flood")
_ASYNC_WRONG_SEQ = number("stream.3whs_async_wrong_seq")
_ANSWER_TO_SERVER = number("stream.3whs_synack_toserver_on_syn_recv")
_OTHER_ACK = number("stream.3whs_synack_resend_with_diff_ack")
_SYN_TO_CLIENT = number("stream.3whs_syn_toclient_on_syn_recv")
_OTHER_SEQ = number("stream.3whs_syn_resend_diff_seq_on_syn_recv")
_EVASION = number("stream.3whs_right_seq_wrong_ack_evasion")
_WRONG_BOTH = number("stream.3whs_wrong_seq_wrong_ack")

_STATE = _I64(POOL, SESSIONS, SIDES, PACKET, _I64, SETTINGS)


@kernel(types.void(POOL, SESSIONS, _I64), entry=False)
def forget_queue(pool: Pool, sessions: NDArray[Any], session: int) -> None:
    """Drop the SYNs or SYN-ACKs that a connection has queued."""
    node = np.int64(sessions[session].queue)
    while node >= 0:
        following = np.int64(pool.nodes[node].next)
        give_node(pool, node)
        node = following
    sessions[session].queue = -1
    sessions[session].queued = 0


@kernel(_I64(POOL, SESSIONS, _I64, _I64, _I64, _I64, _I64, _I64), entry=False)
def _queue(
    pool: Pool, sessions: NDArray[Any], session: int, seq: int, ack: int, options: int, value: int, seconds: int
) -> Any:
    """Queue a SYN or SYN-ACK: its window, window scale and kinds of options are packed. Returns its node, or -1."""
    node = take_node(pool)
    if node >= 0:
        made = pool.nodes[node]
        made.source = (seconds & 0x7FFFFFFF) << 32 | value
        made.block = -1
        made.seq = seq
        made.length = np.int32(ack)
        made.capacity = options
        made.next = sessions[session].queue
        sessions[session].queue = node
        sessions[session].queued += 1
    return node


@kernel(_I64(PACKET), entry=False)
def _options(packet: NDArray[np.int64]) -> Any:
    """A SYN's window and options, packed."""
    options = packet[WINDOW]
    if packet[SCALE] >= 0:
        options |= packet[SCALE] << 16 | _QUEUED_SCALE << 24
    if packet[STAMPED]:
        options |= _QUEUED_STAMP << 24
    if packet[SACK_OK]:
        options |= _QUEUED_SACK << 24
    return options


@kernel(types.void(POOL, SESSIONS, SIDES, _I64, types.boolean), entry=False)
def clear(pool: Pool, sessions: NDArray[Any], sides: NDArray[Any], slot: int, fresh: bool) -> None:
    """Bring a slot into the state of a flow of which nothing was seen; `fresh`: it was never used before."""
    session = sessions[slot]
    if not fresh:
        forget_queue(pool, sessions, slot)
    session.tcp = session.previous = session.client = session.queued = 0
    session.stream = session.urgent[0] = session.urgent[1] = 0
    session.queue = -1
    for side in range(2 * slot, 2 * slot + 2):
        me = sides[side]
        if not fresh and me.count > 0:
            forget(pool, sides, side)
        me.head = me.tail = me.middle = -1
        me.count = me.flags = 0
        me.start = me.base = me.seen = me.parsed = me.next = me.right = me.expected = np.uint32(0)
        me.acked = me.edge = me.window = me.stamp = me.stamped = np.uint32(0)
        me.ranges = me.scale = me.tcp_flags = 0
        me.policy = POLICY_BSD


@kernel(types.boolean(SESSIONS, SIDES, PACKET, _I64), entry=False)
def begins_anew(sessions: NDArray[Any], sides: NDArray[Any], packet: NDArray[np.int64], side: int) -> bool:
    """Whether a SYN begins a new connection on the addresses and ports of one that is at its end."""
    session = sessions[side >> 1]
    if (side ^ np.int64(session.client)) & 1 == 0 and session.tcp != TCP_NONE:
        if session.stream & IGNORED_FAST_OPEN:
            return True
        if packet[SEQ] == wrap(np.int64(sides[side].start) - 1):
            return False
    return bool(session.tcp >= TCP_LAST_ACK)


@kernel(types.void(POOL, SESSIONS, SIDES, _I64), entry=False)
def renew(pool: Pool, sessions: NDArray[Any], sides: NDArray[Any], slot: int) -> None:
    """Begin a new connection in a flow; what is wanted of it stays."""
    first, second = sides[2 * slot].flags & SIDE_KEEPS, sides[2 * slot + 1].flags & SIDE_KEEPS
    touched = sides[2 * slot].flags & SIDE_TOUCHED, sides[2 * slot + 1].flags & SIDE_TOUCHED
    policies = sides[2 * slot].policy, sides[2 * slot + 1].policy
    clear(pool, sessions, sides, slot, False)
    sides[2 * slot].flags, sides[2 * slot + 1].flags = first | touched[0], second | touched[1]
    sides[2 * slot].policy, sides[2 * slot + 1].policy = policies


@kernel(types.void(SIDES, _I64, _I64), entry=False)
def start(sides: NDArray[Any], side: int, seq: int) -> None:
    """Set where a side's stream begins."""
    me = sides[side]
    me.start = me.base = me.seen = me.parsed = me.next = me.right = me.expected = wrap(seq)


@kernel(types.void(SIDES, PACKET, _I64), entry=False)
def _first_stamp(sides: NDArray[Any], packet: NDArray[np.int64], side: int) -> None:
    """Take the timestamp of a side's SYN."""
    if packet[STAMPED]:
        me = sides[side]
        me.stamp = packet[STAMP]
        me.stamped = packet[SECONDS]
        me.flags |= SIDE_TIMESTAMP
        if packet[STAMP] == 0:
            me.flags |= SIDE_ZERO_STAMP


@kernel(types.void(SESSIONS, SIDES, PACKET, _I64, _I64), entry=False)
def _scale_and_sack(
    sessions: NDArray[Any], sides: NDArray[Any], packet: NDArray[np.int64], side: int, receiver: int
) -> None:
    """Take the options of a SYN of `side`; `receiver` is the side whose window it announces."""
    session = sessions[side >> 1]
    sides[receiver].window = packet[WINDOW]
    session.stream &= ~(HAS_SCALE | OFFERS_SACK)
    sides[receiver].scale = 0
    if packet[SCALE] >= 0:
        session.stream |= HAS_SCALE
        sides[receiver].scale = packet[SCALE]
    if packet[SACK_OK]:
        session.stream |= OFFERS_SACK


@kernel(types.void(SESSIONS, SIDES, PACKET, _I64), entry=False)
def _pick_up(sessions: NDArray[Any], sides: NDArray[Any], packet: NDArray[np.int64], side: int) -> None:
    """Pick up a connection in its middle by a packet of its client with ACK."""
    session, other = sessions[side >> 1], side ^ 1
    me = sides[side]
    session.stream = IS_MIDSTREAM | IS_MIDSTREAM_NEW | USES_SACK
    me.scale = sides[other].scale = _MAX_SCALE
    start(sides, side, packet[SEQ])
    me.expected = packet[END] if not packet[FLAGS] & FIN else wrap(packet[END] + 1)
    take_window(sides, packet, side)
    me.acked = packet[SEQ]
    me.edge = wrap(packet[SEQ] + np.int64(me.window))
    start(sides, other, packet[ACK_NUMBER])
    sides[other].acked = sides[other].edge = packet[ACK_NUMBER]
    if packet[STAMPED]:
        session.stream |= HAS_STAMPS
        me.stamp, sides[other].stamp = packet[STAMP], packet[ECHO]
        me.stamped = packet[SECONDS]
        if packet[STAMP] == 0:
            me.flags |= SIDE_ZERO_STAMP
        if packet[ECHO] == 0:
            sides[other].flags |= SIDE_ZERO_STAMP


@kernel(types.void(SESSIONS, SIDES, PACKET, _I64), entry=False)
def _pick_up_answer(sessions: NDArray[Any], sides: NDArray[Any], packet: NDArray[np.int64], server: int) -> None:
    """Pick up a connection by its SYN-ACK."""
    session, client = sessions[server >> 1], server ^ 1
    session.stream = IS_MIDSTREAM | IS_MIDSTREAM_ANSWER | (USES_SACK if packet[SACK_OK] else 0)
    start(sides, server, packet[SEQ] + 1)
    start(sides, client, packet[ACK_NUMBER])
    sides[server].window = packet[WINDOW]
    sides[client].acked = packet[ACK_NUMBER]
    sides[server].acked = packet[SEQ]
    sides[server].edge = wrap(packet[SEQ] + packet[WINDOW])
    if packet[SCALE] >= 0:
        sides[client].scale = packet[SCALE]
        sides[server].scale = _MAX_SCALE
    if packet[STAMPED]:
        session.stream |= HAS_STAMPS
        sides[server].stamp, sides[client].stamp = packet[STAMP], packet[ECHO]
        sides[server].stamped = packet[SECONDS]
        if packet[STAMP] == 0:
            sides[server].flags |= SIDE_ZERO_STAMP
        if packet[ECHO] == 0:
            sides[client].flags |= SIDE_ZERO_STAMP


@kernel(_STATE, entry=False)
def none(
    pool: Pool,
    sessions: NDArray[Any],
    sides: NDArray[Any],
    packet: NDArray[np.int64],
    side: int,
    settings: NDArray[np.int64],
) -> Any:
    """No connection yet. A pick-up by a SYN-ACK makes the receiver the client: see `session.client`."""
    session, flags = side >> 1, packet[FLAGS]
    oneside = IS_ASYNC if settings[ASYNC] else 0
    if flags & RST:
        note(packet, _RST_BUT_NO_SESSION)
        return REFUSED
    if flags & FIN:
        if not settings[MIDSTREAM] or packet[LENGTH] == 0:
            note(packet, _FIN_BUT_NO_SESSION)
            return REFUSED
        sessions[session].client = side & 1
        _pick_up(sessions, sides, packet, side)
        sessions[session].stream |= oneside
        set_state(sessions, session, TCP_FIN_WAIT_1)
        return DATA
    if flags & SYN and flags & ACK:
        if settings[MIDSTREAM] or settings[ASYNC]:
            sessions[session].client = (side ^ 1) & 1
            _pick_up_answer(sessions, sides, packet, side)
            sessions[session].stream |= oneside
            set_state(sessions, session, TCP_SYN_RECEIVED)
        return NOTHING
    if flags & SYN:
        sessions[session].client = side & 1
        sessions[session].stream = oneside
        set_state(sessions, session, TCP_SYN_SENT)
        start(sides, side, packet[SEQ] + 1)
        _first_stamp(sides, packet, side)
        _scale_and_sack(sessions, sides, packet, side, side ^ 1)
        if packet[FAST_OPEN]:
            sessions[session].stream |= IS_FAST_OPEN
            if packet[LENGTH]:
                expected = wrap(np.int64(sides[side].expected) + packet[LENGTH])
                update_expected(sessions, sides, side, expected)
                return DATA
        return NOTHING
    if flags & ACK and settings[MIDSTREAM]:
        sessions[session].client = side & 1
        _pick_up(sessions, sides, packet, side)
        sessions[session].stream |= oneside
        set_state(sessions, session, TCP_ESTABLISHED)
        return DATA
    return NOTHING


@kernel(types.void(SESSIONS, SIDES, _I64, _I64, _I64, _I64, _I64, _I64), entry=False)
def _answered(
    sessions: NDArray[Any],
    sides: NDArray[Any],
    server: int,
    seq: int,
    ack: int,
    options: int,
    value: int,
    seconds: int,
) -> None:
    """The server has answered with a SYN-ACK, this one or one that was queued."""
    session, client = sessions[server >> 1], server ^ 1
    kinds = options >> 24
    set_state(sessions, server >> 1, TCP_SYN_RECEIVED)
    start(sides, server, seq + 1)
    sides[client].window = options & 0xFFFF
    if kinds & _QUEUED_STAMP and sides[client].flags & SIDE_TIMESTAMP:
        sides[server].stamp = value
        sides[server].stamped = seconds
        session.stream |= HAS_STAMPS
        if value == 0:
            sides[server].flags |= SIDE_ZERO_STAMP
    else:
        sides[client].stamp = sides[server].stamp = 0
        sides[client].flags &= ~SIDE_ZERO_STAMP
    sides[client].acked = ack
    sides[server].acked = wrap(seq + 1)
    sides[client].scale = 0
    if session.stream & HAS_SCALE and kinds & _QUEUED_SCALE:
        sides[client].scale = options >> 16 & 15
    session.stream &= ~(USES_SACK | IS_FOUR_WAY)
    if session.stream & OFFERS_SACK and kinds & _QUEUED_SACK:
        session.stream |= USES_SACK
    sides[server].edge = wrap(np.int64(sides[server].acked) + np.int64(sides[server].window))
    sides[client].edge = wrap(ack + np.int64(sides[client].window))


@kernel(types.boolean(SIDES, PACKET, _I64), entry=False)
def _echoes(sides: NDArray[Any], packet: NDArray[np.int64], client: int) -> bool:
    """Whether an answer to a SYN echoes its timestamp, as far as it has one."""
    if not packet[TO_CLIENT] or not packet[STAMPED] or packet[ECHO] == 0:
        return True
    sent = np.int64(sides[client].stamp)
    if sides[client].flags & SIDE_TIMESTAMP:
        return bool(sent == 0 or packet[ECHO] == sent)
    return bool(sent != 0)


@kernel(types.void(SESSIONS, SIDES, _I64, _I64, _I64, _I64), entry=False)
def _take_syn(sessions: NDArray[Any], sides: NDArray[Any], client: int, options: int, value: int, seconds: int) -> None:
    """Bring what the client's SYN says up to date with another one of it."""
    session, server = sessions[client >> 1], client ^ 1
    kinds = options >> 24
    if kinds & _QUEUED_STAMP:
        sides[client].stamp = value
        sides[client].stamped = seconds
        sides[client].flags |= SIDE_TIMESTAMP
    if kinds & _QUEUED_SCALE:
        session.stream |= HAS_SCALE
        sides[server].scale = options >> 16 & 15
    else:
        session.stream &= HAS_SCALE
        sides[server].scale = 0
    sides[server].window = options & 0xFFFF
    session.stream &= ~OFFERS_SACK
    if kinds & _QUEUED_SACK:
        session.stream |= OFFERS_SACK


@kernel(_I64(POOL, SESSIONS, _I64, _I64, _I64), entry=False)
def _find_syn(pool: Pool, sessions: NDArray[Any], session: int, stamped: int, value: int) -> Any:
    """The queued SYN with a timestamp of this value (or without one); -1: none."""
    node = np.int64(sessions[session].queue)
    while node >= 0:
        queued = pool.nodes[node]
        if (queued.capacity >> 24 & _QUEUED_STAMP) == stamped and queued.source & 0xFFFFFFFF == value:
            return node
        node = np.int64(queued.next)
    return node


@kernel(_I64(POOL, SESSIONS, SIDES, PACKET, _I64, SETTINGS), entry=False)
def _repeat_syn(
    pool: Pool,
    sessions: NDArray[Any],
    sides: NDArray[Any],
    packet: NDArray[np.int64],
    client: int,
    settings: NDArray[np.int64],
) -> Any:
    """The client sends its SYN again; the last one counts, those before are queued."""
    session, server = client >> 1, client ^ 1
    stream = sessions[session].stream
    before = np.int64(sides[server].window) & 0xFFFF
    value = np.int64(0)
    if stream & HAS_SCALE:
        before |= np.int64(sides[server].scale) << 16 | _QUEUED_SCALE << 24
    if stream & OFFERS_SACK:
        before |= _QUEUED_SACK << 24
    if sides[client].flags & SIDE_TIMESTAMP:
        before |= _QUEUED_STAMP << 24
        value = np.int64(sides[client].stamp)
    seconds = np.int64(sides[client].stamped)
    options = _options(packet)
    same = before == options and seconds == packet[SECONDS]
    if not same or (packet[STAMPED] and value != packet[STAMP]):
        if _find_syn(pool, sessions, session, before >> 24 & _QUEUED_STAMP, value) < 0:
            if sessions[session].queued >= settings[MAX_SYNS]:
                note(packet, _SYN_FLOOD)
            else:
                _queue(pool, sessions, session, 0, 0, before, value, seconds)
    _take_syn(sessions, sides, client, options, packet[STAMP] if packet[STAMPED] else 0, packet[SECONDS])
    return NOTHING


@kernel(_I64(SESSIONS, SIDES, PACKET, _I64), entry=False)
def _four_way_answer(sessions: NDArray[Any], sides: NDArray[Any], packet: NDArray[np.int64], client: int) -> Any:
    """A SYN-ACK of the client, which answers the server's SYN."""
    session, server = sessions[client >> 1], client ^ 1
    if not session.stream & IS_FOUR_WAY:
        note(packet, _WRONG_DIRECTION)
        return REFUSED
    if packet[ACK_NUMBER] != np.int64(sides[server].start):
        note(packet, _FOUR_WAY_WRONG_ACK)
        return REFUSED
    if packet[SEQ] != wrap(np.int64(sides[client].start) - 1):
        note(packet, _FOUR_WAY_WRONG_SYN)
        return REFUSED
    set_state(sessions, client >> 1, TCP_SYN_RECEIVED)
    start(sides, client, packet[SEQ] + 1)
    sides[server].window = packet[WINDOW]
    if packet[STAMPED] and sides[server].flags & SIDE_TIMESTAMP:
        sides[client].stamp = packet[STAMP]
        sides[client].stamped = packet[SECONDS]
        session.stream |= HAS_STAMPS
        if packet[STAMP] == 0:
            sides[client].flags |= SIDE_ZERO_STAMP
    else:
        sides[client].stamp = sides[server].stamp = 0
        sides[server].flags &= ~SIDE_ZERO_STAMP
    sides[server].acked = packet[ACK_NUMBER]
    sides[client].acked = sides[client].start
    sides[server].scale = 0
    if session.stream & HAS_SCALE and packet[SCALE] >= 0:
        sides[server].scale = packet[SCALE]
    if session.stream & OFFERS_SACK and packet[SACK_OK]:
        session.stream |= USES_SACK
    sides[client].edge = wrap(np.int64(sides[client].acked) + np.int64(sides[client].window))
    sides[server].edge = wrap(packet[ACK_NUMBER] + packet[WINDOW])
    return NOTHING


@kernel(_I64(POOL, SESSIONS, SIDES, PACKET, _I64), entry=False)
def _one_side(pool: Pool, sessions: NDArray[Any], sides: NDArray[Any], packet: NDArray[np.int64], client: int) -> Any:
    """The client goes on after its SYN: the server's packets are not seen."""
    session, server = sessions[client >> 1], client ^ 1
    me = sides[client]
    if packet[TO_CLIENT] or packet[SEQ] != np.int64(me.expected):
        note(packet, _ASYNC_WRONG_SEQ)
        return REFUSED
    session.stream |= IS_ASYNC
    set_state(sessions, client >> 1, TCP_ESTABLISHED)
    forget_queue(pool, sessions, client >> 1)
    me.window = packet[WINDOW]
    me.acked = packet[SEQ]
    me.edge = wrap(packet[SEQ] + packet[WINDOW])
    start(sides, server, packet[ACK_NUMBER])
    sides[server].acked = sides[server].edge = packet[ACK_NUMBER]
    if session.stream & HAS_SCALE:
        me.scale = _MAX_SCALE
    if packet[STAMPED] and me.flags & SIDE_TIMESTAMP:
        session.stream |= HAS_STAMPS
        me.stamped = packet[SECONDS]
    else:
        me.stamp = 0
        me.flags &= ~SIDE_ZERO_STAMP
    me.flags &= ~SIDE_TIMESTAMP
    if session.stream & OFFERS_SACK:
        session.stream |= USES_SACK
    return DATA


@kernel(_STATE, entry=False)
def syn_sent(
    pool: Pool,
    sessions: NDArray[Any],
    sides: NDArray[Any],
    packet: NDArray[np.int64],
    side: int,
    settings: NDArray[np.int64],
) -> Any:
    """A SYN was sent."""
    number_of, other, flags = side >> 1, side ^ 1, packet[FLAGS]
    session = sessions[number_of]
    to_client = packet[TO_CLIENT]
    if flags & SYN and flags & ACK:
        if not to_client:
            return _four_way_answer(sessions, sides, packet, side)
        sent = np.int64(sides[other].start)
        if not packet[FAST_OPEN] and not session.stream & IS_FAST_OPEN:
            if packet[ACK_NUMBER] != sent:
                note(packet, _WRONG_ACK)
                return REFUSED
        else:
            if packet[ACK_NUMBER] != np.int64(sides[other].expected):
                if packet[ACK_NUMBER] != sent:
                    note(packet, _WRONG_ACK)
                    return REFUSED
                sides[other].expected = wrap(sent - 1)
                note(packet, _FAST_OPEN_IGNORED)
                session.stream |= IGNORED_FAST_OPEN
            session.stream |= IS_FAST_OPEN
            set_state(sessions, number_of, TCP_ESTABLISHED)
        if not _echoes(sides, packet, other):
            node = np.int64(-1)
            if session.queue >= 0:
                node = _find_syn(pool, sessions, number_of, 1 if packet[STAMPED] else 0, packet[ECHO])
            if node < 0:
                note(packet, _INVALID_STAMP)
                return REFUSED
            queued = pool.nodes[node]
            _take_syn(sessions, sides, other, queued.capacity, queued.source & 0xFFFFFFFF, queued.source >> 32)
        forget_queue(pool, sessions, number_of)
        value = packet[STAMP] if packet[STAMPED] else 0
        _answered(sessions, sides, side, packet[SEQ], packet[ACK_NUMBER], _options(packet), value, packet[SECONDS])
        return NOTHING
    if not _echoes(sides, packet, other):
        note(packet, _INVALID_STAMP)
        return REFUSED
    if flags & RST:
        if not valid_reset(sessions, sides, packet, side, settings):
            return REFUSED
        me = sides[side]
        sent = np.int64(me.start)
        if to_client or (packet[SEQ] == wrap(sent - 1) and packet[WINDOW] == 0 and packet[ACK_NUMBER] == sent):
            sides[other].flags |= SIDE_RESET
            session.stream |= IS_RESET
            set_state(sessions, number_of, TCP_CLOSED)
            forget_queue(pool, sessions, number_of)
    elif flags & FIN:
        return NOTHING
    elif flags & SYN:
        if not to_client:
            return _repeat_syn(pool, sessions, sides, packet, side, settings)
        session.stream |= IS_FOUR_WAY
        start(sides, side, packet[SEQ] + 1)
        _first_stamp(sides, packet, side)
        _scale_and_sack(sessions, sides, packet, side, side)
    elif flags & ACK and settings[ASYNC]:
        return _one_side(pool, sessions, sides, packet, side)
    return NOTHING


@kernel(_I64(POOL, SESSIONS, PACKET, _I64, SETTINGS), entry=False)
def _queue_answer(
    pool: Pool, sessions: NDArray[Any], packet: NDArray[np.int64], session: int, settings: NDArray[np.int64]
) -> Any:
    """Queue a SYN-ACK that differs from the one before; the client's answer tells which of them counts."""
    options = _options(packet)
    value = packet[STAMP] if packet[STAMPED] else 0
    node = np.int64(sessions[session].queue)
    while node >= 0:
        queued = pool.nodes[node]
        if (
            queued.capacity == options
            and np.int64(queued.seq) == packet[SEQ]
            and wrap(queued.length) == packet[ACK_NUMBER]
            and queued.source & 0xFFFFFFFF == value
        ):
            return NOTHING
        node = np.int64(queued.next)
    if sessions[session].queued >= settings[MAX_ANSWERS]:
        note(packet, _ANSWER_FLOOD)
        return REFUSED
    made = _queue(pool, sessions, session, packet[SEQ], packet[ACK_NUMBER], options, value, packet[SECONDS])
    return NOTHING if made >= 0 else REFUSED


@kernel(_STATE, entry=False)
def _complete(
    pool: Pool,
    sessions: NDArray[Any],
    sides: NDArray[Any],
    packet: NDArray[np.int64],
    side: int,
    settings: NDArray[np.int64],
) -> Any:
    """A packet with ACK after the SYN-ACK: the handshake's last, or what follows it where that one was lost."""
    number_of = side >> 1
    session = sessions[number_of]
    client = (number_of << 1) | (session.client & 1)
    server = client ^ 1
    to_client = packet[TO_CLIENT]
    seq, ack, length = packet[SEQ], packet[ACK_NUMBER], packet[LENGTH]
    node = np.int64(session.queue)
    while node >= 0:
        queued = pool.nodes[node]
        if wrap(ack - 1) == np.int64(queued.seq) and seq == wrap(queued.length):
            _answered(
                sessions, sides, server, queued.seq, seq, queued.capacity, queued.source & 0xFFFFFFFF,
                queued.source >> 32,
            )  # fmt: skip
            break
        node = np.int64(queued.next)
    if not valid_stamp(sessions, sides, packet, side, settings):
        return REFUSED
    if session.stream & IS_FOUR_WAY and to_client:
        if seq != np.int64(sides[server].expected):
            note(packet, _FOUR_WAY_WRONG_SEQ)
            return REFUSED
        if not valid_ack(sessions, sides, packet, client):
            note(packet, _FOUR_WAY_INVALID_ACK)
            return REFUSED
        take_stamp(sessions, sides, packet, side, settings)
        update_acked(sides, client, ack)
        update_expected(sessions, sides, server, wrap(seq + length))
        take_window(sides, packet, client)
        sides[client].edge = wrap(np.int64(sides[client].acked) + np.int64(sides[client].window))
        set_state(sessions, number_of, TCP_ESTABLISHED)
        return DATA
    fast_open = (session.stream & IS_FAST_OPEN) != 0
    missed = to_client != 0 and not session.stream & IS_MIDSTREAM_ANSWER and not fast_open
    due = np.int64(sides[client].expected)
    if seq == due and ack == np.int64(sides[server].expected):
        take_stamp(sessions, sides, packet, side, settings)
        update_acked(sides, server, ack)
        update_expected(sessions, sides, client, packet[END])
        take_window(sides, packet, server)
        sides[server].edge = wrap(np.int64(sides[server].acked) + np.int64(sides[server].window))
        if session.stream & IS_MIDSTREAM:
            take_window(sides, packet, client)
            sides[client].edge = wrap(np.int64(sides[client].acked) + np.int64(sides[client].window))
            if not session.stream & IS_MIDSTREAM_ANSWER:
                sides[client].scale = sides[server].scale = _MAX_SCALE
                session.stream |= USES_SACK
        if length:
            packet[ESTABLISHED] = 1
    elif settings[ASYNC] and seq == np.int64(sides[server].expected):
        session.stream |= IS_ASYNC
        sides[server].expected = packet[END]
        sides[server].acked = seq
        take_window(sides, packet, client)
        sides[client].acked = ack
        take_stamp(sessions, sides, packet, side, settings)
        if session.stream & IS_MIDSTREAM:
            sides[server].window = packet[WINDOW]
            sides[server].edge = wrap(seq + packet[WINDOW])
            sides[client].scale = sides[server].scale = _MAX_SCALE
            session.stream |= USES_SACK
    elif seq == due:
        session.stream |= IS_EVASION
        note(packet, _EVASION)
        return REFUSED
    elif to_client and ahead(seq, due) > 0 and ahead(ack, sides[client].acked) > 0:
        take_stamp(sessions, sides, packet, side, settings)
        update_acked(sides, client, ack)
        sides[server].expected = packet[END]
        take_window(sides, packet, client)
        sides[client].edge = wrap(np.int64(sides[client].acked) + np.int64(sides[client].window))
        sides[client].window = packet[WINDOW]
        sides[server].edge = wrap(np.int64(sides[server].acked) + np.int64(sides[server].window))
    elif ahead(seq, due) > 0 and ahead(seq, sides[client].edge) <= 0 and ack == np.int64(sides[server].expected):
        take_stamp(sessions, sides, packet, side, settings)
        sides[client].expected = packet[END]
        update_acked(sides, server, ack)
        take_window(sides, packet, server)
        sides[server].edge = wrap(np.int64(sides[server].acked) + np.int64(sides[server].window))
        if session.stream & IS_MIDSTREAM:
            sides[client].window = packet[WINDOW]
            sides[client].scale = sides[server].scale = _MAX_SCALE
            session.stream |= USES_SACK
    elif (missed or fast_open) and ack == np.int64(sides[client].acked) and seq == np.int64(sides[server].expected):
        update_expected(sessions, sides, server, packet[END])
        take_window(sides, packet, server)
        sides[server].edge = wrap(np.int64(sides[server].acked) + np.int64(sides[server].window))
    else:
        note(packet, _WRONG_BOTH)
        return REFUSED
    set_state(sessions, number_of, TCP_ESTABLISHED)
    forget_queue(pool, sessions, number_of)
    return DATA


@kernel(_STATE, entry=False)
def syn_received(
    pool: Pool,
    sessions: NDArray[Any],
    sides: NDArray[Any],
    packet: NDArray[np.int64],
    side: int,
    settings: NDArray[np.int64],
) -> Any:
    """The SYN was answered."""
    number_of, other, flags = side >> 1, side ^ 1, packet[FLAGS]
    session = sessions[number_of]
    if flags & RST:
        if not valid_reset(sessions, sides, packet, side, settings):
            return REFUSED
        policy = sides[side].policy
        stubborn = policy == _LINUX or policy == _OLD_LINUX or policy == _SOLARIS
        if not (session.stream & IS_EVASION and stubborn):
            session.stream |= IS_RESET
            set_state(sessions, number_of, TCP_CLOSED)
            take_stamp(sessions, sides, packet, side, settings)
        return NOTHING
    if flags & FIN:
        if not valid_stamp(sessions, sides, packet, side, settings):
            return REFUSED
        return take_fin(sessions, sides, packet, side, settings)
    if flags & SYN and flags & ACK:
        if not packet[TO_CLIENT]:
            note(packet, _ANSWER_TO_SERVER)
            return REFUSED
        if packet[ACK_NUMBER] != np.int64(sides[other].acked):
            note(packet, _OTHER_ACK)
            return REFUSED
        if packet[SEQ] != wrap(np.int64(sides[side].start) - 1):
            return _queue_answer(pool, sessions, packet, number_of, settings)
        return NOTHING
    if flags & SYN:
        if packet[TO_CLIENT]:
            note(packet, _SYN_TO_CLIENT)
            return REFUSED
        if packet[SEQ] != wrap(np.int64(sides[side].start) - 1):
            note(packet, _OTHER_SEQ)
            return REFUSED
        return NOTHING
    if flags & ACK:
        return _complete(pool, sessions, sides, packet, side, settings)
    return NOTHING
