import struct

import numpy as np
import pytest
from frame_batches import batch_of
from frame_bytes import ethernet, ipv4, udp
from hypothesis import given, settings
from hypothesis import strategies as st
from scapy.layers.inet import GRE, ICMP, IP, TCP, UDP, IPOption_LSRR, IPOption_NOP
from scapy.layers.inet6 import (
    ICMPv6EchoRequest,
    IPv6,
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrFragment,
    IPv6ExtHdrRouting,
)
from scapy.layers.l2 import Ether
from scapy.layers.vxlan import VXLAN
from scapy.packet import Raw

from flowshunt.packets.checksum import BAD_ICMP, BAD_IPV4, BAD_TCP, BAD_UDP, verify_checksums
from flowshunt.packets.decode import decode
from flowshunt.packets.headers import MALFORMED

ETHERNET = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")


def wrong(*frames):
    """The bits of each frame; scapy computed the checksums of those that were left to it."""
    batch = batch_of([bytes(frame) for frame in frames])
    return verify_checksums(batch, decode(batch)).tolist()


NETWORKS = [
    IP(src="192.0.2.1", dst="198.51.100.2"),
    IP(src="255.255.255.255", dst="198.51.100.2", options=[IPOption_NOP()] * 4),
    IPv6(src="2001:db8::1", dst="2001:db8::2"),
    IPv6(src="2001:db8::1", dst="2001:db8::2") / IPv6ExtHdrDestOpt(),
]
TRANSPORTS = [(TCP(), BAD_TCP), (UDP(), BAD_UDP)]


@pytest.mark.parametrize("network", NETWORKS, ids=range(len(NETWORKS)))
@pytest.mark.parametrize(("transport", "bit"), TRANSPORTS, ids=["tcp", "udp"])
@settings(deadline=None, max_examples=15)
@given(payload=st.binary(max_size=100), flip=st.integers(1, 255), at=st.integers(0, 1 << 16))
def test_right_checksums_are_right_and_one_changed_byte_makes_them_wrong(network, transport, bit, payload, flip, at):
    frame = bytes(ETHERNET / network / transport / Raw(payload + b"."))
    changed = bytearray(frame)
    changed[-1 - at % (len(payload) + 1)] ^= flip
    padding = bytes(max(0, 60 - len(frame)))
    assert wrong(frame, frame + padding, bytes(changed)) == [0, 0, bit]


def test_icmp_has_no_pseudo_header_and_icmpv6_has():
    right = [
        bytes(ETHERNET / IP(dst="192.0.2.1") / ICMP() / b"payload"),
        bytes(ETHERNET / IPv6(src="2001:db8::1", dst="2001:db8::2") / ICMPv6EchoRequest(data=b"payload")),
    ]
    assert wrong(*right) == [0, 0]
    assert wrong(*[frame[:-1] + b"?" for frame in right]) == [BAD_ICMP, BAD_ICMP]


def test_the_ipv4_header_counts_by_itself():
    frame = bytearray(bytes(ETHERNET / IP(dst="192.0.2.1") / TCP()))
    frame[14 + 8] ^= 1
    assert wrong(frame) == [BAD_IPV4]
    frame[-1] ^= 1
    assert wrong(frame) == [BAD_IPV4 | BAD_TCP]


def test_the_innermost_packet_is_looked_at():
    inner = IP(dst="192.0.2.1") / TCP(dport=80) / b"payload"
    for frame in (
        ETHERNET / IP(dst="192.0.2.2") / GRE() / inner,
        ETHERNET / IP(dst="192.0.2.2") / UDP(dport=4789) / VXLAN(flags=8) / ETHERNET / inner,
        ETHERNET / IPv6(dst="2001:db8::2") / inner,
    ):
        assert wrong(frame, bytes(frame)[:-1] + b"?") == [0, BAD_TCP]


def not_computable():
    ip, ip6 = IP(src="192.0.2.1", dst="192.0.2.2"), IPv6(src="2001:db8::1", dst="2001:db8::2")
    broken = TCP(chksum=0xBAD)
    yield "a cut packet", bytes(ETHERNET / ip / broken / bytes(50))[:-1]
    yield "a cut header", bytes(ETHERNET / ip / broken)[:50]
    yield "the first fragment", ETHERNET / IP(flags="MF", dst="192.0.2.2") / broken
    yield "a later fragment", ETHERNET / IP(frag=10, dst="192.0.2.2") / broken
    yield "an IPv6 fragment", ETHERNET / ip6 / IPv6ExtHdrFragment(m=1) / broken
    yield "UDP without a checksum", ETHERNET / ip / UDP(chksum=0) / b"payload"
    yield "UDP without a checksum over IPv6", ethernet(0x86DD, bytes(IPv6(nh=17, plen=11)) + udp(b"xyz"))
    yield "a packet without a length", ethernet(0x0800, bytes(IP(len=0, proto=6)) + bytes(20))
    yield "an IPv6 packet without a length", ethernet(0x86DD, bytes(IPv6(plen=0, nh=6)) + bytes(20))
    yield "a source route", ETHERNET / IP(dst="192.0.2.2", options=[IPOption_LSRR(routers=["192.0.2.9"])]) / broken
    yield "a routing header", ETHERNET / ip6 / IPv6ExtHdrRouting(addresses=["2001:db8::3"], segleft=1) / broken
    yield "no IP", ethernet(0x0806, bytes(46))
    yield "an unknown transport", ETHERNET / IP(dst="192.0.2.2", proto=89) / bytes(30)
    yield "nothing", b""


UNCOMPUTABLE = list(not_computable())


@pytest.mark.parametrize(("name", "frame"), UNCOMPUTABLE, ids=[name for name, _ in UNCOMPUTABLE])
def test_what_cannot_be_computed_is_not_wrong(name, frame):
    assert [bits & ~BAD_IPV4 for bits in wrong(frame)] == [0]


def test_a_routing_header_at_its_end_has_the_address_that_counts():
    frame = ETHERNET / IPv6(src="2001:db8::1", dst="2001:db8::2")
    frame /= IPv6ExtHdrRouting(addresses=["2001:db8::3"], segleft=0) / TCP(chksum=0xBAD)
    assert wrong(frame) == [BAD_TCP]


def test_malformed_transport_headers_are_passed_over():
    batch = batch_of([ethernet(0x0800, ipv4(17, struct.pack(">HHHH", 1, 2, 99, 0xBAD)))])
    rows = decode(batch)
    assert rows["flags"] == MALFORMED
    assert verify_checksums(batch, rows).tolist() == [BAD_IPV4]


def test_rows_of_other_frames_read_nothing_outside():
    """Rows are the caller's: with those of longer frames, nothing past the frame is read."""
    long = batch_of([bytes(ETHERNET / IP(dst="192.0.2.2", options=[IPOption_NOP()] * 40) / TCP() / bytes(900))])
    rows = decode(long)
    for size in range(len(long.data)):
        verify_checksums(batch_of([long.data[:size].tobytes()]), rows)
    absurd = rows.copy()
    for name in ("l3", "l4", "payload", "payload_length"):
        absurd[name] = 0xFFFFFFFF
    assert verify_checksums(long, absurd).tolist() == [0]


@pytest.mark.parametrize("rows", [decode(batch_of([b"", b""])), np.zeros(1, np.int64)])
def test_rows_that_do_not_belong_are_refused(rows):
    with pytest.raises(ValueError, match="headers must be"):
        verify_checksums(batch_of([b""]), rows)
