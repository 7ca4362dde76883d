"""PPP, by itself and over Ethernet (RFC 1661, RFC 2516)."""

from flowshunt_ids.decode_events.walk import Walk, network, word

_IP, _IPV6, _VAN_JACOBSON = 0x21, 0x57, 0x2F
_UNSUPPORTED = frozenset(
    {
        0x2D, 0x2B, 0x23, 0x25, 0x27, 0x29, 0x31, 0x33, 0x35, 0x0281, 0x0283, 0x0201, 0x0231, 0x4025,
        0x8021, 0x8023, 0x8025, 0x8027, 0x8029, 0x802B, 0x8033, 0x8035, 0x8057, 0x8281,
        0xC021, 0xC023, 0xC025, 0xC223,
    }
)  # fmt: skip
"""Protocols that are known and not looked into."""
_CODES = frozenset({0x09, 0x07, 0x19, 0x65, 0xA7})


def discovery(walk: Walk, data: bytes) -> None:
    """A PPPoE discovery packet."""
    if len(data) < 6:
        walk.note("pppoe.pkt_too_small")
    elif data[1] not in _CODES:
        walk.note("pppoe.wrong_code")
    elif word(data, 4) > len(data) - 6:
        walk.note("pppoe.malformed_tags")


def session(walk: Walk, data: bytes) -> None:
    """A PPPoE session packet."""
    if len(data) < 7:
        walk.note("pppoe.pkt_too_small")
        return
    if word(data, 4) == 0:
        return
    protocol, at = data[6], 7
    if not protocol & 1:
        if len(data) < 8:
            walk.note("pppoe.pkt_too_small")
            return
        protocol, at = word(data, 6), 8
    _follow(walk, protocol, data[at:])


def ppp(walk: Walk, data: bytes) -> None:
    """A PPP frame, with or without HDLC's address and control."""
    start = 2 if data[:1] == b"\xff" else 0
    if len(data) < start + 1 or (not data[start] & 1 and len(data) < start + 2):
        walk.note("ppp.pkt_too_small")
        return
    if walk.enter():
        if data[start] & 1:
            _follow(walk, data[start], data[start + 1 :])
        else:
            _follow(walk, word(data, start), data[start + 2 :])


def _follow(walk: Walk, protocol: int, data: bytes) -> None:
    if protocol in (_IP, _VAN_JACOBSON):
        if len(data) < 20:
            walk.note("ppp.ip4_pkt_too_small" if protocol == _IP else "ppp.vju_pkt_too_small")
        elif protocol == _IP or data[0] >> 4 == 4:
            network(walk, 0x0800, data)
    elif protocol == _IPV6:
        if len(data) < 40:
            walk.note("ppp.ip6_pkt_too_small")
        else:
            network(walk, 0x86DD, data)
    elif protocol in _UNSUPPORTED:
        walk.note("ppp.unsup_proto")
    else:
        walk.note("ppp.wrong_type")
