"""What is odd about headers, frame by frame, and that plain frames are known as such."""

import struct

import numpy as np
import pytest
from conversation import fragments, icmp, ipv4, tcp_segment, udp, udp6
from hypothesis import given
from hypothesis import strategies as st
from replay import ethernet_batch, inspect

from flowshunt.packets.batch import LINK_ETHERNET, LINK_NULL, LINK_PPP, LINK_RAW
from flowshunt_ids.decode_events.plain import decode_events
from flowshunt_ids.decode_events.walk import frame_events
from flowshunt_ids.events import NAMES

MAC = bytes(12)
TCP = ipv4("10.0.0.1", "10.0.0.2", 6, tcp_segment(1, 2, 3, 4, "A", b"data"))
UDP6 = udp6(b"data", source=bytes(16), destination=bytes(15) + b"\1")


def ipv6(following, payload):
    return MAC + b"\x86\xdd" + struct.pack("!IHBB", 6 << 28, len(payload), following, 64) + bytes(32) + payload


def options(data):
    return (
        MAC
        + b"\x08\0"
        + struct.pack("!BBHHHBBH8s", 0x45 + len(data) // 4, 0, 20 + len(data), 0, 0, 64, 99, 0, b"")
        + data
    )


def tcp_options(data):
    header = bytearray(tcp_segment(1, 2, 3, 4, "S") + data)
    header[12] = (20 + len(data)) // 4 << 4
    return ipv4("10.0.0.1", "10.0.0.2", 6, bytes(header))


def gre(flags, protocol, payload=b""):
    return ipv4("10.0.0.1", "10.0.0.2", 47, struct.pack("!HH", flags, protocol) + payload)


CASES = [
    (TCP, []),
    (UDP6, []),
    (MAC, ["ethernet.pkt_too_small"]),
    (TCP[:30], ["ipv4.pkt_too_small"]),
    (TCP[:-1], ["ipv4.trunc_pkt"]),
    (MAC + b"\x08\0" + b"\x65" + TCP[15:], ["ipv4.wrong_ip_version"]),
    (MAC + b"\x08\0" + b"\x44" + TCP[15:], ["ipv4.hlen_too_small"]),
    (ipv4("1.2.3.4", "1.2.3.5", 58, bytes(8)), ["ipv4.icmpv6"]),
    (options(b"\1" * 4), ["ipv4.opt_pad_required"]),
    (options(b"\x94\4\0\0\x94\4\0\0"), ["ipv4.opt_duplicate"]),
    (options(b"\x94\x20\0\0" + bytes(4)), ["ipv4.opt_invalid_len"]),
    (options(b"\x83\7\3" + bytes(5)), ["ipv4.opt_malformed"]),
    (options(b"\x1e\4\0\0" + bytes(4)), ["ipv4.opt_invalid"]),
    (ipv4("1.2.3.4", "1.2.3.5", 6, bytes(19)), ["tcp.pkt_too_small"]),
    (tcp_options(b"\3\3\7\3\3\7\0\0"), ["tcp.opt_duplicate"]),
    (tcp_options(b"\2\3\0\0"), ["tcp.opt_invalid_len"]),
    (ipv4("1.2.3.4", "1.2.3.5", 17, bytes(7)), ["udp.hlen_too_small"]),
    (ipv4("1.2.3.4", "1.2.3.5", 17, struct.pack("!HHHH", 1, 2, 7, 0)), ["udp.len_invalid"]),
    (ipv4("1.2.3.4", "1.2.3.5", 17, struct.pack("!HHHH", 1, 2, 9, 0)), ["udp.pkt_too_small"]),
    (ipv4("1.2.3.4", "1.2.3.5", 132, bytes(4)), ["sctp.pkt_too_small"]),
    (icmp(8, 1, bytes(4)), ["icmpv4.unknown_code"]),
    (icmp(99, 0, bytes(4)), ["icmpv4.unknown_type"]),
    (icmp(3, 1, bytes(4), bytes(8)), ["icmpv4.ipv4_trunc_pkt"]),
    (ipv6(0, b"\x3b\0\1\4\0\0\0\0"), ["ipv6.hopopts_only_padding"]),
    (ipv6(0, b"\x3b\0\1\0\1\2\0\0"), ["ipv6.zero_len_padn", "ipv6.hopopts_only_padding"]),
    (ipv6(59, b"more"), ["ipv6.data_after_none_header"]),
    (ipv6(60, b"\x3b\5" + bytes(6)), ["ipv6.trunc_exthdr"]),
    (ipv6(43, b"\x3b\0\0\0\0\0\0\0"), ["ipv6.rh_type_0"]),
    (ipv6(44, b"\x3b\0\0\0\0\0\0\1"), ["ipv6.exthdr_useless_fh"]),
    (ipv6(200, b""), ["ipv6.unknown_next_header"]),
    (ipv6(1, bytes(8)), ["ipv6.icmpv4"]),
    (ipv6(58, b"\x80\1" + bytes(6)), ["icmpv6.unknown_code"]),
    (MAC + b"\x81\0\0\1", ["vlan.header_too_small"]),
    (MAC + b"\x81\0\0\1\x12\x34", ["vlan.unknown_type"]),
    (MAC + b"\x81\0\0\1" + b"\x81\0\0\1" * 3 + b"\x08\0", ["vlan.too_many_layers"]),
    (MAC + b"\x88\x47\0\0\x31\x40", ["mpls.bad_label_implicit_null"]),
    (MAC + b"\x88\x63\x11\x99\0\0\0\0", ["pppoe.wrong_code"]),
    (MAC + b"\x88\x64\x11\0\0\1\0\6\xc0\x21" + bytes(4), ["ppp.unsup_proto"]),
    (MAC + b"\x89\x4f\x40\6\1\1" + bytes(30), ["nsh.unsupported_version"]),
    (gre(2, 0x0800), ["gre.wrong_version"]),
    (gre(0x0100, 0x0800), ["gre.version0_recur"]),
    (gre(1, 0x0800), ["gre.version1_wrong_protocol"]),
    (gre(0, 0x88BE, bytes(4)), ["ethernet.pkt_too_small"]),
]


def names(numbers):
    return [NAMES[number].removeprefix("decoder.") for number in numbers]


@pytest.mark.parametrize(("frame", "expected"), CASES)
def test_events_of_frames(frame, expected):
    assert names(frame_events(frame, LINK_ETHERNET)) == expected
    assert names(decode_events(ethernet_batch([TCP, frame]))["event"].tolist()) == expected


@pytest.mark.parametrize(
    ("frame", "link", "expected"),
    [
        (b"\x45", LINK_RAW, ["ipv4.pkt_too_small"]),
        (b"\x15" * 20, LINK_RAW, ["ipraw.invalid_ip_version"]),
        (b"\x63\0\0\0" + bytes(20), LINK_NULL, ["ltnull.unsupported_type"]),
        (b"\xff\3", LINK_PPP, ["ppp.pkt_too_small"]),
        (b"\xff\3\0\x21" + bytes(8), LINK_PPP, ["ppp.ip4_pkt_too_small"]),
    ],
)
def test_events_of_other_links(frame, link, expected):
    assert names(frame_events(frame, link)) == expected


@given(st.sampled_from([frame for frame, _ in CASES]), st.lists(st.tuples(st.integers(0, 90), st.integers(1, 255))))
def test_any_bytes_are_walked_and_plain_frames_have_no_events(frame, changes):
    changed = bytearray(frame)
    for place, value in changes:
        if place < len(changed):
            changed[place] ^= value
    batch = ethernet_batch([bytes(changed[:size]) for size in range(len(changed) + 1)])
    walked = [(row, e) for row in range(len(batch)) for e in frame_events(batch.frame(row), LINK_ETHERNET)]
    assert decode_events(batch).tolist() == walked


def test_rules_of_pkthdr_see_what_is_no_packet():
    frames = [TCP, MAC, MAC + b"\x81\0\0\1", *fragments(udp(b"x" * 60), 40)]
    rules = [
        "alert pkthdr any any -> any any (decode-event:ethernet.pkt_too_small; sid:1;)",
        "alert pkthdr any any -> any any (decode-event:decoder.vlan.header_too_small; sid:2;)",
        "alert tcp any any -> any any (decode-event:ipv4.trunc_pkt; sid:3;)",
    ]
    assert inspect(frames, rules).numbered() == [(2, 1), (3, 2)]


def test_overlapping_fragments_are_told():
    one, two = fragments(udp(b"A" * 60), 40)
    rules = ["alert pkthdr any any -> any any (decode-event:ipv4.frag_overlap; sid:1;)"]
    assert inspect([one, one, two], rules).numbered() == [(2, 1)]
    assert np.array_equal(decode_events(ethernet_batch([one, two]))["row"], [])
