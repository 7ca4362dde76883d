"""What sessions that share a run's frames must do together: rules that keep state across hosts, limits on alerts."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs

from flowshunt_ids.rules.rule import DatasetMatch, Rule, Threshold
from flowshunt_ids.thresholds import ALERT, Thresholds


@attrs.frozen
class OpenLimit:
    """A limit on alerts that counts matches of all sessions: the rule's number, the limit, the address it counts by."""

    rule: int
    limit: Threshold
    address: bytes


def judge() -> Callable[[Any, int], bool]:
    """What decides whether an alert stands: its open limits, in order, at its time (ns)."""
    thresholds = Thresholds()

    def stands(limits: tuple[OpenLimit, ...], now: int) -> bool:
        return all(thresholds.judge(open_.rule, open_.limit, open_.address, now) == ALERT for open_ in limits)

    return stands


def unshared(rules: Sequence[Rule]) -> tuple[str, ...]:
    """Why sessions can't share frames with these rules: what they keep across pairs of hosts. One line a reason."""
    found: dict[str, list[int]] = {}
    for rule in rules:
        for reason in _reasons(rule):
            found.setdefault(reason, []).append(rule.signature.sid)
    return tuple(
        f"{reason} (rule {sids[0]}{f' and {len(sids) - 1} more' if sids[1:] else ''})" for reason, sids in found.items()
    )


def _reasons(rule: Rule) -> Iterator[str]:
    if any(bits.track != "ip_pair" for bits in rule.host_bits):
        yield "bits of single hosts are kept for all flows"
    matches = (*rule.payload, *(match for buffer in (*rule.buffers, *rule.packet_buffers) for match in buffer.matches))
    if any(isinstance(match, DatasetMatch) and match.command in ("set", "unset") for match in matches):
        yield "data sets change with what rules find"
    limits = (*((rule.threshold,) if rule.threshold is not None else ()), *rule.limits)
    if any(isinstance(limit, Threshold) and limit.kind == "rate" for limit in limits):
        yield "rate filters count the matches of all flows"
