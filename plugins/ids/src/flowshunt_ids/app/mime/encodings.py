"""Transfer encodings of MIME parts, decoded as they come: base64 and quoted-printable (RFC 2045, section 6)."""

import binascii
import re

_ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/="
_FOREIGN = bytes(set(range(256)) - set(_ALPHABET))
_ESCAPE = re.compile(rb"=([0-9A-F]{2})?")
_PIECE = 4096


class Base64:
    """A decoder that is given lines. Foreign characters are passed over, and padding may stand in any block."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held = b""

    def line(self, text: bytes) -> bytes:
        """What the blocks say that are complete now."""
        clean = self._held + text.translate(None, _FOREIGN)
        whole = len(clean) & ~3
        self._held = clean[whole:]
        return _blocks(clean[:whole])

    def end(self) -> bytes:
        """What is left in a block that was not completed."""
        held, self._held = self._held, b""
        return _blocks(held.ljust(4, b"=")) if held else b""


def _blocks(text: bytes) -> bytes:
    """Blocks of four characters. Each `=` takes a byte of what its block says."""
    if b"=" not in text:
        return binascii.a2b_base64(text)
    made: list[bytes] = []
    begin = 0
    while True:
        at = text.find(b"=", begin)
        if at < 0:
            made.append(binascii.a2b_base64(text[begin:]))
            return b"".join(made)
        block = at & ~3
        made.append(binascii.a2b_base64(text[begin:block]))
        quad = text[block : block + 4]
        made.append(binascii.a2b_base64(quad.replace(b"=", b"A"))[: max(0, 3 - quad.count(b"="))])
        begin = block + 4


def quoted_printable(text: bytes, line_end: bytes) -> tuple[bytes, bool]:
    """A line without its end, decoded; and whether all its escapes made sense. line_end: b"" for a part of a line.

    A `=` at the end takes the line's end away; what follows another one that makes no sense stays.
    """
    if not text:
        return line_end, True
    sound = True

    def put(found: "re.Match[bytes]") -> bytes:
        nonlocal sound
        if found[1] is not None:
            return bytes((int(found[1], 16),))
        if found.end() != len(text):
            sound = False
        return b""

    decoded = _ESCAPE.sub(put, text) if b"=" in text else text
    soft = text.endswith(b"=")
    return decoded if soft or not line_end else decoded + b"\r\n", sound
