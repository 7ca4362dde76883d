"""TCP flows: handshake, segments, delayed acknowledgements, loss, reordering, and the ways a connection ends."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import attrs

from flowshunt.packets.sample.addresses import Ends
from flowshunt.packets.sample.dice import Dice
from flowshunt.packets.sample.flow import MICROSECOND, MILLISECOND, Dialogue, Emission, Flow, Marks, Sids
from flowshunt.packets.sample.fragments import fragment
from flowshunt.packets.sample.stamp import Payload, TcpLane
from flowshunt.packets.sample.templates import MSS4, MSS6, TCP, TIMESTAMPS

FIN, SYN, RST, PSH, ACK = 1, 2, 4, 8, 16

END_FIN = 0
END_RST = 1
END_OPEN = 2
"""How a connection ends: in order, by a reset, or not within the capture."""

_MASK = 0xFFFFFFFF
_FASTEST_RETRANSMISSION = 200 * MILLISECOND


@attrs.frozen
class Shape:
    """How a planted attack's turn is cut and sent.

    Attributes:
        cuts: where in the payload a new segment starts (the start itself left out).
        order: the order in which the segments are sent; empty: in sequence.
        again: the numbers of segments that are sent a second time.
        marks: signature ids that match once the whole turn has arrived.
        mtu: above 0, segments are sent as IP fragments of at most so many bytes.
    """

    cuts: tuple[int, ...] = ()
    order: tuple[int, ...] = ()
    again: tuple[int, ...] = ()
    marks: Sids = ()
    mtu: int = 0


@attrs.frozen
class Behaviour:
    """How the two stacks and the path between them behave. Index 0 is the way to the server, 1 the way to the client.

    Attributes:
        delay: from the capture to that end and back, ns.
        gap: between segments sent back to back, ns.
        burst: segments sent before the sender waits for acknowledgements.
        stretch: segments that one acknowledgement covers.
        swap, loss: probability, per data segment, of arriving late or being sent again.
        end: END_FIN, END_RST or END_OPEN.
        mtu: above 0, the path cuts longer IPv4 packets into fragments now and then.
    """

    delay: tuple[int, int] = (10 * MILLISECOND, MILLISECOND)
    gap: int = 12 * MICROSECOND
    burst: int = 8
    stretch: int = 2
    timestamps: bool = True
    swap: float = 0.0
    loss: float = 0.0
    end: int = END_FIN
    mtu: int = 0


class TcpFlow(Flow):
    """A TCP connection that carries a dialogue."""

    protocol = TCP

    def __init__(
        self,
        label: str,
        ends: Ends,
        start: int,
        lifetime: int,
        budget: int,
        dice: Dice,
        dialogue: Dialogue,
        behaviour: Behaviour | None = None,
    ) -> None:
        super().__init__(label, ends, start, lifetime, budget, dice)
        self.dialogue = dialogue
        self.behaviour = behaviour or Behaviour()
        self.mss = (MSS4 if ends.version == 4 else MSS6) - (TIMESTAMPS if self.behaviour.timestamps else 0)
        self._idents = [dice.below(0x10000), dice.below(0x10000)]
        self._lanes = [self._lane(0, syn=False), self._lane(1, syn=False)]
        self._next = [dice.below(1 << 32), dice.below(1 << 32)]  # next sequence number to send
        self._expected = [0, 0]  # what each end acknowledges: the next number it waits for
        self._clock = [dice.below(1 << 31), dice.below(1 << 31)]  # time stamp clocks, 1 ms a tick
        self._window = [dice.between(400, 4000), dice.between(200, 2000)]
        self._echo = [0, 0]
        self._waiting = -1  # the direction of data that its receiver still has to acknowledge

    def run(self) -> Iterator[Emission]:
        """The connection's frames."""
        yield from self._open()
        last = 0
        for turn in self.dialogue(self):
            direction = turn[0]
            answers = direction == 1 and last == 0
            if self._waiting >= 0:
                self.now += self.behaviour.delay[self._waiting]
                if not answers or self._waiting == direction or self.dice.chance(0.5):
                    yield self._acknowledge(1 - self._waiting)
                self._waiting = -1
            if answers:
                self.now += self.dice.between(50 * MICROSECOND, 8 * MILLISECOND)
            else:
                self.pace()
            yield from self._say(*turn)
            last = direction
        if self._waiting >= 0:
            self.now += self.behaviour.delay[self._waiting]
            yield self._acknowledge(1 - self._waiting)
        yield from self._close()

    def _lane(self, direction: int, syn: bool) -> TcpLane:
        return TcpLane(self.ends, direction, self._idents[direction], self.behaviour.timestamps, syn)

    def _open(self) -> Iterator[Emission]:
        lanes = self._lanes
        self._lanes = [self._lane(0, syn=True), self._lane(1, syn=True)]
        window = self._window
        self._window = [64240, 65160]  # never scaled in a first segment
        yield self._send(0, SYN, self._next[0], b"")
        self.now += self.behaviour.delay[0]
        self._advance(0, 1)
        yield self._send(1, SYN | ACK, self._next[1], b"")
        self.now += self.behaviour.delay[1]
        self._advance(1, 1)
        self._lanes = lanes
        self._window = window
        yield self._acknowledge(0)
        self.now += self.behaviour.gap

    def _close(self) -> Iterator[Emission]:
        end = self.behaviour.end
        if end == END_OPEN:
            return
        first = 0 if self.dice.chance(0.7) else 1
        self.now += self.dice.between(MILLISECOND, 20 * MILLISECOND)
        if end == END_RST:
            yield self._send(first, RST | ACK, self._next[first], b"")
            return
        yield self._send(first, FIN | ACK, self._next[first], b"")
        self._advance(first, 1)
        self.now += self.behaviour.delay[first]
        if self.dice.chance(0.5):
            yield self._acknowledge(1 - first)
            self.now += self.dice.between(20 * MICROSECOND, 5 * MILLISECOND)
        yield self._send(1 - first, FIN | ACK, self._next[1 - first], b"")
        self._advance(1 - first, 1)
        self.now += self.behaviour.delay[1 - first]
        yield self._acknowledge(first)

    def _advance(self, direction: int, count: int) -> None:
        """`count` more sequence numbers were sent, and have arrived in order."""
        self._next[direction] = self._expected[1 - direction] = self._next[direction] + count & _MASK

    def _send(
        self, direction: int, flags: int, sequence: int, payload: Payload, marks: Marks | None = None
    ) -> Emission:
        value = self._clock[direction] + self.now // MILLISECOND & _MASK
        acknowledged = self._expected[direction] if flags & ACK else 0
        frame = self._lanes[direction].segment(
            flags, sequence, acknowledged, self._window[direction], value, self._echo[direction], payload
        )
        self._echo[1 - direction] = value
        self.frames += 1
        self.size += len(frame)
        return self.now, frame, marks

    def _acknowledge(self, direction: int) -> Emission:
        return self._send(direction, ACK, self._next[direction], b"")

    def _say(self, direction: int, payload: Payload, shape: Shape | None = None) -> Iterator[Emission]:
        """Send a turn's payload, burst by burst, with the receiver's acknowledgements in between."""
        if shape is not None:
            yield from self._planted(direction, memoryview(payload), shape)
            return
        size = len(payload)
        lost = self.dice.chance(self.behaviour.loss)
        if size <= self.mss and not lost and not self.behaviour.mtu:
            yield self._send(direction, PSH | ACK, self._next[direction], payload)
            self._advance(direction, size)
            self._waiting = direction
            return
        view = memoryview(payload)
        span = self.mss * self.behaviour.burst
        for start in range(0, size, span):
            if start:
                self.pace()
            parts = [view[at : at + self.mss] for at in range(start, min(start + span, size), self.mss)]
            if len(parts) > 1:
                lost = self.dice.chance(self.behaviour.loss * len(parts))
            yield from self._burst(direction, parts, self.dice.below(len(parts)) if lost else -1, start + span >= size)

    def _burst(self, direction: int, parts: Sequence[memoryview], lost: int, last: bool) -> Iterator[Emission]:
        behaviour = self.behaviour
        dice = self.dice
        count = len(parts)
        order = list(range(count))
        if count > 1 and dice.chance(behaviour.swap * count):
            late = dice.below(count - 1)
            order[late], order[late + 1] = late + 1, late
            self.later += 1
        base = self._next[direction]
        first = self.now
        for part in order:
            flags = PSH | ACK if last and part == count - 1 else ACK
            yield from self._segment(direction, flags, base + part * self.mss & _MASK, parts[part])
            self.now += behaviour.gap
        self._next[direction] = base + (count - 1) * self.mss + len(parts[-1]) & _MASK
        self.now = max(self.now, first + behaviour.delay[direction])
        yield from self._acknowledgements(direction, base, order, lost)
        if lost >= 0:
            if count - lost <= 3:  # too few duplicates for a fast retransmission (RFC 5681)
                self.now += _FASTEST_RETRANSMISSION
            flags = PSH | ACK if last and lost == count - 1 else ACK
            yield from self._segment(direction, flags, base + lost * self.mss & _MASK, parts[lost])
            self.resent += 1
            self._waiting = direction
        self._expected[1 - direction] = self._next[direction]
        if not last and self._waiting >= 0:
            self.now += behaviour.delay[direction]
            yield self._acknowledge(1 - direction)
            self._waiting = -1

    def _acknowledgements(self, direction: int, base: int, order: list[int], lost: int) -> Iterator[Emission]:
        """What the receiver sends for segments that arrive in this order, without the one that is lost."""
        behaviour = self.behaviour
        receiver = 1 - direction
        arrived: set[int] = set()
        complete = acknowledged = 0
        for part in order:
            if part == lost:
                continue
            arrived.add(part)
            in_order = part == complete
            while complete in arrived:
                complete += 1
            if not in_order or complete - acknowledged >= behaviour.stretch or complete > part + 1:
                # Out of order or filling a gap: at once (RFC 5681); otherwise every `stretch` segments.
                whole = self._next[direction] if complete == len(order) else base + complete * self.mss & _MASK
                self._expected[receiver] = whole
                yield self._acknowledge(receiver)
                self.now += behaviour.gap * 2
                acknowledged = complete
        self._waiting = direction if acknowledged < len(order) else -1

    def _segment(self, direction: int, flags: int, sequence: int, payload: Payload) -> Iterator[Emission]:
        emission = self._send(direction, flags, sequence, payload)
        if self.behaviour.mtu and self.ends.version == 4 and self.dice.chance(0.2):
            yield from self._in_fragments(direction, emission, self.behaviour.mtu)
        else:
            yield emission

    def _in_fragments(self, direction: int, emission: Emission, mtu: int) -> Iterator[Emission]:
        now, frame, marks = emission
        lane = self._lanes[direction]
        pieces = fragment(frame, lane.l3, mtu, lane.ident)
        if len(pieces) > 1:
            self.fragments += len(pieces)
            self.frames += len(pieces) - 1
            self.size += sum(map(len, pieces)) - len(frame)
        for number, piece in enumerate(pieces):
            yield now + number, piece, marks if number == len(pieces) - 1 else None

    def _planted(self, direction: int, view: memoryview, shape: Shape) -> Iterator[Emission]:
        """Send a planted attack's turn as its shape says; it is acknowledged once, when it is complete."""
        bounds = [0, *shape.cuts, len(view)]
        parts = [view[start:stop] for start, stop in pairwise(bounds)]
        order = shape.order or tuple(range(len(parts)))
        base = self._next[direction]
        for place, part in enumerate((*order, *shape.again)):
            marks = (direction, shape.marks) if shape.marks and place == len(order) - 1 else None
            emission = self._send(direction, PSH | ACK, base + bounds[part] & _MASK, parts[part], marks)
            if shape.mtu:
                yield from self._in_fragments(direction, emission, shape.mtu)
            else:
                yield emission
            self.now += self.behaviour.gap
        self.later += sum(a > b for a, b in pairwise(order))
        self.resent += len(shape.again)
        self._advance(direction, len(view))
        self._waiting = direction
