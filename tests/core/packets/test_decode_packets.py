import struct

import numpy as np
import pytest
from frame_batches import batch_of, row_of
from frame_bytes import ethernet, ipv4, ipv6, tcp, udp

from flowshunt.packets.decode import decode
from flowshunt.packets.headers import (
    FRAGMENT,
    HEADER,
    IP_OPTIONS,
    LATER_FRAGMENT,
    MALFORMED,
    MORE_FRAGMENTS,
    TOO_DEEP,
    TRUNCATED,
)


def in4(protocol, payload, **fields):
    return ethernet(0x0800, ipv4(protocol, payload, **fields))


def in6(following, payload, **fields):
    return ethernet(0x86DD, ipv6(following, payload, **fields))


def some(row, *names):
    return tuple(row[name] for name in names)


def test_ethernet_padding_is_not_payload():
    for size in range(7):
        assert some(row_of(in4(6, tcp(b"x" * size)) + bytes(6 - size)), "payload", "payload_length") == (54, size)
        assert row_of(in4(17, udp(b"x" * size)) + bytes(18 - size))["payload_length"] == size


def test_bytes_after_a_udp_datagram_are_not_payload():
    assert row_of(in4(17, udp(b"12345678", length=12)))["payload_length"] == 4


def test_a_total_length_of_0_means_what_was_captured():
    row = row_of(in4(6, tcp(b"x" * 3000), total=0))
    assert some(row, "payload_length", "flags") == (3000, 0)
    row = row_of(in6(6, tcp(b"x" * 3000), length=0))
    assert some(row, "payload_length", "flags") == (3000, 0)
    assert row_of(in4(17, udp(b"x" * 3000, length=0), total=0))["payload_length"] == 3000


def test_an_ipv6_packet_of_nothing_has_no_payload():
    row = row_of(in6(59, b"") + bytes(6))
    assert some(row, "l3", "l4", "protocol", "payload", "payload_length", "flags") == (14, 0, 59, 54, 0, 0)


@pytest.mark.parametrize("protocol", [2, 50, 51, 89, 103, 255])
def test_an_unknown_transport_has_payload_but_no_header(protocol):
    row = row_of(in4(protocol, bytes(30)))
    assert some(row, "l4", "payload", "payload_length", "protocol", "flags") == (0, 34, 30, protocol, 0)


def test_icmp_belongs_to_ipv4_and_icmpv6_to_ipv6():
    assert row_of(in4(1, b"\x03\x04" + bytes(10)))["source_port"] == 3
    assert row_of(in6(58, b"\x87\x01" + bytes(10)))["destination_port"] == 1
    assert row_of(in4(58, bytes(12)))["l4"] == row_of(in6(1, bytes(12)))["l4"] == 0


def test_options_are_noticed_and_passed():
    row = row_of(in4(6, tcp(b"x"), options=b"\x01" * 40))
    assert some(row, "l4", "payload", "flags") == (74, 94, IP_OPTIONS)
    row = row_of(in4(6, tcp(b"xyz", offset=8, options=b"\x01" * 12)))
    assert some(row, "l4", "payload", "payload_length", "flags") == (34, 66, 3, 0)


EXTENSIONS = {
    "hop by hop": (0, lambda after: bytes([after, 1]) + bytes(14)),
    "routing": (43, lambda after: bytes([after, 2]) + bytes(22)),
    "destination options": (60, lambda after: bytes([after, 0]) + bytes(6)),
    "mobility": (135, lambda after: bytes([after, 0]) + bytes(6)),
    "host identity": (139, lambda after: bytes([after, 4]) + bytes(38)),
    "shim6": (140, lambda after: bytes([after, 0]) + bytes(6)),
    "authentication": (51, lambda after: bytes([after, 4]) + bytes(22)),
    "atomic fragment": (44, lambda after: bytes([after, 0]) + bytes(6)),
}


@pytest.mark.parametrize(("number", "build"), EXTENSIONS.values(), ids=EXTENSIONS.keys())
def test_extension_headers_are_passed(number, build):
    frame = in6(number, build(6) + tcp(b"xyz"))
    row = row_of(frame)
    assert some(row, "protocol", "l4", "payload_length", "flags") == (6, len(frame) - 23, 3, IP_OPTIONS)


def test_all_extension_headers_in_a_row():
    order = list(EXTENSIONS.values())
    following = [number for number, _ in order[1:]] + [17]
    chain = b"".join(build(after) for (_, build), after in zip(order, following, strict=True))
    frame = in6(order[0][0], chain + udp(b"xyz"))
    assert some(row_of(frame), "protocol", "l4", "payload_length") == (17, len(frame) - 11, 3)


@pytest.mark.parametrize(
    ("count", "flags"), [(15, IP_OPTIONS), (16, IP_OPTIONS | TOO_DEEP), (500, IP_OPTIONS | TOO_DEEP)]
)
def test_extension_headers_come_to_an_end(count, flags):
    row = row_of(in6(60, (bytes([60, 0]) + bytes(6)) * (count - 1) + bytes([6, 0]) + bytes(6) + tcp()))
    assert some(row, "flags", "l4") == (flags, 0 if flags & TOO_DEEP else 54 + 8 * count)


@pytest.mark.parametrize(
    ("fragment", "flags"),
    [
        (0x0000, 0),
        (0x4000, 0),
        (0x2000, FRAGMENT | MORE_FRAGMENTS),
        (0x2010, FRAGMENT | MORE_FRAGMENTS | LATER_FRAGMENT),
        (0x0010, FRAGMENT | LATER_FRAGMENT),
    ],
)
def test_ipv4_fragments(fragment, flags):
    row = row_of(in4(17, udp(b"x" * 16, length=100 if fragment & 0x2000 else None), fragment=fragment))
    later = bool(flags & LATER_FRAGMENT)
    assert some(row, "flags", "fragment_offset") == (flags, fragment & 0x1FFF)
    assert row["fragment_id"] == (0x1234 if flags else 0)
    assert some(row, "l4", "payload", "payload_length") == ((0, 34, 24) if later else (34, 42, 16))
    assert some(row, "source_port", "destination_port") == ((0, 0) if later else (1000, 2000))


@pytest.mark.parametrize(("position", "later"), [(1, False), (0x0081, True), (0x0080, True)])
def test_ipv6_fragments(position, later):
    header = struct.pack(">BBHI", 17, 0, position, 0xCAFEBABE)
    row = row_of(in6(44, header + udp(b"x" * 16, length=None if later else 1000)))
    more = MORE_FRAGMENTS if position & 1 else 0
    assert row["flags"] == IP_OPTIONS | FRAGMENT | more | (LATER_FRAGMENT if later else 0)
    assert some(row, "fragment_id", "fragment_offset") == (0xCAFEBABE, position >> 3)
    assert some(row, "l4", "payload", "payload_length") == ((0, 62, 24) if later else (62, 70, 16))
    assert row["protocol"] == 17


BROKEN_IP = {
    "IPv4 of version 5": in4(6, tcp(), first=0x55),
    "IPv4 header length of 16": in4(6, tcp(), first=0x44),
    "IPv4 total length below its header": in4(6, tcp(), total=19),
    "IPv6 of version 4": in6(6, tcp(), first=0x40),
}


@pytest.mark.parametrize("frame", BROKEN_IP.values(), ids=BROKEN_IP.keys())
def test_a_broken_ip_header_is_no_ip(frame):
    row = row_of(frame)
    assert some(row, "flags", "ip_version", "l3", "payload_length") == (MALFORMED, 0, 0, 0)


BROKEN_TRANSPORT = {
    "TCP of 19 bytes": in4(6, bytes(19)),
    "TCP header length of 16": in4(6, tcp(b"1234567890", offset=4)),
    "TCP header longer than its packet": in4(6, tcp(b"123", offset=6)),
    "UDP of 7 bytes": in4(17, bytes(7)),
    "UDP length of 7": in4(17, udp(b"123", length=7)),
    "UDP length of 0": in4(17, udp(b"123", length=0)),
    "UDP longer than its packet": in4(17, udp(b"123", length=12)),
    "ICMP of 7 bytes": in4(1, bytes(7)),
    "ICMPv6 of 7 bytes": in6(58, bytes(7)),
    "SCTP of 11 bytes": in4(132, bytes(11)),
}


@pytest.mark.parametrize("frame", BROKEN_TRANSPORT.values(), ids=BROKEN_TRANSPORT.keys())
@pytest.mark.parametrize("padding", [0, 10])
def test_a_broken_transport_header_is_none(frame, padding):
    row = row_of(frame + bytes(padding))
    start = 34 if row["ip_version"] == 4 else 54
    assert some(row, "flags", "l4", "source_port", "payload") == (MALFORMED, 0, 0, start)
    assert row["payload_length"] == len(frame) - start


@pytest.mark.parametrize(
    ("frame", "needed"),
    [(in4(6, tcp(b"x" * 50)), 54), (in4(17, udp(b"x" * 50)), 42), (in6(58, bytes(50)), 62), (in4(132, bytes(50)), 46)],
)
def test_cut_frames_are_truncated_and_what_is_there_is_decoded(frame, needed):
    whole = row_of(frame)
    for size in range(len(frame)):
        row = row_of(frame[:size])
        assert row["flags"] == TRUNCATED
        assert row["l4"] == (whole["l4"] if size >= needed else 0)
        assert row["ip_version"] == (
            whole["ip_version"] if size >= whole["l3"] + (20 if whole["ip_version"] == 4 else 40) else 0
        )
        if size >= needed:
            assert some(row, "source_port", "payload", "seq") == some(whole, "source_port", "payload", "seq")
            assert row["payload_length"] == size - needed


def test_cut_tcp_options_leave_the_fixed_header():
    row = row_of(in4(6, tcp(b"xyz", offset=8, options=b"\x01" * 12))[:60])
    assert some(row, "flags", "l4", "seq", "payload", "payload_length") == (TRUNCATED, 34, 0x11223344, 60, 0)


def test_cut_ip_options_leave_the_addresses():
    row = row_of(in4(6, tcp(), options=b"\x01" * 40)[:40])
    assert some(row, "flags", "l3", "ip_version", "protocol") == (TRUNCATED | IP_OPTIONS, 14, 4, 6)
    assert some(row, "l4", "payload", "payload_length") == (0, 40, 0)


def test_rows_are_written_where_asked():
    batch = batch_of([in4(6, tcp(b"x")), in6(17, udp())])
    out = np.full(5, 0xEE, np.uint8).view("u1").repeat(64).view(HEADER)
    rows = decode(batch, out=out)
    assert rows.base is not None and len(rows) == 2
    assert rows.tobytes() == decode(batch).tobytes() == out[:2].tobytes()
    assert set(out[2:].tobytes()) == {0xEE}


@pytest.mark.parametrize("out", [np.empty(1, HEADER), np.empty(4, HEADER)[::2], np.empty(2, np.int64)])
def test_rows_that_do_not_fit_are_refused(out):
    with pytest.raises(ValueError, match="out must be"):
        decode(batch_of([b"a", b"b"]), out=out)


@pytest.mark.parametrize("depth", [-1, 256])
def test_a_depth_that_does_not_fit_is_refused(depth):
    with pytest.raises(ValueError, match="depth"):
        decode(batch_of([b"a"]), depth=depth)


def test_every_second_frame_of_a_batch():
    content = [in4(6, tcp(b"x" * size)) for size in range(10)]
    batch = batch_of(content)
    assert decode(batch.select(slice(None, None, 2))).tobytes() == decode(batch)[::2].tobytes()


def test_an_empty_batch_has_no_rows():
    batch = batch_of([b"a"]).select(slice(0, 0))
    assert len(decode(batch)) == 0


def test_frames_outside_the_buffer_are_not_touched():
    batch = batch_of([bytes(60)] * 4)
    batch.offset[:] = [-1, 200, 1 << 62, 240]
    batch.captured[:] = [60, 60, 60, 0]
    assert decode(batch)["flags"].tolist() == [TRUNCATED] * 4
