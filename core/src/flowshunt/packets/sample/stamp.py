"""Stamping: a flow's addresses into header templates once, and each frame's numbers, lengths and checksums after that.

The Internet checksum (RFC 1071) is the complement of a sum modulo 65535, and 65536 is 1 modulo 65535: so any bytes,
read as one big number, are congruent to the sum of their 16-bit words. The constant part of a header is summed once; a
frame adds its own fields as plain numbers.
"""

import struct

from flowshunt.packets.sample.addresses import Ends
from flowshunt.packets.sample.templates import ICMP, ICMP6, TCP, UDP, Template, template

Payload = bytes | memoryview

SMALLEST = 60
"""Bytes of the smallest Ethernet frame, without its check sequence; shorter ones are padded with zeros."""
_PADDING = bytes(SMALLEST)

_TCP_NUMBERS = struct.Struct(">IIHHH")
_PAIR32 = struct.Struct(">II")
_PAIR16 = struct.Struct(">HH")
_WORD = struct.Struct(">H")

TTL = (64, 53)
"""Time to live (hop limit) of frames from the initiator and of frames to it."""

DATA_TIMESTAMP = 24
SYN_TIMESTAMP = 28
"""Where the time stamp option's values lie, counted from the TCP header, in the two templates that have them."""


def word_sum(data: bytes | bytearray | memoryview) -> int:
    """A number congruent modulo 65535 to the sum of the big-endian 16-bit words, an odd last byte padded with zero."""
    total = int.from_bytes(data, "big")
    return (total << 8 if len(data) & 1 else total) % 0xFFFF


class Lane:
    """The headers of one direction of a flow, of one shape, ready for stamping. Not shared between flows."""

    __slots__ = ("header", "ident", "l3", "l4", "network_sum", "size", "transport_sum", "version")

    def __init__(self, shape: Template, ends: Ends, direction: int, protocol: int, ident: int) -> None:
        header = bytearray(shape.header)
        source, destination = (ends.client, ends.server) if direction == 0 else (ends.server, ends.client)
        header[0:6] = destination.mac
        header[6:12] = source.mac
        for tag, vlan in enumerate(ends.vlans):
            _WORD.pack_into(header, 14 + 4 * tag, vlan)
        addresses = source.address + destination.address
        if shape.version == 4:
            header[shape.l3 + 8] = TTL[direction]
            header[shape.l3 + 12 : shape.l3 + 20] = addresses
        else:
            header[shape.l3 + 7] = TTL[direction]
            header[shape.l3 + 8 : shape.l3 + 40] = addresses
        if protocol in (TCP, UDP):
            ports = (ends.client_port, ends.server_port)
            _PAIR16.pack_into(header, shape.l4, ports[direction], ports[1 - direction])
        self.header = header
        self.l3 = shape.l3
        self.l4 = shape.l4
        self.version = shape.version
        self.ident = ident
        self.size = len(header)
        self.network_sum = word_sum(header[shape.l3 : shape.l4])
        pseudo = 0 if protocol == ICMP else word_sum(addresses) + protocol
        self.transport_sum = word_sum(header[shape.l4 :]) + pseudo

    def _finish(self, payload: Payload, payload_size: int) -> bytes:
        """Stamp the IP header and put the frame together."""
        header = self.header
        l3 = self.l3
        if self.version == 4:
            length = self.size - l3 + payload_size
            ident = self.ident = self.ident + 1 & 0xFFFF
            _PAIR16.pack_into(header, l3 + 2, length, ident)
            _WORD.pack_into(header, l3 + 10, -(self.network_sum + length + ident) % 0xFFFF)
        else:
            _WORD.pack_into(header, l3 + 4, self.size - self.l4 + payload_size)
        if self.size + payload_size < SMALLEST:
            return b"".join((header, payload, _PADDING[self.size + payload_size :]))
        return b"".join((header, payload))


class TcpLane(Lane):
    """TCP segments of one direction."""

    __slots__ = ("timestamp",)

    def __init__(self, ends: Ends, direction: int, ident: int, timestamps: bool, syn: bool) -> None:
        shape = template(ends.version, len(ends.vlans), TCP, timestamps, syn)
        super().__init__(shape, ends, direction, TCP, ident)
        self.timestamp = (shape.l4 + (SYN_TIMESTAMP if syn else DATA_TIMESTAMP)) if timestamps else 0

    def segment(
        self, flags: int, sequence: int, acknowledged: int, window: int, value: int, echo: int, payload: Payload
    ) -> bytes:
        """A frame. `value` and `echo` go into the time stamp option where there is one; numbers are below 2**32."""
        size = len(payload)
        l4 = self.l4
        header = self.header
        total = self.transport_sum + flags + sequence + acknowledged + window + self.size - l4 + size
        if self.timestamp:
            _PAIR32.pack_into(header, self.timestamp, value, echo)
            total += value + echo
        if size:
            total += word_sum(payload)
        offset = (self.size - l4) << 10
        _TCP_NUMBERS.pack_into(header, l4 + 4, sequence, acknowledged, offset | flags, window, -total % 0xFFFF)
        return self._finish(payload, size)


class UdpLane(Lane):
    """UDP datagrams of one direction."""

    __slots__ = ()

    def __init__(self, ends: Ends, direction: int, ident: int) -> None:
        super().__init__(template(ends.version, len(ends.vlans), UDP), ends, direction, UDP, ident)

    def datagram(self, payload: Payload) -> bytes:
        """A frame, as long as the payload needs it: longer than the link allows, it must be fragmented."""
        size = len(payload)
        # The length stands in the pseudo header and in the header. A checksum of 0 would mean none (RFC 768).
        total = self.transport_sum + 2 * (8 + size) + word_sum(payload)
        _PAIR16.pack_into(self.header, self.l4 + 4, 8 + size, -total % 0xFFFF or 0xFFFF)
        return self._finish(payload, size)


class EchoLane(Lane):
    """ICMP or ICMPv6 echo messages of one direction: requests from the initiator, replies to it."""

    __slots__ = ("kind",)

    def __init__(self, ends: Ends, direction: int, ident: int) -> None:
        protocol = ICMP if ends.version == 4 else ICMP6
        shape = template(ends.version, len(ends.vlans), protocol)
        super().__init__(shape, ends, direction, protocol, ident)
        requests = 8 if ends.version == 4 else 128
        kind = requests if direction == 0 else (0 if ends.version == 4 else 129)
        self.header[self.l4] = kind
        self.transport_sum += (kind - requests) << 8

    def echo(self, identifier: int, number: int, payload: Payload) -> bytes:
        """A frame."""
        total = self.transport_sum + identifier + number + word_sum(payload)
        if self.version == 6:
            total += 8 + len(payload)
        _WORD.pack_into(self.header, self.l4 + 2, -total % 0xFFFF)
        _PAIR16.pack_into(self.header, self.l4 + 4, identifier, number)
        return self._finish(payload, len(payload))
