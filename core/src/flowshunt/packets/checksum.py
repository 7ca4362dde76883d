"""Checksums of decoded frames, verified in compiled code (RFC 1071, RFC 8200 section 8.1).

The checksums of the innermost packet are looked at. One that can't be computed counts as right: headers or payload that
were cut off, fragments, packets that segmentation offload left without a length, UDP without a checksum, and addresses
that a source route changes on the way.
"""

# Chains of comparisons compile faster than membership in a tuple.
# ruff: noqa: PLR1714, SIM109

from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from flowshunt.compiled import BYTES, column, kernel
from flowshunt.packets.batch import FrameBatch
from flowshunt.packets.headers import FRAGMENT, HEADER, IP_OPTIONS, MALFORMED, TRUNCATED
from flowshunt.packets.loads import load8, load16
from flowshunt.packets.network import INT, IPV6_HEADER
from flowshunt.packets.transport import ICMP, ICMPV6, TCP, UDP

BAD_IPV4 = 1 << 0
BAD_TCP = 1 << 1
BAD_UDP = 1 << 2
BAD_ICMP = 1 << 3
"""ICMP or ICMPv6."""

_LOOSE_SOURCE_ROUTE = 0x83
_STRICT_SOURCE_ROUTE = 0x89
_ROUTING = 43
_FRAGMENT_HEADER = 44
_AUTHENTICATION = 51


@kernel(INT(BYTES, INT, INT), entry=False)
def sum_words(data: NDArray[np.uint8], start: int, end: int) -> int:
    """The sum of the 16-bit words in [start, end), an odd last byte padded with 0; not folded."""
    total = 0
    at = start
    for _ in range((end - start) // 2):
        total += load16(data, at)
        at += 2
    if at < end:
        total += load8(data, at) << 8
    return total


@kernel(types.boolean(INT), inline=True, entry=False)
def is_wrong(total: int) -> bool:
    """Whether a sum over data and its checksum is not all ones."""
    total = (total & 0xFFFF) + (total >> 16)
    total = (total & 0xFFFF) + (total >> 16)
    total = (total & 0xFFFF) + (total >> 16)
    return total != 0xFFFF


@kernel(types.boolean(BYTES, INT, INT, INT), entry=False)
def is_source_routed(data: NDArray[np.uint8], version: int, l3: int, l4: int) -> bool:
    """Whether options or extension headers between `l3` and `l4` may change the destination address on the way."""
    if version == 4:
        at = l3 + 20
        while at + 2 < l4:
            kind = load8(data, at)
            if kind == 0:
                return False
            if kind == 1:
                at += 1
                continue
            if kind == _LOOSE_SOURCE_ROUTE or kind == _STRICT_SOURCE_ROUTE:
                return load8(data, at + 2) <= load8(data, at + 1)
            at += max(load8(data, at + 1), 2)
        return False
    kind = load8(data, l3 + 6)
    at = l3 + IPV6_HEADER
    while at + 8 <= l4:
        if kind == _ROUTING:
            return load8(data, at + 3) != 0
        size = (load8(data, at + 1) + 1) * 8
        if kind == _AUTHENTICATION:
            size = (load8(data, at + 1) + 2) * 4
        elif kind == _FRAGMENT_HEADER:
            size = 8
        kind = load8(data, at)
        at += size
    return False


@kernel(
    types.void(
        BYTES,
        column(np.int64, readonly=True),
        column(np.uint32, readonly=True),
        column(HEADER, readonly=True),
        column(np.uint8),
    )
)
def verify_frames(
    data: NDArray[np.uint8],
    offset: NDArray[np.int64],
    captured: NDArray[np.uint32],
    headers: NDArray[Any],
    wrong: NDArray[np.uint8],
) -> None:
    """Set the bits of what is wrong for each frame. Rows that don't fit their frames are passed over."""
    for i in range(offset.size):
        wrong[i] = 0
        row = headers[i]
        base = offset[i]
        size = np.int64(captured[i])
        l3 = np.int64(row.l3)
        l4 = np.int64(row.l4)
        end = np.int64(row.payload) + np.int64(row.payload_length)
        version = np.int64(row.ip_version)
        if version == 0 or base < 0 or base + size > data.size or end > size:
            continue
        if version == 4:
            if l3 + 20 > size:
                continue
            length = (load8(data, base + l3) & 15) * 4
            if l3 + length > size:
                continue
            if is_wrong(sum_words(data, base + l3, base + l3 + length)):
                wrong[i] |= BAD_IPV4
            if load16(data, base + l3 + 2) == 0:
                continue
        elif l3 + IPV6_HEADER > size or load16(data, base + l3 + 4) == 0:
            continue
        flags = np.int64(row.flags)
        if l4 <= l3 or l4 + 8 > end or flags & (FRAGMENT | TRUNCATED | MALFORMED):
            continue
        protocol = np.int64(row.protocol)
        total = 0
        if protocol != ICMP:
            if flags & IP_OPTIONS and is_source_routed(data, version, base + l3, base + l4):
                continue
            addresses = base + l3 + (12 if version == 4 else 8)
            total = sum_words(data, addresses, addresses + (8 if version == 4 else 32)) + protocol + end - l4
        if protocol == TCP:
            bit = BAD_TCP
        elif protocol == UDP:
            if load16(data, base + l4 + 6) == 0:
                continue
            bit = BAD_UDP
        elif protocol == ICMP or protocol == ICMPV6:
            bit = BAD_ICMP
        else:
            continue
        if is_wrong(total + sum_words(data, base + l4, base + end)):
            wrong[i] |= bit


def verify_checksums(batch: FrameBatch, headers: NDArray[Any]) -> NDArray[np.uint8]:
    """Which checksums of each frame are wrong: uint8[n] of the BAD_ bits.

    `headers` are the batch's HEADER[n] rows as `flowshunt.packets.decode.decode` gives them.
    """
    if len(headers) != len(batch) or headers.dtype != HEADER:
        raise ValueError(f"headers must be {len(batch)} HEADER rows, one a frame")
    wrong = np.empty(len(batch), np.uint8)
    offset, captured = np.ascontiguousarray(batch.offset), np.ascontiguousarray(batch.captured)
    verify_frames(batch.data, offset, captured, np.ascontiguousarray(headers), wrong)
    return wrong
