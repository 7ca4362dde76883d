"""Keywords on how often a rule alerts: threshold, detection_filter."""

from flowshunt_ids.rules.keywords.builder import Keyword, RuleBuilder, whole_number
from flowshunt_ids.rules.lexer import RuleError
from flowshunt_ids.rules.rule import Threshold

TRACKS = ("by_src", "by_dst", "by_rule", "by_both")
"""What thresholds count by."""


def _settings(value: str, keyword: str, known: frozenset[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in value.split(","):
        name, _blank, setting = part.strip().partition(" ")
        if name not in known or not setting.strip():
            raise RuleError(f"{keyword}: {part.strip()!r} is not understood")
        if name in found:
            raise RuleError(f"{keyword}: {name} given twice")
        found[name] = setting.strip()
    missing = known - found.keys()
    if missing:
        raise RuleError(f"{keyword}: {', '.join(sorted(missing))} is missing")
    return found


def _limit(rule: RuleBuilder, found: dict[str, str], kind: str, keyword: str, tracks: tuple[str, ...]) -> None:
    # Suricata doesn't see the first one where a sticky buffer has been opened; both count then.
    if rule.threshold is not None and rule.sticky is None:
        raise RuleError(f"{keyword}: a rule takes one threshold or detection_filter")
    if found["track"] not in tracks:
        raise RuleError(f"{keyword}: track {found['track']!r} is not one of {', '.join(tracks)}")
    least = int(kind == "filter")
    count = whole_number(found["count"], f"{keyword}: count", least, 0xFFFFFFFF)
    seconds = whole_number(found["seconds"], f"{keyword}: seconds", least, 0xFFFFFFFF)
    limit = Threshold(kind, found["track"], count, seconds)
    if rule.threshold is None:
        rule.threshold = limit
    else:
        rule.more_thresholds.append(limit)


def _threshold(rule: RuleBuilder, value: str) -> None:
    found = _settings(value, "threshold", frozenset({"type", "track", "count", "seconds"}))
    if found["type"] not in ("limit", "threshold", "both"):
        raise RuleError(f"threshold: type {found['type']!r} is not limit, threshold or both")
    _limit(rule, found, found["type"], "threshold", TRACKS)


def _detection_filter(rule: RuleBuilder, value: str) -> None:
    found = _settings(value, "detection_filter", frozenset({"track", "count", "seconds"}))
    _limit(rule, found, "filter", "detection_filter", ("by_src", "by_dst"))


LIMIT_KEYWORDS = {
    "threshold": Keyword(_threshold, first_only=True),
    "detection_filter": Keyword(_detection_filter, first_only=True),
}
