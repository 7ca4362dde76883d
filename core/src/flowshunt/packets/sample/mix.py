"""The mix: which kind of flow opens next, and how many frames it gets, so that the shares come out as planned."""

from collections.abc import Sequence

from flowshunt.packets.sample.dice import Dice, mean
from flowshunt.packets.sample.flow import SECOND, Flow
from flowshunt.packets.sample.kinds import KINDS, Kind, Opening
from flowshunt.packets.sample.pools import Pools

FRAMES_A_FLOW = 85
"""Frames in all, divided by flows."""

LONGEST = 45 * SECOND
SMALLEST = {"dns": 2, "icmp": 2, "unanswered": 1, "quic": 6, "ftp": 44, "telnet": 52}
SMALLEST_TCP = 14

SIZES = ((0.0, 0.12), (0.5, 0.32), (0.8, 0.8), (0.9, 1.7), (0.97, 5.0), (0.99, 12.0), (1.0, 36.0))
"""Frames of a flow relative to its kind, before scaling to mean 1: many small flows, few large ones that carry most."""
_SIZES_MEAN = mean(SIZES)


class Mix:
    """Draws background flows without replacement from a stock that holds, for each kind, its share of flows and frames.

    What a kind still has to send is spread over the flows that it still has to open, each getting a heavy-tailed
    multiple of the even part. Flows that sent more or less than planned give the difference back (`settle`), so that
    the shares come out right whatever was drawn.
    """

    def __init__(self, flows: int, seed: int, span: int, pools: Pools) -> None:
        """`flows`: how many background flows there will be; `span`: the time in which they start, ns."""
        self.seed = seed
        self.pools = pools
        self.horizon = min(LONGEST, max(2 * SECOND, span * 4 // 5))
        self._dice = Dice(seed, 4)
        self._openings = _shared_out(flows, KINDS)
        total = sum(kind.frames for kind in KINDS)
        self._frames = {kind.name: kind.frames / total * FRAMES_A_FLOW * flows for kind in KINDS}

    def open(self, number: int, start: int, room: int) -> list[Flow]:
        """The next flow, and flows that come with it; `number` is the first one's, `room` how many flows may open."""
        kind = self._next_kind(room)
        left = self._openings[kind.name]
        self._openings[kind.name] -= 1
        dice = Dice(self.seed, (number << 8) + 255)
        budget = self._size(kind, left, dice)
        self._frames[kind.name] -= budget
        low, high = kind.seconds
        lifetime = int((low + (high - low) * dice.random()) * SECOND)
        lifetime = max(min(lifetime, self.horizon), budget * SECOND // 2000)
        return kind.open(Opening(number, start, lifetime, budget, dice, self.pools))

    def settle(self, flow: Flow) -> None:
        """Take back what an ended flow did not spend of its budget, or charge what it overspent."""
        if flow.label in self._frames:
            self._frames[flow.label] += flow.budget - flow.frames

    def _next_kind(self, room: int) -> Kind:
        drawn = self._dice.below(sum(self._openings[kind.name] * kind.count for kind in KINDS))
        for kind in KINDS:
            drawn -= self._openings[kind.name] * kind.count
            if drawn < 0 and kind.count <= room:
                return kind
        return max((kind for kind in KINDS if kind.count <= room), key=lambda kind: self._openings[kind.name])

    def _size(self, kind: Kind, left: int, dice: Dice) -> int:
        """Frames for one of `left` flows that the kind still has to open; the last ones are drawn closer together."""
        remaining = self._frames[kind.name]
        relative = 1 + (dice.quantile(SIZES) / _SIZES_MEAN - 1) * min(1.0, (left - 1) / 10)
        largest = min(kind.largest, remaining if left == 1 else max(remaining / 3, remaining / left))
        return max(
            int(min(remaining / left * relative, largest) + dice.random()), SMALLEST.get(kind.name, SMALLEST_TCP)
        )


def _shared_out(flows: int, kinds: Sequence[Kind]) -> dict[str, int]:
    """How often each kind is opened, so that `flows` flows come out exactly; the largest remainders are rounded up."""
    total = sum(kind.flows for kind in kinds)
    exact = {kind.name: kind.flows / total * flows / kind.count for kind in kinds}
    counts = {name: int(value) for name, value in exact.items()}
    spare = flows - sum(counts[kind.name] * kind.count for kind in kinds)
    order = sorted((kind for kind in kinds if kind.count == 1), key=lambda k: counts[k.name] - exact[k.name])
    for place in range(spare):
        counts[order[place % len(order)].name] += 1
    return counts
