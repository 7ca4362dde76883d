"""Where what takes time to make is kept between runs."""

import os
import tempfile
from pathlib import Path


def cache_folder() -> Path:
    """The cache's folder, made if need be: `$FLOWSHUNT_CACHE`, `$XDG_CACHE_HOME/flowshunt`, or `~/.cache/flowshunt`.

    Where that can't be written: a folder of this user in the system's temporary one.
    """
    chosen = os.environ.get("FLOWSHUNT_CACHE")
    base = Path(chosen) if chosen else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "flowshunt"
    try:
        base.mkdir(parents=True, exist_ok=True)
        if os.access(base, os.W_OK):
            return base
    except OSError:
        pass
    return Path(tempfile.gettempdir()) / f"flowshunt-{os.getuid()}"
