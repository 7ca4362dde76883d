"""Kernels for IP: IPv4 (RFC 791), IPv6 (RFC 8200) and its extension headers, written into a HEADER row.

Positions are absolute in the buffer; `base` is where the frame starts. `end` is where the bytes of the packet end that
are at hand: everything before it may be read. `whole` is 1 where the packet really ends there, 0 where the capture cut
it off: a header that doesn't fit is then TRUNCATED, not MALFORMED.
"""

# Chains of comparisons compile faster than membership in a tuple.
# ruff: noqa: PLR1714, SIM109

from typing import Any

import numba
import numpy as np
from numba import types
from numpy.typing import NDArray

from flowshunt.compiled import BYTES, kernel
from flowshunt.packets.headers import (
    FRAGMENT,
    HEADER,
    IP_OPTIONS,
    LATER_FRAGMENT,
    MALFORMED,
    MORE_FRAGMENTS,
    TOO_DEEP,
    TRUNCATED,
)
from flowshunt.packets.loads import load8, load16, load32

ROW = numba.from_dtype(HEADER)
INT = types.int64

STOP = -1
"""Nothing follows that could be decoded."""
CUT = -2
"""The bytes end inside a header: TRUNCATED, or MALFORMED where they were whole."""
BROKEN = -3
"""A length or version field can't be: MALFORMED."""
DEEP = -4
"""More headers than the limit: TOO_DEEP."""

IPV4_HEADER = 20
IPV6_HEADER = 40
NO_NEXT_HEADER = 59

_HOP_BY_HOP = 0
_ROUTING = 43
_FRAGMENT_HEADER = 44
_AUTHENTICATION = 51
_DESTINATION_OPTIONS = 60
_MOBILITY = 135
_HOST_IDENTITY = 139
_SHIM6 = 140
_MAX_EXTENSIONS = 16


@kernel(types.void(ROW, INT, INT), inline=True, entry=False)
def mark(row: Any, outcome: int, whole: int) -> None:
    """Set the flag that says why decoding ended, where it ended too early."""
    if outcome == CUT:
        row.flags |= MALFORMED if whole else TRUNCATED
    elif outcome == BROKEN:
        row.flags |= MALFORMED
    elif outcome == DEEP:
        row.flags |= TOO_DEEP


@kernel(types.void(ROW, INT, INT, INT, INT, INT, INT), inline=True, entry=False)
def begin_packet(row: Any, base: int, at: int, version: int, protocol: int, start: int, end: int) -> None:
    """Make the IP header at `at` the innermost one: its payload is [start, end), its transport not known yet."""
    if row.ip_version == 0:
        row.outer_l3 = at - base
    else:
        row.l4 = 0
        row.seq = 0
        row.ack = 0
        row.source_port = 0
        row.destination_port = 0
        row.window = 0
        row.tcp_flags = 0
        row.flags &= ~IP_OPTIONS
    row.l3 = at - base
    row.ip_version = version
    row.protocol = protocol
    start = min(start, end)
    row.payload = start - base
    row.payload_length = end - start


@kernel(types.UniTuple(INT, 4)(BYTES, ROW, INT, INT, INT, INT), inline=True, entry=False)
def decode_ipv4(
    data: NDArray[np.uint8], row: Any, base: int, at: int, end: int, whole: int
) -> tuple[int, int, int, int]:
    """Decode an IPv4 header. Returns (protocol or STOP, CUT, BROKEN, DEEP; payload, end of the packet, whole)."""
    if end - at < IPV4_HEADER:
        return CUT, at, end, whole
    first = load8(data, at)
    length = (first & 15) * 4
    total = load16(data, at + 2)
    if first >> 4 != 4 or length < IPV4_HEADER or 0 < total < length:
        return BROKEN, at, end, whole
    # Segmentation offload hands packets to the capture whose total length is still 0.
    if total > 0:
        if at + total > end:
            row.flags |= TRUNCATED
            whole = 0
        else:
            end = at + total
            whole = 1
    protocol = load8(data, at + 9)
    begin_packet(row, base, at, 4, protocol, at + length, end)
    row.ttl = load8(data, at + 8)
    if length > IPV4_HEADER:
        row.flags |= IP_OPTIONS
        if at + length > end:
            return CUT, end, end, whole
    fragment = load16(data, at + 6)
    if fragment & 0x3FFF:
        row.flags |= FRAGMENT
        row.fragment_id = load16(data, at + 4)
        row.fragment_offset = fragment & 0x1FFF
        if fragment & 0x2000:
            row.flags |= MORE_FRAGMENTS
        if fragment & 0x1FFF:
            row.flags |= LATER_FRAGMENT
            protocol = STOP
    return protocol, at + length, end, whole


@kernel(types.UniTuple(INT, 4)(BYTES, ROW, INT, INT, INT, INT), entry=False)
def decode_ipv6(
    data: NDArray[np.uint8], row: Any, base: int, at: int, end: int, whole: int
) -> tuple[int, int, int, int]:
    """Decode an IPv6 header and its extension headers. Returns as `decode_ipv4` does."""
    if end - at < IPV6_HEADER:
        return CUT, at, end, whole
    if load8(data, at) >> 4 != 6:
        return BROKEN, at, end, whole
    length = load16(data, at + 4)
    protocol = load8(data, at + 6)
    start = at + IPV6_HEADER
    # A payload length of 0 means a jumbogram (RFC 2675) or segmentation offload, unless nothing follows.
    if length > 0 or protocol == NO_NEXT_HEADER:
        if start + length > end:
            row.flags |= TRUNCATED
            whole = 0
        else:
            end = start + length
            whole = 1
    begin_packet(row, base, at, 6, protocol, start, end)
    row.ttl = load8(data, at + 7)
    at = start
    for _ in range(_MAX_EXTENSIONS):
        if not (
            protocol == _HOP_BY_HOP
            or protocol == _ROUTING
            or protocol == _FRAGMENT_HEADER
            or protocol == _AUTHENTICATION
            or protocol == _DESTINATION_OPTIONS
            or protocol == _MOBILITY
            or protocol == _HOST_IDENTITY
            or protocol == _SHIM6
        ):
            return protocol, at, end, whole
        row.flags |= IP_OPTIONS
        size = 8
        if end - at >= size:
            if protocol == _AUTHENTICATION:
                size = (load8(data, at + 1) + 2) * 4
            elif protocol != _FRAGMENT_HEADER:
                size = (load8(data, at + 1) + 1) * 8
        if end - at < size:
            return CUT, at, end, whole
        following = load8(data, at)
        later = False
        if protocol == _FRAGMENT_HEADER:
            position = load16(data, at + 2)
            # Offset 0 with nothing to follow is an atomic fragment (RFC 6946): a whole packet.
            if position & 0xFFF9:
                row.flags |= FRAGMENT
                row.fragment_id = load32(data, at + 4)
                row.fragment_offset = position >> 3
                if position & 1:
                    row.flags |= MORE_FRAGMENTS
                later = position >> 3 != 0
        protocol = following
        at += size
        row.protocol = protocol
        row.payload = at - base
        row.payload_length = end - at
        if later:
            row.flags |= LATER_FRAGMENT
            return STOP, at, end, whole
    return DEEP, at, end, whole
