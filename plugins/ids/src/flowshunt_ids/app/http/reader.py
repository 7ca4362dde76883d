"""What both directions of a connection have in common: lines, blocks of header fields, bodies, chunks."""

import re
from collections import deque
from collections.abc import Callable

import attrs

from flowshunt_ids.app.contract import TO_CLIENT, TO_SERVER, Context
from flowshunt_ids.app.files import FileLimits
from flowshunt_ids.app.http.body import Body, BodyLimits
from flowshunt_ids.app.http.events import FIELD_EVENTS
from flowshunt_ids.app.http.headers import Fields, chunk_length
from flowshunt_ids.app.http.transaction import TRAILER, HttpTransaction
from flowshunt_ids.app.http.uploads import BodyFiles
from flowshunt_ids.app.http.uri import MINIMAL, Decoding

MAX_LINE = 18000
"""The longest line in bytes (`field-limit-hard` of libhtp); then a direction is given up."""
MAX_BLOCK = 1 << 20
"""The most bytes of one message's header fields."""
MAX_UNANSWERED = 512
"""The most requests of a connection that wait for their responses; of more, the oldest get none."""
SPACES = b" \t\r\n\v\f"
SPACE = re.compile(rb"[ \t\r\n\v\f]")
_BLOCK_END = re.compile(rb"\n\r?\n")


@attrs.frozen
class HttpSettings:
    """What the configuration says: limits of both bodies, and what is done to paths."""

    request: BodyLimits = attrs.field(factory=BodyLimits)
    response: BodyLimits = attrs.field(factory=BodyLimits)
    decoding: Decoding = MINIMAL
    files: FileLimits = attrs.field(factory=FileLimits)


class Side:
    """One direction: what is not read yet, and how it goes on. `left`: bytes of the body or chunk; -1: to the end.

    in_body: it is in a body that is not chunked.
    """

    __slots__ = ("at", "closed", "dead", "in_body", "left", "pending", "scanned", "step")

    def __init__(self, step: Callable[[], bool]) -> None:
        self.pending = bytearray()
        self.at = 0
        self.scanned = 0
        self.left = 0
        self.closed = self.dead = self.in_body = False
        self.step = step


class MessageReader:
    """The state of a connection, and how its parts are read. The steps are those of its two directions' readers."""

    def __init__(self, context: Context, settings: HttpSettings) -> None:
        self.transactions: list[HttpTransaction] = []
        self.bypass = False
        self.becomes: str | None = None
        self._settings = settings
        self._wants = context.wants
        self._count = 0
        self._sides: tuple[Side, Side]
        self._request: HttpTransaction | None = None
        self._response: HttpTransaction | None = None
        self._unanswered: deque[HttpTransaction] = deque(maxlen=MAX_UNANSWERED)
        self._files: list[BodyFiles | None] = [None, None]

    def _current(self, direction: int) -> HttpTransaction | None:
        return self._request if direction == TO_SERVER else self._response

    def _run(self, direction: int) -> None:
        side = self._sides[direction]
        while not side.dead and side.step():
            pass
        if side.dead:
            side.pending.clear()
            side.at = side.scanned = 0
        elif side.at:
            del side.pending[: side.at]
            side.scanned = max(0, side.scanned - side.at)
            side.at = 0

    def _die(self, direction: int, event: str = "") -> None:
        """Give up a direction: what follows can't be told apart any more."""
        side = self._sides[direction]
        side.dead = True
        transaction = self._current(direction)
        if transaction is not None:
            if event:
                transaction.event(direction, event)
            self._finish_body(direction, transaction, whole=False)
            transaction.changed[direction] = True

    @staticmethod
    def _advance(transaction: HttpTransaction, direction: int, progress: int) -> None:
        transaction.progress[direction] = progress
        transaction.changed[direction] = True

    def _line(self, side: Side) -> bytes | None:
        """The next line with its end; None: it is not there yet."""
        end = side.pending.find(b"\n", max(side.at, side.scanned))
        if end < 0:
            if not side.closed or side.at == len(side.pending):
                side.scanned = len(side.pending)
                return None
            end = len(side.pending) - 1
        line = bytes(side.pending[side.at : end + 1])
        side.at = end + 1
        return line

    def _too_long(self, side: Side, direction: int) -> bool:
        if len(side.pending) - side.at > MAX_LINE:
            self._die(direction, "request_field_too_long" if direction == TO_SERVER else "response_field_too_long")
            return True
        return False

    def _new(self) -> HttpTransaction:
        transaction = HttpTransaction(self._count)
        self._count += 1
        self.transactions.append(transaction)
        self._unanswered.append(transaction)
        return transaction

    def _block(self, side: Side, direction: int) -> bytes | None:
        """The header fields' lines up to and with the empty one; None: they are not there yet."""
        pending = side.pending
        at = side.at
        if pending.startswith((b"\r\n", b"\n"), at):
            end = pending.index(b"\n", at) + 1
        else:
            found = _BLOCK_END.search(pending, max(at, side.scanned - 2))
            if found is None:
                if len(pending) - at > MAX_BLOCK or self._endless(side, direction):
                    self._die(direction)
                    return None
                side.scanned = len(pending)
                if not side.closed:
                    return None
                end = len(pending)
            else:
                end = found.end()
        block = bytes(pending[at:end])
        side.at = side.scanned = end
        return block

    def _endless(self, side: Side, direction: int) -> bool:
        """Whether the last line, which is not over yet, is too long."""
        if len(side.pending) - side.at <= MAX_LINE:
            return False
        last = side.pending.rfind(b"\n", side.at)
        if len(side.pending) - max(last, side.at) <= MAX_LINE:
            return False
        transaction = self._current(direction)
        if transaction is not None:
            name = "request_field_too_long" if direction == TO_SERVER else "response_field_too_long"
            transaction.event(direction, name)
        return True

    def _fields(self, transaction: HttpTransaction, direction: int, block: bytes) -> Fields:
        fields = transaction.fields[direction]
        fields.parse(block, response=direction == TO_CLIENT)
        for problem in fields.problems:
            name = FIELD_EVENTS[direction].get(problem)
            if name:
                transaction.event(direction, name)
        return fields

    def _add_body(self, direction: int, transaction: HttpTransaction, data: bytes) -> None:
        body = transaction.bodies[direction]
        if body is None:
            limits = self._settings.request if direction == TO_SERVER else self._settings.response
            coding = transaction.fields[direction].get(b"content-encoding")
            body = transaction.bodies[direction] = Body(limits, coding)
            self._files[direction] = BodyFiles.of(transaction, direction, self._settings.files, self._wants)
        files = self._files[direction]
        added = body.add(data, more=files.depth if files is not None else 0)
        if body.bomb:
            transaction.event(direction, "compression_bomb")
        if files is not None and added:
            files.add(added)
        transaction.changed[direction] = True

    def _finish_body(self, direction: int, transaction: HttpTransaction, *, whole: bool) -> None:
        files = self._files[direction]
        if files is not None:
            files.end(whole=whole)
            self._files[direction] = None
            transaction.changed[direction] = True

    def _read_body(self, side: Side, direction: int, transaction: HttpTransaction) -> bool:
        """Read of the body what is there. True: it is over."""
        available = len(side.pending) - side.at
        size = available if side.left < 0 else min(available, side.left)
        if size:
            self._add_body(direction, transaction, bytes(side.pending[side.at : side.at + size]))
            side.at += size
            side.scanned = side.at
            if side.left > 0:
                side.left -= size
        return side.left == 0

    def _chunk(self, direction: int, data: Callable[[], bool], trailer: Callable[[], bool]) -> bool:
        side, transaction = self._sides[direction], self._current(direction)
        assert transaction is not None
        line = self._line(side)
        if line is None:
            self._too_long(side, direction)
            return False
        side.left = chunk_length(line)
        if b";" in line and direction == TO_SERVER:
            transaction.event(direction, "request_chunk_extension")
        if side.left < 0:
            if not line.strip():
                return True
            name = "invalid_request_chunk_len" if direction == TO_SERVER else "invalid_response_chunk_len"
            self._die(direction, name)
            return False
        if side.left:
            side.step = data
        else:
            self._advance(transaction, direction, TRAILER)
            side.step = trailer
        return True

    def _chunk_data(self, direction: int, following: Callable[[], bool]) -> bool:
        side, transaction = self._sides[direction], self._current(direction)
        assert transaction is not None
        if side.left and not self._read_body(side, direction, transaction):
            return False
        end = side.pending.find(b"\n", side.at)
        if end < 0:
            side.at = side.scanned = len(side.pending)
            return False
        side.at = side.scanned = end + 1
        side.step = following
        return True


def split_word(text: bytes) -> tuple[bytes, bytes, bytes]:
    """Text before the first space of any kind, that space, and what follows it."""
    found = SPACE.search(text)
    return (text, b"", b"") if found is None else (text[: found.start()], found[0], text[found.end() :])
