"""A configuration file (suricata.yaml) as a tree, with includes and settings from the command line, read by key."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from flowshunt.errors import InputError
from flowshunt_ids.rules.text_files import read_text

MAX_CONFIG = 4 * 1024 * 1024
"""The largest configuration file in bytes."""
MAX_INCLUDES = 64
"""The most files that are included in all."""
MAX_SIZE = 1 << 48
"""What larger sizes in bytes come down to: more than any machine has, and sums of them stay in 64 bits."""
MAX_UNKNOWN = 24
"""How many keys that are not understood are named; the others are counted."""
_MAX_NODES = 20_000

_UNITS = {"": 1, "b": 1, "kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}
_SIZE = re.compile(r"(\d{1,15})(?:\.(\d+))?\s*([kmg]?i?b?)", re.IGNORECASE)
_TRUE = frozenset({"1", "yes", "true", "on"})
_FALSE = frozenset({"0", "no", "false", "off"})


class _Loading:
    """One configuration with the files that it includes."""

    def __init__(self) -> None:
        self._left = MAX_INCLUDES

    def read(self, path: Path, outer: tuple[Path, ...] = ()) -> dict[str, Any]:
        """A file's tree. Raises `InputError`."""
        import yaml

        if path in outer:
            raise InputError("includes itself", str(path), "take out the include that leads back here")
        if self._left < 0:
            raise InputError(f"more than {MAX_INCLUDES} files are included", str(path))
        self._left -= 1

        class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
            """Takes `!include FILE` too."""

        def include(loader: Any, node: Any) -> Any:
            return self.read(path.parent / str(loader.construct_scalar(node)), (*outer, path))

        Loader.add_constructor("!include", include)
        text = read_text(path, "configuration", MAX_CONFIG)
        try:
            tree = yaml.load(text, Loader=Loader)
        except yaml.YAMLError as problem:
            mark = getattr(problem, "problem_mark", None)
            place = f"{path}:{mark.line + 1}" if mark is not None else str(path)
            raise InputError(f"not valid YAML: {getattr(problem, 'problem', None) or problem}", place) from None
        except (RecursionError, ValueError, TypeError, OverflowError) as problem:
            raise InputError(f"not usable as a configuration: {type(problem).__name__}", str(path)) from None
        if tree is None:
            return {}
        if not isinstance(tree, dict):
            raise InputError("the configuration is not a mapping of keys to values", str(path))
        return self._included(tree, path, outer)

    def _included(self, tree: dict[str, Any], path: Path, outer: tuple[Path, ...]) -> dict[str, Any]:
        """The tree with what its `include` key names put into it; that goes before what stands in the file."""
        names = tree.pop("include", None)
        if names is None:
            return tree
        names = names if isinstance(names, list) else [names]
        if not all(isinstance(name, str) for name in names):
            raise InputError("include: not a file name or a list of such", str(path))
        for name in names:
            tree.update(self.read(path.parent / name, (*outer, path)))
        return tree


def read_tree(path: Path) -> dict[str, Any]:
    """A configuration file's tree, with the files that it includes. Raises `InputError`."""
    return _Loading().read(path)


def put(tree: dict[str, Any], key: str, value: str) -> None:
    """Put a value at a dotted key, as Suricata's `--set` does; numbers are places in lists."""
    *folders, name = key.split(".")
    place: Any = tree
    for folder in folders:
        inner = _child(place, folder)
        if not isinstance(inner, dict | list):
            inner = {}
            if isinstance(place, list):
                raise InputError(f"{key}: the list has no entry {folder!r} that holds keys", "--set")
            place[folder] = inner
        place = inner
    if isinstance(place, list):
        if not name.isdigit() or int(name) >= len(place):
            raise InputError(f"{key}: {name!r} is not a place in the list of {len(place)} entries", "--set")
        place[int(name)] = value
    else:
        place[name] = value


def _child(place: Any, name: str) -> Any:
    if isinstance(place, Mapping):
        found = place.get(name)
        return found if found is not None or not name.isdigit() else place.get(int(name))
    if isinstance(place, list) and name.isdigit() and int(name) < len(place):
        return place[int(name)]
    return None


class Configuration:
    """A configuration's values by dotted key, and which keys nobody asked for. `where`: for messages."""

    def __init__(self, tree: Mapping[str, Any], where: str) -> None:
        self._tree = tree
        self.where = where
        self._asked: set[str] = set()
        self._parts: set[str] = set()

    def value(self, key: str) -> Any:
        """The value at a key as it stands; None where there is none."""
        self._asked.add(key)
        place: Any = self._tree
        for part in key.split("."):
            place = _child(place, part)
        return place

    def part(self, key: str) -> Mapping[str, Any]:
        """The mapping at a key, all of which counts as asked for; empty where there is none. Raises `InputError`."""
        value = self.value(key)
        self._parts.add(key)
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            raise InputError(f"{key}: not a mapping of keys to values", self.where)
        return value

    def items(self, key: str) -> Sequence[Any]:
        """The list at a key, all of which counts as asked for. Raises `InputError`."""
        value = self.value(key)
        self._parts.add(key)
        if value is None:
            return ()
        if not isinstance(value, list):
            raise InputError(f"{key}: not a list", self.where)
        return value

    def text(self, key: str, default: str) -> str:
        """A text. Raises `InputError`."""
        value = self.value(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise InputError(f"{key}: not a text", self.where)
        return str(value)

    def flag(self, key: str, default: bool) -> bool:
        """Yes or no. Raises `InputError`."""
        value = self.value(key)
        if value is None:
            return default
        text = str(value).lower()
        if text not in _TRUE | _FALSE:
            raise InputError(f"{key}: {value!r} is neither yes nor no", self.where)
        return text in _TRUE

    def size(self, key: str, default: int) -> int:
        """A number of bytes, with a unit or without. Raises `InputError`."""
        value = self.value(key)
        return default if value is None else parse_size(value, key, self.where)

    def number(self, key: str, default: int, maximum: int = 1 << 31) -> int:
        """A whole number, `maximum` at most. Raises `InputError`."""
        value = self.value(key)
        if value is None:
            return default
        text = str(value).strip()
        if isinstance(value, bool) or not text.isascii() or not text.isdigit() or len(text) > 15:
            raise InputError(f"{key}: {value!r} is not a number", self.where)
        return min(int(text), maximum)

    def group(self, key: str) -> dict[str, str] | None:
        """A mapping of names to lists of addresses or ports; None where there is none. Raises `InputError`."""
        value = self.value(key)
        self._parts.add(key)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise InputError(f"{key}: not a mapping of names to lists", self.where)
        return {str(name): list_text(entry, f"{key}.{name}", self.where) for name, entry in value.items()}

    def unasked(self) -> list[str]:
        """The keys that nobody asked for, each at its highest place, in the file's order."""
        found: list[str] = []
        nodes = 0
        stack: list[Iterator[tuple[str, Any]]] = [_entries("", self._tree)]
        while stack and nodes < _MAX_NODES:
            entry = next(stack[-1], None)
            if entry is None:
                stack.pop()
                continue
            nodes += 1
            key, value = entry
            if key in self._parts or key in self._asked:
                continue
            if isinstance(value, Mapping | list) and any(asked.startswith(f"{key}.") for asked in self._asked):
                stack.append(_entries(f"{key}.", value))
            else:
                found.append(key)
        return found


def _entries(prefix: str, place: Mapping[str, Any] | list[Any]) -> Iterator[tuple[str, Any]]:
    pairs = place.items() if isinstance(place, Mapping) else enumerate(place)
    return ((f"{prefix}{name}", value) for name, value in pairs)


def parse_size(value: Any, key: str, where: str) -> int:
    """A number of bytes such as 2560, 64kb or 1mb. Raises `InputError`."""
    found = _SIZE.fullmatch(str(value).strip()) if not isinstance(value, bool) else None
    unit = _UNITS.get(found[3].lower()) if found else None
    if found is None or unit is None:
        raise InputError(f"{key}: {value!r} is not a number of bytes", where, "such as 2560, 64kb, 1mb")
    return min(int(float(f"{found[1]}.{found[2] or 0}") * unit), MAX_SIZE)


def list_text(entry: Any, key: str, where: str) -> str:
    """A list of addresses or ports in the form that rules have it. Raises `InputError`."""
    if isinstance(entry, list) and all(isinstance(item, str | int) and not isinstance(item, bool) for item in entry):
        return "[" + ",".join(str(item) for item in entry) + "]"
    if isinstance(entry, str | int) and not isinstance(entry, bool):
        return str(entry)
    raise InputError(f"{key}: not a list of addresses or ports", where)


def say_unasked(keys: Sequence[str], where: str) -> list[str]:
    """One line that names the keys without effect; none where there are no such keys."""
    if not keys:
        return []
    rest = f" and {len(keys) - MAX_UNKNOWN} more" if len(keys) > MAX_UNKNOWN else ""
    return [f"{where}: not used here: {', '.join(keys[:MAX_UNKNOWN])}{rest}"]
