"""Headers as bytes, by hand: what tests of decoding are built from."""

import struct

MACS = bytes.fromhex("020000000002020000000001")


def ethernet(ethertype, payload):
    return MACS + struct.pack(">H", ethertype) + payload


def vlan(identifier, ethertype, payload):
    """What follows the tag's own EtherType."""
    return struct.pack(">HH", identifier, ethertype) + payload


def mpls(*labels, payload):
    stack = [
        struct.pack(">I", label << 12 | (number == len(labels) - 1) << 8 | 64) for number, label in enumerate(labels)
    ]
    return b"".join(stack) + payload


def ipv4(protocol, payload, *, options=b"", total=None, fragment=0, first=None, ttl=64):
    length = 20 + len(options)
    return (
        struct.pack(
            ">BBHHHBBH",
            0x40 | length // 4 if first is None else first,
            0,
            length + len(payload) if total is None else total,
            0x1234,
            fragment,
            ttl,
            protocol,
            0,
        )
        + bytes([192, 0, 2, 1, 198, 51, 100, 2])
        + options
        + payload
    )


def ipv6(following, payload, *, length=None, first=0x60):
    size = len(payload) if length is None else length
    return struct.pack(">B3xHBB", first, size, following, 61) + bytes(range(32)) + payload


def tcp(payload=b"", *, offset=5, options=b""):
    return struct.pack(">HHIIBBHHH", 1000, 80, 0x11223344, 0x55667788, offset << 4, 0x18, 512, 0, 0) + options + payload


def udp(payload=b"", *, source=1000, destination=2000, length=None):
    return struct.pack(">HHHH", source, destination, 8 + len(payload) if length is None else length, 0) + payload


def gre(protocol, payload, *, flags=0, fields=b""):
    return struct.pack(">HH", flags, protocol) + fields + payload


def vxlan(payload, *, flags=8):
    return struct.pack(">B3xI", flags, 77 << 8) + payload


def gtpu(payload, *, flags=0x30, message=255, optional=b""):
    return struct.pack(">BBHI", flags, message, len(optional) + len(payload), 9) + optional + payload
