"""Loaded rules on disk, by the content of what they were made from: read back in a fraction of the time.

A stored rule set is JSON: rows for objects of a fixed set of classes, each after those that it refers to. What is read
back is data alone, whoever wrote it; a checksum tells damage, and damaged files are made anew.
"""

import enum
import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from flowshunt.cache import cache_folder
from flowshunt.engine import RuleProblem, Signature
from flowshunt_ids.rules import rule as model
from flowshunt_ids.rules import variables as sets
from flowshunt_ids.rules.language import Language

_FORMAT = b"flowshunt rules 1\0"
_DIGEST = hashlib.sha256().digest_size

_CLASSES: Mapping[str, type[Any]] = {
    each.__name__: each
    for each in (
        *(value for value in vars(model).values() if isinstance(value, type) and attrs.has(value)),
        sets.Addresses,
        sets.Ports,
        Signature,
        RuleProblem,
    )
}
_ENUMS: Mapping[str, type[enum.Enum]] = {
    each.__name__: each for each in vars(model).values() if isinstance(each, type) and issubclass(each, enum.Enum)
}
_BYTES, _TUPLE, _LIST, _SET, _OBJECT, _ENUM, _MAPPING = range(7)


_PLAIN = frozenset({type(None), bool, int, str, float})


class _Writer:
    """Objects into rows; equal rows are written once."""

    def __init__(self) -> None:
        self.rows: list[list[Any]] = []
        self.shapes: list[tuple[str, tuple[str, ...]]] = []
        self._shapes: dict[tuple[str, tuple[str, ...]], int] = {}
        self._known: dict[str, int] = {}
        self._seen: dict[int, Any] = {}
        self._fields: dict[type[Any], list[tuple[str, Any]]] = {}

    def value(self, value: Any) -> Any:
        """A value in JSON. Raises `TypeError` for one of another kind than those."""
        kind = type(value)
        if kind in _PLAIN:
            return value
        if kind is tuple:
            return [_TUPLE, *map(self.value, value)]
        if kind is bytes:
            return [_BYTES, value.decode("latin-1")]
        if _CLASSES.get(kind.__name__) is kind:
            # What is dumped lives on until all of it is, so that no number is used twice.
            seen = self._seen.get(id(value))
            if seen is None:
                seen = self._seen[id(value)] = [_OBJECT, self._object(value, kind)]
            return seen
        if isinstance(value, enum.Enum):
            return [_ENUM, kind.__name__, value.name]
        if kind is list:
            return [_LIST, *map(self.value, value)]
        if kind is frozenset:
            return [_SET, *map(self.value, sorted(value))]
        if isinstance(value, Mapping):
            return [_MAPPING, *([self.value(key), self.value(inner)] for key, inner in value.items())]
        raise TypeError(kind.__name__)

    def _object(self, value: Any, kind: type[Any]) -> int:
        fields = self._fields.get(kind)
        if fields is None:
            fields = self._fields[kind] = [(field.name, _default(field)) for field in attrs.fields(kind)]
        names, row = [], [0]
        for name, default in fields:
            inner = getattr(value, name)
            if inner is not default:
                names.append(name)
                row.append(self.value(inner))
        shape = (kind.__name__, tuple(names))
        number = self._shapes.setdefault(shape, len(self.shapes))
        if number == len(self.shapes):
            self.shapes.append(shape)
        row[0] = number
        key = repr(row)
        place = self._known.get(key)
        if place is None:
            place = self._known[key] = len(self.rows)
            self.rows.append(row)
        return place


def _default(field: "attrs.Attribute[Any]") -> Any:
    """A field's default as far as it is a single object: what is that one object need not be written."""
    return object() if isinstance(field.default, attrs.Factory) else field.default  # type: ignore[arg-type]


class _Reader:
    """Rows into objects."""

    def __init__(self) -> None:
        self._made: list[Any] = []

    def rows(self, shapes: Sequence[Any], rows: Iterable[Any]) -> None:
        """Make all objects. Raises whatever comes of rows that are none."""
        kinds = [(_CLASSES[name], tuple(fields)) for name, fields in shapes]
        value, made = self.value, self._made
        for number, *values in rows:
            kind, names = kinds[number]
            made.append(kind(**dict(zip(names, map(value, values), strict=True))))

    def value(self, value: Any) -> Any:
        """A value from JSON."""
        if type(value) is not list:
            return value
        kind = value[0]
        if kind == _OBJECT:
            return self._made[value[1]]
        if kind == _TUPLE:
            return tuple(map(self.value, value[1:]))
        if kind == _BYTES:
            return value[1].encode("latin-1")
        if kind == _ENUM:
            return _ENUMS[value[1]][value[2]]
        if kind == _MAPPING:
            return {self.value(key): self.value(inner) for key, inner in value[1:]}
        if kind == _SET:
            return frozenset(map(self.value, value[1:]))
        return list(map(self.value, value[1:]))


def dump(value: Any) -> bytes:
    """A value made of rules and plain data. Raises `TypeError` where it holds something else."""
    writer = _Writer()
    root = writer.value(value)
    return json.dumps([writer.shapes, writer.rows, root], separators=(",", ":")).encode("utf-8", "surrogatepass")


def load(content: bytes) -> Any:
    """What `dump` was given. Raises `ValueError` for anything else."""
    try:
        shapes, rows, root = json.loads(content.decode("utf-8", "surrogatepass"))
        reader = _Reader()
        reader.rows(shapes, rows)
        return reader.value(root)
    except (KeyError, IndexError, TypeError, AttributeError, RecursionError, UnicodeError) as problem:
        raise ValueError(f"not a stored rule set: {problem}") from None


def fingerprint(language: Language, parts: Iterable[bytes]) -> str:
    """The name of a rule set in the cache: by what it is made from, and by the code that makes it."""
    digest = hashlib.sha256(_FORMAT)
    for path in sorted(_code(language)):
        digest.update(Path(path).read_bytes())
    names = (sorted(language.keywords), sorted(language.protocols), sorted(map(repr, language.buffers.values())))
    for part in (repr(names).encode(), *parts):
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()[:40]


def _code(language: Language) -> set[str]:
    """The files that rules are read by: this package's, and those of all keywords."""
    found = {str(path) for path in Path(__file__).parent.rglob("*.py")}
    for keyword in language.keywords.values():
        module = sys.modules.get(getattr(keyword.read, "__module__", ""))
        place = getattr(module, "__file__", None)
        if place:
            found.add(place)
    return found


def stored(name: str) -> Any:
    """A stored value of a name; None where there is none that can be used."""
    try:
        content = (cache_folder() / f"rules-{name}.json").read_bytes()
        digest, body = content[:_DIGEST], content[_DIGEST:]
        return load(body) if hashlib.sha256(body).digest() == digest else None
    except (OSError, ValueError):
        return None


def store(name: str, value: Any) -> None:
    """Put a value into the cache, whole or not at all; one that can't be written costs time only."""
    try:
        body = dump(value)
    except TypeError:
        return
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=folder, prefix="rules-")
    except OSError:
        return
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(hashlib.sha256(body).digest() + body)
        Path(temporary).replace(folder / f"rules-{name}.json")
    except OSError:
        Path(temporary).unlink(missing_ok=True)
