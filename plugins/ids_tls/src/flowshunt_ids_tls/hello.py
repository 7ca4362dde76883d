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
        lists: the numbers that JA3 is made of, behind the version.
    """

    version: int
    random: bytes
    session: bytes = b""
    ciphers: tuple[int, ...] = ()
    server_name: bytes | None = None
    protocols: tuple[bytes, ...] = ()
    chosen: int = 0
    lists: tuple[tuple[int, ...], ...] = ()
    events: list[str] = attrs.field(factory=list)

    @property
    def ja3(self) -> str:
        """The string whose MD5 is the JA3 or JA3S hash."""
        lists = ("-".join(str(number) for number in numbers if not _grease(number)) for numbers in self.lists)
        return ",".join((str(self.version), *lists))

    @property
    def ja3_hash(self) -> str:
        """MD5 of `ja3`, hexadecimal."""
        return hashlib.md5(self.ja3.encode("ascii"), usedforsecurity=False).hexdigest()


def _numbers(data: bytes) -> tuple[int, ...]:
    return struct.unpack(f">{len(data) // 2}H", data[: len(data) & ~1])


def _grease(number: int) -> bool:
    """Whether a number is one of those that clients send to keep servers tolerant (RFC 8701)."""
    return number & 0x0F0F == 0x0A0A and number >> 8 == number & 0xFF


def read_hello(data: bytes, *, client: bool) -> Hello:
    """A hello from its message's contents. Raises HelloError."""
    end = len(data)
    at = 3 + RANDOM
    if at > end:
        raise HelloError
    hello = Hello(data[0] << 8 | data[1], data[2 : 2 + RANDOM])
    hello.session, at = _part(data, at, data[at - 1], end)
    if client:
        hello.ciphers, at = _counted_numbers(data, at, end)
        if at >= end:
            raise HelloError
        _methods, at = _part(data, at + 1, data[at], end)
    else:
        if at + 3 > end:
            raise HelloError
        hello.ciphers = (data[at] << 8 | data[at + 1],)
        at += 3
    hello.chosen = hello.version
    kinds: list[int] = []
    groups: tuple[int, ...] = ()
    formats: tuple[int, ...] = ()
    if end - at >= 2:
        size = data[at] << 8 | data[at + 1]
        at += 2
        if size > end - at:
            raise HelloError
        end = at + size
    while end - at >= 4:
        kind = data[at] << 8 | data[at + 1]
        body, at = _part(data, at + 4, data[at + 2] << 8 | data[at + 3], end)
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
    hello.lists = (hello.ciphers, tuple(kinds), groups, formats) if client else (hello.ciphers, tuple(kinds))
    return hello


def _part(data: bytes, at: int, size: int, end: int) -> tuple[bytes, int]:
    """So many bytes, and where they end."""
    behind = at + size
    if behind > end:
        raise HelloError
    return data[at:behind], behind


def _counted_numbers(data: bytes, at: int, end: int) -> tuple[tuple[int, ...], int]:
    """Numbers of two bytes behind how many bytes they are, and where they end."""
    if at + 2 > end:
        raise HelloError
    part, at = _part(data, at + 2, data[at] << 8 | data[at + 1], end)
    return _numbers(part), at


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
    at, end = 2, len(body)
    found = []
    while at < end:
        behind = at + 1 + body[at]
        if behind > end:
            break
        found.append(body[at + 1 : behind])
        at = behind
    return tuple(found)
