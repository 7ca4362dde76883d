"""The parser: both directions of a connection, byte by byte as they come, into transactions."""

from flowshunt_ids.app.contract import TO_CLIENT, Context
from flowshunt_ids.app.http.reader import HttpSettings, Side
from flowshunt_ids.app.http.request import RequestReader
from flowshunt_ids.app.http.response import ResponseReader
from flowshunt_ids.app.http.transaction import COMPLETE


class HttpParser(RequestReader, ResponseReader):
    """See `flowshunt_ids.app.contract.Parser`."""

    def __init__(self, context: Context, settings: HttpSettings) -> None:
        super().__init__(context, settings)
        self._sides = (Side(self._request_line), Side(self._response_line))

    def data(self, direction: int, data: bytes) -> None:
        """See `Parser`."""
        side = self._sides[direction]
        if side.dead:
            return
        side.pending += data
        self._run(direction)

    def gap(self, direction: int, size: int) -> None:
        """See `Parser`: a body goes on behind a hole, anything else does not."""
        side = self._sides[direction]
        transaction = self._current(direction)
        if side.in_body:
            files = self._files[direction]
            if files is not None:
                files.lost()
            if side.left > 0:
                side.left = max(0, side.left - size)
            if transaction is not None:
                transaction.changed[direction] = True
            if side.left == 0:
                self._run(direction)
            return
        self._die(direction)

    def end(self, direction: int) -> None:
        """See `Parser`."""
        side = self._sides[direction]
        if side.closed:
            return
        side.closed = True
        if not side.dead:
            self._run(direction)
        transaction = self._current(direction)
        if transaction is not None and transaction.progress[direction] < COMPLETE:
            self._finish_body(direction, transaction, whole=side.left < 0 and direction == TO_CLIENT)
            self._advance(transaction, direction, COMPLETE)
