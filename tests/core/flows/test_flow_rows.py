"""Rows of the flow table: capacity, eviction, growth, reuse, and flows that are put in from outside."""

import resource
import sys
from pathlib import Path

import attrs
import numpy as np
import pytest
from flow_frames import RST, SECOND, START, SYN, TCP, UDP, Packet, batch_of, reply, tcp_session
from flow_traffic import relaxed
from hypothesis import given
from hypothesis import strategies as st

from flowshunt.errors import CapabilityError, InputError
from flowshunt.flows.layout import reserve
from flowshunt.flows.record import FLOW, Bypass, EndReason
from flowshunt.flows.table import FULL, INSERTED, PRESENT, UNUSABLE, FlowTable
from flowshunt.packets.headers import NO_VLAN


def udp(number, **changes):
    return Packet(
        protocol=UDP, source=f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", destination="11.0.0.1", **changes
    )


def track(table, *packets):
    return table.track(*batch_of(packets))


def flows(count, first_id=1):
    rows = np.zeros(count, FLOW)
    rows["id"] = np.arange(first_id, first_id + count)
    rows["source"][:, 0] = 10
    rows["source"][:, 1:4] = np.arange(first_id, first_id + count)[:, None] >> [16, 8, 0] & 255
    rows["destination"][:, :4] = [11, 0, 0, 1]
    rows["source_port"] = 40000
    rows["destination_port"] = 443
    rows["vlan"] = rows["inner_vlan"] = NO_VLAN
    rows["protocol"] = UDP
    rows["ip_version"] = 4
    return rows


# Eviction


def full_table(*last):
    """A table of 16 rows that holds 14 flows, which is its limit: 12 UDP ones, then `last`."""
    table = FlowTable(16)
    packets = [udp(number, time=number) for number in range(14 - len({p.source for p in last}))]
    track(table, *packets, *(attrs.evolve(packet, time=100 + at) for at, packet in enumerate(last)))
    assert table.active == 14
    return table


def test_the_least_recently_seen_flow_is_displaced():
    table = full_table(udp(100), udp(101))
    track(table, udp(0, time=200))
    track(table, udp(200, time=300))
    ended = table.drain().records
    assert ended["end_reason"].tolist() == [EndReason.DISPLACED]
    assert ended["source"][0, 3] == 1
    assert table.counters.evicted == 1


def test_a_closed_tcp_flow_is_displaced_first():
    table = full_table(udp(100), Packet(source="10.0.1.1", flags=RST))
    track(table, udp(200, time=300))
    assert table.drain().records["protocol"].tolist() == [TCP]


def test_a_flow_that_a_nic_took_over_is_displaced_last():
    table = full_table(udp(100), udp(101))
    table.bypass(np.arange(13, dtype=np.int32), 1, Bypass.CAPTURE)
    track(table, udp(200, time=300))
    assert table.drain().slots.tolist() == [13]


def test_no_flow_of_the_same_batch_is_displaced():
    table = FlowTable(16)
    tracking = track(table, *(udp(number) for number in range(20)))
    assert tracking.slot.tolist() == [*range(16), -1, -1, -1, -1]
    assert table.counters.overflow == 4
    assert table.counters.evicted == 0


def test_flows_of_earlier_batches_make_room_while_rows_are_left():
    table = full_table(udp(100), udp(101))
    tracking = track(table, *(udp(200 + number, time=300) for number in range(5)))
    assert tracking.slot.tolist() == [14, 15, -1, -1, -1]
    assert table.counters.evicted == 2
    assert table.active == 14


def test_a_table_that_one_batch_has_filled_makes_room_for_the_next_batches():
    table = FlowTable(16)
    track(table, *(udp(number) for number in range(20)))
    without_row = track(table, *(udp(100 + number, time=1) for number in range(20)))
    assert without_row.slot.tolist() == [-1] * 20
    assert table.active == 14
    assert len(table.drain().slots) == 2
    table.drain()  # gives the rows of the one before back
    assert (track(table, udp(200, time=2), udp(201, time=2)).slot >= 0).all()


def test_a_table_that_inserted_flows_have_filled_makes_room_for_the_next_batches():
    table = FlowTable(16)
    table.insert(flows(16), 1)
    assert track(table, udp(100)).slot.tolist() == [-1]
    table.drain()
    table.drain()
    assert track(table, udp(100)).slot.tolist() != [-1]


def test_a_flood_of_new_flows_is_taken_up_as_long_as_the_owner_drains():
    table = FlowTable(8192)
    missed = 0
    for at in range(0, 40000, 256):
        table.drain()
        missed += np.count_nonzero(track(table, *(udp(at + n, time=at) for n in range(256))).slot < 0)
    assert missed == 0
    assert table.active == 8192 - 1024


# Reuse


def test_a_row_rests_from_the_end_of_its_flow_to_the_second_drain():
    table = FlowTable(16)
    track(table, udp(1))
    table.remove(np.array([0], np.int32), EndReason.UNLEARNED)
    assert track(table, udp(2)).slot.tolist() == [1]
    assert table.drain().slots.tolist() == [0]
    assert track(table, udp(3)).slot.tolist() == [2]
    assert track(table, udp(4)).slot.tolist() == [3]
    assert table.drain().slots.tolist() == []
    assert track(table, udp(5)).slot.tolist() == [0]


def test_the_record_of_an_ended_flow_stands_until_its_row_is_used_again():
    table = FlowTable(16)
    track(table, udp(1))
    table.close()
    ended = table.drain()
    track(table, udp(2))
    assert table.records[0] == ended.records[0]
    assert table.records["id"][0] == 1


def counted(packets, size, last):
    """What a NIC hands over of one flow."""
    record = np.zeros(1, FLOW)
    record["packets"], record["bytes"], record["last"] = packets, size, last
    return record


def test_a_new_flow_in_a_used_row_starts_from_nothing():
    table = FlowTable(16)
    slots = track(table, *tcp_session(Packet())).slot[:1]
    table.bypass(slots, 9, Bypass.LOCAL)
    table.records["state"][slots] = 7
    table.account(slots, counted([1, 1], [1, 1], START))
    table.close()
    table.drain()
    table.drain()
    slot = track(table, udp(5, time=5)).slot[0]
    assert slot == slots[0]
    fresh = FlowTable(16, first_id=2)
    track(fresh, udp(5, time=5))
    assert table.records[slot] == fresh.records[0]


def test_ended_flows_come_out_once_in_order():
    table = FlowTable(16)
    track(table, udp(1), udp(2), udp(3))
    assert table.remove(np.array([2, 0, 2, -1, 9, 15], np.int32), EndReason.UNLEARNED) == 2
    table.close()
    ended = table.drain()
    assert ended.slots.tolist() == [2, 0, 1]
    assert ended.records["end_reason"].tolist() == [EndReason.UNLEARNED, EndReason.UNLEARNED, EndReason.SHUTDOWN]
    assert len(table.drain()) == 0


# Growth and memory


def test_a_table_grows_without_moving_its_records():
    table = FlowTable(1 << 17)
    view = table.records
    count = 60000
    table.insert(flows(count), 1)
    assert table.records is view
    assert (table.find(flows(count)) == np.arange(count)).all()
    assert (table.find_ids(flows(count)["id"]) == np.arange(count)).all()
    table.insert(flows(count, first_id=count + 1), 1)
    assert (table.find_ids(np.arange(1, 2 * count + 1, dtype=np.uint64)) == np.arange(2 * count)).all()
    table.remove(np.arange(0, count, 2, dtype=np.int32), EndReason.UNLEARNED)
    found = table.find_ids(np.arange(1, count + 1, dtype=np.uint64))
    assert (found[::2] == -1).all()
    assert (found[1::2] == np.arange(1, count, 2)).all()


@pytest.mark.skipif(sys.platform != "linux", reason="reads the resident size from /proc")
def test_rows_that_are_not_used_take_no_memory():
    def resident():
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

    before = resident()
    table = FlowTable(140_000_000)
    track(table, *(udp(number) for number in range(100)))
    table.expire(START + SECOND)
    table.drain()
    assert resident() - before < 50_000_000


def test_impossible_capacities_are_refused():
    for capacity in (0, 1, -5, 1 << 31):
        with pytest.raises(InputError, match="choose a capacity from 2"):
            FlowTable(capacity)
    with pytest.raises(CapabilityError, match="choose a lower capacity"):
        reserve(FLOW, 1 << 50)


# Flows from outside


def test_inserted_flows_match_both_directions_and_count_from_zero():
    card = FlowTable(64)
    given_flows = flows(3)
    given_flows["packets"] = 7
    slots, status = card.insert(given_flows, 5)
    assert status.tolist() == [INSERTED] * 3
    packet = udp(2)
    tracking = card.match(*batch_of([packet, reply(packet), udp(9)]))
    assert tracking.slot.tolist() == [slots[1], slots[1], -1]
    assert tracking.direction.tolist() == [0, 1, 0]
    record = card.records[slots[1]]
    assert record["packets"].tolist() == [1, 1]
    assert (record["id"], record["action"]) == (2, 5)
    assert card.active == 3


def test_a_flow_that_is_there_takes_the_new_action_and_keeps_its_counters():
    card = FlowTable(64)
    slots, _ = card.insert(flows(1), 5)
    card.match(*batch_of([udp(1)]))
    again, status = card.insert(flows(1), 6)
    assert (again.tolist(), status.tolist()) == (slots.tolist(), [PRESENT])
    assert card.records["action"][slots[0]] == 6
    assert card.records["packets"][slots[0]].tolist() == [1, 0]


def test_the_same_flow_twice_in_one_call_is_reported():
    _, status = FlowTable(64).insert(np.concatenate([flows(1), flows(1)]), 5)
    assert status.tolist() == [INSERTED, PRESENT]


def test_another_id_for_the_same_key_ends_the_flow_that_was_there():
    card = FlowTable(64)
    card.insert(flows(1), 5)
    card.match(*batch_of([udp(1)]))
    renamed = flows(1)
    renamed["id"] = 99
    _, status = card.insert(renamed, 5)
    ended = card.drain().records
    assert status.tolist() == [INSERTED]
    assert (ended["id"][0], ended["end_reason"][0], ended["packets"][0, 0]) == (1, EndReason.UNLEARNED, 1)
    assert card.find_ids(np.array([1, 99], np.uint64)).tolist() == [-1, 1]


def test_a_full_card_refuses_and_displaces_nothing():
    card = FlowTable(4)
    slots, status = card.insert(flows(6), 1)
    assert status.tolist() == [INSERTED] * 4 + [FULL] * 2
    assert slots.tolist() == [0, 1, 2, 3, -1, -1]
    assert len(card.drain()) == 0


def test_unlearned_rows_can_be_learned_at_once_and_no_record_is_lost():
    card = FlowTable(4)
    card.insert(flows(4), 1)
    card.remove(np.array([1, 3], np.int32), EndReason.UNLEARNED)
    _, status = card.insert(flows(3, first_id=10), 1)
    assert status.tolist() == [INSERTED, INSERTED, FULL]
    card.close()
    ended = card.drain()
    assert ended.records["id"].tolist()[:2] == [2, 4]
    assert sorted(ended.records["id"].tolist()) == [1, 2, 3, 4, 10, 11]
    assert len(ended.slots) == 6


def test_records_without_an_id_or_an_ip_version_are_refused():
    bad = flows(3)
    bad["id"][0] = 0
    bad["ip_version"][1] = 5
    _, status = FlowTable(64).insert(bad, 1)
    assert status.tolist() == [UNUSABLE, UNUSABLE, INSERTED]


def test_a_tcp_flow_leaves_the_card_with_the_frame_that_ends_it():
    session = tcp_session(Packet())
    host = FlowTable(16)
    slot = track(host, *session[:3]).slot[:1]
    card = FlowTable(16)
    card.insert(host.records[slot], 1)
    tracking = card.match(*batch_of([*session[3:], session[3]]), tcp_auto_unlearn=True)
    assert tracking.slot.tolist() == [0, 0, 0, 0, 0, -1]
    record = card.drain().records[0]
    assert record["end_reason"] == EndReason.TCP_END
    assert record["packets"].tolist() == [3, 2]


def test_without_auto_unlearn_a_closed_flow_stays_until_the_next_syn():
    session = tcp_session(Packet())
    card = FlowTable(16)
    host = FlowTable(16)
    card.insert(host.records[track(host, *session[:3]).slot[:1]], 1)
    again = attrs.evolve(session[0], flags=SYN)
    tracking = card.match(*batch_of([*session[3:], session[3], again]), tcp_auto_unlearn=False)
    assert tracking.slot.tolist() == [0, 0, 0, 0, 0, 0, -1]


def test_a_fin_that_was_seen_before_the_flow_was_learned_counts():
    session = tcp_session(Packet())
    host, card = FlowTable(16), FlowTable(16)
    card.insert(host.records[track(host, *session[:6]).slot[:1]], 1)
    assert card.match(*batch_of([*session[6:], session[7]])).slot.tolist() == [0, 0, -1]
    assert card.drain().records["end_reason"].tolist() == [EndReason.TCP_END]


def test_flows_inserted_before_the_first_frame_count_their_timeout_from_it():
    card = FlowTable(16)
    card.insert(flows(1), 1)
    assert card.match(*batch_of([udp(7), udp(1, time=29 * SECOND)])).slot.tolist() == [-1, 0]
    card.expire(START + 90 * SECOND)
    assert card.drain().records["end_reason"].tolist() == [EndReason.TIMEOUT]


def test_what_a_nic_counted_is_added_to_totals_and_to_the_bypassed_part():
    table = FlowTable(16)
    slots = track(table, udp(1), udp(2)).slot
    before = table.records["bytes"][0].tolist()
    given_slots = np.array([slots[0], -1, 9], np.int32)
    others = counted([9, 9], [900, 900], START + 5 * SECOND)
    own = counted([2, 3], [200, 300], START + 5 * SECOND)
    table.account(given_slots, np.concatenate([own, others, others]))
    record = table.records[slots[0]]
    assert record["packets"].tolist() == [3, 3]
    assert record["bytes"].tolist() == [before[0] + 200, 300]
    assert record["bypassed_packets"].tolist() == [2, 3]
    assert record["bypassed_bytes"].tolist() == [200, 300]
    assert record["last"] == START + 5 * SECOND
    table.account(slots[:1], counted([2, 3], [2, 3], START))
    assert table.records[slots[0]]["last"] == START + 5 * SECOND
    assert not table.records[2:]["packets"].any()


def test_ids_start_where_asked_and_are_never_used_twice():
    table = FlowTable(16, first_id=1000)
    for _ in range(3):
        track(table, udp(1))
        table.close()
    assert table.drain().records["id"].tolist() == [1000, 1001, 1002]


@relaxed
@given(
    st.lists(st.tuples(st.sampled_from(["insert", "remove", "unlearn", "drain"]), st.integers(1, 30)), max_size=60),
    st.integers(2, 12),
)
def test_a_card_under_changes_is_like_a_dictionary(steps, capacity):
    card = FlowTable(capacity, seed=3)
    model = {}
    gone = []
    for step, number in steps:
        if step == "insert":
            _, status = card.insert(flows(1, first_id=number), 1)
            expected = PRESENT if number in model else INSERTED if len(model) < capacity else FULL
            assert status[0] == expected
            if expected == INSERTED:
                model[number] = True
        elif step == "remove":
            slots = card.find(flows(1, first_id=number))
            assert (slots[0] >= 0) == (number in model)
            card.remove(slots, EndReason.UNLEARNED)
            if model.pop(number, None):
                gone.append(number)
        elif step == "unlearn":
            card.remove(card.find_ids(np.array([number], np.uint64)), EndReason.UNLEARNED)
            if model.pop(number, None):
                gone.append(number)
        else:
            assert card.drain().records["id"].tolist() == gone
            gone = []
        assert card.active == len(model)
