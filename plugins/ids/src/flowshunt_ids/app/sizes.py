"""Sizes in a configuration: numbers with units."""

import re
from typing import Any

_SIZE = re.compile(r"\s*(\d{1,15})\s*([kmg]?)i?b?\s*", re.IGNORECASE)
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def size_of(value: Any, default: int) -> int:
    """A size in bytes ("100kb"); the default where it is none."""
    if isinstance(value, int) and not isinstance(value, bool):
        return max(0, value)
    found = _SIZE.fullmatch(value) if isinstance(value, str) else None
    return int(found[1]) * _UNITS[found[2].lower()] if found else default
