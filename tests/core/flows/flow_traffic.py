"""Hypothesis strategies for interleaved traffic over few hosts, so that tuples meet again and again."""

import os

import attrs
from flow_frames import (
    ACK,
    ESP,
    FIN,
    ICMP,
    ICMPV6,
    PSH,
    RST,
    SCTP,
    SECOND,
    SYN,
    TCP,
    UDP,
    Fragment,
    Packet,
    reply,
    tcp_session,
)
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

relaxed = settings(
    max_examples=int(os.environ.get("FLOW_EXAMPLES", "100")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

HOSTS4 = ["10.0.0.1", "10.0.0.2", "255.255.255.255"]
HOSTS6 = ["2001:db8::1", "2001:db8::2", "::10.0.0.1"]
PORTS = [1, 443, 65535]
VLANS = [None, 0, 1, 0x0FFF]
STEPS = [
    0,
    1,
    SECOND // 2,
    SECOND,
    29 * SECOND,
    31 * SECOND,
    61 * SECOND,
    101 * SECOND,
    301 * SECOND,
    601 * SECOND,
    1030 * SECOND,
    3599 * SECOND,
    3601 * SECOND,
    7300 * SECOND,
    400 * 86400 * SECOND,
    -1,
    -5 * SECOND,
    -3601 * SECOND,
    -7300 * SECOND,
]


@st.composite
def tuples(draw):
    six = draw(st.integers(0, 3)) == 0
    hosts = HOSTS6 if six else HOSTS4
    source, destination = draw(st.sampled_from(hosts)), draw(st.sampled_from(hosts))
    vlan = draw(st.sampled_from([None, None, None, *VLANS]))
    return Packet(
        source=source,
        destination=destination,
        source_port=draw(st.sampled_from(PORTS)),
        destination_port=draw(st.sampled_from(PORTS)),
        protocol=draw(st.sampled_from([TCP, TCP, TCP, UDP, UDP, SCTP, ICMPV6 if six else ICMP, ESP])),
        vlan=vlan,
        inner_vlan=None if vlan is None else draw(st.sampled_from([None, 7])),
        port=draw(st.integers(0, 3)),
    )


@st.composite
def exchanges(draw):
    """A few packets that belong together."""
    packet = draw(tuples())
    kind = draw(st.sampled_from(["session", "loose", "loose", "fragments", "other", "no ip", "cut off"]))
    if kind == "session":
        packet = attrs.evolve(packet, protocol=TCP)
        session = tcp_session(packet, ending=draw(st.sampled_from(["fin", "rst", "none"])))
        return session[draw(st.sampled_from([0, 0, 0, 1, 2, 4])) :]
    if kind == "loose":
        flags = st.sampled_from([SYN, SYN | ACK, ACK, PSH | ACK, FIN | ACK, FIN, RST, RST | ACK, SYN | FIN, 0, 0xFF])
        count = draw(st.integers(1, 4))
        numbers = st.integers(0, 3)
        loose = [
            attrs.evolve(
                packet,
                protocol=TCP,
                flags=draw(flags),
                seq=draw(numbers),
                ack=draw(st.one_of(numbers, st.just(0xFFFFFFFF))),
                payload=draw(numbers),
            )
            for _ in range(count)
        ]
        return [draw(st.sampled_from([p, reply(p)])) for p in loose]
    if kind == "fragments":
        identification = draw(st.sampled_from([1, 2, 0xFFFF]))
        parts = [
            attrs.evolve(packet, fragment=Fragment(identification, offset, offset < 4), payload=16)
            for offset in (0, 2, 4)
        ]
        return draw(st.permutations(parts))[: draw(st.integers(1, 3))]
    if kind == "no ip":
        return [attrs.evolve(packet, ip=False)]
    if kind == "cut off":
        cut = attrs.evolve(packet, transport=False)
        return [cut, attrs.evolve(cut, fragment=Fragment(1, 0)), attrs.evolve(packet, fragment=Fragment(1, 2))]
    return [draw(st.sampled_from([packet, reply(packet)])) for _ in range(draw(st.integers(1, 3)))]


@st.composite
def traffic(draw, exchanges_most=10):
    """Packets of several exchanges, interleaved, with times that run on, jump and go back."""
    parts = [list(part) for part in draw(st.lists(exchanges(), min_size=1, max_size=exchanges_most))]
    if draw(st.booleans()):
        parts += [list(part) for part in parts[:2]]
    mixed = []
    randomly = draw(st.randoms(use_true_random=False))
    while parts:
        part = randomly.choice(parts)
        mixed.append(part.pop(0))
        if not part:
            parts.remove(part)
    steps = st.one_of(st.just(1000), st.just(1000), st.sampled_from(STEPS))
    time = 0
    timed = []
    for packet in mixed:
        time += draw(steps)
        timed.append(attrs.evolve(packet, time=time, extra_wire=draw(st.sampled_from([0, 0, 9000]))))
    return timed


@st.composite
def batches(draw, exchanges_most=10):
    """The packets of `traffic`, cut into runs."""
    packets = draw(traffic(exchanges_most))
    cuts = sorted(draw(st.sets(st.integers(1, max(1, len(packets) - 1)), max_size=4)))
    return [packets[a:b] for a, b in zip([0, *cuts], [*cuts, len(packets)], strict=True) if a < b]
