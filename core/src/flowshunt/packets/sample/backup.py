"""Dialogues with the trusted backup server: long uploads of archives, answered by short confirmations."""

import struct
from collections.abc import Iterator

from flowshunt.packets.sample.flow import Flow, Turn
from flowshunt.packets.sample.pools import Pools

BLOCK = 1 << 16
_HEADER = struct.Struct(">II")


def upload(flow: Flow, pools: Pools) -> Iterator[Turn]:
    """A storage session: a hello, then blocks of compressed data with a header each, confirmed every few blocks."""
    dice = flow.dice
    yield 0, _HEADER.pack(1, 96) + pools.noise_slice(dice, 96)
    yield 1, _HEADER.pack(2, 48) + pools.noise_slice(dice, 48)
    number = 0
    while (left := flow.left()) > 8:
        for _ in range(min(dice.between(2, 8), left // 64 + 1)):
            size = min(dice.between(BLOCK // 4, BLOCK), max(left * 900, 2000))
            number += 1
            yield 0, _HEADER.pack(number, size) + pools.noise_slice(dice, size)
        yield 1, _HEADER.pack(number, 0)
