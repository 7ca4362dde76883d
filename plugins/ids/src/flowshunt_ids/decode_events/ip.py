"""IPv4 with its options, IPv6 with its extension headers."""

from collections.abc import Callable

from flowshunt_ids.decode_events.transport import esp, icmp, icmpv6, sctp, tcp, udp
from flowshunt_ids.decode_events.tunnels import gre
from flowshunt_ids.decode_events.walk import Walk, word

_HOP_BY_HOP, _ROUTING, _FRAGMENT, _ESP, _AUTHENTICATION, _NONE, _DESTINATION = 0, 43, 44, 50, 51, 59, 60
_ICMP, _IPIP, _ICMPV6 = 1, 4, 58
_SKIPPED = frozenset({135, 139, 140})
_EXTENSIONS = frozenset({_HOP_BY_HOP, _ROUTING, _FRAGMENT, _ESP, _AUTHENTICATION, _NONE, _DESTINATION, *_SKIPPED})

_TRANSPORTS: dict[int, Callable[[Walk, bytes], None]] = {6: tcp, 17: udp, 132: sctp}


def ipv4(walk: Walk, data: bytes) -> None:
    """An IPv4 packet, and what it carries unless it is a fragment."""
    if not walk.enter():
        return
    if len(data) < 20:
        walk.note("ipv4.pkt_too_small")
        return
    header, length = 4 * (data[0] & 15), word(data, 2)
    if data[0] >> 4 != 4:
        walk.note("ipv4.wrong_ip_version")
    elif header < 20:
        walk.note("ipv4.hlen_too_small")
    elif length < header:
        walk.note("ipv4.iplen_smaller_than_hlen")
    elif len(data) < length:
        walk.note("ipv4.trunc_pkt")
    elif (header == 20 or _options(walk, data[20:header])) and not word(data, 6) & 0x3FFF:
        protocol, payload = data[9], data[header:length]
        if protocol in _TRANSPORTS:
            _TRANSPORTS[protocol](walk, payload)
        elif protocol == _ICMP:
            icmp(walk, payload)
        elif protocol == 47:
            gre(walk, payload)
        elif protocol == _ESP:
            esp(walk, payload)
        elif protocol == 41:
            ipv6(walk, payload)
        elif protocol == _ICMPV6:
            walk.note("ipv4.icmpv6")


_OPTIONS = frozenset({0x07, 0x19, 0x44, 0x82, 0x83, 0x85, 0x86, 0x88, 0x89, 0x94})


def _options(walk: Walk, data: bytes) -> bool:
    """IPv4 options; False: what follows is not looked at."""
    if len(data) % 8:
        walk.note("ipv4.opt_pad_required")
    seen = set()
    at = 0
    while at < len(data):
        kind = data[at]
        if kind == 0:
            break
        if kind == 1:
            at += 1
            continue
        left = len(data) - at
        if left < 2:
            walk.note("ipv4.opt_eol_required")
            break
        size = data[at + 1]
        if size > left or size < 2:
            walk.note("ipv4.opt_invalid_len")
            return False
        if kind not in _OPTIONS:
            walk.note("ipv4.opt_invalid")
        elif kind in seen:
            walk.note("ipv4.opt_duplicate")
        elif _option(walk, kind, size, data[at + 2 :]):
            seen.add(kind)
        at += size
    return True


def _option(walk: Walk, kind: int, size: int, body: bytes) -> bool:
    """Whether an option is as it should be. `body`: what follows its length, to the end of the options."""
    smallest = {0x19: 8, 0x82: 3, 0x85: 3, 0x07: 3, 0x83: 3, 0x89: 3, 0x44: 5, 0x86: 10}.get(kind, 4)
    if size < smallest or (kind in (0x88, 0x94) and size != 4):
        walk.note("ipv4.opt_invalid_len")
        return False
    good = True
    if kind in (0x07, 0x83, 0x89):
        good = bool(body) and body[0] >= 4 and body[0] % 4 == 0 and body[0] <= size + 1
    elif kind == 0x44:
        good = bool(body) and body[0] >= 5 and body[0] <= size + 1
        good = good and (body[0] - 5) % (8 if body[1] & 15 in (1, 3) else 4) == 0
    elif kind == 0x86:
        good = _security_tags(body[4 : size - 2])
    if not good:
        walk.note("ipv4.opt_malformed")
    return good


def _security_tags(tags: bytes) -> bool:
    while tags:
        if len(tags) < 2 or tags[1] > len(tags) or tags[0] not in (1, 2, 5, 6, 7) or tags[1] < 4:
            return False
        if tags[0] != 7 and tags[2] != 0:
            return False
        tags = tags[tags[1] :]
    return True


def ipv6(walk: Walk, data: bytes) -> None:
    """An IPv6 packet, and what it carries unless it is a fragment."""
    if not walk.enter() or len(data) < 40:
        return
    length, following = word(data, 4), data[6]
    if data[0] >> 4 != 6:
        walk.note("ipv6.wrong_ip_version")
    elif len(data) < 40 + length:
        walk.note("ipv6.trunc_pkt")
    elif following in _EXTENSIONS:
        _extensions(walk, following, data[40 : 40 + length], data[7])
    else:
        _upper(walk, following, data[40 : 40 + length], data[7])


def _upper(walk: Walk, protocol: int, payload: bytes, hops: int) -> None:
    if protocol in _TRANSPORTS:
        _TRANSPORTS[protocol](walk, payload)
    elif protocol == _ICMPV6:
        icmpv6(walk, payload, hops)
    elif protocol == _IPIP:
        _ipv4_inside(walk, payload)
    elif protocol == 41:
        if len(payload) < 40:
            walk.note("ipv6.ipv6_in_ipv6_too_small")
        elif payload[0] >> 4 == 6:
            ipv6(walk, payload)
        else:
            walk.note("ipv6.ipv6_in_ipv6_wrong_version")
    elif protocol == 47:
        gre(walk, payload)
    elif protocol == _ICMP:
        walk.note("ipv6.icmpv4")
    else:
        walk.note("ipv6.unknown_next_header")


def _ipv4_inside(walk: Walk, payload: bytes) -> None:
    if len(payload) < 20:
        walk.note("ipv6.ipv4_in_ipv6_too_small")
    elif payload[0] >> 4 == 4:
        ipv4(walk, payload)
    else:
        walk.note("ipv6.ipv4_in_ipv6_wrong_version")


def _extensions(walk: Walk, kind: int, data: bytes, hops: int) -> None:
    """The chain of extension headers, and what follows it."""
    count = {_HOP_BY_HOP: 0, _ROUTING: 0, _DESTINATION: 0, _AUTHENTICATION: 0, _FRAGMENT: 0}
    while True:
        if kind == _NONE:
            if data:
                walk.note("ipv6.data_after_none_header")
            return
        if len(data) < 2:
            walk.note("ipv6.trunc_exthdr")
            return
        if kind == _ESP:
            esp(walk, data)
            return
        if kind not in _EXTENSIONS:
            if kind in (41, 47):
                walk.note("ipv6.unknown_next_header")
            else:
                _upper(walk, kind, data, hops)
            return
        size = 8 * (data[1] + 1)
        if kind == _AUTHENTICATION:
            size = 12 + 4 * max(data[1] - 1, 0)
        elif kind == _FRAGMENT:
            size = 8
        if size > len(data):
            walk.note("ipv6.trunc_exthdr")
            return
        if kind in count:
            count[kind] += 1
        if kind == _ROUTING:
            if count[kind] > 1:
                walk.note("ipv6.exthdr_dupl_rh")
            elif data[2] == 0:
                walk.note("ipv6.rh_type_0")
        elif kind == _HOP_BY_HOP:
            if count[kind] > 1:
                walk.note("ipv6.exthdr_dupl_hh")
            else:
                _header_options(walk, "hopopts", data[2:size])
        elif kind == _DESTINATION:
            if count[kind] > 2:
                walk.note("ipv6.exthdr_dupl_dh")
            else:
                _header_options(walk, "dstopts", data[2:size])
        elif kind == _AUTHENTICATION:
            if word(data, 2):
                walk.note("ipv6.exthdr_ah_res_not_null")
            if count[kind] > 1:
                walk.note("ipv6.exthdr_dupl_ah")
        elif kind == _FRAGMENT and _fragment(walk, data, count[kind] > 1):
            return
        kind, data = data[0], data[size:]


def _fragment(walk: Walk, data: bytes, again: bool) -> bool:
    """A fragment header; whether the packet is a fragment, so that the rest waits for the others."""
    if data[1]:
        walk.note("ipv6.fh_non_zero_reserved_field")
    if again:
        walk.note("ipv6.exthdr_dupl_fh")
        return False
    place = word(data, 2)
    if not place & 0xFFF9:
        walk.note("ipv6.exthdr_useless_fh")
        return False
    if place & 1 and len(data) % 8:
        walk.note("ipv6.frag_invalid_length")
    return True


def _header_options(walk: Walk, name: str, data: bytes) -> None:
    """The options of a hop-by-hop or destination options header."""
    padding = others = at = 0
    smallest = {5: 2, 0xC2: 4, 0xC9: 16}
    while at < len(data):
        kind = data[at]
        if kind == 0:
            padding += 1
            at += 1
            continue
        size = data[at + 1] if at + 1 < len(data) else None
        if size is None or at + 1 + size > len(data) or size < smallest.get(kind, 0):
            walk.note("ipv6.exthdr_invalid_optlen")
            break
        if kind == 1:
            padding += 1
            if size == 0:
                walk.note("ipv6.zero_len_padn")
        elif kind != 0xC2:
            others += 1
            if kind not in smallest:
                walk.note(f"ipv6.{name}_unknown_opt")
        at += size + 2
    if padding and not others:
        walk.note(f"ipv6.{name}_only_padding")
