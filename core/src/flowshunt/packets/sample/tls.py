"""TLS dialogues: the handshakes of 1.2 and 1.3 with a server name, then records of application data."""

import struct
from collections.abc import Iterator

from flowshunt.packets.sample.flow import Flow, Turn
from flowshunt.packets.sample.pools import WORDS, Pools

CHANGE_CIPHER_SPEC = 20
ALERT = 21
HANDSHAKE = 22
APPLICATION_DATA = 23

LONGEST_RECORD = 16384 + 17
"""Bytes of the longest TLS 1.3 record's body: 2**14 of data, its type, and a 16-byte tag (RFC 8446, 5.2)."""

_HEADER = struct.Struct(">BHH")
_CIPHERS = bytes.fromhex("130113021303c02bc02fc02cc030cca9cca8")
_CHOSEN12 = b"\xc0\x2f"
_CHOSEN13 = b"\x13\x01"


def record(kind: int, body: bytes | memoryview, version: int = 0x0303) -> bytes:
    """One TLS record (RFC 8446, 5.1)."""
    return _HEADER.pack(kind, version, len(body)) + body


def application_data(body: memoryview) -> bytes:
    """Records of at most LONGEST_RECORD bytes that carry `body`, which looks encrypted."""
    if len(body) <= LONGEST_RECORD:
        return record(APPLICATION_DATA, body)
    starts = range(0, len(body), LONGEST_RECORD)
    return b"".join(record(APPLICATION_DATA, body[start : start + LONGEST_RECORD]) for start in starts)


def server_name(flow: Flow, label: bytes) -> bytes:
    """A name for the flow's server."""
    dice = flow.dice
    return b"%s.%s-%s.example" % (label, dice.pick(WORDS), dice.pick(WORDS))


def client_hello(flow: Flow, pools: Pools, name: bytes, tls13: bool) -> bytes:
    """A ClientHello record that asks for `name` (RFC 8446, 4.1.2; RFC 6066, 3)."""
    entry = struct.pack(">BH", 0, len(name)) + name
    extensions = [
        (0, struct.pack(">H", len(entry)) + entry),
        (10, bytes.fromhex("0006001d00170018")),
        (11, b"\x01\x00"),
        (13, bytes.fromhex("000c040308040401050308050501")),
        (16, bytes.fromhex("000c02683208687474702f312e31")),
    ]
    if tls13:
        extensions += [
            (43, bytes.fromhex("0403040303")),
            (51, bytes.fromhex("0024001d0020") + pools.noise_slice(flow.dice, 32)),
        ]
    hello = b"\x03\x03" + pools.noise_slice(flow.dice, 32) + b"\x20" + pools.noise_slice(flow.dice, 32)
    hello += struct.pack(">H", len(_CIPHERS)) + _CIPHERS + b"\x01\x00" + _extensions(extensions)
    return record(HANDSHAKE, _handshake(1, hello), 0x0301)


def handshake(flow: Flow, pools: Pools, name: bytes) -> Iterator[Turn]:
    """A whole handshake, up to where application data may flow."""
    dice = flow.dice
    tls13 = dice.chance(0.7)
    yield 0, client_hello(flow, pools, name, tls13)
    hello = b"\x03\x03" + pools.noise_slice(dice, 32) + b"\x20" + pools.noise_slice(dice, 32)
    certificates = pools.noise_slice(dice, dice.between(1800, 3600))
    if tls13:
        extensions = [
            (43, b"\x03\x04"),
            (51, bytes.fromhex("001d0020") + pools.noise_slice(dice, 32)),
        ]
        server_hello = record(HANDSHAKE, _handshake(2, hello + _CHOSEN13 + b"\x00" + _extensions(extensions)))
        yield 1, server_hello + record(CHANGE_CIPHER_SPEC, b"\x01") + application_data(certificates)
        yield 0, record(CHANGE_CIPHER_SPEC, b"\x01") + application_data(pools.noise_slice(dice, 53))
        return
    length = len(certificates).to_bytes(3, "big")
    chain = (len(certificates) + 3).to_bytes(3, "big") + length + certificates
    server_hello = record(HANDSHAKE, _handshake(2, hello + _CHOSEN12 + b"\x00" + _extensions([(65281, b"\x00")])))
    exchange = _handshake(12, bytes.fromhex("03001d20") + pools.noise_slice(dice, 32 + 260))
    yield (
        1,
        server_hello
        + record(HANDSHAKE, _handshake(11, chain))
        + record(HANDSHAKE, exchange)
        + record(HANDSHAKE, _handshake(14, b"")),
    )
    finished = record(CHANGE_CIPHER_SPEC, b"\x01") + record(HANDSHAKE, pools.noise_slice(dice, 40))
    key = record(HANDSHAKE, _handshake(16, b"\x20" + pools.noise_slice(dice, 32)))
    yield 0, key + finished
    yield 1, finished


def _handshake(kind: int, body: bytes) -> bytes:
    return bytes((kind,)) + len(body).to_bytes(3, "big") + body


def _extensions(extensions: list[tuple[int, bytes]]) -> bytes:
    body = b"".join(struct.pack(">HH", kind, len(data)) + data for kind, data in extensions)
    return struct.pack(">H", len(body)) + body


def web(flow: Flow, pools: Pools) -> Iterator[Turn]:
    """A browser's connection: requests of a few hundred bytes, answers from a redirect to a picture."""
    dice = flow.dice
    yield from handshake(flow, pools, server_name(flow, b"www"))
    while (left := flow.left()) > 6:
        yield 0, application_data(pools.noise_slice(dice, dice.between(250, 900)))
        largest = min(left * 700, 60_000) if dice.chance(0.3) else 2600
        yield 1, application_data(pools.noise_slice(dice, dice.between(180, max(largest, 400))))


def interface(flow: Flow, pools: Pools) -> Iterator[Turn]:
    """A chatty client of a programming interface: short requests, short answers, and events pushed by the server."""
    dice = flow.dice
    yield from handshake(flow, pools, server_name(flow, b"api"))
    usual = dice.between(60, 360)
    while flow.left() > 6:
        yield 0, application_data(pools.noise_slice(dice, dice.between(40, 120 + usual)))
        if dice.chance(0.15):
            # The head and the body of the answer are written apart, and so leave in two segments.
            yield 1, application_data(pools.noise_slice(dice, dice.between(60, 180)))
        yield 1, application_data(pools.noise_slice(dice, dice.between(60, 2 * usual)))
        for _ in range(dice.below(3)):
            yield 1, application_data(pools.noise_slice(dice, dice.between(40, usual)))


def video(flow: Flow, pools: Pools) -> Iterator[Turn]:
    """A video stream: a request, then some hundred kilobytes, over and over."""
    dice = flow.dice
    yield from handshake(flow, pools, server_name(flow, b"video"))
    while (left := flow.left()) > 8:
        yield 0, application_data(pools.noise_slice(dice, dice.between(300, 600)))
        size = min(dice.between(100_000, 700_000), left * 960)
        for start in range(0, size, 1 << 16):
            yield 1, application_data(pools.noise_slice(dice, min(size - start, 1 << 16)))
