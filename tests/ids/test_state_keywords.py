"""What rules remember: integers of flows, bits of hosts and of pairs of hosts."""

import pytest
from conversation import udp, udp6
from replay import inspect

from flowshunt_ids.flow_integers import FlowIntegers
from flowshunt_ids.host_bits import MAX_BITS, HostBitTable
from flowshunt_ids.rules.rule import FlowInteger, HostBits

SECOND = 1_000_000_000
A, B = b"\x0a\0\0\1", b"\x0a\0\0\2"


def alerts(frames, *rules, **options):
    return inspect(frames, list(rules), **options).numbered()


def test_a_flow_counts_and_compares():
    rules = (
        'alert udp any any -> any any (content:"x"; flowint:seen,+,2; noalert; sid:1;)',
        'alert udp any any -> any any (content:"x"; flowint:seen,>=,6; sid:2;)',
        'alert udp any any -> any any (content:"x"; flowint:seen,==,2; sid:3;)',
    )
    frames = [udp(b"x"), udp(b"x", sport=5), udp(b"x"), udp(b"x"), udp(b"x")]
    assert alerts(frames, *rules) == [(1, 3), (2, 3), (4, 2), (5, 2)]


@pytest.mark.parametrize(
    ("options", "asked", "expected"),
    [
        ([("=", 5)], ("==", 5), True),
        ([("=", 5), ("-", 6)], ("==", 0xFFFFFFFF), True),
        ([("-", 1)], ("isset", None), False),
        ([("+", 1)], ("isset", None), True),
        ([], ("==", 0), False),
        ([], ("isnotset", None), True),
        ([("=", 5)], ("!=", "other"), True),
        ([("=", 0)], ("<=", "other"), True),
    ],
)
def test_integers_have_thirty_two_bits_and_no_value_at_first(options, asked, expected):
    table = FlowIntegers()
    table.change(7, [FlowInteger("name", command, value) for command, value in options])
    assert table.holds(7, [FlowInteger("name", *asked)]) is expected
    assert table.holds(8, [FlowInteger("name", "isnotset")])
    table.forget(7)
    assert len(table) == 0


def test_xbits_of_a_pair_outlive_flows_and_do_not_care_for_the_direction():
    rules = (
        'alert udp any any -> any any (content:"set"; xbits:set,seen,track ip_pair; noalert; sid:1;)',
        'alert udp any any -> any any (content:"ask"; xbits:isset,seen,track ip_pair; sid:2;)',
    )
    frames = [
        udp(b"set", sport=1),
        udp(b"ask", sport=2),
        udp(b"ask", sport=3, source="10.0.0.2", destination="10.0.0.1"),
        udp(b"ask", sport=4, destination="10.0.0.3"),
    ]
    assert alerts(frames, *rules) == [(2, 2), (3, 2)]


def test_ipv4_and_ipv6_hosts_whose_bytes_begin_alike_are_different():
    rules = (
        'alert udp any any -> any any (content:"set"; xbits:set,seen,track ip_src; noalert; sid:1;)',
        'alert udp any any -> any any (content:"ask"; xbits:isset,seen,track ip_src; sid:2;)',
    )
    same = bytes([10, 0, 0, 1]) + bytes(12)
    frames = [udp(b"set"), udp6(b"ask", source=same, destination=bytes(16)), udp(b"ask")]
    assert alerts(frames, *rules) == [(3, 2)]


def test_hostbits_and_xbits_of_one_name_are_the_same():
    rules = (
        'alert udp any any -> any any (content:"set"; hostbits:set,seen,dst; noalert; sid:1;)',
        'alert udp any any -> any any (content:"ask"; xbits:isset,seen,track ip_dst; sid:2;)',
        'alert udp any any -> any any (content:"ask"; xbits:isnotset,seen,track ip_src; sid:3;)',
    )
    assert alerts([udp(b"set"), udp(b"ask")], *rules) == [(2, 2), (2, 3)]


def test_bits_expire_in_whole_seconds():
    table = HostBitTable()
    option = HostBits("set", "x", "ip_src", 10)
    table.change([option], A, B, 5 * SECOND + 900_000_000)
    asked = [HostBits("isset", "x", "ip_src")]
    assert table.holds(asked, A, B, 15 * SECOND + 900_000_000)
    assert not table.holds(asked, A, B, 16 * SECOND)
    assert not table.holds(asked, A, B, 5 * SECOND)


def test_toggled_and_unset_bits():
    table = HostBitTable()
    for command, expected in (("toggle", True), ("toggle", False), ("set", True), ("unset", False)):
        table.change([HostBits(command, "x", "ip_dst")], A, B, 0)
        assert table.holds([HostBits("isset", "x", "ip_dst")], A, B, 0) is expected


def test_the_number_of_bits_is_bounded():
    table = HostBitTable()
    for number in range(MAX_BITS + 10):
        table.change([HostBits("set", "x", "ip_src")], number.to_bytes(4, "big"), B, 0)
    assert (len(table), table.forgotten) == (MAX_BITS, 10)


def test_a_rule_that_reads_by_xbits_sees_what_earlier_packets_set():
    rules = (
        'alert udp any any -> any any (content:"a"; xbits:set,seen,track ip_src; sid:1;)',
        'alert udp any any -> any any (content:"a"; xbits:isset,seen,track ip_src; sid:2;)',
        'alert udp any any -> any any (content:"a"; hostbits:isset,seen,src; sid:3;)',
    )
    assert alerts([udp(b"a"), udp(b"a")], *rules) == [(1, 1), (1, 3), (2, 2), (2, 1), (2, 3)]
