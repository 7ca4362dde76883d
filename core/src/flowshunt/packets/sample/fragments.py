"""IP fragmentation of finished frames (RFC 791 for IPv4, RFC 8200 section 4.5 for IPv6)."""

import struct

from flowshunt.packets.sample.stamp import SMALLEST, word_sum

FRAGMENT_HEADER = 44
_FRAGMENT = struct.Struct(">BBHI")
_WORD = struct.Struct(">H")
_DONT_FRAGMENT = 0x4000
_MORE_FRAGMENTS = 0x2000


def fragment(frame: bytes, l3: int, mtu: int, ident: int) -> list[bytes]:
    """Cut the IP packet at offset `l3` of an Ethernet frame into frames whose IP packets have at most `mtu` bytes.

    The IP header has no options or extension headers. `ident` marks the fragments of one packet: 16 bits for IPv4,
    which replace those of the packet, 32 for IPv6. A packet that fits comes back as it is.
    """
    return _fragment4(frame, l3, mtu, ident) if frame[l3] >> 4 == 4 else _fragment6(frame, l3, mtu, ident)


def _fragment4(frame: bytes, l3: int, mtu: int, ident: int) -> list[bytes]:
    length = _WORD.unpack_from(frame, l3 + 2)[0]
    if length <= mtu:
        return [frame]
    body = frame[l3 + 20 : l3 + length]
    step = (mtu - 20) & ~7
    frames = []
    for start in range(0, len(body), step):
        part = body[start : start + step]
        more = _MORE_FRAGMENTS if start + step < len(body) else 0
        header = bytearray(frame[: l3 + 20])
        struct.pack_into(">HHH", header, l3 + 2, 20 + len(part), ident, more | start >> 3)
        _WORD.pack_into(header, l3 + 10, 0)
        _WORD.pack_into(header, l3 + 10, -word_sum(header[l3:]) % 0xFFFF)
        frames.append((bytes(header) + part).ljust(SMALLEST, b"\0"))
    return frames


def _fragment6(frame: bytes, l3: int, mtu: int, ident: int) -> list[bytes]:
    length = _WORD.unpack_from(frame, l3 + 4)[0]
    if 40 + length <= mtu:
        return [frame]
    body = frame[l3 + 40 : l3 + 40 + length]
    step = (mtu - 48) & ~7
    frames = []
    for start in range(0, len(body), step):
        part = body[start : start + step]
        more = 1 if start + step < len(body) else 0
        header = bytearray(frame[: l3 + 40])
        _WORD.pack_into(header, l3 + 4, 8 + len(part))
        header[l3 + 6] = FRAGMENT_HEADER
        frames.append(bytes(header) + _FRAGMENT.pack(frame[l3 + 6], 0, start | more, ident) + part)
    return frames
