"""The stages of inspection: batches through compiled code, candidates through Python, verdicts out."""

from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from flowshunt.engine import DROPPED, NEW, SKIPPED, BypassRequest, InspectionBatch, Verdicts
from flowshunt.flows.record import FLOW
from flowshunt.packets.batch import FrameBatch
from flowshunt.rows import copy_rows, join_rows, take_rows
from flowshunt_ids import layout, lookup
from flowshunt_ids.app.registry import registry
from flowshunt_ids.app.stage import AppStage
from flowshunt_ids.conditions import PacketConditions, PacketSource
from flowshunt_ids.decisions import EMPTY, BatchDecisions, Decisions
from flowshunt_ids.decode_events.plain import decode_events
from flowshunt_ids.event_rules import EventRules, by_row
from flowshunt_ids.host_policies import HostPolicies
from flowshunt_ids.inspection import PayloadMatcher
from flowshunt_ids.layout import CANDIDATE, EVENT, NO_PACKETS, PIECE, SEGMENT, SESSION, SIDE, Packets, packets_of
from flowshunt_ids.lookup import find_packet_groups, open_flows
from flowshunt_ids.matching import PAIRS_SIZE, SCRATCH_SIZE
from flowshunt_ids.rules.transforms import Timeouts
from flowshunt_ids.ruleset import RuleSet
from flowshunt_ids.scanning import arrange, gather, match_packets, match_segments, test_candidates
from flowshunt_ids.streams.checks import STREAM_BYPASS
from flowshunt_ids.streams.configuration import stream_settings
from flowshunt_ids.streams.packet import PACKET_SIZE
from flowshunt_ids.streams.pool import (
    ARENA_USED,
    DEPTH_REACHED,
    GAPS,
    LOST_BYTES,
    NODES_USED,
    grown,
    keep_pending,
    new_pool,
)
from flowshunt_ids.streams.reassembly import Output
from flowshunt_ids.tracking import close_flows, end_flows, track

SLICE = 1 << 18
"""Bytes of segments that are gathered and scanned at once: enough to be worth a call, little enough for the cache."""
CANDIDATES = 1 << 14
"""Candidates that one call of a kernel may make; more are made by calling it again."""
EVENT_ROOM = 4
"""Events of the stream engine that there is room for, a packet."""
_NO_SIDES = np.empty(0, np.int32)
_NO_EVENTS = np.empty(0, EVENT)
_UNSCANNED = (np.empty(0, np.uint64), np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0, np.int64))
"""In place of hits and patterns: the rules that have none."""


class Stages:
    """The state of a run that compiled code works on, and the order in which it does."""

    def __init__(self, rule_set: RuleSet, flow_capacity: int) -> None:
        _check_layout()
        self._set = rule_set
        self._rules = rule_set.loaded.rules
        self._groups = rule_set.groups()
        self._tables = rule_set.classes.tables()
        settings = rule_set.settings
        self._event_rules = EventRules(self._rules)
        self._host_policies = HostPolicies(settings.host_policies)
        self._settings = stream_settings(settings, compare=self._event_rules.overlaps)
        if settings.stream_bypass and rule_set.policy.enabled:
            request = BypassRequest(settings.bypass_action, cause="stream depth")
            self._settings[STREAM_BYPASS] = 1 + self._groups.request_number(request)
        requests = [
            self._groups.request_number(rule_set.policy.request(rule)) if rule.bypass else 0 for rule in self._rules
        ]
        self._counters = rule_set.counters
        self._app: AppStage | None = None
        if rule_set.app.numbers or rule_set.events:
            self._app = AppStage(self._rules, rule_set.app, registry(), settings.app_layer, rule_set.events)
        conditions = PacketConditions(self._rules, registry().transforms, self._counters, rule_set.datasets)
        self._decisions = Decisions(self._rules, rule_set.policy, requests, settings.alerts_per_packet, conditions)
        if self._app is not None:
            self._decisions.protocol_of = self._app.layer.protocol_of
            self._decisions.details_of = self._app.details
        self._sides = np.zeros(2 * flow_capacity, SIDE)
        self._sessions = np.zeros(flow_capacity, SESSION)
        self._pool = new_pool(1 << 14, settings.reassembly_memory)
        self._matchers: dict[int, PayloadMatcher] = {}
        self._scratch = np.zeros(SCRATCH_SIZE, np.int64)
        self._packet = np.zeros(PACKET_SIZE, np.int64)
        self._pairs = np.zeros(PAIRS_SIZE, np.int32)
        self._out_candidates = np.empty(CANDIDATES + len(self._rules), CANDIDATE)
        self._buffer = np.empty(SLICE, np.uint8)
        self._output_rows = (np.empty(0, SEGMENT), np.empty(0, PIECE))
        self._app_rows = (np.empty(0, SEGMENT), np.empty(0, PIECE))
        self._row_groups = np.empty(0, np.int32)
        self._row_flags = np.empty(0, np.uint8)
        self._touched = np.empty(0, np.int32)
        self._bypasses = np.empty(0, np.int32)
        self._events = np.empty(0, EVENT)
        self._turns = np.empty(0, np.int32)
        self._order = np.empty(0, np.int64)
        self._begins = np.zeros(len(rule_set.prefilter.databases) + 2, np.int64)
        self._missing = np.empty((0, 2), np.uint64)
        self._partly = frozenset(np.flatnonzero(rule_set.encoded.rules["flags"] & layout.RULE_PYTHON).tolist())
        self._unscanned = any(
            rule.payload and pattern is None
            for rule, pattern in zip(self._rules, rule_set.encoded.patterns, strict=True)
        )
        self._asks_bits = np.array(
            [any(bits.command == "isset" for bits in rule.flowbits) for rule in self._rules], np.bool_
        )
        self._tested = [bool(rule.tests) for rule in self._rules]
        self._packets = any(not rule.payload for rule in self._rules)
        self._totals = dict.fromkeys(
            ("frames", "segments", "segment_bytes", "scan_hits", "candidates", "alerts", "bypassed_flows"), 0
        )

    def share_limits(self, shared: bool) -> None:
        """Leave limits on alerts open, since other sessions' matches count as well."""
        self._decisions.shared = shared

    def finish(self, flows: NDArray[Any], ended: NDArray[np.int32]) -> Verdicts:
        """Inspect what flows that ended have pending."""
        out, app = self._output(0, len(ended)), self._app_output(0, len(ended))
        end_flows(self._pool, self._groups.arrays.groups, self._sessions, self._sides, out, app, ended, self._packet)
        candidates = self._inspect_segments(out, NO_PACKETS).tolist()
        if self._app is not None:
            candidates = self._app_candidates(
                app, NO_PACKETS, flows, candidates, layout.NO_ROWS, _NO_SIDES, layout.NO_ROWS
            )
        result = BatchDecisions()
        if candidates:
            self._decisions.decide(candidates, None, _NO_SIDES, flows, result, PacketSource(self._sides))
        keep_pending(self._pool, self._sides, _NO_SIDES, 0, layout.NO_BYTES, layout.NO_BYTES)
        self._forget(flows, ended)
        self._totals["alerts"] += len(result.alerts)
        events = self._app.events(flows, layout.NO_ROWS) if self._app is not None else ()
        return Verdicts(result.alerts, events=events)

    def run(
        self,
        batch: InspectionBatch,
        *,
        opening: InspectionBatch | None = None,
        extra: NDArray[np.uint8] = layout.NO_BYTES,
        order: NDArray[np.int32] | None = None,
        owned: tuple[NDArray[np.int64], NDArray[np.int32]] | None = None,
        repeated: NDArray[np.bool_] | None = None,
        noted: NDArray[Any] = _NO_EVENTS,
    ) -> Verdicts:
        """Inspect packets.

        opening: the batch that was given to the session, the first time that packets of it are inspected: flows that
        ended before it are finished, and flows that begin in it are opened.
        extra: what rows point to whose offsets go past the end of the frames' data, see `layout.Packets`.
        order: int32[n], the rows in the order in which their packets came; None: as they stand.
        owned: rows that are inspected as packets of no flow (fragments) and the flows that they belong to (-1: none);
            they are skipped where their flow is bypassed.
        repeated: rows of no flow that are not the first packet of what they belong to.
        noted: EVENT rows that are known already, of fragments.
        """
        count = len(batch)
        frames = batch.frames
        packets = packets_of(frames, batch.headers, extra)
        ended = opening.ended if opening is not None else _NO_SIDES
        out, app = self._output(count, len(ended)), self._app_output(count, len(ended))
        if len(ended):
            end_flows(
                self._pool, self._groups.arrays.groups, self._sessions, self._sides, out, app, ended, self._packet
            )
        if opening is not None:
            self._open(opening)
        if count > len(self._row_flags):
            self._row_groups = np.empty(count, np.int32)
            self._row_flags = np.empty(count, np.uint8)
            self._touched = np.empty(count, np.int32)
            self._bypasses = np.empty(4 * count, np.int32)
            self._events = np.empty(EVENT_ROOM * count, EVENT)
            self._turns = np.arange(count, dtype=np.int32)
        row_group, row_flags = self._row_groups[:count], self._row_flags[:count]
        touched, bypasses = self._touched, self._bypasses
        turns = self._turns[:count]
        if order is None:
            order = turns
        else:
            turns = np.empty(count, np.int32)
            turns[order] = self._turns[:count]
        disposition = np.empty(count, np.uint8)
        if count and int(batch.slot.min()) < 0:
            self._find_packet_groups(batch, row_group)
        groups = self._groups.arrays.groups
        found = track(
            self._pool,
            groups,
            self._sessions,
            self._sides,
            out,
            app,
            packets,
            batch.slot,
            batch.direction,
            row_group,
            row_flags,
            disposition,
            touched,
            bypasses,
            order,
            self._settings,
            _times(frames),
            self._packet,
            self._events,
        )
        if repeated is not None:
            row_flags[repeated] &= np.uint8(0xFF ^ layout.ROW_FIRST)
        if owned is not None:
            rows, owner = owned
            sessions = self._sessions[np.maximum(owner, 0)]
            late = (owner >= 0) & ((sessions["flags"] & layout.SESSION_BYPASSED) != 0)
            late &= sessions["stopped"] < turns[rows]
            row_flags[rows[late]] = layout.ROW_PASSED
            disposition[rows[late]] = SKIPPED
        candidates = self._inspect_segments(out, packets)
        if self._packets:
            more = self._inspect_packets(packets, batch.slot, row_group, row_flags, order)
            candidates = join_rows([candidates, *more]) if more else candidates
        source = PacketSource(self._sides, extra)
        if self._event_rules:
            known = (decode_events(opening.frames),) if self._event_rules.decode and opening is not None else ()
            events = np.concatenate([*known, noted, self._events[: int(out.counts[3])]])
            more = self._event_candidates(events, batch, packets, row_group, row_flags)
            candidates = join_rows([candidates, *more]) if more else candidates
            source = PacketSource(self._sides, extra, by_row(events))
        result = BatchDecisions()
        if len(candidates):
            candidates = self._with_bits(candidates)
        chosen = candidates.tolist()
        if self._app is not None:
            chosen = self._app_candidates(app, packets, batch.flows, chosen, row_flags, turns, batch.direction)
        if chosen:
            self._decisions.decide(chosen, batch, turns, batch.flows, result, source)
        if self._app is not None and self._app.bypasses:
            self._bypass_by_policy(self._app.bypasses, turns, result)
        if len(ended):
            self._forget(batch.flows, ended)
        verdicts = self._verdicts(batch, result, bypasses[: 2 * found].reshape(found, 2), disposition, turns)
        if self._app is not None:
            verdicts = attrs.evolve(verdicts, events=self._app.events(batch.flows, frames.timestamp))
            self._app.finish(self._pool, self._sides)
        keep_pending(self._pool, self._sides, touched, int(out.counts[2]), frames.data, extra)
        return verdicts

    def _event_candidates(
        self,
        events: NDArray[Any],
        batch: InspectionBatch,
        packets: Packets,
        row_group: NDArray[np.int32],
        row_flags: NDArray[np.uint8],
    ) -> list[NDArray[Any]]:
        """Candidates of the rules that ask for events."""
        work = (packets, batch.slot, row_group, row_flags, self._sessions, self._out_candidates)
        found = [copy_rows(some) for some in self._event_rules.candidates(events, self._groups.arrays, *work)]
        self._totals["candidates"] += sum(map(len, found))
        return found

    def _bypass_by_policy(
        self, wishes: list[tuple[int, int, str]], turns: NDArray[np.int32], result: BatchDecisions
    ) -> None:
        """Bypass flows whose protocol's policy says so."""
        policy = self._set.policy
        for slot, row, cause in wishes if policy.enabled else ():
            number = self._groups.request_number(BypassRequest(policy.action, cause=cause))
            result.bypassed.setdefault(slot, number)
            result.stopped.setdefault(slot, int(turns[row]))
        wishes.clear()

    def _app_candidates(
        self,
        app: Output,
        packets: Packets,
        flows: NDArray[Any],
        candidates: list[tuple[int, ...]],
        row_flags: NDArray[np.uint8],
        turns: NDArray[np.int32],
        directions: NDArray[np.uint8],
    ) -> list[tuple[int, ...]]:
        """The candidates with those of transactions, see `AppStage.run`; these only where their packet's tests hold."""
        assert self._app is not None
        arrays = self._groups.arrays
        chosen = self._app.run(
            app, packets, self._pool, self._sides, flows, arrays.members, candidates, turns, directions
        )
        if all(candidate[0] > -2 or not self._tested[candidate[3]] for candidate in chosen):
            return chosen
        rows = np.array(chosen, CANDIDATE)
        keep = np.ones(len(rows), np.bool_)
        test_candidates(arrays, rows, packets, row_flags, keep)
        return [candidate for candidate, kept in zip(chosen, keep.tolist(), strict=True) if kept]

    def _output(self, rows: int, ended: int) -> Output:
        """Room for every segment and piece that a batch can make."""
        nodes = len(self._pool.nodes)
        used = int(self._pool.state[NODES_USED])
        if nodes - used < 2 * rows + 1024:
            self._pool = grown(self._pool, max(2 * nodes, used + 2 * rows + 1024))
        pieces = used + 5 * rows + 2 * ended + 64
        if pieces > len(self._output_rows[0]):
            room = pieces + pieces // 4
            self._output_rows = (np.empty(room, SEGMENT), np.empty(room, PIECE))
        return Output(*self._output_rows, np.zeros(4, np.int64))

    def _app_output(self, rows: int, ended: int) -> Output:
        """Room for everything that parsers can be told of a batch; none where no rule asks for an application layer."""
        if self._app is not None:
            pieces = int(self._pool.state[NODES_USED]) + 8 * rows + 6 * ended + 64
            if pieces > len(self._app_rows[0]):
                room = pieces + pieces // 4
                self._app_rows = (np.empty(room, SEGMENT), np.empty(room, PIECE))
        return Output(*self._app_rows, np.zeros(4, np.int64))

    def _open(self, batch: InspectionBatch) -> None:
        """Clear the state of the flows that begin in a batch, and find their groups."""
        slot, events = batch.slot, batch.events
        if not (events & NEW).any():
            return
        flows = batch.flows.view(np.uint8).reshape(len(batch.flows), FLOW.itemsize)
        missing = self._missing_rows(len(slot))
        groups = self._groups
        for _again in range(2):
            count = open_flows(
                self._tables,
                groups.keys,
                groups.values,
                groups.arrays.groups,
                slot,
                events,
                flows,
                self._pool,
                self._sessions,
                self._sides,
                missing,
            )
            if not count:
                break
            groups.add(missing[:count])
        if self._host_policies:
            self._set_policies(batch)

    def _set_policies(self, batch: InspectionBatch) -> None:
        """Note how the receivers of flows that begin take overlapping data."""
        of = self._host_policies.for_streams
        for slot in np.unique(batch.slot[(batch.slot >= 0) & ((batch.events & NEW) != 0)]).tolist():
            flow = batch.flows[slot]
            size = 4 if flow["ip_version"] == 4 else 16
            self._sides["policy"][2 * slot] = of(flow["destination"].tobytes()[:size])
            self._sides["policy"][2 * slot + 1] = of(flow["source"].tobytes()[:size])

    def _missing_rows(self, rows: int) -> NDArray[np.uint64]:
        if 2 * rows > len(self._missing):
            self._missing = np.empty((2 * rows, 2), np.uint64)
        return self._missing

    def _find_packet_groups(self, batch: InspectionBatch, row_group: NDArray[np.int32]) -> None:
        frames, groups = batch.frames, self._groups
        scratch = np.zeros((1, 32), np.uint8)
        missing = self._missing_rows(len(batch))
        for _again in range(2):
            count = find_packet_groups(
                self._tables,
                groups.keys,
                groups.values,
                batch.slot,
                frames.data,
                frames.offset,
                frames.captured,
                batch.headers,
                row_group,
                scratch,
                missing,
            )
            if not count:
                break
            groups.add(missing[:count])

    def _with_bits(self, candidates: NDArray[Any]) -> NDArray[Any]:
        """The candidates but those of rules that ask for a flowbit, in flows where no rule that sets one matched."""
        asks = self._asks_bits[candidates["rule"]]
        if not asks.any():
            return candidates
        slot = candidates["slot"]
        may = (slot >= 0) & ((self._sessions["flags"][np.maximum(slot, 0)] & layout.SESSION_BITS) != 0)
        return candidates[may | ~asks]

    def _forget(self, flows: NDArray[Any], ended: NDArray[np.int32]) -> None:
        """Drop what is kept of flows that ended."""
        if self._app is not None:
            self._app.layer.forget(ended.tolist())
        decisions = self._decisions
        if len(decisions.flowbits) or len(decisions.flow_integers):
            marked = ended[(self._sessions["flags"][ended] & layout.SESSION_BITS) != 0]
            for slot in marked.tolist():
                decisions.forget(int(flows["id"][slot]))

    def _inspect_segments(self, out: Output, packets: Packets) -> NDArray[Any]:
        """Gather, scan and match the segments of a batch. Returns candidates whose payload matches wholly."""
        count = int(out.counts[0])
        if not count:
            return EMPTY
        segments = out.segments[:count]
        if count > len(self._order):
            self._order = np.empty(2 * count, np.int64)
        order, begins = self._order, self._begins
        longest = arrange(segments, count, order, begins)
        if longest > len(self._buffer):
            self._buffer = np.empty(longest, np.uint8)
        work = (packets, self._sessions, self._scratch, self._pairs, self._out_candidates)
        found: list[NDArray[Any]] = []
        totals = self._totals
        totals["segments"] += count
        bounds = begins.tolist()
        for scan_class in range(len(bounds) - 1):
            begin, end = bounds[scan_class], bounds[scan_class + 1]
            while begin < end:
                upto, filled = gather(segments, out.pieces, order, begin, end, packets, self._pool.arena, self._buffer)
                totals["segment_bytes"] += filled
                if scan_class:
                    self._hits(scan_class, segments, order, begin, upto, filled, work, found)
                if self._unscanned:
                    self._match(_UNSCANNED, begin, segments, order, begin, upto, work, found)
                begin = upto
        return join_rows(found) if found else EMPTY

    def _hits(
        self,
        scan_class: int,
        segments: NDArray[Any],
        order: NDArray[np.int64],
        begin: int,
        end: int,
        filled: int,
        work: tuple[Any, ...],
        found: list[NDArray[Any]],
    ) -> None:
        database = self._set.prefilter.databases[scan_class - 1]
        hits = database.scan(self._buffer[:filled])
        if not len(hits):
            return
        self._totals["scan_hits"] += len(hits)
        database.last_segment.fill(-1)
        patterns = (hits, database.pattern_start, database.pattern_rules, database.last_segment)
        self._match(patterns, 0, segments, order, begin, end, work, found)

    def _match(
        self,
        patterns: tuple[Any, ...],
        done: int,
        segments: NDArray[Any],
        order: NDArray[np.int64],
        begin: int,
        end: int,
        work: tuple[Any, ...],
        found: list[NDArray[Any]],
    ) -> None:
        """Match what `patterns` (see `scanning.match_segments`) point to in the gathered segments order[begin:end]."""
        hits, *tables = patterns
        last = len(hits) if len(tables[0]) else end
        while done < last:
            done, made = match_segments(
                self._groups.arrays, hits, done, *tables, segments, order, begin, end, self._buffer, *work
            )
            self._take(made, segments, found)

    def _take(self, made: int, segments: NDArray[Any], found: list[NDArray[Any]]) -> None:
        """Keep the candidates that a kernel made, those that are only partly matched after their match in Python."""
        if not made:
            return
        self._totals["candidates"] += made
        candidates = self._out_candidates[:made]
        rules = candidates["rule"].tolist()
        if self._partly.isdisjoint(rules):
            found.append(copy_rows(candidates))
            return
        kept = []
        for at, rule in enumerate(rules):
            if rule in self._partly:
                number = int(candidates["segment"][at])
                matcher = self._matchers.get(rule)
                if matcher is None:
                    matcher = self._matchers[rule] = PayloadMatcher(
                        self._rules[rule].payload, self._counters, self._set.datasets
                    )
                start = int(segments["start"][number])
                if not matcher.matches(self._buffer[start : start + int(segments["length"][number])].tobytes()):
                    continue
            kept.append(at)
        if kept:
            found.append(take_rows(candidates, np.array(kept)))

    def _inspect_packets(
        self,
        packets: Packets,
        slot: NDArray[np.int32],
        row_group: NDArray[np.int32],
        row_flags: NDArray[np.uint8],
        order: NDArray[np.int32],
    ) -> list[NDArray[Any]]:
        """Candidates of the rules without payload."""
        found: list[NDArray[Any]] = []
        work = (packets, slot, row_group, row_flags, order, self._sessions, self._out_candidates)
        turn = 0
        while turn < len(order):
            turn, made = match_packets(self._groups.arrays, turn, *work)
            if made:
                self._totals["candidates"] += made
                found.append(copy_rows(self._out_candidates[:made]))
        return found

    def _verdicts(
        self,
        batch: InspectionBatch,
        result: BatchDecisions,
        at_once: NDArray[np.int32],
        disposition: NDArray[np.uint8],
        turns: NDArray[np.int32],
    ) -> Verdicts:
        """Mark the flows that are not inspected any more. at_once: (slot, request) of flows that kernels bypassed."""
        slots, requests = at_once[:, 0], at_once[:, 1]
        if result.bypassed:
            extra = np.array(list(result.bypassed.items()), np.int32)
            extra = extra[~np.isin(extra[:, 0], slots)]
            slots, requests = np.concatenate([slots, extra[:, 0]]), np.concatenate([requests, extra[:, 1]])
        quiet = np.array([slot for slot, turn in result.stopped.items() if turn >= 0], np.int32)
        sessions = self._sessions
        if len(quiet):
            sessions["flags"][quiet] |= layout.SESSION_QUIET
            if result.bypassed:
                ended = np.array(list(result.bypassed), np.int32)
                sessions["flags"][ended] |= layout.SESSION_BYPASSED
                sessions["stopped"][ended] = [result.stopped[slot] for slot in result.bypassed]
                last = sessions["stopped"][np.maximum(batch.slot, 0)]
                disposition[(batch.slot >= 0) & (turns > last)] = SKIPPED
        if result.dropped:
            rows = np.array(result.dropped, np.int64)
            disposition[rows[disposition[rows] != SKIPPED]] = DROPPED
        if len(slots) or len(quiet):
            sessions["stopped"][slots] = -1
            close_flows(self._pool, self._sessions, self._sides, np.concatenate([slots, quiet]))
        totals = self._totals
        totals["frames"] += len(batch)
        totals["alerts"] += len(result.alerts)
        totals["bypassed_flows"] += len(slots)
        return Verdicts(
            result.alerts, disposition, slots.astype(np.int32), requests.astype(np.uint16), tuple(self._groups.requests)
        )

    def counters(self) -> dict[str, int]:
        """What was counted so far, by dotted name."""
        state = self._pool.state
        decisions = self._decisions
        return {
            **{f"inspect.{name}": value for name, value in self._totals.items()},
            "inspect.groups": len(self._groups),
            "inspect.groups_refused": self._groups.refused,
            "inspect.python_matches": self._counters.evaluations,
            "inspect.expression_timeouts": self._counters.expression_timeouts,
            "inspect.transform_timeouts": Timeouts.count,
            "inspect.step_limits": self._counters.step_limits,
            **({f"app.{name}": value for name, value in self._app.layer.counters.items()} if self._app else {}),
            "rules.patterns": self._set.prefilter.pattern_count,
            "stream.memory": int(state[ARENA_USED]),
            "stream.lost_bytes": int(state[LOST_BYTES]),
            "stream.gaps": int(state[GAPS]),
            "stream.depth_reached": int(state[DEPTH_REACHED]),
            "alerts.suppressed": decisions.suppressed,
            "alerts.over_limit": decisions.over_limit,
            "flowbits.flows": len(decisions.flowbits),
            "flowints.flows": len(decisions.flow_integers),
            "hostbits.bits": len(decisions.host_bits),
            "hostbits.forgotten": decisions.host_bits.forgotten,
            "thresholds.entries": len(decisions.thresholds),
            "thresholds.forgotten": decisions.thresholds.forgotten,
        }


def _times(frames: FrameBatch) -> NDArray[np.int64]:
    """The frames' timestamps, in the one form that kernels take them in."""
    times = np.ascontiguousarray(frames.timestamp).view()
    times.flags.writeable = False
    return times


def _check_layout() -> None:
    """What `lookup` assumes of FLOW."""
    fields = FLOW.fields
    assert fields is not None
    places = tuple(fields[name][1] for name in ("source", "source_port", "protocol", "ip_version"))
    expected = (lookup.FLOW_ADDRESS, lookup.FLOW_PORTS, lookup.FLOW_PROTOCOL, lookup.FLOW_VERSION)
    if places != expected:
        raise RuntimeError(f"FLOW has its fields at {places}, not at {expected}")
