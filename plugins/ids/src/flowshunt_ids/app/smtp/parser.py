"""The parser of one SMTP connection (RFC 5321), in the steps of Suricata 7's."""

import re
from collections import deque

import attrs

from flowshunt_ids.app.contract import TO_SERVER, Context
from flowshunt_ids.app.files import FileLimits
from flowshunt_ids.app.mime.decoder import Mail, MimeSettings
from flowshunt_ids.app.smtp.transaction import MOST_RECIPIENTS, Greeting, SmtpTransaction

LONGEST_LINE = 4096
"""Bytes of a line that are looked at; what follows to its end is passed over."""
MOST_MAILS = 256
"""Mails of one connection."""
MOST_COMMANDS = 65535
"""Commands that wait for their replies."""
_CODES = frozenset(
    b"211 214 220 221 235 250 251 252 334 354 421 450 451 452 455 500 501 502 503 504 550 551 552 553 554 555".split()
)
_END = re.compile(rb"\r\n|\r(?!\n|\Z)|\n")
_OTHER, _STARTTLS, _DATA, _BDAT, _MAIL, _RSET = range(6)


@attrs.frozen
class SmtpSettings:
    """`app-layer.protocols.smtp`. mime: None where mails are not decoded; raw: they are taken as files as they are."""

    mime: MimeSettings | None = attrs.field(factory=MimeSettings)
    raw: bool = False
    files: FileLimits = attrs.field(factory=lambda: FileLimits(keep=100_000))


class _Side:
    __slots__ = ("discarding", "pending", "scanned")

    def __init__(self) -> None:
        self.pending = bytearray()
        self.scanned = 0
        self.discarding = False


class SmtpParser:
    """See `flowshunt_ids.app.contract.Parser`."""

    def __init__(self, context: Context, settings: SmtpSettings) -> None:
        self.transactions: list[SmtpTransaction] = []
        self.bypass = False
        self.becomes: str | None = None
        self._settings = settings
        self._wants = context.wants
        self._sides = (_Side(), _Side())
        self._greeting = Greeting()
        self._current: SmtpTransaction | None = None
        self._count = 0
        self._commands: deque[int] = deque()
        self._command = _OTHER
        self._in_data = self._welcomed = self._multiline = self._pipelining = False
        self._continued = False
        self._failed = False
        self._chunk_at = self._chunk_size = 0

    def data(self, direction: int, data: bytes) -> None:
        """The next bytes of a direction."""
        if self._failed or self.becomes is not None:
            return
        side = self._sides[direction]
        side.pending += data
        if direction == TO_SERVER:
            self._requests(side)
        else:
            self._replies(side)
        if self._failed:
            self._give_up()

    def gap(self, direction: int, size: int) -> None:
        """Lines can't be told apart behind a hole."""
        self._failed = True
        self._give_up()

    def end(self, direction: int) -> None:
        """The direction is closed: a mail that is not over will not be."""
        if direction == TO_SERVER and self._current is not None:
            self._current.end(whole=False)

    def _give_up(self) -> None:
        for side in self._sides:
            side.pending.clear()
        if self._current is not None:
            self._current.end(whole=False)

    def _event(self, name: str) -> None:
        if self._current is not None:
            self._current.anomaly(name)

    def _requests(self, side: _Side) -> None:
        at = 0
        while not self._failed and self.becomes is None:
            strict = not self._in_body() or side.pending.startswith(b"--", at)
            at, taken = self._line(side, at) if strict else self._body_line(side, at)
            if taken is None:
                break
            self._request(*taken)
        del side.pending[:at]
        side.scanned = max(0, side.scanned - at)

    def _in_body(self) -> bool:
        """Whether lines are a mail's body: they may be of any length then, and end in any way."""
        if not self._in_data:
            return False
        if self._command == _BDAT:
            return True
        mail = self._current.mail if self._current is not None else None
        return self._command == _DATA and not (mail is not None and mail.in_headers)

    def _line(self, side: _Side, at: int) -> tuple[int, tuple[bytes, bytes] | None]:
        """The next line that ends in LF, as its text and its end; a long one's begin. Empty: it is passed over."""
        end = side.pending.find(b"\n", max(at, side.scanned))
        if end < 0:
            side.scanned = len(side.pending)
            size = len(side.pending) - at
            if side.discarding:
                return len(side.pending), None
            if size < LONGEST_LINE:
                return at, None
            side.discarding = True
            text = bytes(side.pending[at : at + LONGEST_LINE])
            self._truncated = True
            return len(side.pending), (text, b"")
        if side.discarding:
            side.discarding = False
            return end + 1, (b"", b"")
        size = end + 1 - at
        if size >= LONGEST_LINE:
            self._truncated = True
            return end + 1, (bytes(side.pending[at : at + LONGEST_LINE]), b"")
        if end > at and side.pending[end - 1] == 0x0D:
            return end + 1, (bytes(side.pending[at : end - 1]), b"\r\n")
        return end + 1, (bytes(side.pending[at:end]), b"\n")

    def _body_line(self, side: _Side, at: int) -> tuple[int, tuple[bytes, bytes] | None]:
        """The next line of a body, or what is there of a very long one."""
        found = _END.search(side.pending, max(at, side.scanned - 1))
        if found is not None:
            side.scanned = 0
            return found.end(), (bytes(side.pending[at : found.start()]), found[0])
        size = len(side.pending) - at
        chunk = self._command == _BDAT and size >= self._chunk_size - self._chunk_at
        if size and (size >= LONGEST_LINE or chunk):
            # A CR may belong to a LF that is still to come.
            upto = len(side.pending) - (side.pending.endswith(b"\r") and not chunk)
            side.scanned = 0
            return upto, (bytes(side.pending[at:upto]), b"")
        side.scanned = len(side.pending)
        return at, None

    _truncated = False

    def _request(self, text: bytes, end: bytes) -> None:
        if not text and not end:
            return
        transaction = self._current
        word = text[:4].lower()
        if transaction is None or (transaction.done and not (not self._in_data and word in (b"rset", b"quit"))):
            if self._count > MOST_MAILS:
                self._failed = True
                return
            transaction = self._current = SmtpTransaction(
                self._count, self._greeting, self._settings.files, self._wants
            )
            self._count += 1
            self.transactions.append(transaction)
        if not self._welcomed:
            self._event("no_server_welcome_message")
        if self._in_data:
            if self._command == _DATA:
                self._mail_line(transaction, text, end)
            elif self._command == _BDAT:
                self._chunk(text, end)
        else:
            transaction.changed[TO_SERVER] = True
            self._take_command(transaction, text, word)
        if self._truncated:
            self._truncated = False
            self._event("truncated_line")

    def _take_command(self, transaction: SmtpTransaction, text: bytes, word: bytes) -> None:
        lower = text[:9].lower()
        self._command = _OTHER
        if lower.startswith(b"starttls"):
            self._command = _STARTTLS
        elif word == b"data":
            self._command = _DATA
            if transaction.in_data:
                self._event("unparsable_content")
                return
            if self._settings.raw:
                transaction.begin(b"rawmsg")
            elif self._settings.mime is not None:
                transaction.mail = Mail(self._settings.mime, transaction)
            transaction.in_data = True
            # A server that pipelines is not waited for.
            self._in_data = self._in_data or self._pipelining
        elif word == b"bdat":
            size = re.match(rb" +(\d{1,18})", text[4:])
            if size is None:
                self._failed = True
                return
            self._command = _BDAT
            self._chunk_size = int(size[1])
            self._in_data = True
        elif word in (b"helo", b"ehlo"):
            if self._greeting.name is not None:
                self._event("duplicate_fields")
            else:
                self._greeting.name = _argument(text, 5)
        elif lower == b"mail from":
            if transaction.sender is not None:
                self._event("duplicate_fields")
            else:
                transaction.sender = _argument(text, 10)
        elif lower.startswith(b"rcpt to"):
            if len(transaction.recipients) < MOST_RECIPIENTS:
                transaction.recipients.append(_argument(text, 8))
        elif word == b"rset":
            self._chunk_at = 0
            self._command = _RSET
        self._wait_for(self._command)

    def _wait_for(self, command: int) -> None:
        """Note a command whose reply will come."""
        if self._commands and self._commands[-1] in (_STARTTLS, _DATA):
            self._event("invalid_pipelined_sequence")
        if len(self._commands) >= MOST_COMMANDS:
            self._failed = True
            return
        self._commands.append(command)

    def _mail_line(self, transaction: SmtpTransaction, text: bytes, end: bytes) -> None:
        mail = transaction.mail
        continued, self._continued = self._continued, not end
        if text == b"." and not continued and end:
            self._in_data = False
            self._wait_for(_MAIL)
            if mail is not None:
                if not mail.complete():
                    self._event("mime_parse_failed")
                self._anomalies(mail)
            transaction.end()
            transaction.complete()
        elif self._settings.raw:
            transaction.add(text + end)
        elif mail is not None and not mail.line(text, end, continued=continued):
            self._anomalies(mail)
            self._event("mime_parse_failed")

    def _anomalies(self, mail: Mail) -> None:
        for name in mail.anomalies:
            self._event(name)

    def _chunk(self, text: bytes, end: bytes) -> None:
        # The count goes on from one chunk to the next until RSET: so does Suricata.
        self._chunk_at += len(text) + len(end)
        if self._chunk_at >= self._chunk_size:
            self._in_data = False
            if self._chunk_at > self._chunk_size:
                self._event("bdat_chunk_len_exceeded")
                self._failed = True

    def _replies(self, side: _Side) -> None:
        at = 0
        while not self._failed and self.becomes is None:
            at, taken = self._line(side, at)
            if taken is None:
                break
            text, end = taken
            if text or (end and at != 1):
                self._reply(text)
            if self._truncated:
                self._truncated = False
                self._event("truncated_line")
        del side.pending[:at]
        side.scanned = max(0, side.scanned - at)

    def _reply(self, text: bytes) -> None:
        if self._current is not None:
            self._current.changed[1] = True
        if len(text) < 3:
            self._event("invalid_reply")
            self._failed = True
            return
        self._multiline = text[3:4] == b"-"
        code = text[:3]
        if code not in _CODES:
            self._event("invalid_reply")
            self._failed = True
            return
        if not self._commands:
            if not self._welcomed:
                self._welcomed = not self._multiline
                if code != b"220":
                    self._event("invalid_reply")
            return
        self._answer(self._commands[0], code)
        if not self._multiline:
            self._commands.popleft()
        elif self._welcomed and code == b"250" and text[4:].lower() == b"pipelining":
            self._pipelining = True

    def _answer(self, command: int, code: bytes) -> None:
        if command == _STARTTLS:
            if code == b"220":
                self.becomes = "tls"
                if self._current is not None:
                    self._current.complete()
            else:
                self._event("tls_rejected")
        elif command == _DATA:
            if code == b"354":
                self._in_data = True
            else:
                if self._pipelining:
                    self._in_data = False
                self._event("data_command_rejected")
        elif command == _RSET and code == b"250" and self._current is not None and not self._multiline:
            self._current.complete()


def _argument(text: bytes, at: int) -> bytes:
    """What follows a command up to the next space."""
    return text[at:].lstrip(b" ").partition(b" ")[0]
