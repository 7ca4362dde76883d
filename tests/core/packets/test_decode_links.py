import struct

import pytest
from frame_batches import row_of
from frame_bytes import MACS, ethernet, ipv4, ipv6, mpls, tcp, vlan

from flowshunt.packets.headers import MALFORMED, NO_VLAN, TOO_DEEP, TRUNCATED, UNKNOWN_LINK

PACKET = ipv4(6, tcp(b"payload!"))
PACKET6 = ipv6(6, tcp(b"payload!"))


def sll(protocol, payload, *, hardware=1):
    return struct.pack(">HHH8sH", 0, hardware, 6, MACS[:8], protocol) + payload


def sll2(protocol, payload, *, hardware=1):
    return struct.pack(">HHIHBB8s", protocol, 0, 3, hardware, 0, 6, MACS[:8]) + payload


def null(family, payload, order="<"):
    return struct.pack(order + "I", family) + payload


def llc(ethertype, payload, organization=0):
    return b"\xaa\xaa\x03" + organization.to_bytes(3, "big") + struct.pack(">H", ethertype) + payload


def pppoe(payload, *, first=0x11, code=0):
    return struct.pack(">BBHH", first, code, 7, len(payload)) + payload


CARRIERS = {
    "Ethernet": (1, ethernet(0x0800, PACKET)),
    "Ethernet, IPv6": (1, ethernet(0x86DD, PACKET6)),
    "LLC and SNAP": (1, ethernet(len(PACKET) + 8, llc(0x0800, PACKET))),
    "LLC and SNAP, 802.1H": (1, ethernet(len(PACKET) + 8, llc(0x0800, PACKET, 0xF8))),
    "MPLS": (1, ethernet(0x8847, mpls(16, payload=PACKET))),
    "MPLS, six labels, IPv6": (1, ethernet(0x8847, mpls(*range(16, 22), payload=PACKET6))),
    "MPLS multicast": (1, ethernet(0x8848, mpls(16, payload=PACKET))),
    "MPLS, frame": (1, ethernet(0x8847, mpls(16, payload=ethernet(0x0800, PACKET)))),
    "MPLS, control word, frame": (1, ethernet(0x8847, mpls(16, payload=bytes(4) + ethernet(0x0800, PACKET)))),
    "MPLS, frame to a vendor's MAC": (
        1,
        ethernet(0x8847, mpls(16, payload=b"\0\x1b\x21\x01\x02\x03" * 2 + struct.pack(">H", 0x0800) + PACKET)),
    ),
    "MPLS, frame to a MAC that starts with 4": (
        1,
        ethernet(0x8847, mpls(16, payload=b"\x4c\x5e\x0c\x01\x02\x03" * 2 + struct.pack(">H", 0x0800) + PACKET)),
    ),
    "MPLS, frame to a MAC that starts with 6": (
        1,
        ethernet(0x8847, mpls(16, payload=b"\x64\xd1\x54\x01\xff\x03" * 2 + struct.pack(">H", 0x86DD) + PACKET6)),
    ),
    "PPPoE": (1, ethernet(0x8864, pppoe(b"\x00\x21" + PACKET))),
    "PPPoE, IPv6": (1, ethernet(0x8864, pppoe(b"\x00\x57" + PACKET6))),
    "PPPoE, compressed": (1, ethernet(0x8864, pppoe(b"\x21" + PACKET))),
    "null, little endian": (0, null(2, PACKET)),
    "null, big endian": (0, null(2, PACKET, ">")),
    "null, IPv6 of Linux": (0, null(10, PACKET6)),
    "null, IPv6 of NetBSD": (0, null(24, PACKET6)),
    "null, IPv6 of FreeBSD": (0, null(28, PACKET6, ">")),
    "null, IPv6 of macOS": (0, null(30, PACKET6)),
    "loop": (108, null(2, PACKET, ">")),
    "raw": (101, PACKET),
    "raw, IPv6": (101, PACKET6),
    "raw of BSD": (12, PACKET),
    "raw of OpenBSD": (14, PACKET6),
    "IPv4": (228, PACKET),
    "IPv6": (229, PACKET6),
    "SLL": (113, sll(0x0800, PACKET)),
    "SLL of a tunnel": (113, sll(0x86DD, PACKET6, hardware=65534)),
    "SLL, LLC": (113, sll(4, llc(0x0800, PACKET))),
    "SLL2": (276, sll2(0x0800, PACKET)),
    "SLL2, IPv6": (276, sll2(0x86DD, PACKET6)),
    "PPP": (9, b"\xff\x03\x00\x21" + PACKET),
    "Cisco HDLC": (104, b"\x0f\x00\x08\x00" + PACKET),
}


@pytest.mark.parametrize(("link", "frame"), CARRIERS.values(), ids=CARRIERS.keys())
def test_the_packet_is_found(link, frame):
    row = row_of(frame, link=link)
    version = 6 if frame.endswith(PACKET6) else 4
    assert row["l3"] == row["outer_l3"] == len(frame) - len(PACKET6 if version == 6 else PACKET)
    assert (row["ip_version"], row["ethertype"]) == (version, 0x86DD if version == 6 else 0x0800)
    assert (row["l4"], row["payload"], row["payload_length"]) == (len(frame) - 28, len(frame) - 8, 8)
    assert (row["flags"], row["depth"], row["vlan"], row["inner_vlan"]) == (0, 0, NO_VLAN, NO_VLAN)


TAGS = {
    "802.1Q": (ethernet(0x8100, vlan(0x6064, 0x0800, PACKET)), 100, NO_VLAN),
    "priority tag": (ethernet(0x8100, vlan(0xE000, 0x0800, PACKET)), 0, NO_VLAN),
    "QinQ": (ethernet(0x88A8, vlan(100, 0x8100, vlan(200, 0x0800, PACKET))), 100, 200),
    "old QinQ": (ethernet(0x9100, vlan(100, 0x8100, vlan(200, 0x0800, PACKET))), 100, 200),
    "three": (ethernet(0x8100, vlan(1, 0x8100, vlan(2, 0x8100, vlan(3, 0x0800, PACKET)))), 1, 2),
    "on LLC": (ethernet(0x8100, vlan(100, 99, llc(0x0800, PACKET))), 100, NO_VLAN),
    "in SNAP": (ethernet(99, llc(0x8100, vlan(100, 0x0800, PACKET))), 100, NO_VLAN),
    "on MPLS": (ethernet(0x8100, vlan(100, 0x8847, mpls(16, payload=PACKET))), 100, NO_VLAN),
    "on PPPoE": (ethernet(0x8100, vlan(100, 0x8864, pppoe(b"\x00\x21" + PACKET))), 100, NO_VLAN),
    "in a pseudowire": (
        ethernet(0x8100, vlan(100, 0x8847, mpls(16, payload=ethernet(0x8100, vlan(200, 0x0800, PACKET))))),
        100,
        200,
    ),
}


@pytest.mark.parametrize(("frame", "outer", "inner"), TAGS.values(), ids=TAGS.keys())
def test_the_first_two_vlans_are_kept(frame, outer, inner):
    row = row_of(frame)
    assert (row["vlan"], row["inner_vlan"], row["l3"]) == (outer, inner, len(frame) - len(PACKET))
    assert (row["ethertype"], row["flags"]) == (0x0800, 0)


@pytest.mark.parametrize("link", [113, 276])
def test_tags_after_a_cooked_header(link):
    cook = sll if link == 113 else sll2
    row = row_of(cook(0x8100, vlan(100, 0x0800, PACKET)), link=link)
    assert (row["vlan"], row["l3"]) == (100, (16 if link == 113 else 20) + 4)


@pytest.mark.parametrize(("count", "flags"), [(8, 0), (9, TOO_DEEP), (300, TOO_DEEP)])
def test_up_to_8_tags_are_passed(count, flags):
    payload, ethertype = PACKET, 0x0800
    for number in range(count, 0, -1):
        payload, ethertype = vlan(number, ethertype, payload), 0x8100
    row = row_of(ethernet(ethertype, payload))
    assert (row["flags"], row["ip_version"]) == (flags, 0 if flags else 4)
    assert (row["vlan"], row["inner_vlan"]) == (1, 2)


@pytest.mark.parametrize(("count", "flags"), [(16, 0), (17, TOO_DEEP), (300, TOO_DEEP)])
def test_up_to_16_labels_are_passed(count, flags):
    row = row_of(ethernet(0x8847, mpls(*range(16, 16 + count), payload=PACKET)))
    assert (row["flags"], row["ip_version"]) == (flags, 0 if flags else 4)


def test_frames_in_pseudowires_in_frames_come_to_an_end():
    frame = ethernet(0x0800, PACKET)
    for _ in range(40):
        frame = ethernet(0x8847, mpls(16, payload=frame))
    assert row_of(frame)["flags"] == TOO_DEEP


WITHOUT_IP = {
    "ARP": (1, ethernet(0x0806, bytes(46)), 0x0806, 0),
    "LLDP": (1, ethernet(0x88CC, bytes(46)), 0x88CC, 0),
    "spanning tree": (1, ethernet(38, b"\x42\x42\x03" + bytes(43)), 0, 0),
    "CDP": (1, ethernet(60, llc(0x2000, bytes(50), 0x00000C)), 0, 0),
    "SNAP with a length": (1, ethernet(60, llc(0x0100, bytes(50))), 0, 0),
    "tagged ARP": (1, ethernet(0x8100, vlan(5, 0x0806, bytes(42))), 0x0806, 0),
    "PPPoE with LCP": (1, ethernet(0x8864, pppoe(b"\xc0\x21" + bytes(40))), 0x8864, 0),
    "PPPoE discovery code": (1, ethernet(0x8864, pppoe(b"\x00\x21" + PACKET, code=0xA7)), 0x8864, 0),
    "PPPoE of another version": (1, ethernet(0x8864, pppoe(b"\x00\x21" + PACKET, first=0x12)), 0x8864, MALFORMED),
    "MPLS with a G-ACh": (1, ethernet(0x8847, mpls(16, payload=b"\x10\0\0\x21" + b"\xff" * 40)), 0x8847, 0),
    "null with another family": (0, null(7, bytes(40)), 0, 0),
    "SLL of netlink": (113, sll(0x0800, PACKET, hardware=824), 0, 0),
    "SLL with a novelty": (113, sll(1, PACKET), 0, 0),
    "raw with neither version": (101, b"\x55" + bytes(40), 0, MALFORMED),
    "unknown link": (147, PACKET, 0, UNKNOWN_LINK),
    "Cisco HDLC keepalive": (104, b"\x8f\x00\x80\x35" + bytes(18), 0x8035, 0),
}


@pytest.mark.parametrize(("link", "frame", "ethertype", "flags"), WITHOUT_IP.values(), ids=WITHOUT_IP.keys())
def test_frames_without_ip_say_so(link, frame, ethertype, flags):
    row = row_of(frame, link=link)
    assert (row["ethertype"], row["flags"], row["ip_version"]) == (ethertype, flags, 0)
    assert not any(row[name] for name in ("l3", "l4", "payload", "payload_length", "outer_l3", "protocol"))


@pytest.mark.parametrize(("link", "frame"), CARRIERS.values(), ids=CARRIERS.keys())
def test_frames_that_end_before_their_packet_are_truncated(link, frame):
    l3 = row_of(frame, link=link)["l3"]
    for size in range(l3):
        row = row_of(frame[:size], link=link)
        assert row["ip_version"] == 0
        assert row["flags"] == TRUNCATED, size
