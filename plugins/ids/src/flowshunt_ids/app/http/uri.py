"""Request targets: their parts (RFC 3986), and the normalized form that rules look at."""

import re

import attrs

_ENCODED = re.compile(rb"%([0-9A-Fa-f]{2})")
_U_ENCODED = re.compile(rb"%(?:[uU]([0-9A-Fa-f]{4})|([0-9A-Fa-f]{2}))")
_SLASHES = re.compile(rb"/+")


@attrs.frozen
class Decoding:
    """What is done to a path beyond decoding `%xx`: the traits of a server that libhtp calls its personality."""

    separators: bool = False
    """`%2f` (and `%5c` with `backslashes`) become separators."""
    backslashes: bool = False
    """`\\` becomes `/`."""
    compress: bool = False
    """Several separators in a row become one."""
    lowercase: bool = False
    wide: bool = False
    """`%uxxxx` is decoded."""


MINIMAL = Decoding()
"""Suricata's default where its configuration names no personality."""
IDS = Decoding(separators=True, backslashes=True, compress=True, lowercase=True, wide=True)
PERSONALITIES = {
    "minimal": MINIMAL,
    "generic": Decoding(separators=True, backslashes=True, compress=True),
    "ids": IDS,
    "iis_4_0": Decoding(separators=True, backslashes=True, compress=True),
    "iis_5_0": Decoding(separators=True, backslashes=True, compress=True),
    "iis_5_1": Decoding(separators=True, backslashes=True, compress=True, wide=True),
    "iis_6_0": Decoding(separators=True, backslashes=True, compress=True, wide=True),
    "iis_7_0": Decoding(separators=True, backslashes=True, compress=True),
    "iis_7_5": Decoding(separators=True, backslashes=True, compress=True),
    "apache_2": Decoding(compress=True),
}


@attrs.frozen
class Target:
    """The parts of a request target; None where there is none."""

    path: bytes | None = None
    query: bytes | None = None
    fragment: bytes | None = None
    hostname: bytes | None = None
    port: bytes | None = None


def split_target(raw: bytes) -> Target:
    """Take a target apart. Only what names a scheme has an authority, as libhtp reads it."""
    text = raw.rstrip(b" ")
    if not text:
        return Target()
    hostname = port = None
    rest = text
    if text[0] != 0x2F:
        scheme, colon, after = text.partition(b":")
        if colon:
            rest = after
            if len(rest) > 2 and rest.startswith(b"//") and rest[2] != 0x2F:
                del scheme
                end = _authority_end(rest)
                hostname, port = _host_and_port(rest[2:end].rpartition(b"@")[2])
                rest = rest[end:]
    fragment: bytes | None
    before, mark, fragment = rest.partition(b"#")
    path, question, query = before.partition(b"?")
    return Target(path, query if question else None, fragment if mark else None, hostname, port)


def _authority_end(rest: bytes) -> int:
    ends = [at for at in (rest.find(letter, 2) for letter in (b"?", b"/", b"#")) if at >= 0]
    return min(ends, default=len(rest))


def _host_and_port(text: bytes) -> tuple[bytes, bytes | None]:
    if text.startswith(b"["):
        inside, bracket, after = text.partition(b"]")
        if not bracket:
            return text, None
        _nothing, colon, port = after.partition(b":")
        return inside + bracket, port if colon else None
    host, colon, port = text.partition(b":")
    return host, port if colon else None


def decode(text: bytes) -> bytes:
    """Decode `%xx`; what is not well formed stays."""
    return _ENCODED.sub(lambda found: bytes([int(found[1], 16)]), text) if b"%" in text else text


def normalized_path(path: bytes, decoding: Decoding) -> bytes:
    """A path decoded and without dot segments."""
    if b"%" in path:
        path = (_U_ENCODED if decoding.wide else _ENCODED).sub(lambda found: _decoded(found, decoding), path)
    if decoding.backslashes:
        path = path.replace(b"\\", b"/")
    if decoding.lowercase:
        path = path.lower()
    if decoding.compress and b"//" in path:
        path = _SLASHES.sub(b"/", path)
    return _without_dots(path) if b"/." in path or path.startswith(b".") else path


def _decoded(found: "re.Match[bytes]", decoding: Decoding) -> bytes:
    if decoding.wide:
        if found[1] is not None:
            value = int(found[1], 16)
            # Full-width forms stand for their narrow ones; what has no single byte becomes '?'.
            value = value - 0xFEE0 if 0xFF01 <= value <= 0xFF5E else value
            return bytes([value]) if value < 256 else b"?"
        value = int(found[2], 16)
    else:
        value = int(found[1], 16)
    if not decoding.separators and (value == 0x2F or (decoding.backslashes and value == 0x5C)):
        return bytes(found[0])
    return bytes([value])


def _without_dots(path: bytes) -> bytes:
    """Remove dot segments (RFC 3986, section 5.2.4), from paths without a leading slash too."""
    while path.startswith((b"../", b"./")):
        path = path.partition(b"/")[2]
    if path in (b".", b".."):
        return b""
    absolute = path.startswith(b"/")
    kept: list[bytes] = []
    parts = path.split(b"/")
    for at, part in enumerate(parts):
        last = at == len(parts) - 1
        if part == b"." and at:
            if last:
                kept.append(b"")
        elif part == b".." and at:
            if len(kept) > (1 if absolute else 0):
                kept.pop()
            if last:
                kept.append(b"")
        else:
            kept.append(part)
    result = b"/".join(kept)
    return b"/" + result if absolute and not result.startswith(b"/") else result


def normalized(target: Target, decoding: Decoding) -> bytes:
    """What `http.uri` is: path, query and fragment, decoded. b"" where there is nothing."""
    text = normalized_path(target.path, decoding) if target.path is not None else b""
    if target.query is not None:
        text += b"?" + decode(target.query)
    if target.fragment is not None:
        text += b"#" + decode(target.fragment)
    return text


def host_of(value: bytes) -> tuple[bytes | None, bytes | None]:
    """The host of a Host header, in lower case, and its port; (None, None) where there is none."""
    text = value.strip(b" \t\r\n\v\f")
    if not text:
        return None, None
    if text.startswith(b"["):
        inside, bracket, after = text.partition(b"]")
        if not bracket:
            return None, None
        return inside + bracket, after[1:] if after.startswith(b":") else None
    host, colon, port = text.partition(b":")
    if not colon:
        return host.lower(), None
    return host.rstrip(b" \t\r\n\v\f"), port
