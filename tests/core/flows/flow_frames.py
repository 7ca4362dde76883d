"""Frames for tests of flows, and their header rows, written by hand: nothing here uses the product's decoder."""

import ipaddress
import struct

import attrs
import numpy as np

from flowshunt.packets.batch import LINK_ETHERNET, FrameBatch
from flowshunt.packets.headers import FRAGMENT, HEADER, LATER_FRAGMENT, MORE_FRAGMENTS, NO_VLAN

SECOND = 1_000_000_000
START = 1_700_000_000 * SECOND

ICMP, TCP, UDP, ICMPV6, SCTP, ESP = 1, 6, 17, 58, 132, 50
FIN, SYN, RST, PSH, ACK = 1, 2, 4, 8, 16

IPV4, IPV6 = 0x0800, 0x86DD


@attrs.frozen
class Fragment:
    """One fragment: the datagram's identification, its offset in units of 8 bytes, and whether another follows."""

    identification: int
    offset: int = 0
    more: bool = True


@attrs.frozen
class Packet:
    """One frame. ICMP carries its type and code as ports. `time` is in ns after START."""

    source: str = "10.0.0.1"
    destination: str = "10.0.0.2"
    source_port: int = 40000
    destination_port: int = 443
    protocol: int = TCP
    flags: int = ACK
    seq: int = 0
    ack: int = 0
    payload: int = 0
    vlan: int | None = None
    inner_vlan: int | None = None
    fragment: Fragment | None = None
    time: int = 0
    extra_wire: int = 0
    port: int = 0
    ip: bool = True
    transport: bool = True
    """False: the frame was cut off before its transport header."""
    size: int | None = None
    """Bytes on the wire, where they are not those of `encode`."""

    @property
    def later(self) -> bool:
        return self.fragment is not None and self.fragment.offset > 0


def _transport(packet):
    ports = struct.pack("!HH", packet.source_port, packet.destination_port)
    if packet.protocol == TCP:
        return ports + struct.pack("!IIBBHHH", packet.seq, packet.ack, 0x50, packet.flags, 1000, 0, 0)
    if packet.protocol == UDP:
        return ports + struct.pack("!HH", 8 + packet.payload, 0)
    if packet.protocol == SCTP:
        return ports + struct.pack("!II", 7, 0)
    if packet.protocol in (ICMP, ICMPV6):
        return struct.pack("!BBHI", packet.source_port & 0xFF, packet.destination_port & 0xFF, 0, 0)
    return b""


def _network(packet, body):
    source = ipaddress.ip_address(packet.source)
    destination = ipaddress.ip_address(packet.destination)
    fragment = packet.fragment
    if source.version == 4:
        identification = fragment.identification & 0xFFFF if fragment else 0
        offset = (fragment.offset | (0x2000 if fragment.more else 0)) if fragment else 0
        head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(body), identification, offset, 64, packet.protocol, 0)
        return head + source.packed + destination.packed
    extension = b""
    following = packet.protocol
    if fragment:
        field = fragment.offset << 3 | fragment.more
        extension = struct.pack("!BBHI", packet.protocol, 0, field, fragment.identification)
        following = 44
    length = len(extension) + len(body)
    return struct.pack("!IHBB", 6 << 28, length, following, 64) + source.packed + destination.packed + extension


def encode(packet):
    """The bytes of a frame, and its header row as a dictionary."""
    tags = [tag for tag in (packet.vlan, packet.inner_vlan) if tag is not None]
    version = ipaddress.ip_address(packet.source).version
    ethertype = (IPV4 if version == 4 else IPV6) if packet.ip else 0x88CC
    link = bytes(12)
    for position, tag in enumerate(tags):
        link += struct.pack("!HH", 0x88A8 if position + 1 < len(tags) else 0x8100, tag)
    link += struct.pack("!H", ethertype)
    row = {
        "vlan": tags[0] if tags else NO_VLAN,
        "inner_vlan": tags[1] if len(tags) > 1 else NO_VLAN,
        "ethertype": ethertype,
    }
    if not packet.ip:
        return link + bytes(packet.payload), row
    transport = b"" if packet.later else _transport(packet)
    body = transport + bytes(packet.payload)
    network = _network(packet, body)
    if not packet.transport:
        transport = body = b""
    start = len(link) + len(network)
    row |= {
        "l3": len(link),
        "outer_l3": len(link),
        "payload": start + len(transport),
        "payload_length": len(body) - len(transport),
        "ip_version": version,
        "protocol": packet.protocol,
    }
    if transport:
        row["l4"] = start
        row["source_port"] = packet.source_port
        row["destination_port"] = packet.destination_port
    if packet.protocol == TCP and transport:
        row |= {"seq": packet.seq, "ack": packet.ack, "tcp_flags": packet.flags}
    if packet.fragment:
        row["flags"] = (
            FRAGMENT | (LATER_FRAGMENT if packet.later else 0) | (MORE_FRAGMENTS if packet.fragment.more else 0)
        )
        row["fragment_id"] = packet.fragment.identification
        row["fragment_offset"] = packet.fragment.offset
    return link + network + body, row


def batch_of(packets):
    """A batch of the packets' frames, and their header rows."""
    count = len(packets)
    encoded = [encode(packet) for packet in packets]
    lengths = np.array([len(frame) for frame, _ in encoded], np.int64)
    headers = np.zeros(count, HEADER)
    for at, (_, row) in enumerate(encoded):
        for name, value in row.items():
            headers[at][name] = value
    return (
        FrameBatch(
            data=np.frombuffer(b"".join(frame for frame, _ in encoded), np.uint8),
            offset=np.cumsum(lengths) - lengths,
            captured=lengths.astype(np.uint32),
            wire=np.array([wire(packet) for packet in packets], np.uint32),
            timestamp=np.array([START + packet.time for packet in packets], np.int64),
            port=np.array([packet.port for packet in packets], np.uint16),
            link=np.full(count, LINK_ETHERNET, np.uint16),
        ),
        headers,
    )


def wire(packet):
    """The bytes that a packet had on the wire."""
    return packet.size if packet.size is not None else len(encode(packet)[0]) + packet.extra_wire


def reply(packet, **changes):
    """A packet the other way."""
    turned = attrs.evolve(
        packet,
        source=packet.destination,
        destination=packet.source,
        source_port=packet.destination_port,
        destination_port=packet.source_port,
    )
    return attrs.evolve(turned, **changes)


def tcp_session(packet, *, ending="fin", data=1):
    """A TCP conversation that `packet`'s endpoints might have: handshake, data, and its ending (fin, rst or none)."""
    client, server = 1000, 5000
    session = [
        attrs.evolve(packet, flags=SYN, seq=client),
        reply(packet, flags=SYN | ACK, seq=server, ack=client + 1),
        attrs.evolve(packet, flags=ACK, seq=client + 1, ack=server + 1),
    ]
    client += 1
    server += 1
    for _ in range(data):
        session.append(attrs.evolve(packet, flags=PSH | ACK, seq=client, ack=server, payload=20))
        client += 20
        session.append(reply(packet, flags=PSH | ACK, seq=server, ack=client, payload=30))
        server += 30
    if ending == "fin":
        session.append(attrs.evolve(packet, flags=FIN | ACK, seq=client, ack=server))
        session.append(reply(packet, flags=FIN | ACK, seq=server, ack=client + 1))
        session.append(attrs.evolve(packet, flags=ACK, seq=client + 1, ack=server + 1))
    if ending == "rst":
        session.append(reply(packet, flags=RST, seq=server))
    return session
