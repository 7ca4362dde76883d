"""Fragments go with their flow, whatever their order, and are counted once."""

import itertools

import attrs
import numpy as np
import pytest
from flow_frames import ICMP, SECOND, SYN, TCP, UDP, Fragment, Packet, batch_of

from flowshunt.flows.table import FlowTable


def datagram(identification=7, parts=3, **changes):
    base = attrs.evolve(Packet(protocol=UDP, payload=16), **changes)
    return [
        attrs.evolve(base, fragment=Fragment(identification, 2 * part, part + 1 < parts), time=base.time + part)
        for part in range(parts)
    ]


def track(table, *packets):
    return table.track(*batch_of(packets))


def counts(table):
    return table.counters.fragments_matched, table.counters.fragments_unmatched


@pytest.mark.parametrize("hosts", [("10.0.0.1", "10.0.0.2"), ("2001:db8::1", "2001:db8::2")])
@pytest.mark.parametrize("protocol", [UDP, TCP])
def test_later_fragments_take_the_ports_of_the_first(hosts, protocol):
    table = FlowTable(16)
    whole = Packet(source=hosts[0], destination=hosts[1], protocol=protocol)
    parts = datagram(source=hosts[0], destination=hosts[1], protocol=protocol)
    assert track(table, whole, *parts).slot.tolist() == [0, 0, 0, 0]
    assert table.records["packets"][0].tolist() == [4, 0]
    assert counts(table) == (2, 0)


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_fragments_before_their_first_go_to_the_flow_without_ports(order):
    table = FlowTable(16)
    parts = datagram()
    track(table, *(attrs.evolve(parts[at], time=0) for at in order))
    early = order.index(0)
    assert counts(table) == (2 - early, early)
    assert table.records["packets"].sum() == 3
    without_ports = table.records[(table.records["id"] > 0) & (table.records["source_port"] == 0)]
    assert without_ports["packets"].sum() == early


@pytest.mark.parametrize(
    "change",
    [
        {"fragment": Fragment(8, 2)},
        {"source": "10.0.0.3"},
        {"source": "10.0.0.2", "destination": "10.0.0.1"},
        {"protocol": TCP},
        {"vlan": 3},
        {"vlan": 4, "inner_vlan": 3},
    ],
)
def test_a_fragment_of_another_datagram_is_not_matched(change):
    table = FlowTable(16)
    track(table, datagram()[0], attrs.evolve(datagram()[1], **change))
    assert counts(table) == (0, 1)


@pytest.mark.parametrize(("nanoseconds", "expected"), [(60 * SECOND, (1, 0)), (60 * SECOND + 1, (0, 1))])
def test_a_datagram_is_remembered_for_a_minute(nanoseconds, expected):
    table = FlowTable(16)
    parts = datagram()
    track(table, parts[0], attrs.evolve(parts[1], time=nanoseconds))
    assert counts(table) == expected


def test_a_new_first_fragment_replaces_the_ports():
    table = FlowTable(16)
    old, new = datagram(), datagram(source_port=1)
    tracking = track(table, old[0], old[1], new[0], new[1])
    assert tracking.slot.tolist() == [0, 0, 1, 1]


def test_fragments_of_protocols_without_ports_need_no_first():
    table = FlowTable(16)
    assert track(table, *reversed(datagram(protocol=ICMP))).slot.tolist() == [0, 0, 0]
    assert counts(table) == (0, 0)


def test_a_flood_of_first_fragments_costs_old_datagrams_their_ports_and_nothing_else():
    table = FlowTable(1 << 17)
    victim = datagram(identification=1)
    track(table, victim[0])
    batch, headers = batch_of(victim[:1])
    count = 100_000
    flood = np.repeat(headers, count)
    flood["fragment_id"] = 2 + np.arange(count) % 60_000
    flood["vlan"] = np.arange(count) % 4000
    table.track(batch.select(np.zeros(count, np.int64)), flood)
    fresh = datagram(identification=0xFFFF)
    tracking = track(table, victim[1], *fresh)
    assert len(set(tracking.slot[1:].tolist())) == 1
    assert tracking.slot[0] != tracking.slot[1], "the oldest datagram was given up"
    assert table.counters.overflow == 0


def test_a_later_fragment_has_no_tcp_header_to_follow():
    table = FlowTable(16)
    track(table, *datagram(protocol=TCP, flags=SYN, parts=2))
    assert table.records["tcp_flags"][0].tolist() == [SYN, 0]


def test_a_card_matches_fragments_of_a_flow_that_is_learned_between_them():
    host, card = FlowTable(16), FlowTable(16)
    parts = datagram()
    card.match(*batch_of(parts[:1]))
    slots = track(host, parts[0]).slot
    card.insert(host.records[slots], 1)
    assert card.match(*batch_of(parts[1:])).slot.tolist() == [0, 0]
