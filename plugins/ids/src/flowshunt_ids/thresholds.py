"""threshold and detection_filter: how many matches of a rule become alerts, by address and time."""

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


class Thresholds:
    """The counts so far."""

    def __init__(self) -> None:
        self._entries: OrderedDict[tuple[int, bytes], list[int]] = OrderedDict()
        self.forgotten = 0

    def __len__(self) -> int:
        return len(self._entries)

    def judge(self, rule: int, threshold: Threshold, address: bytes, now: int) -> int:
        """Count a match of a rule at time `now` (ns) and say what becomes of it: ALERT, SILENT or NOTHING.

        The periods are Suricata's: one begins with a match and lasts `seconds`; detection_filter lets through what
        comes after `count` matches in a period.
        """
        key = (rule, address)
        entry = self._entries.get(key)
        if entry is None or now - entry[0] >= threshold.seconds * SECOND or now < entry[0]:
            entry = [now, 0]
            self._entries[key] = entry
            if len(self._entries) > MAX_ENTRIES:
                self._entries.popitem(last=False)
                self.forgotten += 1
        self._entries.move_to_end(key)
        entry[1] += 1
        if threshold.kind == "limit":
            return ALERT if entry[1] <= threshold.count else SILENT
        if threshold.kind == "threshold":
            if entry[1] < threshold.count:
                return NOTHING
            del self._entries[key]
            return ALERT
        if threshold.kind == "both":
            if entry[1] < threshold.count:
                return NOTHING
            return ALERT if entry[1] == threshold.count else SILENT
        return ALERT if entry[1] > threshold.count else NOTHING
