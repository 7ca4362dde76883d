"""TCP, UDP, SCTP, ESP and both kinds of ICMP."""

from flowshunt_ids.decode_events.walk import Walk, word

_TEREDO, _GENEVE, _VXLAN = 3544, 6081, 4789


def tcp(walk: Walk, data: bytes) -> None:
    """A TCP header with its options."""
    if len(data) < 20:
        walk.note("tcp.pkt_too_small")
        return
    header = 4 * (data[12] >> 4)
    if len(data) < header:
        walk.note("tcp.hlen_too_small")
    elif header < 20:
        walk.note("tcp.invalid_optlen")
    else:
        _tcp_options(walk, data[20:header])


_TCP_OPTION_SIZES = {2: 4, 3: 3, 4: 2, 8: 10, 19: 18}


def _tcp_option_fits(kind: int, size: int) -> bool:
    if kind in _TCP_OPTION_SIZES:
        return size == _TCP_OPTION_SIZES[kind]
    if kind == 5:
        return size == 2 or (10 <= size <= 34 and (size - 2) % 8 == 0)
    if kind == 34:
        return size == 2 or (6 <= size <= 18 and size % 2 == 0)
    if kind in (253, 254):
        return size in (4, 12)
    return kind != 29 or size >= 4


def _tcp_options(walk: Walk, data: bytes) -> None:
    seen = set()
    at = 0
    while at < len(data) and data[at] != 0:
        kind = data[at]
        if kind == 1:
            at += 1
            continue
        if at + 1 >= len(data):
            break
        size = data[at + 1]
        if size < 2 or at + size > len(data):
            walk.note("tcp.opt_invalid_len")
            return
        if not _tcp_option_fits(kind, size):
            walk.note("tcp.opt_invalid_len")
        else:
            if kind in (253, 254):
                kind = 34 if word(data, at + 2) == 0xF989 else 0
            if kind in seen and kind in (2, 3, 4, 5, 8, 34):
                walk.note("tcp.opt_duplicate")
            seen.add(kind)
        at += size


def udp(walk: Walk, data: bytes) -> None:
    """A UDP header, and a tunnel in it."""
    if len(data) < 8:
        walk.note("udp.hlen_too_small")
        return
    length = word(data, 4)
    if len(data) < length:
        walk.note("udp.pkt_too_small")
    elif length < 8:
        walk.note("udp.len_invalid")
    else:
        from flowshunt_ids.decode_events import tunnels

        ports = (word(data, 0), word(data, 2))
        if _TEREDO in ports:
            tunnels.teredo(walk, data[8:length])
        elif _GENEVE in ports:
            tunnels.geneve(walk, data[8:length])
        elif _VXLAN in ports:
            tunnels.vxlan(walk, data[8:length])


def sctp(walk: Walk, data: bytes) -> None:
    """An SCTP header."""
    if len(data) < 12:
        walk.note("sctp.pkt_too_small")


def esp(walk: Walk, data: bytes) -> None:
    """An ESP header."""
    if walk.enter() and len(data) < 8:
        walk.note("esp.pkt_too_small")


_ICMP_CODES = {0: 0, 3: 15, 4: 0, 5: 3, 8: 0, 11: 1, 12: 0, 13: 0, 14: 0, 15: 0, 16: 0, 17: 0, 18: 0}
"""The highest code of each type."""


def icmp(walk: Walk, data: bytes) -> None:
    """An ICMP message, and the packet that it is about."""
    if len(data) < 8:
        walk.note("icmpv4.pkt_too_small")
        return
    kind, code = data[0], data[1]
    if kind == 9:
        if len(data) < 8 + data[4] * data[5] * 4:
            walk.note("icmpv4.ipv4_trunc_pkt")
        return
    if kind not in _ICMP_CODES:
        walk.note("icmpv4.unknown_type")
        return
    if code > _ICMP_CODES[kind]:
        walk.note("icmpv4.unknown_code")
    elif kind in (3, 4, 5, 11, 12):
        inner = data[8:]
        if inner or kind == 4:
            if len(inner) < 20:
                walk.note("icmpv4.ipv4_trunc_pkt")
            elif inner[0] >> 4 != 4:
                walk.note("icmpv4.ipv4_unknown_ver")
    if kind in (13, 14) and len(data) < 20:
        walk.note("icmpv4.ipv4_trunc_pkt")


_ICMPV6_ERRORS = {1: 6, 2: 0, 3: 1, 4: 2}
_ICMPV6_CODES = {
    **dict.fromkeys((128, 129, 130, 131, 132, 133, 134, 135, 136, 137, 141, 142, 143, 144, 145, 146, 147, 148, 149), 0),
    139: 2,
    140: 2,
    154: 0,
    156: 0,
    157: 0,
    158: 0,
}
_ICMPV6_ANY_CODE = frozenset({150, 151, 152, 153})


def icmpv6(walk: Walk, data: bytes, hops: int) -> None:
    """An ICMPv6 message, and the packet that it is about. `hops`: the packet's hop limit."""
    if len(data) < 8:
        walk.note("icmpv6.pkt_too_small")
        return
    kind, code = data[0], data[1]
    if kind in _ICMPV6_ERRORS:
        if code > _ICMPV6_ERRORS[kind]:
            walk.note("icmpv6.unknown_code")
        elif len(data) < 48:
            walk.note("icmpv6.ipv6_trunc_pkt")
        elif data[8] >> 4 != 6:
            walk.note("icmpv6.ipv6_unknown_version")
    elif kind in _ICMPV6_CODES:
        if code > _ICMPV6_CODES[kind]:
            walk.note("icmpv6.unknown_code")
        if kind in (130, 131, 132) and hops != 1:
            walk.note("icmpv6.mld_message_with_invalid_hl")
    elif kind == 138:
        if 2 < code < 255:
            walk.note("icmpv6.unknown_code")
    elif kind == 155:
        if 3 < code < 128 or code > 132:
            walk.note("icmpv6.unknown_code")
    elif kind not in _ICMPV6_ANY_CODE:
        if kind in (100, 101, 200, 201):
            walk.note("icmpv6.experimentation_type")
        elif 4 < kind < 127 or kind >= 160:
            walk.note("icmpv6.unassigned_type")
        else:
            walk.note("icmpv6.unknown_type")
