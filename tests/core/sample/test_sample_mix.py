"""The traffic of a sample has the shares that were asked for."""

from collections import Counter, defaultdict

import pytest
from plain_packets import ICMP, ICMP6, SYN, TCP, UDP, read_packets

from flowshunt.packets.sample import write_sample

BACKUP = bytes((10, 99, 0, 10))
CLEAR = {80, 20, 21, 23, 25, 53, 67, 68}


def by_flow(packets):
    """Packets by flow, later fragments with theirs; a flow is five-tuple and VLANs."""
    flows, datagrams = defaultdict(list), {}
    for packet in packets:
        flow = packet.flow
        if packet.fragmented:
            key = (packet.source, packet.destination, packet.protocol, packet.ident)
            if packet.fragment == 0:
                source, destination = int.from_bytes(packet.body[:2]), int.from_bytes(packet.body[2:4])
                ends = sorted([(packet.source, source), (packet.destination, destination)])
                datagrams[key] = (packet.version, packet.protocol, packet.vlans, *ends)
            flow = datagrams[key]
        flows[flow].append(packet)
    return flows


def is_bypassable(flow):
    _, protocol, _, (one, port), (other, other_port) = flow
    return BACKUP in (one, other) or (protocol == TCP and port not in CLEAR and other_port not in CLEAR)


@pytest.fixture(scope="module")
def flows(packets):
    return by_flow(packets)


def shares(flows):
    frames = Counter()
    for flow, packets in flows.items():
        frames[flow[1]] += len(packets)
        if is_bypassable(flow):
            frames["bypassable"] += len(packets)
            frames["bypassable bytes"] += sum(len(packet.frame) for packet in packets)
        frames["all"] += len(packets)
        frames["bytes"] += sum(len(packet.frame) for packet in packets)
    return frames


def assert_shares(frames):
    assert frames[TCP] / frames["all"] == pytest.approx(0.88, abs=0.005)
    assert frames[UDP] / frames["all"] == pytest.approx(0.12, abs=0.005)
    assert 0 < frames[ICMP] + frames[ICMP6] < 0.002 * frames["all"]
    assert 0.65 <= frames["bypassable bytes"] / frames["bytes"] <= 0.75
    assert 0.80 <= frames["bypassable"] / frames["all"] <= 0.86


def test_shares_are_as_planned(flows):
    assert_shares(shares(flows))


def test_shares_are_as_planned_with_another_seed_and_size(tmp_path):
    summary = write_sample(tmp_path / "other.pcap", flows=2600, seed=1234567)
    assert_shares(shares(by_flow(read_packets(summary.capture))))


def test_the_summary_counts_what_is_there(sample, flows):
    frames = shares(flows)
    assert sample.frames == frames["all"]
    assert sample.bytes == frames["bytes"]
    assert (sample.tcp_frames, sample.udp_frames) == (frames[TCP], frames[UDP])
    assert sample.other_frames == frames[ICMP] + frames[ICMP6]
    assert (sample.bypassable_frames, sample.bypassable_bytes) == (frames["bypassable"], frames["bypassable bytes"])
    assert sample.flows == len(flows)
    assert sample.ipv6_flows == sum(flow[0] == 6 for flow in flows)
    assert sample.vlan_flows == sum(bool(flow[2]) for flow in flows)
    assert sample.fragments == sum(packet.fragmented for packets in flows.values() for packet in packets)
    assert sum(sample.kinds.values()) == sample.frames
    assert sample.file_bytes == sample.capture.stat().st_size == 24 + sample.bytes + 16 * sample.frames


def test_flows_are_as_many_as_asked_for(tmp_path):
    for flows in (1, 3, 30, 333):
        summary = write_sample(tmp_path / "some.pcap", flows=flows, seed=flows)
        assert len(by_flow(read_packets(summary.capture))) == summary.flows == flows


def test_few_flows_carry_most_frames(flows):
    lengths = sorted(map(len, flows.values()), reverse=True)
    assert 60 <= sum(lengths) / len(lengths) <= 120
    assert sum(lengths[: len(lengths) // 20]) > sum(lengths) / 2
    assert lengths[len(lengths) // 2] < 30


def test_long_flows_last_long(sample, flows):
    """A flow that is bypassed at its first packet saves little where all its packets come at once."""
    long = [packets for flow, packets in flows.items() if len(packets) > 200 and is_bypassable(flow)]
    assert len(long) > 100
    lasting = [(packets[-1].time - packets[0].time) / sample.duration for packets in long]
    assert sorted(lasting)[len(lasting) // 10] > 0.1


def test_hundreds_of_flows_are_open_at_a_time(sample, flows):
    changes = Counter()
    for packets in flows.values():
        changes[packets[0].number] += 1
        changes[packets[-1].number] -= 1
    open_now = most = 0
    for number in sorted(changes):
        open_now += changes[number]
        most = max(most, open_now)
    assert 300 < most <= sample.most_open + 1


def test_ipv6_and_vlans_have_their_part(flows):
    versions, tags = Counter(flow[0] for flow in flows), Counter(len(flow[2]) for flow in flows)
    assert versions[6] / len(flows) == pytest.approx(0.15, abs=0.03)
    assert tags[1] / len(flows) == pytest.approx(0.12, abs=0.04)
    assert 0.003 < tags[2] / len(flows) < 0.05


def test_fragments_of_datagrams_and_of_segments_are_there(packets):
    fragments = Counter((packet.version, packet.protocol) for packet in packets if packet.fragmented)
    assert fragments[4, UDP] >= 6
    assert fragments[4, TCP] >= 6
    assert fragments[6, UDP] >= 2


def test_about_one_segment_in_a_hundred_is_late_and_one_is_sent_again(sample, flows):
    late = again = 0
    for flow, packets in flows.items():
        if flow[1] != TCP:
            continue
        highest, seen = {}, defaultdict(set)
        for packet in packets:
            if packet.fragmented or not packet.payload:
                continue
            way = packet.ends[0]
            offset = (packet.sequence - highest.get(way, packet.sequence) + (1 << 31)) % (1 << 32) - (1 << 31)
            if packet.sequence in seen[way]:
                again += 1
            elif offset < 0:
                late += 1
            seen[way].add(packet.sequence)
            if offset >= 0:
                highest[way] = packet.sequence
    assert late / sample.frames == pytest.approx(0.01, abs=0.004)
    assert again / sample.frames == pytest.approx(0.01, abs=0.004)
    # The summary also counts those that lie in fragments, which this test passes over.
    assert 0 <= sample.reordered_frames - late <= 30
    assert 0 <= sample.retransmitted_frames - again <= 30


def test_the_protocols_are_there_by_their_own_words(flows):
    first_words = {
        (6, 80): (b"GET ", b"POST "),
        (6, 443): (b"\x16\x03\x01",),
        (6, 22): (b"SSH-2.0-",),
        (6, 25): (b"220 ",),
        (6, 21): (b"220 ",),
        (6, 23): (b"\xff\xfd",),
    }
    counted = Counter()
    for (_, protocol, _, *ends), packets in flows.items():
        key = (protocol, packets[0].destination_port)
        words = first_words.get(key)
        if words is None or packets[0].flags != SYN or BACKUP in (ends[0][0], ends[1][0]):
            continue
        if any(packet.fragmented for packet in packets):
            continue
        said = next((packet.payload for packet in packets if packet.payload), None)
        if said is not None:
            assert said.startswith(words), key
            counted[key] += 1
    assert set(counted) == set(first_words)
    ports = Counter((flow[1], port) for flow in flows for _, port in flow[3:] if port < 1024)
    assert ports[TCP, 20] >= 8
    assert ports[UDP, 443] > 50
    assert ports[UDP, 53] > 300
    assert ports[TCP, 53] >= 5
    assert sum(BACKUP in (flow[3][0], flow[4][0]) for flow in flows) >= 20
