"""What scapy's dissection says of a frame, as the columns of a HEADER row: a second opinion to hold the kernels to."""

import scapy.contrib.mpls  # noqa: F401 -- binds its layers
from scapy.contrib.gtp import GTP_U_Header
from scapy.layers.inet import GRE, ICMP, IP, TCP, UDP
from scapy.layers.inet6 import (
    IPv6,
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrFragment,
    IPv6ExtHdrHopByHop,
    IPv6ExtHdrRouting,
    _ICMPv6,
)
from scapy.layers.ipsec import AH
from scapy.layers.l2 import Dot1AD, Dot1Q, Ether
from scapy.layers.sctp import SCTP
from scapy.layers.vxlan import VXLAN

from flowshunt.packets import headers

EXTENSIONS = IPv6ExtHdrDestOpt | IPv6ExtHdrFragment | IPv6ExtHdrHopByHop | IPv6ExtHdrRouting | AH
TRANSPORT = ("l4", "source_port", "destination_port", "seq", "ack", "tcp_flags", "window")
IN_IP = {
    (4, 4): headers.TUNNEL_IP4_IN_IP4,
    (4, 6): headers.TUNNEL_IP6_IN_IP4,
    (6, 4): headers.TUNNEL_IP4_IN_IP6,
    (6, 6): headers.TUNNEL_IP6_IN_IP6,
}


def layers(packet):
    """The layers of a packet, outermost first."""
    while packet is not None and packet.name not in ("NoPayload", "Padding"):
        yield packet
        packet = packet.payload


def dissect(packet, size):
    """The row that a dissected whole frame of `size` bytes should give, as a dict."""
    row = dict.fromkeys(headers.HEADER.names, 0)
    row.update(vlan=headers.NO_VLAN, inner_vlan=headers.NO_VLAN)
    del row["pad"]
    end = size
    for layer in layers(packet):
        at = size - len(bytes(layer))
        above = layer.underlayer
        if isinstance(layer, Ether):
            row["ethertype"] = layer.type
        elif isinstance(layer, Dot1Q | Dot1AD):
            row["ethertype"] = layer.type
            free = [name for name in ("vlan", "inner_vlan") if row[name] == headers.NO_VLAN]
            row.update(dict.fromkeys(free[:1], layer.vlan))
        elif isinstance(layer, GRE):
            enter(row, headers.TUNNEL_NVGRE if layer.key_present and layer.proto == 0x6558 else headers.TUNNEL_GRE)
        elif isinstance(layer, VXLAN):
            enter(row, headers.TUNNEL_VXLAN)
        elif isinstance(layer, GTP_U_Header):
            enter(row, headers.TUNNEL_GTPU)
        elif isinstance(layer, IP | IPv6):
            if isinstance(above, IP | IPv6 | EXTENSIONS):
                enter(row, IN_IP[row["ip_version"], layer.version])
            end = network(row, layer, at)
        elif isinstance(layer, EXTENSIONS):
            extension(row, layer, at, end)
        elif row["flags"] & headers.LATER_FRAGMENT:
            break
        elif isinstance(layer, TCP | UDP | SCTP | ICMP | _ICMPv6) and isinstance(above, IP | IPv6 | EXTENSIONS):
            transport(row, layer, at, end)
            if isinstance(layer, ICMP | _ICMPv6):
                break
    return row


def enter(row, tunnel):
    row["tunnel"] = tunnel
    row["depth"] += 1


def network(row, layer, at):
    """An IP header at `at`; returns where its packet ends."""
    row.update(dict.fromkeys((*TRANSPORT, "fragment_id", "fragment_offset"), 0))
    if row["ip_version"] == 0:
        row["outer_l3"] = at
    row.update(l3=at, ip_version=layer.version, flags=0)
    if layer.version == 6:
        row.update(ethertype=0x86DD, ttl=layer.hlim, protocol=layer.nh)
        row.update(payload=at + 40, payload_length=layer.plen)
        return at + 40 + layer.plen
    row.update(ethertype=0x800, ttl=layer.ttl, protocol=layer.proto)
    row.update(payload=at + layer.ihl * 4, payload_length=layer.len - layer.ihl * 4)
    row["flags"] |= headers.IP_OPTIONS if layer.ihl > 5 else 0
    fragment(row, layer.frag, bool(layer.flags.MF), layer.id)
    return at + layer.len


def fragment(row, offset, more, identification):
    if offset or more:
        row.update(fragment_offset=offset, fragment_id=identification)
        row["flags"] |= headers.FRAGMENT
        row["flags"] |= headers.MORE_FRAGMENTS if more else 0
        row["flags"] |= headers.LATER_FRAGMENT if offset else 0


def extension(row, layer, at, end):
    row["flags"] |= headers.IP_OPTIONS
    start = at + len(bytes(layer)) - len(bytes(layer.payload))
    row.update(protocol=layer.nh, payload=start, payload_length=end - start)
    if isinstance(layer, IPv6ExtHdrFragment):
        fragment(row, layer.offset, bool(layer.m), layer.id)


def transport(row, layer, at, end):
    row["l4"] = at
    if isinstance(layer, TCP):
        row.update(source_port=layer.sport, destination_port=layer.dport, seq=layer.seq, ack=layer.ack)
        row.update(tcp_flags=int(layer.flags) & 0xFF, window=layer.window, payload=at + layer.dataofs * 4)
    elif isinstance(layer, ICMP | _ICMPv6):
        row.update(source_port=layer.type, destination_port=layer.code, payload=at + 8)
    else:
        row.update(source_port=layer.sport, destination_port=layer.dport)
        row["payload"] = at + (8 if isinstance(layer, UDP) else 12)
    row["payload_length"] = (at + layer.len if isinstance(layer, UDP) else end) - row["payload"]
