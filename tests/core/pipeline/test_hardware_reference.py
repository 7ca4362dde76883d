"""Hardware bypass hands the host exactly the frames that a plain reference says, and the reference is right itself."""

import random
import struct
from collections import Counter

import pytest
from endpoint_engine import EndpointEngine
from hypothesis import example, given, settings
from hypothesis import strategies as st
from reference import ACK, FIN, RST, SECOND, SYN, TCP, UDP, Fate, fates, reaching_host

from flowshunt.packets.sample import write_sample
from flowshunt.pipeline.mode import BypassMode
from flowshunt.pipeline.run import RunConfig, run
from flowshunt_nic_napatech.card import SmartNic
from flowshunt_nic_napatech.model import NT200A02
from flowshunt_offload_actions.actions import ACTIONS

START = 1_700_000_000 * SECOND
CLIENT, SERVER, BACKUP = bytes((10, 1, 0, 1)), bytes((192, 0, 2, 1)), bytes((10, 99, 0, 10))
CARD, SKIPPED, DROPPED, INSPECTED = Fate.CARD, Fate.SKIPPED, Fate.DROPPED, Fate.INSPECTED


def ip(source, destination, protocol, body, vlan=None, ident=0, offset=0):
    header = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + len(body), ident, offset, 64, protocol, 0, source, destination)
    tag = b"" if vlan is None else struct.pack(">HH", 0x8100, vlan)
    return bytes(12) + tag + b"\x08\x00" + header + body


def tcp(flags=ACK, seq=0, ack=0, *, back=False, port=443, server=SERVER, payload=b"", vlan=None, client_port=1000):
    ends = (CLIENT, client_port), (server, port)
    (source, sport), (destination, dport) = ends[::-1] if back else ends
    header = struct.pack(">HHIIBBHHH", sport, dport, seq % (1 << 32), ack % (1 << 32), 0x50, flags, 99, 0, 0)
    return ip(source, destination, TCP, header + payload, vlan)


def udp(server=SERVER, payload=b"y", client_port=1000):
    return ip(CLIENT, server, UDP, struct.pack(">HHHH", client_port, 514, 8 + len(payload), 0) + payload)


def write(path, frames):
    """Write (seconds after START or None, frame) pairs; None is one millisecond after the frame before."""
    time = START
    with path.open("wb") as out:
        out.write(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 262144, 1))
        for seconds, frame in frames:
            time = time + 1_000_000 if seconds is None else START + int(seconds * SECOND)
            out.write(struct.pack("<IIII", time // SECOND, time % SECOND, len(frame), len(frame)) + frame)
    return path


@pytest.fixture
def reference(tmp_path, monkeypatch):
    """The fates of frames given one by one, in bursts of a given size. The pipeline has to agree with them."""

    def judge(burst, *frames):
        pairs = [frame if isinstance(frame, tuple) else (None, frame) for frame in frames]
        path = write(tmp_path / "frames.pcap", pairs)
        assert_as_the_reference(path, burst, monkeypatch)
        return fates(path, burst)

    return judge


# The reference


def test_a_flow_is_bypassed_from_the_burst_after_its_first_match(reference):
    assert reference(3, *[tcp()] * 5) == [DROPPED, SKIPPED, SKIPPED, CARD, CARD]
    assert reference(1, *[tcp()] * 3) == [DROPPED, CARD, CARD]


def test_both_directions_are_one_flow(reference):
    assert reference(1, tcp(SYN), tcp(SYN | ACK, back=True)) == [DROPPED, CARD]


@pytest.mark.parametrize("port", [80, 20, 21, 23, 25, 53, 67, 68])
def test_clear_text_protocols_stay_under_inspection(reference, port):
    assert reference(1, tcp(port=port), tcp(port=port, back=True)) == [INSPECTED, INSPECTED]


def test_datagrams_stay_under_inspection(reference):
    assert reference(1, udp(), udp()) == [INSPECTED, INSPECTED]


def test_everything_of_the_backup_server_passes_and_is_bypassed(reference):
    frames = udp(BACKUP), tcp(port=80, server=BACKUP), udp(BACKUP), tcp(port=80, server=BACKUP, back=True)
    assert reference(2, *frames) == [INSPECTED, INSPECTED, CARD, CARD]


def test_equal_endpoints_in_other_vlans_are_other_flows(reference):
    assert reference(1, tcp(), tcp(vlan=5), tcp(vlan=6), tcp(vlan=5)) == [DROPPED, DROPPED, DROPPED, CARD]


def test_a_reset_ends_the_cards_entry_and_the_next_frame_begins_a_flow(reference):
    assert reference(1, tcp(), tcp(RST), tcp(), tcp()) == [DROPPED, CARD, DROPPED, CARD]


def test_until_the_burst_is_over_the_host_skips_what_follows_the_end_on_the_card(reference):
    frames = [tcp(), udp(), tcp(RST), tcp(), tcp(), udp()]
    assert reference(2, *frames) == [DROPPED, INSPECTED, CARD, SKIPPED, DROPPED, INSPECTED]


def test_a_connection_ends_with_the_acknowledgement_of_the_second_fin(reference):
    closing = [
        tcp(FIN | ACK, 10, 20),
        tcp(FIN | ACK, 20, 11, back=True),
        tcp(ACK, 11, 20),  # acknowledges less
        tcp(ACK, 11, 21),
        tcp(ACK, 11, 21),
    ]
    assert reference(1, tcp(), *closing) == [DROPPED, CARD, CARD, CARD, CARD, DROPPED]


def test_fins_before_the_flow_is_learned_count(reference):
    frames = [tcp(SYN, 9), tcp(FIN | ACK, 10, 20), udp(), tcp(FIN | ACK, 20, 11, back=True), tcp(ACK, 11, 21), tcp()]
    assert reference(3, *frames)[3:] == [CARD, CARD, SKIPPED]


def test_a_syn_begins_a_new_connection_where_both_ends_have_sent_a_fin(reference):
    frames = [tcp(SYN), tcp(FIN | ACK, 10, 0), tcp(FIN, 20, back=True), tcp(SYN, 500), tcp(ACK)]
    assert reference(1, *frames) == [DROPPED, CARD, CARD, SKIPPED, DROPPED]


def test_a_flow_that_ends_in_its_first_burst_is_not_learned(reference):
    assert reference(2, tcp(SYN), tcp(RST, back=True), tcp(), tcp()) == [DROPPED, SKIPPED, SKIPPED, SKIPPED]


def test_an_idle_flow_leaves_after_100_seconds(reference):
    assert reference(1, (0, tcp()), (100, tcp()), (200, tcp())) == [DROPPED, CARD, CARD]
    assert reference(1, (0, tcp()), (100.5, tcp()), (101, tcp())) == [DROPPED, SKIPPED, DROPPED]
    assert reference(1, (0, tcp()), (101.2, udp()), (101.5, tcp())) == [DROPPED, INSPECTED, DROPPED]


@pytest.mark.parametrize(
    "opening",
    [
        [tcp(SYN), tcp(SYN | ACK, back=True), tcp(ACK)],
        [tcp(SYN), tcp(SYN, back=True), tcp(SYN | ACK)],  # both ends open at once
        [tcp(SYN | ACK, back=True), tcp(ACK)],  # the SYN was not seen
        [tcp(SYN), tcp(SYN | ACK, back=True), tcp(ACK, back=True)],
        [tcp(SYN), tcp(SYN | ACK), tcp(ACK)],
        [tcp(ACK), tcp(SYN | FIN), tcp(SYN | ACK, back=True), tcp(ACK)],
    ],
)
def test_a_flow_on_the_card_outlives_a_minute_without_a_frame_even_within_a_burst(reference, opening):
    assert reference(len(opening) + 2, *opening, (70, udp()), tcp())[-1] is CARD


def test_what_comes_after_a_long_gap_meets_no_flow_from_before_it(reference):
    assert reference(9, (0, tcp()), tcp(), (150, tcp()), tcp()) == [DROPPED, SKIPPED, DROPPED, SKIPPED]
    assert reference(9, (0, tcp()), tcp(), (9, udp()), (11, tcp())) == [DROPPED, SKIPPED, INSPECTED, CARD]


def test_a_fragment_without_the_tcp_header_closes_no_flow(reference):
    first = ip(CLIENT, SERVER, TCP, tcp(SYN, 9, payload=bytes(4))[34:], ident=7, offset=0x2000)
    later = ip(CLIENT, SERVER, TCP, bytes(8), ident=7, offset=3)
    fins = [tcp(FIN | ACK, 14, 20), tcp(FIN | ACK, 20, 14, back=True)]
    assert reference(3, first, *fins, later, tcp(ACK, 15, 21), tcp())[3:] == [CARD, CARD, SKIPPED]


def test_a_syn_begins_a_new_connection_where_the_flow_was_picked_up_with_a_later_fragment(reference):
    first = ip(CLIENT, BACKUP, TCP, tcp(SYN, payload=bytes(4))[34:], ident=7, offset=0x2000)
    later = ip(CLIENT, BACKUP, TCP, bytes(8), ident=7, offset=3)
    frames = [first, tcp(RST, server=BACKUP), later, tcp(SYN, server=BACKUP), tcp(SYN, server=BACKUP)]
    assert reference(1, *frames) == [INSPECTED, CARD, INSPECTED, INSPECTED, CARD]


def test_later_fragments_go_with_their_flow(reference):
    first = ip(CLIENT, BACKUP, UDP, struct.pack(">HHHH", 1000, 514, 40, 0) + bytes(16), ident=7, offset=0x2000)
    later = ip(CLIENT, BACKUP, UDP, bytes(16), ident=7, offset=3)
    assert reference(1, udp(BACKUP), first, later) == [INSPECTED, CARD, CARD]
    assert reference(1, udp(BACKUP), later) == [INSPECTED, INSPECTED]


def test_what_is_not_ip_reaches_the_host(reference):
    arp = bytes(12) + b"\x08\x06" + bytes(46)
    assert reference(1, arp, arp) == [INSPECTED, INSPECTED]


# The pipeline


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    return write_sample(tmp_path_factory.mktemp("sample") / "sample.pcap", flows=600, seed=9).capture


def delivered_and_result(path, burst, monkeypatch):
    """The numbers of the frames that the card hands to the host, and the run's result."""
    numbers = []
    receive = SmartNic.receive

    def noted(self, batch):
        delivery = receive(self, batch)
        numbers.extend((batch.first + delivery.rows).tolist())
        return delivery

    with monkeypatch.context() as patch:
        patch.setattr(SmartNic, "receive", noted)
        config = RunConfig(
            captures=(str(path),),
            model=NT200A02,
            engine=EndpointEngine(),
            mode=BypassMode.HARDWARE,
            actions={action.name: action for action in ACTIONS},
            burst=burst,
        )
        return numbers, run(config)


def assert_as_the_reference(path, burst, monkeypatch):
    expected = Counter(fates(path, burst))
    numbers, result = delivered_and_result(path, burst, monkeypatch)
    assert numbers == reaching_host(path, burst)
    assert result.bypassed_nic.frames == expected[CARD]
    assert result.bypassed_host.frames == expected[SKIPPED]
    assert result.dropped.frames == expected[DROPPED]
    assert result.inspected.frames == expected[INSPECTED]
    return expected


@pytest.mark.parametrize("burst", [64, 4096])
def test_the_host_gets_what_the_reference_says_of_the_sample(sample, burst, monkeypatch):
    expected = assert_as_the_reference(sample, burst, monkeypatch)
    assert min(expected[fate] for fate in Fate) > 100


def hostile(seed):
    """Frames of few flows with every turn of TCP, fragments out of place, and pauses about as long as the timeouts."""
    draw = random.Random(seed)
    time, frames = draw.random(), []
    for _ in range(draw.choice((20, 60, 200))):
        time += draw.choice((0.000001, 0.001, 0.001, 0.1, 3.0, draw.uniform(40, 130) if draw.random() < 0.3 else 0.001))
        back, server, port = draw.random() < 0.5, draw.choice((SERVER, BACKUP)), draw.choice((80, 443))
        vlan, client_port = draw.choice((None, None, 7)), draw.choice((1000, 1001))
        kind = draw.random()
        if kind < 0.75:
            flags = draw.choice((SYN, SYN, SYN | ACK, ACK, ACK, ACK, FIN | ACK, FIN | ACK, RST, RST | ACK, FIN, 0, 3))
            seq, ack = draw.choice((0, 1, 2, 1 << 31)), draw.choice((0, 1, 2, 3, (1 << 31) + 1))
            payload = draw.choice((b"", b"x"))
            more = {"back": back, "port": port, "server": server, "vlan": vlan, "client_port": client_port}
            frame = tcp(flags, seq, ack, payload=payload, **more)
        elif kind < 0.85:
            frame = udp(server, client_port=client_port)
        elif kind < 0.9:
            protocol, ident = draw.choice((TCP, UDP)), draw.choice((5, 6))
            whole = tcp(draw.choice((ACK, FIN | ACK, SYN)), 1, 1, payload=bytes(4)) if protocol == TCP else udp(server)
            frame = ip(CLIENT, server, protocol, whole[34:].ljust(24, b"z"), vlan, ident, 0x2000)
        elif kind < 0.95:
            frame = ip(CLIENT, server, draw.choice((TCP, UDP)), bytes(8), vlan, draw.choice((5, 6)), 3)
        else:
            frame = ip(CLIENT, server, 1, b"\x08\0\0\0\0\1\0\1", vlan)
        frames.append((time, frame))
    return frames


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 1 << 32), burst=st.sampled_from((1, 2, 5, 20, 100)))
@example(seed=829, burst=20)
def test_the_host_gets_what_the_reference_says_of_hostile_traffic(tmp_path_factory, seed, burst):
    path = write(tmp_path_factory.mktemp("hostile") / "hostile.pcap", hostile(seed))
    with pytest.MonkeyPatch.context() as monkeypatch:
        assert_as_the_reference(path, burst, monkeypatch)
