"""Map contents as JSON, both ways.

    {"stats": {"0": 5, "0x01000000": "0x0500000000000000"}, "progs": {"0": "other_program"}, "queue": [1, 2]}

A key or value is a number (little-endian, of the map's size), a text "0x..." of exactly its bytes, or a list of byte
values. Queues, stacks and bloom filters take a list. A program array takes names of the object's programs; an array or
hash of maps takes, for each key, the contents of an inner map.
"""

import json
import struct
from collections.abc import Callable, Mapping
from typing import Any, Final

from flowshunt.errors import InputError
from flowshunt_ebpf.cli.source import read_file
from flowshunt_ebpf.maps.arrays import MapArrayMap, ProgramArrayMap
from flowshunt_ebpf.maps.create import create
from flowshunt_ebpf.maps.map import Map
from flowshunt_ebpf.maps.rings import RingMap
from flowshunt_ebpf.maps.tables import BloomMap, MapHashMap, QueueMap

_MOST_SHOWN: Final = 100


def read_contents(file: str) -> dict[str, Any]:
    """Read contents from a file. Raises InputError, with line and column."""
    try:
        contents = json.loads(read_file(file, "give a JSON file with the maps' contents").decode())
    except RecursionError:
        raise InputError("is nested too deeply", file, 'such as {"map": {"0": 1}}') from None
    except ValueError as error:
        raise InputError(f"no JSON: {error}", file, 'such as {"map": {"0": 1}}') from None
    if not isinstance(contents, dict):
        raise InputError("no JSON object", file, 'such as {"map": {"0": 1}}')
    return contents


def packed(given: Any, size: int, where: str) -> bytes:
    """The bytes that a JSON value stands for. Raises InputError."""
    if isinstance(given, str) and not given.startswith("0x"):
        given = _number(given, where)
    if isinstance(given, bool) or not isinstance(given, int | str | list):
        raise InputError(f"{_quoted(given)} stands for no bytes", where, 'give a number, "0x..." or a list of bytes')
    try:
        if isinstance(given, int):
            return (
                (given & ((1 << 8 * size) - 1)).to_bytes(size, "little")
                if given < 0
                else given.to_bytes(size, "little")
            )
        found = bytes.fromhex(given[2:]) if isinstance(given, str) else bytes(given)
    except (ValueError, OverflowError, TypeError):
        raise InputError(
            f"{_quoted(given)} does not fit {size} bytes", where, 'give a number, "0x..." or a list of bytes'
        ) from None
    if len(found) != size:
        raise InputError(f"{_quoted(given)} has {len(found)} bytes", where, f"give {size}")
    return found


def _quoted(given: Any) -> str:
    """A value as a message names it: it may be as long as its file."""
    text = repr(given)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


def _number(text: str, where: str) -> int:
    try:
        return int(text, 0)
    except ValueError:
        raise InputError(f"{_quoted(text)} is no number", where, 'give a number or "0x..."') from None


def fill(maps: Mapping[str, Map], contents: Mapping[str, Any], program: Callable[[str], int]) -> None:
    """Put contents into maps; `program` gives the handle of a program by its name. Raises InputError."""
    for name, given in contents.items():
        if name not in maps:
            raise InputError(f"there is no map {name}", "map contents", f"there are: {', '.join(maps) or 'none'}")
        _fill(maps[name], given, program)


def _fill(m: Map, given: Any, program: Callable[[str], int]) -> None:
    where = f"contents of map {m.name}"
    d = m.definition
    if isinstance(m, QueueMap):
        for value in _list(given, where):
            m.push(packed(value, d.value_size, where))
        return
    if isinstance(m, RingMap):
        raise InputError("a ring's records come from programs", where, "leave it out")
    if not isinstance(given, dict):
        raise InputError("no JSON object", where, 'such as {"0": 1}')
    for key_text, value in given.items():
        key = packed(key_text, d.key_size, where)
        if isinstance(m, ProgramArrayMap):
            m.set_handle(struct.unpack("<I", key)[0], program(str(value)))
        elif isinstance(m, MapArrayMap | MapHashMap):
            if d.inner is None:
                raise InputError(
                    "the object says nothing of its inner maps", where, "give the map a definition of them"
                )
            inner = create(d.inner)
            _fill(inner, value, program)
            m.put(struct.unpack("<I", key)[0] if isinstance(m, MapArrayMap) else key, inner)  # type: ignore[arg-type]
        elif m.per_cpu and isinstance(value, list) and len(value) == m.cpus:
            m.update(key, b"".join(packed(part, d.value_size, where) for part in value))
        else:
            m.update(key, packed(value, d.value_size, where))


def _list(given: Any, where: str) -> list[Any]:
    if not isinstance(given, list):
        raise InputError("no JSON list", where, "such as [1, 2]")
    return given


Contents = dict[bytes, bytes] | list[bytes]
"""Keys and values; a queue's or stack's values, the oldest first."""


def snapshot(maps: Mapping[str, Map]) -> dict[str, Contents]:
    """What is in the maps now, to see later what changed."""
    found: dict[str, Contents] = {}
    for name, m in maps.items():
        if isinstance(m, MapArrayMap | MapHashMap):
            named = {id(other) for other in maps.values()}
            held: Mapping[Any, Map] = m.inner
            found |= snapshot(
                {f"{name}[{_shown(key)}]": inner for key, inner in held.items() if id(inner) not in named}
            )
        if isinstance(m, RingMap | ProgramArrayMap | MapArrayMap | MapHashMap | BloomMap):
            continue
        if isinstance(m, QueueMap):
            found[name] = m.values()
        else:
            found[name] = dict(m.items())
    return found


def _shown(key: int | bytes) -> str:
    return str(key) if isinstance(key, int) else f"0x{key.hex()}"


def changes(before: Mapping[str, Contents], after: Mapping[str, Contents]) -> dict[str, Any]:
    """The entries that differ, as JSON: the new value, or null for one that is gone; all values of a queue or stack."""
    changed: dict[str, Any] = {}
    for name, entries in after.items():
        old = before[name]
        if isinstance(entries, list) or isinstance(old, list):
            if entries != old:
                changed[name] = [f"0x{value.hex()}" for value in entries]
            continue
        differing = {f"0x{k.hex()}": f"0x{v.hex()}" for k, v in entries.items() if old.get(k) != v}
        gone = {f"0x{k.hex()}": None for k in old if k not in entries}
        if differing or gone:
            changed[name] = {**differing, **gone}
    return changed
