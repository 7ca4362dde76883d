"""Files that transactions carry: how they grow, and the buffers and conditions on them."""

import hashlib
import re
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from flowshunt_ids.app.contract import TO_CLIENT, Buffer, ConditionKind, File
from flowshunt_ids.app.magic import describe

DIGESTS = ("md5", "sha1", "sha256")
MAX_NAME = 8192
"""The longest name of a file that is kept, in bytes."""
INSPECTED_OPEN = 32768
"""Bytes of a file from which on it is looked at though it is not whole (`content-inspect-min-size`)."""
MAX_FILES = 256
"""The most files of one transaction that are kept."""


@attrs.frozen
class FileLimits:
    """Limits in bytes. keep: what is kept of a file for matching; depth: what of it is hashed and counted (0: all)."""

    keep: int = 4096
    depth: int = 0


def open_file(transaction: Any, name: bytes, direction: int, wants: frozenset[str]) -> File | None:
    """Begin a file of a transaction; None where it has too many. wants: see `Context`."""
    if len(transaction.files) >= MAX_FILES:
        return None
    file = File(name[:MAX_NAME], direction)
    for digest in DIGESTS:
        if digest in wants:
            file.hashes[digest] = hashlib.new(digest, usedforsecurity=False)
    transaction.files.append(file)
    transaction.changed[direction] = True
    return file


def grow(file: File, data: bytes, limits: FileLimits) -> None:
    """Add bytes to a file."""
    file.size += len(data)
    room = limits.keep - len(file.data)
    if room > 0:
        file.data += data[:room]
    for digest in file.hashes.values():
        digest.update(data)


def close(file: File, *, whole: bool) -> None:
    """End a file."""
    if file.state != "open":
        return
    file.state = "closed" if whole else "truncated"
    if whole:
        file.digests = {name: digest.hexdigest() for name, digest in file.hashes.items()}
    file.hashes = {}


def _here(transaction: Any, direction: int) -> list[File]:
    return [file for file in transaction.files if file.direction == direction]


def _names(transaction: Any, direction: int) -> Sequence[bytes] | None:
    return [file.name for file in _here(transaction, direction) if file.name] or None


def _magics(transaction: Any, direction: int) -> Sequence[bytes] | None:
    return [magic(file).encode() for file in _here(transaction, direction) if file.data] or None


def magic(file: File) -> str:
    """What a file seems to be, in the words of libmagic where they are known here."""
    if file.magic is None or (file.magic == "data" and file.state == "open"):
        file.magic = describe(bytes(file.data))
    return file.magic


def file_data(transaction: Any, direction: int) -> Sequence[bytes] | None:
    """The data of files: of an HTTP response its body, of anything else what is kept of the files."""
    bodies = getattr(transaction, "bodies", None)
    if bodies is not None and direction == TO_CLIENT:
        body = bodies[TO_CLIENT]
        data = body.window(transaction.progress[TO_CLIENT] > 3) if body is not None else None
        return None if data is None else [data]
    found = [
        bytes(file.data)
        for file in _here(transaction, direction)
        if file.data and (file.state != "open" or len(file.data) >= INSPECTED_OPEN)
    ]
    return found or None


@attrs.frozen
class FileTest:
    """One condition on a file. kind: name, extension, magic, size, digest or store; value: what it is compared with."""

    kind: str
    value: Any = None
    negated: bool = False


def _name(file: File, value: bytes) -> bool | None:
    return value in file.name.lower()


def _extension(file: File, value: bytes) -> bool | None:
    return file.name.lower().rpartition(b".")[2] == value and b"." in file.name


def _magic(file: File, value: bytes) -> bool | None:
    if not file.data:
        return None
    return value in magic(file).lower().encode()


def _size(file: File, value: tuple[str, int, int]) -> bool | None:
    operator, low, high = value
    if operator == ">":
        return True if file.size > low else None if file.state == "open" else False
    if file.state != "closed":
        return None if file.state == "open" else False
    if operator == "<":
        return file.size < low
    return low < file.size < high if operator == "<>" else file.size == low


def _digest(file: File, value: tuple[str, frozenset[str]]) -> bool | None:
    name, known = value
    if file.state == "open":
        return None
    return file.digests[name] in known if name in file.digests else False


def _store(file: File, _value: Any) -> bool | None:
    file.stored = True
    return True


_TESTS: dict[str, Callable[[File, Any], bool | None]] = {
    "name": _name,
    "extension": _extension,
    "magic": _magic,
    "size": _size,
    "digest": _digest,
    "store": _store,
}


def judge_file(transaction: Any, direction: int, tests: Sequence[FileTest]) -> bool | None:
    """Whether some file of a direction meets all tests that did not before; None: not yet."""
    found = False
    for file in _here(transaction, direction):
        if id(tests) in file.met:
            continue
        for test in tests:
            held = _TESTS[test.kind](file, test.value)
            if held is None or held == test.negated:
                break
        else:
            file.met.add(id(tests))
            found = True
    return True if found else None


_PROTOCOLS = ("http", "smtp", "ftp-data", "nfs", "smb", "http2")

BUFFERS = (
    Buffer(
        "file.data",
        _PROTOCOLS,
        file_data,
        (3, 3),
        aliases=("file_data",),
        multiple=True,
        streaming=True,
        chained=False,
        others={"smtp": (1, None), "ftp-data": (1, 1)},
    ),
    Buffer(
        "file.name",
        _PROTOCOLS,
        _names,
        (3, 3),
        aliases=("file_name",),
        multiple=True,
        streaming=True,
        chained=False,
        others={"smtp": (1, None), "ftp-data": (1, 1)},
    ),
    Buffer(
        "file.magic",
        _PROTOCOLS,
        _magics,
        (3, 3),
        aliases=("file_magic",),
        multiple=True,
        streaming=True,
        chained=False,
        others={"smtp": (1, None), "ftp-data": (1, 1)},
    ),
)
CONDITIONS = (ConditionKind("file", _PROTOCOLS, (0, 0), judge_file, repeats=True),)

SIZE = re.compile(r"\s*(?:([<>]?)\s*(\d{1,18})|(\d{1,18})\s*<>\s*(\d{1,18}))\s*")
"""The value of `filesize`."""
