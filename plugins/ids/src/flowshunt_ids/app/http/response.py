"""Responses: the direction to the client."""

from flowshunt_ids.app.contract import TO_CLIENT, TO_SERVER
from flowshunt_ids.app.http.headers import Fields, content_length
from flowshunt_ids.app.http.reader import MAX_LINE, SPACES, MessageReader, split_word
from flowshunt_ids.app.http.transaction import BODY, COMPLETE, HEADERS, LINE, TRAILER, HttpTransaction


class ResponseReader(MessageReader):
    """Reads responses, step by step."""

    def _response_line(self) -> bool:
        side = self._sides[TO_CLIENT]
        if side.at == len(side.pending):
            return False
        if self._response is None or self._response.progress[TO_CLIENT] >= COMPLETE:
            self._response = self._answered()
            self._advance(self._response, TO_CLIENT, LINE)
        transaction = self._response
        if transaction.old and transaction.progress[TO_SERVER] >= COMPLETE:
            self._advance(transaction, TO_CLIENT, BODY)
            side.left = -1
            side.step = self._response_body
            side.in_body = True
            return True
        line = self._line(side)
        if line is None:
            self._too_long(side, TO_CLIENT)
            return False
        text = line.rstrip(b"\r\n")
        if not text:
            return True
        if text.lstrip(SPACES + b"\0")[:4].upper() != b"HTTP":
            following = side.pending[side.at : side.at + 1]
            if following == b"H" or (following and len(text) <= 2):
                return True
            # What does not look like a response line is a body, as it is to browsers, up to the end of what came.
            self._add_body(TO_CLIENT, transaction, line)
            if side.at == len(side.pending):
                self._advance(transaction, TO_CLIENT, BODY)
                self._complete_response(transaction)
            return True
        transaction.status_line = text
        version, _space, rest = split_word(text.lstrip(SPACES))
        status, _space, message = split_word(rest.lstrip(SPACES))
        transaction.version = version
        transaction.status = status or None
        transaction.message = message.lstrip(SPACES) or None
        transaction.status_number = int(status) if status.isdigit() and len(status) == 3 else 0
        if not 100 <= transaction.status_number <= 999:
            transaction.event(TO_CLIENT, "response_invalid_status")
        self._advance(transaction, TO_CLIENT, HEADERS)
        side.step = self._response_fields
        return True

    def _answered(self) -> HttpTransaction:
        """The transaction that the next response belongs to: the oldest without one, or one without a request."""
        if self._unanswered:
            return self._unanswered.popleft()
        transaction = self._new()
        self._unanswered.remove(transaction)
        transaction.target = b"/libhtp::request_uri_not_seen"
        transaction.event(TO_CLIENT, "unable_to_match_response_to_request")
        self._advance(transaction, TO_SERVER, COMPLETE)
        return transaction

    def _response_fields(self) -> bool:
        side, transaction = self._sides[TO_CLIENT], self._response
        assert transaction is not None
        block = self._block(side, TO_CLIENT)
        if block is None:
            return False
        fields = self._fields(transaction, TO_CLIENT, block)
        if transaction.progress[TO_CLIENT] == TRAILER:
            self._complete_response(transaction)
            return True
        return self._response_body_begins(transaction, fields)

    def _response_body_begins(self, transaction: HttpTransaction, fields: Fields) -> bool:
        side, status = self._sides[TO_CLIENT], transaction.status_number
        coding, length = fields.get(b"transfer-encoding"), fields.get(b"content-length")
        if transaction.method == b"CONNECT":
            if 200 <= status <= 299:
                self._advance(transaction, TO_CLIENT, COMPLETE)
                self._run(TO_SERVER)
                return False
            self._advance(transaction, TO_CLIENT, HEADERS)
            self._run(TO_SERVER)
        none = coding is None and length is None
        if status == 101 and none:
            self.becomes = ""
            for direction in (TO_SERVER, TO_CLIENT):
                self._sides[direction].dead = True
                if transaction.progress[direction] < COMPLETE:
                    self._advance(transaction, direction, COMPLETE)
            return False
        if status == 100 and coding is None and (length is None or content_length(length) <= 0):
            # An interim answer: the real one is still to come.
            transaction.fields[TO_CLIENT] = Fields()
            transaction.status_line = transaction.version = transaction.status = transaction.message = None
            self._advance(transaction, TO_CLIENT, LINE)
            side.step = self._response_line
            return True
        if transaction.method == b"HEAD" or ((100 <= status <= 199 or status in (204, 304)) and none):
            self._complete_response(transaction)
            return True
        if coding is not None and b"chunked" in coding.lower():
            self._advance(transaction, TO_CLIENT, BODY)
            side.step = self._response_chunk
            return True
        if length is not None:
            size = content_length(length)
            if size < 0:
                self._die(TO_CLIENT, "invalid_content_length_field_in_response")
                return False
            if not size:
                self._complete_response(transaction)
                return True
            side.left = size
        else:
            side.left = -1
        self._advance(transaction, TO_CLIENT, BODY)
        side.step = self._response_body
        side.in_body = True
        return True

    def _response_body(self) -> bool:
        side, transaction = self._sides[TO_CLIENT], self._response
        assert transaction is not None
        if not self._read_body(side, TO_CLIENT, transaction):
            return False
        self._complete_response(transaction)
        return True

    def _response_chunk(self) -> bool:
        return self._chunk(TO_CLIENT, self._response_chunk_data, self._response_fields)

    def _response_chunk_data(self) -> bool:
        return self._chunk_data(TO_CLIENT, self._response_chunk)

    def _complete_response(self, transaction: HttpTransaction) -> None:
        """The response is over, but for what follows it at once."""
        side = self._sides[TO_CLIENT]
        side.in_body = False
        side.step = self._after_response

    def _after_response(self) -> bool:
        """What follows a response is the next one, or where it does not look like one, more of its body."""
        side, transaction = self._sides[TO_CLIENT], self._response
        assert transaction is not None
        if side.at < len(side.pending):
            end = side.pending.find(b"\n", max(side.at, side.scanned))
            if end < 0 and len(side.pending) - side.at < MAX_LINE and not side.closed:
                side.scanned = len(side.pending)
                return False
            end = end + 1 if end >= 0 else len(side.pending)
            line = bytes(side.pending[side.at : end])
            if line.lstrip(SPACES + b"\0")[:4].upper() != b"HTTP":
                self._add_body(TO_CLIENT, transaction, line)
                side.at = side.scanned = end
                return True
        side.scanned = side.at
        self._finish_body(TO_CLIENT, transaction, whole=True)
        self._advance(transaction, TO_CLIENT, COMPLETE)
        side.step = self._response_line
        return True
