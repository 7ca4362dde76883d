"""The width of registers, and what follows from it.

Nothing in the domain knows another number, so that the same source runs at a few bits too, where every value and every
abstract value can be tried: the tests load it so.
"""

from typing import Final

WIDTH: Final = 64
HALF: Final = WIDTH // 2
BYTE: Final = WIDTH // 8

MASK: Final = (1 << WIDTH) - 1
SIGN: Final = 1 << (WIDTH - 1)
SMIN: Final = -SIGN
SMAX: Final = SIGN - 1

LOW: Final = (1 << HALF) - 1
LOW_SIGN: Final = 1 << (HALF - 1)
LOW_SMIN: Final = -LOW_SIGN
LOW_SMAX: Final = LOW_SIGN - 1
