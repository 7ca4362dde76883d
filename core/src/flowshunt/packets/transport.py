"""Kernels for transport headers: TCP, UDP, ICMP, ICMPv6, SCTP, written into a HEADER row.

Positions, `end` and `whole` are as in `flowshunt.packets.network`. The fixed part of a header has to be at hand for
`l4` to be set; TCP options may be cut off.
"""

from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from flowshunt.compiled import BYTES, kernel
from flowshunt.packets.headers import FRAGMENT, MALFORMED, TRUNCATED
from flowshunt.packets.loads import load8, load16, load32
from flowshunt.packets.network import INT, ROW

ICMP = 1
TCP = 6
UDP = 17
ICMPV6 = 58
SCTP = 132

TCP_HEADER = 20
UDP_HEADER = 8
ICMP_HEADER = 8
SCTP_HEADER = 12


@kernel(types.void(BYTES, ROW, INT, INT, INT, INT), inline=True, entry=False)
def decode_tcp(data: NDArray[np.uint8], row: Any, base: int, at: int, end: int, whole: int) -> None:
    """TCP, RFC 9293."""
    room = end - at
    if room < TCP_HEADER:
        row.flags |= MALFORMED if whole else TRUNCATED
        return
    length = (load8(data, at + 12) >> 4) * 4
    if length < TCP_HEADER or (length > room and whole):
        row.flags |= MALFORMED
        return
    if length > room:
        row.flags |= TRUNCATED
        length = room
    row.l4 = at - base
    row.source_port = load16(data, at)
    row.destination_port = load16(data, at + 2)
    row.seq = load32(data, at + 4)
    row.ack = load32(data, at + 8)
    row.tcp_flags = load8(data, at + 13)
    row.window = load16(data, at + 14)
    row.payload = at + length - base
    row.payload_length = room - length


@kernel(types.void(BYTES, ROW, INT, INT, INT, INT), inline=True, entry=False)
def decode_udp(data: NDArray[np.uint8], row: Any, base: int, at: int, end: int, whole: int) -> None:
    """UDP, RFC 768. Bytes that follow the stated length are not payload."""
    room = end - at
    if room < UDP_HEADER:
        row.flags |= MALFORMED if whole else TRUNCATED
        return
    length = load16(data, at + 4)
    if length == 0 and not whole:
        length = room
    if length < UDP_HEADER or (length > room and whole and not row.flags & FRAGMENT):
        row.flags |= MALFORMED
        return
    row.l4 = at - base
    row.source_port = load16(data, at)
    row.destination_port = load16(data, at + 2)
    row.payload = at + UDP_HEADER - base
    row.payload_length = min(length, room) - UDP_HEADER


@kernel(types.void(BYTES, ROW, INT, INT, INT, INT, INT), entry=False)
def decode_other(data: NDArray[np.uint8], row: Any, base: int, protocol: int, at: int, end: int, whole: int) -> None:
    """ICMP (RFC 792) in IPv4, ICMPv6 (RFC 4443) in IPv6, SCTP (RFC 9260)."""
    control = (protocol == ICMP and row.ip_version == 4) or (protocol == ICMPV6 and row.ip_version == 6)
    if not control and protocol != SCTP:
        return
    length = ICMP_HEADER if control else SCTP_HEADER
    if end - at < length:
        row.flags |= MALFORMED if whole else TRUNCATED
        return
    row.l4 = at - base
    if control:
        row.source_port = load8(data, at)
        row.destination_port = load8(data, at + 1)
    else:
        row.source_port = load16(data, at)
        row.destination_port = load16(data, at + 2)
    row.payload = at + length - base
    row.payload_length = end - at - length
