"""From candidates to verdicts: flowbits, thresholds, pass and drop, bypass, alerts. Python, for matches only."""

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from flowshunt.engine import Alert, InspectionBatch
from flowshunt_ids.flowbits import FlowbitTable
from flowshunt_ids.groups import BypassPolicy
from flowshunt_ids.layout import CANDIDATE, SEGMENT_CHUNK, SEGMENT_TO_CLIENT
from flowshunt_ids.rules.rule import Rule, Scope
from flowshunt_ids.thresholds import ALERT, NOTHING, Thresholds


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
    """What outlives a batch: flowbits and thresholds."""

    def __init__(
        self,
        rules: Sequence[Rule],
        policy: BypassPolicy,
        request_numbers: Sequence[int],
        alerts_per_packet: int,
    ) -> None:
        self._rules = rules
        self._policy = policy
        self._requests = request_numbers
        self._limit = alerts_per_packet
        self.flowbits = FlowbitTable()
        self.thresholds = Thresholds()
        self.suppressed = 0
        self.over_limit = 0

    def decide(
        self,
        candidates: Sequence[tuple[int, ...]],
        batch: InspectionBatch | None,
        turns: NDArray[np.int32],
        flows: NDArray[Any],
        result: BatchDecisions,
    ) -> None:
        """Judge the candidates of one batch (CANDIDATE rows as tuples), in the order of its turns.

        batch None: flows that ended. turns: int32[n], the turn of each of its rows.
        """
        packets: dict[tuple[int, int, int], dict[int, int]] = {}
        rows: dict[tuple[int, int, int], int] = {}
        for _segment, row, slot, rule, flags in candidates:
            turn = int(turns[row]) if row >= 0 else -1
            key = (turn, slot, int(row < 0 and bool(flags & SEGMENT_TO_CLIENT)))
            matched = packets.setdefault(key, {})
            matched[rule] = matched.get(rule, 0) | flags
            rows[key] = row
        for key in sorted(packets):
            turn, slot, direction = key
            if turn <= result.stopped.get(slot, turn):
                found = packets[key]
                matched = {rule: found[rule] for rule in sorted(found)}
                self._packet(rows[key], turn, slot, direction, matched, batch, flows, result)

    def _packet(
        self,
        row: int,
        turn: int,
        slot: int,
        direction: int,
        candidates: dict[int, int],
        batch: InspectionBatch | None,
        flows: NDArray[Any],
        result: BatchDecisions,
    ) -> None:
        if row >= 0:
            assert batch is not None
            direction = int(batch.direction[row])
            timestamp = int(batch.frames.timestamp[row])
        else:
            timestamp = int(flows["last"][slot])
        flow = int(flows["id"][slot]) if slot >= 0 else 0
        rules, policy = self._rules, self._policy
        matched: list[int] = []
        for number in candidates:
            rule = rules[number]
            if rule.flowbits:
                if slot < 0 or not self.flowbits.holds(flow, rule.flowbits):
                    continue
                self.flowbits.change(flow, rule.flowbits)
            matched.append(number)
            if slot >= 0 and policy.bypasses(rule):
                result.bypassed.setdefault(slot, self._requests[number])
                result.stopped.setdefault(slot, turn)
                if row >= 0 and policy.drops(rule):
                    result.dropped.append(row)
        count = 0
        for number in matched:
            rule = rules[number]
            outcome = ALERT
            if rule.threshold is not None:
                address = _track(rule.threshold.track, row, slot, direction, batch, flows)
                outcome = self.thresholds.judge(number, rule.threshold, address, timestamp)
                if outcome != ALERT:
                    self.suppressed += 1
                if outcome == NOTHING:
                    continue
            whole_flow = rule.scope in (Scope.FIRST, Scope.ALL) or bool(candidates[number] & SEGMENT_CHUNK)
            passes = policy.passes(rule)
            if whole_flow and slot >= 0 and (passes or policy.drops(rule)):
                result.stopped.setdefault(slot, turn)
            if passes and not rule.alert:
                break
            if rule.noalert or outcome != ALERT:
                continue
            if count >= self._limit:
                self.over_limit += 1
                continue
            count += 1
            result.alerts.append(Alert(row, slot, direction, rule.signature, timestamp))
            if passes:
                break


def _track(
    track: str, row: int, slot: int, direction: int, batch: InspectionBatch | None, flows: NDArray[Any]
) -> bytes:
    """The address or addresses that a threshold counts by."""
    if track == "by_rule":
        return b""
    if slot >= 0:
        ends = [flows["source"][slot].tobytes(), flows["destination"][slot].tobytes()]
        source, destination = ends if direction == 0 else ends[::-1]
    elif batch is not None:
        header = batch.headers[row]
        size = 4 if header["ip_version"] == 4 else 16
        start = int(batch.frames.offset[row]) + int(header["l3"]) + (12 if size == 4 else 8)
        source = batch.frames.data[start : start + size].tobytes().ljust(16, b"\0")
        destination = batch.frames.data[start + size : start + 2 * size].tobytes().ljust(16, b"\0")
    else:
        return b""
    if track == "by_src":
        return source
    return destination if track == "by_dst" else min(source, destination) + max(source, destination)


EMPTY = np.empty(0, CANDIDATE)
"""No candidates."""
