"""Every frame of a sample is right by itself, and every TCP connection by its numbers."""

from collections import defaultdict
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_packets import (
    ACK,
    FIN,
    RST,
    SYN,
    TCP,
    UDP,
    checksums_right,
    parse,
    transport_checksum_right,
    whole_packets,
)

from flowshunt.packets.sample.addresses import Ends, client, outside
from flowshunt.packets.sample.dice import Dice
from flowshunt.packets.sample.fragments import fragment
from flowshunt.packets.sample.stamp import UdpLane, word_sum


@pytest.fixture(scope="module")
def connections(packets):
    """The packets of every TCP flow that begins with a handshake, fragments put together."""
    flows = defaultdict(list)
    for packet in whole_packets(packets):
        if packet.protocol == TCP:
            flows[packet.flow].append(packet)
    return [flow for flow in flows.values() if flow[0].flags == SYN and len(flow) > 1 and flow[1].flags & ACK]


def test_all_checksums_are_right(packets):
    wrong = [packet.number for packet in packets if not checksums_right(packet)]
    assert wrong == []


def test_checksums_of_fragmented_datagrams_are_right(packets):
    whole = list(whole_packets(p for p in packets if p.fragmented))
    assert {packet.protocol for packet in whole} == {TCP, UDP}
    assert all(transport_checksum_right(packet) for packet in whole)


def test_scapy_builds_the_same_frames_again(packets):
    from scapy.layers.inet import ICMP, IP, TCP, UDP
    from scapy.layers.inet6 import ICMPv6EchoReply, ICMPv6EchoRequest, IPv6
    from scapy.layers.l2 import Ether

    for packet in packets[::80]:
        if packet.fragmented:
            continue
        crafted = Ether(packet.frame)
        network = crafted[IP] if packet.version == 4 else crafted[IPv6]
        network.len = network.plen = None
        for layer in (IP, TCP, UDP, ICMP):
            if layer in crafted:
                del crafted[layer].chksum
        for layer in (ICMPv6EchoReply, ICMPv6EchoRequest):
            if layer in crafted:
                del crafted[layer].cksum
        assert bytes(crafted) == packet.frame, packet.number


def test_times_never_go_back(packets):
    assert all(a.time <= b.time for a, b in pairwise(packets))


def test_frames_are_as_long_as_ethernet_allows(packets):
    assert all(60 <= len(packet.frame) <= 1514 + 4 * len(packet.vlans) for packet in packets)


def test_connections_open_with_a_handshake(connections):
    for first, second, third, *_ in connections:
        assert (second.flags, third.flags) == (SYN | ACK, ACK)
        assert second.acknowledged == first.sequence + 1 & 0xFFFFFFFF
        assert third.acknowledged == second.sequence + 1 & 0xFFFFFFFF
        assert second.ends == first.ends[::-1] == third.ends[::-1]


def test_streams_have_no_gap_and_acknowledgements_are_for_what_was_sent(connections):
    for flow in connections:
        base = {packet.ends[0]: packet.sequence for packet in flow[:2]}
        sent, acknowledged, spans = dict.fromkeys(base, 1), dict.fromkeys(base, 0), defaultdict(set)
        for packet in flow:
            way, back = packet.ends
            offset = packet.sequence - base[way] & 0xFFFFFFFF
            length = len(packet.payload) + bool(packet.flags & (SYN | FIN))
            assert offset <= 1 << 30
            spans[way].add((offset, offset + length))
            sent[way] = max(sent[way], offset + length)
            if packet.flags & ACK:
                number = packet.acknowledged - base[back] & 0xFFFFFFFF
                assert acknowledged[back] <= number <= sent[back], packet.number
                acknowledged[back] = number
        for pieces in spans.values():
            end = 0
            for start, stop in sorted(pieces):
                assert start <= end
                end = max(end, stop)


def test_payload_sent_again_is_the_same(connections):
    for flow in connections:
        seen = {}
        for packet in flow:
            if packet.payload:
                key = (packet.ends, packet.sequence)
                assert seen.setdefault(key, packet.payload) == packet.payload


def test_connections_end_in_all_ways(connections):
    ends = defaultdict(int)
    for flow in connections:
        flags = [packet.flags for packet in flow]
        closed = {packet.ends[0] for packet in flow if packet.flags & FIN}
        if any(flag & RST for flag in flags):
            assert flags[-1] & RST
            ends["reset"] += 1
        elif closed:
            assert len(closed) == 2
            assert flags[-1] == ACK
            ends["closed"] += 1
        else:
            ends["open"] += 1
    assert ends["closed"] > 0.7 * len(connections)
    assert ends["reset"] > 0.05 * len(connections)
    assert ends["open"] > 0.02 * len(connections)


def plain_word_sum(data):
    return sum(byte << (8 if at % 2 == 0 else 0) for at, byte in enumerate(data))


@given(st.binary(max_size=200))
def test_word_sum_is_the_sum_of_words_modulo_65535(data):
    assert word_sum(data) == plain_word_sum(data) % 0xFFFF


@given(
    st.binary(max_size=9000), st.sampled_from([4, 6]), st.integers(576, 1500), st.integers(0, 2), st.integers(0, 999)
)
def test_fragments_put_together_are_the_datagram(payload, version, mtu, tags, number):
    ends = Ends(client(number, version), outside(Dice(number), version), 1000, 2000, (7, 8)[:tags])
    lane = UdpLane(ends, 0, number)
    frame = lane.datagram(payload)
    pieces = [parse(at + 1, at, piece) for at, piece in enumerate(fragment(frame, lane.l3, mtu, number))]
    assert all(len(piece.frame) <= max(mtu + lane.l3, 60) for piece in pieces)
    assert all(checksums_right(piece) for piece in pieces)
    (whole,) = whole_packets(pieces)
    assert whole.payload == payload
    assert transport_checksum_right(whole)
    assert whole.vlans == ends.vlans
