"""The stage between stream data and decisions: deliveries gathered, parsed, looked at; what matched as candidates."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from flowshunt.engine import EngineEvent
from flowshunt_ids import layout
from flowshunt_ids.app.contract import AppProtocol
from flowshunt_ids.app.eve import events_of
from flowshunt_ids.app.flows import NEVER, Outcome, Told
from flowshunt_ids.app.layer import AppLayer
from flowshunt_ids.app.plans import Plan, Planner, interest, is_on_transactions, protocols_of
from flowshunt_ids.app.registry import Registry
from flowshunt_ids.encoding import Pattern
from flowshunt_ids.inspection import InspectionCounters, PayloadMatcher
from flowshunt_ids.layout import Packets
from flowshunt_ids.plain_matching import plain_matcher
from flowshunt_ids.prefilter import compile_patterns
from flowshunt_ids.rules.rule import Rule
from flowshunt_ids.scanning import gather
from flowshunt_ids.streams.pool import Pool
from flowshunt_ids.streams.reassembly import Output
from flowshunt_ids.tracking import stop_parsing

_SLICE = 1 << 18
"""Bytes that are gathered at once."""
_REMEMBERED = 128
"""The longest contents of a buffer of which it is remembered what was found in them."""
_MOST_REMEMBERED = 4096
"""The most that are remembered for one buffer."""
_FILE_WANTS = {"md5": "md5", "sha1": "sha1", "sha256": "sha256"}


@attrs.frozen(eq=False)
class AppRules:
    """What a rule set asks of application layers.

    Attributes:
        plans: see `flowshunt_ids.app.plans`. interest: protocols whose transactions rules look at.
        wants: see `Context`. numbers: the rules that ask for anything of an application layer.
    """

    plans: Mapping[tuple[str, int], Plan]
    interest: frozenset[str]
    wants: frozenset[str]
    numbers: frozenset[int]


def asks_protocol(rule: Rule) -> bool:
    """Whether a rule that is not on transactions asks which protocol its flow speaks."""
    if is_on_transactions(rule):
        return False
    return rule.app_protocol is not None or any(
        condition.name in ("app-layer-protocol", "app-layer-event") for condition in rule.conditions
    )


def wants_of(rules: Sequence[Rule]) -> frozenset[str]:
    """What rules look at beyond plain buffers, see `Context.wants`."""
    found: set[str] = set()
    for rule in rules:
        if any(each.buffer.startswith("file.") for each in rule.buffers):
            found.add("files")
        for condition in rule.app_conditions:
            if condition.name == "file":
                found.add("files")
                found |= {test.value[0] for test in condition.value if test.kind == "digest"}
    return frozenset(found)


def prepare(rules: Sequence[Rule], registry: Registry, counters: InspectionCounters, datasets: Any) -> AppRules:
    """Make the plans of a rule set."""

    def matcher(matches: Sequence[Any]) -> Callable[..., bool]:
        return plain_matcher(matches, counters) or PayloadMatcher(matches, counters, datasets).matches

    looked = interest(rules, registry)
    return AppRules(
        Planner(registry, matcher, _database).plans(rules),
        frozenset(name for name, transactions in looked.items() if transactions),
        wants_of(rules),
        frozenset(number for number, rule in enumerate(rules) if is_on_transactions(rule) or asks_protocol(rule)),
    )


def _database(patterns: Sequence[Pattern]) -> Callable[[bytes], Sequence[int]]:
    """What gives the numbers of the patterns that occur in a buffer."""
    database = compile_patterns(patterns, once=True)
    known: dict[bytes, tuple[int, ...]] = {b"": ()}

    def look(data: bytes) -> tuple[int, ...]:
        found: list[int] = []

        def hit(pattern: int, _start: int, _end: int, _flags: int, _context: object) -> None:
            found.append(pattern)

        database.scan(data, match_event_handler=hit)
        return tuple(found)

    def scan(data: bytes) -> Sequence[int]:
        # Methods, hosts, user agents and the like are the same again and again.
        if len(data) > _REMEMBERED:
            return look(data)
        data = bytes(data)
        found = known.get(data)
        if found is None:
            if len(known) >= _MOST_REMEMBERED:
                known.clear()
            found = known[data] = look(data) if data else ()
        return found

    return scan


class AppStage:
    """The application layers of one run.

    bypasses: flows that a policy bypasses from a row of this batch on: slot, row and cause; taken by who calls.
    """

    def __init__(
        self,
        rules: Sequence[Rule],
        prepared: AppRules,
        registry: Registry,
        settings: Mapping[str, Any],
        events: frozenset[str] = frozenset(),
    ) -> None:
        """settings: `app-layer.protocols` of the configuration. events: types of EVE events that are written."""
        self._rules = rules
        self.registry = registry
        enabled = {
            protocol.name: protocol
            for protocol in registry.protocols.values()
            if _enabled(settings.get(protocol.settings or protocol.name))
        }

        self._settings = settings
        self.bypasses: list[tuple[int, int, str]] = []
        self.layer = AppLayer(
            enabled,
            prepared.plans,
            prepared.interest & enabled.keys(),
            settings=self._settings_of,
            ports=_detection_ports(settings),
            wants=prepared.wants | ({"files"} if "fileinfo" in events else frozenset()),
            eve=frozenset(name for name, protocol in enabled.items() if protocol.eve_types & events),
        )
        self._buffer = np.empty(_SLICE, np.uint8)
        self._members: dict[int, Callable[[int], bool]] = {}
        self._stops: list[int] = []
        self._events = events
        self._told: list[Told] = []
        self._matched: dict[tuple[int, int], Any] = {}
        self._asking = {number: _question(rule, registry) for number, rule in enumerate(rules) if asks_protocol(rule)}

    def run(
        self,
        app: Output,
        packets: Packets,
        pool: Pool,
        sides: NDArray[Any],
        flows: NDArray[Any],
        members: NDArray[np.uint64],
        candidates: list[tuple[int, ...]],
        turns: NDArray[np.int32],
        directions: NDArray[np.uint8],
    ) -> list[tuple[int, ...]]:
        """The candidates of a batch with those of transactions, and without those that ask for another protocol.

        candidates: CANDIDATE rows as tuples; of those on transactions, `segment` is -2 minus the transaction's number.
        members: `RuleArrays.members`. turns, directions: of the batch's rows.
        """
        outcome = Outcome()
        layer = self.layer
        layer.begin()
        count = int(app.counts[0])
        if count:
            column = sides["group"]

            def belongs(slot: int, direction: int) -> Callable[[int], bool]:
                return self._group(int(column[2 * slot + direction]), members)

            segments = app.segments[:count]
            order = np.arange(count, dtype=np.int64)
            longest = int(segments["length"].max())
            if longest > len(self._buffer):
                self._buffer = np.empty(longest, np.uint8)
            begin = 0
            while begin < count:
                upto, filled = gather(segments, app.pieces, order, begin, count, packets, pool.arena, self._buffer)
                layer.run(segments[begin:upto].tolist(), self._buffer[:filled].tobytes(), flows, belongs, outcome)
                begin = upto
        self._stops += outcome.stop
        self._told += outcome.told
        for slot, row, protocol, parser in outcome.wishes:
            wish = self.registry.bypass.get(protocol.name)
            cause = wish.decide(parser, self._settings_of(protocol)) if wish is not None else ""
            if cause and row >= 0:
                self.bypasses.append((slot, row, cause))
        if self._asking:
            candidates = [each for each in candidates if self._holds(each, turns, directions)]
        self._matched = {(found.slot, found.number): found.transaction for found in outcome.found}
        for found in outcome.found:
            flags = layout.SEGMENT_CHUNK | layout.SEGMENT_ESTABLISHED
            if found.direction:
                flags |= layout.SEGMENT_TO_CLIENT
            candidates.append((-2 - found.number, found.row, found.slot, found.rule, flags))
        return candidates

    def _settings_of(self, protocol: AppProtocol) -> Mapping[str, Any]:
        tree = self._settings.get(protocol.settings or protocol.name)
        return tree if isinstance(tree, Mapping) else {}

    def details(self, slot: int, number: int) -> Mapping[str, Any]:
        """What an alert on a transaction tells of it."""
        protocol = self.registry.protocols.get(self.layer.protocol_of(slot))
        transaction = self._matched.get((slot, number))
        if protocol is None or protocol.eve is None or transaction is None:
            return {}
        own = protocol.eve(transaction)
        further = protocol.eve_further(transaction) if protocol.eve_further is not None else {}
        return {"tx_id": number, **further} if own is None else {"tx_id": number, own[0]: own[1], **further}

    def events(self, flows: NDArray[Any], timestamps: NDArray[Any]) -> list[EngineEvent]:
        """What there is to tell since the last call. timestamps: of the batch's rows."""
        made: list[EngineEvent] = []
        for told in self._told:
            moment = int(timestamps[told.row]) if told.row >= 0 else int(flows["last"][told.slot])
            for direction, kind, fields in events_of(self.registry.protocols[told.protocol], told.transaction):
                if kind in self._events:
                    made.append(EngineEvent(told.row, told.slot, direction, kind, fields, moment))
        self._told = []
        return made

    def finish(self, pool: Pool, sides: NDArray[Any]) -> None:
        """End a batch: stop what is of no more interest."""
        if self._stops:
            stop_parsing(pool, sides, np.array(self._stops, np.int32))
            self._stops = []

    def _group(self, group: int, members: NDArray[np.uint64]) -> Callable[[int], bool]:
        known = self._members.get(group)
        if known is None:
            table = members[group].tobytes()

            def known(rule: int) -> bool:
                return bool(table[rule >> 3] >> (rule & 7) & 1)

            self._members[group] = known
        return known

    def _holds(self, candidate: tuple[int, ...], turns: NDArray[np.int32], directions: NDArray[np.uint8]) -> bool:
        """Whether a candidate that is not on transactions may go on to be decided."""
        _segment, row, slot, rule, flags = candidate
        question = self._asking.get(rule)
        if question is None:
            return True
        if slot < 0:
            return False
        known = self.layer.known_since(slot)
        direction = int(directions[row]) if row >= 0 else int(bool(flags & layout.SEGMENT_TO_CLIENT))
        since = known[direction] if question.by_direction else min(known)
        if since == NEVER or (row >= 0 and since >= 0 and turns[row] < turns[since]):
            return False
        if question.once and not self.layer.first_time(slot, rule, direction):
            return False
        return question.holds(self.layer.protocol_of(slot, direction if question.by_direction else None))


@attrs.frozen
class Question:
    """What a rule asks of the protocol of a flow.

    asked: names, each with whether it must be another. by_direction: it must be known by what the packet's own
    direction sent. once: it is asked once a direction, on the first packet for which it is known.
    """

    asked: tuple[tuple[str, bool], ...]
    by_direction: bool = False
    once: bool = False

    def holds(self, protocol: str) -> bool:
        """Whether a flow of a protocol will do."""
        return all((protocol == name) != negated for name, negated in self.asked)


def _question(rule: Rule, registry: Registry) -> Question:
    named = [condition.value for condition in rule.conditions if condition.name == "app-layer-protocol"]
    if rule.app_protocol is not None:
        names = protocols_of(rule, registry)
        return Question((*named, (names[0] if names else rule.app_protocol, False)))
    if not named:
        return Question((("", False),))
    once = (
        not rule.payload
        and not rule.packet_buffers
        and not rule.tests
        and len(named) == len(rule.conditions)
        and all(bits.command == "set" for bits in rule.flowbits)
    )
    return Question(tuple(named), by_direction=True, once=once)


def _enabled(tree: Any) -> bool:
    value = tree.get("enabled", True) if isinstance(tree, Mapping) else True
    return value not in (False, "no", "off", "false", "detection-only")


def _detection_ports(settings: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """The ports that the configuration names for recognizing protocols."""
    found: dict[str, tuple[int, ...]] = {}
    for name, tree in settings.items():
        parts = [tree] if isinstance(tree, Mapping) else []
        parts += [part for part in (tree.get("tcp"), tree.get("udp")) if isinstance(part, Mapping)] if parts else []
        for part in parts:
            ports = part.get("detection-ports")
            wanted = ports.get("dp") if isinstance(ports, Mapping) else None
            if wanted is not None:
                words = str(wanted).strip("[]").replace(" ", "").split(",")
                found[name] = tuple(int(word) for word in words if word.isdigit() and int(word) < 65536)
    return found
