"""A walk through a frame's layers that notes what is odd: link layers, tags and labels; the rest is handed on.

What counts as odd, and how far a broken frame is followed, is as in Suricata's decoders.
"""

from collections.abc import Callable

import attrs

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
from flowshunt_ids.events import number

MAX_LAYERS = 16
"""Layers that are followed (`decoder.max-layers`)."""
_MAX_TAGS = 3
_LONGEST_IP = 65535


@attrs.define
class Walk:
    """What was found on the way. `events`: numbers, each once."""

    events: list[int] = attrs.field(factory=list)
    layers: int = 0
    tags: int = 0

    def note(self, name: str) -> None:
        """Note an event of decoding by its name without prefix."""
        event = number(f"decoder.{name}")
        if event not in self.events:
            self.events.append(event)

    def enter(self) -> bool:
        """Count one more layer; False: there are too many."""
        self.layers += 1
        if self.layers > MAX_LAYERS:
            self.note("too_many_layers")
            return False
        return True


def word(data: bytes, at: int) -> int:
    """The 16 bits at `at`, in network order."""
    return data[at] << 8 | data[at + 1]


def frame_events(data: bytes, link: int) -> list[int]:
    """The events of a frame's captured bytes; `link`: its link type, see `flowshunt.packets.batch`."""
    walk = Walk()
    begin = _LINKS.get(link)
    if begin is not None:
        begin(walk, data)
    return walk.events


def ethernet(walk: Walk, data: bytes) -> None:
    """An Ethernet frame."""
    if len(data) < 14:
        walk.note("ethernet.pkt_too_small")
    elif walk.enter():
        network(walk, word(data, 12), data[14:])


def network(walk: Walk, ethertype: int, data: bytes) -> bool:
    """What an ethertype announces; False: it is not known."""
    following = _ETHERTYPES.get(ethertype)
    if following is None:
        return False
    following(walk, data)
    return True


def _ipv4(walk: Walk, data: bytes) -> None:
    from flowshunt_ids.decode_events.ip import ipv4

    ipv4(walk, data[:_LONGEST_IP])


def _ipv6(walk: Walk, data: bytes) -> None:
    from flowshunt_ids.decode_events.ip import ipv6

    ipv6(walk, data[:_LONGEST_IP])


def raw(walk: Walk, data: bytes) -> None:
    """An IP packet without a link layer."""
    if len(data) < 20:
        walk.note("ipv4.pkt_too_small")
    elif data[0] >> 4 == 4:
        _ipv4(walk, data)
    elif data[0] >> 4 == 6:
        _ipv6(walk, data)
    else:
        walk.note("ipraw.invalid_ip_version")


def _null(walk: Walk, data: bytes) -> None:
    if len(data) < 4:
        walk.note("ltnull.pkt_too_small")
        return
    family = int.from_bytes(data[:4], "little")
    if family == 2:
        _ipv4(walk, data[4:])
    elif family in (10, 23, 24, 26, 28, 30):
        _ipv6(walk, data[4:])
    else:
        walk.note("ltnull.unsupported_type")


def _sll(walk: Walk, data: bytes) -> None:
    if len(data) < 16:
        walk.note("sll.pkt_too_small")
    elif walk.enter():
        network(walk, word(data, 14), data[16:])


def _sll2(walk: Walk, data: bytes) -> None:
    if len(data) >= 20 and walk.enter():
        network(walk, word(data, 0), data[20:])


def _chdlc(walk: Walk, data: bytes) -> None:
    if len(data) < 4:
        walk.note("chdlc.pkt_too_small")
    elif walk.enter():
        network(walk, word(data, 2), data[4:])


def tag(walk: Walk, data: bytes) -> None:
    """A VLAN tag, after its ethertype."""
    if walk.tags >= _MAX_TAGS:
        walk.note("vlan.too_many_layers")
    elif len(data) < 4:
        walk.note("vlan.header_too_small")
    elif walk.enter():
        walk.tags += 1
        if not network(walk, word(data, 2), data[4:]):
            walk.note("vlan.unknown_type")


def _backbone_tag(walk: Walk, data: bytes) -> None:
    if len(data) < 18:
        walk.note("ieee8021ah.header_too_small")
    else:
        network(walk, word(data, 16), data[18:])


def _virtual_tag(walk: Walk, data: bytes) -> None:
    if len(data) < 6:
        walk.note("vntag.header_too_small")
    elif walk.enter() and not network(walk, word(data, 4), data[6:]):
        walk.note("vntag.unknown_type")


def _data_center(walk: Walk, data: bytes) -> None:
    if len(data) < 16:
        walk.note("dce.pkt_too_small")
    else:
        ethernet(walk, data[2:])


def labels(walk: Walk, data: bytes) -> None:
    """MPLS labels, and the best guess at what follows them."""
    if not walk.enter():
        return
    at = 0
    while True:
        if len(data) - at < 4:
            walk.note("mpls.header_too_small")
            return
        entry = int.from_bytes(data[at : at + 4], "big")
        at += 4
        if entry & 0x100:
            break
    label, data = entry >> 12, data[at:]
    if label == 0:
        _ipv4(walk, data)
    elif label == 1:
        walk.note("mpls.bad_label_router_alert")
    elif label == 2:
        _ipv6(walk, data)
    elif label == 3:
        walk.note("mpls.bad_label_implicit_null")
    elif label < 16:
        walk.note("mpls.bad_label_reserved")
    elif len(data) < 4:
        walk.note("mpls.pkt_too_small")
    elif data[0] >> 4 == 4:
        _ipv4(walk, data)
    elif data[0] >> 4 == 6:
        _ipv6(walk, data)
    elif data[0] >> 4 == 0:
        ethernet(walk, data[4:])
    else:
        walk.note("mpls.unknown_payload_type")


def service_header(walk: Walk, data: bytes) -> None:
    """A network service header (RFC 8300)."""
    if len(data) < 8:
        walk.note("nsh.header_too_small")
        return
    if not walk.enter():
        return
    first = word(data, 0)
    length = (first & 63) * 4
    kind = data[2] & 15
    if first >> 14:
        walk.note("nsh.unsupported_version")
    elif length >= len(data) or (kind == 1 and length != 24):
        walk.note("nsh.bad_header_length")
    elif kind in (0, 15):
        walk.note("nsh.reserved_type")
    elif kind not in (1, 2):
        walk.note("nsh.unsupported_type")
    else:
        following = {1: _ipv4, 2: _ipv6, 3: ethernet, 5: labels}.get(data[3])
        if following is None:
            walk.note("nsh.unknown_payload")
        else:
            following(walk, data[length:])


def _session(walk: Walk, data: bytes) -> None:
    from flowshunt_ids.decode_events.ppp import session

    session(walk, data)


def _discovery(walk: Walk, data: bytes) -> None:
    from flowshunt_ids.decode_events.ppp import discovery

    discovery(walk, data)


def _ppp(walk: Walk, data: bytes) -> None:
    from flowshunt_ids.decode_events.ppp import ppp

    ppp(walk, data)


def _nothing(_walk: Walk, _data: bytes) -> None:
    """A known protocol that is not looked into."""


Follow = Callable[[Walk, bytes], None]

_ETHERTYPES: dict[int, Follow] = {
    0x0800: _ipv4,
    0x86DD: _ipv6,
    0x8863: _discovery,
    0x8864: _session,
    0x8100: tag,
    0x88A8: tag,
    0x9100: tag,
    0x88E7: _backbone_tag,
    0x0806: _nothing,
    0x8847: labels,
    0x8848: labels,
    0x8903: _data_center,
    0x8926: _virtual_tag,
    0x894F: service_header,
}

_LINKS: dict[int, Follow] = {
    LINK_ETHERNET: ethernet,
    LINK_RAW: raw,
    LINK_RAW_BSD: raw,
    LINK_RAW_OPENBSD: raw,
    LINK_NULL: _null,
    LINK_LOOP: _null,
    LINK_PPP: _ppp,
    LINK_CISCO_HDLC: _chdlc,
    LINK_LINUX_SLL: _sll,
    LINK_LINUX_SLL2: _sll2,
    LINK_IPV4: raw,
    LINK_IPV6: raw,
}
