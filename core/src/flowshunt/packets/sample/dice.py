"""Random draws that give the same values on every machine and Python version.

Only `random.Random.random` is used: its sequence is documented not to change, while those of `choice`, `shuffle` and
others may. No draw goes through the C library's `exp` or `log`, whose last bit differs between systems.
"""

import random
from collections.abc import Sequence
from itertools import pairwise
from typing import TypeVar

Item = TypeVar("Item")

STREAM = 0x9E3779B97F4A7C15
"""Keeps the seeds of different draws apart: an odd constant near 2**64 divided by the golden ratio."""

Quantiles = Sequence[tuple[float, float]]
"""A distribution as points (probability, value) of its inverse, from probability 0 to 1, joined by straight lines."""


class Dice:
    """One stream of draws. Equal seed and stream give equal draws."""

    __slots__ = ("random",)

    def __init__(self, seed: int, stream: int = 0) -> None:
        self.random = random.Random(seed * STREAM + stream).random

    def below(self, limit: int) -> int:
        """A whole number in [0, limit)."""
        return int(self.random() * limit)

    def between(self, low: int, high: int) -> int:
        """A whole number in [low, high]."""
        return low + int(self.random() * (high - low + 1))

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return self.random() < probability

    def pick(self, items: Sequence[Item]) -> Item:
        """One of the items, all equally likely."""
        return items[int(self.random() * len(items))]

    def quantile(self, table: Quantiles) -> float:
        """A value of the distribution that `table` gives."""
        drawn = self.random()
        low, low_value = table[0]
        for high, high_value in table[1:]:
            if drawn < high:
                return low_value + (high_value - low_value) * (drawn - low) / (high - low)
            low, low_value = high, high_value
        return low_value


def mean(table: Quantiles) -> float:
    """The mean of the distribution that `table` gives."""
    steps = pairwise(table)
    return sum((high - low) * (low_value + high_value) / 2 for (low, low_value), (high, high_value) in steps)
