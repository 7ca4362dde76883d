"""How many matches of a rule become alerts, by address and time: threshold, detection_filter, and threshold files."""

from collections import OrderedDict

from flowshunt_ids.rules.rule import Threshold

MAX_ENTRIES = 1 << 16
"""The most (rule, address) pairs that are followed at once; the one unused for longest is forgotten."""

SECOND = 1_000_000_000

ALERT = 1
"""The match becomes an alert."""
SILENT = 2
"""No alert, but the rule's action counts."""
NOTHING = 0
"""As if the rule had not matched."""
CHANGED = 3
"""The match becomes an alert with the action of the rate filter."""

_BEGIN, _COUNT, _ACTIVE = 0, 1, 2


class Thresholds:
    """The counts so far. All thresholds of a rule that count by one address share its count, as in Suricata."""

    def __init__(self) -> None:
        self._entries: OrderedDict[tuple[int, bytes], list[int]] = OrderedDict()
        self.forgotten = 0

    def __len__(self) -> int:
        return len(self._entries)

    def judge(self, rule: int, threshold: Threshold, address: bytes, now: int) -> int:
        """Count a match of a rule at time `now` (ns) and say what becomes of it: ALERT, SILENT, NOTHING or CHANGED.

        The periods are Suricata's: one begins with a match and lasts `seconds`, its end included; detection_filter
        lets through what comes after `count` matches in a period.
        """
        key = (rule, address)
        entry = self._entries.get(key)
        if entry is None:
            if threshold.kind == "threshold" and threshold.count == 1:
                return ALERT
            self._entries[key] = [now, 1, -1]
            if len(self._entries) > MAX_ENTRIES:
                self._entries.popitem(last=False)
                self.forgotten += 1
            return _first(threshold)
        self._entries.move_to_end(key)
        if threshold.kind == "rate":
            return CHANGED if _rate_reached(entry, threshold, now) else ALERT
        if now - entry[_BEGIN] > threshold.seconds * SECOND:
            entry[_BEGIN], entry[_COUNT] = now, 1
            return _renewed(threshold)
        entry[_COUNT] += 1
        count, limit = entry[_COUNT], threshold.count
        if threshold.kind == "limit":
            return ALERT if count <= limit else SILENT
        if threshold.kind == "threshold":
            if count < limit:
                return NOTHING
            entry[_COUNT] = 0
            return ALERT
        if threshold.kind == "both":
            return NOTHING if count < limit else ALERT if count == limit else SILENT
        return ALERT if count > limit else NOTHING


def _first(threshold: Threshold) -> int:
    """What becomes of the first match of all."""
    if threshold.kind in ("limit", "rate") or (threshold.kind == "both" and threshold.count == 1):
        return ALERT
    return NOTHING


def _renewed(threshold: Threshold) -> int:
    """What becomes of the first match of a later period."""
    if threshold.kind == "limit" or (threshold.kind == "both" and threshold.count == 1):
        return ALERT
    return NOTHING


def _rate_reached(entry: list[int], threshold: Threshold, now: int) -> bool:
    """Whether a rate filter's action holds: from more than `count` matches in a period on, for `timeout` seconds."""
    if entry[_ACTIVE] >= 0:
        if (now - entry[_ACTIVE]) // SECOND <= threshold.timeout:
            return True
        entry[_ACTIVE] = -1
        return False
    if now - entry[_BEGIN] > threshold.seconds * SECOND:
        entry[_BEGIN], entry[_COUNT] = now, 1
        return False
    entry[_COUNT] += 1
    if entry[_COUNT] <= threshold.count:
        return False
    entry[_ACTIVE] = now
    return True
