"""Client and server hellos (RFC 8446, section 4.1): what is offered and chosen, SNI, ALPN, JA3."""

import hashlib
import struct
from typing import Final

import attrs

SERVER_NAME, GROUPS, POINT_FORMATS, ALPN, VERSIONS = 0, 10, 11, 16, 43
RANDOM: Final = 32


class HelloError(ValueError):
    """A hello that ends too early or says impossible lengths, with the event's name."""

    def __init__(self, event: str = "handshake_invalid_length") -> None:
        super().__init__(event)
        self.event = event


@attrs.define
class Hello:
    """A hello.

    Attributes:
        version: as it says itself. chosen: for a server hello the version that is spoken.
        random: 32 bytes. ciphers: offered, or the one that was chosen.
        server_name: None where there is none. events: what is odd.
        ja3: the string whose MD5 is the JA3 or JA3S hash.
    """

    version: int
    random: bytes
    session: bytes = b""
    ciphers: tuple[int, ...] = ()
    server_name: bytes | None = None
    protocols: tuple[bytes, ...] = ()
    chosen: int = 0
    ja3: str = ""
    events: list[str] = attrs.field(factory=list)

    @property
    def ja3_hash(self) -> str:
        """MD5 of `ja3`, hexadecimal."""
        return hashlib.md5(self.ja3.encode("ascii"), usedforsecurity=False).hexdigest()


def _numbers(data: bytes) -> tuple[int, ...]:
    return struct.unpack(f">{len(data) // 2}H", data[: len(data) & ~1])


def _grease(number: int) -> bool:
    """Whether a number is one of those that clients send to keep servers tolerant (RFC 8701)."""
    return number & 0x0F0F == 0x0A0A and number >> 8 == number & 0xFF


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, size: int) -> bytes:
        if size > len(self.data) - self.at:
            raise HelloError
        self.at += size
        return self.data[self.at - size : self.at]

    def counted(self, width: int) -> bytes:
        return self.take(int.from_bytes(self.take(width), "big"))

    @property
    def left(self) -> int:
        return len(self.data) - self.at


def read_hello(data: bytes, *, client: bool) -> Hello:
    """A hello from its message's contents. Raises HelloError."""
    reader = _Reader(data)
    hello = Hello(int.from_bytes(reader.take(2), "big"), reader.take(RANDOM))
    hello.session = reader.counted(1)
    if client:
        hello.ciphers = _numbers(reader.counted(2))
        reader.counted(1)
    else:
        hello.ciphers = _numbers(reader.take(2))
        reader.take(1)
    hello.chosen = hello.version
    kinds: list[int] = []
    groups: tuple[int, ...] = ()
    formats: tuple[int, ...] = ()
    if reader.left >= 2:
        extensions = _Reader(reader.counted(2))
        while extensions.left >= 4:
            kind = int.from_bytes(extensions.take(2), "big")
            body = extensions.counted(2)
            kinds.append(kind)
            if kind == SERVER_NAME and client:
                _server_name(hello, body)
            elif kind == ALPN:
                hello.protocols = _protocols(body)
            elif kind == VERSIONS and not client and len(body) == 2:
                hello.chosen = int.from_bytes(body, "big")
            elif kind == VERSIONS and client and body:
                offered = [number for number in _numbers(body[1 : 1 + body[0]]) if not _grease(number)]
                hello.chosen = max(offered, default=hello.version)
            elif kind == GROUPS and len(body) >= 2:
                groups = _numbers(body[2:])
            elif kind == POINT_FORMATS and body:
                formats = tuple(body[1 : 1 + body[0]])
    fields: list[tuple[int, ...]] = [hello.ciphers, tuple(kinds)]
    if client:
        fields += [groups, formats]
    lists = ("-".join(str(n) for n in numbers if not _grease(n)) for numbers in fields)
    hello.ja3 = ",".join((str(hello.version), *lists))
    return hello


def _server_name(hello: Hello, body: bytes) -> None:
    if hello.server_name is not None:
        hello.events.append("multiple_sni_extensions")
        return
    if len(body) < 5:
        return
    if body[2] != 0:
        hello.events.append("invalid_sni_type")
        return
    size = int.from_bytes(body[3:5], "big")
    if size > len(body) - 5:
        hello.events.append("invalid_sni_length")
        return
    hello.server_name = body[5 : 5 + size]


def _protocols(body: bytes) -> tuple[bytes, ...]:
    reader = _Reader(body[2:])
    found = []
    while reader.left:
        try:
            found.append(reader.counted(1))
        except HelloError:
            break
    return tuple(found)
