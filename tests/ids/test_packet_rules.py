"""Rules on packets: header keywords, what alerts how often, pass, drop, flowbits and thresholds."""

import struct

import pytest
from conversation import Conversation, icmp, ipv4, udp, udp6
from replay import inspect

TALK = Conversation().handshake().send(0, b"abc").finish().frames


def numbers(frames, rule, **options):
    return [number for number, _sid in inspect(frames, [rule], **options).numbered()]


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("S", [1]),
        ("SA", [2]),
        ("S+", [1, 2]),
        ("+FA", [6, 7]),
        ("*SF", [1, 2]),
        ("*FP", [6, 7]),
        ("!S", [6, 7]),
        ("!SA", [1, 6, 7]),
        ("!A", [1]),
        ("PA", [4]),
        ("A,PF", [3, 4, 5, 6, 7, 8]),
        ("0", []),
    ],
)
def test_flags(flags, expected):
    assert numbers(TALK, f"alert tcp any any -> any any (flags:{flags}; sid:1;)") == expected


@pytest.mark.parametrize(
    ("dsize", "expected"),
    [
        ("10", [4]),
        ("<10", [1, 2, 3, 5]),
        ("<=10", [1, 2, 3, 4, 5]),
        (">8", [4]),
        ("8<>20", [4]),
        ("!9", [4]),
        ("!10", []),
    ],
)
def test_dsize(dsize, expected):
    frames = Conversation().handshake().send(0, b"0123456789").frames
    assert numbers(frames, f"alert tcp any any -> any any (dsize:{dsize}; sid:1;)") == expected


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("alert tcp any any -> any any (sid:1;)", [1, 2]),
        ("alert tcp any 40000 -> any 9999 (sid:1;)", [1]),
        ("alert tcp any any <> any 9999 (sid:1;)", [1, 2]),
        ("alert tcp any any -> any ![80,20] (sid:1;)", [1, 2]),
        ("alert tcp !10.0.0.3 any -> any 9999 (sid:1;)", [1, 3, 4, 6, 8]),
        ("alert tcp any any -> any any (flow:to_server; sid:1;)", [1, 3, 4, 6, 8]),
        ("alert tcp any any -> any any (flow:not_established; sid:1;)", [1, 2, 3]),
        ("alert tcp any any -> any any (flow:stateless; sid:1;)", [1, 2, 3, 4, 5, 6, 7, 8]),
        ("alert ip any any -> any any (ip_proto:6; sid:1;)", [1, 2]),
        ("alert ip any any -> any any (ip_proto:!6; sid:1;)", []),
        ("alert ip any any -> any any (ttl:64; sid:1;)", [1, 2, 3, 4, 5, 6, 7, 8]),
        ("alert tcp any any -> any any (seq:1000; sid:1;)", [1]),
        ("alert tcp any any -> any any (ack:0; sid:1;)", [1]),
        ("alert tcp any any -> any any (window:!65535; sid:1;)", []),
        ("alert tcp any any -> any any (sameip; sid:1;)", []),
        ("alert udp any any -> any any (sid:1;)", []),
        ('alert tcp any any -> any any (content:!"zzz"; sid:1;)', [6]),
    ],
)
def test_what_alerts_how_often(rule, expected):
    assert numbers(TALK, rule) == expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("itype:8", [1]),
        ("itype:<8", [2, 3]),
        ("icode:3", [3]),
        ("icmp_id:7", [1, 2]),
        ("icmp_seq:3", [1, 2]),
        ("icmp_seq:4", []),
        ("id:99", [1]),
        ("fragbits:D", [1]),
        ("ttl:33", [1]),
        ("ttl:30-40", [1]),
        ("dsize:20", [1, 2]),
        ('content:"xxxx"', [1, 2]),
    ],
)
def test_icmp_and_ip_fields(options, expected):
    echo = struct.pack("!HH", 7, 3)
    frames = [
        ipv4("10.0.0.1", "10.0.0.2", 1, b"\x08\0\0\0" + echo + b"x" * 20, identification=99, fragment=0x4000, ttl=33),
        icmp(0, 0, echo, b"x" * 20, "10.0.0.2", "10.0.0.1"),
        icmp(3, 3, bytes(4), b"yy", "10.0.0.9", "10.0.0.1"),
    ]
    assert numbers(frames, f"alert icmp any any -> any any ({options}; sid:1;)") == expected


def test_ip_version_and_addresses():
    frames = [udp6(b"abc", source=b"\x20\x01\x0d\xb8" + bytes(11) + b"\1", destination=bytes(15) + b"\1"), udp(b"abc")]
    for header, expected in [
        ("udp 2001:db8::/32 any -> any any", [1]),
        ("udp !2001:db8::1 any -> any any", [2]),
        ("ip6 any any -> any any", [1]),
        ("ipv4 any any -> any any", [2]),
        ("udp [2001:db8::1,10.0.0.0/8] any -> any any", [1, 2]),
        ("udp any 4000 -> any [9000:,!9998]", [1, 2]),
        ("udp any any -> any 4000", []),
    ]:
        assert numbers(frames, f'alert {header} (content:"abc"; sid:1;)') == expected


def udp_talk():
    return [
        udp(b"hello"),
        udp(b"hello", source="10.0.0.2", destination="10.0.0.1", sport=9999, dport=4000),
        udp(b"hello"),
    ]


def test_udp_is_established_with_the_first_answer():
    assert numbers(udp_talk(), "alert udp any any -> any any (flow:established; sid:1;)") == [2, 3]


FLOW = ["alert tcp any any -> any any (sid:1;)", "alert tcp any any -> any any (flow:to_server; sid:2;)"]


def talk3():
    talk = Conversation().handshake()
    for _ in range(3):
        talk.send(0, b"aaaa").send(1, b"aaaa")
    return talk.finish().frames


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("drop tcp any any -> any any (sid:9;)", [(1, 9), (1, 1), (1, 2)]),
        ("drop tcp any any -> any any (noalert; sid:9;)", [(1, 1), (1, 2)]),
        ("drop tcp !1.2.3.4 any -> any any (sid:9;)", [(1, 9), (1, 1), (1, 2)]),
        ("reject tcp any any -> any any (sid:9;)", [(1, 9), (1, 1), (1, 2)]),
        ("pass tcp any any -> any any (sid:9;)", []),
        ("pass tcp any any -> any any (flow:to_server; sid:9;)", [(2, 1)]),
        ("alert tcp any any -> any any (priority:1; sid:9;)", [(1, 9), (1, 1), (1, 2), (2, 9), (2, 1)]),
        ("pass tcp any any -> any any (alert; sid:9;)", [(1, 9)]),
    ],
)
def test_pass_and_drop_act_on_the_whole_flow_or_the_packet(rule, expected):
    found = inspect(talk3(), [*FLOW, rule])
    later = [(number, sid) for number, sid in found.numbered() if number > 2]
    assert [(number, sid) for number, sid in found.numbered() if number <= 2] == expected
    if rule.startswith("alert"):
        assert later == [(number, 2) for number in (3, 4, 7, 8, 11, 12, 15, 16, 18)]
    else:
        assert later == []
    assert set(found.dispositions()) == {0}


def test_a_pass_on_a_packet_spares_later_ones():
    rules = [*FLOW, 'pass tcp-pkt any any -> any any (content:"a"; sid:9;)']
    assert [number for number, sid in inspect(talk3(), rules).numbered() if sid == 2] == [1, 3, 7, 11, 15, 16, 18]


def test_flowbits():
    frames = [udp(b"abc")] * 4
    rules = [
        'alert udp any any -> any any (content:"abc"; flowbits:isnotset,x; flowbits:set,x; sid:1;)',
        'alert udp any any -> any any (content:"abc"; flowbits:isset,x; sid:2;)',
        "alert udp any any -> any any (flowbits:isset,x; sid:3;)",
        'alert udp any any -> any any (flowbits:isset,x|y; content:"abc"; sid:4;)',
        "alert udp any any -> any any (flowbits:isnotset,x; sid:5;)",
        'alert udp any any -> any any (flowbits:toggle,t; content:"abc"; sid:6;)',
        "alert udp any any -> any any (flowbits:isset,t; sid:7;)",
    ]
    for batch in (1, 4):
        found = inspect(frames, rules, batch=batch).numbered()
        assert [number for number, sid in found if sid == 1] == [1]
        for sid in (2, 3, 4):
            assert [number for number, of in found if of == sid] == [1, 2, 3, 4]
        assert [number for number, sid in found if sid == 5] == []
        assert [number for number, sid in found if sid == 7] == [1, 3]


def test_flowbits_belong_to_a_flow():
    rules = [
        'alert udp any any -> any any (content:"set"; flowbits:set,x; noalert; sid:1;)',
        'alert udp any any -> any any (content:"check"; flowbits:isset,x; sid:2;)',
    ]
    frames = [udp(b"set", sport=1), udp(b"check", sport=2), udp(b"check", sport=1)]
    assert inspect(frames, rules).numbered() == [(3, 2)]


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        ("threshold:type limit, track by_src, count 2, seconds 60", [1, 2]),
        ("threshold:type threshold, track by_src, count 3, seconds 60", [3, 6, 9]),
        ("threshold:type both, track by_dst, count 3, seconds 60", [3]),
        ("detection_filter:track by_dst, count 3, seconds 60", [4, 5, 6, 7, 8, 9, 10]),
    ],
)
def test_thresholds(limit, expected):
    rule = f'alert udp any any -> any any (content:"hello"; {limit}; sid:1;)'
    assert numbers([udp(b"hello")] * 10, rule) == expected


def test_a_threshold_counts_each_address_and_starts_anew():
    rule = 'alert udp any any -> any any (content:"a"; threshold:type limit, track by_src, count 1, seconds 1; sid:1;)'
    frames = [udp(b"a", source=f"10.0.0.{1 + at % 2}", destination="10.9.9.9") for at in range(220)]
    assert numbers(frames, rule) == [1, 2, 103, 104, 205, 206]


def test_a_packet_has_fifteen_alerts_at_most():
    rules = [f'alert udp any any -> any any (content:"abc"; sid:{sid};)' for sid in range(1, 31)]
    found = inspect([udp(b"abc")], rules)
    assert [sid for _number, sid in found.numbered()] == list(range(1, 16))
    assert found.summary.counters["alerts.over_limit"] == 15
    assert len(inspect([udp(b"abc")], rules, settings={"packet-alert-max": "20"}).alerts) == 20
