"""How flows start, live and end: TCP, timers, packet time, keys."""

import attrs
import numpy as np
import pytest
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
    START,
    SYN,
    TCP,
    UDP,
    Packet,
    batch_of,
    reply,
    tcp_session,
)

from flowshunt.engine import ESTABLISHED, NEW
from flowshunt.flows.record import Bypass, EndReason, FlowTimeouts, TcpState
from flowshunt.flows.table import FlowTable

HOUR = 3600 * SECOND


def track(table, *packets):
    return table.track(*batch_of(packets))


def after(seconds, packet):
    return attrs.evolve(packet, time=packet.time + round(seconds * SECOND))


def states(*packets):
    """The TCP state after each packet, all of one flow."""
    table = FlowTable(16)
    seen = []
    for packet in packets:
        slot = int(track(table, packet).slot[0])
        seen.append(TcpState(table.records["tcp_state"][slot]))
    return seen


def reasons(table):
    return [EndReason(reason) for reason in table.drain().records["end_reason"]]


# TCP


def test_a_session_goes_through_its_states():
    assert states(*tcp_session(Packet())) == [
        TcpState.SYN_SENT,
        TcpState.SYN_RECEIVED,
        TcpState.ESTABLISHED,
        TcpState.ESTABLISHED,
        TcpState.ESTABLISHED,
        TcpState.CLOSING,
        TcpState.CLOSING,
        TcpState.CLOSED,
    ]


def test_established_is_told_from_the_last_frame_of_the_handshake_on():
    events = track(FlowTable(16), *tcp_session(Packet(), data=1, ending="rst")).events
    assert events.tolist() == [NEW, 0, ESTABLISHED, ESTABLISHED, ESTABLISHED, ESTABLISHED]


def test_the_receiver_of_a_first_syn_ack_is_the_initiator():
    table = FlowTable(16)
    session = tcp_session(Packet(), ending="none")[1:]
    tracking = track(table, *session)
    assert tracking.direction.tolist() == [1, 0, 0, 1]
    assert tracking.events.tolist() == [NEW, ESTABLISHED, ESTABLISHED, ESTABLISHED]
    assert table.records["destination_port"][tracking.slot[0]] == 443


def test_simultaneous_open_is_a_handshake():
    packet = Packet()
    opening = [
        attrs.evolve(packet, flags=SYN),
        reply(packet, flags=SYN),
        attrs.evolve(packet, flags=SYN | ACK),
    ]
    assert states(*opening) == [TcpState.SYN_SENT, TcpState.SYN_RECEIVED, TcpState.ESTABLISHED]


def test_a_flow_picked_up_in_the_middle_has_no_state_until_it_closes():
    packet = Packet(flags=PSH | ACK, payload=10)
    assert states(packet, reply(packet), attrs.evolve(packet, flags=FIN | ACK, seq=10)) == [
        TcpState.NONE,
        TcpState.NONE,
        TcpState.CLOSING,
    ]
    assert track(FlowTable(16), packet, reply(packet)).events.tolist() == [NEW, 0]


def test_a_fin_is_acknowledged_only_by_a_number_after_it():
    packet = Packet()
    first = attrs.evolve(packet, flags=FIN | ACK, seq=100, payload=5)
    other = reply(packet, flags=FIN | ACK, seq=7, ack=105)
    short = attrs.evolve(packet, flags=ACK, seq=106, ack=8)
    assert states(first, other, short) == [TcpState.CLOSING] * 3
    assert states(first, attrs.evolve(other, ack=106), short)[-1] == TcpState.CLOSED


def test_a_syn_takes_a_sequence_number_of_its_own():
    both = Packet(flags=SYN | FIN, seq=100)
    answer = reply(both, flags=FIN | ACK, seq=7, ack=101)
    last = attrs.evolve(both, flags=ACK, ack=8)
    assert states(both, answer, last)[-1] == TcpState.SYN_SENT
    assert states(both, attrs.evolve(answer, ack=102), last)[-1] == TcpState.CLOSED


def test_sequence_numbers_wrap():
    first = Packet(flags=FIN | ACK, seq=0xFFFFFFFF)
    other = reply(first, flags=FIN | ACK, seq=0xFFFFFFF0, ack=0)
    last = attrs.evolve(first, flags=ACK, seq=0, ack=3)
    assert states(first, other, last)[-1] == TcpState.CLOSED


@pytest.mark.parametrize(
    "before",
    [
        pytest.param(tcp_session(Packet()), id="closed"),
        pytest.param(tcp_session(Packet(), ending="rst"), id="reset"),
        pytest.param(tcp_session(Packet())[:-1], id="last acknowledgement missing"),
        pytest.param([Packet(flags=ACK)], id="picked up in the middle"),
    ],
)
def test_a_syn_after_the_end_starts_a_new_flow(before):
    table = FlowTable(16)
    tracking = track(table, *before, Packet(flags=SYN, seq=77))
    assert tracking.slot[-1] != tracking.slot[-2]
    assert tracking.events[-1] == NEW
    assert reasons(table) == [EndReason.TCP_END]


@pytest.mark.parametrize("before", [tcp_session(Packet(), ending="none")[:n] for n in (1, 2, 3, 5)])
def test_a_syn_in_an_open_session_changes_nothing(before):
    table = FlowTable(16)
    track(table, *before, Packet(flags=SYN, seq=77))
    assert table.active == 1
    assert reasons(table) == []


@pytest.mark.parametrize("flags", [SYN | ACK, SYN | RST, SYN | FIN, ACK, RST])
def test_nothing_but_a_plain_syn_starts_a_closed_flow_anew(flags):
    table = FlowTable(16)
    track(table, *tcp_session(Packet(), ending="rst"), Packet(flags=flags))
    assert table.active == 1


def test_flags_of_each_direction_are_kept():
    table = FlowTable(16)
    slot = track(table, *tcp_session(Packet(), ending="rst")).slot[0]
    assert table.records["tcp_flags"][slot].tolist() == [SYN | ACK | PSH, SYN | ACK | PSH | RST]


# Timers

UNEQUAL = FlowTimeouts(*range(11, 21))


def udp():
    return Packet(protocol=UDP)


@pytest.mark.parametrize(
    ("packets", "seconds"),
    [
        pytest.param([Packet(flags=SYN)], UNEQUAL.tcp_new, id="tcp new"),
        pytest.param([Packet(), reply(Packet())], UNEQUAL.tcp_new, id="tcp from the middle"),
        pytest.param(tcp_session(Packet(), ending="none"), UNEQUAL.tcp_established, id="tcp established"),
        pytest.param(tcp_session(Packet())[:-1], UNEQUAL.tcp_established, id="tcp closing"),
        pytest.param(tcp_session(Packet()), UNEQUAL.tcp_closed, id="tcp closed"),
        pytest.param([udp(), udp()], UNEQUAL.udp_new, id="udp one way"),
        pytest.param([udp(), reply(udp())], UNEQUAL.udp_established, id="udp both ways"),
        pytest.param([Packet(protocol=ICMP)], UNEQUAL.icmp_new, id="icmp one way"),
        pytest.param([Packet(protocol=ICMP), reply(Packet(protocol=ICMP))], UNEQUAL.icmp_established, id="icmp"),
        pytest.param([Packet(protocol=ICMPV6, source="::1", destination="::2")], UNEQUAL.icmp_new, id="icmpv6"),
        pytest.param([Packet(protocol=SCTP)], UNEQUAL.other_new, id="sctp one way"),
        pytest.param([Packet(protocol=ESP), reply(Packet(protocol=ESP))], UNEQUAL.other_established, id="esp"),
    ],
)
def test_a_frame_after_the_timeout_starts_a_new_flow_and_none_before_does(packets, seconds):
    last = attrs.evolve(packets[-1], flags=ACK)
    on_time, late = FlowTable(16, UNEQUAL), FlowTable(16, UNEQUAL)
    slots = track(on_time, *packets, after(seconds, last)).slot
    assert len(set(slots.tolist())) == 1
    tracking = track(late, *packets, attrs.evolve(last, time=round(seconds * SECOND) + 1))
    assert tracking.slot[-1] != tracking.slot[-2]
    assert tracking.events[-1] & NEW
    assert reasons(late) == [EndReason.TIMEOUT]


def test_an_idle_flow_ends_without_a_frame_of_its_own():
    table = FlowTable(16)
    track(table, udp())
    other = Packet(protocol=ICMP)
    track(table, after(29, other))
    assert table.active == 2
    track(table, after(31, other))
    assert reasons(table) == [EndReason.TIMEOUT]
    assert table.active == 1


def test_idle_flows_end_when_the_second_after_their_deadline_begins():
    table = FlowTable(16)
    track(table, after(0.25, udp()))
    other = Packet(protocol=ICMP)
    track(table, after(30.9, other))
    assert table.active == 2
    track(table, after(31, other))
    assert reasons(table) == [EndReason.TIMEOUT]


def test_a_flow_that_keeps_sending_never_times_out():
    table = FlowTable(16)
    for second in range(0, 5000, 20):
        track(table, after(second, udp()))
    assert table.counters.created == 1


def test_timeouts_longer_than_the_wheel_hold():
    table = FlowTable(16, FlowTimeouts(udp_new=5000))
    track(table, udp())
    for second in range(0, 5000, 500):
        table.expire(START + second * SECOND)
    assert table.active == 1
    table.expire(START + 5002 * SECOND)
    assert reasons(table) == [EndReason.TIMEOUT]


def test_a_flow_that_a_nic_took_over_has_no_timeout():
    table = FlowTable(16)
    slot = track(table, udp()).slot
    table.bypass(slot, 1, Bypass.CAPTURE)
    for day in range(1, 100):
        table.expire(START + day * 86400 * SECOND)
        table.expire(START + day * 86400 * SECOND + 1)
    assert table.active == 1
    table.bypass(slot, 0, Bypass.NONE)
    table.expire(table.clock + 32 * SECOND)
    assert reasons(table) == [EndReason.TIMEOUT]


def test_a_flow_bypassed_on_the_host_has_the_timeout_of_bypassed_flows():
    table = FlowTable(16)
    slot = track(table, *tcp_session(Packet(), ending="none")).slot[:1]
    table.bypass(slot, 1, Bypass.LOCAL)
    table.expire(START + 100 * SECOND)
    assert table.active == 1
    table.expire(START + 102 * SECOND)
    assert reasons(table) == [EndReason.TIMEOUT]


# Packet time


def test_a_clock_that_jumps_back_ends_nothing_and_time_goes_on_from_there():
    table = FlowTable(16)
    a, b = udp(), Packet(protocol=ICMP)
    track(table, a, b)
    for second in range(1, 20):
        track(table, after(-10 * HOUR / SECOND + second, a))
    assert table.active == 2
    for second in range(20, 60):
        track(table, after(-10 * HOUR / SECOND + second, a))
    assert reasons(table) == [EndReason.TIMEOUT]
    assert table.records["source_port"][0] == 40000


def test_one_frame_far_ahead_ends_no_other_flow():
    table = FlowTable(16)
    track(table, udp(), after(10 * 365 * 86400, Packet(protocol=ICMP)), after(1, udp()))
    assert table.counters.created == 2
    assert table.active == 2
    track(table, after(20, udp()))
    assert table.clock == START + 20 * SECOND


def test_telling_the_time_of_a_frame_far_ahead_again_does_not_make_it_true():
    table = FlowTable(16)
    astray = after(7200, Packet(protocol=ICMP))
    track(table, udp(), astray)
    table.expire(START + astray.time)
    assert table.active == 2
    track(table, after(7201, Packet(protocol=ICMP)))
    assert reasons(table) == [EndReason.TIMEOUT]


def test_two_frames_far_ahead_move_packet_time():
    table = FlowTable(16)
    other = Packet(protocol=ICMP)
    track(table, udp(), after(7201, other), after(7200, reply(other)))
    assert reasons(table) == [EndReason.TIMEOUT]
    assert table.clock == START + 7200 * SECOND
    assert table.active == 1


def test_a_frame_far_ahead_ends_its_own_idle_flow():
    table = FlowTable(16)
    track(table, udp(), after(7200, udp()))
    assert reasons(table) == [EndReason.TIMEOUT]


# Keys


def flows_of(*packets):
    return len(set(track(FlowTable(64), *packets).slot.tolist()))


def test_each_part_of_the_key_tells_flows_apart():
    base = Packet(protocol=UDP, vlan=5, inner_vlan=6)
    others = [
        attrs.evolve(base, source="10.0.0.9"),
        attrs.evolve(base, destination="10.0.0.9"),
        attrs.evolve(base, source_port=1),
        attrs.evolve(base, destination_port=1),
        attrs.evolve(base, protocol=TCP),
        attrs.evolve(base, vlan=6),
        attrs.evolve(base, inner_vlan=5),
        attrs.evolve(base, inner_vlan=None),
        attrs.evolve(base, vlan=None, inner_vlan=None),
        attrs.evolve(base, source="::a00:1", destination="::a00:2"),
    ]
    assert flows_of(base, reply(base), *others) == 1 + len(others)


def test_ports_swapped_between_the_same_addresses_are_another_flow():
    base = Packet(protocol=UDP)
    assert flows_of(base, attrs.evolve(base, source_port=443, destination_port=40000)) == 2


def test_icmp_types_and_unknown_protocols_share_the_flow_of_their_addresses():
    ping = Packet(protocol=ICMP, source_port=8, destination_port=0)
    assert flows_of(ping, reply(ping, source_port=0, destination_port=0)) == 1
    assert flows_of(Packet(protocol=ESP), reply(Packet(protocol=ESP))) == 1


def test_a_packet_to_its_own_sender_has_direction_0():
    land = Packet(source="10.0.0.1", destination="10.0.0.1", source_port=7, destination_port=7, flags=SYN | ACK)
    assert track(FlowTable(16), land, attrs.evolve(land, flags=SYN)).direction.tolist() == [0, 0]


def test_the_nic_port_is_that_of_the_first_frame():
    table = FlowTable(16)
    slot = track(table, attrs.evolve(udp(), port=2), reply(udp(), port=3)).slot
    assert slot[0] == slot[1]
    assert table.records["port"][slot[0]] == 2


def test_bytes_are_those_on_the_wire_and_bypassed_frames_count_twice():
    table = FlowTable(16)
    packet = attrs.evolve(udp(), extra_wire=1000)
    batch, headers = batch_of([packet])
    slot = table.track(batch, headers).slot
    table.bypass(slot, 4, Bypass.LOCAL)
    table.track(batch, headers)
    record = table.records[slot[0]]
    size = int(batch.wire[0])
    assert size == int(batch.captured[0]) + 1000
    assert record["packets"].tolist() == [2, 0]
    assert record["bytes"].tolist() == [2 * size, 0]
    assert record["bypassed_packets"].tolist() == [1, 0]
    assert record["bypassed_bytes"].tolist() == [size, 0]
    assert (record["action"], record["bypass"]) == (4, Bypass.LOCAL)


def test_frames_without_ip_have_no_flow():
    tracking = track(FlowTable(16), Packet(ip=False), udp())
    assert tracking.slot.tolist() == [-1, 0]


def test_columns_may_have_gaps():
    packets = tcp_session(Packet())
    batch, headers = batch_of(packets)
    wide = np.zeros((len(packets), 2), headers.dtype)
    wide[:, 0] = headers
    tracking = FlowTable(16).track(batch.select(slice(None, None, 2)), wide[::2, 0])
    assert set(tracking.slot.tolist()) == {0}
    assert len(tracking.slot) == 4


def test_header_rows_of_another_length_are_refused():
    batch, headers = batch_of([udp(), udp()])
    with pytest.raises(ValueError, match=r"2 frames need HEADER\[2\]"):
        FlowTable(16).track(batch, headers[:1])
