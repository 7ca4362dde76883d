"""Requests: the direction to the server."""

from flowshunt_ids.app.contract import TO_CLIENT, TO_SERVER
from flowshunt_ids.app.http.headers import Fields, content_length
from flowshunt_ids.app.http.reader import MAX_LINE, SPACE, SPACES, MessageReader, split_word
from flowshunt_ids.app.http.transaction import BODY, COMPLETE, HEADERS, LINE, TRAILER, HttpTransaction
from flowshunt_ids.app.http.uri import host_of, normalized, split_target

METHODS = frozenset(
    b"HEAD GET PUT POST DELETE CONNECT OPTIONS TRACE PATCH PROPFIND PROPPATCH MKCOL COPY MOVE LOCK UNLOCK "
    b"VERSION-CONTROL CHECKOUT UNCHECKOUT CHECKIN UPDATE LABEL REPORT MKWORKSPACE MKACTIVITY BASELINE-CONTROL MERGE "
    b"INVALID ERROR".split()
)
"""Methods that are known: what else follows a message may be more of its body."""


class RequestReader(MessageReader):
    """Reads requests, step by step."""

    def _request_line(self) -> bool:
        side = self._sides[TO_SERVER]
        if side.at == len(side.pending):
            return False
        if self._request is None or self._request.progress[TO_SERVER] >= COMPLETE:
            self._request = self._new()
            self._advance(self._request, TO_SERVER, LINE)
        transaction = self._request
        line = self._line(side)
        if line is None:
            self._too_long(side, TO_SERVER)
            return False
        text = line.rstrip(b"\r\n") if line.strip(b"\r\n") else b""
        if not text:
            return not side.closed
        self._parse_request_line(transaction, text)
        if transaction.old:
            rest = bytes(side.pending[side.at : side.at + 17])
            if len(rest) <= 16 and not rest.strip(SPACES):
                side.at = side.scanned = len(side.pending)
                self._complete_request(transaction)
                return True
            transaction.old = False
        self._advance(transaction, TO_SERVER, HEADERS)
        side.step = self._request_fields
        return True

    def _parse_request_line(self, transaction: HttpTransaction, text: bytes) -> None:
        transaction.line = text
        bare = text.lstrip(SPACES)
        if len(bare) != len(text):
            transaction.event(TO_SERVER, "request_line_leading_whitespace")
        method, _space, rest = split_word(bare)
        transaction.method = method
        after = rest.lstrip(SPACES)
        target = protocol = None
        if not after:
            transaction.old = True
            if method not in METHODS:
                transaction.event(TO_SERVER, "request_line_invalid")
        else:
            # Only a blank ends the target; where there is none, anything that counts as one does.
            at = after.find(b" ")
            if at < 0:
                found = SPACE.search(after)
                at = found.start() if found else len(after)
            target = after[:at]
            protocol = after[at:].strip(SPACES)
            if SPACE.search(target):
                transaction.event(TO_SERVER, "uri_delim_non_compliant")
            if not protocol:
                transaction.old = True
                protocol = None
        transaction.target, transaction.protocol = target, protocol
        if target is None:
            return
        if method == b"CONNECT":
            transaction.host, transaction.port = host_of(target)
            transaction.authority = transaction.host
            transaction.uri = b""
            return
        parts = split_target(target)
        transaction.uri = normalized(parts, self._settings.decoding)
        if parts.hostname is not None:
            transaction.authority = transaction.host = parts.hostname.lower().rstrip(b".")
            transaction.port = parts.port

    def _request_fields(self) -> bool:
        side, transaction = self._sides[TO_SERVER], self._request
        assert transaction is not None
        block = self._block(side, TO_SERVER)
        if block is None:
            return False
        fields = self._fields(transaction, TO_SERVER, block)
        if transaction.progress[TO_SERVER] == TRAILER:
            self._complete_request(transaction)
            return True
        host = fields.get(b"host")
        if host is not None:
            name, port = host_of(host)
            if transaction.host is None:
                transaction.host, transaction.port = name, port
            elif name is not None and name.lower() != transaction.host:
                transaction.event(TO_SERVER, "host_header_ambiguous")
            if name is None:
                transaction.event(TO_SERVER, "host_header_invalid")
        elif transaction.protocol == b"HTTP/1.1":
            transaction.event(TO_SERVER, "missing_host_header")
        return self._request_body_begins(transaction, fields)

    def _request_body_begins(self, transaction: HttpTransaction, fields: Fields) -> bool:
        side = self._sides[TO_SERVER]
        coding, length = fields.get(b"transfer-encoding"), fields.get(b"content-length")
        if transaction.method == b"CONNECT":
            self._advance(transaction, TO_SERVER, BODY)
            side.step = self._request_tunnel
            return True
        if coding is not None:
            if b"chunked" not in [part.strip() for part in coding.lower().split(b",")]:
                self._die(TO_SERVER, "invalid_transfer_encoding_value_in_request")
                return False
            self._advance(transaction, TO_SERVER, BODY)
            side.step = self._request_chunk
            return True
        if length is not None:
            size = content_length(length)
            if size < 0:
                self._die(TO_SERVER, "invalid_content_length_field_in_request")
                return False
            if size:
                self._advance(transaction, TO_SERVER, BODY)
                side.left = size
                side.step = self._request_body
                side.in_body = True
                return True
        self._complete_request(transaction)
        return True

    def _request_body(self) -> bool:
        side, transaction = self._sides[TO_SERVER], self._request
        assert transaction is not None
        if not self._read_body(side, TO_SERVER, transaction):
            return False
        self._complete_request(transaction)
        return True

    def _request_chunk(self) -> bool:
        return self._chunk(TO_SERVER, self._request_chunk_data, self._request_fields)

    def _request_chunk_data(self) -> bool:
        return self._chunk_data(TO_SERVER, self._request_chunk)

    def _complete_request(self, transaction: HttpTransaction) -> None:
        """The request is over, but for what follows it at once."""
        side = self._sides[TO_SERVER]
        side.in_body = False
        side.step = self._after_request

    def _after_request(self) -> bool:
        """What follows a request is the next one, or where it does not look like one, more of its body."""
        side, transaction = self._sides[TO_SERVER], self._request
        assert transaction is not None
        if side.at < len(side.pending) and not transaction.old:
            end = side.pending.find(b"\n", max(side.at, side.scanned))
            if end < 0 and len(side.pending) - side.at < MAX_LINE and not side.closed:
                side.scanned = len(side.pending)
                return False
            end = end if end >= 0 else len(side.pending)
            method = split_word(bytes(side.pending[side.at : end]).lstrip(SPACES))[0]
            if method and method not in METHODS and transaction.method != b"CONNECT":
                transaction.event(TO_SERVER, "request_body_unexpected")
                self._add_body(TO_SERVER, transaction, bytes(side.pending[side.at : end + 1]))
                side.at = side.scanned = min(end + 1, len(side.pending))
                return True
        side.scanned = side.at
        self._finish_body(TO_SERVER, transaction, whole=True)
        self._advance(transaction, TO_SERVER, COMPLETE)
        side.step = self._request_line
        return True

    def _request_tunnel(self) -> bool:
        """After CONNECT: the response says whether HTTP goes on."""
        transaction = self._request
        assert transaction is not None
        if transaction.progress[TO_CLIENT] <= LINE:
            return False
        if 200 <= transaction.status_number <= 299:
            self.becomes = ""
            self._sides[TO_SERVER].dead = self._sides[TO_CLIENT].dead = True
            self._advance(transaction, TO_SERVER, COMPLETE)
            self._advance(transaction, TO_CLIENT, COMPLETE)
            return False
        self._complete_request(transaction)
        return True
