"""Kernels for tunnel headers: GRE and NVGRE, VXLAN, GTP-U, Geneve, Teredo. IP in IP has none.

Positions, `end` and `whole` are as in `flowshunt.packets.network`; what a tunnel carries is given as in
`flowshunt.packets.encapsulation`.
"""

# Chains of comparisons compile faster than membership in a tuple.
# ruff: noqa: PLR1714, SIM109

from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from flowshunt.compiled import BYTES, kernel
from flowshunt.packets.encapsulation import ETHERNET_FRAME, IPV4, IPV6, decode_ppp
from flowshunt.packets.headers import (
    TUNNEL_GENEVE,
    TUNNEL_GRE,
    TUNNEL_GTPU,
    TUNNEL_NONE,
    TUNNEL_NVGRE,
    TUNNEL_TEREDO,
    TUNNEL_VXLAN,
)
from flowshunt.packets.loads import load8, load16
from flowshunt.packets.network import BROKEN, CUT, INT, ROW, STOP

IP_IN_IP = 4
IPV6_IN_IP = 41
GRE = 47

VXLAN_PORT = 4789
VXLAN_PORT_LINUX = 8472
GTPU_PORT = 2152
GENEVE_PORT = 6081
TEREDO_PORT = 3544

_GRE_CHECKSUM = 0x8000
_GRE_ROUTING = 0x4000
_GRE_KEY = 0x2000
_GRE_SEQUENCE = 0x1000
_GRE_ACKNOWLEDGE = 0x0080
_TRANSPARENT_ETHERNET = 0x6558
_ERSPAN = 0x88BE
_ERSPAN_III = 0x22EB
_PPP = 0x880B

_VXLAN_HEADER = 8
_GTPU_HEADER = 8
_GTPU_PACKET = 255
_MAX_GTPU_EXTENSIONS = 8


@kernel(types.UniTuple(INT, 3)(BYTES, ROW, INT, INT), entry=False)
def decode_gre(data: NDArray[np.uint8], row: Any, at: int, end: int) -> tuple[int, int, int]:
    """GRE (RFC 2784, 2890), NVGRE (RFC 7637), ERSPAN I to III, PPTP (RFC 2637).

    Returns (TUNNEL_NONE, TUNNEL_GRE or TUNNEL_NVGRE, what it carries, position).
    """
    if end - at < 4:
        return TUNNEL_NONE, CUT, at
    flags = load16(data, at)
    protocol = load16(data, at + 2)
    version = flags & 7
    if version > 1 or flags & _GRE_ROUTING:
        return TUNNEL_NONE, STOP, at
    length = 4
    if flags & _GRE_CHECKSUM:
        length += 4
    if flags & _GRE_KEY:
        length += 4
    if flags & _GRE_SEQUENCE:
        length += 4
    if version == 1 and flags & _GRE_ACKNOWLEDGE:
        length += 4
    if end - at < length:
        return TUNNEL_NONE, CUT, at
    at += length
    row.ethertype = protocol
    if version == 1:
        if protocol != _PPP or not flags & _GRE_SEQUENCE:
            return TUNNEL_GRE, STOP, at
        following, at = decode_ppp(data, at, end)
        return TUNNEL_GRE, following, at
    if protocol == _TRANSPARENT_ETHERNET:
        return (TUNNEL_NVGRE if flags & _GRE_KEY else TUNNEL_GRE), ETHERNET_FRAME, at
    if protocol == _ERSPAN:
        # Without a sequence number it is type I, which has no header of its own.
        return TUNNEL_GRE, ETHERNET_FRAME, at + (8 if flags & _GRE_SEQUENCE else 0)
    if protocol == _ERSPAN_III:
        if end - at < 12:
            return TUNNEL_NONE, CUT, at
        platform = 8 if load8(data, at + 11) & 1 else 0
        ethernet = (load8(data, at + 10) >> 2) & 31 == 0
        return TUNNEL_GRE, (ETHERNET_FRAME if ethernet else STOP), at + 12 + platform
    return TUNNEL_GRE, protocol, at


@kernel(types.UniTuple(INT, 3)(BYTES, INT, INT), entry=False)
def decode_geneve(data: NDArray[np.uint8], at: int, end: int) -> tuple[int, int, int]:
    """Geneve (RFC 8926), where version, reserved bits and the lengths of its options are as they should be."""
    size = 8 + 4 * (load8(data, at) & 63)
    if load8(data, at) >> 6 or load8(data, at + 1) & 0x3F or load8(data, at + 7) or end - at < size:
        return TUNNEL_NONE, STOP, at
    option = at + 8
    while option + 4 <= at + size:
        option += 4 + 4 * (load8(data, option + 3) & 31)
    if option != at + size:
        return TUNNEL_NONE, STOP, at
    protocol = load16(data, at + 2)
    if protocol == _TRANSPARENT_ETHERNET:
        return TUNNEL_GENEVE, ETHERNET_FRAME, at + size
    return TUNNEL_GENEVE, protocol, at + size


@kernel(types.UniTuple(INT, 3)(BYTES, INT, INT), entry=False)
def decode_teredo(data: NDArray[np.uint8], at: int, end: int) -> tuple[int, int, int]:
    """Teredo (RFC 4380): an IPv6 packet as long as the payload is, perhaps after an origin indication."""
    position = at
    if load16(data, at) == 0:
        position += 8
    if end - position < 40 or load8(data, position) >> 4 != 6:
        return TUNNEL_NONE, STOP, at
    length, following = load16(data, position + 4), load8(data, position + 6)
    if load8(data, position + 7) == 0 or (following == 0 and length < 8) or end - position != 40 + length:
        return TUNNEL_NONE, STOP, at
    return TUNNEL_TEREDO, IPV6, position


@kernel(types.boolean(INT, INT), inline=True, entry=False)
def may_be_tunnel(source: int, destination: int) -> bool:
    """Whether one of these UDP ports is a tunnel's."""
    return (
        destination == VXLAN_PORT
        or destination == GTPU_PORT
        or destination == VXLAN_PORT_LINUX
        or destination == GENEVE_PORT
        or source == GENEVE_PORT
        or destination == TEREDO_PORT
        or source == TEREDO_PORT
    )


@kernel(types.UniTuple(INT, 3)(BYTES, INT, INT, INT, INT), entry=False)
def decode_udp_tunnel(data: NDArray[np.uint8], source: int, port: int, at: int, end: int) -> tuple[int, int, int]:
    """VXLAN (RFC 7348), GTP-U (3GPP TS 29.281), Geneve and Teredo, by UDP ports and by what stands at `at`.

    Returns (TUNNEL_NONE or the kind of tunnel, what it carries, position). Other traffic on these ports is none of
    them.
    """
    if end - at < 8:
        return TUNNEL_NONE, STOP, at
    if port == TEREDO_PORT or source == TEREDO_PORT:
        return decode_teredo(data, at, end)
    if port == GENEVE_PORT or source == GENEVE_PORT:
        return decode_geneve(data, at, end)
    flags = load8(data, at)
    if port != GTPU_PORT:
        if not flags & 0x08:
            return TUNNEL_NONE, STOP, at
        return TUNNEL_VXLAN, ETHERNET_FRAME, at + _VXLAN_HEADER
    # Version 1, protocol type GTP, and a packet inside.
    if flags >> 4 != 3 or load8(data, at + 1) != _GTPU_PACKET:
        return TUNNEL_NONE, STOP, at
    position = at + _GTPU_HEADER
    if flags & 7:
        position += 4
        extension = 0
        if position <= end and flags & 4:
            extension = load8(data, position - 1)
        for _ in range(_MAX_GTPU_EXTENSIONS):
            if extension == 0 or position >= end:
                break
            size = load8(data, position) * 4
            if size == 0:
                return TUNNEL_NONE, BROKEN, at
            position += size
            if position <= end:
                extension = load8(data, position - 1)
        if extension != 0 and position < end:
            return TUNNEL_NONE, STOP, at
    if position >= end:
        return TUNNEL_NONE, CUT, at
    version = load8(data, position) >> 4
    if version != 4 and version != 6:
        return TUNNEL_GTPU, STOP, position
    return TUNNEL_GTPU, (IPV4 if version == 4 else IPV6), position
