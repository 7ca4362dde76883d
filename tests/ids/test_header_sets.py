"""Addresses and ports of rule headers as sets, and the classes that stand for them."""

import ipaddress
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowshunt_ids.header_classes import NO_PORTS, HeaderClasses
from flowshunt_ids.rules.classification import Classification
from flowshunt_ids.rules.intervals import subtract, union
from flowshunt_ids.rules.lexer import RuleError
from flowshunt_ids.rules.loader import build_rule
from flowshunt_ids.rules.variables import Variables, parse_addresses, parse_ports

INTERVAL = st.tuples(st.integers(0, 60), st.integers(0, 12)).map(lambda pair: (pair[0], pair[0] + pair[1]))


def members(intervals):
    return {value for low, high in intervals for value in range(low, high + 1)}


@given(st.lists(INTERVAL), st.lists(INTERVAL))
def test_interval_algebra_is_that_of_sets(first, second):
    one, two = union(first), union(second)
    assert members(one) == members(first)
    assert members(subtract(one, two)) == members(first) - members(second)
    assert all(left[1] + 1 < right[0] for left, right in itertools.pairwise(one))


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ("any", ["1.2.3.4", "::1"], []),
        ("10.0.0.0/30", ["10.0.0.3"], ["10.0.0.4", "::a00:1"]),
        ("10.0.0.1/255.255.255.0", ["10.0.0.200"], ["10.0.1.0"]),
        ("10.0.0.1-10.0.0.5", ["10.0.0.5"], ["10.0.0.6"]),
        ("!10.0.0.1", ["10.0.0.2", "::1"], ["10.0.0.1"]),
        ("[10.0.0.0/8,!10.1.0.0/16]", ["10.2.0.0"], ["10.1.2.3", "11.0.0.0"]),
        ("[1.1.1.1,[2.2.2.2,!1.1.1.1]]", ["2.2.2.2"], ["1.1.1.1"]),
        ("![1.1.1.1,!2.2.2.2]", ["2.2.2.2"], ["1.1.1.1", "3.3.3.3"]),
        ("$EXTERNAL_NET", ["8.8.8.8", "2001:db8::1"], ["10.1.1.1"]),
        ("!$EXTERNAL_NET", ["10.1.1.1"], ["8.8.8.8"]),
        ("10.0.0.1,1.2.3.4", ["1.2.3.4"], ["1.2.3.5"]),
        ("2001:db8::/32", ["2001:db8:ffff::1"], ["2001:db9::1", "1.1.1.1"]),
    ],
)
def test_addresses(text, inside, outside):
    found = parse_addresses(text, Variables().addresses)

    def holds(address):
        parsed = ipaddress.ip_address(address)
        intervals = found.ipv4 if parsed.version == 4 else found.ipv6
        return any(low <= int(parsed) <= high for low, high in intervals)

    assert all(map(holds, inside))
    assert not any(map(holds, outside))


def test_a_variable_that_contains_itself_is_refused():
    with pytest.raises(RuleError, match="contains itself"):
        parse_addresses("$A", {"A": "[1.1.1.1,$B]", "B": "$A"})


PORTS = st.recursive(
    st.sampled_from(["80", "443", "1:100", "1000:", ":20", "0", "65535"]).flatmap(
        lambda text: st.sampled_from([text, f"!{text}"])
    ),
    lambda inner: st.lists(inner, min_size=1, max_size=3).map(lambda items: f"[{','.join(items)}]"),
    max_leaves=5,
)
ADDRESSES = st.sampled_from(
    ["any", "10.0.0.0/8", "!10.0.0.0/8", "10.1.0.0/16", "[10.0.0.0/8,!10.1.0.0/16]", "10.1.2.3", "::/1", "fe80::/10"]
)
PROTOCOLS = st.sampled_from([("ip", None), ("tcp", {6}), ("udp", {17}), ("icmp", {1, 58}), ("sctp", {132})])


@given(st.lists(st.tuples(PROTOCOLS, ADDRESSES, PORTS, st.sampled_from(["->", "<>"]), ADDRESSES, PORTS), max_size=8))
def test_classes_choose_the_rules_that_a_plain_comparison_chooses(headers):
    rules = []
    for (name, _numbers), source, sport, arrow, destination, dport in headers:
        try:
            text = f"alert {name} {source} {sport} {arrow} {destination} {dport} (sid:1;)"
            rules.append(build_rule(text, Variables(), Classification())[0])
        except RuleError:
            continue
    classes = HeaderClasses(rules)
    tables = classes.tables()

    def address_class(text):
        parsed = ipaddress.ip_address(text)
        if parsed.version == 4:
            place = int(np.searchsorted(tables.ipv4_start, int(parsed), side="right")) - 1
            return int(tables.ipv4_class[place])
        starts = [int(h) << 64 | int(low) for h, low in zip(tables.ipv6_high, tables.ipv6_low, strict=True)]
        return int(tables.ipv6_class[max(at for at, start in enumerate(starts) if start <= int(parsed))])

    def holds(rule, protocol, source, sport, destination, dport):
        header = rule.header

        def inside(addresses, text):
            parsed = ipaddress.ip_address(text)
            intervals = addresses.ipv4 if parsed.version == 4 else addresses.ipv6
            return any(low <= int(parsed) <= high for low, high in intervals)

        def port(ports, number):
            return any(low <= number <= high for low, high in ports.ports)

        def one_way(a, p, b, q):
            return (
                inside(header.source, a)
                and port(header.source_ports, p)
                and inside(header.destination, b)
                and port(header.destination_ports, q)
            )

        if header.protocols is not None and protocol not in header.protocols:
            return False
        both = header.both_directions and one_way(destination, dport, source, sport)
        return one_way(source, sport, destination, dport) or both

    for protocol in (1, 6, 17, 50, 58, 132):
        for source, destination in [("10.1.2.3", "9.9.9.9"), ("10.2.0.0", "10.1.0.0"), ("::1", "fe80::1")]:
            for sport, dport in [(0, 80), (443, 65535), (20, 999), (1000, 100)]:
                chosen = classes.rules_of(
                    address_class(source),
                    address_class(destination),
                    int(tables.port_class[sport]),
                    int(tables.port_class[dport]),
                    int(tables.protocol_class[protocol]),
                    0,
                )
                expected = [
                    number
                    for number, rule in enumerate(rules)
                    if holds(rule, protocol, source, sport, destination, dport)
                ]
                assert chosen.tolist() == expected


def test_ports_of_fragments_fit_rules_for_any_port_only():
    rules = [
        build_rule(f"alert udp any any -> any {ports} (sid:1;)", Variables(), Classification())[0]
        for ports in ("any", "0:65535", "80", "!80")
    ]
    classes = HeaderClasses(rules)
    tables = classes.tables()
    address, none = int(tables.ipv4_class[0]), int(tables.port_class[NO_PORTS])
    assert classes.rules_of(address, address, none, none, int(tables.protocol_class[17]), 2).tolist() == [0, 1]


def test_ports():
    assert parse_ports("[1:10,!5,20]", {}).ports == ((1, 4), (6, 10), (20, 20))
    assert parse_ports("!5800,!445", {}).ports == ((0, 444), (446, 5799), (5801, 65535))
