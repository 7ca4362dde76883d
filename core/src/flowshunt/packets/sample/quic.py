"""QUIC-like dialogues over UDP: padded first datagrams, then short headers, large one way and small the other."""

import struct
from collections.abc import Iterator

from flowshunt.packets.sample.flow import Flow, Turn
from flowshunt.packets.sample.pools import Pools

FIRST_DATAGRAM = 1252
"""Bytes of a padded Initial; at least 1200 (RFC 9000, 14.1)."""
DATAGRAM = 1352
VERSION = 1


def _long(kind: int, flow: Flow, pools: Pools, size: int) -> bytes:
    """A packet with a long header (RFC 9000, 17.2): kind 0 Initial, 2 Handshake."""
    head = struct.pack(">BIB", 0xC0 | kind << 4, VERSION, 8) + pools.noise_slice(flow.dice, 8) + b"\x00"
    if kind == 0:
        head += b"\x00"
    head += struct.pack(">H", 0x4000 | (size - len(head) - 2))
    return head + pools.noise_slice(flow.dice, size - len(head))


def stream(flow: Flow, pools: Pools) -> Iterator[Turn]:
    """A connection: its handshake, then answers of many full datagrams to short requests."""
    dice = flow.dice
    yield 0, _long(0, flow, pools, FIRST_DATAGRAM)
    yield 1, _long(0, flow, pools, FIRST_DATAGRAM)
    yield 1, _long(2, flow, pools, dice.between(900, FIRST_DATAGRAM))
    yield 0, _long(2, flow, pools, dice.between(70, 120))
    while (left := flow.left()) > 2:
        yield 0, b"\x43" + pools.noise_slice(dice, dice.between(60, 400))
        for number in range(min(dice.between(6, 90), left - 2)):
            yield 1, b"\x47" + pools.noise_slice(dice, DATAGRAM - 1)
            if number % 12 == 11:
                yield 0, b"\x4b" + pools.noise_slice(dice, dice.between(32, 48))
        yield 1, b"\x47" + pools.noise_slice(dice, dice.between(60, DATAGRAM))


def tunnel(flow: Flow, pools: Pools) -> Iterator[Turn]:
    """A WireGuard-like tunnel that carries a backup: handshake, then transport messages, mostly full and one way."""
    dice = flow.dice
    peers = struct.pack("<II", dice.below(1 << 32), dice.below(1 << 32))
    counters = [0, 0]

    def message(direction: int, size: int) -> Turn:
        counters[direction] += 1
        head = b"\x04\0\0\0" + peers[direction * 4 : direction * 4 + 4] + struct.pack("<Q", counters[direction])
        return direction, head + pools.noise_slice(dice, size)

    yield 0, b"\x01\0\0\0" + peers[:4] + pools.noise_slice(dice, 140)
    yield 1, b"\x02\0\0\0" + peers[4:] + pools.noise_slice(dice, 84)
    while flow.left() > 1:
        yield message(0, 1408)
        yield message(0, 1408)
        if dice.chance(0.9):
            yield message(1, 80)
