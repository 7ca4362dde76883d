"""Files that are kept between runs and count only if this user sealed them.

What is kept is read as data, never executed, and it counts only if its seal is right: a keyed hash whose key lies
beside it in a file that only the user can read. Both lie in a folder of the cache's, which must be the user's own and
closed to others (`flowshunt.cache`); whoever can read and write there as the user can change flowshunt itself. What is
damaged, cut short or put there by somebody without the key is not there.
"""

import hashlib
import hmac
import os
import secrets
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

from flowshunt.cache import cache_folder, is_private

_KEY_BYTES: Final = 32
_SEAL_BYTES: Final = 32
_MOST_BYTES: Final = 64 << 20


def read_sealed(kind: str, name: str) -> bytes | None:
    """What was kept by a name (of a file) among things of a kind (a folder's name); None: nothing that counts."""
    folder = _folder(kind)
    key = _key(folder) if folder is not None else None
    if folder is None or key is None:
        return None
    try:
        with (folder / name).open("rb") as held:
            data = held.read(_MOST_BYTES)
    except OSError:
        return None
    seal, body = data[:_SEAL_BYTES], data[_SEAL_BYTES:]
    return body if hmac.compare_digest(seal, _seal(key, name, body)) else None


def write_sealed(kind: str, name: str, body: bytes) -> None:
    """Keep something. Where that can't be, nothing is kept."""
    folder = _folder(kind)
    key = _key(folder) if folder is not None else None
    if folder is None or key is None:
        return
    with suppress(OSError):
        _put(folder / name, _seal(key, name, body) + body)


def _key(folder: Path) -> bytes | None:
    """The secret that a folder's files are sealed with, made if need be; None where there can't be one."""
    file = folder / "key"
    with suppress(OSError):
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW)
        with os.fdopen(descriptor, "rb") as held:
            status = os.fstat(held.fileno())
            key = held.read(_KEY_BYTES + 1)
        if is_private(status) and not status.st_mode & 0o077 and len(key) == _KEY_BYTES:
            return key
        file.unlink()
    with suppress(OSError):
        key = secrets.token_bytes(_KEY_BYTES)
        _put(file, key)
        return file.read_bytes() if file.stat().st_size == _KEY_BYTES else None
    return None


def _put(file: Path, data: bytes) -> None:
    """Write a file as a whole, readable by its owner alone."""
    descriptor, path = tempfile.mkstemp(dir=file.parent)
    try:
        with os.fdopen(descriptor, "wb") as held:
            held.write(data)
        Path(path).replace(file)
    except OSError:
        with suppress(OSError):
            Path(path).unlink()
        raise


def _folder(kind: str) -> Path | None:
    with suppress(OSError):
        folder = cache_folder() / kind
        folder.mkdir(mode=0o700, exist_ok=True)
        if is_private(folder.lstat()) and not folder.is_symlink():
            return folder
    return None


def _seal(key: bytes, name: str, data: bytes) -> bytes:
    return hmac.new(key, name.encode() + b"\0" + data, hashlib.sha256).digest()
