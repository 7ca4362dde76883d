"""Conditions on packets that are judged in Python, and matches on buffers of headers."""

import struct

import pytest
from conversation import Conversation, fragments, icmp, ipv4, udp, udp6
from replay import inspect


def numbers(frames, rule, **options):
    return [number for number, _sid in inspect(frames, [rule], **options).numbered()]


def test_header_buffers_hold_the_headers_with_their_options():
    frame = udp(b"payload")
    for name, start, end in (("ipv4.hdr", 14, 34), ("udp.hdr", 34, 42)):
        whole = f'content:"|{frame[start:end].hex(" ")}|"; bsize:{end - start}'
        rule = f"alert ip any any -> any any ({name}; {whole}; sid:1;)"
        assert numbers([frame, udp(b"other", sport=1)], rule) == [1]


def test_a_packet_without_the_header_does_not_match_negated_contents_either():
    frames = [udp(b"a"), icmp(8, 0, bytes(4))]
    assert numbers(frames, 'alert ip any any -> any any (icmpv4.hdr; content:!"zz"; sid:1;)') == [2]
    assert numbers(frames, 'alert ip any any -> any any (ipv6.hdr; content:!"zz"; sid:1;)') == []


def test_addresses_are_buffers_of_four_or_sixteen_bytes():
    six = bytes(range(16))
    frames = [udp(b"a"), udp6(b"a", source=six, destination=bytes(16))]
    assert numbers(frames, 'alert ip any any -> any any (ip.src; content:"|0a 00 00 01|"; bsize:4; sid:1;)') == [1]
    assert numbers(frames, 'alert ip any any -> any any (ip.src; content:"|0e 0f|"; endswith; bsize:16; sid:1;)') == [2]


def options(kinds):
    header = bytearray(ipv4("10.0.0.1", "10.0.0.2", 17, b"")[:34])
    header[14] = 0x40 | (5 + len(kinds) // 4)
    body = struct.pack("!HHHH", 1, 2, 12, 0) + b"data"
    header[16:18] = (20 + len(kinds) + len(body)).to_bytes(2, "big")
    return bytes(header) + kinds + body


@pytest.mark.parametrize(
    ("name", "expected"), [("rr", [1]), ("nop", [1, 2]), ("lsrr", [2]), ("eol", [1]), ("ts", []), ("any", [])]
)
def test_options_of_ipv4(name, expected):
    frames = [options(b"\x07\x04\x04\x00\x01\x00\x00\x00"), options(b"\x01\x83\x03\x04"), udp(b"data")]
    assert numbers(frames, f"alert ip any any -> any any (ipopts:{name}; sid:1;)") == expected


@pytest.mark.parametrize(("tos", "expected"), [("16", [1]), ("!16", [2]), ("x10", [1]), ("!x00", [1])])
def test_tos(tos, expected):
    marked = bytearray(udp(b"a"))
    marked[15] = 16
    assert numbers([bytes(marked), udp(b"a")], f"alert ip any any -> any any (tos:{tos}; sid:1;)") == expected


def test_the_maximum_segment_size():
    def syn(data):
        segment = struct.pack("!HHIIBBHHH", 1, 2, 7, 0, (5 + len(data) // 4) << 4, 2, 100, 0, 0)
        return ipv4("10.0.0.1", "10.0.0.2", 6, segment + data)

    frames = [syn(b"\x02\x04\x05\xb4"), syn(b"\x01\x01\x02\x04\x02\x00\x00\x00"), syn(b""), syn(b"\x02\x04\x05")]
    assert numbers(frames, "alert tcp any any -> any any (tcp.mss:<1000; sid:1;)") == [2]
    assert numbers(frames, "alert tcp any any -> any any (tcp.mss:1460; sid:1;)") == [1]


def test_whole_datagrams_are_told_from_others():
    frames = [udp(b"alone"), *fragments(udp(b"x" * 64, sport=9), 32)]
    rule = "alert udp any any -> any any (flow:{}; dsize:>0; sid:1;)"
    assert numbers(frames, rule.format("only_frag")) == [len(frames)]
    assert numbers(frames, rule.format("no_frag")) == [1]


def test_bytes_of_both_sides_with_the_syn():
    frames = Conversation().handshake().send(0, b"a" * 10).send(1, b"b" * 5).frames
    rule = "alert tcp any any -> any any (stream_size:{}; sid:1;)"
    assert numbers(frames, rule.format("client,>,10"))[0] == 4
    assert numbers(frames, rule.format("server,=,0")) == [1]
    assert numbers(frames, rule.format("both,>=,6"))[0] == 6


def test_stream_sizes_are_those_of_connections_that_are_followed():
    middle = Conversation().send(0, b"abc").frames
    assert numbers(middle, "alert tcp any any -> any any (stream_size:either,>=,0; sid:1;)") == []


def rpc(program, version, procedure, kind=0):
    return struct.pack("!IIIIII", 1, kind, 2, program, version, procedure)


@pytest.mark.parametrize(
    ("value", "expected"), [("100000", [1, 2]), ("100000,2", [1]), ("100000,*,4", [1, 2]), ("100000,3,5", [])]
)
def test_calls_of_remote_procedures(value, expected):
    frames = [udp(rpc(100000, 2, 4)), udp(rpc(100000, 3, 4)), udp(rpc(100000, 2, 4, kind=1)), udp(b"short")]
    assert numbers(frames, f"alert udp any any -> any any (rpc:{value}; sid:1;)") == expected


def test_checksums():
    intact = bytearray(udp(b"ab"))
    words = sum(struct.unpack("!10H", intact[14:34]))
    while words >> 16:
        words = (words & 0xFFFF) + (words >> 16)
    intact[24:26] = (0xFFFF - words).to_bytes(2, "big")
    frames = [bytes(intact), udp(b"ab")]
    assert numbers(frames, "alert ip any any -> any any (ipv4-csum:valid; sid:1;)") == [1]
    assert numbers(frames, "alert ip any any -> any any (ipv4-csum:invalid; sid:1;)") == [2]


def test_the_age_of_flows_counts_whole_seconds():
    frames = [udp(b"a")] * 250
    found = numbers(frames, "alert udp any any -> any any (flow.age:>1; sid:1;)")
    assert found == list(range(201, 251))
