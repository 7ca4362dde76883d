"""The parser: both directions of a connection, byte by byte as they come, into transactions."""

import re
from collections.abc import Callable
from typing import Any

import attrs

from flowshunt_ids.app.contract import TO_CLIENT, TO_SERVER, Context
from flowshunt_ids.app.files import FileLimits
from flowshunt_ids.app.http.body import Body, BodyLimits
from flowshunt_ids.app.http.events import FIELD_EVENTS
from flowshunt_ids.app.http.headers import Fields, chunk_length, content_length
from flowshunt_ids.app.http.transaction import BODY, COMPLETE, HEADERS, LINE, TRAILER, HttpTransaction
from flowshunt_ids.app.http.uploads import BodyFiles
from flowshunt_ids.app.http.uri import MINIMAL, Decoding, host_of, normalized, split_target

METHODS = frozenset(
    b"HEAD GET PUT POST DELETE CONNECT OPTIONS TRACE PATCH PROPFIND PROPPATCH MKCOL COPY MOVE LOCK UNLOCK "
    b"VERSION-CONTROL CHECKOUT UNCHECKOUT CHECKIN UPDATE LABEL REPORT MKWORKSPACE MKACTIVITY BASELINE-CONTROL MERGE "
    b"INVALID ERROR".split()
)
"""Methods that are known: what else follows a message may be more of its body."""
MAX_LINE = 18000
"""The longest line in bytes (`field-limit-hard` of libhtp); then a direction is given up."""
MAX_BLOCK = 1 << 20
"""The most bytes of one message's header fields."""
_SPACES = b" \t\r\n\v\f"
_SPACE = re.compile(rb"[ \t\r\n\v\f]")
_BLOCK_END = re.compile(rb"\n\r?\n")


@attrs.frozen
class HttpSettings:
    """What the configuration says: limits of both bodies, and what is done to paths."""

    request: BodyLimits = attrs.field(factory=BodyLimits)
    response: BodyLimits = attrs.field(factory=BodyLimits)
    decoding: Decoding = MINIMAL
    files: FileLimits = attrs.field(factory=FileLimits)


class _Side:
    """One direction: what is not read yet, and how it goes on. `left`: bytes of the body or chunk; -1: to the end."""

    __slots__ = ("at", "closed", "dead", "left", "number", "pending", "scanned", "step")

    def __init__(self, step: Callable[[], bool]) -> None:
        self.pending = bytearray()
        self.at = 0
        self.scanned = 0
        self.left = 0
        self.number = 0
        self.closed = self.dead = False
        self.step = step


class HttpParser:
    """See `flowshunt_ids.app.contract.Parser`."""

    def __init__(self, context: Context, settings: HttpSettings) -> None:
        self.transactions: list[HttpTransaction] = []
        self.bypass = False
        self.becomes: str | None = None
        self._settings = settings
        self._wants = context.wants
        self._count = 0
        self._sides = (_Side(self._request_line), _Side(self._response_line))
        self._request: HttpTransaction | None = None
        self._response: HttpTransaction | None = None
        self._unanswered: list[HttpTransaction] = []
        self._files: list[BodyFiles | None] = [None, None]

    # --- what the framework calls

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
        if side.step in (self._request_body, self._response_body):
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

    # --- common parts

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

    def _line(self, side: _Side) -> bytes | None:
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

    def _too_long(self, side: _Side, direction: int) -> bool:
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

    def _block(self, side: _Side, direction: int) -> bytes | None:
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

    def _endless(self, side: _Side, direction: int) -> bool:
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

    def _read_body(self, side: _Side, direction: int, transaction: HttpTransaction) -> bool:
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

    # --- requests

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
            if len(rest) <= 16 and not rest.strip(_SPACES):
                side.at = side.scanned = len(side.pending)
                self._complete_request(transaction)
                return True
            transaction.old = False
        self._advance(transaction, TO_SERVER, HEADERS)
        side.step = self._request_fields
        return True

    def _parse_request_line(self, transaction: HttpTransaction, text: bytes) -> None:
        transaction.line = text
        bare = text.lstrip(_SPACES)
        if len(bare) != len(text):
            transaction.event(TO_SERVER, "request_line_leading_whitespace")
        method, _space, rest = _split(bare)
        transaction.method = method
        after = rest.lstrip(_SPACES)
        target = protocol = None
        if not after:
            transaction.old = True
            if method not in METHODS:
                transaction.event(TO_SERVER, "request_line_invalid")
        else:
            # Only a blank ends the target; where there is none, anything that counts as one does.
            at = after.find(b" ")
            if at < 0:
                found = _SPACE.search(after)
                at = found.start() if found else len(after)
            target = after[:at]
            protocol = after[at:].strip(_SPACES)
            if _SPACE.search(target):
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

    def _complete_request(self, transaction: HttpTransaction) -> None:
        """The request is over, but for what follows it at once."""
        self._sides[TO_SERVER].step = self._after_request

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
            method = _split(bytes(side.pending[side.at : end]).lstrip(_SPACES))[0]
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

    # --- responses

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
            return True
        line = self._line(side)
        if line is None:
            self._too_long(side, TO_CLIENT)
            return False
        text = line.rstrip(b"\r\n")
        if not text:
            return True
        if text.lstrip(_SPACES + b"\0")[:4].upper() != b"HTTP":
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
        version, _space, rest = _split(text.lstrip(_SPACES))
        status, _space, message = _split(rest.lstrip(_SPACES))
        transaction.version = version
        transaction.status = status or None
        transaction.message = message.lstrip(_SPACES) or None
        transaction.status_number = int(status) if status.isdigit() and len(status) == 3 else 0
        if not 100 <= transaction.status_number <= 999:
            transaction.event(TO_CLIENT, "response_invalid_status")
        self._advance(transaction, TO_CLIENT, HEADERS)
        side.step = self._response_fields
        return True

    def _answered(self) -> HttpTransaction:
        """The transaction that the next response belongs to: the oldest without one, or one without a request."""
        if self._unanswered:
            return self._unanswered.pop(0)
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
        self._sides[TO_CLIENT].step = self._after_response

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
            if line.lstrip(_SPACES + b"\0")[:4].upper() != b"HTTP":
                self._add_body(TO_CLIENT, transaction, line)
                side.at = side.scanned = end
                return True
        side.scanned = side.at
        self._finish_body(TO_CLIENT, transaction, whole=True)
        self._advance(transaction, TO_CLIENT, COMPLETE)
        side.step = self._response_line
        return True


def _split(text: bytes) -> tuple[bytes, bytes, bytes]:
    """Text before the first space of any kind, that space, and what follows it."""
    found = _SPACE.search(text)
    return (text, b"", b"") if found is None else (text[: found.start()], found[0], text[found.end() :])


def open_parser(settings: HttpSettings) -> Callable[[Context], Any]:
    """What makes parsers with settings."""
    return lambda context: HttpParser(context, settings)
