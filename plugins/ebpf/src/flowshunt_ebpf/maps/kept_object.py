"""Objects with native code as they are kept in the cache: whole, of this name, and written by nobody else.

A kept object is the SHA-256 of its name and bytes, then its bytes. The sum tells truncation and damage, and the owner
and mode of the file and its folder tell who could have written another one: neither is ever executed.
"""

import hashlib
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

from flowshunt.cache import is_private

_MOST_BYTES: Final = 1 << 24


def keep(file: Path, data: bytes) -> None:
    """Keep an object; it appears whole or not at all. Raises OSError where that does not work."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    number, part = tempfile.mkstemp(dir=file.parent, prefix=f"{file.stem}.")
    try:
        with os.fdopen(number, "wb") as stream:
            stream.write(_sum(file, data) + data)
        Path(part).replace(file)
    except BaseException:
        with suppress(OSError):
            Path(part).unlink()
        raise


def kept(file: Path) -> bytes | None:
    """The object in a file; None where there is none, it is damaged, or others can write it."""
    try:
        with open(file, "rb", opener=_open_regular) as stream:
            if not (is_private(os.fstat(stream.fileno())) and is_private(file.parent.stat())):
                return None
            content = stream.read(_MOST_BYTES)
    except OSError:
        return None
    size = hashlib.sha256().digest_size
    data = content[size:]
    return data if data and content[:size] == _sum(file, data) else None


def _open_regular(path: str, flags: int) -> int:
    """Open a file without waiting for anybody, should it be a pipe, and without following a link."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW)


def _sum(file: Path, data: bytes) -> bytes:
    return hashlib.sha256(file.name.encode() + b"\0" + data).digest()
