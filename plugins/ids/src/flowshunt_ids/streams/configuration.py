"""The stream options of a run's configuration, as kernels take them."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowshunt.errors import InputError
from flowshunt_ids.streams import checks

_URGENT = {"inline": checks.URGENT_INLINE, "oob": checks.URGENT_OUT_OF_BAND, "gap": checks.URGENT_GAP}
_TRUE = ("1", "yes", "true", "on")


def stream_settings(settings: Any, *, compare: bool = False) -> NDArray[np.int64]:
    """int64[SETTINGS_SIZE] for `flowshunt_ids.settings.Settings`; options not given have Suricata's defaults.

    compare: whether a rule asks for overlaps that differ, so that they are compared. Raises InputError.
    """
    made = np.zeros(checks.SETTINGS_SIZE, np.int64)
    stream: Mapping[str, Any] = settings.stream
    made[checks.CHUNK_TO_SERVER] = settings.chunk_to_server
    made[checks.CHUNK_TO_CLIENT] = settings.chunk_to_client
    made[checks.DEPTH] = settings.depth
    made[checks.MIDSTREAM] = settings.midstream
    made[checks.ASYNC] = settings.async_oneside
    made[checks.LIBERAL_STAMPS] = _flag(stream, "liberal-timestamps", True)
    made[checks.MAX_SYNS] = _count(stream, "max-syn-queued", 10)
    made[checks.MAX_ANSWERS] = _count(stream, "max-synack-queued", 5)
    reassembly = stream.get("reassembly")
    reassembly = reassembly if isinstance(reassembly, Mapping) else {}
    made[checks.COMPARE_OVERLAPS] = compare or _flag(reassembly, "check-overlap-different-data", False)
    urgent = reassembly.get("urgent")
    policy = str(urgent.get("policy", "inline")).lower() if isinstance(urgent, Mapping) else "inline"
    if policy not in _URGENT:
        raise InputError(
            f"stream.reassembly.urgent.policy: {policy!r} is not supported", "configuration", "inline, oob or gap"
        )
    made[checks.URGENT_POLICY] = _URGENT[policy]
    return made


def _flag(part: Mapping[str, Any], key: str, default: bool) -> bool:
    value = part.get(key)
    return default if value is None else str(value).lower() in _TRUE


def _count(part: Mapping[str, Any], key: str, default: int) -> int:
    """A number from 0 to 255."""
    text = str(part.get(key, default))
    if not text.isdecimal() or int(text) > 255:
        raise InputError(f"stream.{key}: {text!r} is not a number up to 255", "configuration")
    return int(text)
