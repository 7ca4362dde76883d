"""Header fields: the lines of a block, and the fields that they make."""

import re

MAX_FIELDS = 1024
"""The most fields of one message that are kept (`headers-limit` of libhtp)."""
MAX_FOLDED = 102400
"""The most bytes of a field that is folded."""
MAX_REPETITIONS = 64
"""The most fields of one name whose values are put together."""

_TOKEN = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]*")
_FOLDING = (0x20, 0x09, 0x00)


class Fields:
    """The fields of a message in order. Those of one name are one, with their values joined."""

    __slots__ = ("_places", "_repeats", "names", "problems", "raw", "values")

    def __init__(self) -> None:
        self.names: list[bytes] = []
        self.values: list[bytes] = []
        self.raw = b""
        self.problems: set[str] = set()
        self._places: dict[bytes, int] = {}
        self._repeats = 0

    def get(self, name: bytes) -> bytes | None:
        """The value of a field, whose name is given in lower case."""
        place = self._places.get(name)
        return self.values[place] if place is not None else None

    def parse(self, block: bytes, *, response: bool) -> None:
        """Read the lines of a block."""
        self.raw += block
        held: bytes | None = None
        for whole in block.split(b"\n"):
            line = whole.rstrip(b"\r")
            if not line:
                continue
            if line[0] in _FOLDING:
                if held is None:
                    self.problems.add("folding")
                    held = line.lstrip(b" \t\0")
                elif response and b":" in line and b":" in held:
                    # What would fold is a field of its own to browsers, with HTTP/1.1.
                    self.problems.add("folding")
                    self._add(held, response)
                    held = line[1:]
                elif len(held) < MAX_FOLDED:
                    held += line
                continue
            if held is not None:
                self._add(held, response)
            held = line
        if held is not None:
            self._add(held, response)

    def _add(self, line: bytes, response: bool) -> None:
        name, colon, value = line.partition(b":")
        if not colon or (not response and b"\0" in name):
            self.problems.add("colon")
            name, value = b"", line
        else:
            bare = name.rstrip(b" \t\r\n\v\f" if response else b" \t")
            if len(bare) != len(name):
                self.problems.add("space")
            name = bare
            if not name or _TOKEN.fullmatch(name) is None:
                self.problems.add("name")
            value = value.strip(b" \t")
        key = name.lower()
        place = self._places.get(key)
        if place is None:
            if len(self.names) >= MAX_FIELDS:
                self.problems.add("many")
                return
            self._places[key] = len(self.names)
            self.names.append(name)
            self.values.append(value)
            return
        self.problems.add("repeated")
        self._repeats += 1
        if self._repeats > MAX_REPETITIONS:
            return
        if key == b"content-length":
            if content_length(self.values[place]) != content_length(value):
                self.problems.add("length")
            return
        self.values[place] += b", " + value


_NUMBER = re.compile(rb"[ \t]*(\d{1,18})")


def content_length(value: bytes) -> int:
    """The number of a Content-Length field; -1 where it has none. What follows the digits is not looked at."""
    found = _NUMBER.match(value)
    if found is None:
        digits = re.search(rb"\d{1,18}", value)
        return int(digits[0]) if digits else -1
    return int(found[1])


_CHUNK = re.compile(rb"[ \t\r\n\v\f0]*([0-9A-Fa-f]{0,8})")


def chunk_length(line: bytes) -> int:
    """The length that begins a chunk; -1 where it is none. 0x7fffffff is the most."""
    text = line.strip(b" \t\r\n\v\f")
    found = re.match(rb"[0-9A-Fa-f]+", text)
    if found is None:
        return -1
    digits = found[0].lstrip(b"0")
    if len(digits) > 8:
        return -1
    value = int(digits or b"0", 16)
    return value if value <= 0x7FFFFFFF else -1
