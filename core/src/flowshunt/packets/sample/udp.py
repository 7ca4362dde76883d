"""UDP flows: one datagram a turn, in IP fragments where it is longer than the link allows."""

from collections.abc import Iterator

from flowshunt.packets.sample.addresses import Ends
from flowshunt.packets.sample.dice import Dice
from flowshunt.packets.sample.flow import MILLISECOND, Dialogue, Emission, Flow, Marks
from flowshunt.packets.sample.fragments import fragment
from flowshunt.packets.sample.stamp import UdpLane
from flowshunt.packets.sample.templates import UDP

MTU = 1500


class UdpFlow(Flow):
    """An exchange of datagrams. A turn is (direction, payload) or (direction, payload, signature ids)."""

    protocol = UDP

    def __init__(
        self,
        label: str,
        ends: Ends,
        start: int,
        lifetime: int,
        budget: int,
        dice: Dice,
        dialogue: Dialogue,
        delay: tuple[int, int] = (10 * MILLISECOND, MILLISECOND),
    ) -> None:
        super().__init__(label, ends, start, lifetime, budget, dice)
        self.dialogue = dialogue
        self.delay = delay
        self._lanes = [UdpLane(ends, direction, dice.below(0x10000)) for direction in (0, 1)]

    def run(self) -> Iterator[Emission]:
        """The flow's frames."""
        last = 0
        for direction, payload, *sids in self.dialogue(self):
            if direction == 1 and last == 0:
                self.now += self.delay[0] + self.dice.below(MILLISECOND)
            elif self.frames:
                self.now += 20_000
                self.pace()
            marks = (direction, sids[0]) if sids else None
            yield from self._datagram(direction, self._lanes[direction].datagram(payload), marks)
            last = direction

    def _datagram(self, direction: int, frame: bytes, marks: Marks | None) -> Iterator[Emission]:
        lane = self._lanes[direction]
        if len(frame) - lane.l3 <= MTU:
            self.frames += 1
            self.size += len(frame)
            yield self.now, frame, marks
            return
        pieces = fragment(frame, lane.l3, MTU, lane.ident)
        self.fragments += len(pieces)
        for number, piece in enumerate(pieces):
            self.frames += 1
            self.size += len(piece)
            yield self.now + number, piece, marks if number == len(pieces) - 1 else None
