"""From candidates to verdicts: what rules remember, thresholds, pass and drop, bypass, alerts. For matches only."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from flowshunt.engine import Alert, InspectionBatch
from flowshunt_ids.conditions import PacketConditions, PacketSource, PacketView
from flowshunt_ids.flow_integers import FlowIntegers
from flowshunt_ids.flowbits import FlowbitTable
from flowshunt_ids.groups import BypassPolicy
from flowshunt_ids.host_bits import HostBitTable
from flowshunt_ids.layout import CANDIDATE, SEGMENT_CHUNK, SEGMENT_TO_CLIENT
from flowshunt_ids.rules.rule import Rule, Scope, Suppression, Threshold
from flowshunt_ids.shares import OpenLimit
from flowshunt_ids.thresholds import ALERT, CHANGED, NOTHING, SILENT, Thresholds


@attrs.define
class BatchDecisions:
    """What was decided in one batch.

    Attributes:
        stopped: for flows that are no longer inspected, the turn from which on (that turn itself still was).
        bypassed: for flows to bypass, the number of the request.
        dropped: rows that a rule drops.
    """

    alerts: list[Alert] = attrs.field(factory=list)
    stopped: dict[int, int] = attrs.field(factory=dict)
    bypassed: dict[int, int] = attrs.field(factory=dict)
    dropped: list[int] = attrs.field(factory=list)


class Decisions:
    """What outlives a batch: bits and integers of flows, bits of hosts, thresholds."""

    def __init__(
        self,
        rules: Sequence[Rule],
        policy: BypassPolicy,
        request_numbers: Sequence[int],
        alerts_per_packet: int,
        conditions: PacketConditions,
    ) -> None:
        self._rules = rules
        self._policy = policy
        self._requests = request_numbers
        self._limit = alerts_per_packet
        self._conditions = conditions
        self._limits = [_limits(rule) for rule in rules]
        self.flowbits = FlowbitTable()
        self.flow_integers = FlowIntegers()
        self.host_bits = HostBitTable()
        self.thresholds = Thresholds()
        self.protocol_of: Callable[[int], str] = lambda slot: ""
        self.details_of: Callable[[int, int], Mapping[str, Any]] = lambda slot, transaction: {}
        self.shared = False
        self.suppressed = 0
        self.over_limit = 0

    def decide(
        self,
        candidates: Sequence[tuple[int, ...]],
        batch: InspectionBatch | None,
        turns: NDArray[np.int32],
        flows: NDArray[Any],
        result: BatchDecisions,
        packets: PacketSource,
    ) -> None:
        """Judge the candidates of one batch (CANDIDATE rows as tuples), in the order of its turns.

        batch None: flows that ended. turns: int32[n], the turn of each of its rows.
        """
        grouped: dict[tuple[int, int, int], dict[tuple[int, int], int]] = {}
        rows: dict[tuple[int, int, int], int] = {}
        for segment, row, slot, rule, flags in candidates:
            turn = int(turns[row]) if row >= 0 else -1
            key = (turn, slot, int(row < 0 and bool(flags & SEGMENT_TO_CLIENT)))
            matched = grouped.setdefault(key, {})
            # A rule on transactions matches once in each of them.
            which = rule, min(segment, -1)
            matched[which] = matched.get(which, 0) | flags
            rows[key] = row
        for key in sorted(grouped):
            turn, slot, direction = key
            if turn <= result.stopped.get(slot, turn):
                found = grouped[key]
                row = rows[key]
                if row >= 0:
                    assert batch is not None
                    direction = int(batch.direction[row])
                view = PacketView(batch, row, slot, direction, flows, packets)
                self._packet(view, turn, {which: found[which] for which in sorted(found)}, result)

    def forget(self, flow: int) -> None:
        """Drop a flow that ended, by its id."""
        self.flowbits.forget(flow)
        self.flow_integers.forget(flow)

    def _matches(self, number: int, rule: Rule, flow: int, view: PacketView) -> bool:
        """Whether what a rule asks for beside its compiled part holds; then what it sets is set."""
        if number in self._conditions and not self._conditions.hold(number, view):
            return False
        if rule.flowbits or rule.flow_integers:
            if view.slot < 0:
                return False
            if not self.flowbits.holds(flow, rule.flowbits):
                return False
            if not self.flow_integers.holds(flow, rule.flow_integers):
                return False
        if rule.host_bits:
            addresses = view.addresses
            if addresses is None or not self.host_bits.holds(rule.host_bits, *addresses, view.timestamp):
                return False
            self.host_bits.change(rule.host_bits, *addresses, view.timestamp)
        if rule.flowbits:
            self.flowbits.change(flow, rule.flowbits)
        if rule.flow_integers:
            self.flow_integers.change(flow, rule.flow_integers)
        return True

    def _packet(
        self, view: PacketView, turn: int, candidates: dict[tuple[int, int], int], result: BatchDecisions
    ) -> None:
        row, slot = view.row, view.slot
        flow = int(view.flows["id"][slot]) if slot >= 0 else 0
        rules, policy = self._rules, self._policy
        matched: list[tuple[int, int]] = []
        for which in candidates:
            number = which[0]
            rule = rules[number]
            if not self._matches(number, rule, flow, view):
                continue
            matched.append(which)
            if slot >= 0 and policy.bypasses(rule):
                result.bypassed.setdefault(slot, self._requests[number])
                result.stopped.setdefault(slot, turn)
                if row >= 0 and policy.drops(rule):
                    result.dropped.append(row)
        count = 0
        for which in matched:
            number = which[0]
            rule = rules[number]
            outcome, action, open_limits = self._judge_limits(number, view)
            if outcome != ALERT:
                self.suppressed += 1
            if outcome == NOTHING:
                continue
            whole_flow = rule.scope in (Scope.FIRST, Scope.ALL) or bool(candidates[which] & SEGMENT_CHUNK)
            passes = policy.passes(rule) if action is None else action == "pass"
            drops = policy.drops(rule) if action is None else action in ("drop", "reject")
            if whole_flow and slot >= 0 and (passes or drops):
                result.stopped.setdefault(slot, turn)
            if passes and not rule.alert:
                break
            if rule.noalert or outcome != ALERT:
                continue
            if count >= self._limit:
                self.over_limit += 1
                continue
            count += 1
            result.alerts.append(
                Alert(
                    row,
                    slot,
                    view.direction,
                    rule.signature,
                    view.timestamp,
                    self.protocol_of(slot),
                    self.details_of(slot, -2 - which[1]) if which[1] < -1 else {},
                    open_limits or None,
                )
            )
            if passes:
                break

    def _judge_limits(self, number: int, view: PacketView) -> tuple[int, str | None, tuple[OpenLimit, ...]]:
        """What the thresholds of a rule make of a match, the action that a rate filter puts in its place, and the
        limits that are left open where sessions share the frames."""
        limits = self._limits[number]
        addresses = view.addresses if limits else None
        action = None
        left: list[OpenLimit] = []
        for limit in limits if addresses is not None else ():
            assert addresses is not None
            if isinstance(limit, Suppression):
                if limit.covers(*addresses):
                    return SILENT, None, ()
                continue
            if self.shared and limit.kind != "rate":
                left.append(OpenLimit(number, limit, _track(limit.track, *addresses)))
                continue
            outcome = self.thresholds.judge(number, limit, _track(limit.track, *addresses), view.timestamp)
            if outcome == CHANGED:
                action = limit.action
            elif outcome != ALERT:
                return outcome, None, ()
        return ALERT, action, tuple(left)


def _limits(rule: Rule) -> tuple[Threshold | Suppression, ...]:
    """A rule's limits in the order in which they count: suppressions, its own threshold, those of a file."""
    suppressions = tuple(limit for limit in rule.limits if isinstance(limit, Suppression))
    thresholds = tuple(limit for limit in rule.limits if isinstance(limit, Threshold))
    own = (rule.threshold,) if rule.threshold is not None else ()
    return (*suppressions, *own, *thresholds)


def _track(track: str, source: bytes, destination: bytes) -> bytes:
    """The address or addresses that a threshold counts by."""
    if track == "by_rule":
        return b""
    if track == "by_src":
        return source
    return destination if track == "by_dst" else min(source, destination) + max(source, destination)


EMPTY = np.empty(0, CANDIDATE)
"""No candidates."""
