"""TCP as seen from the middle: where a connection stands after each header.

SYN, SYN-ACK and the initiator's ACK make the handshake; so do crossing SYNs and the initiator's SYN-ACK (simultaneous
open, RFC 9293, section 3.5). After it, or in a flow that was picked up in the middle, a FIN starts CLOSING. CLOSED is
reached when both FINs are acknowledged, or by a RST, whose sequence number is not checked: a forged one shortens the
flow's timeout, and the next SYN then counts as a new connection.
"""

from typing import Any

import numpy as np
from numba import from_dtype, types

from flowshunt.compiled import kernel
from flowshunt.flows.layout import ACKED_0, FIN_0, FLOW_WORDS, HANDSHAKE, LIFE
from flowshunt.flows.record import TcpState

FIN = 1
SYN = 2
RST = 4
ACK = 16

_NONE = int(TcpState.NONE)
_SYN_SENT = int(TcpState.SYN_SENT)
_SYN_RECEIVED = int(TcpState.SYN_RECEIVED)
_ESTABLISHED = int(TcpState.ESTABLISHED)
_CLOSING = int(TcpState.CLOSING)
_CLOSED = int(TcpState.CLOSED)
_BOTH_FINS = FIN_0 * 3
_BOTH_ACKED = ACKED_0 * 3

_RECORD = from_dtype(FLOW_WORDS)
_LIFE = from_dtype(LIFE)


@kernel(types.boolean(_RECORD, _LIFE, types.int64), entry=False)
def restarts(record: Any, life: Any, tcp_flags: int) -> bool:
    """Whether a TCP header starts a connection anew on its tuple.

    It does where it is a SYN and the last connection was reset, has closed (the last acknowledgement may be missing)
    or was picked up in the middle.
    """
    if tcp_flags & (SYN | ACK | RST | FIN) != SYN:
        return False
    state = record.tcp_state
    return bool(state == _NONE or state == _CLOSED or life.bits & _BOTH_FINS == _BOTH_FINS)  # noqa: PLR1714, SIM109


@kernel(types.boolean(_RECORD, _LIFE, types.int64, types.int64, types.int64, types.int64), entry=False)
def tcp_step(record: Any, life: Any, direction: int, tcp_flags: int, end: int, ack: int) -> bool:
    """Take one TCP header into a flow; True where the flow's state changed.

    `end` is the sequence number after the segment, without its FIN. Numbers are taken modulo 2^32.
    """
    if direction == 0:
        record.tcp_flags_0 |= tcp_flags
    else:
        record.tcp_flags_1 |= tcp_flags
    state: Any = np.int64(record.tcp_state)
    bits: Any = np.int64(life.bits)
    if tcp_flags & RST:
        state = _CLOSED
    elif tcp_flags & (SYN | FIN) or bits & _BOTH_FINS or state != _ESTABLISHED:
        if state == _SYN_SENT and direction == 1 and tcp_flags & SYN:
            state = _SYN_RECEIVED
        elif state == _SYN_RECEIVED and direction == 0 and tcp_flags & ACK:
            state = _ESTABLISHED
            bits |= HANDSHAKE
        if tcp_flags & FIN:
            bits |= FIN_0 << direction
            if direction == 0:
                life.fin_0 = end + 1
            else:
                life.fin_1 = end + 1
        if tcp_flags & ACK and bits & (FIN_0 << (1 - direction)):
            ahead = ack - np.int64(life.fin_1)
            if direction == 1:
                ahead = ack - np.int64(life.fin_0)
            if ahead & 0x80000000 == 0:
                bits |= ACKED_0 << (1 - direction)
        if bits & _BOTH_ACKED == _BOTH_ACKED:
            state = _CLOSED
        elif bits & _BOTH_FINS and (state == _NONE or state == _ESTABLISHED):  # noqa: PLR1714, SIM109
            state = _CLOSING
    if state == record.tcp_state and bits == life.bits:
        return False
    record.tcp_state = state
    life.bits = bits
    return True
