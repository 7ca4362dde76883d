"""GRE with ERSPAN, VXLAN, Geneve and Teredo: their headers, and the packets inside."""

from flowshunt_ids.decode_events.walk import Walk, ethernet, network, tag, word


def gre(walk: Walk, data: bytes) -> None:
    """A GRE header (RFC 1701, 2637, 2784) and what it carries."""
    if len(data) < 4:
        walk.note("gre.pkt_too_small")
        return
    if not walk.enter():
        return
    flags, version, protocol = data[0], data[1] & 7, word(data, 2)
    if version == 0:
        size = _version_0(walk, data, flags)
    elif version == 1:
        size = _version_1(walk, data, flags, protocol)
    else:
        walk.note("gre.wrong_version")
        return
    if size is None:
        return
    inner = data[size:]
    if protocol == 0x880B:
        if version == 0 or word(data, 4):
            from flowshunt_ids.decode_events.ppp import ppp

            ppp(walk, inner)
    elif protocol in (0x0800, 0x86DD):
        network(walk, protocol, inner)
    elif protocol == 0x8100:
        tag(walk, inner)
    elif protocol == 0x88BE:
        if flags & 0x10:
            _erspan(walk, inner)
        else:
            ethernet(walk, inner)
    elif protocol == 0x6558:
        ethernet(walk, inner)


def _version_0(walk: Walk, data: bytes, flags: int) -> int | None:
    """The length of a header of version 0; None: it can't be."""
    if flags & 7:
        walk.note("gre.version0_recur")
        return None
    if data[1] & 0xF8:
        walk.note("gre.version0_flags")
        return None
    size = 4 + (4 if flags & 0x20 else 0) + (4 if flags & 0x10 else 0) + (4 if flags & 0xC0 else 0)
    if size > len(data):
        walk.note("gre.version0_hdr_too_big")
        return None
    while flags & 0x40:
        if size + 4 > len(data):
            walk.note("gre.version0_malformed_sre_hdr")
            return None
        family, length = word(data, size), data[size + 3]
        size += 4
        if not family and not length:
            break
        size += length
        if size > len(data):
            walk.note("gre.version0_malformed_sre_hdr")
            return None
    return size


def _version_1(walk: Walk, data: bytes, flags: int, protocol: int) -> int | None:
    """The length of a header of version 1 (PPTP); None: it can't be."""
    for bits, name in ((0x80, "chksum"), (0x40, "route"), (0x08, "ssr"), (0x07, "recur")):
        if flags & bits:
            walk.note(f"gre.version1_{name}")
            return None
    if data[1] & 0x78:
        walk.note("gre.version1_flags")
        return None
    if protocol != 0x880B:
        walk.note("gre.version1_wrong_protocol")
        return None
    if not flags & 0x20:
        walk.note("gre.version1_no_key")
        return None
    size = 8 + (4 if flags & 0x10 else 0) + (4 if data[1] & 0x80 else 0)
    if size > len(data):
        walk.note("gre.version1_hdr_too_big")
        return None
    return size


def _erspan(walk: Walk, data: bytes) -> None:
    if len(data) < 8:
        walk.note("erspan.header_too_small")
        return
    if not walk.enter():
        return
    if word(data, 0) >> 12 != 1:
        walk.note("erspan.unsupported_version")
        return
    if word(data, 0) & 0xFFF:
        if walk.tags >= 3:
            walk.note("erspan.too_many_vlan_layers")
            return
        walk.tags += 1
    ethernet(walk, data[8:])


def vxlan(walk: Walk, data: bytes) -> None:
    """A VXLAN header (RFC 7348) and the frame inside."""
    if len(data) < 22 or not walk.enter() or not data[0] & 8 or data[7]:
        return
    kind = word(data, 20)
    if kind in (0x0800, 0x86DD, 0x8100, 0x88A8, 0x9100):
        network(walk, kind, data[22:])
    elif kind != 0x0806:
        walk.note("vxlan.unknown_payload_type")


def geneve(walk: Walk, data: bytes) -> None:
    """A Geneve header (RFC 8926) and what it carries."""
    if len(data) < 8 or not walk.enter():
        return
    size = 8 + 4 * (data[0] & 63)
    if len(data) < size or data[0] >> 6 or data[1] & 0x3F or data[7]:
        return
    at = 8
    while at + 4 <= size:
        at += 4 + 4 * (data[at + 3] & 31)
    if at != size:
        return
    kind = word(data, 2)
    if kind in (0x0800, 0x86DD):
        network(walk, kind, data[size:])
    elif kind == 0x6558:
        ethernet(walk, data[size:])
    elif kind != 0x0806:
        walk.note("geneve.unknown_payload_type")


def teredo(walk: Walk, data: bytes) -> None:
    """An IPv6 packet in UDP (RFC 4380), if it is one and nothing is wrong with it."""
    if len(data) < 40:
        return
    inner = data
    if data[0] == 0:
        if data[1] or len(data) < 48:
            return
        inner = data[8:]
    if inner[0] >> 4 != 6 or inner[7] == 0 or (inner[6] == 0 and word(inner, 4) < 8):
        return
    if len(inner) == 40 + word(inner, 4):
        network(walk, 0x86DD, inner)
