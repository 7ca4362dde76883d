"""The transforms of buffers: what their keywords do to the bytes before anything is matched in them."""

import hashlib
import re
import string
from collections.abc import Callable
from itertools import cycle, islice

from flowshunt_ids.rules.keywords.pcre import compile_pattern, translate
from flowshunt_ids.rules.language import TransformKeyword
from flowshunt_ids.rules.lexer import RuleError

SECONDS = 0.05
"""How long one search of `pcrexform` may take; then the buffer stays as it is."""

_SPACE = re.compile(rb"[ \t\n\v\f\r]+")
_DROP_SPACE = string.whitespace.encode()
_ESCAPED = re.compile(rb"%([0-9A-Fa-f]{2})|\+")


class Timeouts:
    """How often a transform ran out of time in this process."""

    count = 0


def _plain(function: Callable[[bytes], bytes]) -> Callable[[str], Callable[[bytes], bytes]]:
    return lambda _value: function


def _compress_whitespace(data: bytes) -> bytes:
    """Of several whitespace bytes in a row the first stays."""
    return _SPACE.sub(lambda found: found[0][:1], data)


def _strip_whitespace(data: bytes) -> bytes:
    return data.translate(None, _DROP_SPACE)


def _url_decode(data: bytes) -> bytes:
    return _ESCAPED.sub(lambda found: bytes([int(found[1], 16)]) if found[1] else b" ", data)


def _dotprefix(data: bytes) -> bytes:
    return b"." + data if data else data


def _digest(name: str) -> Callable[[bytes], bytes]:
    return lambda data: hashlib.new(name, data, usedforsecurity=False).digest()


def _strip_pseudo_headers(data: bytes) -> bytes:
    """Without the lines that begin with a colon (HTTP/2's pseudo headers)."""
    lines = data.split(b"\n")
    kept = [line + b"\n" for line in lines[:-1] if not line.lstrip(b"\r").startswith(b":")]
    last = lines[-1]
    return b"".join(kept) + (b"" if last.startswith(b":") else last)


def _header_lowercase(data: bytes) -> bytes:
    """Header names in lower case, their values as they are."""
    lines = []
    for line in data.split(b"\n"):
        name, colon, value = line.partition(b":")
        lines.append(name.lower() + colon + value)
    return b"\n".join(lines)


def _xor(value: str) -> Callable[[bytes], bytes]:
    text = value.strip().strip('"')
    if not text or len(text) % 2 or len(text) > 510 or not set(text) <= set(string.hexdigits):
        raise RuleError(f"xor: {text!r} is not a key in hexadecimal, of 255 bytes at most")
    key = bytes.fromhex(text)

    def apply(data: bytes) -> bytes:
        if not data:
            return data
        pad = bytes(islice(cycle(key), len(data)))
        return (int.from_bytes(data, "big") ^ int.from_bytes(pad, "big")).to_bytes(len(data), "big")

    return apply


def _pcrexform(value: str) -> Callable[[bytes], bytes]:
    """The one group of an expression in place of the buffer, where it matches."""
    if len(value) < 3 or value[0] != '"' or value[-1] != '"':
        raise RuleError("pcrexform: takes an expression in double quotes")
    source = translate(value[1:-1].replace("\\;", ";").replace('\\"', '"'))
    expression = compile_pattern(source.encode("utf-8", "surrogateescape"), 0, "pcrexform")
    if expression.groups != 1:
        raise RuleError(f"pcrexform: needs exactly one group, and has {expression.groups}")
    search: Callable[..., re.Match[bytes] | None] = expression.search

    def apply(data: bytes) -> bytes:
        try:
            found = search(data, timeout=SECONDS)
        except TimeoutError:
            Timeouts.count += 1
            return data
        return found[1] if found is not None and found[1] is not None else data

    return apply


TRANSFORMS: tuple[TransformKeyword, ...] = (
    TransformKeyword("to_lowercase", _plain(bytes.lower), possible=lambda literal: literal == literal.lower()),
    TransformKeyword("to_uppercase", _plain(bytes.upper), possible=lambda literal: literal == literal.upper()),
    TransformKeyword(
        "strip_whitespace", _plain(_strip_whitespace), possible=lambda literal: literal == _strip_whitespace(literal)
    ),
    TransformKeyword(
        "compress_whitespace",
        _plain(_compress_whitespace),
        possible=lambda literal: literal == _compress_whitespace(literal),
    ),
    TransformKeyword("url_decode", _plain(_url_decode)),
    TransformKeyword("to_md5", _plain(_digest("md5"))),
    TransformKeyword("to_sha1", _plain(_digest("sha1"))),
    TransformKeyword("to_sha256", _plain(_digest("sha256"))),
    TransformKeyword("dotprefix", _plain(_dotprefix)),
    TransformKeyword("strip_pseudo_headers", _plain(_strip_pseudo_headers)),
    TransformKeyword("header_lowercase", _plain(_header_lowercase)),
    TransformKeyword("xor", _xor, value=True),
    TransformKeyword("pcrexform", _pcrexform, value=True),
)
"""The engine's own transforms."""
