"""The files in bodies: a response's, a PUT's or POST's, and the parts of multipart/form-data (RFC 7578)."""

import re
from typing import Any

from flowshunt_ids.app.contract import TO_CLIENT, TO_SERVER, File
from flowshunt_ids.app.files import FileLimits, close, grow, open_file

MAX_PART_FIELDS = 16384
"""The most bytes of a part's header fields."""
_BOUNDARY = re.compile(rb'boundary\s*=\s*(?:"([^"]{1,200})"|([^;,\s"]{1,200}))', re.IGNORECASE)
_FILENAME = re.compile(rb'filename\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^;\s]+))', re.IGNORECASE)


def disposition_name(value: bytes | None) -> bytes:
    """The file's name in a Content-Disposition field; b"" where there is none."""
    if value is None:
        return b""
    found = _FILENAME.search(value)
    return (found[1] if found[1] is not None else found[2]) if found else b""


def _last_part(target: bytes | None) -> bytes:
    """The name of a file by a path: the path, as Suricata has it."""
    return target or b""


class BodyFiles:
    """The files of one body. depth: bytes of the body that they are wanted of beyond what is kept of it."""

    __slots__ = ("_boundary", "_direction", "_file", "_held", "_inside", "_limits", "_transaction", "_wants", "depth")

    def __init__(
        self,
        transaction: Any,
        direction: int,
        limits: FileLimits,
        wants: frozenset[str],
        name: bytes,
        boundary: bytes | None,
    ) -> None:
        self._transaction = transaction
        self._direction = direction
        self._limits = limits
        self._wants = wants
        self._boundary = b"\r\n--" + boundary if boundary is not None else None
        self._held = bytearray(b"\r\n")
        self._inside = "preamble"
        self.depth = 1 << 62 if wants & {"md5", "sha1", "sha256", "store"} else 0
        self._file: File | None = None
        if boundary is None:
            self._file = open_file(transaction, name, direction, wants)

    @classmethod
    def of(cls, transaction: Any, direction: int, limits: FileLimits, wants: frozenset[str]) -> "BodyFiles | None":
        """The files of the body that begins now; None: it has none, or nobody asks for them."""
        if "files" not in wants:
            return None
        fields = transaction.fields[direction]
        path = _path(transaction)
        if direction == TO_CLIENT:
            name = disposition_name(fields.get(b"content-disposition")) or path
            return cls(transaction, direction, limits, wants, name, None)
        if transaction.method == b"POST":
            kind = fields.get(b"content-type") or b""
            found = _BOUNDARY.search(kind) if b"multipart/form-data" in kind.lower() else None
            if found:
                return cls(transaction, direction, limits, wants, b"", found[1] or found[2])
            return cls(transaction, direction, limits, wants, path, None)
        if transaction.method == b"PUT":
            return cls(transaction, direction, limits, wants, path, None)
        return None

    def add(self, data: bytes) -> None:
        """The next bytes of the body."""
        if self._boundary is None:
            if self._file is not None:
                grow(self._file, data, self._limits)
            return
        self._held += data
        while self._step():
            pass

    def lost(self) -> None:
        """Bytes of the body were lost: its files are not whole."""
        self.end(whole=False)
        self._file = None
        self._boundary = None

    def end(self, *, whole: bool) -> None:
        """The body is over."""
        if self._file is not None:
            if self._boundary is not None and self._inside == "data":
                grow(self._file, bytes(self._held), self._limits)
                whole = False
            close(self._file, whole=whole)
            self._transaction.changed[self._direction] = True
        self._file = None

    def _step(self) -> bool:
        """Read one thing of a multipart body; False: more bytes are needed."""
        boundary, held = self._boundary, self._held
        assert boundary is not None
        if self._inside == "fields":
            end = held.find(b"\r\n\r\n")
            if end < 0:
                if len(held) > MAX_PART_FIELDS:
                    self._transaction.event(TO_SERVER, "multipart_invalid_header")
                    self._inside = "preamble"
                return False
            block = bytes(held[:end])
            del held[: end + 2]
            name = b""
            for line in block.split(b"\r\n"):
                key, _colon, value = line.partition(b":")
                if key.strip().lower() == b"content-disposition":
                    name = disposition_name(value)
            self._inside = "data" if name else "value"
            # The empty line's end may be the begin of the next boundary.
            if held.startswith(boundary):
                return True
            del held[:2]
            if name:
                self._file = open_file(self._transaction, name, self._direction, self._wants)
            return True
        at = held.find(boundary)
        if at < 0:
            keep = len(boundary) - 1
            if len(held) > keep:
                self._give(bytes(held[:-keep]))
                del held[:-keep]
            return False
        after = at + len(boundary)
        if len(held) < after + 2:
            return False
        self._give(bytes(held[:at]))
        if self._file is not None:
            close(self._file, whole=True)
            self._transaction.changed[self._direction] = True
            self._file = None
        last = held[after : after + 2] == b"--"
        end = held.find(b"\n", after)
        if last or end < 0:
            del held[: after if last else at]
            self._inside = "preamble"
            return last
        del held[: end + 1]
        self._inside = "fields"
        return True

    def _give(self, data: bytes) -> None:
        if data and self._inside == "data" and self._file is not None:
            grow(self._file, data, self._limits)


def _path(transaction: Any) -> bytes:
    """The path of a transaction's target."""
    uri = transaction.uri or b""
    return _last_part(uri.partition(b"?")[0].partition(b"#")[0])
