"""A mail's decoder, given the lines as they come; it does what Suricata 7's does with what is malformed."""

import hashlib
import re
from typing import Any, Protocol

import attrs

from flowshunt_ids.app.mime.encodings import Base64, quoted_printable
from flowshunt_ids.app.mime.parameters import MOST, parameter
from flowshunt_ids.app.mime.urls import MOST_URLS, Url, describe, search

LONGEST_LINE = 998
LONGEST_ENCODED = 76
LONGEST_NAME = 75
LONGEST_BOUNDARY = 254
MOST_FIELDS = 1024
"""Header fields of one part that are kept."""
DEEPEST = 64
"""Parts within parts; deeper ones end the decoding."""
MOST_PARTS = 1024
"""Parts of one mail; more end the decoding."""
_NAME = re.compile(rb"[\x21-\x39\x3b-\x7e]+(?=:)")


class MalformedMailError(Exception):
    """What follows in a mail can't be told apart."""


class Sink(Protocol):
    """Takes the files of a mail."""

    def begin(self, name: bytes) -> None:
        """A file begins."""

    def add(self, data: bytes) -> None:
        """Its next bytes."""

    def end(self) -> None:
        """It is over."""


@attrs.frozen
class MimeSettings:
    """`app-layer.protocols.smtp.mime`. value_depth: bytes of a header field's value that are kept."""

    base64: bool = True
    quoted_printable: bool = True
    extract_urls: bool = True
    schemes: tuple[str, ...] = ("http",)
    log_scheme: bool = False
    body_md5: bool = False
    value_depth: int = 2000


@attrs.define(eq=False)
class Part:
    """A mail, or a part of it. file: its name as an attachment; None: it is none."""

    fields: list[tuple[bytes, bytes]] = attrs.field(factory=list)
    parts: list["Part"] = attrs.field(factory=list)
    urls: dict[bytes, Url] = attrs.field(factory=dict)
    file: bytes | None = None
    encoding: str = ""
    text: bool = False
    body_part: bool = False

    def field(self, name: bytes) -> bytes | None:
        """The value of the last field of a name (in small letters)."""
        return next((value for each, value in reversed(self.fields) if each == name), None)


@attrs.define(eq=False)
class _Level:
    part: Part
    boundary: bytes | None = None
    encapsulated: bool = False


class Mail:
    """Decodes one mail.

    Attributes:
        root: the mail as a whole. status: Suricata's word for how far it came ("PARSE_DONE" where all is well).
        anomalies: names of `app-layer-event`s. md5: of its body, where asked for and over.
    """

    def __init__(self, settings: MimeSettings, sink: Sink) -> None:
        self.root = Part(text=True)
        self.status = "HEADER_READY"
        self.anomalies: dict[str, None] = {}
        self.md5: str | None = None
        self._settings = settings
        self._sink = sink
        self._levels = [_Level(self.root)]
        self._name: bytes | None = None
        self._value: list[bytes] = []
        self._value_size = 0
        self._found_child = self._begins = False
        self._line_end = b""
        self._base64 = Base64()
        self._hash: Any = None
        self._parts = 1
        self._url = search(settings.schemes) if settings.schemes else None

    @property
    def in_headers(self) -> bool:
        """Whether header fields come."""
        return self.status in ("HEADER_READY", "HEADER_STARTED")

    @property
    def top(self) -> Part:
        """The part that is being read."""
        return self._levels[-1].part

    def line(self, text: bytes, end: bytes, *, continued: bool = False) -> bool:
        """The next line; False once the mail makes no sense.

        end: its end as it stood there; b"" for a part of a line. continued: it goes on with a line that was begun.
        """
        if self.status == "PARSE_ERROR":
            return True
        if len(text) > LONGEST_LINE:
            self._odd("mime_long_line")
        if self._settings.body_md5 and (not self.in_headers or self.top.body_part):
            if self._hash is None and self._begins:
                self._hash = hashlib.md5(usedforsecurity=False)
            if self._hash is not None:
                self._hash.update(text + end)
        try:
            if self.in_headers:
                self._header(text, end)
            else:
                self._body(text, end, continued)
        except MalformedMailError:
            self.status = "PARSE_ERROR"
            return False
        return True

    def complete(self) -> bool:
        """The mail is over; False where it was malformed beyond sense."""
        if self.status == "PARSE_ERROR":
            return False
        self._store()
        self._body_over()
        if self._hash is not None:
            self.md5 = self._hash.hexdigest()
            self._hash = None
        if self._levels[-1].encapsulated:
            self._levels.pop()
        if len(self._levels) > 1:
            self._odd("mime_malformed_msg")
        self.status = "PARSE_DONE"
        return True

    def _odd(self, name: str) -> None:
        self.anomalies[name] = None

    def _header(self, text: bytes, end: bytes) -> None:
        found = _NAME.match(text)
        if found is not None:
            if len(found[0]) > LONGEST_NAME:
                self._odd("mime_long_header_name")
            self._store()
            self.status = "HEADER_STARTED"
            self._name = found[0].lower()
            self._keep(text[found.end() + 1 :].lstrip(b" "))
        elif not text:
            self.status = "HEADER_DONE"
            self._store()
            self._headers_over()
        elif self.status == "HEADER_STARTED":
            self._keep(text)
        else:
            self.status = "BODY_STARTED"
            self._begins = True
            if self._settings.body_md5 and self._hash is None:
                self._hash = hashlib.md5(text + end, usedforsecurity=False)
            self._content(text, end)

    def _keep(self, text: bytes) -> None:
        room = self._settings.value_depth - self._value_size
        if len(text) > room:
            self._odd("mime_long_header_value")
            text = text[:room]
        if text:
            self._value.append(text)
            self._value_size += len(text)

    def _store(self) -> None:
        if self._name is not None and self._value and len(self.top.fields) < MOST_FIELDS:
            self.top.fields.append((self._name, b"".join(self._value)))
        self._name = None
        self._value = []
        self._value_size = 0

    def _headers_over(self) -> None:
        part = self.top
        encoding = (part.field(b"content-transfer-encoding") or b"").lower()
        if b"base64" in encoding:
            part.encoding = "base64"
        elif b"quoted-printable" in encoding:
            part.encoding = "quoted-printable"
        disposition = part.field(b"content-disposition")
        if disposition is not None:
            self._file(part, disposition, b"filename")
        kind = part.field(b"content-type")
        self._begins = True
        if kind is None:
            return
        boundary = parameter(kind, b"boundary")
        if boundary is not None:
            self._found_child = True
            if len(boundary) > LONGEST_BOUNDARY:
                self._odd("mime_long_boundary")
                raise MalformedMailError
            self._levels[-1].boundary = boundary
        if part.file is None:
            self._file(part, kind, b"name")
        short = re.split(rb"[ \r\n;]", kind, maxsplit=1)[0].lower()
        if b"message/" in short:
            self._push(Part(text=True), encapsulated=True)
            self.status = "HEADER_READY"
        elif b"text/plain" in short or b"text/html" in short:
            part.text = True

    def _file(self, part: Part, value: bytes, name: bytes) -> None:
        found = parameter(value, name)
        if found is None:
            return
        if len(found) > MOST:
            self._odd("mime_long_filename")
        part.file = found[:MOST]

    def _push(self, part: Part, *, encapsulated: bool = False) -> None:
        self._parts += 1
        if len(self._levels) >= DEEPEST or self._parts > MOST_PARTS:
            self._odd("mime_malformed_msg")
            raise MalformedMailError
        self.top.parts.append(part)
        self._levels.append(_Level(part, encapsulated=encapsulated))

    def _pop(self) -> None:
        self._levels.pop()
        if not self._levels:
            self._levels = [_Level(self.root)]
            raise MalformedMailError

    def _body(self, text: bytes, end: bytes, continued: bool) -> None:
        if not text and (
            self.status == "BODY_END_BOUND"
            or (self.status == "HEADER_DONE" and self._settings.base64 and self.top.encoding == "base64")
        ):
            return
        if text.startswith(b"--") and not continued:
            boundary = self._boundary()
            # Anywhere in the line and in any case of letters: so does Suricata.
            if boundary is not None and b"--" + boundary.lower() in text.lower():
                self._bound(text[2 + len(boundary) :])
                return
        self.status = "BODY_STARTED"
        self._content(text, end)

    def _boundary(self) -> bytes | None:
        """The boundary that is looked for now."""
        levels = self._levels
        if self.status != "BODY_END_BOUND" and levels[-1].boundary is not None:
            return levels[-1].boundary
        return next((level.boundary for level in reversed(levels[:-1]) if level.boundary is not None), None)

    def _bound(self, rest: bytes) -> None:
        """A boundary's line. rest: what follows the boundary on it."""
        if self.status != "BODY_END_BOUND":
            self._body_over()
        else:
            self.status = "HEADER_READY"
        levels = self._levels
        if levels[-1].encapsulated and levels[-1].boundary is None:
            if len(levels) < 2:
                raise MalformedMailError
            if levels[-2].boundary is None:
                self._pop()
        if rest.startswith(b"--"):
            self._pop()
            if self._levels[-1].encapsulated and self._levels[-1].boundary is not None:
                self._pop()
            self.status = "BODY_END_BOUND"
            return
        if self._found_child:
            self._found_child = False
        else:
            if len(self._levels) < 2:
                raise MalformedMailError
            self._pop()
        self._push(Part(body_part=True))
        self.status = "HEADER_READY"

    def _content(self, text: bytes, end: bytes) -> None:
        part = self.top
        if part.encoding and len(text) > LONGEST_ENCODED:
            self._odd("mime_long_enc_line")
        if part.encoding == "base64" and self._settings.base64:
            decoded = self._base64.line(text)
            if decoded:
                self._give(decoded)
        elif part.encoding == "quoted-printable" and self._settings.quoted_printable:
            decoded, sound = quoted_printable(text, end)
            if not sound:
                self._odd("mime_invalid_qp")
            self._give(decoded)
        else:
            # A line's end belongs to the boundary if that follows.
            self._give(self._line_end + text)
            self._line_end = end

    def _body_over(self) -> None:
        part = self.top
        rest = self._base64.end()
        self._line_end = b""
        if rest or (part.file is not None and self._begins):
            self._give(rest)
        if part.file is not None:
            self._sink.end()
        self._begins = False

    def _give(self, data: bytes) -> None:
        part = self.top
        if part.file is not None:
            if self._begins:
                self._sink.begin(part.file)
            self._sink.add(data)
        elif part.text and self._url is not None and self._settings.extract_urls:
            for found in self._url.finditer(data):
                if len(part.urls) >= MOST_URLS:
                    break
                host = found[2].lower()
                text = found[1].lower() + host if self._settings.log_scheme else host
                if text not in part.urls:
                    part.urls[text] = describe(text, host)
        self._begins = False
