"""Header templates: Ethernet, VLAN, IP and transport headers, crafted once with scapy for every combination in use.

Addresses, ports, lengths, numbers and checksums are zero in a template; `stamp` fills them in frame by frame, since
scapy takes about 100 us for what a stamp does in one.
"""

import struct
from functools import cache

import attrs

TCP = 6
UDP = 17
ICMP = 1
ICMP6 = 58

MSS4 = 1460
MSS6 = 1440
TIMESTAMPS = 12
"""Bytes that the time stamp option takes, its padding included (RFC 7323, appendix A)."""


@attrs.frozen
class Template:
    """Headers without addresses.

    Attributes:
        header: all bytes up to the transport payload.
        l3: offset of the IP header.
        l4: offset of the transport header.
        version: 4 or 6.
    """

    header: bytes
    l3: int
    l4: int
    version: int


@cache
def template(version: int, tags: int, protocol: int, timestamps: bool = False, syn: bool = False) -> Template:
    """The template for an IP version, a number of VLAN tags (0 to 2), a protocol, and for TCP the options in use.

    `syn` gives the options of a first segment: MSS, SACK permitted, window scale 7, and time stamps where used.
    """
    from scapy.layers import inet, inet6

    link = _link(version, tags)
    if version == 4:
        flags = "DF" if protocol == TCP else 0
        network = bytes(
            inet.IP(src="0.0.0.0", dst="0.0.0.0", proto=protocol, flags=flags, ttl=0, id=0, len=0, chksum=0)
        )
    else:
        network = bytes(inet6.IPv6(src="::", dst="::", nh=protocol, plen=0, hlim=0, fl=0, tc=0))
    if protocol == TCP:
        options = _tcp_options(version, timestamps, syn)
        transport = bytes(inet.TCP(sport=0, dport=0, seq=0, ack=0, flags=0, window=0, chksum=0, options=options))
    elif protocol == UDP:
        transport = bytes(inet.UDP(sport=0, dport=0, len=0, chksum=0))
    elif protocol == ICMP:
        transport = bytes(inet.ICMP(type=8, code=0, chksum=0, id=0, seq=0))
    else:
        transport = bytes(inet6.ICMPv6EchoRequest(cksum=0, id=0, seq=0))
    return Template(link + network + transport, len(link), len(link) + len(network), version)


def _link(version: int, tags: int) -> bytes:
    from scapy.layers.l2 import Dot1AD, Dot1Q, Ether

    blank = "00:00:00:00:00:00"
    ethertype = 0x0800 if version == 4 else 0x86DD
    if tags == 0:
        return bytes(Ether(src=blank, dst=blank, type=ethertype))
    if tags == 1:
        return bytes(Ether(src=blank, dst=blank, type=0x8100) / Dot1Q(vlan=0, type=ethertype))
    return bytes(Ether(src=blank, dst=blank, type=0x88A8) / Dot1AD(vlan=0, type=0x8100) / Dot1Q(vlan=0, type=ethertype))


def _tcp_options(version: int, timestamps: bool, syn: bool) -> list[tuple[str, object]]:
    if not syn:
        return [("NOP", None), ("NOP", None), ("Timestamp", (0, 0))] if timestamps else []
    size = ("MSS", MSS4 if version == 4 else MSS6)
    if timestamps:
        return [size, ("SAckOK", b""), ("Timestamp", (0, 0)), ("NOP", None), ("WScale", 7)]
    return [size, ("NOP", None), ("WScale", 8), ("NOP", None), ("NOP", None), ("SAckOK", b"")]


@cache
def dns_question(name: bytes, kind: int) -> bytes:
    """A recursive query for `name` with id 0; `kind` is the record type's number (1 A, 16 TXT, 28 AAAA)."""
    from scapy.layers.dns import DNS, DNSQR

    query = DNS(id=0, qr=0, rd=1, ad=1, qdcount=1, ancount=0, nscount=0, arcount=0, qd=DNSQR(qname=name, qtype=kind))
    return bytes(query)


def dns_answer(question: bytes, records: list[tuple[int, bytes]], ttl: int) -> bytes:
    """The answer to a question: its message with the reply bits set, and records (type, data) of the asked name."""
    head = question[:2] + struct.pack(">HHHHH", 0x8180, 1, len(records), 0, 0)
    owner = b"\xc0\x0c"  # a pointer to the name in the question (RFC 1035, 4.1.4)
    parts = [owner + struct.pack(">HHIH", kind, 1, ttl, len(data)) + data for kind, data in records]
    return head + question[12:] + b"".join(parts)
