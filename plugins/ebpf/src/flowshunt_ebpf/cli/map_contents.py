"""Map contents as JSON, both ways.

    {"stats": {"0": 5, "0x01000000": "0x0500000000000000"}, "progs": {"0": "other_program"}, "queue": [1, 2]}

A key or value is a number (little-endian, of the map's size), a text "0x..." of exactly its bytes, or a list of byte
values. Queues, stacks and bloom filters take a list. A program array takes names of the object's programs; an array or
hash of maps takes, for each key, the contents of an inner map.
"""

import json
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from flowshunt.errors import InputError
from flowshunt_ebpf.maps.arrays import MapArrayMap, ProgramArrayMap
from flowshunt_ebpf.maps.create import create
from flowshunt_ebpf.maps.map import Map
from flowshunt_ebpf.maps.rings import RingMap
from flowshunt_ebpf.maps.tables import BloomMap, MapHashMap, QueueMap


def read_contents(file: str) -> dict[str, Any]:
    """Read contents from a file. Raises InputError, with line and column."""
    try:
        contents = json.loads(Path(file).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(error.strerror or "can't be read", file, "check its path") from None
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
        raise InputError(f"{given!r} stands for no bytes", where, 'give a number, "0x..." or a list of bytes')
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
            f"{given!r} does not fit {size} bytes", where, 'give a number, "0x..." or a list of bytes'
        ) from None
    if len(found) != size:
        raise InputError(f"{given!r} has {len(found)} bytes", where, f"give {size}")
    return found


def _number(text: str, where: str) -> int:
    try:
        return int(text, 0)
    except ValueError:
        raise InputError(f"{text!r} is no number", where, 'give a number or "0x..."') from None


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


def snapshot(maps: Mapping[str, Map]) -> dict[str, dict[bytes, bytes]]:
    """What is in the maps now, to see later what changed."""
    found: dict[str, dict[bytes, bytes]] = {}
    for name, m in maps.items():
        if isinstance(m, RingMap | ProgramArrayMap | MapArrayMap | MapHashMap | BloomMap):
            continue
        if isinstance(m, QueueMap):
            found[name] = {b"": bytes(m.values_view), b"len": struct.pack("<Q", len(m))}
        else:
            found[name] = dict(m.items())
    return found


def changes(before: Mapping[str, dict[bytes, bytes]], after: Mapping[str, dict[bytes, bytes]]) -> dict[str, Any]:
    """The entries that differ, as JSON: the new value, or null for one that is gone."""
    changed: dict[str, Any] = {}
    for name, entries in after.items():
        old = before[name]
        differing = {f"0x{k.hex()}": f"0x{v.hex()}" for k, v in entries.items() if old.get(k) != v}
        gone = {f"0x{k.hex()}": None for k in old if k not in entries}
        if differing or gone:
            changed[name] = {**differing, **gone}
    return changed
