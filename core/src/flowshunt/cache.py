"""Where what takes time to make is kept between runs."""

import os
import stat
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path


def cache_folder() -> Path:
    """The cache's folder, made if need be: `$FLOWSHUNT_CACHE`, `$XDG_CACHE_HOME/flowshunt`, or `~/.cache/flowshunt`.

    Where that can't be written: a folder of this user in the system's temporary one.
    """
    chosen = os.environ.get("FLOWSHUNT_CACHE")
    with suppress(OSError, RuntimeError):  # RuntimeError: a user without a home
        base = (
            Path(chosen) if chosen else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "flowshunt"
        )
        base.mkdir(parents=True, exist_ok=True)
        if os.access(base, os.W_OK | os.X_OK):
            return base
    return _temporary_folder()


@cache
def _temporary_folder() -> Path:
    """A folder that nobody else can write to, since code is loaded from it: this user's, or a new one."""
    own = Path(tempfile.gettempdir()) / f"flowshunt-{os.getuid()}"
    with suppress(OSError):
        own.mkdir(mode=0o700, exist_ok=True)
        status = own.lstat()
        if stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o022:
            return own
    return Path(tempfile.mkdtemp(prefix="flowshunt-"))
