"""The parser of one flow's DNS messages: each message is a transaction of its own, as in Suricata."""

import struct

from flowshunt_ids.app.contract import BOTH, TO_CLIENT, TO_SERVER, Context, Transaction
from flowshunt_ids.app.dns.message import MalformedError, Message, parse, plausible

DONE = 1
_INVALID_OPCODE = 7
_UDP = 17
_MOST_OPEN = 1 << 10


class DnsTransaction(Transaction):
    """A request or a response. `message` is of `direction`."""

    __slots__ = ("direction", "message")

    def __init__(self, number: int, direction: int, message: Message) -> None:
        super().__init__(number)
        self.direction = direction
        self.message = message
        self.progress = [DONE, DONE]
        self.changed = [direction == TO_SERVER, direction == TO_CLIENT]


class DnsParser:
    """See `flowshunt_ids.app.contract.Parser`."""

    def __init__(self, context: Context) -> None:
        self.transactions: list[DnsTransaction] = []
        self.bypass = False
        self.becomes: str | None = None
        self._udp = context.transport == _UDP
        self._pending = (bytearray(), bytearray())
        self._lost = [False, False]
        self._failed = [False, False]
        self._count = 0
        self._last: DnsTransaction | None = None

    def data(self, direction: int, data: bytes) -> None:
        """A datagram, or the next bytes of a stream of messages with their lengths."""
        if self._udp:
            self._message(direction, bytes(data))
            return
        pending = self._pending[direction]
        if self._failed[direction]:
            return
        if self._lost[direction] and not pending:
            if not recognized_stream(bytes(data)):
                return
            self._lost[direction] = False
        pending += data
        at = 0
        while len(pending) - at >= 2:
            (size,) = struct.unpack_from(">H", pending, at)
            if len(pending) - at - 2 < size:
                break
            if size and not self._message(direction, bytes(pending[at + 2 : at + 2 + size])):
                self._failed[direction] = True
                pending.clear()
                return
            at += 2 + size
        del pending[:at]

    def gap(self, direction: int, size: int) -> None:
        """Begin again at what looks like a message."""
        self._pending[direction].clear()
        self._lost[direction] = True

    def end(self, direction: int) -> None:
        """Nothing is left to do."""

    def _message(self, direction: int, data: bytes) -> bool:
        """Take a message; False where the rest of a stream makes no sense."""
        if not plausible(data, len(data)):
            return self._udp
        try:
            message = parse(data)
        except MalformedError:
            self._odd(direction, "malformed_data")
            return False
        if direction == TO_SERVER and message.response:
            self._odd(direction, "not_request")
            return False
        if direction == TO_CLIENT and not message.response:
            self._odd(direction, "not_response")
        if len(self.transactions) >= _MOST_OPEN:
            del self.transactions[0]
        transaction = DnsTransaction(self._count, direction, message)
        self._count += 1
        self._last = transaction
        self.transactions.append(transaction)
        if message.flags & 0x40:
            transaction.event(direction, "z_flag_set")
        if message.opcode >= _INVALID_OPCODE:
            transaction.event(direction, "invalid_opcode")
        for event in message.events:
            transaction.event(direction, event)
        return True

    def _odd(self, direction: int, event: str) -> None:
        """An event of a message that makes no transaction: it belongs to the one before."""
        if self._last is not None:
            for each in BOTH:
                if each == direction:
                    self._last.event(each, event)


def recognized_datagram(data: bytes) -> bool | None:
    """Whether a datagram looks like DNS: its header alone decides, whatever stands behind it."""
    return plausible(data, len(data))


def recognized_stream(data: bytes) -> bool | None:
    """Whether a stream's first bytes look like a length and a DNS message; None: more are needed."""
    if len(data) < 14:
        return None
    (size,) = struct.unpack_from(">H", data)
    return plausible(data[2:], size)
