"""The multi-pattern prefilter: hyperscan databases over the rules' patterns, compiled once and cached by content."""

import hashlib
import importlib.metadata
import os
import platform
import tempfile
from array import array
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from flowshunt.compiled import cache_folder
from flowshunt_ids.encoding import Pattern
from flowshunt_ids.groups import ScanClasses
from flowshunt_ids.rules.rule import Rule
from flowshunt_ids.scanning import HIT_SHIFT

_FORMAT = b"flowshunt prefilter 1\0"


def _expression(literal: bytes) -> bytes:
    """A literal as a regular expression."""
    return b"".join(bytes([value]) if chr(value).isalnum() and value < 128 else b"\\x%02x" % value for value in literal)


def compile_patterns(patterns: Sequence[Pattern], *, once: bool = False) -> Any:
    """A hyperscan database of literals, numbered as given. once: each is told of only once a scan."""
    import hyperscan

    folder = cache_folder()
    digest = hashlib.sha256(_FORMAT + _version().encode() + (b"once" if once else b""))
    for pattern in patterns:
        digest.update(bytes([pattern.nocase]) + len(pattern.literal).to_bytes(4, "little") + pattern.literal)
    path = folder / f"patterns-{digest.hexdigest()[:32]}.hsdb"
    stored = _load(path)
    if stored is not None:
        return stored
    database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    single = hyperscan.HS_FLAG_SINGLEMATCH if once else 0
    database.compile(
        expressions=[_expression(pattern.literal) for pattern in patterns],
        ids=list(range(len(patterns))),
        elements=len(patterns),
        flags=[(hyperscan.HS_FLAG_CASELESS if pattern.nocase else 0) | single for pattern in patterns],
    )
    _store(path, hyperscan.dumpb(database))
    return database


def _version() -> str:
    """What a stored database depends on beside its patterns."""
    return f"{importlib.metadata.version('hyperscan')} {platform.machine()}"


def _load(path: Path) -> Any:
    """A database from the cache; None where there is none, or not one that can be used here."""
    import hyperscan

    try:
        content = path.read_bytes()
    except OSError:
        return None
    digest, body = content[:32], content[32:]
    if hashlib.sha256(body).digest() != digest:
        return None
    try:
        database = hyperscan.loadb(body, mode=hyperscan.HS_MODE_BLOCK)
        database.scratch = hyperscan.Scratch(database)
    except Exception:
        return None
    return database


def _store(path: Path, body: bytes) -> None:
    """Put a database into the cache whole or not at all; a cache that can't be written costs time only."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    except OSError:
        return
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(hashlib.sha256(body).digest() + body)
        Path(name).replace(path)
    except OSError:
        Path(name).unlink(missing_ok=True)


@attrs.define(eq=False)
class ScanDatabase:
    """One scan class: a database, and the rules of each of its patterns (see `scanning.match_hits`)."""

    database: Any
    pattern_start: NDArray[np.int32]
    pattern_rules: NDArray[np.int32]
    last_segment: NDArray[np.int64]

    def scan(self, buffer: NDArray[np.uint8]) -> NDArray[np.uint64]:
        """Every occurrence of a pattern in the buffer, as hits."""
        hits = array("Q")
        append = hits.append

        def found(pattern: int, _start: int, end: int, _flags: int, _context: object) -> None:
            append(end << HIT_SHIFT | pattern)

        self.database.scan(buffer, match_event_handler=found)
        return np.frombuffer(hits, np.uint64) if hits else np.empty(0, np.uint64)


class Prefilter:
    """The databases of a rule set. Scan class c (1, 2, ...) is `databases[c - 1]`."""

    def __init__(self, rules: Sequence[Rule], patterns: Sequence[Pattern | None]) -> None:
        self.databases: list[ScanDatabase] = []
        self.pattern_count = len({pattern for pattern in patterns if pattern is not None})
        self._patterns = patterns
        self._known: dict[frozenset[Pattern], int] = {}
        streams = [number for number, rule in enumerate(rules) if rule.in_streams]
        self._rules = rules
        self.classes = ScanClasses(
            stream=(
                self._class(number for number in streams if rules[number].flow.direction in (None, 0)),
                self._class(number for number in streams if rules[number].flow.direction in (None, 1)),
            ),
            packet=self._class(number for number, rule in enumerate(rules) if rule.in_packets or rule.in_streams),
            datagram=self._class(number for number, rule in enumerate(rules) if rule.in_datagrams),
        )

    def _class(self, numbers: Iterable[int]) -> int:
        wanted = frozenset(pattern for number in numbers if (pattern := self._patterns[number]) is not None)
        if not wanted:
            return 0
        known = self._known.get(wanted)
        if known is not None:
            return known
        ordered = sorted(wanted, key=lambda pattern: (pattern.literal, pattern.nocase))
        places = {pattern: place for place, pattern in enumerate(ordered)}
        rules: list[list[int]] = [[] for _ in ordered]
        for number, pattern in enumerate(self._patterns):
            if pattern in places:
                rules[places[pattern]].append(number)
        start = np.zeros(len(ordered) + 1, np.int32)
        start[1:] = np.cumsum([len(numbers) for numbers in rules])
        self.databases.append(
            ScanDatabase(
                compile_patterns(ordered),
                start,
                np.array([number for numbers in rules for number in numbers], np.int32),
                np.full(len(ordered), -1, np.int64),
            )
        )
        self._known[wanted] = len(self.databases)
        return len(self.databases)
