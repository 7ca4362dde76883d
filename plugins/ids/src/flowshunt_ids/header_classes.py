"""Classes of addresses, ports and protocols: values that no rule's header tells apart, found by elementary intervals.

A packet's five values become five small class numbers; the rules whose headers fit the packet are the AND of five bit
sets, one for each class. All flows with the same five classes share one rule group.
"""

from collections.abc import Hashable, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from numba import types
from numpy.typing import NDArray

from flowshunt.compiled import column
from flowshunt_ids.rules.intervals import Intervals
from flowshunt_ids.rules.rule import FlowCondition, Rule
from flowshunt_ids.rules.variables import ANY_PORT, Addresses, Ports

T = TypeVar("T", bound=Hashable)

NO_PORTS = 65536
"""In place of a port, for packets whose ports are not known: only rules for any port apply."""
FLOWLESS = 2
"""The direction of packets that belong to no flow."""


class ClassTables(NamedTuple):
    """Where to look a packet's classes up. v6 bounds are split into their upper and lower 64 bits.

    `ipv4_start[i]` is the first address of interval i, whose class is `ipv4_class[i]`; likewise IPv6. `port_class` has
    65,536 entries and one for fragments, whose ports are not known; `protocol_class` has 256.
    """

    ipv4_start: NDArray[np.uint32]
    ipv4_class: NDArray[np.int32]
    ipv6_high: NDArray[np.uint64]
    ipv6_low: NDArray[np.uint64]
    ipv6_class: NDArray[np.int32]
    port_class: NDArray[np.int32]
    protocol_class: NDArray[np.int32]


CLASS_TABLES = types.NamedTuple(
    [
        column(np.uint32),
        column(np.int32),
        column(np.uint64),
        column(np.uint64),
        column(np.int32),
        column(np.int32),
        column(np.int32),
    ],
    ClassTables,
)


def _partition(sets: Sequence[Intervals], rng: np.random.Generator) -> tuple[list[int], list[tuple[int, int]]]:
    """Elementary intervals of some sets: their first values from 0 on, and for each a signature of who covers it.

    Two intervals have the same signature exactly if the same sets cover them (128 random bits a set, XOR-ed).
    """
    changes: dict[int, list[int]] = {0: [0, 0]}
    for intervals in sets:
        mark = [int(x) for x in rng.integers(0, 1 << 63, 2)]
        for low, high in intervals:
            for at in (low, high + 1):
                change = changes.setdefault(at, [0, 0])
                change[0] ^= mark[0]
                change[1] ^= mark[1]
    starts = sorted(changes)
    first = second = 0
    signatures = []
    for start in starts:
        first ^= changes[start][0]
        second ^= changes[start][1]
        signatures.append((first, second))
    return starts, signatures


class HeaderClasses:
    """The class tables of a rule set, and for each class the rules that it leaves possible."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.rule_count = len(rules)
        self._entries: list[int] = []
        sources: list[Addresses] = []
        destinations: list[Addresses] = []
        source_ports: list[Ports] = []
        destination_ports: list[Ports] = []
        for number, rule in enumerate(rules):
            header = rule.header
            ends = [(header.source, header.source_ports, header.destination, header.destination_ports)]
            if header.both_directions:
                ends.append((header.destination, header.destination_ports, header.source, header.source_ports))
            for source, source_port, destination, destination_port in ends:
                self._entries.append(number)
                sources.append(source)
                source_ports.append(source_port)
                destinations.append(destination)
                destination_ports.append(destination_port)
        rng = np.random.default_rng(0x10F5)
        self._address_classes(sources, destinations, rng)
        self._port_classes(source_ports, destination_ports, rng)
        self._protocol_classes([rules[number] for number in self._entries])
        self._directions = np.zeros((3, len(self._entries)), np.bool_)
        for at, number in enumerate(self._entries):
            self._directions[:, at] = _directions(rules[number].flow)
        self._rule_of_entry = np.array(self._entries, np.int64)

    def _address_classes(
        self, sources: Sequence[Addresses], destinations: Sequence[Addresses], rng: np.random.Generator
    ) -> None:
        specs, places = _places([*sources, *destinations])
        parts = [
            (_partition([spec.ipv4 for spec in specs], rng), [spec.ipv4 for spec in specs]),
            (_partition([spec.ipv6 for spec in specs], rng), [spec.ipv6 for spec in specs]),
        ]
        numbers: dict[tuple[int, int, int], int] = {}
        examples: list[tuple[int, int]] = []
        classes: list[list[int]] = []
        for version, ((starts, signatures), _sets) in enumerate(parts):
            row = []
            for start, signature in zip(starts, signatures, strict=True):
                key = (version, *signature)
                if key not in numbers:
                    numbers[key] = len(numbers)
                    examples.append((version, start))
                row.append(numbers[key])
            classes.append(row)
        (starts4, _), _ = parts[0]
        (starts6, _), _ = parts[1]
        keep4 = [at for at, start in enumerate(starts4) if start < 1 << 32]
        keep6 = [at for at, start in enumerate(starts6) if start < 1 << 128]
        self._ipv4 = (
            np.array([starts4[at] for at in keep4], np.uint32),
            np.array([classes[0][at] for at in keep4], np.int32),
        )
        self._ipv6 = (
            np.array([starts6[at] >> 64 for at in keep6], np.uint64),
            np.array([starts6[at] & ((1 << 64) - 1) for at in keep6], np.uint64),
            np.array([classes[1][at] for at in keep6], np.int32),
        )
        member = np.zeros((len(examples), len(specs)), np.bool_)
        for number, spec in enumerate(specs):
            bounds = (np.array([low for low, _ in spec.ipv4], object), np.array([low for low, _ in spec.ipv6], object))
            for at, (version, value) in enumerate(examples):
                intervals = spec.ipv6 if version else spec.ipv4
                place = int(np.searchsorted(bounds[version], value, side="right")) - 1
                member[at, number] = place >= 0 and intervals[place][1] >= value
        count = len(sources)
        self._source = member[:, places[:count]]
        self._destination = member[:, places[count:]]

    def _port_classes(self, sources: Sequence[Ports], destinations: Sequence[Ports], rng: np.random.Generator) -> None:
        specs, places = _places([*sources, *destinations])
        marks = rng.integers(0, 1 << 63, len(specs), dtype=np.uint64)
        signature = np.zeros(NO_PORTS + 1, np.uint64)
        for mark, spec in zip(marks, specs, strict=True):
            for low, high in spec.ports:
                signature[low : high + 1] ^= mark
            if spec == ANY_PORT:
                signature[NO_PORTS] ^= mark
        _values, first, inverse = np.unique(signature, return_index=True, return_inverse=True)
        self._port_class = inverse.astype(np.int32).reshape(-1)
        member = np.zeros((len(first), len(specs)), np.bool_)
        for number, spec in enumerate(specs):
            for low, high in spec.ports:
                member[:, number] |= (first >= low) & (first <= high)
            if spec == ANY_PORT:
                member[:, number] = True
        count = len(sources)
        self._source_port = member[:, places[:count]]
        self._destination_port = member[:, places[count:]]

    def _protocol_classes(self, rules: Sequence[Rule]) -> None:
        specs, places = _places([rule.header.protocols for rule in rules])
        member = np.zeros((256, max(len(specs), 1)), np.bool_)
        for number, spec in enumerate(specs):
            if spec is None:
                member[:, number] = True
            else:
                member[sorted(spec), number] = True
        rows, inverse = np.unique(member, axis=0, return_inverse=True)
        # TCP is a class of its own: what it leaves possible depends on streams.
        classes = inverse.reshape(-1).astype(np.int32)
        classes[6] = len(rows)
        self._protocol_class = classes
        self._protocol = np.vstack([rows, member[6:7]])[:, places] if rules else np.zeros((len(rows) + 1, 0), np.bool_)

    def tables(self) -> ClassTables:
        """The tables that kernels look classes up in."""
        (ipv4_start, ipv4_class), (high, low, ipv6_class) = self._ipv4, self._ipv6
        return ClassTables(ipv4_start, ipv4_class, high, low, ipv6_class, self._port_class, self._protocol_class)

    @property
    def tcp_class(self) -> int:
        """The protocol class of TCP."""
        return int(self._protocol_class[6])

    def rules_of(
        self, source: int, destination: int, source_port: int, destination_port: int, protocol: int, direction: int
    ) -> NDArray[np.int64]:
        """The rules, in order, whose headers fit packets of these classes in a direction (FLOWLESS: of no flow)."""
        fits = (
            self._source[source]
            & self._destination[destination]
            & self._source_port[source_port]
            & self._destination_port[destination_port]
            & self._protocol[protocol]
            & self._directions[direction]
        )
        chosen = self._rule_of_entry[fits]
        # The one or two entries of a rule lie side by side, in the order of the rules.
        return chosen[np.diff(chosen, prepend=-1) != 0]


def _directions(flow: FlowCondition) -> tuple[bool, bool, bool]:
    return (
        flow.direction in (None, 0),
        flow.direction in (None, 1),
        flow.direction is None and flow.established is not True,
    )


def _places(values: Sequence[T]) -> tuple[list[T], list[int]]:
    """The distinct values, and for each value its place among them."""
    seen: dict[T, int] = {}
    places = [seen.setdefault(value, len(seen)) for value in values]
    return list(seen), places
