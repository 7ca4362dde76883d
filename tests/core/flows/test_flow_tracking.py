"""The flow table and a plain reference agree on any traffic."""

import ipaddress
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from flow_frames import START, Fragment, Packet, batch_of
from flow_reference import ReferenceTable, records
from flow_traffic import batches, relaxed
from hypothesis import given
from hypothesis import strategies as st

from flowshunt.flows.edits import INSERTED
from flowshunt.flows.record import FLOW, Bypass, EndReason, FlowTimeouts
from flowshunt.flows.table import FlowTable
from flowshunt.packets.capture import open_captures
from flowshunt.packets.decode import decode
from flowshunt.packets.headers import FRAGMENT, LATER_FRAGMENT, NO_VLAN


def sorted_records(rows):
    return sorted(rows, key=lambda row: row["id"])


def agree_on_ended(table, reference):
    ended = table.drain()
    wanted = sorted_records([flow.record() for flow in reference.drain()])
    assert sorted_records(records(ended.records)) == wanted
    assert len(ended.slots) == len(wanted)
    return ended


def agree_on_frames(table, tracking, outcomes):
    identities = np.where(tracking.slot >= 0, table.records["id"][tracking.slot], 0)
    assert identities.tolist() == [flow.id if flow else 0 for flow, _, _ in outcomes]
    assert tracking.direction.tolist() == [direction for _, direction, _ in outcomes]
    assert tracking.events.tolist() == [events for _, _, events in outcomes]


def agree_on_live(table, reference):
    live = reference.live()
    slots = table.find_ids(np.array(list(live), np.uint64))
    assert (slots >= 0).all()
    assert records(table.records[slots]) == [flow.record() for flow in live.values()]
    assert (table.find(table.records[slots]) == slots).all()
    assert table.active == len(live)


def agree_on_counters(table, reference):
    counters = table.counters
    assert counters.created == counters.active + sum(counters.ended.values())
    assert counters.fragments_matched == reference.fragments_matched
    assert counters.fragments_unmatched == reference.fragments_unmatched
    assert counters.overflow == 0


@relaxed
@given(batches(), st.integers(0, 1 << 64), st.data())
def test_tracking_agrees_with_the_reference(runs, seed, data):
    table = FlowTable(4096, seed=seed)
    reference = ReferenceTable()
    for packets in runs:
        tracking = table.track(*batch_of(packets))
        agree_on_frames(table, tracking, [reference.frame(packet) for packet in packets])
        agree_on_live(table, reference)
        step = data.draw(st.sampled_from(["go on", "go on", "drain", "bypass", "account", "expire"]))
        numbers = sorted(reference.live())
        if step == "drain":
            agree_on_ended(table, reference)
        elif step == "expire":
            now = data.draw(
                st.one_of(
                    st.sampled_from([0, 90 * 10**9, 5000 * 10**9, -5000 * 10**9]).map(lambda d: reference.clock + d),
                    st.just(START + packets[-1].time),
                )
            )
            for _ in range(data.draw(st.integers(1, 2))):
                table.expire(now)
                reference.expire(now)
        elif numbers and step in ("bypass", "account"):
            chosen = data.draw(st.lists(st.sampled_from(numbers), unique=True, max_size=4))
            slots = table.find_ids(np.array(chosen, np.uint64))
            if step == "bypass":
                kind = data.draw(st.sampled_from(Bypass))
                table.bypass(slots, 3, kind)
                reference.bypass(chosen, 3, kind)
            else:
                counted = np.zeros(len(chosen), FLOW)
                counted["packets"], counted["bytes"], counted["last"] = [1, 2], [100, 200], reference.clock
                table.account(slots, counted)
                for number in chosen:
                    reference.account(number, [1, 2], [100, 200], reference.clock)
        agree_on_live(table, reference)
    table.close()
    reference.close()
    agree_on_ended(table, reference)
    agree_on_counters(table, reference)


@relaxed
@given(batches(), batches(), st.booleans())
def test_matching_agrees_with_the_reference(learned, seen, auto_unlearn):
    timeouts = FlowTimeouts(tcp_established=50, udp_new=3)
    host, host_reference = FlowTable(4096), ReferenceTable()
    for packets in learned:
        host.track(*batch_of(packets))
        for packet in packets:
            host_reference.frame(packet)
    flows = sorted(host_reference.live().values(), key=lambda flow: flow.id)[::2]
    card, card_reference = FlowTable(4096, timeouts, seed=7), ReferenceTable(timeouts)
    given_flows = host.records[host.find_ids(np.array([flow.id for flow in flows], np.uint64))]
    slots, status = card.insert(given_flows, 9)
    assert (status == INSERTED).all()
    assert (card.find_ids(given_flows["id"]) == slots).all()
    for flow in flows:
        card_reference.insert(flow, 9)
    for packets in [*learned, *seen]:
        tracking = card.match(*batch_of(packets), tcp_auto_unlearn=auto_unlearn)
        outcomes = [card_reference.frame(p, create=False, auto_unlearn=auto_unlearn) for p in packets]
        agree_on_frames(card, tracking, outcomes)
        agree_on_live(card, card_reference)
        agree_on_ended(card, card_reference)
    card.close()
    card_reference.close()
    agree_on_ended(card, card_reference)
    agree_on_counters(card, card_reference)


@relaxed
@given(batches(), st.integers(1, 5))
def test_the_cut_into_batches_does_not_matter(runs, length):
    whole, cut = FlowTable(4096, seed=1), FlowTable(4096, seed=2)
    packets = [packet for run in runs for packet in run]
    together = whole.track(*batch_of(packets))
    parts = [cut.track(*batch_of(packets[at : at + length])) for at in range(0, len(packets), length)]
    assert together.direction.tolist() == [d for part in parts for d in part.direction.tolist()]
    assert together.events.tolist() == [e for part in parts for e in part.events.tolist()]
    whole.close()
    cut.close()
    assert (whole.drain().records == cut.drain().records).all()


@relaxed
@given(batches(), st.integers(2, 24))
def test_a_small_table_loses_no_frame_and_reuses_no_row_too_early(runs, capacity):
    table = FlowTable(capacity)
    frames = 0
    without_row = 0
    ended = []
    for packets in runs:
        before = table.drain()
        ended += records(before.records)
        batch, headers = batch_of(packets)
        tracking = table.track(batch, headers)
        assert not set(before.slots.tolist()) & set(tracking.slot.tolist())
        assert (tracking.slot < capacity).all()
        frames += len(packets)
        without_row += np.count_nonzero((tracking.slot < 0) & (headers["ip_version"] != 0))
        assert table.active <= capacity
        new = np.flatnonzero(tracking.events & 1)
        assert len(set(tracking.slot[new].tolist())) == len(new), "a row was used for two flows of one batch"
    table.close()
    ended += records(table.drain().records)
    no_ip = sum(not packet.ip for run in runs for packet in run)
    assert table.counters.overflow == without_row
    assert sum(sum(row["packets"]) for row in ended) == frames - without_row - no_ip
    assert table.counters.evicted == sum(row["end_reason"] == EndReason.DISPLACED for row in ended)
    assert table.counters.created == len(ended)
    assert len({row["id"] for row in ended}) == len(ended)


@relaxed
@given(batches(4), st.data())
def test_no_header_row_makes_a_kernel_read_outside_its_arrays(runs, data):
    table = FlowTable(64)
    offsets = st.sampled_from([0, 1, 13, 14, 33, 34, 100, 1 << 16, (1 << 32) - 1])
    for packets in runs:
        batch, headers = batch_of(packets)
        for name in ("l3", "l4", "payload", "payload_length"):
            headers[name] = [data.draw(offsets) for _ in packets]
        headers["ip_version"] = [data.draw(st.sampled_from([0, 4, 6, 5, 255])) for _ in packets]
        batch.offset[:] = [
            data.draw(st.sampled_from([0, 5, -1, -(1 << 62), 1 << 40, len(batch.data)])) for _ in packets
        ]
        batch.timestamp[:] = [
            data.draw(st.sampled_from([0, -1, -(1 << 63), (1 << 63) - 1, 1 << 62, 5])) for _ in packets
        ]
        tracking = table.track(batch, headers)
        end = headers["l3"].astype(object) + np.where(headers["ip_version"] == 4, 20, 40)
        legible = np.isin(headers["ip_version"], [4, 6]) & (batch.offset >= 0)
        legible &= (end <= batch.captured) & (batch.offset.astype(object) + batch.captured <= len(batch.data))
        assert not (tracking.slot[~legible] >= 0).any()
    table.close()


@relaxed
@given(batches())
def test_the_decoder_s_rows_lead_to_the_same_flows(runs):
    by_hand, decoded = FlowTable(4096), FlowTable(4096)
    for packets in runs:
        batch, headers = batch_of(packets)
        one, other = by_hand.track(batch, headers), decoded.track(batch, decode(batch))
        assert (one.slot == other.slot).all()
        assert (one.direction == other.direction).all()
        assert (one.events == other.events).all()
    by_hand.close()
    decoded.close()
    assert (by_hand.drain().records == decoded.drain().records).all()


CAPTURES = Path(os.environ.get("FLOWSHUNT_SHARED", Path(__file__).parents[4] / "shared")) / "data" / "pcaps"


def packets_of(batch, headers):
    """The packets of decoded frames, as the reference takes them. Times are taken from START on."""
    for at, row in enumerate(headers):
        if row["ip_version"] == 0:
            yield Packet(ip=False, time=int(batch.timestamp[at]) - START)
            continue
        frame = batch.frame(at)
        place, size = (12, 4) if row["ip_version"] == 4 else (8, 16)
        start = int(row["l3"]) + place
        fragment = None
        if row["flags"] & FRAGMENT:
            fragment = Fragment(int(row["fragment_id"]), 1 if row["flags"] & LATER_FRAGMENT else 0)
        yield Packet(
            source=str(ipaddress.ip_address(frame[start : start + size])),
            destination=str(ipaddress.ip_address(frame[start + size : start + 2 * size])),
            source_port=int(row["source_port"]),
            destination_port=int(row["destination_port"]),
            protocol=int(row["protocol"]),
            flags=int(row["tcp_flags"]),
            seq=int(row["seq"]),
            ack=int(row["ack"]),
            payload=int(row["payload_length"]),
            vlan=None if row["vlan"] == NO_VLAN else int(row["vlan"]),
            inner_vlan=None if row["inner_vlan"] == NO_VLAN else int(row["inner_vlan"]),
            fragment=fragment,
            time=int(batch.timestamp[at]) - START,
            port=int(batch.port[at]),
            transport=bool(row["l4"]),
            size=int(batch.wire[at]),
        )


@pytest.mark.skipif(not CAPTURES.is_dir(), reason="no shared captures here")
def test_real_captures_agree_with_the_reference():
    frames = 0
    for path in sorted(CAPTURES.glob("*.pcap")):
        table, reference = FlowTable(1 << 16), ReferenceTable()
        with open_captures([path]) as source:
            for batch in source:
                headers = decode(batch)
                tracking = table.track(batch, headers)
                agree_on_frames(table, tracking, [reference.frame(p) for p in packets_of(batch, headers)])
                frames += len(batch)
        table.close()
        reference.close()
        agree_on_ended(table, reference)
    assert frames > 1000


@pytest.mark.skipif("NUMBA_BOUNDSCHECK" in os.environ, reason="this is the run with bounds checks")
def test_the_same_holds_with_bounds_checks():
    environment = dict(os.environ, NUMBA_BOUNDSCHECK="1", FLOW_EXAMPLES="25")
    command = [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider", str(Path(__file__).parent)]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout[-4000:]


def test_the_reference_record_has_every_field_of_a_flow():
    fields = {name for name in FLOW.names if name not in ("flags", "state")}
    table = FlowTable(16)
    table.track(*batch_of([]))
    assert fields == set(records(np.zeros(1, FLOW))[0])
