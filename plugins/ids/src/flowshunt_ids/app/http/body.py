"""Bodies: what of them is decoded and kept for rules, within limits."""

import lzma
import zlib
from typing import Any

import attrs

_STEP = 1 << 16
MOST_AT_ONCE = 16 << 20
"""The most decoded bytes that are made of one piece of a body without a limit."""
MAX_LAYERS = 2
"""The most content codings on top of each other that are undone."""


@attrs.frozen
class BodyLimits:
    """Limits in bytes, of `app-layer.protocols.http.libhtp.default-config` in the configuration.

    Attributes:
        keep: what of a body is looked at; 0: all of it.
        least, window: a growing body is looked at from `least` bytes on; beyond that, `window` bytes or more at a time.
        bomb: what compressed bytes may become before they are suspected, and given up if they grew more than 2048-fold.
        lzma: whether LZMA is undone, with that much memory; 0: it is not.
    """

    keep: int = 4096
    least: int = 32768
    window: int = 4096
    bomb: int = 1 << 20
    lzma: int = 0


class Decoder:
    """Undoes one content coding bit by bit. What can't be decoded is passed on as it is."""

    def __init__(self, coding: str, limits: BodyLimits) -> None:
        self._coding = coding
        self._limits = limits
        self._engine: Any = None
        self._begin = b""
        self._read = self._made = 0
        self.failed = False
        self.bomb = False

    def feed(self, data: bytes, most: int) -> bytes:
        """The next bytes decoded, at most about `most`; what would be more is given up."""
        if self.failed:
            return b"" if self.bomb else data
        if self._engine is None:
            data = self._begin + data
            if len(data) < 2:
                self._begin = data
                return b""
            self._begin = b""
            self._start(data[:2])
        if self._engine is None:
            return data
        self._read += len(data)
        parts: list[bytes] = []
        total, rest = 0, data
        try:
            while rest and total < most and not self._engine.eof:
                part = self._engine.decompress(rest, _STEP)
                rest = self._engine.unconsumed_tail if self._coding != "lzma" else b""
                total += len(part)
                self._made += len(part)
                parts.append(part)
                if self._made > self._limits.bomb and self._made > 2048 * self._read:
                    self.failed = self.bomb = True
                    break
                while self._coding == "lzma" and total < most and not self._engine.needs_input and not self._engine.eof:
                    part = self._engine.decompress(b"", _STEP)
                    total += len(part)
                    self._made += len(part)
                    parts.append(part)
        except (zlib.error, lzma.LZMAError, MemoryError, EOFError):
            self.failed = True
            if not self._made:
                return self._begin + data
        if not self._made and len(self._begin) < _STEP:
            # Kept as it came, for if it turns out not to be compressed.
            self._begin += data
        if rest and total >= most:
            self.failed = self.bomb = True
        return b"".join(parts)

    def _start(self, head: bytes) -> None:
        if self._coding == "lzma":
            if self._limits.lzma:
                self._engine = lzma.LZMADecompressor(lzma.FORMAT_ALONE, memlimit=self._limits.lzma)
            else:
                self.failed = True
            return
        # gzip and zlib say so in their first bytes; the rest is raw, whatever the field says.
        whole = head == b"\x1f\x8b" or (head[0] & 15 == 8 and (head[0] << 8 | head[1]) % 31 == 0)
        self._engine = zlib.decompressobj(47 if whole else -15)


def decoders(value: bytes | None, limits: BodyLimits) -> list[Decoder]:
    """What undoes the codings of a Content-Encoding field, the last that was applied first."""
    if value is None:
        return []
    made: list[Decoder] = []
    for token in value.lower().split(b","):
        word = token.strip()
        coding = "gzip" if b"gzip" in word else "deflate" if b"deflate" in word else "lzma" if word == b"lzma" else ""
        if coding and len(made) < MAX_LAYERS:
            made.append(Decoder(coding, limits))
    return made[::-1]


class Body:
    """A body as rules look at it. `length`: its bytes so far, decoded, up to the limits; `sent`: all as they came.

    What was looked at is forgotten but for a window before what is new.
    """

    __slots__ = ("_begin", "_data", "_decoders", "_limits", "_seen", "bomb", "length", "sent")

    def __init__(self, limits: BodyLimits, coding: bytes | None = None) -> None:
        self._data = bytearray()
        self._begin = 0
        self._decoders = decoders(coding, limits)
        self._limits = limits
        self._seen = 0
        self.length = self.sent = 0
        self.bomb = False

    def add(self, data: bytes, *, more: int = 0) -> bytes:
        """Take the next bytes of the message; gives what they are decoded. more: bytes wanted beyond `keep`."""
        self.sent += len(data)
        keep = self._limits.keep
        room = max(keep, more) - self.length if keep else MOST_AT_ONCE
        if room <= 0:
            return b""
        for decoder in self._decoders:
            data = decoder.feed(data, room)
            self.bomb = self.bomb or decoder.bomb
        data = data[:room]
        kept = data if not keep else data[: max(0, keep - self.length)]
        self.length += len(data)
        self._data += kept
        return data

    @property
    def _total(self) -> int:
        return self._begin + len(self._data)

    def window(self, over: bool) -> bytes | None:
        """What there is to look at; None where nothing new is. over: nothing more comes."""
        limits, total = self._limits, self._total
        if total <= self._seen:
            return None
        if not over and total < limits.least and (not limits.keep or total < limits.keep):
            return None
        start = 0
        if self._seen > limits.least:
            new = total - self._seen
            short = limits.window - new
            start = max(0, self._seen - short) if short > 0 else self._seen - limits.window // 4
        return bytes(self._data[max(0, start - self._begin) :])

    def looked(self, over: bool) -> None:
        """Note that `window` was looked at."""
        limits, total = self._limits, self._total
        if over or total >= limits.least or (limits.keep and total >= limits.keep):
            self._seen = total
            useless = self._seen - limits.window - self._begin
            if self._seen > limits.least and useless > limits.window:
                del self._data[:useless]
                self._begin += useless
