"""TCP as Suricata 7.0.10 inspects it in IDS mode: the frame numbers in these tests are those of its alerts."""

import pytest
from conversation import Conversation
from replay import inspect

CONTENT = [
    'alert tcp any any -> any any (content:"hello"; sid:1;)',
    'alert tcp any any -> any any (content:"world"; sid:2;)',
    'alert tcp-pkt any any -> any any (content:"hello"; sid:3;)',
    'alert tcp any any -> any any (content:"o"; sid:4;)',
    "alert tcp any any -> any any (flow:established; sid:5;)",
    'alert tcp any any -> any any (content:"helloworld"; sid:6;)',
]


def alerts(conversation, rules=CONTENT, **options):
    return {(number, sid) for number, sid in inspect(conversation.frames, rules, **options).numbered() if sid != 5}


def established(conversation):
    return [number for number, sid in inspect(conversation.frames, CONTENT).numbered() if sid == 5]


def test_small_data_is_inspected_at_fin():
    talk = Conversation().handshake()
    for _ in range(10):
        talk.send(0, b"xyz hello\n")
    assert alerts(talk, CONTENT[:1]) == {(None, 1)}
    assert alerts(talk.finish(), CONTENT[:1]) == {(24, 1)}


def test_a_chunk_is_inspected_with_the_next_packet_of_its_side():
    talk = Conversation().handshake()
    for _ in range(6):
        talk.send(0, b"xyz hello" + b"q" * 1391)
    assert alerts(talk.finish(), CONTENT[:1]) == {(8, 1), (12, 1), (16, 1)}


def test_chunks_do_not_overlap():
    talk = Conversation().handshake()
    for text in (b"q" * 1400, b"q" * 1398 + b"he", b"llo" + b"q" * 1397):
        talk.send(0, text)
    assert alerts(talk.finish(), CONTENT[:1]) == set()
    assert alerts(talk, CONTENT[:1], settings={"stream.reassembly.toserver-chunk-size": "5000"}) == {(10, 1)}


def test_a_content_with_a_place_is_looked_for_in_packets_too():
    talk = Conversation().handshake().send(0, b"xyz hello").send(0, b"xyz hello").finish()
    assert alerts(talk, ['alert tcp any any -> any any (content:"xyz"; depth:3; sid:1;)']) == {(4, 1), (6, 1), (8, 1)}


def handshake():
    return Conversation().handshake()


CASES = {
    "data that is not acknowledged": (
        handshake().send(0, b"hello", acked=False),
        {(4, 3), (None, 1), (None, 4)},
    ),
    "FIN before all is acknowledged": (
        handshake().send(0, b"hello").send(0, b"world", acked=False).finish(),
        {(4, 3), (7, 1), (7, 4), (9, 2), (9, 4)},
    ),
    "reset by the client": (
        handshake().send(0, b"hello", acked=False).odd(0, "RA"),
        {(4, 3), (5, 1), (5, 4)},
    ),
    "reset by the server": (
        handshake().send(0, b"hello").odd(1, "R"),
        {(4, 3), (None, 1), (None, 4)},
    ),
    "a hole that is not acknowledged, at the end": (
        handshake().send(0, b"hello").skip(0, 10).send(0, b"world", acked=False),
        {(4, 3), (None, 1), (None, 2), (None, 4)},
    ),
    "sent twice": (
        handshake().send(0, b"hello").skip(0, -5).send(0, b"hello").send(0, b"world").finish(),
        {(4, 3), (6, 3), (10, 1), (10, 2), (10, 4), (10, 6)},
    ),
    "sent again with other bytes": (
        handshake().send(0, b"hello", acked=False).skip(0, -5).send(0, b"worldhello").finish(),
        {(4, 3), (5, 3), (7, 1), (7, 4)},
    ),
    "sequence numbers that wrap": (
        Conversation(seqs=(2**32 - 4, 2**32 - 1)).handshake().send(0, b"hello").send(0, b"world").finish(),
        {(4, 3), (8, 1), (8, 2), (8, 4), (8, 6)},
    ),
    "an acknowledgement of what was never sent": (
        handshake().odd(0, "PA", b"hello", ack=100_000),
        {(4, 1), (4, 3), (4, 4)},
    ),
    "data outside the window": (
        handshake().odd(0, "PA", b"hello", seq=10_000_000).send(0, b"world").finish(),
        {(4, 1), (4, 3), (4, 4), (7, 2), (7, 4)},
    ),
    "a reset outside the window": (
        handshake().send(0, b"hello").odd(0, "R", seq=100_000).send(0, b"world").finish(),
        {(4, 3), (9, 1), (9, 2), (9, 4), (9, 6)},
    ),
    "data with the SYN": (
        Conversation().odd(0, "S", b"hello"),
        {(1, 1), (1, 3), (1, 4)},
    ),
    "picked up in the middle": (
        Conversation().send(0, b"hello").send(0, b"world").finish(),
        {(1, 1), (1, 3), (1, 4), (3, 2), (3, 4)},
    ),
    "out of order": (
        handshake().odd(0, "PA", b"world", seq=5).odd(1, "A").odd(0, "PA", b"hello").skip(0, 10).odd(1, "A").finish(),
        {(6, 3), (8, 1), (8, 2), (8, 4), (8, 6)},
    ),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("batch", [1, 4096])
def test_alerts_come_where_they_come_in_suricata(name, batch):
    talk, expected = CASES[name]
    assert alerts(talk, batch=batch) == expected


def test_a_connection_is_established_after_its_handshake():
    assert established(Conversation().handshake().send(0, b"aa").finish()) == [4, 5, 6, 7, 8]
    assert established(Conversation().send(0, b"hello").finish()) == []


def test_midstream_is_a_setting():
    talk = Conversation().send(0, b"hello").send(0, b"world").finish()
    found = inspect(talk.frames, CONTENT, settings={"stream.midstream": "true"}).numbered()
    assert (5, 6) in found
    assert (1, 5) in found or (2, 5) in found


def test_only_stream_and_no_stream():
    talk = Conversation().handshake().send(0, b"hello").finish()
    rules = [
        'alert tcp any any -> any any (flow:only_stream; content:"hello"; sid:1;)',
        'alert tcp any any -> any any (flow:no_stream; content:"hello"; sid:2;)',
        'alert tcp-stream any any -> any any (content:"hello"; sid:3;)',
    ]
    assert alerts(talk, rules) == {(4, 2), (6, 1), (6, 3)}


def test_a_reset_with_a_payload_is_inspected_as_a_packet():
    talk = Conversation().handshake()
    talk.raw(1, "RA", talk.seq[1], talk.seq[0], b"Access Denied")
    rules = [
        'alert tcp-pkt any any -> any any (flags:RA; content:"Access Denied"; startswith; endswith; sid:1;)',
        'alert tcp any any -> any any (flow:only_stream; content:"Access Denied"; sid:2;)',
    ]
    assert alerts(talk, rules) == {(4, 1)}


def test_nothing_past_the_depth_is_inspected():
    talk = Conversation().handshake()
    for _ in range(8):
        talk.send(0, b"q" * 1000)
    talk.send(0, b"hello").finish()
    assert alerts(talk, CONTENT[:1]) == {(22, 1)}
    assert alerts(talk, CONTENT[:1], settings={"stream.reassembly.depth": "6000"}) == set()


def test_sides_are_told_apart():
    talk = Conversation().handshake().send(1, b"hello").send(0, b"hello").finish()
    rules = [
        'alert tcp any any -> any any (flow:to_server; content:"hello"; sid:1;)',
        'alert tcp any any -> any any (flow:to_client; content:"hello"; sid:2;)',
    ]
    found = inspect(talk.frames, rules)
    assert {(number, alert.signature.sid, alert.direction) for number, alert in found.alerts} == {(8, 1, 0), (9, 2, 1)}


@pytest.mark.parametrize("batch", [1, 3, 7, 4096])
def test_batches_make_no_difference(batch):
    talk = Conversation().handshake()
    for at in range(30):
        talk.send(at % 2, (b"hello%d " % at) * 90, acked=at % 3 != 0)
    talk.finish()
    assert inspect(talk.frames, CONTENT, batch=batch).numbered() == inspect(talk.frames, CONTENT).numbered()


def test_memory_of_ended_flows_is_given_back():
    frames = []
    for port in range(50):
        frames += Conversation(sport=1000 + port).handshake().send(0, b"x" * 500, acked=False).frames
    found = inspect(frames, CONTENT, batch=10)
    assert found.summary.counters["stream.memory"] == 0
    assert found.summary.counters["inspect.segment_bytes"] >= 50 * 500
