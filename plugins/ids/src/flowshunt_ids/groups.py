"""Rule groups: what is looked at for the packets of one direction of one kind of flow."""

from collections.abc import Sequence

import attrs
import numpy as np
from numpy.typing import NDArray

from flowshunt.engine import BypassRequest
from flowshunt_ids import layout
from flowshunt_ids.encoding import EncodedRules
from flowshunt_ids.header_classes import FLOWLESS, HeaderClasses
from flowshunt_ids.layout import GROUP, RuleArrays
from flowshunt_ids.lookup import place_of
from flowshunt_ids.rules.rule import Action, Rule, Scope

MAX_GROUPS = 1 << 14
"""The most groups. Header combinations beyond them are not inspected, and counted."""
MAX_KEYS = 1 << 20
"""The most class combinations that are remembered; then they are forgotten and found anew."""


@attrs.frozen
class ScanClasses:
    """The scan classes (see `flowshunt_ids.prefilter`; 0: nothing to scan for) of what is looked at."""

    stream: tuple[int, int] = (0, 0)
    """Stream data to the server, to the client."""
    packet: int = 0
    """Payload of TCP packets."""
    datagram: int = 0
    """Payload of packets of other protocols."""


@attrs.frozen
class BypassPolicy:
    """Whether rules may bypass, and with which offload action."""

    enabled: bool = True
    action: str = "drop"

    def request(self, rule: Rule) -> BypassRequest:
        """What a rule with `bypass` asks for."""
        return BypassRequest(self.action, cause=f"rule sid {rule.signature.sid}")

    def passes(self, rule: Rule) -> bool:
        """Whether a rule lets its flow pass uninspected. Without bypass, rules that bypass have no such effect."""
        return rule.header.action is Action.PASS and (self.enabled or not rule.bypass)

    def drops(self, rule: Rule) -> bool:
        """Whether a rule drops its flow."""
        return rule.header.action in (Action.DROP, Action.REJECT) and (self.enabled or not rule.bypass)

    def bypasses(self, rule: Rule) -> bool:
        """Whether a match of the rule bypasses its flow."""
        return self.enabled and rule.bypass


def is_unconditional(rule: Rule) -> bool:
    """Whether nothing but the header and the packet's tests decides, and a match changes nothing but the flow."""
    return rule.threshold is None and not rule.flowbits and not rule.tests


class RuleGroups:
    """The groups met so far. Grown in Python, one combination of header classes at a time; looked up by kernels.

    keys, values: an open-addressing hash table from class combinations to groups.
    """

    def __init__(
        self,
        rules: Sequence[Rule],
        encoded: EncodedRules,
        classes: HeaderClasses,
        scan: ScanClasses,
        policy: BypassPolicy,
        app: frozenset[int] = frozenset(),
        *,
        parse: bool = False,
    ) -> None:
        """app: the rules that ask for an application layer. parse: whether flows are parsed even without any."""
        self._rules = rules
        self._encoded = encoded
        self._classes = classes
        self._scan = scan
        self._policy = policy
        self.requests: list[BypassRequest] = []
        self._request_numbers: dict[tuple[str, str], int] = {}
        self.refused = 0
        self._words = max(1, (len(rules) + 63) // 64)
        self._by_rules: dict[tuple[bytes, int, bool], int] = {}
        self._lists = np.zeros(256, np.int32)
        self._listed = 0
        self._count = 0
        self._rows = np.zeros(16, GROUP)
        self._members = np.zeros((16, self._words), np.uint64)
        self._inert = frozenset(
            number
            for number, rule in enumerate(rules)
            if (rule.header.action is Action.PASS and not policy.passes(rule))
            or (rule.events and not rule.payload and rule.header.protocol == "pkthdr")
        )
        self._app = app
        self._parse = parse
        self._known = 0
        self._reset_keys(1024)
        self._group(np.empty(0, np.int64), FLOWLESS, False)
        self.arrays = self._make_arrays()

    def __len__(self) -> int:
        return self._count

    def request_number(self, request: BypassRequest) -> int:
        """The number of a request in `requests`."""
        number = self._request_numbers.setdefault((request.action, request.cause), len(self.requests))
        if number == len(self.requests):
            self.requests.append(request)
        return number

    def add(self, keys: NDArray[np.uint64]) -> None:
        """Make groups for class combinations, as `flowshunt_ids.lookup` packs them: uint64[k, 2]."""
        for first, second in sorted(set(map(tuple, keys.tolist()))):
            source, destination = first >> 32, first & 0xFFFFFFFF
            source_port, destination_port = second >> 44, (second >> 24) & 0xFFFFF
            protocol, direction = (second >> 4) & 0xFFFFF, second & 15
            tcp = protocol == self._classes.tcp_class
            chosen = self._classes.rules_of(source, destination, source_port, destination_port, protocol, direction)
            self._remember(first, second, self._group(chosen, direction, tcp))
        self.arrays = self._make_arrays()

    def _reset_keys(self, size: int) -> None:
        self.keys = np.full((size, 2), np.iinfo(np.uint64).max, np.uint64)
        self.values = np.full(size, -1, np.int32)

    def _remember(self, first: int, second: int, group: int) -> None:
        if self._known >= MAX_KEYS:
            self._known = 0
            self._reset_keys(1024)
        elif self._known * 2 >= len(self.values):
            old_keys, old_values = self.keys, self.values
            self._reset_keys(2 * len(old_values))
            for (a, b), value in zip(old_keys.tolist(), old_values.tolist(), strict=True):
                if value >= 0:
                    place = place_of(self.keys, self.values, a, b)
                    self.keys[place] = a, b
                    self.values[place] = value
        place = place_of(self.keys, self.values, first, second)
        self.keys[place] = first, second
        self.values[place] = group
        self._known += 1

    def _list(self, numbers: Sequence[int]) -> tuple[int, int]:
        start, count = self._listed, len(numbers)
        while start + count > len(self._lists):
            self._lists = np.concatenate([self._lists, np.zeros_like(self._lists)])
        self._lists[start : start + count] = numbers
        self._listed += count
        return start, count

    def _group(self, chosen: NDArray[np.int64], direction: int, tcp: bool) -> int:
        numbers = [number for number in chosen.tolist() if number not in self._inert]
        key = (np.array(numbers, np.int32).tobytes(), direction, tcp)
        known = self._by_rules.get(key)
        if known is not None:
            return known
        if self._count >= MAX_GROUPS:
            self.refused += 1
            return 0
        rules = self._rules
        patterns = self._encoded.patterns
        first = [number for number in numbers if rules[number].scope is Scope.FIRST]
        packet = [
            number
            for number in numbers
            if rules[number].scope in (Scope.ALL, Scope.PACKET) and not rules[number].events
        ]
        streams = [number for number in numbers if tcp and direction != FLOWLESS and rules[number].in_streams]
        payloads = [number for number in numbers if (rules[number].in_packets if tcp else rules[number].in_datagrams)]
        if tcp and direction == FLOWLESS:
            payloads = sorted({*payloads, *(number for number in numbers if rules[number].in_streams)})
        passing = any(
            self._policy.passes(rules[number]) for number in numbers if rules[number].scope is not Scope.FIRST
        )
        flags, request, first = self._at_first_packet(first, passing)
        if streams:
            flags |= layout.GROUP_STREAM
        if payloads:
            flags |= layout.GROUP_PAYLOAD
        if numbers:
            flags |= layout.GROUP_RULES
        if self._parse or any(number in self._app for number in numbers):
            flags |= layout.GROUP_APP
        stream_scan = self._scan.stream[direction] if direction != FLOWLESS else 0
        scans = any(patterns[number] is not None for number in payloads)
        row = (
            stream_scan if any(patterns[number] is not None for number in streams) else 0,
            (self._scan.packet if tcp else self._scan.datagram) if scans else 0,
            flags,
            *self._list(first),
            *self._list(packet),
            *self._list([number for number in streams if patterns[number] is None]),
            *self._list([number for number in payloads if patterns[number] is None]),
            request,
        )
        group = self._count
        self._count += 1
        if group >= len(self._rows):
            self._rows = np.concatenate([self._rows, np.zeros_like(self._rows)])
            self._members = np.vstack([self._members, np.zeros_like(self._members)])
        self._rows[group] = row
        bits = 0
        for number in numbers:
            bits |= 1 << number
        self._members[group] = np.frombuffer(bits.to_bytes(8 * self._words, "little"), np.uint64)
        self._by_rules[key] = group
        return group

    def _at_first_packet(self, first: list[int], passing: bool) -> tuple[int, int, list[int]]:
        """What the rules of the first packet do at once, decided here for all flows of the group.

        passing: other rules of the group may pass the packet, which has to be seen first. Returns the group's flags,
        1 + its bypass request, and the rules that remain to be looked at for each flow.
        """
        rules, policy = self._rules, self._policy
        certain = [number for number in first if is_unconditional(rules[number])]
        flags = request = 0
        bypassing = next((rules[number] for number in certain if policy.bypasses(rules[number])), None)
        if bypassing is not None:
            request = 1 + self.request_number(policy.request(bypassing))
        if any(policy.passes(rules[number]) and not rules[number].alert for number in certain):
            return layout.GROUP_PASS, request, []
        if passing or any(policy.passes(rules[number]) for number in first):
            return 0, 0, first
        if any(policy.drops(rules[number]) for number in certain):
            flags = layout.GROUP_DROP
        return flags, request, [number for number in first if not (number in certain and rules[number].noalert)]

    def _make_arrays(self) -> RuleArrays:
        encoded = self._encoded
        return RuleArrays(
            encoded.rules,
            encoded.tests,
            encoded.ops,
            encoded.pool,
            self._rows,
            self._lists,
            self._members,
        )
