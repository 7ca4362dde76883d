"""ICMP and ICMPv6 echo exchanges: one request and one reply a second."""

from collections.abc import Iterator

from flowshunt.packets.sample.addresses import Ends
from flowshunt.packets.sample.dice import Dice
from flowshunt.packets.sample.flow import MILLISECOND, SECOND, Emission, Flow, Sids
from flowshunt.packets.sample.stamp import EchoLane, Payload
from flowshunt.packets.sample.templates import ICMP, ICMP6

PING = bytes(range(0x10, 0x38))


class EchoFlow(Flow):
    """`budget // 2` echo requests and their replies; `marks` are those of the first request."""

    def __init__(
        self,
        label: str,
        ends: Ends,
        start: int,
        budget: int,
        dice: Dice,
        payload: Payload = PING,
        marks: Sids = (),
    ) -> None:
        super().__init__(label, ends, start, SECOND, budget, dice)
        self.protocol = ICMP if ends.version == 4 else ICMP6
        self.payload = payload
        self.marks = marks

    def run(self) -> Iterator[Emission]:
        """The flow's frames."""
        lanes = [EchoLane(self.ends, direction, self.dice.below(0x10000)) for direction in (0, 1)]
        identifier = self.dice.below(0x10000)
        for number in range(1, self.budget // 2 + 1):
            self.hold(self.start + (number - 1) * SECOND)
            for lane in lanes:
                frame = lane.echo(identifier, number, self.payload)
                self.frames += 1
                self.size += len(frame)
                yield self.now, frame, (0, self.marks) if self.marks and self.frames == 1 else None
                self.now += 12 * MILLISECOND
