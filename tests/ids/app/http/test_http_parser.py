"""The HTTP parser: what it makes of messages, however they are cut, and of bytes that are none."""

import gzip
import random
import time
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowshunt_ids.app.contract import TO_CLIENT, TO_SERVER, Context
from flowshunt_ids.app.http.body import BodyLimits
from flowshunt_ids.app.http.parser import HttpParser
from flowshunt_ids.app.http.reader import MAX_UNANSWERED, HttpSettings
from flowshunt_ids.app.http.transaction import COMPLETE

REQUEST = b"GET /a%20b/../c?x=%41#f HTTP/1.1\r\nHost: Example.COM\r\nX-A: 1\r\nx-a: 2\r\nCookie: k=v\r\n\r\n"
RESPONSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=x\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n6\r\n world\r\n0\r\nT: 1\r\n\r\n"
UPLOAD = b"POST /up HTTP/1.1\r\nHost: h\r\nContent-Type: multipart/form-data; boundary=BB\r\nContent-Length: %d\r\n\r\n"
PARTS = (
    b'--BB\r\nContent-Disposition: form-data; name="t"\r\n\r\nvalue\r\n'
    b'--BB\r\nContent-Disposition: form-data; name="f"; filename="a.txt"\r\nContent-Type: text/plain\r\n\r\nfirst\r\n'
    b'--BB\r\nContent-Disposition: form-data; name="g"; filename="b.bin"\r\n\r\n\r\n--B not it\r\n--BB--\r\n'
)


def parse(*pieces, wants=frozenset({"files", "md5"}), cut=None, config=None):
    """Transactions of (direction, bytes) pieces, each cut into parts of `cut` bytes; both directions end then."""
    parser = HttpParser(Context(wants=wants), config or HttpSettings())
    for direction, data in pieces:
        step = cut or max(1, len(data))
        for at in range(0, len(data), step):
            parser.data(direction, data[at : at + step])
    parser.end(TO_SERVER)
    parser.end(TO_CLIENT)
    return parser.transactions


def facts(transactions):
    return [
        (
            each.method,
            each.target,
            each.uri,
            each.host,
            each.status,
            [list(zip(fields.names, fields.values, strict=True)) for fields in each.fields],
            [body and body.window(True) for body in each.bodies],
            [(file.name, bytes(file.data), file.size, file.state) for file in each.files],
            each.events,
            each.progress,
        )
        for each in transactions
    ]


def test_a_request_in_its_parts():
    (only,) = parse((TO_SERVER, REQUEST))
    assert only.method == b"GET"
    assert only.target == b"/a%20b/../c?x=%41#f"
    assert only.uri == b"/c?x=A#f"
    assert only.protocol == b"HTTP/1.1"
    assert only.host == b"example.com"
    assert only.fields[TO_SERVER].get(b"x-a") == b"1, 2"
    assert only.fields[TO_SERVER].names == [b"Host", b"X-A", b"Cookie"]


@pytest.mark.parametrize(
    ("field", "host"),
    [(b"A.b", b"a.b"), (b" A.b ", b"a.b"), (b"A.b:80", b"A.b"), (b"[::1]:80", b"[::1]"), (b"[::1", None), (b"", None)],
)
def test_the_host_is_that_of_libhtp(field, host):
    """With a port behind it, its letters stay as they are."""
    (only,) = parse((TO_SERVER, b"GET / HTTP/1.1\r\nHost: " + field + b"\r\n\r\n"))
    assert only.host == host


def test_a_response_belongs_to_the_oldest_request_without_one():
    first, second = parse((TO_SERVER, REQUEST + b"HEAD /2 HTTP/1.1\r\nHost: h\r\n\r\n"), (TO_CLIENT, RESPONSE))
    assert first.status == b"200" and first.bodies[TO_CLIENT].window(True) == b"hello"
    assert second.status is None


@pytest.mark.parametrize("cut", [1, 2, 3, 7, 50])
@pytest.mark.parametrize(
    "pieces",
    [
        ((TO_SERVER, REQUEST), (TO_CLIENT, RESPONSE)),
        ((TO_SERVER, REQUEST), (TO_CLIENT, CHUNKED)),
        ((TO_SERVER, UPLOAD % len(PARTS) + PARTS + REQUEST), (TO_CLIENT, RESPONSE + CHUNKED)),
    ],
)
def test_how_data_is_cut_changes_nothing(pieces, cut):
    assert facts(parse(*pieces, cut=cut)) == facts(parse(*pieces))


def test_chunks_are_put_together():
    (only,) = parse((TO_SERVER, REQUEST), (TO_CLIENT, CHUNKED))
    assert only.bodies[TO_CLIENT].window(True) == b"hello world"
    assert only.fields[TO_CLIENT].get(b"t") == b"1"


def test_the_parts_of_a_form_are_files():
    (only,) = parse((TO_SERVER, UPLOAD % len(PARTS) + PARTS))
    assert [(file.name, bytes(file.data), file.state) for file in only.files] == [
        (b"a.txt", b"first", "closed"),
        (b"b.bin", b"\r\n--B not it", "closed"),
    ]
    assert only.files[0].digests["md5"] == "8b04d5e3775d298e78455efc5ca404d5"


@pytest.mark.parametrize(
    ("coding", "data"),
    [
        (b"gzip", gzip.compress(b"plain text")),
        (b"deflate", zlib.compress(b"plain text")),
        (b"deflate", zlib.compress(b"plain text")[2:-4]),
        (b"x-gzip", gzip.compress(b"plain text")),
        (b"gzip, deflate", zlib.compress(gzip.compress(b"plain text"))),
        (b"gzip", b"plain text"),
        (b"identity", b"plain text"),
    ],
)
@pytest.mark.parametrize("cut", [1, None])
def test_bodies_are_decoded(coding, data, cut):
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: %s\r\nContent-Length: %d\r\n\r\n" % (coding, len(data))
    (only,) = parse((TO_SERVER, REQUEST), (TO_CLIENT, head + data), cut=cut)
    assert only.bodies[TO_CLIENT].window(True) == b"plain text"


def test_a_bomb_is_given_up_within_its_limit():
    bomb = zlib.compress(zlib.compress(bytes(64 << 20), 9), 9)
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: deflate, deflate\r\nContent-Length: %d\r\n\r\n" % len(bomb)
    limits = HttpSettings(response=BodyLimits(keep=0))
    (only,) = parse((TO_SERVER, REQUEST), (TO_CLIENT, head + bomb), config=limits)
    assert (TO_CLIENT, "compression_bomb") in only.events
    assert only.bodies[TO_CLIENT].length <= 17 << 20


def test_only_the_begin_of_a_body_is_kept():
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"
    (only,) = parse((TO_SERVER, REQUEST), (TO_CLIENT, head + b"x" * 100000))
    assert len(only.bodies[TO_CLIENT].window(True)) == 4096
    assert only.bodies[TO_CLIENT].sent == 100000


def test_what_follows_a_message_and_is_none_is_its_body():
    (only,) = parse((TO_SERVER, REQUEST), (TO_CLIENT, RESPONSE + b"more\n"))
    assert only.bodies[TO_CLIENT].window(True) == b"hellomore\n"


def test_a_body_goes_on_behind_a_gap_and_a_head_does_not():
    parser = HttpParser(Context(wants=frozenset({"files"})), HttpSettings())
    parser.data(TO_SERVER, REQUEST)
    parser.data(TO_CLIENT, b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")
    parser.gap(TO_CLIENT, 4)
    parser.data(TO_CLIENT, b"hij" + RESPONSE)
    assert parser.transactions[0].progress[TO_CLIENT] == COMPLETE
    assert parser.transactions[0].files[0].state == "truncated"
    parser.data(TO_SERVER, b"GET / HT")
    parser.gap(TO_SERVER, 3)
    parser.data(TO_SERVER, b"\r\n\r\n")
    assert parser.transactions[-1].progress[TO_SERVER] < COMPLETE


def test_a_gap_beyond_a_body_ends_the_message():
    parser = HttpParser(Context(wants=frozenset({"files"})), HttpSettings())
    parser.data(TO_SERVER, REQUEST + REQUEST)
    parser.data(TO_CLIENT, b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")
    parser.gap(TO_CLIENT, 100)
    parser.data(TO_CLIENT, RESPONSE)
    assert [each.status for each in parser.transactions] == [b"200", b"200"]
    assert parser.transactions[0].files[0].state == "truncated"


def test_a_tunnel_is_handed_on():
    parser = HttpParser(Context(), HttpSettings())
    parser.data(TO_SERVER, b"CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n")
    assert parser.becomes is None
    parser.data(TO_CLIENT, b"HTTP/1.1 200 Connection established\r\n\r\n")
    assert parser.becomes == ""


@pytest.mark.parametrize(
    ("request_", "event"),
    [
        (b"GET / HTTP/1.1\r\nNo colon\r\nHost: h\r\n\r\n", "request_field_missing_colon"),
        (b"GET / HTTP/1.1\r\nA b: 1\r\nHost: h\r\n\r\n", "request_header_invalid"),
        (b"GET / HTTP/1.1\r\n\r\n", "missing_host_header"),
        (b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "invalid_request_chunk_len"),
        (b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: x\r\n\r\n", "invalid_content_length_field_in_request"),
        (b"GET http://a/ HTTP/1.1\r\nHost: b\r\n\r\n", "host_header_ambiguous"),
        (b"GET / HTTP/1.1\r\nHost: " + b"h" * 20000, "request_field_too_long"),
    ],
)
def test_what_is_wrong_is_told(request_, event):
    transactions = parse((TO_SERVER, request_))
    assert (TO_SERVER, event) in transactions[0].events


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1), st.binary(max_size=200)), max_size=20))
def test_any_bytes_do(pieces):
    parse(*pieces)


@settings(max_examples=150, deadline=None)
@given(st.randoms(use_true_random=False))
def test_mutated_messages_do(source):
    pieces = []
    for direction, text in ((0, REQUEST), (0, UPLOAD % len(PARTS) + PARTS), (1, RESPONSE), (1, CHUNKED)):
        data = bytearray(text)
        for _ in range(source.randrange(6)):
            at = source.randrange(len(data))
            how = source.randrange(3)
            if how == 0:
                data[at] = source.randrange(256)
            elif how == 1:
                del data[at : at + source.randrange(20)]
            else:
                data[at:at] = data[: source.randrange(40)]
            if not data:
                data = bytearray(b"\n")
        pieces.append((direction, bytes(data)))
    parse(*pieces, cut=source.choice([None, 1, 13]))


def test_requests_without_responses_are_bounded():
    parser = HttpParser(Context(), HttpSettings())
    for _ in range(20):
        parser.data(TO_SERVER, b"GET / HTTP/1.1\r\n\r\n" * 100)
        parser.transactions.clear()
    assert len(parser._unanswered) <= MAX_UNANSWERED


def work(data, direction=TO_SERVER):
    """CPU seconds for a direction's bytes, given 64 at a time."""
    parser = HttpParser(Context(wants=frozenset({"files"})), HttpSettings())
    start = time.process_time()
    for at in range(0, len(data), 64):
        parser.data(direction, data[at : at + 64])
        del parser.transactions[:-600]
    return time.process_time() - start


FLOODS = {
    "fields": (TO_SERVER, b"GET / HTTP/1.1\r\n", b"a: b\r\n"),
    "one field": (TO_SERVER, b"GET / HTTP/1.1\r\na: ", b"b"),
    "folds": (TO_SERVER, b"GET / HTTP/1.1\r\na: b\r\n", b" c\r\n"),
    "empty lines": (TO_SERVER, b"GET / HTTP/1.1\r\n\r\n", b"\r\n"),
    "requests": (TO_SERVER, b"", b"GET / HTTP/1.1\r\n\r\n"),
    "chunks": (TO_SERVER, b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\na\r\n"),
    "parts": (TO_SERVER, UPLOAD % (1 << 30), b'--BB\r\nContent-Disposition: a; filename="b"\r\n\r\nc\r\n'),
    "interim answers": (TO_CLIENT, b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "responses": (TO_CLIENT, b"", b"HTTP/1.1 204 No\r\n\r\n"),
    "no response": (TO_CLIENT, b"HTTP/1.1 204 No\r\n\r\n", b"x\n"),
}


@pytest.mark.parametrize("name", FLOODS)
def test_the_work_of_a_flood_is_linear(name):
    """Eight times as many bytes take about eight times as long; were it quadratic, they would take 64 times."""
    direction, begin, again = FLOODS[name]
    few = min(work(begin + again * (1 << 11), direction) for _ in range(3))
    many = min(work(begin + again * (1 << 14), direction) for _ in range(2))
    assert many < 32 * max(few, 0.002)


def test_a_random_stream_is_survived_in_both_directions():
    source = random.Random(1)
    letters = [b"GET ", b"HTTP/1.1", b"\r\n", b"\n", b":", b" ", b"\0", b"a", b"0", b"chunked", b"Transfer-Encoding"]
    for _ in range(30):
        pieces = [(source.randrange(2), b"".join(source.choices(letters, k=60))) for _ in range(20)]
        assert len(parse(*pieces)) < 1000
