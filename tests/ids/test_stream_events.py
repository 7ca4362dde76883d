"""What the stream engine finds odd about packets. Expectations are what Suricata 7.0.10 finds in the same frames."""

import pytest
from conversation import Conversation
from replay import inspect

from flowshunt_ids.events import STREAM
from flowshunt_ids.streams.reassembly import MAX_SEGMENTS

RULES = [
    f"alert tcp any any -> any any (stream-event:{name}; sid:{number};)"
    for number, name in enumerate(STREAM, 1)
    if name not in ("reassembly_seq_gap", "reassembly_overlap_different_data")
]


def found(talk, rules=RULES, **more):
    replay = inspect(talk.frames, rules, **more)
    return [(number, STREAM[sid - 1]) for number, sid in replay.numbered()]


def talk():
    return Conversation().handshake()


@pytest.mark.parametrize("batch", [1, 4096])
@pytest.mark.parametrize(
    ("conversation", "expected"),
    [
        (talk().send(0, b"hello").send(1, b"world").finish(), []),
        (Conversation().odd(0, "FA"), [(1, "fin_but_no_session")]),
        (Conversation().odd(0, "R"), [(1, "rst_but_no_session"), (1, "pkt_broken_ack")]),
        (Conversation().odd(0, "S").odd(1, "SA", ack=77), [(1, "pkt_broken_ack"), (2, "3whs_synack_with_wrong_ack")]),
        (talk().odd(0, "S", seq=-1), [(4, "est_syn_resend"), (4, "pkt_broken_ack")]),
        (talk().odd(0, "S", seq=5), [(4, "est_syn_resend_diff_seq"), (4, "pkt_broken_ack")]),
        (talk().odd(1, "S"), [(4, "est_syn_toclient"), (4, "pkt_broken_ack")]),
        (talk().send(0, b"data").odd(1, "SA", seq=-1), [(6, "est_synack_resend")]),
        (talk().send(1, b"data").odd(0, "SA"), [(6, "est_synack_toserver")]),
        (talk().odd(0, "A", b"far", seq=70_000), [(4, "est_packet_out_of_window")]),
        (talk().odd(0, "A", b"data", ack=70_000), [(4, "est_invalid_ack"), (4, "pkt_invalid_ack")]),
        (talk().send(0, b"data").odd(0, "A", b"data", seq=-4), [(6, "pkt_spurious_retransmission")]),
        (talk().odd(0, "FA", seq=-9), [(4, "fin_out_of_window")]),
        (talk().odd(0, "RA", b"gone"), [(4, "rst_with_data")]),
        (talk().odd(0, "RA", ack=70_000), [(4, "pkt_invalid_ack"), (4, "rst_invalid_ack")]),
        (talk().odd(0, "P", b"no ack"), [(4, "pkt_broken_ack")]),
        (talk().odd(1, "FA").odd(0, "S", seq=9), [(5, "shutdown_syn_resend"), (5, "pkt_broken_ack")]),
    ],
)
def test_events_of_conversations(conversation, expected, batch):
    assert found(conversation, batch=batch) == expected


def test_a_hole_is_told_once_what_lies_behind_it_is_acknowledged():
    holes = ["alert tcp any any -> any any (stream-event:reassembly_seq_gap; sid:1;)"]
    conversation = talk().send(0, b"begin").skip(0, 100).send(0, b"end")
    assert inspect(conversation.frames, holes).numbered() == [(7, 1)]


def test_overlaps_that_differ_are_told_where_a_rule_asks_for_them():
    rule = ["alert tcp any any -> any any (stream-event:reassembly_overlap_different_data; sid:1;)"]
    conversation = talk().send(0, b"abcdef", acked=False).odd(0, "A", b"deXgh", seq=-3)
    assert inspect(conversation.frames, rule).numbered() == [(5, 1)]
    conversation = talk().send(0, b"abcdef", acked=False).odd(0, "A", b"defgh", seq=-3)
    assert inspect(conversation.frames, rule).numbered() == []


def test_events_are_asked_for_with_and_without_their_prefix_and_what_there_is_not_is_refused():
    conversation = Conversation().odd(0, "R")
    rules = [
        "alert tcp any any -> any any (stream-event:stream.rst_but_no_session; sid:1;)",
        "alert tcp any any -> any 1 (stream-event:rst_but_no_session; sid:3;)",
    ]
    assert inspect(conversation.frames, rules).counts() == {1: 1}
    with pytest.raises(AssertionError):
        inspect(conversation.frames, ["alert tcp any any -> any any (stream-event:nothing; sid:1;)"])


def test_connections_are_picked_up_in_their_middle_where_that_is_allowed():
    conversation = Conversation().send(0, b"GET me").send(1, b"hello")
    rule = ['alert tcp any any -> any any (content:"hello"; flow:established,to_client; sid:1;)']
    assert inspect(conversation.frames, rule).counts() == {}
    assert inspect(conversation.frames, rule, settings={"stream.midstream": "yes"}).counts() == {1: 1}


def test_one_side_alone_is_followed_where_that_is_allowed():
    conversation = Conversation().odd(0, "S")
    conversation.seq[0] += 1
    for part in (b"hel", b"lo"):
        conversation.send(0, part, acked=False)
    conversation.odd(0, "FA")
    rule = ['alert tcp any any -> any any (content:"hello"; sid:1;)']
    assert inspect(conversation.frames, rule, settings={"stream.async-oneside": "yes"}).counts() == {1: 1}


def test_a_hundred_thousand_segments_behind_a_hole_are_bounded():
    conversation = talk().skip(0, 1)
    for _ in range(100_000):
        conversation.send(0, b"x", acked=False).skip(0, 1)
    rule = ['alert tcp any any -> any any (content:"yy"; sid:1;)']
    replay = inspect(conversation.frames, rule)
    assert replay.counts() == {}
    counters = replay.summary.counters
    assert (
        counters["stream.lost_bytes"] == (65_535 - 1) // 2 - MAX_SEGMENTS
    )  # what lies in the window, but for what is kept


def test_a_new_connection_begins_where_a_syn_comes_after_both_ends_have_closed():
    first = talk().send(0, b"one").finish()
    second = Conversation(seqs=(9000, 7000)).handshake().send(0, b"two").finish()
    rule = ['alert tcp any any -> any any (content:"two"; flow:established; sid:1;)']
    assert inspect([*first.frames, *second.frames], rule).counts() == {1: 1}
