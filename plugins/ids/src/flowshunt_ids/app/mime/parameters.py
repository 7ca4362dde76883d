"""Parameters of MIME header fields (RFC 2045, section 5.1; in sections by RFC 2231, section 3)."""

MOST = 255
"""Bytes of a value that are kept."""
_SPACES = b" \t\n\r"


def parameters(value: bytes) -> dict[bytes, bytes]:
    """The parameters that follow the first `;` of a field's value."""
    found: dict[bytes, bytes] = {}
    at = value.find(b";") + 1
    if not at:
        return found
    while at < len(value):
        while at < len(value) and value[at] in _SPACES:
            at += 1
        equals = value.find(b"=", at)
        if equals < 0:
            break
        name = value[at:equals]
        at = equals + 1
        close = value.find(b'"', at + 1) if value.startswith(b'"', at) else -1
        if close >= 0:
            found[name] = value[at + 1 : close]
            at = close + 1
            if value.startswith(b";", at):
                at += 1
            continue
        end = value.find(b";", at)
        end = len(value) if end < 0 else end
        found[name] = value[at:end]
        at = end + 1
    return found


def parameter(value: bytes, name: bytes) -> bytes | None:
    """One parameter's value, put together of its sections if need be; not cut to `MOST`."""
    found = parameters(value)
    if name in found:
        return found[name]
    sections: list[bytes] = []
    while (section := found.get(b"%s*%d" % (name, len(sections)))) is not None:
        sections.append(section)
    return b"".join(sections) if sections else None
