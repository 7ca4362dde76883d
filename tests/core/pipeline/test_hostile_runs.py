"""Captures and rules changed at random, through whole runs: counts add up, and nothing unforeseen is raised."""

import struct
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flowshunt.errors import FlowshuntError
from flowshunt.output.eve import EveWriter
from flowshunt.packets.sample import write_sample
from flowshunt.pipeline.mode import BypassMode
from flowshunt.pipeline.run import RunConfig, run
from flowshunt.plugins import engine, load_plugins, nic_model

PROPERTY = settings(
    deadline=None,
    max_examples=25,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
SIZES = st.sampled_from([0, 1, 40, 59, 60, 1500, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF])
TIMES = st.sampled_from([0, 1, 1_700_000_000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF])


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    """The records of a sample capture, as (record header, frame), and its rules."""
    path = tmp_path_factory.mktemp("sample") / "sample.pcap"
    write_sample(path, flows=46, seed=9, rate=1e5)
    content = path.read_bytes()
    records, at = [], 24
    while at < len(content) and len(records) < 800:
        size = struct.unpack_from("<I", content, at + 8)[0]
        records.append((content[at : at + 16], content[at + 16 : at + 16 + size]))
        at += 16 + size
    return content[:24], records, Path(f"{path}.rules").read_text().splitlines()


def runs(path, rules, tmp_path, *, burst, flow_capacity=64, nic_flows=64):
    """The result in each mode, or None where the input is refused, which every mode must do then."""
    results = []
    for mode in BypassMode:
        config = RunConfig(
            captures=(str(path),),
            model=nic_model("nt200a02"),
            engine=engine("ids"),
            mode=mode,
            actions=load_plugins().actions,
            rules=(rules,),
            burst=burst,
            flow_capacity=flow_capacity,
            nic_flows=nic_flows,
        )
        writer = EveWriter(str(tmp_path / f"{mode}.json"))
        try:
            result = run(config, writer)
            writer.finish(result)
        except FlowshuntError:
            result = None
            writer.abandon()
        results.append(result)
    return results


def check(results, *, same_alerts=True):
    if None in results:
        assert results == [None] * 3
        return
    for result in results:
        assert result.inspected + result.dropped + result.bypassed_host + result.bypassed_nic == result.total
        assert sum(result.flows_ended.values()) == result.flows
        assert sum(buffer.frames for buffer in result.host_buffers) == result.delivered.frames
        assert sum(amount.frames for amount in result.by_action.values()) == result.bypassed.frames
    assert len({result.total for result in results}) == 1
    _, software, hardware = results
    if same_alerts:
        assert hardware.alert_flows == software.alert_flows


CHANGES = st.lists(
    st.tuples(
        st.integers(0, 799),
        st.one_of(
            st.tuples(st.just("byte"), st.integers(0, 200), st.integers(1, 255)),
            st.tuples(st.just("wire"), SIZES, st.just(0)),
            st.tuples(st.just("captured"), st.sampled_from([0, 1, 13, 14, 33, 34, 53, 54]), st.just(0)),
            st.tuples(st.just("time"), TIMES, st.just(0)),
            st.tuples(st.just("drop"), st.just(0), st.just(0)),
            st.tuples(st.just("swap"), st.integers(0, 799), st.just(0)),
        ),
    ),
    max_size=40,
)


def changed(records, changes):
    records = list(records)
    for number, (what, first, second) in changes:
        at = number % len(records)
        header, frame = records[at]
        seconds, fraction, captured, wire = struct.unpack("<IIII", header)
        if what == "byte" and frame:
            place = first % len(frame)
            frame = frame[:place] + bytes([frame[place] ^ second]) + frame[place + 1 :]
        elif what == "wire":
            wire = first
        elif what == "captured":
            frame = frame[:first]
            captured = len(frame)
        elif what == "time":
            seconds = first
        elif what == "drop":
            frame, captured, wire = b"", 0, 0
        elif what == "swap":
            other = first % len(records)
            records[at], records[other] = records[other], records[at]
            continue
        records[at] = struct.pack("<IIII", seconds, fraction, captured, wire), frame
    return b"".join(header + frame for header, frame in records)


@PROPERTY
@given(changes=CHANGES, burst=st.sampled_from([1, 7, 64, 1024]))
def test_counts_add_up_whatever_the_frames_are(tmp_path, sample, changes, burst):
    start, records, rules = sample
    (tmp_path / "x.rules").write_text("\n".join(rules))
    (tmp_path / "x.pcap").write_bytes(start + changed(records, changes))
    check(runs(tmp_path / "x.pcap", tmp_path / "x.rules", tmp_path, burst=burst))


@PROPERTY
@given(
    flips=st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(1, 255)), min_size=1, max_size=6),
    cut=st.none() | st.integers(0, 1 << 20),
)
def test_any_damage_to_a_capture_is_survived(tmp_path, sample, flips, cut):
    start, records, rules = sample
    content = bytearray(start + b"".join(map(b"".join, records)))
    for at, flip in flips:
        content[at % len(content)] ^= flip
    (tmp_path / "x.rules").write_text("\n".join(rules))
    (tmp_path / "x.pcap").write_bytes(content[: len(content) if cut is None else cut % len(content)])
    check(runs(tmp_path / "x.pcap", tmp_path / "x.rules", tmp_path, burst=32))


@PROPERTY
@given(
    capacity=st.integers(2, 24),
    nic_flows=st.integers(2, 64),
    burst=st.sampled_from([1, 16, 256]),
)
def test_counts_add_up_where_flows_are_displaced(tmp_path, sample, capacity, nic_flows, burst):
    start, records, rules = sample
    (tmp_path / "x.rules").write_text("\n".join(rules))
    (tmp_path / "x.pcap").write_bytes(start + b"".join(map(b"".join, records)))
    results = runs(
        tmp_path / "x.pcap", tmp_path / "x.rules", tmp_path, burst=burst, flow_capacity=capacity, nic_flows=nic_flows
    )
    check(results, same_alerts=False)


MARKS = [
    ";",
    ":",
    '"',
    "(",
    ")",
    "!",
    "[",
    "]",
    "\\",
    "|",
    ",",
    "/",
    "$",
    "<>",
    "->",
    "\0",
    "\udcff",
    "999999999999",
    "-1",
]
WORDS = ["content:", "pcre:", "within:1;", "distance:-9;", "depth:0;", "offset:65536;", "(a+)+$", "(?<n>", "{1,9999}"]
PIECES = st.sampled_from(MARKS + WORDS)


@PROPERTY
@given(
    edits=st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 30), PIECES), min_size=1, max_size=30),
)
def test_any_change_to_rules_is_survived(tmp_path, sample, edits):
    start, records, rules = sample
    text = "\n".join(rules)
    for place, removed, piece in edits:
        at = place % len(text)
        text = text[:at] + piece + text[at + removed :]
    (tmp_path / "x.rules").write_bytes(text.encode("utf-8", "surrogateescape"))
    (tmp_path / "x.pcap").write_bytes(start + b"".join(map(b"".join, records[:150])))
    check(runs(tmp_path / "x.pcap", tmp_path / "x.rules", tmp_path, burst=16))
