"""DNS messages: what they say, what is odd about them, and that no bytes stop the parser."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowshunt_ids.app.contract import TO_CLIENT, TO_SERVER, Context
from flowshunt_ids.app.dns.message import MalformedError, parse
from flowshunt_ids.app.dns.parser import DnsParser, recognized_datagram, recognized_stream
from flowshunt_ids.app.dns.protocol import event


def name(*labels):
    return b"".join(bytes([len(label)]) + label for label in labels) + b"\0"


def message(*, flags=0x0100, questions=(), answers=(), number=7):
    head = struct.pack(">6H", number, flags, len(questions), len(answers), 0, 0)
    return head + b"".join(q + struct.pack(">HH", 1, 1) for q in questions) + b"".join(answers)


def record(owner, kind, data, ttl=60):
    return owner + struct.pack(">HHIH", kind, 1, ttl, len(data)) + data


QUERY = message(questions=[name(b"www", b"example", b"org")])
ANSWER = message(
    flags=0x8180,
    questions=[name(b"www", b"example", b"org")],
    answers=[
        record(b"\xc0\x0c", 1, bytes([192, 0, 2, 1])),
        record(b"\xc0\x0c", 5, name(b"cdn", b"example", b"net")),
        record(b"\xc0\x0c", 16, b"\x03abc\x02de"),
    ],
)


def parser(transport=17):
    return DnsParser(Context(transport=transport, destination_port=53))


def test_a_query_is_a_transaction_with_its_names():
    found = parser()
    found.data(TO_SERVER, QUERY)
    (transaction,) = found.transactions
    assert [q.name.value for q in transaction.message.questions] == [b"www.example.org"]
    assert event(transaction)[1]["rrname"] == "www.example.org"


def test_an_answer_tells_its_records():
    found = parser()
    found.data(TO_CLIENT, ANSWER)
    kind, fields = event(found.transactions[0])
    assert kind == "dns"
    assert fields["rcode"] == "NOERROR"
    assert [(a["rrtype"], a["rdata"]) for a in fields["answers"]] == [
        ("A", "192.0.2.1"),
        ("CNAME", "cdn.example.net"),
        ("TXT", "abc"),
        ("TXT", "de"),
    ]
    assert fields["grouped"]["TXT"] == ["abc", "de"]


@pytest.mark.parametrize("cut", [1, 2, 5, 100])
def test_messages_in_a_stream_come_in_any_pieces(cut):
    found = parser(6)
    stream = b"".join(struct.pack(">H", len(m)) + m for m in (QUERY, QUERY, QUERY))
    for at in range(0, len(stream), cut):
        found.data(TO_SERVER, stream[at : at + cut])
    assert len(found.transactions) == 3


@pytest.mark.parametrize(
    ("data", "events"),
    [
        (message(flags=0x0140, questions=[name(b"a")]), ["z_flag_set"]),
        (message(flags=0x7800, questions=[name(b"a")]), ["invalid_opcode"]),
        (message(questions=[name(*[b"x" * 60] * 18)]), ["name_too_long"]),
        (message(questions=[b"\xc0\x12"])[:-4] + b"\0\1\0\1\xc0\x12", ["infinite_loop"]),
        (message(questions=[b"\x01a\xc0\x0c"]), ["too_many_labels", "name_too_long"]),
    ],
)
def test_odd_messages_are_noted(data, events):
    found = parser()
    found.data(TO_SERVER, data)
    assert [name for _, name in found.transactions[0].events] == events


def test_a_response_among_requests_is_noted_with_the_request_before():
    found = parser()
    found.data(TO_SERVER, QUERY)
    found.data(TO_SERVER, ANSWER)
    assert found.transactions[0].events == [(TO_SERVER, "not_request")]


def test_after_a_gap_a_stream_is_taken_up_at_a_message():
    found = parser(6)
    found.data(TO_SERVER, struct.pack(">H", len(QUERY)) + QUERY[:5])
    found.gap(TO_SERVER, 100)
    found.data(TO_SERVER, struct.pack(">H", len(QUERY)) + QUERY)
    assert len(found.transactions) == 1


def test_what_is_dns_is_recognized_and_other_bytes_are_not():
    assert recognized_datagram(QUERY)
    assert recognized_stream(struct.pack(">H", len(QUERY)) + QUERY)
    assert recognized_stream(b"\0") is None
    assert not recognized_datagram(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")


def test_pointers_to_pointers_cost_little():
    chain = b"".join(struct.pack(">H", 0xC00C + 2 * n + 2) for n in range(8000))
    found = parse(struct.pack(">6H", 1, 0, 1000, 0, 0, 0) + chain)
    assert "too_many_labels" in found.events


def test_a_pointer_to_itself_is_malformed():
    with pytest.raises(MalformedError):
        parse(message(questions=[b"\xc0\x0c"]))


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from([TO_SERVER, TO_CLIENT]), st.binary(max_size=80)), max_size=20), st.booleans())
def test_no_bytes_stop_it(pieces, udp):
    found = parser(17 if udp else 6)
    for direction, data in pieces:
        found.data(direction, data)
    for transaction in found.transactions:
        event(transaction)


@settings(deadline=None)
@given(st.data())
def test_no_change_of_an_answer_stops_it(data):
    changed = bytearray(ANSWER)
    for _ in range(data.draw(st.integers(1, 6))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    found = parser()
    found.data(TO_CLIENT, bytes(changed[: data.draw(st.integers(0, len(changed)))]))
    for transaction in found.transactions:
        event(transaction)
