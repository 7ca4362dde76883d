"""FTP: commands and replies, the connections that carry files, and that no bytes stop the parsers."""

import hashlib

import pytest
from conversation import Conversation
from hypothesis import given, settings
from hypothesis import strategies as st
from replay import inspect

from flowshunt_ids.app.contract import TO_CLIENT, TO_SERVER, Context
from flowshunt_ids.app.ftp import commands
from flowshunt_ids.app.ftp.parser import FtpDataParser, FtpParser, Transfer
from flowshunt_ids.app.ftp.protocol import FTP, FTP_DATA

CLIENT = bytes((10, 0, 0, 1))
FILE = b"MZ" + bytes(range(256)) * 20 + b"MARK"


def parse(*pieces):
    mine = FtpParser(Context(source=CLIENT))
    for direction, data in pieces:
        mine.data(direction, data)
    return mine


def session():
    """A login, a file fetched in passive mode, and one stored in active mode."""
    made = Conversation(sport=40003, dport=2121).handshake()
    made.send(1, b"220 (server)\r\n").send(0, b"USER anonymous\r\n").send(1, b"331 pw\r\n")
    made.send(0, b"PASV\r\n").send(1, b"227 Entering Passive Mode (10,0,0,2,200,10).\r\n").send(0, b"RETR evil.exe\r\n")
    fetched = Conversation(sport=40004, dport=200 * 256 + 10).handshake()
    for at in range(0, len(FILE), 1000):
        fetched.send(1, FILE[at : at + 1000])
    made.frames += fetched.finish().frames
    made.send(1, b"150 opening\r\n226 done\r\n").send(0, b"PORT 10,0,0,1,5,6\r\n").send(1, b"200 ok\r\n")
    made.send(0, b"STOR up.bin\r\n")
    stored = Conversation(sport=20, dport=1286, client="10.0.0.2", server="10.0.0.1", seqs=(70000, 90000)).handshake()
    made.frames += stored.send(1, b"stored UPLOAD").finish().frames
    return made.send(1, b"226 done\r\n").send(0, b"QUIT\r\n").send(1, b"221 bye\r\n").finish()


def test_files_are_found_in_the_connections_that_are_announced(tmp_path):
    digests = tmp_path / "list.md5"
    digests.write_text(hashlib.md5(FILE).hexdigest() + "\n")
    rules = [
        'alert ftp-data any any -> any any (file.data; content:"MARK"; endswith; sid:1;)',
        'alert ftp-data any any -> any any (file.name; content:"evil.exe"; sid:2;)',
        f"alert ftp-data any any -> any any (filemd5:{digests}; sid:3;)",
        "alert ftp-data any any -> any any (ftpdata_command:retr; sid:4;)",
        "alert ftp-data any any -> any any (ftpdata_command:stor; sid:5;)",
        'alert ftp-data any any -> any any (file.data; content:"UPLOAD"; sid:6;)',
        'alert ftp-data any any -> any any (content:"MARK"; sid:7;)',
        'alert ftp any any -> any any (content:"RETR"; sid:8;)',
        'alert ftp any any -> any any (content:"MARK"; sid:9;)',
    ]
    assert inspect(session().frames, rules).counts() == {1: 1, 2: 1, 3: 1, 4: 1, 5: 1, 6: 1, 7: 1, 8: 1}


def test_a_connection_that_nothing_announced_is_none_of_ftps():
    made = Conversation(sport=40004, dport=200 * 256 + 10).handshake().send(1, FILE[:1000]).finish()
    rules = ['alert ftp-data any any -> any any (file.data; content:"MZ"; sid:1;)']
    assert inspect(made.frames, rules).counts() == {}


@pytest.mark.parametrize(
    ("read", "line", "port"),
    [
        (commands.active_port, b"PORT 10,0,0,1,4,1", 1025),
        (commands.active_port, b"port 10,0,0,1,256,1", 0),
        (commands.active_port, b"PORT 10,0,0,1,4", 0),
        (commands.extended_port, b"EPRT |2|2001:db8::1|5282|", 5282),
        (commands.extended_port, b"EPRT |1|10.0.0.1|70000|", 0),
        (commands.passive_port, b"227 Entering Passive Mode (212,27,32,66,221,243).", 56819),
        (commands.passive_port, b"227 nothing", 0),
        (commands.extended_passive_port, b"229 Entering Extended Passive Mode (|||48758|).", 48758),
    ],
)
def test_ports_are_read(read, line, port):
    assert read(line) == port


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        (b"PORT 10,0,0,1,4,1", False),
        (b"PORT 192,0,2,9,4,1", True),
        (b"PORT 192,0,2,999,4,1", False),
        (b"PORT x", False),
    ],
)
def test_a_port_command_for_another_host_bounces(line, answer):
    assert commands.bounces(line, CLIENT) is answer


def test_a_bounce_is_a_condition_of_rules():
    made = Conversation(dport=21).handshake().send(1, b"220 x\r\n").send(0, b"USER x\r\n").send(1, b"230 ok\r\n")
    made.send(0, b"PORT 192,0,2,9,4,1\r\n").send(1, b"200 ok\r\n")
    rules = ["alert ftp any any -> any any (ftpbounce; sid:1;)"]
    assert inspect(made.finish().frames, rules).counts() == {1: 1}


def test_what_eve_tells_of_a_command():
    mine = parse(
        (TO_CLIENT, b"220 hello\r\n"),
        (TO_SERVER, b"PORT 10,0,0,1,4,1\r\n"),
        (TO_CLIENT, b"200 fine\r\n"),
    )
    assert FTP.eve(mine.transactions[1]) == (
        "ftp",
        {
            "command": "PORT",
            "command_data": "10,0,0,1,4,1",
            "completion_code": ["200"],
            "reply": ["fine"],
            "dynamic_port": 1025,
            "mode": "active",
            "reply_received": "yes",
            "reply_truncated": False,
        }
        | {"command_truncated": False},
    )


def test_replies_belong_to_their_commands_in_order():
    mine = parse(
        (TO_SERVER, b"USER a\r\nPASS b\r\n"),
        (TO_CLIENT, b"331 pw\r\n"),
        (TO_CLIENT, b"150 wait\r\n230 in\r\n"),
    )
    assert [(each.command, each.replies) for each in mine.transactions] == [
        ("USER", [b"331 pw"]),
        ("PASS", [b"150 wait", b"230 in"]),
    ]


def test_long_lines_are_cut_and_named():
    mine = parse(
        (TO_SERVER, b"STAT " + b"x" * 5000 + b"\r\n"), (TO_CLIENT, b"211 " + b"y" * 5000), (TO_CLIENT, b"\r\n")
    )
    (only,) = mine.transactions
    assert {name for _direction, name in only.events} == {"request_command_too_long", "response_command_too_long"}
    assert len(only.request) == 4096 and len(only.replies[0]) == 4096


def test_authentication_hands_the_flow_over_to_tls():
    assert parse((TO_SERVER, b"AUTH TLS\r\n"), (TO_CLIENT, b"234 go\r\n")).becomes == "tls"


def test_what_waits_and_what_is_kept_is_bounded():
    mine = parse(*[(TO_SERVER, b"NOOP\r\n" * 100)] * 50)
    assert len(mine._open) == 512
    mine = parse((TO_SERVER, b"LIST\r\n"), *[(TO_CLIENT, b"200-" + b"z" * 3000 + b"\r\n")] * 100)
    assert sum(map(len, mine.transactions[0].replies)) <= 1 << 16
    mine = parse(*[(TO_SERVER, b"x" * 1000)] * 100)
    assert len(mine._pending[0]) <= 5096


@pytest.mark.parametrize(("gone", "state"), [(False, "closed"), (True, "truncated")])
def test_a_file_ends_with_its_connection(gone, state):
    mine = FtpDataParser(Context(wants=frozenset({"files"}), expected=Transfer("RETR", b"f", TO_CLIENT)))
    mine.data(TO_SERVER, b"not of it")
    mine.data(TO_CLIENT, b"data")
    if gone:
        mine.gap(TO_CLIENT, 5)
    mine.end(TO_CLIENT)
    (file,) = mine.transactions[0].files
    assert (file.size, file.state) == (4, state)
    assert FTP_DATA.eve(mine.transactions[0]) == ("ftp_data", {"filename": "f", "command": "RETR"})


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from((TO_SERVER, TO_CLIENT)),
            st.one_of(
                st.sampled_from(
                    [
                        b"PORT 1,2,3,4,5,6\r\n", b"PASV\r\n", b"227 x (1,2,3,4,5,6)\r\n", b"229 (|||9|)\r\n", b"EPSV\n",
                        b"RETR some\r\n", b"STOR other\r\n", b"150 x\r\n", b"226 y\r\n", b"AUTH TLS\r\n", b"\n", b"\r",
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
    for transaction in mine.transactions:
        FTP.eve(transaction)
    assert all(0 < each.port < 65536 for each in mine.expected)
