"""TCP as seen from the middle: which packets belong to a connection, and what is odd about those that don't.

The states, checks and events are those of Suricata's stream engine in IDS mode (`stream` in suricata.yaml).
"""

# ruff: noqa: PLR1714, SIM109 -- kernels compare scalars

from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from flowshunt.compiled import kernel
from flowshunt_ids.events import number
from flowshunt_ids.layout import (
    SIDE_KEEP_ALIVE,
    SIDE_RESET,
    TCP_CLOSE_WAIT,
    TCP_CLOSED,
    TCP_ESTABLISHED,
    TCP_LAST_ACK,
    TCP_NONE,
    TCP_SYN_RECEIVED,
    TCP_SYN_SENT,
    TCP_TIME_WAIT,
)
from flowshunt_ids.streams.checks import (
    ASYNC,
    IS_ASYNC,
    IS_CONFIRMED,
    IS_MIDSTREAM,
    IS_MIDSTREAM_NEW,
    IS_RESET,
    PROBES_TO_CLIENT,
    PROBES_TO_SERVER,
    SESSIONS,
    SETTINGS,
    SIDES,
    repeats_sacked,
    take_reset,
    take_stamp,
    take_window,
    update_acked,
    update_edge,
    update_expected,
    update_sacked,
    valid_ack,
    valid_reset,
    valid_stamp,
)
from flowshunt_ids.streams.closing import shut_down, take_fin
from flowshunt_ids.streams.handshake import DATA, NOTHING, REFUSED, none, syn_received, syn_sent
from flowshunt_ids.streams.packet import (
    ACK,
    ACK_NUMBER,
    END,
    FIN,
    FLAGS,
    LENGTH,
    PACKET,
    RST,
    SACKS,
    SEQ,
    SYN,
    TO_CLIENT,
    WINDOW,
    ahead,
    note,
    wrap,
)
from flowshunt_ids.streams.pool import POOL, Pool

_I64 = types.int64

_BROKEN_ACK = number("stream.pkt_broken_ack")
_SYNACK_TO_SERVER = number("stream.est_synack_toserver")
_SYNACK_OTHER_ACK = number("stream.est_synack_resend_with_diff_ack")
_SYNACK_OTHER_SEQ = number("stream.est_synack_resend_with_diff_seq")
_SYNACK_AGAIN = number("stream.est_synack_resend")
_SYN_TO_CLIENT = number("stream.est_syn_toclient")
_SYN_OTHER_SEQ = number("stream.est_syn_resend_diff_seq")
_SYN_AGAIN = number("stream.est_syn_resend")
_PROBE_DATA = number("stream.est_ack_zwp_data")
_INVALID_ACK = number("stream.est_invalid_ack")
_BEFORE_ACK = number("stream.est_pkt_before_last_ack")
_OUT_OF_WINDOW = number("stream.est_packet_out_of_window")
_BAD_WINDOW = number("stream.pkt_bad_window_update")
_SPURIOUS = number("stream.pkt_spurious_retransmission")
_INJECTED = number("stream.suspected_rst_inject")

_STATE = _I64(SESSIONS, SIDES, PACKET, _I64, SETTINGS)


@kernel(_STATE, entry=False)
def _established_data(
    sessions: NDArray[Any], sides: NDArray[Any], packet: NDArray[np.int64], side: int, settings: NDArray[np.int64]
) -> Any:
    """An ordinary packet of an established connection."""
    session, me, other = sessions[side >> 1], sides[side], side ^ 1
    to_client = packet[TO_CLIENT] != 0
    if packet[FLAGS] & ACK:
        probing = session.stream & (PROBES_TO_SERVER if to_client else PROBES_TO_CLIENT)
        if probing and packet[ACK_NUMBER] == wrap(np.int64(sides[other].expected) + 1):
            note(packet, _PROBE_DATA)
        elif not valid_ack(sessions, sides, packet, other):
            note(packet, _INVALID_ACK)
            return REFUSED
    if to_client and session.stream & IS_MIDSTREAM and session.stream & IS_MIDSTREAM_NEW:
        take_window(sides, packet, side)
        me.edge = wrap(np.int64(me.acked) + np.int64(me.window))
        session.stream &= ~IS_MIDSTREAM_NEW
    length = packet[LENGTH]
    expected = np.int64(me.expected)
    keep_alive = length <= 1 and packet[SEQ] == wrap(expected - 1)
    if not keep_alive and ahead(packet[END], me.acked) < 0:
        oneside = not to_client and settings[ASYNC] and session.stream & IS_MIDSTREAM
        if session.stream & IS_ASYNC:
            if to_client:
                me.acked = packet[SEQ]
            else:
                update_acked(sides, side, packet[SEQ])
        elif oneside and (packet[SEQ] == expected or me.acked == me.start):
            update_acked(sides, side, packet[SEQ])
            session.stream |= IS_ASYNC
        elif ahead(me.acked, expected) <= 0 or ahead(packet[END], expected) <= 0:
            note(packet, _BEFORE_ACK)
            return REFUSED
    if length == 1 and packet[SEQ] == expected and me.window == 0:
        session.stream |= PROBES_TO_CLIENT if to_client else PROBES_TO_SERVER
        return DATA
    if ahead(packet[END], expected) >= 0:
        update_expected(sessions, sides, side, packet[END])
    if ahead(packet[END], me.edge) > 0 and not session.stream & (IS_MIDSTREAM | IS_ASYNC):
        note(packet, _OUT_OF_WINDOW)
        return REFUSED
    take_window(sides, packet, other)
    if packet[FLAGS] & ACK:
        update_acked(sides, other, packet[ACK_NUMBER])
    take_stamp(sessions, sides, packet, side, settings)
    if packet[SACKS]:
        update_sacked(sides, packet, other)
    update_edge(sides, other)
    return DATA


@kernel(_STATE, entry=False)
def _established(
    sessions: NDArray[Any], sides: NDArray[Any], packet: NDArray[np.int64], side: int, settings: NDArray[np.int64]
) -> Any:
    session, me, other, flags = sessions[side >> 1], sides[side], side ^ 1, packet[FLAGS]
    to_client = packet[TO_CLIENT] != 0
    if flags & RST:
        if not valid_reset(sessions, sides, packet, side, settings):
            return REFUSED
        sides[other].expected = packet[ACK_NUMBER]
        me.expected = wrap(packet[END] + (1 if to_client else 0))
        take_window(sides, packet, side)
        take_reset(sessions, sides, packet, side, settings)
        return DATA
    if flags & FIN:
        if not valid_stamp(sessions, sides, packet, side, settings):
            return REFUSED
        return take_fin(sessions, sides, packet, side, settings)
    if flags & SYN:
        event = _SYN_AGAIN
        if flags & ACK:
            if not to_client:
                event = _SYNACK_TO_SERVER
            elif packet[ACK_NUMBER] != np.int64(sides[other].acked):
                event = _SYNACK_OTHER_ACK
            elif packet[SEQ] != wrap(np.int64(me.start) - 1):
                event = _SYNACK_OTHER_SEQ
            elif session.stream & IS_CONFIRMED:
                event = _SYNACK_AGAIN
            else:
                return NOTHING
        elif to_client:
            event = _SYN_TO_CLIENT
        elif packet[SEQ] != wrap(np.int64(me.start) - 1):
            event = _SYN_OTHER_SEQ
        note(packet, event)
        return REFUSED
    if not flags & ACK:
        return NOTHING
    if not valid_stamp(sessions, sides, packet, side, settings):
        return REFUSED
    if to_client:
        session.stream |= IS_CONFIRMED
    done = _established_data(sessions, sides, packet, side, settings)
    return DATA if done == DATA else NOTHING


@kernel(_I64(POOL, SESSIONS, SIDES, PACKET, _I64, SETTINGS, _I64), entry=False)
def _dispatch(
    pool: Pool,
    sessions: NDArray[Any],
    sides: NDArray[Any],
    packet: NDArray[np.int64],
    side: int,
    settings: NDArray[np.int64],
    state: int,
) -> Any:
    if state == TCP_ESTABLISHED:
        return _established(sessions, sides, packet, side, settings)
    if state == TCP_SYN_SENT:
        return syn_sent(pool, sessions, sides, packet, side, settings)
    if state == TCP_SYN_RECEIVED:
        return syn_received(pool, sessions, sides, packet, side, settings)
    if state == TCP_NONE or state == TCP_CLOSED:
        return NOTHING
    return shut_down(sessions, sides, packet, side, settings, state)


@kernel(types.boolean(SESSIONS, SIDES, PACKET, _I64), entry=False)
def _changes_nothing(sessions: NDArray[Any], sides: NDArray[Any], packet: NDArray[np.int64], side: int) -> bool:
    """Whether a packet is a keep-alive or its answer, answers a zero-window probe, or repeats what was said."""
    session, me = sessions[side >> 1], sides[side]
    other = sides[side ^ 1]
    flags, length = packet[FLAGS], packet[LENGTH]
    state = session.tcp
    plain = not flags & (SYN | FIN | RST)
    seq, expected = packet[SEQ], np.int64(me.expected)
    repeats = packet[ACK_NUMBER] == np.int64(other.acked)
    window = packet[WINDOW] << np.int64(other.scale & 15)
    known = np.int64(other.window)
    if plain and repeats:
        if length <= 1 and seq == wrap(expected - 1):
            me.flags |= SIDE_KEEP_ALIVE
            return True
        if (
            length == 0
            and packet[WINDOW] != 0
            and window == known
            and other.flags & SIDE_KEEP_ALIVE
            and seq == expected
        ):
            other.flags &= ~SIDE_KEEP_ALIVE
            me.flags &= ~SIDE_KEEP_ALIVE
            return True
    me.flags &= ~SIDE_KEEP_ALIVE
    probe = PROBES_TO_SERVER if packet[TO_CLIENT] else PROBES_TO_CLIENT
    probing = session.stream & probe
    session.stream &= ~probe
    if state < TCP_ESTABLISHED:
        return False
    only_ack = plain and flags & ACK and length == 0
    if probing and only_ack and packet[WINDOW] == 0 and known == 0 and seq == expected and repeats:
        return True
    if (
        (state == TCP_TIME_WAIT or state == TCP_CLOSE_WAIT or state == TCP_LAST_ACK)
        and flags == ACK
        and length == 0
        and seq == wrap(expected + 1)
        and packet[ACK_NUMBER] == wrap(np.int64(other.expected) + 1)
    ):
        return False
    if plain and length == 0 and packet[WINDOW] != 0 and window != known and repeats and seq == expected:
        return False
    if plain and state != TCP_CLOSED and window < known:
        shrunk = known - window
        if (
            shrunk > length
            and ahead(packet[ACK_NUMBER], other.expected) > 0
            and ahead(seq, expected) > 0
            and shrunk > wrap(packet[ACK_NUMBER] - np.int64(other.acked)) + (32 if window > 1024 else 0)
        ):
            note(packet, _BAD_WINDOW)
            return True
    if only_ack and seq == expected and ahead(packet[ACK_NUMBER], other.acked) < 0:
        return bool(packet[SACKS] == 0 or repeats_sacked(sides, packet, side ^ 1))
    return False


@kernel(_I64(POOL, SESSIONS, SIDES, PACKET, _I64, SETTINGS), entry=False)
def follow(
    pool: Pool,
    sessions: NDArray[Any],
    sides: NDArray[Any],
    packet: NDArray[np.int64],
    side: int,
    settings: NDArray[np.int64],
) -> Any:
    """Follow one TCP packet (`packet.read_packet`) of a side. Returns DATA where its payload belongs to the stream."""
    session, flags = side >> 1, packet[FLAGS]
    mine = sessions[session]
    me, other = sides[side], sides[side ^ 1]
    state = np.int64(mine.tcp)
    if state != TCP_NONE:
        me.tcp_flags |= flags
        if mine.stream & IS_ASYNC and other.tcp_flags != 0:
            mine.stream &= ~IS_ASYNC
    else:
        me.tcp_flags = flags
    packet[TO_CLIENT] = (side ^ np.int64(mine.client)) & 1
    if packet[ACK_NUMBER] != 0 and not flags & ACK:
        note(packet, _BROKEN_ACK)
    if state == TCP_NONE:
        done = none(pool, sessions, sides, packet, side, settings)
        packet[TO_CLIENT] = (side ^ np.int64(mine.client)) & 1
        return done
    done = np.int64(NOTHING)
    if not _changes_nothing(sessions, sides, packet, side):
        again = False
        if packet[LENGTH]:
            again = ahead(packet[END], me.base) <= 0
            if again or ahead(packet[END], me.acked) <= 0:
                note(packet, _SPURIOUS)
        if not again:
            if state == TCP_CLOSED:
                if not flags & RST and not me.flags & SIDE_RESET and other.flags & SIDE_RESET:
                    done = _dispatch(pool, sessions, sides, packet, side, settings, mine.previous)
                    if done != REFUSED and mine.tcp == TCP_CLOSED:
                        mine.tcp = mine.previous
            else:
                done = _dispatch(pool, sessions, sides, packet, side, settings, state)
            if done == REFUSED:
                return REFUSED
    if not flags & RST and other.flags & SIDE_RESET:
        other.flags &= ~SIDE_RESET
        mine.stream &= ~IS_RESET
        note(packet, _INJECTED)
    return done
