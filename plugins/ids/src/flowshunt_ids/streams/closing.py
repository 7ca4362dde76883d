"""How connections end: FIN, and the states after it.

Each state is a kernel that takes a packet of a side; see `flowshunt_ids.streams.handshake` for what it returns.
"""

# ruff: noqa: PLR1714, SIM109 -- kernels compare scalars

from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from flowshunt.compiled import kernel
from flowshunt_ids.events import number
from flowshunt_ids.layout import (
    TCP_CLOSE_WAIT,
    TCP_CLOSED,
    TCP_CLOSING,
    TCP_FIN_WAIT_1,
    TCP_FIN_WAIT_2,
    TCP_LAST_ACK,
    TCP_TIME_WAIT,
)
from flowshunt_ids.streams.checks import (
    IS_ASYNC,
    IS_MIDSTREAM,
    SESSIONS,
    SETTINGS,
    SIDES,
    is_retransmission,
    set_state,
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
from flowshunt_ids.streams.packet import (
    ACK,
    ACK_NUMBER,
    END,
    FIN,
    FLAGS,
    LENGTH,
    PACKET,
    RST,
    SEQ,
    SYN,
    TO_CLIENT,
    ahead,
    note,
    wrap,
)

_I64 = types.int64
NOTHING, DATA, REFUSED = 0, 1, -1

_FIN_INVALID_ACK = number("stream.fin_invalid_ack")
_FIN_OUT_OF_WINDOW = number("stream.fin_out_of_window")
_FIN_SYN = number("stream.fin_syn")
_SYN_RESEND = number("stream.shutdown_syn_resend")
_FIN1_FIN_WRONG_SEQ = number("stream.fin1_fin_wrong_seq")
_FIN1_INVALID_ACK = number("stream.fin1_invalid_ack")
_FIN1_ACK_WRONG_SEQ = number("stream.fin1_ack_wrong_seq")
_FIN2_FIN_WRONG_SEQ = number("stream.fin2_fin_wrong_seq")
_FIN2_INVALID_ACK = number("stream.fin2_invalid_ack")
_FIN2_ACK_WRONG_SEQ = number("stream.fin2_ack_wrong_seq")
_CLOSING_WRONG_SEQ = number("stream.closing_ack_wrong_seq")
_CLOSING_INVALID_ACK = number("stream.closing_invalid_ack")
_CLOSEWAIT_FIN_OUT = number("stream.closewait_fin_out_of_window")
_CLOSEWAIT_ACK_OUT = number("stream.closewait_ack_out_of_window")
_CLOSEWAIT_BEFORE_ACK = number("stream.closewait_pkt_before_last_ack")
_CLOSEWAIT_INVALID_ACK = number("stream.closewait_invalid_ack")
_LASTACK_WRONG_SEQ = number("stream.lastack_ack_wrong_seq")
_LASTACK_INVALID_ACK = number("stream.lastack_invalid_ack")
_TIMEWAIT_WRONG_SEQ = number("stream.timewait_ack_wrong_seq")
_TIMEWAIT_INVALID_ACK = number("stream.timewait_invalid_ack")

_STATE = _I64(SESSIONS, SIDES, PACKET, _I64, SETTINGS)


@kernel(_I64(PACKET, _I64), entry=False)
def _refuse(packet: NDArray[np.int64], event: int) -> Any:
    note(packet, event)
    return REFUSED


@kernel(types.boolean(SESSIONS, SIDES, PACKET, _I64), entry=False)
def in_window(sessions: NDArray[Any], sides: NDArray[Any], packet: NDArray[np.int64], side: int) -> bool:
    """Whether a packet's data ends inside the window, as far as that is known."""
    return bool(sessions[side >> 1].stream & (IS_MIDSTREAM | IS_ASYNC) or ahead(packet[END], sides[side].edge) <= 0)


@kernel(types.boolean(SIDES, PACKET, _I64), entry=False)
def _beyond_window(sides: NDArray[Any], packet: NDArray[np.int64], side: int) -> bool:
    return bool(ahead(packet[SEQ], np.int64(sides[side].acked) + np.int64(sides[side].window)) > 0)


@kernel(types.void(SIDES, PACKET, _I64, _I64), entry=False)
def _catch_up(sides: NDArray[Any], packet: NDArray[np.int64], side: int, margin: int) -> None:
    """What a packet acknowledges was sent, seen or not."""
    if ahead(np.int64(sides[side].expected) - margin, packet[ACK_NUMBER]) < 0:
        sides[side].expected = packet[ACK_NUMBER]


@kernel(_STATE, entry=False)
def take_fin(
    sessions: NDArray[Any], sides: NDArray[Any], packet: NDArray[np.int64], side: int, settings: NDArray[np.int64]
) -> Any:
    """The first FIN."""
    me, other = sides[side], side ^ 1
    to_client = packet[TO_CLIENT]
    if not valid_ack(sessions, sides, packet, other):
        return _refuse(packet, _FIN_INVALID_ACK)
    if ahead(packet[SEQ], me.acked) < 0 or ahead(packet[END], me.edge) > 0:
        return _refuse(packet, _FIN_OUT_OF_WINDOW)
    if not to_client and packet[FLAGS] & SYN:
        return _refuse(packet, _FIN_SYN)
    set_state(sessions, side >> 1, TCP_FIN_WAIT_1 if to_client else TCP_CLOSE_WAIT)
    me.expected = wrap(packet[END] + (1 if to_client else 0))
    take_window(sides, packet, other)
    take_stamp(sessions, sides, packet, side, settings)
    _catch_up(sides, packet, other, 0)
    if packet[FLAGS] & ACK:
        update_acked(sides, other, packet[ACK_NUMBER])
    return DATA


@kernel(_STATE, entry=False)
def _fin_in_fin_wait_1(
    sessions: NDArray[Any], sides: NDArray[Any], packet: NDArray[np.int64], side: int, settings: NDArray[np.int64]
) -> Any:
    me, other = sides[side], side ^ 1
    to_client, with_ack = packet[TO_CLIENT] != 0, packet[FLAGS] & ACK != 0
    last = wrap(np.int64(me.expected) - 1)
    again = is_retransmission(sides, packet, side)
    if not again:
        if with_ack and to_client and packet[SEQ] == last and packet[ACK_NUMBER] == np.int64(sides[other].acked):
            again = True
        elif ahead(packet[SEQ], last) < 0 or _beyond_window(sides, packet, side):
            return _refuse(packet, _FIN1_FIN_WRONG_SEQ)
    if not valid_ack(sessions, sides, packet, other):
        return _refuse(packet, _FIN1_INVALID_ACK)
    if not again:
        set_state(sessions, side >> 1, TCP_TIME_WAIT if with_ack else TCP_CLOSING)
        take_window(sides, packet, other)
    take_stamp(sessions, sides, packet, side, settings)
    if not (again and with_ack and to_client):
        _catch_up(sides, packet, other, 1)
        if packet[SEQ] == (np.int64(me.expected) if with_ack and not to_client else last):
            update_expected(sessions, sides, side, packet[END])
        if with_ack:
            update_acked(sides, other, packet[ACK_NUMBER])
    return DATA


@kernel(_STATE, entry=False)
def _ack_in_fin_wait_1(
    sessions: NDArray[Any], sides: NDArray[Any], packet: NDArray[np.int64], side: int, settings: NDArray[np.int64]
) -> Any:
    me, other = sides[side], side ^ 1
    to_client = packet[TO_CLIENT] != 0
    due: Any = wrap(np.int64(me.expected) - (1 if to_client else 0))
    again = is_retransmission(sides, packet, side)
    if not valid_ack(sessions, sides, packet, other):
        return _refuse(packet, _FIN1_INVALID_ACK)
    if not again and (to_client or packet[ACK_NUMBER] == np.int64(sides[other].expected)):
        if not in_window(sessions, sides, packet, side):
            return _refuse(packet, _FIN1_ACK_WRONG_SEQ)
        if packet[SEQ] == due:
            set_state(sessions, side >> 1, TCP_FIN_WAIT_2)
        take_window(sides, packet, other)
    take_stamp(sessions, sides, packet, side, settings)
    _catch_up(sides, packet, other, 1)
    if packet[SEQ] == due:
        update_expected(sessions, sides, side, packet[END])
    update_acked(sides, other, packet[ACK_NUMBER])
    update_sacked(sides, packet, other)
    update_edge(sides, other)
    return DATA


@kernel(_STATE, entry=False)
def _in_fin_wait_2(
    sessions: NDArray[Any], sides: NDArray[Any], packet: NDArray[np.int64], side: int, settings: NDArray[np.int64]
) -> Any:
    me, other = sides[side], side ^ 1
    due = np.int64(me.expected)
    fin = packet[FLAGS] & FIN != 0
    again = fin and packet[SEQ] == wrap(due - 1) and packet[ACK_NUMBER] == np.int64(sides[other].acked)
    if not again:
        again = is_retransmission(sides, packet, side)
        if fin and not again and (ahead(packet[SEQ], due) < 0 or _beyond_window(sides, packet, side)):
            return _refuse(packet, _FIN2_FIN_WRONG_SEQ)
    if not valid_ack(sessions, sides, packet, other):
        return _refuse(packet, _FIN2_INVALID_ACK)
    if not again:
        if fin:
            set_state(sessions, side >> 1, TCP_TIME_WAIT)
            if not packet[TO_CLIENT] and packet[SEQ] == due:
                update_expected(sessions, sides, side, packet[END])
        elif not in_window(sessions, sides, packet, side):
            return _refuse(packet, _FIN2_ACK_WRONG_SEQ)
        take_window(sides, packet, other)
    take_stamp(sessions, sides, packet, side, settings)
    if fin:
        _catch_up(sides, packet, other, 0)
        if packet[FLAGS] & ACK:
            update_acked(sides, other, packet[ACK_NUMBER])
        return DATA
    if packet[SEQ] == due:
        update_expected(sessions, sides, side, packet[END])
    update_acked(sides, other, packet[ACK_NUMBER])
    update_sacked(sides, packet, other)
    update_edge(sides, other)
    return DATA


@kernel(_STATE, entry=False)
def _in_closing(
    sessions: NDArray[Any], sides: NDArray[Any], packet: NDArray[np.int64], side: int, settings: NDArray[np.int64]
) -> Any:
    other = side ^ 1
    again = is_retransmission(sides, packet, side)
    if packet[SEQ] != np.int64(sides[side].expected):
        return _refuse(packet, _CLOSING_WRONG_SEQ)
    if not valid_ack(sessions, sides, packet, other):
        return _refuse(packet, _CLOSING_INVALID_ACK)
    if not again:
        set_state(sessions, side >> 1, TCP_TIME_WAIT)
        take_window(sides, packet, other if packet[TO_CLIENT] else side)
    take_stamp(sessions, sides, packet, side, settings)
    _catch_up(sides, packet, other, 0)
    update_acked(sides, other, packet[ACK_NUMBER])
    return DATA


@kernel(_STATE, entry=False)
def _in_close_wait(
    sessions: NDArray[Any], sides: NDArray[Any], packet: NDArray[np.int64], side: int, settings: NDArray[np.int64]
) -> Any:
    me, other = sides[side], side ^ 1
    due = np.int64(me.expected)
    again = is_retransmission(sides, packet, side)
    if packet[FLAGS] & FIN:
        if not again and (ahead(packet[SEQ], due) < 0 or _beyond_window(sides, packet, side)):
            return _refuse(packet, _CLOSEWAIT_FIN_OUT)
    elif packet[LENGTH] > 0 and ahead(packet[END], me.acked) <= 0:
        return _refuse(packet, _CLOSEWAIT_BEFORE_ACK)
    elif _beyond_window(sides, packet, side):
        return _refuse(packet, _CLOSEWAIT_ACK_OUT)
    if not valid_ack(sessions, sides, packet, other):
        return _refuse(packet, _CLOSEWAIT_INVALID_ACK)
    if not again:
        if packet[FLAGS] & FIN and packet[TO_CLIENT]:
            set_state(sessions, side >> 1, TCP_LAST_ACK)
        take_window(sides, packet, other)
    take_stamp(sessions, sides, packet, side, settings)
    _catch_up(sides, packet, other, 0)
    if not packet[FLAGS] & FIN and packet[SEQ] == due:
        update_expected(sessions, sides, side, packet[END])
    if packet[FLAGS] & ACK:
        update_acked(sides, other, packet[ACK_NUMBER])
    return DATA


@kernel(_STATE, entry=False)
def _in_last_ack(
    sessions: NDArray[Any], sides: NDArray[Any], packet: NDArray[np.int64], side: int, settings: NDArray[np.int64]
) -> Any:
    other = side ^ 1
    due = np.int64(sides[side].expected)
    again = is_retransmission(sides, packet, side)
    if not valid_ack(sessions, sides, packet, other):
        return _refuse(packet, _LASTACK_INVALID_ACK)
    if not again:
        past = ahead(packet[SEQ], due)
        if past > 1:
            return _refuse(packet, _LASTACK_WRONG_SEQ)
        if past >= 0:
            set_state(sessions, side >> 1, TCP_CLOSED)
        take_window(sides, packet, other)
    take_stamp(sessions, sides, packet, side, settings)
    _catch_up(sides, packet, other, 0)
    update_acked(sides, other, packet[ACK_NUMBER])
    return DATA


@kernel(_STATE, entry=False)
def _in_time_wait(
    sessions: NDArray[Any], sides: NDArray[Any], packet: NDArray[np.int64], side: int, settings: NDArray[np.int64]
) -> Any:
    other, to_client = side ^ 1, packet[TO_CLIENT] != 0
    past = ahead(packet[SEQ], np.int64(sides[side].expected) - (1 if to_client else 0))
    again = is_retransmission(sides, packet, side)
    if not again and (past < 0 or past > 1):
        if to_client and packet[LENGTH] > 0 and packet[SEQ] == np.int64(sides[side].acked):
            return NOTHING
        return _refuse(packet, _TIMEWAIT_WRONG_SEQ)
    if not valid_ack(sessions, sides, packet, other):
        return _refuse(packet, _TIMEWAIT_INVALID_ACK)
    if not again:
        set_state(sessions, side >> 1, TCP_CLOSED)
        take_window(sides, packet, other)
    take_stamp(sessions, sides, packet, side, settings)
    _catch_up(sides, packet, other, 0)
    update_acked(sides, other, packet[ACK_NUMBER])
    return DATA


@kernel(_I64(SESSIONS, SIDES, PACKET, _I64, SETTINGS, _I64), entry=False)
def shut_down(
    sessions: NDArray[Any],
    sides: NDArray[Any],
    packet: NDArray[np.int64],
    side: int,
    settings: NDArray[np.int64],
    state: int,
) -> Any:
    """A packet of a connection in a state between the first FIN and the end."""
    flags = packet[FLAGS]
    if flags & RST:
        if not valid_reset(sessions, sides, packet, side, settings):
            return REFUSED
        take_reset(sessions, sides, packet, side, settings)
        return DATA
    fin = flags & FIN != 0
    if fin and (state == TCP_LAST_ACK or state == TCP_TIME_WAIT):
        return NOTHING
    if not fin or state == TCP_CLOSING:
        if flags & SYN:
            return _refuse(packet, _SYN_RESEND)
        if not flags & ACK:
            return NOTHING
    if not valid_stamp(sessions, sides, packet, side, settings):
        return REFUSED
    if state == TCP_FIN_WAIT_1:
        if fin:
            return _fin_in_fin_wait_1(sessions, sides, packet, side, settings)
        return _ack_in_fin_wait_1(sessions, sides, packet, side, settings)
    if state == TCP_FIN_WAIT_2:
        return _in_fin_wait_2(sessions, sides, packet, side, settings)
    if state == TCP_CLOSING:
        return _in_closing(sessions, sides, packet, side, settings)
    if state == TCP_CLOSE_WAIT:
        return _in_close_wait(sessions, sides, packet, side, settings)
    if state == TCP_LAST_ACK:
        if packet[TO_CLIENT]:
            return NOTHING
        return _in_last_ack(sessions, sides, packet, side, settings)
    return _in_time_wait(sessions, sides, packet, side, settings)
