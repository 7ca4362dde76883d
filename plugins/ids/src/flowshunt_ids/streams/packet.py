"""A TCP packet as the state machine sees it: numbers in one row of int64, and the options of its header."""

# ruff: noqa: PLR1714 -- kernels compare scalars

from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from flowshunt.compiled import BYTES, column, kernel, piece
from flowshunt.packets.headers import HEADER

_I64 = types.int64

FIN, SYN, RST, ACK, URG = 1, 2, 4, 16, 32

SEQ = 0
ACK_NUMBER = 1
FLAGS = 2
WINDOW = 3
LENGTH = 4
"""Bytes of payload."""
END = 5
"""The sequence number after the payload."""
SECONDS = 6
SOURCE = 7
"""Where the payload lies in the batch's buffer."""
TO_CLIENT = 8
URGENT = 9
"""The urgent pointer."""
STAMPED = 10
"""Whether there is a timestamp; its value and what it echoes follow."""
STAMP = 11
ECHO = 12
SCALE = 13
"""The window scale; -1: none."""
SACK_OK = 14
FAST_OPEN = 15
"""Whether there is a TCP Fast Open option (RFC 7413)."""
SIGNED = 16
"""Whether it is signed (RFC 2385, RFC 5925)."""
SACKS = 17
"""How many ranges are acknowledged selectively; the ranges follow, two numbers each."""
FIRST_SACK = 18
EVENTS = 26
"""How many events the packet has; their numbers follow."""
FIRST_EVENT = 27
MAX_EVENTS = 15
"""The most events of one packet, as in Suricata."""
ESTABLISHED = 42
"""Whether it completes the handshake with data in it."""
PACKET_SIZE = 43

PACKET = column(np.int64)
"""int64[PACKET_SIZE]."""


@piece
def ahead(later: Any, earlier: Any) -> Any:
    """How far one sequence number lies after another, modulo 2^32 (RFC 793, section 3.3): -2^31 to 2^31 - 1."""
    return np.int64(np.int32(np.int64(later) - np.int64(earlier)))


@piece
def wrap(number: Any) -> Any:
    """A sum of sequence numbers, modulo 2^32."""
    return np.int64(number) & 0xFFFFFFFF


@kernel(types.void(PACKET, _I64), entry=False)
def note(packet: NDArray[np.int64], event: int) -> None:
    """Add an event to the packet."""
    count = packet[EVENTS]
    if count < MAX_EVENTS:
        packet[FIRST_EVENT + count] = event
        packet[EVENTS] = count + 1


@kernel(_I64(BYTES, _I64), inline=True, entry=False)
def _word(data: NDArray[np.uint8], at: int) -> Any:
    return (
        (np.int64(data[at]) << 24)
        | (np.int64(data[at + 1]) << 16)
        | (np.int64(data[at + 2]) << 8)
        | np.int64(data[at + 3])
    )


@kernel(types.void(PACKET, BYTES, _I64, _I64), entry=False)
def _read_options(packet: NDArray[np.int64], data: NDArray[np.uint8], at: int, end: int) -> None:
    """Read the options at data[at:end]. A second option of a kind, or one with a wrong length, is passed over."""
    while at < end:
        kind = data[at]
        if kind == 0:
            return
        if kind == 1:
            at += 1
            continue
        if at + 1 >= end:
            return
        size: Any = np.int64(data[at + 1])
        if size < 2 or at + size > end:
            return
        if kind == 3 and size == 3 and packet[SCALE] < 0:
            packet[SCALE] = data[at + 2] if data[at + 2] <= 14 else np.int64(0)
        elif kind == 4 and size == 2:
            packet[SACK_OK] = 1
        elif kind == 5 and size >= 10 and (size - 2) % 8 == 0 and packet[SACKS] == 0:
            count: Any = (size - 2) // 8
            if count > 4:
                count = np.int64(4)
            packet[SACKS] = count
            for number in range(2 * count):
                packet[FIRST_SACK + number] = _word(data, at + 2 + 4 * number)
        elif kind == 8 and size == 10 and packet[STAMPED] == 0:
            packet[STAMPED] = 1
            packet[STAMP] = _word(data, at + 2)
            packet[ECHO] = _word(data, at + 6)
        elif (kind == 34 and (size == 2 or (size >= 6 and size <= 18 and size & 1 == 0))) or (
            (kind == 253 or kind == 254) and (size == 4 or size == 12) and data[at + 2] == 0xF9 and data[at + 3] == 0x89
        ):
            packet[FAST_OPEN] = 1
        elif kind == 19 or kind == 29:
            packet[SIGNED] = 1
        at += size


@kernel(types.void(PACKET, column(HEADER, readonly=True), _I64, BYTES, _I64, _I64, _I64), entry=False)
def read_packet(
    packet: NDArray[np.int64],
    headers: NDArray[Any],
    row: int,
    data: NDArray[np.uint8],
    base: int,
    end: int,
    time: int,
) -> None:
    """Fill in the packet in `row`, whose frame is data[base:end] (read only as far as data goes); time: ns."""
    header = headers[row]
    packet[SEQ] = header.seq
    packet[ACK_NUMBER] = header.ack
    packet[FLAGS] = header.tcp_flags
    packet[WINDOW] = header.window
    packet[LENGTH] = header.payload_length
    packet[END] = wrap(packet[SEQ] + packet[LENGTH])
    packet[SECONDS] = time // 1_000_000_000 & 0xFFFFFFFF
    packet[SOURCE] = base + np.int64(header.payload)
    packet[URGENT] = packet[STAMPED] = packet[SACK_OK] = packet[FAST_OPEN] = packet[SIGNED] = 0
    packet[SACKS] = packet[EVENTS] = packet[ESTABLISHED] = 0
    packet[SCALE] = -1
    start = base + np.int64(header.l4)
    if start < 0 or start + 20 > min(end, len(data)):
        return
    if packet[FLAGS] & URG:
        packet[URGENT] = (np.int64(data[start + 18]) << 8) | np.int64(data[start + 19])
    size = 4 * (np.int64(data[start + 12]) >> 4)
    if size > 20:
        _read_options(packet, data, start + 20, min(start + size, end, len(data)))
