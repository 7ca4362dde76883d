"""IP fragments and tunnels."""

import struct

import numpy as np
import pytest
from conversation import Conversation, address, fragments, ipv4, tcp_segment, udp
from hypothesis import given
from hypothesis import strategies as st
from replay import ethernet_batch, inspect

from flowshunt.packets.decode import decode
from flowshunt_ids.fragments import Defragmenter

FRAME = udp(b"A" * 100 + b"hello" + b"B" * 100 + b"hello")
RULES = [
    "alert ip any any -> any any (sid:1;)",
    "alert udp any any -> any 9999 (sid:3;)",
    "alert ip any any -> any any (ttl:64; sid:4;)",
    'alert udp any any -> any any (content:"hello"; sid:6;)',
    "alert udp any 4000 -> any 9999 (ttl:64; sid:8;)",
    "alert ip any any -> any any (fragbits:M; sid:9;)",
    "alert udp any any -> any any (dsize:>10; sid:10;)",
]


def test_fragments_are_packets_and_their_datagram_is_one_more():
    counts = inspect(fragments(FRAME, 80), RULES).counts()
    assert counts == {1: 4, 3: 1, 4: 4, 6: 1, 8: 1, 9: 2, 10: 1}


@pytest.mark.parametrize("batch", [1, 4096])
def test_any_order_will_do(batch):
    parts = fragments(FRAME, 40)
    rules = [RULES[3]]
    for order in (parts, parts[::-1], parts[2:] + parts[:2], [*parts[:2], *parts[:2], *parts[2:]]):
        assert inspect(order, rules, batch=batch).counts() == {6: 1}
    assert inspect(parts[:-1], rules).counts() == {}
    assert inspect(parts[1:], rules).counts() == {}


def test_a_segment_in_fragments_takes_its_place_in_the_stream():
    talk = Conversation().handshake()
    frame = ipv4(
        "10.0.0.1", "10.0.0.2", 6, tcp_segment(40000, 9999, talk.seq[0], talk.seq[1], "PA", b"hel" * 30 + b"he")
    )
    frames = [*talk.frames, *fragments(frame, 32)]
    talk.frames.clear()
    talk.skip(0, 92).send(0, b"llo").finish()
    found = inspect([*frames, *talk.frames], ['alert tcp any any -> any any (content:"hello"; sid:1;)'])
    assert found.counts() == {1: 1}


def datagram(parts, memory=1 << 20):
    made = Defragmenter(memory)
    batch = ethernet_batch(parts)
    count = len(parts)
    whole = made.add(batch, np.arange(count), decode(batch), np.zeros(count, np.int32), np.ones(count, np.uint64))
    return [found.packet for _row, found in whole], made


@given(st.permutations(list(range(28))), st.lists(st.integers(0, 27), max_size=10))
def test_a_datagram_is_what_was_cut(order, repeated):
    parts = fragments(FRAME, 8)
    assert len(parts) == 28
    wanted = [*repeated, *order] if len({*repeated}) < 28 else order
    (packet, *more), made = datagram([parts[at] for at in wanted])
    assert packet[20:] == FRAME[34:]
    assert packet[:2] == FRAME[14:16]
    assert made.used == 0 or more == []


def test_of_bytes_that_differ_the_first_to_come_stay():
    one, two = fragments(FRAME, 112)
    other = one[:34] + b"Z" * (len(one) - 34)
    (packet,), _made = datagram([one, other, two])
    assert packet[20:] == FRAME[34:]


def test_memory_and_time_are_bounded():
    parts = [fragments(udp(b"x" * 2000, sport=1 + at), 1000, identification=at)[0] for at in range(200)]
    whole, made = datagram(parts, memory=20_000)
    assert whole == []
    assert made.used <= 20_000
    assert made.given_up > 150


def test_a_fragment_past_the_longest_datagram_is_given_up():
    header = ipv4("10.0.0.1", "10.0.0.2", 17, b"x" * 800, fragment=0x1FFF, identification=3)
    whole, made = datagram([header])
    assert whole == []
    assert made.used == 0


def test_both_packets_of_a_tunnel_are_inspected():
    inner = udp(b"hello")[14:]
    gre = ipv4("1.0.0.1", "1.0.0.2", 47, struct.pack("!HH", 0, 0x0800) + inner)
    vxlan_payload = struct.pack("!II", 0x08000000, 4 << 8) + FRAME[:14] + inner
    vxlan = ipv4("1.0.0.1", "1.0.0.2", 17, struct.pack("!HHHH", 5000, 4789, 8 + len(vxlan_payload), 0) + vxlan_payload)
    rules = [
        "alert ip 1.0.0.0/8 any -> any any (sid:1;)",
        "alert ip 10.0.0.0/8 any -> any any (sid:2;)",
        'alert udp any any -> any any (content:"hello"; sid:3;)',
        "alert udp any any -> any 4789 (sid:4;)",
        "alert ip 1.0.0.1 any -> any any (ttl:64; sid:5;)",
    ]
    assert inspect([gre] * 3, rules).counts() == {1: 3, 2: 1, 3: 3, 5: 3}
    assert inspect([vxlan] * 3, rules).counts() == {1: 1, 2: 1, 3: 3, 4: 1, 5: 3}


def test_packets_without_a_flow_are_inspected():
    frames = [ipv4("10.0.0.1", "10.0.0.2", 17, b"")[:30], b"\xff" * 14, udp(b"hello")]
    found = inspect(frames, ['alert udp any any -> any any (content:"hello"; sid:1;)'])
    assert found.numbered() == [(3, 1)]
    assert address("10.0.0.1") == b"\n\0\0\1"
