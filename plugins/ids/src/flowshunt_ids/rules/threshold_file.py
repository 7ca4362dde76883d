"""threshold.config: limits and suppressions for rules by gid and sid."""

import re
from collections.abc import Iterable, Mapping, Sequence

import attrs

from flowshunt_ids.rules.keywords.limits import TRACKS
from flowshunt_ids.rules.lexer import RuleError
from flowshunt_ids.rules.rule import Rule, Suppression, Threshold
from flowshunt_ids.rules.variables import parse_addresses

MAX_ENTRIES = 100_000
"""The most entries of a file."""

_ENTRY = re.compile(
    r"(event_filter|threshold|rate_filter|suppress)\s+gen_id\s+(\d{1,10})\s*,\s*sig_id\s+(\d{1,10})(.*)"
)
_ACTIONS = {"alert": "alert", "drop": "drop", "pass": "pass", "reject": "reject", "log": "alert", "sdrop": "drop"}


@attrs.frozen
class Entry:
    """One entry. gid, sid: 0 stands for all."""

    gid: int
    sid: int
    limit: Threshold | Suppression

    def applies(self, rule: Rule) -> bool:
        """Whether a rule is meant."""
        return self.gid in (0, rule.signature.gid) and self.sid in (0, rule.signature.sid)


def _words(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    depth, start = 0, 0
    parts: list[str] = []
    for at, letter in enumerate(text):
        depth += (letter == "[") - (letter == "]")
        if letter == "," and depth == 0:
            parts.append(text[start:at])
            start = at + 1
    parts.append(text[start:])
    for part in parts:
        if not part.strip():
            continue
        name, _blank, value = part.strip().partition(" ")
        if not value.strip() or name in found:
            raise RuleError(f"{part.strip()!r} is not understood")
        found[name] = value.strip()
    return found


def _count(found: dict[str, str], name: str) -> int:
    text = found.get(name, "")
    if not text.isascii() or not text.isdigit() or not 0 < int(text[:11]) <= 0xFFFFFFFF:
        raise RuleError(f"{name} {text!r} is not a number from 1 to 4294967295")
    return int(text)


def _limit(kind: str, found: dict[str, str], variables: Mapping[str, str]) -> Threshold | Suppression:
    allowed = {
        "suppress": ({"track", "ip"}, ("by_src", "by_dst", "by_either")),
        "rate_filter": ({"track", "count", "seconds", "new_action", "timeout"}, TRACKS),
    }.get(kind, ({"type", "track", "count", "seconds"}, TRACKS))
    if kind == "suppress" and not found:
        return Suppression()
    if found.keys() != allowed[0]:
        raise RuleError(f"takes {', '.join(sorted(allowed[0]))}")
    if found["track"] not in allowed[1]:
        raise RuleError(f"track {found['track']!r} is not one of {', '.join(allowed[1])}")
    if kind == "suppress":
        return Suppression(found["track"], parse_addresses(found["ip"], variables))
    if kind == "rate_filter":
        action = _ACTIONS.get(found["new_action"])
        if action is None:
            raise RuleError(f"new_action {found['new_action']!r} is not one of {', '.join(_ACTIONS)}")
        return Threshold(
            "rate", found["track"], _count(found, "count"), _count(found, "seconds"), action, _count(found, "timeout")
        )
    if found["type"] not in ("limit", "threshold", "both"):
        raise RuleError(f"type {found['type']!r} is not limit, threshold or both")
    return Threshold(found["type"], found["track"], _count(found, "count"), _count(found, "seconds"))


def read_entries(text: str, variables: Mapping[str, str], path: str) -> tuple[list[Entry], list[str]]:
    """The entries of a file, and a warning for each line that can't be used. variables: of addresses."""
    entries: list[Entry] = []
    warnings: list[str] = []
    joined = ""
    for number, raw in enumerate(text.split("\n"), 1):
        line = joined + raw.strip()
        joined = ""
        if line.endswith("\\"):
            joined = line[:-1] + " "
            continue
        if not line or line[0] == "#":
            continue
        form = _ENTRY.fullmatch(line)
        try:
            if form is None:
                raise RuleError("not an entry (event_filter, threshold, rate_filter, suppress)")
            gid, sid = int(form[2]), int(form[3])
            if gid == 0 and sid != 0:
                raise RuleError("gen_id 0 goes with sig_id 0 only")
            entries.append(Entry(gid, sid, _limit(form[1], _words(form[4]), variables)))
        except RuleError as problem:
            warnings.append(f"{path}:{number}: {problem}: {line[:80]!r}")
        if len(entries) > MAX_ENTRIES:
            warnings.append(f"{path}:{number}: more than {MAX_ENTRIES} entries: the rest is not used")
            break
    return entries, warnings


def apply_entries(rules: Iterable[Rule], entries: Sequence[Entry]) -> list[Rule]:
    """Rules with the limits that a file sets for them.

    As in Suricata: a limit for a single rule takes the place of the one that it has; one for many rules, and a
    rate_filter, leave rules alone that have one. Suppressions always count.
    """
    single: dict[tuple[int, int], list[int]] = {}
    wide: list[int] = []
    for at, entry in enumerate(entries):
        if entry.sid:
            single.setdefault((entry.gid, entry.sid), []).append(at)
        else:
            wide.append(at)
    done: list[Rule] = []
    for rule in rules:
        places = sorted((*wide, *single.get((rule.signature.gid, rule.signature.sid), ())))
        mine = [entries[at] for at in places if entries[at].applies(rule)]
        done.append(_limited(rule, mine) if mine else rule)
    return done


def _limited(rule: Rule, entries: Sequence[Entry]) -> Rule:
    own = rule.threshold
    thresholds = [own] if own is not None else []
    thresholds += [limit for limit in rule.limits if isinstance(limit, Threshold)]
    suppressions: list[Threshold | Suppression] = []
    for entry in entries:
        limit = entry.limit
        if isinstance(limit, Suppression):
            suppressions.append(limit)
        elif not thresholds:
            thresholds.append(limit)
        elif entry.sid and limit.kind != "rate":
            thresholds[-1] = limit
    kept = own if own in thresholds else None
    return attrs.evolve(
        rule, threshold=kept, limits=(*suppressions, *(limit for limit in thresholds if limit is not kept))
    )
