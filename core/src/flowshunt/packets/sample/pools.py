"""Payload bytes to cut slices from: noise, as encrypted and compressed data look, and plain text."""

import random

import attrs

from flowshunt.packets.sample.dice import STREAM, Dice

NOISE_SIZE = 1 << 20
TEXT_SIZE = 1 << 18

WORDS = tuple(
    b"account after again amount before between billing branch capital center change client contract current customer "
    b"daily deliver design detail early effort engine every factory field final forward garden general green ground "
    b"harbor history house import income inside island journal keep label large ledger letter light little machine "
    b"market matter member middle minute month morning mountain nature never notice number office order other paper "
    b"people period place plan point power present price print private product public quality quarter question quick "
    b"region report result review river room sample season second section select service shipment signal simple small "
    b"spring station store street summer supply system table their thing through today total travel under update "
    b"valley value village volume water weather week winter within without world write yellow yesterday".split()
)


@attrs.frozen(eq=False)
class Pools:
    """Slices of these make up payloads.

    Attributes:
        noise: NOISE_SIZE bytes without structure.
        text: TEXT_SIZE bytes of lower-case words in lines of at most 72 characters, each ended by CR LF.
    """

    noise: memoryview
    text: memoryview

    @classmethod
    def from_seed(cls, seed: int) -> "Pools":
        """The pools of a sample's seed."""
        noise = random.Random(seed * STREAM + 1).getrandbits(NOISE_SIZE * 8).to_bytes(NOISE_SIZE, "little")
        return cls(memoryview(noise), memoryview(_text(Dice(seed, 2))))

    def noise_slice(self, dice: Dice, size: int) -> memoryview:
        """`size` bytes of noise from a random place; `size` is at most NOISE_SIZE."""
        start = dice.below(NOISE_SIZE - size + 1)
        return self.noise[start : start + size]

    def text_slice(self, dice: Dice, size: int) -> memoryview:
        """`size` bytes of text from a random place; `size` is at most TEXT_SIZE."""
        start = dice.below(TEXT_SIZE - size + 1)
        return self.text[start : start + size]


def _text(dice: Dice) -> bytes:
    lines: list[bytes] = []
    size = 0
    while size < TEXT_SIZE:
        line = dice.pick(WORDS).capitalize()
        while len(word := dice.pick(WORDS)) + len(line) < 69:
            line += b" " + word
        line += b".\r\n"
        lines.append(line)
        size += len(line)
    return b"".join(lines)[:TEXT_SIZE]
