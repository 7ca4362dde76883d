"""Kernels for what lies between a frame's start and its IP header: link headers, VLAN tags, MPLS labels, PPPoE, NSH.

Positions, `end` and `whole` are as in `flowshunt.packets.network`. A position is passed on with what stands there: an
EtherType, or one of the negative values below and those of `flowshunt.packets.network`.
"""

# Chains of comparisons compile faster than membership in a tuple.
# ruff: noqa: PLR1714, SIM109

from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from flowshunt.compiled import BYTES, kernel
from flowshunt.packets.batch import (
    LINK_CISCO_HDLC,
    LINK_ETHERNET,
    LINK_IPV4,
    LINK_IPV6,
    LINK_LINUX_SLL,
    LINK_LINUX_SLL2,
    LINK_LOOP,
    LINK_NULL,
    LINK_PPP,
    LINK_RAW,
    LINK_RAW_BSD,
    LINK_RAW_OPENBSD,
)
from flowshunt.packets.headers import NO_VLAN, UNKNOWN_LINK
from flowshunt.packets.loads import load8, load16, load32
from flowshunt.packets.network import BROKEN, CUT, DEEP, INT, ROW, STOP

ETHERNET_FRAME = -5
LLC = -6
IP_BY_VERSION = -7

IPV4 = 0x0800
IPV6 = 0x86DD
_ARP = 0x0806
_VLAN = 0x8100
_QINQ = 0x88A8
_QINQ_OLD = 0x9100
_MPLS = 0x8847
_MPLS_MULTICAST = 0x8848
_PPPOE_SESSION = 0x8864
_NSH = 0x894F
_PPP_IPV4 = 0x0021
_PPP_IPV6 = 0x0057
_LEAST_ETHERTYPE = 0x600

ETHERNET_HEADER = 14
_SNAP_HEADER = 8
_MAX_TAGS = 8
_MAX_LABELS = 16
_MAX_STEPS = 32

_ARPHRD_NETLINK = 824
_SLL_LLC = 4


@kernel(types.UniTuple(INT, 2)(BYTES, INT, INT), entry=False)
def decode_ppp(data: NDArray[np.uint8], at: int, end: int) -> tuple[int, int]:
    """What a PPP frame (RFC 1661) carries: (EtherType or STOP, position). Address and control bytes may lead it."""
    if end - at >= 2 and load16(data, at) == 0xFF03:
        at += 2
    if end - at < 2:
        return CUT, at
    protocol = load8(data, at)
    # An odd first byte is a compressed protocol field.
    if protocol & 1:
        at += 1
    else:
        protocol = load16(data, at)
        at += 2
    if protocol == _PPP_IPV4:
        return IPV4, at
    if protocol == _PPP_IPV6:
        return IPV6, at
    return STOP, at


@kernel(types.UniTuple(INT, 2)(BYTES, ROW, INT, INT, INT), entry=False)
def decode_link(data: NDArray[np.uint8], row: Any, link: int, at: int, end: int) -> tuple[int, int]:
    """What stands at a frame's start, or after its link header: (EtherType or such, position)."""
    if link == LINK_ETHERNET:
        return ETHERNET_FRAME, at
    if link == LINK_RAW or link == LINK_RAW_BSD or link == LINK_RAW_OPENBSD:
        return IP_BY_VERSION, at
    if link == LINK_IPV4:
        return IPV4, at
    if link == LINK_IPV6:
        return IPV6, at
    if link == LINK_PPP:
        return decode_ppp(data, at, end)
    following = STOP
    length = 4
    if link == LINK_LINUX_SLL:
        length = 16
    elif link == LINK_LINUX_SLL2:
        length = 20
    elif link != LINK_NULL and link != LINK_LOOP and link != LINK_CISCO_HDLC:
        row.flags |= UNKNOWN_LINK
        return STOP, at
    if end - at < length:
        return CUT, at
    if link == LINK_CISCO_HDLC:
        return load16(data, at + 2), at + length
    if link == LINK_NULL or link == LINK_LOOP:
        # The address family, in the byte order of whichever machine captured: it is a small number.
        family = load32(data, at)
        if family > 0xFFFF:
            family = ((family >> 24) & 0xFF) | ((family >> 8) & 0xFF00)
        if family == 2:
            following = IPV4
        elif family == 10 or family == 24 or family == 28 or family == 30:
            following = IPV6
        return following, at + length
    protocol = load16(data, at + 14) if link == LINK_LINUX_SLL else load16(data, at)
    hardware = load16(data, at + 2) if link == LINK_LINUX_SLL else load16(data, at + 8)
    if hardware != _ARPHRD_NETLINK:
        if protocol == _SLL_LLC:
            following = LLC
        elif protocol >= _LEAST_ETHERTYPE:
            following = protocol
    return following, at + length


@kernel(types.boolean(INT), inline=True, entry=False)
def is_familiar(ethertype: int) -> bool:
    """Whether a value where an EtherType is expected is one that frames in a pseudowire usually have."""
    return (
        ethertype == IPV4
        or ethertype == IPV6
        or ethertype == _ARP
        or ethertype == _VLAN
        or ethertype == _QINQ
        or ethertype == _MPLS
        or ethertype == _PPPOE_SESSION
        or ethertype <= 1500
    )


@kernel(types.UniTuple(INT, 2)(BYTES, INT, INT), entry=False)
def below_labels(data: NDArray[np.uint8], at: int, end: int) -> tuple[int, int]:
    """Guess what an MPLS label stack carries, for nothing in it says so: (what, bytes to skip before it).

    By the first nibble, as routers do (RFC 4928): 4 and 6 are IP where the length agrees; 0 is a control word
    (RFC 4385) or a MAC address, told apart by the EtherType; anything else is a MAC address.
    """
    room = end - at
    if room < 1:
        return IP_BY_VERSION, 0
    nibble = load8(data, at) >> 4
    plain = room >= ETHERNET_HEADER and is_familiar(load16(data, at + 12))
    if nibble == 4 and not (plain and room >= 4 and load16(data, at + 2) > room):
        return IPV4, 0
    if nibble == 6 and not (plain and load16(data, at + 4) + 40 > room):
        return IPV6, 0
    if nibble == 0 and (not plain or (load16(data, at) == 0 and (room < 18 or is_familiar(load16(data, at + 16))))):
        return ETHERNET_FRAME, 4 if room >= 4 else 0
    if nibble == 1 and not plain:
        return STOP, 0
    return ETHERNET_FRAME, 0


@kernel(types.UniTuple(INT, 2)(BYTES, INT, INT), entry=False)
def decode_service_header(data: NDArray[np.uint8], at: int, end: int) -> tuple[int, int]:
    """What follows a network service header (RFC 8300): (EtherType or such, position)."""
    if end - at < 8:
        return CUT, at
    first = load16(data, at)
    length = (first & 63) * 4
    kind = load8(data, at + 2) & 15
    if first >> 14 != 0 or (kind != 1 and kind != 2):
        return STOP, at
    if length < 8 or length >= end - at or (kind == 1 and length != 24):
        return BROKEN, at
    protocol = load8(data, at + 3)
    following = STOP
    if protocol == 1:
        following = IPV4
    elif protocol == 2:
        following = IPV6
    elif protocol == 3:
        following = ETHERNET_FRAME
    elif protocol == 5:
        following = _MPLS
    return following, at + length


@kernel(types.UniTuple(INT, 2)(BYTES, ROW, INT, INT, INT), entry=False)
def decode_encapsulation(data: NDArray[np.uint8], row: Any, following: int, at: int, end: int) -> tuple[int, int]:
    """Pass everything up to an IP header. Returns (IPV4, IPV6, STOP, CUT, BROKEN or DEEP, position).

    Sets `row.ethertype` to that of the last header passed.
    """
    tags = 0
    labels = 0
    for _ in range(_MAX_STEPS):
        if following == IPV4 or following == IPV6:
            row.ethertype = following
            return following, at
        room = end - at
        if following == ETHERNET_FRAME:
            if room < ETHERNET_HEADER:
                return CUT, at
            following = load16(data, at + 12)
            at += ETHERNET_HEADER
            if following < _LEAST_ETHERTYPE:
                following = LLC
        elif following == IP_BY_VERSION:
            row.ethertype = 0
            if room < 1:
                return CUT, at
            version = load8(data, at) >> 4
            if version != 4 and version != 6:
                return BROKEN, at
            following = IPV4 if version == 4 else IPV6
        elif following == LLC:
            row.ethertype = 0
            if room < 3:
                return CUT, at
            if load16(data, at) != 0xAAAA or load8(data, at + 2) != 3:
                return STOP, at
            if room < _SNAP_HEADER:
                return CUT, at
            # EtherTypes stand under the organization codes 0 (RFC 1042) and 0xF8 (IEEE 802.1H).
            organization = load32(data, at + 2) & 0xFFFFFF
            if organization != 0 and organization != 0xF8:
                return STOP, at
            following = load16(data, at + 6)
            at += _SNAP_HEADER
            if following < _LEAST_ETHERTYPE:
                return STOP, at
        elif following == _VLAN or following == _QINQ or following == _QINQ_OLD:
            row.ethertype = following
            tags += 1
            if tags > _MAX_TAGS:
                return DEEP, at
            if room < 4:
                return CUT, at
            identifier = load16(data, at) & 0xFFF
            if row.vlan == NO_VLAN:
                row.vlan = identifier
            elif row.inner_vlan == NO_VLAN:
                row.inner_vlan = identifier
            following = load16(data, at + 2)
            at += 4
            if following < _LEAST_ETHERTYPE:
                following = LLC
        elif following == _MPLS or following == _MPLS_MULTICAST:
            row.ethertype = following
            bottom = False
            while not bottom:
                labels += 1
                if labels > _MAX_LABELS:
                    return DEEP, at
                if end - at < 4:
                    return CUT, at
                bottom = load8(data, at + 2) & 1 != 0
                at += 4
            following, skipped = below_labels(data, at, end)
            at += skipped
        elif following == _PPPOE_SESSION:
            row.ethertype = following
            if room < 8:
                return CUT, at
            if load8(data, at) != 0x11:
                return BROKEN, at
            if load8(data, at + 1) != 0:
                return STOP, at
            following, at = decode_ppp(data, at + 6, end)
        elif following == _NSH:
            row.ethertype = following
            following, at = decode_service_header(data, at, end)
        else:
            if following < 0:
                return following, at
            row.ethertype = following
            return STOP, at
    return DEEP, at
