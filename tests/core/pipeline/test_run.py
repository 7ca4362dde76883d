"""A run counts every frame once, whoever acts on it, and keeps each flow's record exact."""

import json
from collections import Counter
from pathlib import Path

import attrs
import pytest
from marker_engine import MarkerEngine

from flowshunt.engine import BypassRequest
from flowshunt.errors import InputError
from flowshunt.output.eve import EveWriter
from flowshunt.pipeline.compare import compare
from flowshunt.pipeline.mode import BypassMode
from flowshunt.pipeline.result import merge
from flowshunt.pipeline.run import RunConfig, run
from flowshunt.testing.traffic import ACK, FIN, RST, SYN, Conversation, conversations
from flowshunt_nic_generic.model import XL710
from flowshunt_nic_napatech.model import NT200A02
from flowshunt_offload_actions.actions import ACTIONS

A = Conversation(b"\x0a\0\0\1", b"\xc0\xa8\0\1", 4000, 443)
B = Conversation(b"\x0a\0\0\2", b"\xc0\xa8\0\1", 4000, 443)
U = Conversation(b"\x0a\0\0\3", b"\xc0\xa8\0\1", 4000, 53, 17)


def _config(path, mode=BypassMode.HARDWARE, engine=None, model=NT200A02, **more):
    return RunConfig(
        captures=(path,),
        model=model,
        engine=engine or MarkerEngine(),
        mode=mode,
        actions={action.name: action for action in ACTIONS},
        burst=more.pop("burst", 4),
        **more,
    )


def _adds_up(result):
    parts = result.inspected + result.dropped + result.bypassed_host + result.bypassed_nic
    return parts == result.total


class _Records:
    def __init__(self):
        self.alerted, self.records, self.actions = [], [], []

    def alerts(self, alerts):
        self.alerted += alerts

    def flows(self, records, actions):
        self.records += list(records)
        self.actions = list(actions)


def _bypassed_flow(count):
    """A flow that is bypassed by its second frame, `count` frames in all, and another one between."""
    frames = [A.frame(0, b"hello"), A.frame(1, b"BYPASS")]
    frames += [A.frame(n % 2, b"ATTACK") for n in range(count - 2)]
    return [frame for pair in zip(frames, [B.frame(0, b"other")] * count, strict=True) for frame in pair]


def test_hardware_bypass_keeps_frames_from_the_host_from_the_next_burst_on(capture):
    result = run(_config(capture(_bypassed_flow(10)), burst=6))
    # Frames of A are 0, 2, 4, ...; the verdict falls on frame 2 in burst 0..5, where frame 4 is already under way.
    assert result.bypassed_host.frames == 1
    assert result.bypassed_nic.frames == 7
    assert result.delivered.frames == 13
    assert result.by_action["drop"].frames == 8
    assert _adds_up(result)


def test_software_bypass_skips_in_the_host(capture):
    result = run(_config(capture(_bypassed_flow(10)), BypassMode.SOFTWARE, burst=6))
    assert result.delivered == result.total
    assert (result.bypassed_host.frames, result.bypassed_nic.frames) == (8, 0)
    assert result.by_action["drop"].frames == 8
    assert result.flows_bypassed == {"local": 1}
    assert _adds_up(result)


def test_frames_that_no_flow_has_room_for_are_inspected_and_told_of(capture):
    frames = [Conversation(bytes((10, 0, 1, n)), B.destination, 4000, 443).frame(0, b"ATTACK") for n in range(40)]
    result = run(_config(capture(frames), BypassMode.OFF, flow_capacity=16, burst=40))
    assert result.flows_overflow == 24
    assert result.inspected == result.total
    assert [text for text in result.warnings if text.startswith("24 frames were inspected without a flow")]
    assert not run(_config(capture(frames), BypassMode.OFF, flow_capacity=64, burst=40)).warnings


def test_without_bypass_every_frame_is_inspected(capture):
    result = run(_config(capture(_bypassed_flow(10)), BypassMode.OFF))
    assert result.inspected == result.total
    assert sum(result.alerts.values()) == 8


def test_a_card_without_a_flow_table_falls_back_to_the_host(capture):
    result = run(_config(capture(_bypassed_flow(10)), model=XL710, burst=6))
    assert result.flows_bypassed == {"capture": 0, "local": 1}
    assert result.nic_flows["refused (no flow table)"] == 1
    assert result.bypassed_host.frames == 8
    assert _adds_up(result)


@pytest.mark.parametrize("burst", [1, 3, 7, 64])
@pytest.mark.parametrize("mode", list(BypassMode))
def test_flow_records_count_every_frame_whoever_acted(capture, mode, burst):
    traffic = conversations(30, seed=burst)
    frames = [traffic.frames.frame(row) for row in range(len(traffic.frames))]
    marked = [f.replace(b"hello", b"BYPASS"[:5]) if n % 3 else f for n, f in enumerate(frames)]
    marked += [A.frame(0, b"x"), A.frame(1, b"BYPASS"), A.frame(0), A.frame(1), A.frame(0)]
    sink = _Records()
    result = run(_config(capture(marked), mode, burst=burst), sink)
    assert _adds_up(result)
    with_flow = int((traffic.owner >= 0).sum()) + 5
    assert sum(int(r["packets"].sum()) for r in sink.records) == with_flow
    (own,) = [r for r in sink.records if bytes(r["source"][:4]) == A.source and int(r["source_port"]) == 4000]
    assert own["packets"].tolist() == [3, 2]
    if mode is not BypassMode.OFF:
        assert int(own["bypassed_packets"].sum()) == 3
        assert sink.actions[own["action"]] == "drop"
    assert sum(result.flows_ended.values()) == len(sink.records) == result.flows


@pytest.mark.parametrize("mode", [BypassMode.SOFTWARE, BypassMode.HARDWARE])
def test_a_flow_that_is_bypassed_and_replaced_in_one_burst_counts_its_own_frames(capture, mode):
    connection = [
        A.frame(0, flags=SYN, seq=1),
        A.frame(1, b"BYPASS", seq=1),
        A.frame(0, b"skipped", seq=2),
        A.frame(0, flags=RST, seq=9),
    ]
    sink = _Records()
    result = run(_config(capture([*connection, A.frame(0, flags=SYN, seq=500), A.frame(0)]), mode, burst=50), sink)
    assert [int(r["bypassed_packets"].sum()) for r in sink.records] == [2, 0]
    assert [int(r["packets"].sum()) for r in sink.records] == [4, 2]
    assert result.bypassed_host.frames == 2
    assert _adds_up(result)


def test_a_flow_that_the_host_displaces_keeps_what_the_card_counted(capture):
    others = [Conversation(b"\x0a\1\0" + bytes([n]), b"\xc0\xa8\0\1", 4000, 53, 17).frame(0) for n in range(200)]
    frames = [A.frame(0, b"BYPASS"), *[A.frame(n % 2) for n in range(7)], *others, A.frame(0)]
    sink = _Records()
    result = run(_config(capture(frames), flow_capacity=64), sink)
    assert _adds_up(result)
    assert result.flows_overflow == 0
    assert result.flows_ended["displaced"] > 0
    assert result.nic_flows["learned"] == 1
    assert sum(int(r["packets"].sum()) for r in sink.records) == len(frames)
    own = [r for r in sink.records if bytes(r["source"][:4]) == A.source]
    assert sum(int(r["packets"].sum()) for r in own) == 9
    assert sum(result.flows_ended.values()) == len(sink.records)


def test_a_flow_that_ends_on_the_card_says_so(capture):
    sink = _Records()
    end = [
        A.frame(0, flags=FIN | ACK, seq=10, ack=20),
        A.frame(1, flags=FIN | ACK, seq=20, ack=11),
        A.frame(0, flags=ACK, seq=11, ack=21),
    ]
    run(_config(capture([A.frame(0, b"BYPASS"), *[A.frame(1)] * 3, *end, *[U.frame(0)] * 8])), sink)
    records = {bytes(r["source"][:4]): r for r in sink.records}
    assert records[A.source]["end_reason"] == 1
    assert int(records[A.source]["packets"].sum()) == 7
    assert records[A.source]["bypass"] == 2


def test_alerts_carry_frame_flow_and_ends(capture):
    sink = _Records()
    run(_config(capture([B.frame(0), B.frame(1, b"ATTACK")]), BypassMode.OFF), sink)
    (alert,) = sink.alerted
    assert (alert.frame, str(alert.source), str(alert.destination)) == (1, "192.168.0.1:443", "10.0.0.2:4000")
    assert alert.flow_label == "TCP 10.0.0.2:4000 -> 192.168.0.1:443"


@pytest.mark.parametrize("burst", [1, 4, 100])
def test_the_engine_hears_of_the_end_of_every_flow_once(capture, burst):
    traffic = conversations(25)
    frames = [traffic.frames.frame(row) for row in range(len(traffic.frames))]
    engine = MarkerEngine(alert_at_end=True)
    result = run(_config(capture(frames), BypassMode.OFF, engine, burst=burst))
    assert len(engine.session.ended) == result.flows
    assert set(Counter(result.alert_flows.values())) == {1}


def test_dropped_frames_are_counted_apart(capture):
    result = run(_config(capture([B.frame(0, b"DROPIT"), B.frame(1)]), BypassMode.OFF))
    assert (result.dropped.frames, result.inspected.frames) == (1, 1)
    assert _adds_up(result)


def test_a_chosen_action_replaces_what_the_engine_asks_for(capture):
    override = BypassRequest("redirect", {"host_buffer": 3}, "command line")
    result = run(_config(capture(_bypassed_flow(10)), burst=6, override=override, host_buffers=4))
    assert result.by_action["redirect"].frames == 8
    assert result.delivered.frames == result.total.frames
    assert result.bypassed_nic.frames == 7
    assert _adds_up(result)


def test_what_the_card_refuses_is_bypassed_in_the_host(capture):
    result = run(_config(capture(_bypassed_flow(10)), override=BypassRequest("redirect", {"host_buffer": 99})))
    assert result.flows_bypassed["local"] == 1
    assert result.nic_flows["refused (no host buffer 99)"] == 1
    assert _adds_up(result)


@pytest.mark.parametrize("mode", [BypassMode.SOFTWARE, BypassMode.HARDWARE])
def test_an_action_that_there_is_not_is_an_error_that_names_those_there_are(capture, mode):
    engine = MarkerEngine(BypassRequest("vanish"))
    with pytest.raises(InputError, match=r"'vanish'.*there are drop, forward, redirect"):
        run(_config(capture(_bypassed_flow(10)), mode, engine))


def test_lost_alerts_are_named_with_their_flow(capture):
    comparison = compare(_config(capture(_bypassed_flow(10))), XL710, cores=2)
    assert set(comparison.modes) == set(BypassMode)
    for mode in (BypassMode.SOFTWARE, BypassMode.HARDWARE):
        (lost,) = comparison.modes[mode].lost
        assert (lost.signature.sid, lost.count) == (1, 8)
        assert lost.flows == [("TCP 10.0.0.1:4000 -> 192.168.0.1:443", 8)]
        assert not comparison.modes[mode].gained


def test_partitions_of_a_run_merge(capture):
    whole = _bypassed_flow(10)
    left = run(_config(capture(whole, name="a.pcap"), burst=6))
    right = run(_config(capture([B.frame(0, b"ATTACK")], name="b.pcap"), burst=6))
    merged = merge(left, right)
    assert merged.total == left.total + right.total
    assert sum(merged.alerts.values()) == sum(left.alerts.values()) + 1
    assert _adds_up(merged)
    assert merged.host_time.total == left.host_time.total + right.host_time.total


def test_an_empty_capture_is_a_run_of_nothing(capture):
    result = run(_config(capture([])))
    assert result.total.frames == 0
    assert result.complete
    assert result.host_ns_per_frame == 0.0


def test_a_damaged_capture_counts_what_is_whole(capture, tmp_path):
    path = capture(_bypassed_flow(10))
    data = Path(path).read_bytes()
    cut = tmp_path / "cut.pcap"
    cut.write_bytes(data[:-7])
    result = run(_config(str(cut)))
    assert result.total.frames == 19
    assert not result.complete
    assert "byte" in result.problems[0]
    assert _adds_up(result)


def test_a_stray_file_in_a_folder_is_a_notice_and_no_damage(capture, tmp_path):
    capture(_bypassed_flow(10))
    (tmp_path / "notes.txt").write_text("not a capture, but longer than any header of one")
    result = run(_config(str(tmp_path)))
    assert result.total.frames == 20
    assert result.complete
    assert any("notes.txt" in warning for warning in result.warnings)


def test_eve_tells_of_alerts_flows_and_totals(capture, tmp_path):
    path = tmp_path / "eve.json"
    writer = EveWriter(str(path))
    result = run(_config(capture(_bypassed_flow(10)), burst=6), writer)
    writer.finish(result)
    events = [json.loads(line) for line in path.read_text().splitlines()]
    flows = {e["src_ip"]: e for e in events if e["event_type"] == "flow"}
    bypassed = flows["10.0.0.1"]["flow"]
    assert (bypassed["state"], bypassed["bypass"]) == ("bypassed", "capture")
    assert bypassed["pkts_toserver"] + bypassed["pkts_toclient"] == 10
    assert bypassed["bypassed"]["pkts_toserver"] + bypassed["bypassed"]["pkts_toclient"] == 8
    assert flows["10.0.0.2"]["flow"]["state"] == "new"
    (stats,) = [e for e in events if e["event_type"] == "stats"]
    assert stats["stats"]["decoder"]["pkts"] == 20


def test_a_full_disk_leaves_whole_lines_and_the_figures(capture):
    writer = EveWriter("/dev/full")
    result = run(_config(capture(_bypassed_flow(10)), BypassMode.OFF), writer)
    writer.finish(result)
    assert result.total.frames == 20
    assert "No space left" in writer.failure
    assert writer.events == 0


def test_host_time_excludes_the_card(capture):
    result = run(_config(capture(_bypassed_flow(10)), burst=6))
    assert result.nic_ns > 0
    assert result.host_time.decode == 0
    assert attrs.evolve(result, host_time=type(result.host_time)()).host_ns_per_frame == 0.0
