"""The parsers of FTP's connections, of commands and of data, in the steps of Suricata 7's."""

from collections import deque
from typing import Any

import attrs

from flowshunt_ids.app.contract import BOTH, TO_CLIENT, TO_SERVER, Context, ExpectedFlow, File, Transaction
from flowshunt_ids.app.files import MAX_NAME, FileLimits, close, grow, open_file
from flowshunt_ids.app.ftp import commands

OPEN, COMPLETE = 1, 2
LONGEST_LINE = 4096
"""Bytes of a line that are looked at (`app-layer.protocols.ftp.max-line-length`)."""
MOST_OPEN = 512
"""Commands that wait for their replies; of more, the oldest are given up."""
MOST_REPLIES = 1024
"""Lines of one command's replies that are kept."""
MOST_REPLY_BYTES = 1 << 16
"""Bytes of one command's replies that are kept."""
FILE_LIMITS = FileLimits(keep=1 << 20)


class FtpTransaction(Transaction):
    """A command and its replies.

    Attributes:
        command: "" where none was seen. request: its line. cut: names of what was cut ("request", "reply").
        port: that the data's connection will have, 0: none; active: the server opens that.
    """

    __slots__ = ("active", "bounce", "command", "cut", "port", "replies", "reply_bytes", "request")

    def __init__(self, number: int, command: str, request: bytes) -> None:
        super().__init__(number)
        self.command = command
        self.request = request
        self.replies: list[bytes] = []
        self.reply_bytes = 0
        self.cut: set[str] = set()
        self.port = 0
        self.active = False
        self.bounce = False
        self.progress = [OPEN, OPEN]

    @property
    def done(self) -> bool:
        """Whether it was replied to."""
        return self.progress[0] == COMPLETE

    def complete(self) -> None:
        """It was replied to."""
        if not self.done:
            self.progress = [COMPLETE, COMPLETE]
            self.changed = [True, True]

    def reply(self, line: bytes) -> None:
        """A line of a reply came."""
        self.changed[TO_CLIENT] = True
        if len(self.replies) < MOST_REPLIES and self.reply_bytes + len(line) <= MOST_REPLY_BYTES:
            self.replies.append(line)
            self.reply_bytes += len(line)


@attrs.frozen
class Transfer:
    """What a connection for data will carry. command: "STOR" or "RETR"; direction: in that connection."""

    command: str
    name: bytes
    direction: int


class FtpParser:
    """The connection of commands. See `flowshunt_ids.app.contract.Parser`.

    expected: connections for data that will come, in order; taken by who calls.
    """

    def __init__(self, context: Context) -> None:
        self.transactions: list[FtpTransaction] = []
        self.bypass = False
        self.becomes: str | None = None
        self.expected: list[ExpectedFlow] = []
        self._client = context.source
        self._pending = (bytearray(), bytearray())
        self._scanned = [0, 0]
        self._discarding = [False, False]
        self._open: deque[FtpTransaction] = deque(maxlen=MOST_OPEN)
        self._count = 0
        self._command: str | None = None
        self._port_line = b""
        self._port = 0
        self._active = False
        self._failed = False

    def data(self, direction: int, data: bytes) -> None:
        """The next bytes of a direction."""
        if self._failed or self.becomes is not None:
            return
        pending = self._pending[direction]
        pending += data
        at = 0
        while not self._failed and self.becomes is None:
            end = pending.find(b"\n", max(at, self._scanned[direction]))
            if end < 0:
                if self._discarding[direction]:
                    at = len(pending)
                elif len(pending) - at >= LONGEST_LINE:
                    self._discarding[direction] = True
                    self._line(direction, bytes(pending[at : at + LONGEST_LINE]), cut=True)
                    at = len(pending)
                break
            line = bytes(pending[at:end])
            at = end + 1
            if self._discarding[direction]:
                self._discarding[direction] = False
            elif len(line) + 1 >= LONGEST_LINE:
                self._line(direction, line[:LONGEST_LINE], cut=True)
                # Suricata passes over the line that follows a long one without a command, too.
                self._discarding[direction] = direction == TO_SERVER and self._command is None
            else:
                self._line(direction, line.removesuffix(b"\r"), cut=False)
        del pending[:at]
        self._scanned[direction] = len(pending)
        if self._failed:
            pending.clear()

    def gap(self, direction: int, size: int) -> None:
        """Lines can't be told apart behind a hole."""
        self._failed = True
        for pending in self._pending:
            pending.clear()

    def end(self, direction: int) -> None:
        """Nothing is left to do."""

    def _line(self, direction: int, line: bytes, *, cut: bool) -> None:
        if direction == TO_SERVER:
            self._request(line, cut)
        else:
            self._reply(line, cut)

    def _new(self, command: str, request: bytes) -> FtpTransaction:
        made = FtpTransaction(self._count, command, request)
        self._count += 1
        self.transactions.append(made)
        self._open.append(made)
        return made

    def _request(self, line: bytes, cut: bool) -> None:
        command = self._command = commands.command_of(line)
        if command is None:
            return
        transaction = self._new(command, line.rstrip())
        if cut:
            transaction.cut.add("request")
            for direction in BOTH:
                transaction.event(direction, "request_command_too_long")
        if command in ("PORT", "EPRT"):
            self._port_line = line
            if command == "PORT" and len(self._client) == 4:
                transaction.bounce = commands.bounces(line, self._client)
        elif command in ("RETR", "STOR"):
            if not self._port or len(line) < 6:
                self._failed = True
                return
            to_client = (command == "STOR") == self._active
            direction = TO_CLIENT if to_client else TO_SERVER
            transfer = Transfer(command, line[5 : 5 + MAX_NAME // 2 - 1], direction)
            self.expected.append(ExpectedFlow("ftp-data", self._port, direction, transfer))
            self._port = 0
            self._active = False

    def _reply(self, line: bytes, cut: bool) -> None:
        transaction = self._waiting()
        if self._command is None:
            transaction.command = transaction.command or ""
        port = 0
        active = self._command in ("PORT", "EPRT")
        if self._command == "AUTH TLS":
            if line.startswith(b"234 "):
                self.becomes = "tls"
        elif active:
            read = commands.active_port if self._command == "PORT" else commands.extended_port
            port = read(self._port_line)
            if not port:
                self._answered(transaction)
                return
        elif self._command == "PASV" and line.startswith(b"227 "):
            port = commands.passive_port(line)
        elif self._command == "EPSV" and line.startswith(b"229 "):
            port = commands.extended_passive_port(line)
        if port:
            self._port = transaction.port = port
            self._active = transaction.active = active
        if line:
            transaction.reply(line.rstrip())
            if cut:
                transaction.cut.add("reply")
                for direction in BOTH:
                    transaction.event(direction, "response_command_too_long")
        if not (len(line) >= 4 and line[:1] == b"1" and line[1:3].isdigit() and line[3:4].isspace()):
            self._answered(transaction)

    def _waiting(self) -> FtpTransaction:
        """The oldest command that was not replied to; else the last one."""
        while self._open and self._open[0].done:
            self._open.popleft()
        if self._open:
            return self._open[0]
        return self.transactions[-1] if self.transactions else self._new("", b"")

    def _answered(self, transaction: FtpTransaction) -> None:
        transaction.complete()
        if self._open and self._open[0] is transaction:
            self._open.popleft()


class FtpDataTransaction(Transaction):
    """A connection that carries a file."""

    __slots__ = ("transfer",)

    def __init__(self, transfer: Transfer) -> None:
        super().__init__(0)
        self.transfer = transfer
        self.progress = [OPEN, OPEN]
        self.progress[1 - transfer.direction] = COMPLETE


class FtpDataParser:
    """A connection for data. See `flowshunt_ids.app.contract.Parser`."""

    def __init__(self, context: Context) -> None:
        self._transfer: Transfer = context.expected
        self._transaction = FtpDataTransaction(self._transfer)
        self.transactions: list[Any] = [self._transaction]
        self.bypass = False
        self.becomes: str | None = None
        self._wants = context.wants
        self._file: File | None = None
        self._next_look = 1024
        self._over = False

    def data(self, direction: int, data: bytes) -> None:
        """The next bytes of the file; what comes the other way is none of it."""
        if direction != self._transfer.direction or self._over:
            return
        if self._file is None and "files" in self._wants:
            self._file = open_file(self._transaction, self._transfer.name, direction, self._wants)
        file = self._file
        if file is None:
            self._transaction.changed[direction] = True
            return
        grow(file, data, FILE_LIMITS)
        # Each look goes over all that is kept: their number grows with the logarithm of that.
        if file.size >= self._next_look:
            self._next_look = 2 * file.size
            self._transaction.changed[direction] = True

    def gap(self, direction: int, size: int) -> None:
        """The file is not whole."""
        if direction == self._transfer.direction:
            self._finish(whole=False)

    def end(self, direction: int) -> None:
        """The file is over."""
        if direction == self._transfer.direction:
            self._finish(whole=True)

    def _finish(self, *, whole: bool) -> None:
        if self._over:
            return
        self._over = True
        if self._file is not None:
            close(self._file, whole=whole)
        direction = self._transfer.direction
        self._transaction.progress[direction] = COMPLETE
        self._transaction.changed = [True, True]
