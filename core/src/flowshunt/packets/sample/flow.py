"""What all flows of a sample share: their ends, their pace, and what was sent of them so far."""

from collections.abc import Callable, Iterator
from typing import Any

from flowshunt.packets.sample.addresses import BACKUP_SERVER, Ends
from flowshunt.packets.sample.dice import Dice
from flowshunt.packets.sample.templates import TCP

SECOND = 1_000_000_000
MILLISECOND = 1_000_000
MICROSECOND = 1_000

CLEAR_PORTS = frozenset((80, 20, 21, 23, 25, 53, 67, 68))
"""TCP flows with one of these ports at either end stay under inspection; all others may be bypassed."""

Sids = tuple[int, ...]
"""Signature ids."""

Marks = tuple[int, Sids]
"""What a frame completes the match of: the frame's direction, and the signatures."""

Emission = tuple[int, bytes, Marks | None]
"""A frame on its way: when (ns since 1970-01-01 UTC), its bytes, and its marks, which nearly all frames lack."""

Turn = tuple[Any, ...]
"""One end's contribution to a dialogue: direction (0 from the initiator), payload, and for planted attacks a shape."""

Dialogue = Callable[["Flow"], Iterator[Turn]]


class Flow:
    """A flow at work. `run` is stepped through by the schedule, one frame at a time, in order of time.

    Attributes:
        label: what kind of traffic it is.
        start, lifetime: in ns; the flow paces itself so that `budget` frames take about `lifetime`.
        budget: how many frames it should come to. A dialogue reads `left` and ends itself in time.
        now: the time of the latest frame, ns.
        frames, size: frames sent so far, and their bytes.
        later, resent, fragments: how many of these frames arrived out of order, again, or in pieces.
    """

    protocol = 0

    def __init__(self, label: str, ends: Ends, start: int, lifetime: int, budget: int, dice: Dice) -> None:
        self.label = label
        self.ends = ends
        self.start = start
        self.lifetime = lifetime
        self.budget = budget
        self.dice = dice
        self.now = start
        self.frames = 0
        self.size = 0
        self.later = 0
        self.resent = 0
        self.fragments = 0

    def run(self) -> Iterator[Emission]:
        """The flow's frames in order of time."""
        raise NotImplementedError

    @property
    def bypassable(self) -> bool:
        """Whether the sample's bypass rules take this flow off inspection."""
        ends = self.ends
        if BACKUP_SERVER.address in (ends.client.address, ends.server.address):
            return True
        return self.protocol == TCP and not CLEAR_PORTS & {ends.client_port, ends.server_port}

    def left(self) -> int:
        """Frames that the dialogue may still cause."""
        return self.budget - self.frames

    def hold(self, until: int) -> None:
        """Send nothing before this time (ns)."""
        self.now = max(self.now, until)

    def pace(self) -> None:
        """Wait until it is this flow's turn again, if it has run ahead of its lifetime's even pace."""
        ahead = self.start + self.lifetime * self.frames // self.budget - self.now
        if ahead > 0:
            self.now += int(ahead * (0.6 + 0.6 * self.dice.random()))
