"""A pcap reader and packet parser in plain Python, for what samples hold. It shares no code with the core."""

import struct

import attrs

_TCP = struct.Struct(">HHIIBB")
_UDP = struct.Struct(">HHH")

TCP, UDP, ICMP, ICMP6 = 6, 17, 1, 58
FIN, SYN, RST, PSH, ACK, URG = 1, 2, 4, 8, 16, 32


@attrs.define
class Packet:
    number: int  # counted from 1
    time: int  # ns
    frame: bytes
    vlans: tuple
    l3: int
    version: int
    source: bytes
    destination: bytes
    protocol: int
    ident: int | None  # of the datagram, where this is a fragment
    fragment: int  # offset in bytes
    more: bool
    body: bytes  # what follows the IP header
    source_port: int = 0
    destination_port: int = 0
    sequence: int = 0
    acknowledged: int = 0
    flags: int = 0
    payload: bytes = b""

    @property
    def fragmented(self):
        return self.ident is not None

    @property
    def ends(self):
        return (self.source, self.source_port), (self.destination, self.destination_port)

    @property
    def flow(self):
        return (self.version, self.protocol, self.vlans, *sorted(self.ends))


def read_records(path):
    """(number from 1, time in ns, frame) of each record of a little-endian nanosecond pcap file."""
    data = path.read_bytes()
    assert data[:4] == bytes.fromhex("4d3cb2a1")
    assert struct.unpack_from("<I", data, 20) == (1,)
    at, number = 24, 0
    while at < len(data):
        seconds, fraction, captured, wire = struct.unpack_from("<IIII", data, at)
        assert fraction < 1_000_000_000
        assert captured == wire
        at += 16
        number += 1
        yield number, seconds * 1_000_000_000 + fraction, data[at : at + captured]
        at += captured
    assert at == len(data)


def parse(number, time, frame):
    """A packet; ports, numbers and payload are those of the transport header, and missing from fragments."""
    l3, vlans = 14, []
    while frame[l3 - 2 : l3] in (b"\x81\x00", b"\x88\xa8"):
        vlans.append(struct.unpack_from(">H", frame, l3)[0] & 0xFFF)
        l3 += 4
    kind = frame[l3 - 2 : l3]
    ident, fragment, more = None, 0, False
    if kind == b"\x08\x00":
        assert frame[l3] == 0x45
        length, ident, offset = struct.unpack_from(">HHH", frame, l3 + 2)
        fragment, more = (offset & 0x1FFF) * 8, bool(offset & 0x2000)
        ident = ident if fragment or more else None
        protocol = frame[l3 + 9]
        source, destination = frame[l3 + 12 : l3 + 16], frame[l3 + 16 : l3 + 20]
        body = frame[l3 + 20 : l3 + length]
        assert len(frame) == max(60, l3 + length)
    else:
        assert kind == b"\x86\xdd"
        assert frame[l3] >> 4 == 6
        length, protocol = struct.unpack_from(">HB", frame, l3 + 4)
        source, destination = frame[l3 + 8 : l3 + 24], frame[l3 + 24 : l3 + 40]
        body = frame[l3 + 40 : l3 + 40 + length]
        assert len(frame) == l3 + 40 + length
        if protocol == 44:
            protocol, _, offset, ident = struct.unpack_from(">BBHI", body)
            fragment, more = offset & ~7, bool(offset & 1)
            body = body[8:]
    transport = NONE if ident is not None else transport_fields(protocol, body)
    vlans = tuple(vlans)
    version = 4 if kind == b"\x08\x00" else 6
    return Packet(
        number, time, frame, vlans, l3, version, source, destination, protocol, ident, fragment, more, body, *transport
    )


NONE = (0, 0, 0, 0, 0, b"")


def transport_fields(protocol, body):
    """(source port, destination port, sequence, acknowledged, flags, payload) of the header that `body` begins with."""
    if protocol == TCP:
        source, destination, sequence, acknowledged, offset, flags = _TCP.unpack_from(body)
        return source, destination, sequence, acknowledged, flags, body[offset >> 4 << 2 :]
    if protocol == UDP:
        source, destination, length = _UDP.unpack_from(body)
        assert length == len(body)
        return source, destination, 0, 0, 0, body[8:]
    assert protocol in (ICMP, ICMP6)
    return 0, 0, 0, 0, 0, body[8:]


def read_packets(path):
    """Every packet of a capture, fragments as they are."""
    for record in read_records(path):
        yield parse(*record)


def whole_packets(packets):
    """The packets with fragments put together: each datagram takes the place, number and time of its last fragment."""
    pieces = {}
    for packet in packets:
        if not packet.fragmented:
            yield packet
            continue
        key = (packet.source, packet.destination, packet.protocol, packet.ident, packet.vlans)
        parts = pieces.setdefault(key, [])
        parts.append(packet)
        parts.sort(key=lambda part: part.fragment)
        body = b""
        for part in parts:
            if part.fragment != len(body):
                break
            body += part.body
        else:
            if not parts[-1].more:
                del pieces[key]
                fields = transport_fields(packet.protocol, body)
                names = ("source_port", "destination_port", "sequence", "acknowledged", "flags", "payload")
                yield attrs.evolve(
                    packet, body=body, ident=None, fragment=0, more=False, **dict(zip(names, fields, strict=True))
                )
    assert not pieces


def checksums_right(packet):
    """Whether the IPv4 header's and the transport's checksums are right; of fragments only the former."""
    if packet.version == 4 and _ones(packet.frame[packet.l3 : packet.l3 + 20]) != 0xFFFF:
        return False
    if packet.fragmented:
        return True
    return transport_checksum_right(packet)


def transport_checksum_right(packet):
    pseudo = packet.source + packet.destination + struct.pack(">II", len(packet.body), packet.protocol)
    if packet.protocol == ICMP:
        pseudo = b""
    if packet.protocol == UDP and packet.body[6:8] == b"\0\0":
        return False  # allowed over IPv4, but not in a sample
    return _ones(pseudo + packet.body) == 0xFFFF


def _ones(data):
    """The ones' complement sum of 16-bit words, as RFC 1071 has it."""
    data += b"\0" * (len(data) & 1)
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total
