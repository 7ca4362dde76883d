"""Reading the text files that rules and settings are made of."""

import stat
from pathlib import Path

from flowshunt.errors import InputError

MAX_FILE = 512 * 1024 * 1024
"""The largest file in bytes."""


def read_text(path: Path, what: str, limit: int = MAX_FILE) -> str:
    """A file's text; bytes that are not UTF-8 come back as they were. Raises `InputError`."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise InputError(f"not a file, so not a {what}", str(path), "name a file")
        if status.st_size > limit:
            raise InputError(f"{what} of {status.st_size} bytes, more than {limit}", str(path), "split it")
        with path.open("rb") as file:
            return file.read(limit).decode("utf-8", "surrogateescape")
    except (OSError, ValueError) as problem:
        raise InputError(
            f"can't read the {what}: {getattr(problem, 'strerror', None) or problem}",
            str(path),
            "check the path and its permissions",
        ) from None
