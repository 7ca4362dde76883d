"""Where what takes time to make is kept between runs.

Machine code is loaded from it, so it must be a folder that nobody else can write to.
"""

import os
import stat
import tempfile
import warnings
from contextlib import suppress
from functools import cache
from pathlib import Path

from flowshunt.errors import FlowshuntWarning


def cache_folder() -> Path:
    """The cache's folder, made if need be: `$FLOWSHUNT_CACHE`, `$XDG_CACHE_HOME/flowshunt`, or `~/.cache/flowshunt`.

    Where that can't be written, or others can write to it (then with a warning): a folder of this user in the system's
    temporary one.
    """
    chosen = os.environ.get("FLOWSHUNT_CACHE")
    with suppress(OSError, RuntimeError):  # RuntimeError: a user without a home
        base = (
            Path(chosen) if chosen else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "flowshunt"
        )
        base.mkdir(mode=0o700, parents=True, exist_ok=True)
        if os.access(base, os.W_OK | os.X_OK):
            if is_private(base.stat()):
                return base
            warnings.warn(
                f"{base}: others can write to this cache, so no code is loaded from it "
                "(chmod go-w and chown it, or set FLOWSHUNT_CACHE to a folder of your own)",
                FlowshuntWarning,
                stacklevel=2,
            )
    return _temporary_folder()


def is_private(status: os.stat_result) -> bool:
    """Whether a file or folder is this user's, or root's, and nobody else may write to it."""
    return status.st_uid in (os.getuid(), 0) and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


@cache
def _temporary_folder() -> Path:
    """A folder that nobody else can write to: this user's, or a new one."""
    own = Path(tempfile.gettempdir()) / f"flowshunt-{os.getuid()}"
    with suppress(OSError):
        own.mkdir(mode=0o700, exist_ok=True)
        status = own.lstat()
        if stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and is_private(status):
            return own
    return Path(tempfile.mkdtemp(prefix="flowshunt-"))
