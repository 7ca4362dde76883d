"""The SmartNIC: what it matches, does, counts, refuses and reports."""

import attrs
import numpy as np
import pytest

from flowshunt.action import DESCRIPTOR, HOST, TRANSMIT, OffloadAction
from flowshunt.errors import CapabilityError
from flowshunt.flows.record import EndReason
from flowshunt.insn import DW, R0, R1, R2, R3, alu64_imm, jmp_imm, ldx, mov64_imm, st, stx
from flowshunt.insn import opcodes as op
from flowshunt.nic import ALREADY_LEARNED, LEARNED, NOT_OFFLOADED, TABLE_FULL, NicConfig
from flowshunt.testing.traffic import ACK, FIN, RST, Conversation, batch, conversations
from flowshunt_nic_napatech.model import NT50B01, NT200A02
from flowshunt_offload_actions.actions import ACTIONS

DELIVER = DESCRIPTOR.fields["deliver"][1]


def _one_in(parameters):
    """Deliver every Nth frame of a flow, drop the rest: an action that keeps state."""
    return (
        ldx(DW, R3, R2, 0),
        mov64_imm(R0, HOST),
        jmp_imm(op.JEQ, R3, 0, 1),
        mov64_imm(R0, 0),
        alu64_imm(op.ADD, R3, 1),
        alu64_imm(op.MOD, R3, parameters["n"]),
        stx(DW, R2, R3, 0),
    )


def _slice(parameters):
    return (st(op.W, R1, DELIVER, parameters["length"]), mov64_imm(R0, HOST))


def _mirror(parameters):
    return (st(op.H, R1, DESCRIPTOR.fields["tx_port"][1], parameters["port"]), mov64_imm(R0, HOST | TRANSMIT))


def _any_parameter(name):
    from flowshunt.action import Parameter

    return (Parameter(name, name, 0, 65535),)


EXTRA = (
    OffloadAction("one_in", "sample", _one_in, _any_parameter("n")),
    OffloadAction("slice", "cut", _slice, _any_parameter("length")),
    OffloadAction("mirror", "copy", _mirror, _any_parameter("port")),
)


def _open(model=NT200A02, **config):
    return model.open(NicConfig(actions={a.name: a for a in (*ACTIONS, *EXTRA)}, **config))


TCP = Conversation(b"\x0a\0\0\1", b"\xc0\xa8\0\1", 4000, 443)
UDP = Conversation(b"\x20\x01\x0d\xb8" + b"\0" * 11 + b"\1", b"\x20\x01\x0d\xb8" + b"\0" * 11 + b"\2", 5000, 53, 17)


def _frames(conversation, *directions, payload=b"x" * 40):
    return batch([conversation.frame(direction, payload) for direction in directions])


def test_frames_of_no_entry_reach_the_host_with_layer_offsets():
    delivery = _open().receive(_frames(TCP, 0, 1))
    assert delivery.rows.tolist() == [0, 1]
    assert delivery.headers["l4"].tolist() == [34, 34]
    assert delivery.disposition.tolist() == [HOST, HOST]


def test_a_learned_flow_is_dropped_in_both_directions_and_others_are_not():
    card = _open()
    assert card.learn(TCP.record(9), "drop", {}).tolist() == [LEARNED]
    mixed = batch([TCP.frame(0), UDP.frame(0), TCP.frame(1), UDP.frame(1)])
    delivery = card.receive(mixed)
    assert delivery.rows.tolist() == [1, 3]
    assert delivery.disposition.tolist() == [0, HOST, 0, HOST]
    statistics = card.statistics()
    assert statistics.by_action["drop"] == (2, int(mixed.wire[[0, 2]].sum()))
    assert (statistics.delivered, statistics.withheld, statistics.active_flows) == (2, 2, 1)


def test_the_record_of_an_ended_flow_counts_both_directions():
    card = _open()
    card.learn(UDP.record(77), "drop", {})
    frames = _frames(UDP, 0, 1, 1)
    card.receive(frames)
    card.unlearn(np.array([77, 12345], np.uint64))
    (record,) = card.ended(int(frames.timestamp[-1]))
    assert record["id"] == 77
    assert record["packets"].tolist() == [1, 2]
    assert record["bytes"].tolist() == [int(frames.wire[0]), int(frames.wire[1:].sum())]
    assert record["end_reason"] == EndReason.UNLEARNED
    assert card.receive(_frames(UDP, 0)).rows.tolist() == [0]


@pytest.mark.parametrize("last", [[(0, RST)], [(0, FIN | ACK), (1, FIN | ACK), (0, ACK)]], ids=["reset", "closed"])
def test_a_tcp_flow_unlearns_itself_at_its_end(last):
    card = _open()
    card.learn(TCP.record(5), "drop", {})
    seq = [1000, 2000]
    frames = []
    for direction, flags in last:
        frames.append(TCP.frame(direction, flags=flags, seq=seq[direction], ack=seq[1 - direction]))
        seq[direction] += flags & FIN
    burst = batch(frames)
    assert card.receive(burst).rows.tolist() == []
    (record,) = card.ended(int(burst.timestamp[-1]))
    assert record["end_reason"] == EndReason.TCP_END
    assert int(record["packets"].sum()) == len(last)
    assert card.statistics().active_flows == 0


def test_an_idle_flow_ages_out():
    card = _open()
    card.learn(UDP.record(3), "drop", {})
    frames = _frames(UDP, 0)
    card.receive(frames)
    last = int(frames.timestamp[-1])
    assert len(card.ended(last + 99 * 10**9)) == 0
    (record,) = card.ended(last + 102 * 10**9)
    assert record["end_reason"] == EndReason.TIMEOUT


def test_forward_goes_to_the_peer_port_and_not_to_the_host():
    card = _open()
    card.learn(TCP.record(1), "forward", {})
    delivery = card.receive(_frames(TCP, 0, 1))
    assert delivery.rows.tolist() == []
    assert delivery.disposition.tolist() == [TRANSMIT, TRANSMIT]


def test_redirect_delivers_to_the_host_buffer_asked_for():
    card = _open(host_buffers=16)
    card.learn(TCP.record(1), "redirect", {"host_buffer": 13})
    delivery = card.receive(_frames(TCP, 0, 1))
    assert delivery.host_buffer.tolist() == [13, 13]
    assert delivery.action[0] == delivery.action[1] != 0


def test_an_action_that_keeps_state_counts_per_flow_through_bursts():
    card = _open()
    card.learn(np.concatenate([TCP.record(1), UDP.record(2)]), "one_in", {"n": 3})
    kept = []
    for _ in range(2):
        burst = batch([c.frame(0) for _ in range(4) for c in (TCP, UDP)])
        kept.append(card.receive(burst).rows.tolist())
    assert kept == [[0, 1, 6, 7], [4, 5]]


def test_slicing_delivers_no_more_than_asked():
    card = _open()
    card.learn(TCP.record(1), "slice", {"length": 64})
    delivery = card.receive(_frames(TCP, 0, payload=b"y" * 500))
    assert delivery.captured.tolist() == [64]


def test_mirroring_delivers_and_transmits():
    card = _open()
    card.learn(TCP.record(1), "mirror", {"port": 1})
    delivery = card.receive(_frames(TCP, 0))
    assert delivery.rows.tolist() == [0]
    assert delivery.disposition.tolist() == [HOST | TRANSMIT]


@pytest.mark.parametrize(
    ("action", "parameters", "cause"),
    [
        ("vanish", {}, "no action vanish"),
        ("redirect", {"host_buffer": 100}, "no host buffer 100"),
        ("forward", {"port": 7}, "no port 7"),
        ("redirect", {}, "action redirect needs host_buffer (the host buffer to deliver to)"),
    ],
)
def test_what_the_card_cannot_do_is_refused_with_the_cause(action, parameters, cause):
    card = _open()
    assert card.learn(TCP.record(1), action, parameters).tolist() == [NOT_OFFLOADED]
    statistics = card.statistics()
    assert dict(statistics.flows_refused) == {cause: 1}
    assert (statistics.flows_asked, statistics.flows_learned) == (1, 0)


def test_a_full_table_refuses_new_flows_and_keeps_the_old_ones():
    card = _open(flow_capacity=10)
    flows = conversations(30).flows
    status = card.learn(flows, "drop", {})
    assert (status == LEARNED).sum() == 10
    assert (status == TABLE_FULL).sum() == 20
    assert dict(card.statistics().flows_refused) == {"table full": 20}


def test_learning_again_changes_the_action_and_keeps_the_counters():
    card = _open()
    card.learn(TCP.record(1), "drop", {})
    card.receive(_frames(TCP, 0))
    assert card.learn(TCP.record(1), "redirect", {"host_buffer": 0}).tolist() == [ALREADY_LEARNED]
    assert card.receive(_frames(TCP, 0)).rows.tolist() == [0]
    (record,) = card.close()
    assert record["packets"].tolist() == [2, 0]
    assert record["end_reason"] == EndReason.SHUTDOWN


@pytest.mark.parametrize("count", [1, 3, 128])
def test_both_directions_share_a_host_buffer(count):
    traffic = conversations(80)
    delivery = _open(host_buffers=count).receive(traffic.frames)
    by_flow = {}
    for owner, buffer in zip(traffic.owner.tolist(), delivery.host_buffer.tolist(), strict=True):
        if owner >= 0:
            assert by_flow.setdefault(owner, buffer) == buffer
    assert max(delivery.host_buffer) < count
    assert count == 1 or len(set(by_flow.values())) > 1


@pytest.mark.parametrize("model", [NT200A02, NT50B01], ids=lambda m: m.name)
def test_limits_are_stated_when_they_are_passed(model):
    with pytest.raises(CapabilityError, match="128 host buffers, not 129"):
        _open(model, host_buffers=129)
    with pytest.raises(CapabilityError, match=f"{model.flow_table_capacity:,} flows"):
        _open(model, flow_capacity=model.flow_table_capacity + 1)


def test_capacity_is_that_of_the_data_sheet():
    assert NT200A02.flow_table_capacity == 140_000_000
    assert NT200A02.memory < NT200A02.onboard_memory
    assert NT50B01.memory < NT50B01.onboard_memory
    assert 0 < NT50B01.flow_table_capacity < NT200A02.flow_table_capacity


def test_an_empty_batch_changes_nothing():
    card = _open()
    delivery = card.receive(batch([]))
    assert len(delivery.rows) == 0
    assert card.statistics().frames == 0


def test_frames_cut_off_anywhere_are_counted_and_delivered():
    card = _open()
    card.learn(TCP.record(1), "drop", {})
    whole = TCP.frame(0, b"z" * 20)
    cut = batch([whole[:size] for size in range(len(whole))])
    cut = attrs.evolve(cut, wire=np.full(len(cut), len(whole), np.uint32))
    delivery = card.receive(cut)
    statistics = card.statistics()
    assert statistics.delivered == len(delivery.rows)
    assert statistics.delivered + statistics.withheld == len(cut)
