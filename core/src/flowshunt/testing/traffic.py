"""Traffic for contract tests, from plain bytes: conversations in both directions, and hostile frames.

Deterministic by seed. Every conversation's flow is known, so that a test can say what a NIC has to count.
"""

import itertools
import random
import struct
from collections.abc import Iterator, Sequence

import attrs
import numpy as np
from numpy.typing import NDArray

from flowshunt.flows.record import FLOW, TcpState
from flowshunt.packets.batch import LINK_ETHERNET, FrameBatch
from flowshunt.packets.headers import NO_VLAN

START = 1_700_000_000_000_000_000
"""Timestamp of the first frame, ns since 1970-01-01 UTC."""

GAP = 10_000
"""Time between two frames, ns."""

TCP = 6
UDP = 17
FIN, SYN, RST, PSH, ACK = 1, 2, 4, 8, 16

_ETHERTYPE_IPV4, _ETHERTYPE_IPV6, _ETHERTYPE_VLAN, _ETHERTYPE_ARP = 0x0800, 0x86DD, 0x8100, 0x0806
_MIN_FRAME = 60

_OPENINGS: tuple[tuple[tuple[int, bytes], ...], ...] = (
    (
        (0, b"GET /index.html HTTP/1.1\r\nHost: www.example.com\r\nUser-Agent: test\r\n\r\n"),
        (1, b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\nhello"),
    ),
    ((1, b"SSH-2.0-OpenSSH_9.6\r\n"), (0, b"SSH-2.0-OpenSSH_9.6\r\n")),
    ((1, b"220 mail.example.com ESMTP\r\n"), (0, b"EHLO client.example.com\r\n")),
    ((0, bytes.fromhex("1234010000010000000000000377777707" + b"example".hex() + "03636f6d0000010001")),),
)
"""How the conversations begin: HTTP, SSH, SMTP, DNS; random bytes follow."""


@attrs.frozen
class Conversation:
    """Two ends that talk, the initiator first. Addresses in network byte order: 4 bytes (IPv4) or 16 (IPv6)."""

    source: bytes
    destination: bytes
    source_port: int
    destination_port: int
    protocol: int = TCP
    vlan: int | None = None

    @property
    def ip_version(self) -> int:
        """4 or 6."""
        return 4 if len(self.source) == 4 else 6

    def frame(self, direction: int, payload: bytes = b"", *, flags: int = ACK, seq: int = 0, ack: int = 0) -> bytes:
        """One Ethernet frame: direction 0 from the initiator, 1 to it. `flags`, `seq`, `ack` are TCP's."""
        ends = (self.source, self.source_port), (self.destination, self.destination_port)
        (source, source_port), (destination, destination_port) = ends if direction == 0 else ends[::-1]
        ports = struct.pack("!HH", source_port, destination_port)
        if self.protocol == TCP:
            head = ports + struct.pack("!IIBBHHH", seq, ack, 5 << 4, flags, 0xFFFF, 0, 0)
        else:
            head = ports + struct.pack("!HH", 8 + len(payload), 0)
        return ethernet(
            source,
            destination,
            self.protocol,
            _with_checksum(source, destination, self.protocol, head, payload),
            self.vlan,
        )

    def exchange(self, payloads: Sequence[tuple[int, bytes]], *, whole: bool = True) -> list[tuple[int, bytes]]:
        """An exchange as (direction, frame): the payloads, with TCP acknowledged; `whole`: with its start and end."""
        if self.protocol != TCP:
            return [(direction, self.frame(direction, payload)) for direction, payload in payloads]
        seq = [1000, 5000]
        frames: list[tuple[int, bytes]] = []

        def send(direction: int, flags: int, payload: bytes = b"") -> None:
            acknowledged = 0 if flags == SYN else seq[1 - direction]
            frame = self.frame(direction, payload, flags=flags, seq=seq[direction], ack=acknowledged)
            frames.append((direction, frame))
            seq[direction] += len(payload) + (1 if flags & (SYN | FIN) else 0)

        if whole:
            send(0, SYN)
            send(1, SYN | ACK)
            send(0, ACK)
        for direction, payload in payloads:
            send(direction, PSH | ACK, payload)
            send(1 - direction, ACK)
        if whole:
            send(0, FIN | ACK)
            send(1, FIN | ACK)
            send(0, ACK)
        return frames

    def record(self, number: int) -> NDArray[np.void]:
        """FLOW[1]: the flow as the host would hand it to a NIC: established, with an id, last seen at `START`."""
        row = np.zeros(1, FLOW)
        size = len(self.source)
        row["id"] = number
        row["source"][0, :size] = np.frombuffer(self.source, np.uint8)
        row["destination"][0, :size] = np.frombuffer(self.destination, np.uint8)
        row["source_port"], row["destination_port"] = self.source_port, self.destination_port
        row["vlan"] = NO_VLAN if self.vlan is None else self.vlan
        row["inner_vlan"] = NO_VLAN
        row["protocol"], row["ip_version"] = self.protocol, self.ip_version
        row["tcp_state"] = TcpState.ESTABLISHED if self.protocol == TCP else TcpState.NONE
        row["first"] = row["last"] = START
        return row


@attrs.frozen(eq=False)
class Traffic:
    """Frames whose flows are known.

    Attributes:
        frames: the frames, in order of time.
        conversations: the flows.
        owner: int64[n], the index in `conversations` of each frame; -1: a frame of no flow (ARP).
        direction: uint8[n], 0 from the initiator, 1 to it.
        flows: FLOW[k], the conversations' records with the ids 1 to k.
    """

    frames: FrameBatch
    conversations: tuple[Conversation, ...]
    owner: NDArray[np.int64]
    direction: NDArray[np.uint8]
    flows: NDArray[np.void]


def conversations(count: int = 60, seed: int = 1, *, whole: bool = True) -> Traffic:
    """`count` conversations, interleaved: TCP and UDP, IPv4 and IPv6, a few in a VLAN, and some ARP between them.

    Without `whole` the TCP connections stand already, and stay.
    """
    chosen = random.Random(seed)
    made: list[Conversation] = []
    queues: list[list[tuple[int, bytes]]] = []
    for number in range(count):
        made.append(_conversation(number, chosen))
        payloads = [
            (chosen.randrange(2), chosen.randbytes(chosen.randrange(1, 1200))) for _ in range(chosen.randrange(1, 12))
        ]
        queues.append([*_OPENINGS[number % len(_OPENINGS)], *payloads])
    pending = [conversation.exchange(queue, whole=whole) for conversation, queue in zip(made, queues, strict=True)]
    rows: list[tuple[int, int, bytes]] = []
    while any(pending):
        number = chosen.choice([index for index, frames in enumerate(pending) if frames])
        direction, frame = pending[number].pop(0)
        rows.append((number, direction, frame))
        if len(rows) % 97 == 0:
            rows.append((-1, 0, _arp(chosen)))
    return Traffic(
        frames=batch([frame for _, _, frame in rows]),
        conversations=tuple(made),
        owner=np.array([number for number, _, _ in rows], np.int64),
        direction=np.array([direction for _, direction, _ in rows], np.uint8),
        flows=np.concatenate([conversation.record(number) for number, conversation in enumerate(made, 1)]),
    )


def hostile(count: int = 400, seed: int = 2) -> FrameBatch:
    """Frames that no honest sender makes: cut off, empty, random, with bytes flipped, and with lying lengths."""
    chosen = random.Random(seed)
    honest = conversations(12, seed)
    frames: list[bytes] = []
    wire: list[int] = []
    for number in range(count):
        frame = bytearray(honest.frames.frame(number % len(honest.frames)))
        sort = number % 5
        if sort == 0:
            frame = frame[: chosen.randrange(len(frame))]
        elif sort == 1:
            frame = bytearray(chosen.randbytes(chosen.randrange(200)))
        elif sort == 2:
            for _ in range(chosen.randrange(1, 8)):
                frame[chosen.randrange(min(len(frame), 64))] = chosen.randrange(256)
        elif sort == 3 and len(frame) > 18:
            frame[16:18] = struct.pack("!H", chosen.choice((0, 1, 19, 0xFFFF)))
        frames.append(bytes(frame))
        wire.append(len(frame) if sort else chosen.choice((len(frame), 1514, 0xFFFFFFFF)))
    return attrs.evolve(batch(frames), wire=np.array(wire, np.uint32))


def batch(frames: Sequence[bytes], *, link: int = LINK_ETHERNET, start: int = START, first: int = 0) -> FrameBatch:
    """Frames as a batch: one `GAP` apart from `start` (ns), all from port 0, captured whole."""
    count = len(frames)
    size = np.array([len(frame) for frame in frames], np.uint32)
    data = np.frombuffer(b"".join(frames) or b"\0", np.uint8)
    return FrameBatch(
        data=data,
        offset=np.concatenate([np.zeros(1, np.int64), np.cumsum(size, dtype=np.int64)])[:count],
        captured=size,
        wire=size.copy(),
        timestamp=start + GAP * np.arange(count, dtype=np.int64),
        port=np.zeros(count, np.uint16),
        link=np.full(count, link, np.uint16),
        first=first,
    )


def split(frames: FrameBatch, parts: int) -> Iterator[FrameBatch]:
    """The same frames in `parts` batches."""
    edges = np.linspace(0, len(frames), parts + 1).astype(int).tolist()
    for start, end in itertools.pairwise(edges):
        yield attrs.evolve(frames.select(slice(start, end)), first=frames.first + start)


def ethernet(source: bytes, destination: bytes, protocol: int, segment: bytes, vlan: int | None = None) -> bytes:
    """An Ethernet frame with an IP packet in it, padded to the 60 bytes that the wire asks for."""
    if len(source) == 4:
        ethertype = _ETHERTYPE_IPV4
        head = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(segment), 1, 0x4000, 64, protocol, 0, source, destination)
        head = head[:10] + struct.pack("!H", _checksum(head)) + head[12:]
    else:
        ethertype = _ETHERTYPE_IPV6
        head = struct.pack("!IHBB16s16s", 6 << 28, len(segment), protocol, 64, source, destination)
    tag = b"" if vlan is None else struct.pack("!HH", _ETHERTYPE_VLAN, vlan)
    return (_mac(destination) + _mac(source) + tag + struct.pack("!H", ethertype) + head + segment).ljust(
        _MIN_FRAME, b"\0"
    )


def _conversation(number: int, chosen: random.Random) -> Conversation:
    """Ends whose addresses and ports differ from those of every other number."""
    if number % 3 == 2:
        source = bytes.fromhex("20010db8000100000000000000000000")[:12] + struct.pack("!I", 0x0A000000 + number)
        destination = bytes.fromhex("20010db8000200000000000000000000")[:12] + struct.pack(
            "!I", chosen.randrange(1 << 16)
        )
    else:
        source = struct.pack("!I", 0x0A000001 + number)
        destination = struct.pack("!I", 0xC0A80000 + chosen.randrange(1 << 12))
    return Conversation(
        source,
        destination,
        1024 + chosen.randrange(60000),
        chosen.choice((53, 80, 443, 8080)),
        UDP if number % 4 == 3 else TCP,
        100 + number if number % 10 == 9 else None,
    )


def _arp(chosen: random.Random) -> bytes:
    body = struct.pack("!HHBBH", 1, _ETHERTYPE_IPV4, 6, 4, 1) + chosen.randbytes(20)
    return (b"\xff" * 6 + b"\x02\0\0\0\0\x01" + struct.pack("!H", _ETHERTYPE_ARP) + body).ljust(_MIN_FRAME, b"\0")


def _mac(address: bytes) -> bytes:
    return b"\x02\0" + address[-4:]


def _with_checksum(source: bytes, destination: bytes, protocol: int, head: bytes, payload: bytes) -> bytes:
    """A TCP or UDP segment with its checksum (RFC 9293, RFC 768, RFC 8200 section 8.1)."""
    segment = head + payload
    if len(source) == 4:
        pseudo = source + destination + struct.pack("!BBH", 0, protocol, len(segment))
    else:
        pseudo = source + destination + struct.pack("!II", len(segment), protocol)
    value = _checksum(pseudo + segment)
    place = 16 if protocol == TCP else 6
    if protocol == UDP and value == 0:
        value = 0xFFFF
    return segment[:place] + struct.pack("!H", value) + segment[place + 2 :]


def _checksum(data: bytes) -> int:
    """The Internet checksum (RFC 1071)."""
    words = np.frombuffer(data + b"\0" * (len(data) % 2), ">u2")
    total = int(words.sum(dtype=np.uint64))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
