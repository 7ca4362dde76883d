import struct

import pytest
from frame_batches import row_of
from frame_bytes import ethernet, gre, gtpu, ipv4, ipv6, mpls, tcp, udp, vlan, vxlan

from flowshunt.packets import headers
from flowshunt.packets.headers import (
    NO_VLAN,
    TUNNEL_GRE,
    TUNNEL_GTPU,
    TUNNEL_IP4_IN_IP4,
    TUNNEL_IP4_IN_IP6,
    TUNNEL_IP6_IN_IP4,
    TUNNEL_IP6_IN_IP6,
    TUNNEL_NONE,
    TUNNEL_NVGRE,
    TUNNEL_VXLAN,
)

INNER = ipv4(6, tcp(b"payload!"))
INNER6 = ipv6(6, tcp(b"payload!"))
FRAME = ethernet(0x0800, INNER)
SEQUENCE = struct.pack(">I", 5)
PPTP_FIELDS = struct.pack(">HHI", 20, 1, 9)


def through_ip(protocol, payload):
    return ethernet(0x0800, ipv4(protocol, payload))


def through_udp(port, payload):
    return through_ip(17, udp(payload, destination=port))


TUNNELS = {
    "4 in 4": (through_ip(4, INNER), TUNNEL_IP4_IN_IP4),
    "6 in 4": (through_ip(41, INNER6), TUNNEL_IP6_IN_IP4),
    "4 in 6": (ethernet(0x86DD, ipv6(4, INNER)), TUNNEL_IP4_IN_IP6),
    "6 in 6": (ethernet(0x86DD, ipv6(41, INNER6)), TUNNEL_IP6_IN_IP6),
    "GRE": (through_ip(47, gre(0x0800, INNER)), TUNNEL_GRE),
    "GRE in IPv6": (ethernet(0x86DD, ipv6(47, gre(0x0800, INNER))), TUNNEL_GRE),
    "GRE with IPv6": (through_ip(47, gre(0x86DD, INNER6)), TUNNEL_GRE),
    "GRE with a checksum": (through_ip(47, gre(0x0800, INNER, flags=0x8000, fields=bytes(4))), TUNNEL_GRE),
    "GRE with a key": (through_ip(47, gre(0x0800, INNER, flags=0x2000, fields=bytes(4))), TUNNEL_GRE),
    "GRE with a sequence": (through_ip(47, gre(0x0800, INNER, flags=0x1000, fields=bytes(4))), TUNNEL_GRE),
    "GRE with all": (through_ip(47, gre(0x0800, INNER, flags=0xB000, fields=bytes(12))), TUNNEL_GRE),
    "GRE with a frame": (through_ip(47, gre(0x6558, FRAME)), TUNNEL_GRE),
    "GRE with MPLS": (through_ip(47, gre(0x8847, mpls(16, 17, payload=INNER))), TUNNEL_GRE),
    "NVGRE": (through_ip(47, gre(0x6558, FRAME, flags=0x2000, fields=bytes(4))), TUNNEL_NVGRE),
    "ERSPAN I": (through_ip(47, gre(0x88BE, FRAME)), TUNNEL_GRE),
    "ERSPAN II": (through_ip(47, gre(0x88BE, bytes(8) + FRAME, flags=0x1000, fields=SEQUENCE)), TUNNEL_GRE),
    "ERSPAN III": (through_ip(47, gre(0x22EB, bytes(12) + FRAME, flags=0x1000, fields=SEQUENCE)), TUNNEL_GRE),
    "ERSPAN III with a platform header": (
        through_ip(47, gre(0x22EB, bytes(11) + b"\x01" + bytes(8) + FRAME, flags=0x1000, fields=SEQUENCE)),
        TUNNEL_GRE,
    ),
    "PPTP": (
        through_ip(47, gre(0x880B, b"\x00\x21" + INNER, flags=0x3001, fields=PPTP_FIELDS)),
        TUNNEL_GRE,
    ),
    "PPTP with all": (
        through_ip(47, gre(0x880B, b"\xff\x03\x21" + INNER, flags=0x3081, fields=PPTP_FIELDS + bytes(4))),
        TUNNEL_GRE,
    ),
    "VXLAN": (through_udp(4789, vxlan(FRAME)), TUNNEL_VXLAN),
    "VXLAN on Linux's port": (through_udp(8472, vxlan(FRAME)), TUNNEL_VXLAN),
    "GTP-U": (through_udp(2152, gtpu(INNER)), TUNNEL_GTPU),
    "GTP-U with IPv6": (through_udp(2152, gtpu(INNER6)), TUNNEL_GTPU),
    "GTP-U with a sequence": (through_udp(2152, gtpu(INNER, flags=0x32, optional=bytes(4))), TUNNEL_GTPU),
    "GTP-U with extensions": (
        through_udp(2152, gtpu(INNER, flags=0x34, optional=bytes(3) + b"\x85\x01\x00\x00\xc0\x02" + bytes(7))),
        TUNNEL_GTPU,
    ),
}


@pytest.mark.parametrize(("frame", "tunnel"), TUNNELS.values(), ids=TUNNELS.keys())
def test_the_inner_packet_is_decoded(frame, tunnel):
    row = row_of(frame)
    version = 6 if frame.endswith(INNER6) else 4
    inner = len(INNER6 if version == 6 else INNER)
    l3 = len(frame) - inner
    assert row == {
        "l3": l3,
        "l4": len(frame) - 28,
        "payload": len(frame) - 8,
        "payload_length": 8,
        "outer_l3": 14,
        "flags": 0,
        "fragment_id": 0,
        "seq": 0x11223344,
        "ack": 0x55667788,
        "source_port": 1000,
        "destination_port": 80,
        "window": 512,
        "vlan": NO_VLAN,
        "inner_vlan": NO_VLAN,
        "ethertype": 0x86DD if version == 6 else 0x0800,
        "fragment_offset": 0,
        "ip_version": version,
        "protocol": 6,
        "tcp_flags": 0x18,
        "ttl": 61 if version == 6 else 64,
        "tunnel": tunnel,
        "depth": 1,
    }


@pytest.mark.parametrize(("frame", "tunnel"), TUNNELS.values(), ids=TUNNELS.keys())
def test_depth_0_describes_the_outer_packet(frame, tunnel):
    row = row_of(frame, depth=0)
    assert (row["l3"], row["outer_l3"], row["tunnel"], row["depth"]) == (14, 14, TUNNEL_NONE, 0)
    assert row["flags"] == headers.TOO_DEEP
    if row["protocol"] == 17:
        assert row["l4"] == row["payload"] - 8
        assert row["destination_port"] in (4789, 8472, 2152)
    else:
        assert row["l4"] == 0
    assert row["payload"] + row["payload_length"] == len(frame)


def test_tunnels_in_tunnels_down_to_the_limit():
    packet = INNER
    for _ in range(6):
        packet = ipv4(4, packet)
    frame = ethernet(0x0800, packet)
    assert [(row_of(frame, depth=d)["depth"], row_of(frame, depth=d)["l3"]) for d in (0, 3, 6, 8)] == [
        (0, 14),
        (3, 74),
        (6, 134),
        (6, 134),
    ]
    assert [row_of(frame, depth=d)["flags"] for d in (5, 6)] == [headers.TOO_DEEP, 0]


def test_vlans_inside_a_tunnel_follow_those_outside():
    inside = ethernet(0x8100, vlan(30, 0x8100, vlan(40, 0x0800, INNER)))
    row = row_of(ethernet(0x8100, vlan(20, 0x0800, ipv4(17, udp(vxlan(inside), destination=4789)))))
    assert (row["vlan"], row["inner_vlan"], row["depth"]) == (20, 30, 1)


@pytest.mark.parametrize(
    ("name", "frame"),
    [
        ("VXLAN without a valid VNI", through_udp(4789, vxlan(FRAME, flags=0))),
        ("GTP control", through_udp(2152, gtpu(INNER, flags=0x48))),
        ("GTP-U echo", through_udp(2152, gtpu(b"", message=1))),
        ("GTP'", through_udp(2152, gtpu(INNER, flags=0x20))),
        ("something short on VXLAN's port", through_udp(4789, b"\x08")),
        ("GRE of version 2", through_ip(47, gre(0x0800, INNER, flags=2))),
        ("GRE with source routes", through_ip(47, gre(0x0800, INNER, flags=0x4000))),
    ],
)
def test_what_only_looks_like_a_tunnel_is_none(name, frame):
    row = row_of(frame)
    assert (row["tunnel"], row["depth"], row["l3"], row["flags"]) == (TUNNEL_NONE, 0, 14, 0)
    assert row["payload"] + row["payload_length"] == len(frame)


@pytest.mark.parametrize(
    ("frame", "tunnel", "ethertype"),
    [
        (through_udp(4789, vxlan(ethernet(0x0806, bytes(28)))), TUNNEL_VXLAN, 0x0806),
        (through_ip(47, gre(0x2000, bytes(20))), TUNNEL_GRE, 0x2000),
        (through_ip(47, gre(0x00FE, bytes(20))), TUNNEL_GRE, 0x00FE),
    ],
)
def test_a_tunnel_without_ip_inside_keeps_the_packet_around_it(frame, tunnel, ethertype):
    row = row_of(frame)
    assert (row["tunnel"], row["depth"], row["ethertype"], row["l3"]) == (tunnel, 1, ethertype, 14)
    assert (row["flags"], row["payload"] + row["payload_length"]) == (0, len(frame))


@pytest.mark.parametrize("fragment", [0x2000, 0x00B9])
@pytest.mark.parametrize("protocol", [4, 17, 47])
def test_tunnels_in_fragments_are_not_entered(protocol, fragment):
    payload = {4: INNER, 17: udp(vxlan(FRAME), destination=4789), 47: gre(0x0800, INNER)}[protocol]
    row = row_of(ethernet(0x0800, ipv4(protocol, payload, fragment=fragment)))
    assert (row["depth"], row["l3"], row["protocol"]) == (0, 14, protocol)
    assert row["flags"] & headers.FRAGMENT


@pytest.mark.parametrize(
    "inner",
    [
        pytest.param(b"\x55" + INNER[1:], id="version"),
        pytest.param(b"\x44" + INNER[1:], id="header length"),
        pytest.param(INNER[:10], id="cut off"),
        pytest.param(INNER[:2] + b"\x00\x13" + INNER[4:], id="total length"),
    ],
)
def test_a_broken_packet_inside_leaves_the_packet_around_it(inner):
    row = row_of(through_ip(4, inner))
    assert (row["l3"], row["protocol"], row["flags"]) == (14, 4, headers.MALFORMED)
    assert (row["tunnel"], row["payload"], row["payload_length"]) == (TUNNEL_IP4_IN_IP4, 34, len(inner))


@pytest.mark.parametrize("size", [0, 3])
def test_gtp_extensions_that_do_not_end_are_malformed_or_none(size):
    optional = bytes(3) + b"\x85" + bytes([size and 200]) + bytes(8)
    row = row_of(through_udp(2152, gtpu(INNER, flags=0x34, optional=optional)))
    assert (row["depth"], row["l3"], row["flags"]) == (0, 14, headers.MALFORMED)


def test_inner_packets_are_cut_at_the_end_of_the_outer():
    outer = ipv4(4, INNER, total=20 + len(INNER) - 4)
    row = row_of(ethernet(0x0800, outer))
    assert (row["flags"], row["payload_length"]) == (headers.TRUNCATED, 4)
