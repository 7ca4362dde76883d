"""The schedule: flows start one after another, and the frames of all open flows leave in order of time."""

import heapq
from collections.abc import Callable, Iterator

from flowshunt.packets.sample.attacks import ATTACKS, plant
from flowshunt.packets.sample.dice import Dice
from flowshunt.packets.sample.flow import SECOND, Emission, Flow
from flowshunt.packets.sample.mix import Mix
from flowshunt.packets.sample.pools import Pools

ROUND = 2000
"""Flows to one round of attacks. Smaller samples have one round, or as much of it as a quarter of their flows takes."""
MOST_ROUNDS = 100

OPEN_LIMIT = 1 << 14
"""Flows at work at a time; where there are as many, the next one starts when one has ended."""


class Schedule:
    """All flows of a sample. Only those at work are in memory.

    Attributes:
        opened: flows opened so far.
        most_open: the most flows that were at work at one time.
    """

    def __init__(self, flows: int, seed: int, rate: float, begin: int, pools: Pools) -> None:
        """`rate`: flows a second that start; `begin`: the time of the first, ns since 1970-01-01 UTC."""
        self.flows = flows
        self.seed = seed
        self.begin = begin
        self.pools = pools
        self.attacks = min(max(flows // ROUND, 1) * len(ATTACKS), MOST_ROUNDS * len(ATTACKS), flows // 4)
        self.span = int(flows / rate * SECOND)
        self.mix = Mix(flows - self.attacks, seed, self.span, pools)
        self.opened = 0
        self.most_open = 0
        self._dice = Dice(seed, 5)

    def run(self, ended: Callable[[Flow], None]) -> Iterator[tuple[Emission, Flow]]:
        """Frames in order of time, each with its flow. `ended` is called with every flow that sent its last frame."""
        heap: list[tuple[int, int, Emission, Iterator[Emission], Flow]] = []
        arrivals = self._arrivals()
        arriving = next(arrivals, None)
        number = clock = 0
        while heap or arriving:
            while arriving and len(heap) < OPEN_LIMIT and (not heap or arriving.start <= heap[0][0]):
                if arriving.start < clock:  # it had to wait for a place
                    arriving.start = arriving.now = clock
                steps = arriving.run()
                emission = next(steps, None)
                if emission is not None:
                    heapq.heappush(heap, (emission[0], number, emission, steps, arriving))
                number += 1
                arriving = next(arrivals, None)
            self.most_open = max(self.most_open, len(heap))
            if not heap:
                continue
            clock, place, emission, steps, flow = heap[0]
            yield emission, flow
            following = next(steps, None)
            if following is None:
                heapq.heappop(heap)
                self.mix.settle(flow)
                ended(flow)
            else:
                heapq.heapreplace(heap, (following[0], place, following, steps, flow))

    def _arrivals(self) -> Iterator[Flow]:
        """The flows in the order in which they start; flows that one opening brings may start later than the next."""
        planted = 0
        waiting: list[tuple[int, int, Flow]] = []
        while self.opened < self.flows:
            start = self.begin + (self.span * self.opened + self._dice.below(self.span)) // self.flows
            while waiting and waiting[0][0] <= start:
                yield heapq.heappop(waiting)[2]
            room = self.flows - self.opened - (self.attacks - planted)
            if planted < self.attacks and (room == 0 or (planted + 0.5) * self.flows <= self.opened * self.attacks):
                opened = [plant(planted, self.opened, start, self.seed, self.pools)]
                planted += 1
            else:
                opened = self.mix.open(self.opened, start, room)
            for flow in opened:
                heapq.heappush(waiting, (flow.start, self.opened, flow))
                self.opened += 1
        while waiting:
            yield heapq.heappop(waiting)[2]
