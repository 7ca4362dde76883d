"""Header decoding: one HEADER row a frame, in compiled code."""

# Chains of comparisons compile faster than membership in a tuple.
# ruff: noqa: PLR1714, SIM109

from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from flowshunt.compiled import BYTES, column, kernel, matrix
from flowshunt.packets.batch import LINK_ETHERNET, FrameBatch
from flowshunt.packets.encapsulation import (
    ETHERNET_FRAME,
    ETHERNET_HEADER,
    IPV4,
    IPV6,
    decode_encapsulation,
    decode_link,
)
from flowshunt.packets.headers import (
    FRAGMENT,
    HEADER,
    NO_VLAN,
    TOO_DEEP,
    TRUNCATED,
    TUNNEL_IP4_IN_IP4,
    TUNNEL_IP4_IN_IP6,
    TUNNEL_IP6_IN_IP4,
    TUNNEL_IP6_IN_IP6,
    TUNNEL_NONE,
)
from flowshunt.packets.loads import load16
from flowshunt.packets.network import INT, STOP, decode_ipv4, decode_ipv6, mark
from flowshunt.packets.transport import TCP, UDP, decode_other, decode_tcp, decode_udp
from flowshunt.packets.tunnels import (
    GRE,
    IP_IN_IP,
    IPV6_IN_IP,
    decode_gre,
    decode_udp_tunnel,
    may_be_tunnel,
)

MAX_DEPTH = 255


@kernel(
    types.void(
        BYTES,
        column(np.int64, readonly=True),
        column(np.uint32, readonly=True),
        column(np.uint16, readonly=True),
        INT,
        column(HEADER),
        matrix(np.uint64),
    )
)
def decode_frames(
    data: NDArray[np.uint8],
    offset: NDArray[np.int64],
    captured: NDArray[np.uint32],
    link: NDArray[np.uint16],
    depth: int,
    out: NDArray[Any],
    words: NDArray[np.uint64],
) -> None:
    """Decode every frame into its row of `out`; `words` are the same rows as 8 words each."""
    for i in range(offset.size):
        for word in range(8):
            words[i, word] = 0
        row = out[i]
        row.vlan = NO_VLAN
        row.inner_vlan = NO_VLAN
        base = offset[i]
        end = base + np.int64(captured[i])
        if base < 0 or end > data.size:
            row.flags = TRUNCATED
            continue
        at = base
        whole = 0
        if link[i] == LINK_ETHERNET and end - at >= ETHERNET_HEADER:
            following = load16(data, at + 12)
            if following == IPV4 or following == IPV6:
                at += ETHERNET_HEADER
            else:
                following = ETHERNET_FRAME
        else:
            following, at = decode_link(data, row, np.int64(link[i]), at, end)
        while True:
            if following == IPV4 or following == IPV6:
                row.ethertype = following
            else:
                following, at = decode_encapsulation(data, row, following, at, end)
            if following == IPV4:
                protocol, at, end, whole = decode_ipv4(data, row, base, at, end, whole)
            elif following == IPV6:
                protocol, at, end, whole = decode_ipv6(data, row, base, at, end, whole)
            else:
                mark(row, following, whole)
                break
            following = STOP
            tunnel = TUNNEL_NONE
            if protocol == TCP:
                decode_tcp(data, row, base, at, end, whole)
            elif protocol == UDP:
                decode_udp(data, row, base, at, end, whole)
                port = np.int64(row.destination_port)
                if may_be_tunnel(np.int64(row.source_port), port) and row.l4 != 0 and not row.flags & FRAGMENT:
                    end = base + np.int64(row.payload) + np.int64(row.payload_length)
                    begin = base + np.int64(row.payload)
                    tunnel, following, at = decode_udp_tunnel(data, np.int64(row.source_port), port, begin, end)
            elif protocol < 0:
                mark(row, protocol, whole)
            elif row.flags & FRAGMENT:
                decode_other(data, row, base, protocol, at, end, whole)
            elif protocol == GRE:
                tunnel, following, at = decode_gre(data, row, at, end)
            elif protocol == IP_IN_IP:
                following = IPV4
                tunnel = TUNNEL_IP4_IN_IP4 if row.ip_version == 4 else TUNNEL_IP4_IN_IP6
            elif protocol == IPV6_IN_IP:
                following = IPV6
                tunnel = TUNNEL_IP6_IN_IP4 if row.ip_version == 4 else TUNNEL_IP6_IN_IP6
            else:
                decode_other(data, row, base, protocol, at, end, whole)
            if tunnel == TUNNEL_NONE:
                mark(row, following, whole)
                break
            if row.depth >= depth:
                row.flags |= TOO_DEEP
                break
            row.depth += 1
            row.tunnel = tunnel


def decode(batch: FrameBatch, *, depth: int = 8, out: NDArray[Any] | None = None) -> NDArray[Any]:
    """Decode the headers of every frame of a batch.

    `depth` is how many tunnels to enter (0 to 255): with 0 the rows describe the outermost packet. `out`, contiguous
    HEADER rows, is filled where it is given, so that memory can be used again; it must have room for the batch.

    Returns HEADER[n]. Any bytes are accepted: what contradicts itself or is cut off is marked in `flags`, and decoding
    stops there. A packet that can't be decoded inside a tunnel leaves the row describing the packet around it, with
    `tunnel`, `depth` and `ethertype` telling of the tunnel. Tunnels in fragments are not entered.
    """
    if not 0 <= depth <= MAX_DEPTH:
        raise ValueError(f"depth is {depth}, outside 0 to {MAX_DEPTH}")
    count = len(batch)
    rows = np.empty(count, HEADER) if out is None else out[:count]
    if rows.dtype != HEADER or len(rows) < count or not rows.flags.c_contiguous:
        raise ValueError(f"out must be {count} or more contiguous HEADER rows")
    words = rows.view(np.uint64).reshape(count, 8)
    offset, captured, link = (np.ascontiguousarray(c) for c in (batch.offset, batch.captured, batch.link))
    decode_frames(batch.data, offset, captured, link, depth, rows, words)
    return rows
