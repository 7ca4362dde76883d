"""Frames for the test objects: the same for a seed."""

import random
import struct


def ethernet(protocol, payload, *, vlans=()):
    tags = b"".join(struct.pack(">HH", kind, tag) for kind, tag in vlans)
    return bytes.fromhex("020000000002") + bytes.fromhex("020000000001") + tags + struct.pack(">H", protocol) + payload


def checksum(data):
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def ipv4(source, target, protocol, payload, *, options=b"", fragment=0):
    words = (
        0x45 + len(options) // 4,
        0,
        20 + len(options) + len(payload),
        7,
        fragment,
        64,
        protocol,
        0,
        source,
        target,
    )
    header = struct.pack(">BBHHHBBHII", *words) + options
    return header[:10] + struct.pack(">H", checksum(header)) + header[12:] + payload


def ipv6(source, target, protocol, payload):
    return (
        struct.pack(">IHBB", 6 << 28, len(payload), protocol, 64)
        + source.to_bytes(16, "big")
        + target.to_bytes(16, "big")
        + payload
    )


def tcp(source, target, flags, payload=b"", options=b""):
    return (
        struct.pack(">HHIIBBHHH", source, target, 1, 2, (5 + len(options) // 4) << 4, flags, 512, 0, 0)
        + options
        + payload
    )


def udp(source, target, payload=b""):
    return struct.pack(">HHHH", source, target, 8 + len(payload), 0) + payload


SERVICE = 0xC0A80001
OPTIONS = bytes.fromhex("020405b4 0402080a0000000100000002 01030307")


def frames(seed, count):
    rng = random.Random(seed)
    made = []
    while len(made) < count:
        source = rng.choice((0x0A000002, 0x0A000003, 0x0A010000 + rng.randrange(6)))
        target = rng.choice((SERVICE, SERVICE, SERVICE, 0x08080808))
        ports = rng.randrange(1024, 1030), rng.choice((80, 80, 443, 53))
        flags = rng.choice((2, 16, 18, 16, 17, 4))
        payload = bytes(rng.randrange(60))
        kind = rng.randrange(12)
        if kind < 5:
            segment = tcp(*ports, flags, payload, OPTIONS if rng.random() < 0.5 else b"")
            frame = ethernet(0x0800, ipv4(source, target, 6, segment))
        elif kind < 8:
            frame = ethernet(0x0800, ipv4(source, target, 17, udp(*ports, payload)))
        elif kind == 8:
            frame = ethernet(0x86DD, ipv6(source, target, 6, tcp(*ports, flags, payload)))
        elif kind == 9:
            frame = ethernet(0x0800, ipv4(source, target, 17, udp(*ports, payload)), vlans=((0x88A8, 5), (0x8100, 7)))
        elif kind == 10:
            frame = ethernet(
                0x0800,
                ipv4(source, target, 1, payload, options=b"\x07\x03\x04\x01", fragment=rng.choice((0, 0x2000, 5))),
            )
        else:
            frame = ethernet(0x0806, bytes(28))
        if rng.random() < 0.15:
            frame = frame[: rng.randrange(14, len(frame))]
        made.append(frame)
    return made
