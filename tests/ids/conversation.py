"""Frames made by hand: TCP conversations, datagrams, fragments."""

import struct
from collections.abc import Sequence

_ETHERNET = bytes.fromhex("020000000002 020000000001 0800")
_ETHERNET6 = bytes.fromhex("020000000002 020000000001 86dd")
FLAGS = {"F": 1, "S": 2, "R": 4, "P": 8, "A": 16, "U": 32, "E": 64, "C": 128}


def address(text: str) -> bytes:
    return bytes(int(part) for part in text.split("."))


def ipv4(
    source: str,
    destination: str,
    protocol: int,
    payload: bytes,
    *,
    identification: int = 0,
    fragment: int = 0,
    ttl: int = 64,
) -> bytes:
    """fragment: the 16 bits of flags and offset."""
    return (
        _ETHERNET
        + struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(payload), identification, fragment, ttl, protocol, 0)
        + address(source)
        + address(destination)
        + payload
    )


def tcp_segment(
    sport: int, dport: int, seq: int, ack: int, flags: str, payload: bytes = b"", window: int = 65535
) -> bytes:
    bits = sum(FLAGS[letter] for letter in flags)
    return struct.pack("!HHIIBBHHH", sport, dport, seq % 2**32, ack % 2**32, 0x50, bits, window, 0, 0) + payload


def udp(
    payload: bytes, *, sport: int = 4000, dport: int = 9999, source: str = "10.0.0.1", destination: str = "10.0.0.2"
) -> bytes:
    return ipv4(source, destination, 17, struct.pack("!HHHH", sport, dport, 8 + len(payload), 0) + payload)


def udp6(payload: bytes, *, sport: int = 4000, dport: int = 9999, source: bytes, destination: bytes) -> bytes:
    inner = struct.pack("!HHHH", sport, dport, 8 + len(payload), 0) + payload
    return _ETHERNET6 + struct.pack("!IHBB", 6 << 28, len(inner), 17, 64) + source + destination + inner


def icmp(
    kind: int, code: int, rest: bytes, payload: bytes = b"", source: str = "10.0.0.1", destination: str = "10.0.0.2"
) -> bytes:
    return ipv4(source, destination, 1, struct.pack("!BBH", kind, code, 0) + rest + payload)


def fragments(frame: bytes, size: int, identification: int = 7) -> list[bytes]:
    """A frame of `ipv4` cut into fragments of `size` bytes of payload (a multiple of 8)."""
    header, payload = frame[14:34], frame[34:]
    cut = []
    for start in range(0, len(payload), size):
        more = 0x2000 if start + size < len(payload) else 0
        part = payload[start : start + size]
        cut.append(
            _ETHERNET
            + header[:2]
            + struct.pack("!HHH", 20 + len(part), identification, more | start // 8)
            + header[8:]
            + part
        )
    return cut


class Conversation:
    """A TCP connection, one frame after the other. Side 0 is the client."""

    def __init__(
        self,
        *,
        sport: int = 40000,
        dport: int = 9999,
        client: str = "10.0.0.1",
        server: str = "10.0.0.2",
        seqs: Sequence[int] = (1000, 5000),
    ) -> None:
        self.frames: list[bytes] = []
        self.ports = (sport, dport)
        self.hosts = (client, server)
        self.seq = list(seqs)

    def raw(self, side: int, flags: str, seq: int, ack: int, payload: bytes = b"") -> "Conversation":
        other = 1 - side
        segment = tcp_segment(self.ports[side], self.ports[other], seq, ack, flags, payload)
        self.frames.append(ipv4(self.hosts[side], self.hosts[other], 6, segment))
        return self

    def handshake(self) -> "Conversation":
        self.raw(0, "S", self.seq[0], 0)
        self.seq[0] += 1
        self.raw(1, "SA", self.seq[1], self.seq[0])
        self.seq[1] += 1
        return self.raw(0, "A", self.seq[0], self.seq[1])

    def send(self, side: int, payload: bytes, *, acked: bool = True) -> "Conversation":
        other = 1 - side
        self.raw(side, "PA", self.seq[side], self.seq[other], payload)
        self.seq[side] += len(payload)
        return self.raw(other, "A", self.seq[other], self.seq[side]) if acked else self

    def odd(self, side: int, flags: str, payload: bytes = b"", *, seq: int = 0, ack: int = 0) -> "Conversation":
        """A frame that moves nothing on; seq, ack: how far off its numbers are."""
        return self.raw(side, flags, self.seq[side] + seq, self.seq[1 - side] + ack, payload)

    def skip(self, side: int, count: int) -> "Conversation":
        """Bytes that are not captured."""
        self.seq[side] += count
        return self

    def finish(self) -> "Conversation":
        self.raw(0, "FA", self.seq[0], self.seq[1])
        self.seq[0] += 1
        self.raw(1, "FA", self.seq[1], self.seq[0])
        self.seq[1] += 1
        return self.raw(0, "A", self.seq[0], self.seq[1])
