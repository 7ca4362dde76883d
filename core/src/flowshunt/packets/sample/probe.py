"""Probes: TCP segments that open no connection, as scanners and clients of dead servers send them."""

from collections.abc import Iterator, Sequence

from flowshunt.packets.sample.addresses import Ends
from flowshunt.packets.sample.dice import Dice
from flowshunt.packets.sample.flow import MILLISECOND, SECOND, Emission, Flow, Marks, Sids
from flowshunt.packets.sample.stamp import TcpLane
from flowshunt.packets.sample.tcp import ACK, RST, SYN
from flowshunt.packets.sample.templates import TCP

RETRIES = (0, SECOND, 3 * SECOND)
"""When a first segment is sent, and sent again, ns: the time-out doubles (RFC 6298)."""


class ProbeFlow(Flow):
    """Segments with chosen flags, sent at `times` (ns after the start), answered by a reset or by nothing."""

    protocol = TCP

    def __init__(
        self,
        label: str,
        ends: Ends,
        start: int,
        dice: Dice,
        flags: int = SYN,
        times: Sequence[int] = (0,),
        refused: bool = False,
        marks: Sids = (),
    ) -> None:
        super().__init__(label, ends, start, SECOND, len(times), dice)
        self.flags = flags
        self.times = times
        self.refused = refused
        self.marks = marks

    def run(self) -> Iterator[Emission]:
        """The flow's frames."""
        dice = self.dice
        options = self.flags == SYN
        lanes = [TcpLane(self.ends, side, dice.below(0x10000), options, syn=options) for side in (0, 1)]
        sequence = dice.below(1 << 32)
        for offset in self.times:
            self.hold(self.start + offset)
            frame = lanes[0].segment(self.flags, sequence, 0, 1024, self.now // MILLISECOND & 0xFFFFFFFF, 0, b"")
            yield self._sent(frame, (0, self.marks) if self.marks else None)
            if self.refused:
                self.now += 2 * MILLISECOND
                yield self._sent(lanes[1].segment(RST | ACK, 0, sequence + 1 & 0xFFFFFFFF, 0, 0, 0, b""), None)

    def _sent(self, frame: bytes, marks: Marks | None) -> Emission:
        self.frames += 1
        self.size += len(frame)
        return self.now, frame, marks
