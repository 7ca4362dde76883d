"""SSH connections: banners, HASSH, where encryption begins; and that no bytes stop the parser."""

import hashlib
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowshunt_ids.app.contract import TO_CLIENT, TO_SERVER, Context
from flowshunt_ids_ssh.buffers import BUFFERS
from flowshunt_ids_ssh.parser import KEYS, SshParser
from flowshunt_ids_ssh.protocol import encrypted, event

LISTS = ("curve25519", "ssh-ed25519", "aes128-ctr", "aes256-ctr", "hmac-a", "hmac-b", "none", "zlib", "", "")


def packet(kind, data=b"", padding=4):
    body = bytes([padding, kind]) + data + bytes(padding)
    return struct.pack(">I", len(body)) + body


def keys():
    return packet(20, bytes(16) + b"".join(struct.pack(">I", len(x)) + x.encode() for x in LISTS) + bytes(5))


def parser():
    return SshParser(Context(destination_port=22))


def buffer(found, name, direction):
    return next(each for each in BUFFERS if each.name == name).get(found._transaction, direction)


def connected():
    found = parser()
    found.data(TO_CLIENT, b"SSH-2.0-OpenSSH_9.6 Debian-3\r\n" + keys())
    found.data(TO_SERVER, b"SSH-2.0-libssh_0.10\n" + keys())
    return found


def test_banners_tell_protocol_and_software():
    found = connected()
    assert buffer(found, "ssh.proto", TO_CLIENT) == b"2.0"
    assert buffer(found, "ssh.software", TO_CLIENT) == b"OpenSSH_9.6"
    assert buffer(found, "ssh.software", TO_SERVER) == b"libssh_0.10"


def test_hassh_takes_the_lists_of_its_direction():
    found = connected()
    client, server = "curve25519;aes128-ctr;hmac-a;none", "curve25519;aes256-ctr;hmac-b;zlib"
    assert buffer(found, "ssh.hassh.string", TO_SERVER) == client.encode()
    assert buffer(found, "ssh.hassh.server", TO_CLIENT) == hashlib.md5(server.encode()).hexdigest().encode()
    assert min(found._transaction.progress) >= KEYS
    assert event(found._transaction)[1]["client"]["hassh"]["string"] == client


@pytest.mark.parametrize("cut", [1, 4, 50])
def test_pieces_of_any_size_tell_the_same(cut):
    found = parser()
    for direction, data in (
        (TO_CLIENT, b"SSH-2.0-OpenSSH_9.6 Debian-3\r\n" + keys()),
        (TO_SERVER, b"SSH-2.0-libssh_0.10\n" + keys()),
    ):
        for at in range(0, len(data), cut):
            found.data(direction, data[at : at + cut])
    assert event(found._transaction) == event(connected()._transaction)


def test_new_keys_on_both_sides_end_the_interest():
    found = connected()
    found.data(TO_SERVER, packet(30, bytes(32)) + packet(21))
    assert not found.bypass
    found.data(TO_CLIENT, packet(31, bytes(500)) + packet(21))
    assert found.bypass
    assert encrypted(found, {"encryption-handling": "bypass"})
    assert not encrypted(found, {})


def test_a_server_may_send_lines_before_its_banner():
    found = parser()
    found.data(TO_CLIENT, b"welcome\r\nSSH-1.99-x y\r\n")
    assert buffer(found, "ssh.proto", TO_CLIENT) == b"1.99"


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"HELLO\r\n", "invalid_banner"),
        (b"SSH-2\r\n", "invalid_banner"),
        (b"SSH-2.0-" + b"x" * 300 + b"\n", "long_banner"),
        (b"SSH-2.0-x\n\0\0\0\1\0\0\0", "invalid_record"),
        (b"SSH-2.0-x\n\xff\xff\xff\xff\0\0\0", "invalid_record"),
    ],
)
def test_what_is_wrong_is_noted(data, told):
    found = parser()
    found.data(TO_SERVER, data)
    assert (TO_SERVER, told) in found._transaction.events


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from([TO_SERVER, TO_CLIENT]), st.binary(max_size=60)), max_size=20), st.booleans())
def test_no_bytes_stop_it(pieces, begun):
    found = connected() if begun else parser()
    for direction, data in pieces:
        found.data(direction, data)
    event(found._transaction)
    for each in BUFFERS:
        for direction in (TO_SERVER, TO_CLIENT):
            each.get(found._transaction, direction)


def test_bytes_without_end_are_not_kept():
    found = parser()
    for _ in range(200):
        found.data(TO_CLIENT, b"no banner " * 100)
    assert len(found._pending[TO_CLIENT]) <= 1 << 13
