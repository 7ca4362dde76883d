"""SMTP: commands and replies, mails and their files, what is told, and that no bytes stop the parser."""

import base64
import hashlib

import pytest
from conversation import Conversation
from hypothesis import given, settings
from hypothesis import strategies as st
from replay import inspect

from flowshunt_ids.app.contract import TO_CLIENT, TO_SERVER, Context
from flowshunt_ids.app.smtp.parser import MOST_MAILS
from flowshunt_ids.app.smtp.protocol import EVENTS, SMTP
from flowshunt_ids.app.smtp.transaction import addresses

FILE = b"MZ" + bytes(range(256)) * 20 + b"MARK"
MAIL = (
    b'From: "A, B" <a@x.example>\r\nTo: c@y.example, "D, E" <d@y.example>\r\nSubject: hi\r\n'
    b'Content-Type: multipart/mixed; boundary="bb"\r\n\r\n--bb\r\nContent-Type: text/plain\r\n\r\n'
    b"see http://evil.example/a.exe\r\n--bb\r\n"
    b'Content-Disposition: attachment; filename="evil file.exe"\r\nContent-Transfer-Encoding: base64\r\n\r\n'
    + base64.encodebytes(FILE).replace(b"\n", b"\r\n")
    + b"--bb--\r\n"
)
TO_DATA = (
    (TO_CLIENT, b"220 mx ESMTP\r\n"),
    (TO_SERVER, b"EHLO client.example\r\n"),
    (TO_CLIENT, b"250-mx\r\n250 OK\r\n"),
    (TO_SERVER, b"MAIL FROM:<a@x.example> SIZE=100\r\n"),
    (TO_CLIENT, b"250 ok\r\n"),
    (TO_SERVER, b"RCPT TO:<c@y.example>\r\n"),
    (TO_CLIENT, b"250 ok\r\n"),
    (TO_SERVER, b"DATA\r\n"),
    (TO_CLIENT, b"354 go\r\n"),
)


def parse(*pieces, wants=("files", "md5"), settings=None):
    mine = SMTP.open(Context(settings=settings or {}, wants=frozenset(wants)))
    for direction, data in pieces:
        mine.data(direction, data)
    return mine


def talk(size=1400):
    made = Conversation(dport=2525).handshake()
    for direction, data in TO_DATA:
        made.send(direction, data)
    for at in range(0, len(MAIL), size):
        made.send(0, MAIL[at : at + size])
    return made.send(0, b".\r\n").send(1, b"250 queued\r\n").send(0, b"QUIT\r\n").send(1, b"221 bye\r\n").finish()


def events(mine):
    return {name for transaction in mine.transactions for _direction, name in transaction.events}


@pytest.mark.parametrize("size", [1, 7, 100, 1 << 20])
def test_a_mail_is_the_same_however_it_is_cut(size):
    pieces = [(TO_SERVER, (MAIL + b".\r\n")[at : at + size]) for at in range(0, len(MAIL) + 3, size)]
    mine = parse(*TO_DATA, *pieces)
    (mail,) = mine.transactions
    (file,) = mail.files
    assert (file.name, file.size, file.state) == (b"evil file.exe", len(FILE), "closed")
    assert file.digests == {"md5": hashlib.md5(FILE).hexdigest()}
    assert mail.done and not mail.events


def test_rules_match_files_in_the_order_they_come():
    rules = [
        'alert smtp any any -> any any (file.data; content:"MARK"; endswith; sid:1;)',
        'alert smtp any any -> any any (file.name; content:"evil file.exe"; sid:2;)',
        'alert smtp any any -> any any (fileext:"exe"; filesize:>5000; sid:3;)',
        'alert smtp any any -> any any (content:"EHLO client"; sid:4;)',
        'alert smtp any any -> any any (file.data; content:"absent"; sid:5;)',
        "alert smtp any any -> any any (app-layer-event:smtp.invalid_reply; sid:6;)",
        'alert tcp any any -> any any (app-layer-protocol:smtp; content:"QUIT"; sid:7;)',
    ]
    found = inspect(talk().frames, rules)
    assert found.counts() == {1: 1, 2: 1, 3: 1, 4: 1, 7: 1}
    numbers = {sid: number for number, sid in found.numbered()}
    assert numbers[2] < numbers[1]


def test_what_eve_tells_of_a_mail():
    mine = parse(*TO_DATA, (TO_SERVER, MAIL + b".\r\n"))
    kind, fields = SMTP.eve(mine.transactions[0])
    assert (kind, fields) == (
        "smtp",
        {"helo": "client.example", "mail_from": "<a@x.example>", "rcpt_to": ["<c@y.example>"]},
    )
    assert SMTP.eve_further(mine.transactions[0]) == {
        "email": {
            "status": "PARSE_DONE",
            "from": '"A, B" <a@x.example>',
            "to": ["c@y.example", '"D, E" <d@y.example>'],
            "attachment": ["evil file.exe"],
            "url": ["evil.example/a.exe"],
        }
    }


def test_addresses_may_be_quoted():
    assert addresses(b' a@x , "b, c" <d@x>,,e@x') == ["a@x ", '"b, c" <d@x>', "e@x"]


@pytest.mark.parametrize(
    ("pieces", "event"),
    [
        ([(TO_SERVER, b"EHLO x\r\n")], "no_server_welcome_message"),
        ([(TO_SERVER, b"EHLO x\r\n"), (TO_CLIENT, b"999 what\r\n")], "invalid_reply"),
        ([(TO_SERVER, b"EHLO x\r\nHELO y\r\n")], "duplicate_fields"),
        ([(TO_SERVER, b"DATA\r\nNOOP\r\n")], "invalid_pipelined_sequence"),
        ([(TO_CLIENT, b"220 x\r\n"), (TO_SERVER, b"DATA\r\n"), (TO_CLIENT, b"550 no\r\n")], "data_command_rejected"),
        ([(TO_CLIENT, b"220 x\r\n"), (TO_SERVER, b"STARTTLS\r\n"), (TO_CLIENT, b"501 no\r\n")], "tls_rejected"),
        ([(TO_SERVER, b"BDAT 5\r\nabcdefgh\r\n")], "bdat_chunk_len_exceeded"),
        ([(TO_SERVER, b"DATA\r\nDATA\r\n")], "unparsable_content"),
        ([(TO_SERVER, b"EHLO " + b"x" * 5000)], "truncated_line"),
    ],
)
def test_what_is_odd_is_named(pieces, event):
    assert event in events(parse(*pieces))
    assert event in EVENTS


def test_starttls_hands_the_flow_over():
    mine = parse((TO_CLIENT, b"220 x\r\n"), (TO_SERVER, b"STARTTLS\r\n"), (TO_CLIENT, b"220 go\r\n"))
    assert mine.becomes == "tls" and mine.transactions[0].done


def test_chunks_are_passed_over_whatever_they_hold():
    mine = parse(
        (TO_CLIENT, b"220 x\r\n"),
        (TO_SERVER, b"MAIL FROM:<a>\r\nBDAT 13\r\nRCPT TO:"),
        (TO_SERVER, b"<x>\r\nRCPT TO:<y>\r\n"),
    )
    assert mine.transactions[0].recipients == [b"<y>"]


def test_a_line_of_any_length_in_a_body_reaches_the_file_whole():
    head = b"Content-Type: a/b; name=f\r\n\r\n"
    body = b"x" * 20_000
    mine = parse(*TO_DATA, (TO_SERVER, head + body), (TO_SERVER, b"\r\n.\r\n"))
    (file,) = mine.transactions[0].files
    assert (file.size, bytes(file.data)) == (len(body), body)


def test_a_mail_that_breaks_off_leaves_a_truncated_file():
    mine = parse(*TO_DATA, (TO_SERVER, MAIL[:-300]))
    mine.gap(TO_SERVER, 100)
    mine.data(TO_SERVER, b"EHLO again\r\n")
    (mail,) = mine.transactions
    assert [file.state for file in mail.files] == ["truncated"]


def test_mails_of_a_connection_and_what_is_kept_of_them_are_bounded():
    mine = parse((TO_CLIENT, b"220 x\r\n"))
    for _ in range(2 * MOST_MAILS):
        mine.data(TO_SERVER, b"RSET\r\n")
        mine.data(TO_CLIENT, b"250 ok\r\n")
        mine.data(TO_SERVER, b"MAIL FROM:<a>\r\n")
        mine.data(TO_CLIENT, b"250 ok\r\n")
    assert len(mine.transactions) <= MOST_MAILS + 1
    part = b"--bb\r\nContent-Type: a/b; name=f\r\n\r\n" + b"x" * 90 + b"\r\n"
    head = b"Content-Type: multipart/mixed; boundary=bb\r\n\r\n"
    mine = parse(*TO_DATA, (TO_SERVER, head + part * 1000 + b".\r\n"))
    assert len(mine.transactions[0].files) == 256
    mine = parse((TO_SERVER, b"EHLO x"), *[(TO_SERVER, b"y" * 1000)] * 100)
    assert len(mine._sides[0].pending) <= 5096


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from((TO_SERVER, TO_CLIENT)),
            st.one_of(
                st.sampled_from(
                    [
                        b"220 x\r\n", b"250-PIPELINING\r\n", b"250 ok\r\n", b"354 go\r\n", b"DATA\r\n", b".\r\n",
                        b"BDAT 3\r\n", b"STARTTLS\r\n", b"RSET\r\n", b"QUIT\r\n", b"\r", b"\n", b"--", MAIL[:400],
                    ]
                ),
                st.binary(max_size=40),
            ),
        ),
        max_size=40,
    )
)  # fmt: skip
def test_no_bytes_stop_it(pieces):
    mine = parse(*pieces)
    for direction in (TO_SERVER, TO_CLIENT):
        mine.end(direction)
    for transaction in mine.transactions:
        SMTP.eve(transaction)
        SMTP.eve_further(transaction)
        assert {name for _direction, name in transaction.events} <= EVENTS
