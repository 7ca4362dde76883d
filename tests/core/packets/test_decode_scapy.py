"""Frames built by scapy at random: every column must be what scapy's own dissection says."""

from frame_batches import batch_of, row_of
from hypothesis import given, settings
from hypothesis import strategies as st
from scapy.contrib.gtp import GTP_U_Header
from scapy.contrib.mpls import MPLS
from scapy.layers.inet import GRE, ICMP, IP, TCP, UDP, IPOption_NOP, IPOption_RR
from scapy.layers.inet6 import (
    ICMPv6EchoRequest,
    ICMPv6ND_NS,
    IPv6,
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrFragment,
    IPv6ExtHdrHopByHop,
    IPv6ExtHdrRouting,
)
from scapy.layers.l2 import Dot1AD, Dot1Q, Ether
from scapy.layers.ppp import PPP, PPPoE
from scapy.layers.sctp import SCTP
from scapy.layers.vxlan import VXLAN
from scapy.packet import Raw
from scapy_reference import dissect

from flowshunt.packets.decode import decode
from flowshunt.packets.headers import HEADER

PORTS = st.integers(1, 65535).filter(lambda port: port not in (4789, 8472, 2152, 2123))
WORDS = st.integers(0, (1 << 32) - 1)
BYTES = st.integers(0, 255)
IDENTIFIERS = st.integers(0, 4095)


@st.composite
def tcp(draw):
    options = draw(st.lists(st.sampled_from([("MSS", 1460), ("NOP", None), ("WScale", 7)]), max_size=4))
    return TCP(
        sport=draw(PORTS),
        dport=draw(PORTS),
        seq=draw(WORDS),
        ack=draw(WORDS),
        flags=draw(BYTES),
        window=draw(st.integers(0, 65535)),
        options=options,
    )


UDP_LAYER = st.builds(lambda s, d: UDP(sport=s, dport=d), PORTS, PORTS)
SCTP_LAYER = st.builds(lambda s, d: SCTP(sport=s, dport=d, tag=7), PORTS, PORTS)
TRANSPORTS = {
    4: st.one_of(
        tcp(), UDP_LAYER, SCTP_LAYER, st.builds(lambda t: ICMP(type=t, code=3), st.sampled_from([0, 3, 8, 11]))
    ),
    6: st.one_of(tcp(), UDP_LAYER, SCTP_LAYER, st.sampled_from([ICMPv6EchoRequest(), ICMPv6ND_NS(tgt="2001:db8::1")])),
}


@st.composite
def ipv4(draw, *, fragments=True):
    packet = IP(src="192.0.2.1", dst="198.51.100.2", ttl=draw(BYTES), id=draw(st.integers(0, 65535)))
    if draw(st.booleans()):
        packet.options = draw(st.lists(st.sampled_from([IPOption_NOP(), IPOption_RR()]), min_size=1, max_size=3))
    if fragments and draw(st.integers(0, 4)) == 0:
        packet.frag = draw(st.integers(0, 8191))
        packet.flags = draw(st.sampled_from(["MF", ""]))
    return packet


@st.composite
def ipv6(draw, *, fragments=True):
    packet = IPv6(src="2001:db8::1", dst="2001:db8::2", hlim=draw(BYTES))
    kinds = [IPv6ExtHdrHopByHop(), IPv6ExtHdrDestOpt(), IPv6ExtHdrRouting(addresses=["2001:db8::3"])]
    for kind in draw(st.lists(st.sampled_from(kinds), max_size=3, unique_by=type)):
        packet /= kind.copy()
    if fragments and draw(st.integers(0, 4)) == 0:
        packet /= IPv6ExtHdrFragment(offset=draw(st.integers(0, 8191)), m=draw(st.integers(0, 1)), id=draw(WORDS))
    return packet


@st.composite
def link(draw):
    packet = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
    for tag in draw(st.lists(st.sampled_from([Dot1Q, Dot1AD]), max_size=2)):
        packet /= tag(vlan=draw(IDENTIFIERS))
    return packet


@st.composite
def bearer(draw, version):
    """What may stand between a link header and IP."""
    kind = draw(st.sampled_from(["none", "none", "mpls", "pppoe"]))
    if kind == "mpls":
        count = draw(st.integers(1, 4))
        packet = MPLS(label=draw(st.integers(16, 1 << 19)), s=int(count == 1))
        for number in range(1, count):
            packet /= MPLS(label=100 + number, s=int(number == count - 1))
        return packet
    if kind == "pppoe":
        return PPPoE(sessionid=draw(st.integers(1, 65535))) / PPP(proto=0x21 if version == 4 else 0x57)
    return None


@st.composite
def tunnel(draw):
    """(layers of a tunnel header, whether an Ethernet frame follows)."""
    kind = draw(st.sampled_from(["ip", "gre", "nvgre", "vxlan", "gtp"]))
    if kind == "gre":
        flags = {name: draw(st.integers(0, 1)) for name in ("chksum_present", "key_present", "seqnum_present")}
        return GRE(**flags), False
    if kind == "nvgre":
        return GRE(key_present=draw(st.integers(0, 1)), proto=0x6558), True
    if kind == "vxlan":
        return UDP(sport=draw(PORTS), dport=4789) / VXLAN(vni=draw(st.integers(0, 1 << 23)), flags=8), True
    if kind == "gtp":
        return UDP(sport=draw(PORTS), dport=2152) / GTP_U_Header(teid=draw(WORDS)), False
    return None, False


@st.composite
def frames(draw):
    """An Ethernet frame of up to four IP packets in each other, padded to 60 bytes."""
    packet = draw(link())
    depth = draw(st.sampled_from([0, 0, 1, 1, 2, 3]))
    ethernet = True
    for level in range(depth + 1):
        version = draw(st.sampled_from([4, 6]))
        if ethernet and (above := draw(bearer(version))) is not None:
            packet /= above
        innermost = level == depth
        packet /= draw(ipv4(fragments=innermost) if version == 4 else ipv6(fragments=innermost))
        if innermost:
            packet /= draw(TRANSPORTS[version])
        else:
            header, ethernet = draw(tunnel())
            if header is not None:
                packet /= header
            if ethernet:
                packet /= draw(link())
    data = bytes(packet / Raw(draw(st.binary(max_size=40))))
    return data + bytes(max(0, 60 - len(data)))


@settings(deadline=None, max_examples=300)
@given(frames())
def test_columns_are_what_scapy_dissects(frame):
    assert row_of(frame) == dissect(Ether(frame), len(frame))


@settings(deadline=None, max_examples=30)
@given(st.lists(frames(), max_size=20))
def test_frames_of_a_batch_do_not_touch_each_other(content):
    rows = decode(batch_of(content))
    assert rows.tobytes() == b"".join(decode(batch_of([frame])).tobytes() for frame in content)
    assert rows.dtype == HEADER
