"""A mail as it is handed over, and what is told of it."""

from typing import Any

import attrs

from flowshunt_ids.app.contract import BOTH, File, Transaction
from flowshunt_ids.app.files import FileLimits, close, grow, open_file
from flowshunt_ids.app.mime.decoder import Mail, Part

OPEN, COMPLETE = 1, 2
MOST_RECIPIENTS = 1024
"""Recipients of one mail that are kept."""
MOST_FILE_DATA = 1 << 20
"""Bytes of all files of one mail that are kept for matching."""


@attrs.define
class Greeting:
    """What the client called itself, which all mails of a connection share."""

    name: bytes | None = None


class SmtpTransaction(Transaction):
    """What a client does from one mail to the next.

    Attributes:
        sender, recipients: of the envelope. mail: the decoder of its text. in_data: a DATA command was seen.
    """

    __slots__ = ("_file", "_kept", "_limits", "_wants", "greeting", "in_data", "mail", "recipients", "sender")

    def __init__(self, number: int, greeting: Greeting, limits: FileLimits, wants: frozenset[str]) -> None:
        super().__init__(number)
        self.greeting = greeting
        self.sender: bytes | None = None
        self.recipients: list[bytes] = []
        self.mail: Mail | None = None
        self.in_data = False
        self.progress = [OPEN, OPEN]
        self._limits = limits
        self._wants = wants
        self._file: File | None = None
        self._kept = 0

    @property
    def done(self) -> bool:
        """Whether the mail is over."""
        return self.progress[0] == COMPLETE

    def complete(self) -> None:
        """The mail is over."""
        self.progress = [COMPLETE, COMPLETE]
        self.changed = [True, True]

    def anomaly(self, name: str) -> None:
        """Note an event: rules of either direction may ask for it."""
        for direction in BOTH:
            self.event(direction, name)

    def begin(self, name: bytes) -> None:
        """A file begins (see `flowshunt_ids.app.mime.decoder.Sink`)."""
        if self._file is not None:
            self.end()
        if "files" in self._wants:
            self._file = open_file(self, name, 0, self._wants)

    def add(self, data: bytes) -> None:
        """The next bytes of the file."""
        file = self._file
        if file is None:
            return
        before = len(file.data)
        keep = min(self._limits.keep, before + MOST_FILE_DATA - self._kept)
        grow(file, data, attrs.evolve(self._limits, keep=keep))
        self._kept += len(file.data) - before
        # Once the begin that is kept is whole, rules can look.
        if before < len(file.data) == self._limits.keep:
            self.changed[0] = True

    def end(self, *, whole: bool = True) -> None:
        """The file is over."""
        if self._file is not None:
            close(self._file, whole=whole)
            self.changed[0] = True
            self._file = None


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


def addresses(value: bytes) -> list[str]:
    """The parts of a list with commas, which may be quoted."""
    found: list[str] = []
    begin = at = 0
    quoted = False
    for at, letter in enumerate(value):
        if letter == 0x22:
            quoted = not quoted
        elif letter == 0x2C and not quoted:
            found.append(_text(value[begin:at].lstrip(b" \t")))
            begin = at + 1
    found.append(_text(value[begin:].lstrip(b" \t")))
    return [each for each in found if each]


def _email(mail: Mail) -> dict[str, Any]:
    root = mail.root
    fields: dict[str, Any] = {"status": mail.status}
    sender = root.field(b"from")
    if sender is not None:
        fields["from"] = _text(sender.lstrip(b" \t"))
    for name in ("to", "cc"):
        value = root.field(name.encode())
        listed = addresses(value) if value is not None else []
        if listed:
            fields[name] = listed
    top = mail.top
    if top.urls:
        # Suricata tells of IPv4 addresses under the name of IPv6, too.
        fields["has_ipv6_url"] = any(url.version for url in top.urls.values())
        fields["has_ipv4_url"] = False
        fields["has_exe_url"] = any(url.executable for url in top.urls.values())
    attachments = [_text(part.file) for part in top.parts if part.file is not None]
    if attachments:
        fields["attachment"] = attachments
    found = [_text(url) for part in (top, *top.parts) for url in reversed(_urls(part))]
    if found:
        fields["url"] = found
    if mail.md5 is not None:
        fields["body_md5"] = mail.md5
    return fields


def _urls(part: Part) -> list[bytes]:
    return list(part.urls)


def event(transaction: SmtpTransaction) -> tuple[str, dict[str, Any]] | None:
    """The `smtp` event of a mail."""
    fields: dict[str, Any] = {}
    if transaction.greeting.name is not None:
        fields["helo"] = _text(transaction.greeting.name)
    if transaction.sender is not None:
        fields["mail_from"] = _text(transaction.sender)
    if transaction.recipients:
        fields["rcpt_to"] = [_text(each) for each in transaction.recipients]
    return "smtp", fields


def further(transaction: SmtpTransaction) -> dict[str, Any]:
    """What stands beside the `smtp` event: the mail."""
    return {"email": _email(transaction.mail)} if transaction.mail is not None else {}
