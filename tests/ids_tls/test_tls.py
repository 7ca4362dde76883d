"""TLS connections: hellos, certificates, JA3, where encryption begins; and that no bytes stop the parser."""

import hashlib
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowshunt_ids.app.contract import TO_CLIENT, TO_SERVER, Context
from flowshunt_ids_tls.buffers import BUFFERS, CONDITIONS
from flowshunt_ids_tls.certificate import CertificateError, read_certificate
from flowshunt_ids_tls.hello import HelloError, read_hello
from flowshunt_ids_tls.parser import CERTIFICATES, HANDSHAKE, HELLO, TlsParser
from flowshunt_ids_tls.protocol import encrypted, event


def record(kind, data, version=0x0303):
    return struct.pack(">BHH", kind, version, len(data)) + data


def handshake(kind, data):
    return bytes([kind]) + len(data).to_bytes(3, "big") + data


def counted(width, data):
    return len(data).to_bytes(width, "big") + data


def extension(kind, data):
    return struct.pack(">H", kind) + counted(2, data)


def client_hello(name=b"www.example.org", *, extra=b"", ciphers=(0x1301, 0x1302, 0x0A0A, 0xC02F)):
    extensions = (
        extension(0, counted(2, b"\0" + counted(2, name)))
        + extension(10, counted(2, struct.pack(">HHH", 0x2A2A, 29, 23)))
        + extension(11, counted(1, b"\0"))
        + extension(16, counted(2, counted(1, b"h2") + counted(1, b"http/1.1")))
        + extra
    )
    suites = b"".join(struct.pack(">H", each) for each in ciphers)
    body = (
        b"\x03\x03"
        + bytes(range(32))
        + counted(1, b"")
        + counted(2, suites)
        + counted(1, b"\0")
        + counted(2, extensions)
    )
    return handshake(1, body)


def server_hello(cipher=0xC02F, extensions=b""):
    return handshake(
        2, b"\x03\x03" + bytes(32) + counted(1, b"") + struct.pack(">HB", cipher, 0) + counted(2, extensions)
    )


def der(tag, *parts):
    data = b"".join(parts)
    size = bytes([len(data)]) if len(data) < 128 else b"\x82" + len(data).to_bytes(2, "big")
    return bytes([tag]) + size + data


def name(**fields):
    oids = {"C": b"\x55\x04\x06", "O": b"\x55\x04\x0a", "CN": b"\x55\x04\x03"}
    return der(0x30, *(der(0x31, der(0x30, der(6, oids[k]), der(0x0C, v.encode()))) for k, v in fields.items()))


def certificate(**subject):
    algorithm = der(0x30, der(6, b"\x2a\x86\x48"))
    dates = der(0x30, der(0x17, b"200101000000Z"), der(0x18, b"20500102030405Z"))
    body = der(
        0x30, der(0xA0, der(2, b"\2")), der(2, b"\x01\xab"), algorithm, name(C="US", O="Test CA"), dates,
        name(**subject), der(0x30, b""),
    )  # fmt: skip
    return der(0x30, body, algorithm, der(3, b"\0"))


CERTIFICATE = certificate(C="DE", O="Example", CN="www.example.org")
CHAIN = handshake(11, counted(3, counted(3, CERTIFICATE) + counted(3, certificate(CN="CA"))))


def parser():
    return TlsParser(Context(destination_port=443))


def transaction(found):
    return found._transaction


def buffer(found, wanted, direction):
    return next(each for each in BUFFERS if each.name == wanted).get(transaction(found), direction)


def connected():
    found = parser()
    found.data(TO_SERVER, record(22, client_hello(), 0x0301))
    found.data(TO_CLIENT, record(22, server_hello()) + record(22, CHAIN) + record(22, handshake(14, b"")))
    return found


def test_the_client_s_hello_tells_server_name_and_protocols():
    found = connected()
    assert buffer(found, "tls.sni", TO_SERVER) == b"www.example.org"
    assert buffer(found, "tls.alpn", TO_SERVER) == [b"h2", b"http/1.1"]
    assert transaction(found).progress[TO_SERVER] >= HELLO


def test_ja3_leaves_out_grease():
    found = connected()
    ja3 = "771,4865-4866-49199,0-10-11-16,29-23,0"
    assert buffer(found, "ja3.string", TO_SERVER) == ja3.encode()
    assert buffer(found, "ja3.hash", TO_SERVER) == hashlib.md5(ja3.encode()).hexdigest().encode()
    assert buffer(found, "ja3s.string", TO_CLIENT) == b"771,49199,"


def test_the_certificate_is_told_as_suricata_tells_it():
    found = connected()
    assert buffer(found, "tls.cert_subject", TO_CLIENT) == b"C=DE, O=Example, CN=www.example.org"
    assert buffer(found, "tls.cert_issuer", TO_CLIENT) == b"C=US, O=Test CA"
    assert buffer(found, "tls.cert_serial", TO_CLIENT) == b"01:AB"
    assert buffer(found, "tls.cert_fingerprint", TO_CLIENT) == hashlib.sha1(CERTIFICATE).digest().hex(":").encode()
    assert len(buffer(found, "tls.certs", TO_CLIENT)) == 2
    assert transaction(found).progress[TO_CLIENT] >= CERTIFICATES
    kind, fields = event(transaction(found))
    assert kind == "tls"
    assert fields["version"] == "TLS 1.2"
    assert fields["notafter"] == "2050-01-02T03:04:05"


@pytest.mark.parametrize("cut", [1, 3, 7, 100])
def test_pieces_of_any_size_tell_the_same(cut):
    whole, pieces = connected(), parser()
    for direction, data in (
        (TO_SERVER, record(22, client_hello(), 0x0301)),
        (
            TO_CLIENT,
            record(22, server_hello() + CHAIN[:100]) + record(22, CHAIN[100:]) + record(22, handshake(14, b"")),
        ),
    ):
        for at in range(0, len(data), cut):
            pieces.data(direction, data[at : at + cut])
    assert event(transaction(pieces)) == event(transaction(whole))


def test_encryption_on_both_sides_ends_the_interest():
    found = connected()
    found.data(TO_SERVER, record(20, b"\1") + record(22, bytes(40)))
    assert not found.bypass
    found.data(TO_CLIENT, record(20, b"\1") + record(22, bytes(40)))
    found.data(TO_SERVER, record(23, bytes(1000)))
    assert found.bypass
    assert encrypted(found, {"encryption-handling": "bypass"})
    assert not encrypted(found, {"encryption-handling": "full"})
    assert min(transaction(found).progress) >= HANDSHAKE


def test_a_version_13_server_s_choice_counts():
    found = parser()
    found.data(TO_SERVER, record(22, client_hello(extra=extension(43, b"\x04\x03\x04\x03\x03")), 0x0301))
    found.data(TO_CLIENT, record(22, server_hello(0x1301, extension(43, b"\x03\x04"))))
    assert event(transaction(found))[1]["version"] == "TLS 1.3"


def test_a_gap_inside_encrypted_data_is_passed_over():
    found = connected()
    found.data(TO_SERVER, record(20, b"\1") + record(23, bytes(1000))[:500])
    found.gap(TO_SERVER, 300)
    found.data(TO_SERVER, bytes(205) + record(23, bytes(10)))
    assert not [name for _, name in transaction(found).events]


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"\x63\x03\x03\x00\x01x", "invalid_record_type"),
        (b"\x16\x09\x03\x00\x01x", "invalid_record_version"),
        (b"\x16\x03\x03\xff\xffx", "invalid_record_length"),
        (
            record(22, client_hello()[:60].replace(client_hello()[1:4], (56).to_bytes(3, "big"))),
            "handshake_invalid_length",
        ),
        (record(22, client_hello(extra=extension(0, counted(2, b"\0" + counted(2, b"b"))))), "multiple_sni_extensions"),
    ],
)
def test_what_is_wrong_is_noted(data, told):
    found = parser()
    found.data(TO_SERVER, data)
    assert (TO_SERVER, told) in transaction(found).events


def test_names_end_at_a_zero_byte():
    read = read_certificate(certificate(CN="good.example\0.evil.example"))
    assert read.subject == "CN=good.example"


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from([TO_SERVER, TO_CLIENT]), st.binary(max_size=80)), max_size=20))
def test_no_bytes_stop_it(pieces):
    found = parser()
    for direction, data in pieces:
        found.data(direction, data)
    event(transaction(found))


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_no_change_of_a_handshake_stops_it(data):
    stream = bytearray(record(22, server_hello()) + record(22, CHAIN))
    for _ in range(data.draw(st.integers(1, 8))):
        stream[data.draw(st.integers(0, len(stream) - 1))] = data.draw(st.integers(0, 255))
    found = parser()
    found.data(TO_SERVER, record(22, client_hello()))
    found.data(TO_CLIENT, bytes(stream))
    event(transaction(found))
    for each in BUFFERS:
        for direction in (TO_SERVER, TO_CLIENT):
            each.get(transaction(found), direction)


@given(st.binary(max_size=300))
def test_no_bytes_but_certificates_are_certificates(data):
    with pytest.raises(CertificateError):
        read_certificate(b"\x31" + data)


@given(st.binary(max_size=60))
def test_a_short_hello_is_refused(data):
    with pytest.raises(HelloError):
        read_hello(data[:34], client=True)


def test_each_condition_is_judged_on_any_connection():
    values = {
        "tls.version": 0x0303, "ssl_version": (frozenset({0x0303}), False), "ssl_state": (("client_hello", False),),
        "tls.cert_chain_len": (0, 9, False), "tls.dates": ("valid", 0, 0), "tls.text": ("subject", "Example", False),
    }  # fmt: skip
    for found in (parser(), connected()):
        for kind in CONDITIONS:
            assert kind.judge(transaction(found), TO_CLIENT, values[kind.name]) in (True, False, None)
