"""The contract tests of NIC models: counting to the frame, spreading by flow, and an exact flow table."""

from collections.abc import Mapping
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from flowshunt.action import HOST, TRANSMIT, OffloadAction
from flowshunt.contracts import check_nic_model
from flowshunt.errors import FlowshuntError
from flowshunt.flows.record import FLOW, EndReason
from flowshunt.insn import R0, mov64_imm
from flowshunt.nic import ALREADY_LEARNED, LEARNED, NOT_OFFLOADED, TABLE_FULL, Delivery, Nic, NicConfig, NicModel
from flowshunt.packets.batch import FrameBatch
from flowshunt.packets.headers import HEADER
from flowshunt.testing.claims import Claim, check_column, make_claims, must
from flowshunt.testing.traffic import GAP, Traffic, conversations, hostile, split

DROP = OffloadAction("drop", "discard the frame", lambda _parameters: (mov64_imm(R0, 0),))
"""An action for tests in an installation that has none."""

HOUR = 3_600_000_000_000
"""In ns: longer than any NIC's timeout for an idle flow."""


@attrs.frozen
class NicCase:
    """A NIC model, and the actions that it may be opened with."""

    model: NicModel
    actions: Mapping[str, OffloadAction]

    def open(self, **config: Any) -> Nic:
        """The NIC, opened with all actions."""
        return self.model.open(NicConfig(actions=self.actions, **config))

    @property
    def has_table(self) -> bool:
        """Whether it can learn flows."""
        return self.model.flow_table_capacity > 0

    @property
    def action(self) -> tuple[str, dict[str, int]]:
        """An action that the model can carry out, and valid parameters: dropping, where it can."""
        can = self.model.actions
        names = [name for name in sorted(self.actions, key=lambda n: n != "drop") if can is None or name in can]
        must(names, f"the model has a flow table, but none of its actions {sorted(can or ())} is installed")
        chosen = self.actions[names[0]]
        return names[0], {p.name: p.minimum if p.default is None else p.default for p in chosen.parameters}


def nic_contract(model: NicModel, actions: Mapping[str, OffloadAction] | None = None) -> tuple[Claim, ...]:
    """The claims that a NIC model must hold. `actions`: to open it with; None: those installed, and dropping."""
    if actions is None:
        from flowshunt.plugins import load_plugins

        actions = {DROP.name: DROP, **load_plugins().actions}
    name = getattr(model, "name", type(model).__name__)
    return make_claims(f"NIC model {name}", NicCase(model, actions), CLAIMS)


def object_holds_the_contract(case: NicCase) -> None:
    """It has every attribute of the contract, of the right type and in range."""
    check_nic_model(case.model)


def opens_with_any_number_of_host_buffers(case: NicCase) -> None:
    """It opens with 1, its default and its most host buffers, uses no other, and refuses 0 and one too many."""
    most = case.model.host_buffers
    for count in (1, None, most):
        delivery = _receive(case.open(host_buffers=count), conversations().frames)
        limit = most if count is None else count
        must(delivery.host_buffer.max(initial=0) < limit, f"with {limit} host buffers, frames went to another one")
    for count in (0, most + 1):
        try:
            case.open(host_buffers=count).close()
        except FlowshuntError:
            continue
        raise AssertionError(f"it opened with {count} host buffers; it has 1 to {most}")


def every_frame_is_accounted_once(case: NicCase) -> None:
    """Of every batch each frame is delivered or withheld, once, in order, and the counters add up."""
    nic = case.open()
    frames = conversations().frames
    for part in split(frames, 4):
        _receive(nic, part)
    _check_statistics(nic, frames)
    nic.close()


def both_directions_share_a_host_buffer(case: NicCase) -> None:
    """All frames of a flow, both directions, reach the same host buffer; many flows spread over several."""
    traffic = conversations(200)
    nic = case.open()
    delivery = _receive(nic, traffic.frames)
    owner = traffic.owner[delivery.rows]
    for number in range(len(traffic.conversations)):
        used = np.unique(delivery.host_buffer[owner == number])
        must(len(used) == 1, f"{traffic.conversations[number]} went to the host buffers {used.tolist()}")
    if len(nic.statistics().host_buffer_frames) > 1:
        used = np.unique(delivery.host_buffer[owner >= 0])
        must(len(used) > 1, "200 flows all went to one host buffer of several")
    nic.close()


def batches_may_be_cut_anywhere(case: NicCase) -> None:
    """The same frames in one batch or in many get the same host buffers and dispositions."""
    frames = conversations().frames
    whole = _receive(case.open(), frames)
    nic = case.open()
    parts = [_receive(nic, part) for part in split(frames, 37)]
    must(np.array_equal(whole.host_buffer, np.concatenate([p.host_buffer for p in parts])), "host buffers differ")
    must(np.array_equal(whole.disposition, np.concatenate([p.disposition for p in parts])), "dispositions differ")


def an_empty_batch_is_nothing(case: NicCase) -> None:
    """A batch of no frames is received and counts nothing."""
    nic = case.open()
    must(len(_receive(nic, FrameBatch.empty()).rows) == 0, "it delivered a frame of an empty batch")
    must(nic.statistics().frames == 0, "it counted a frame of an empty batch")
    must(len(nic.close()) == 0, "it has records without a flow")


def hostile_frames_are_only_frames(case: NicCase) -> None:
    """Cut off, random and lying frames raise nothing and are counted like others."""
    nic = case.open()
    frames = hostile()
    for part in split(frames, 5):
        _receive(nic, part)
    _check_statistics(nic, frames)
    nic.ended(int(frames.timestamp[-1]))
    nic.close()


def layer_offsets_are_those_of_the_decoder(case: NicCase) -> None:
    """Where the card hands layer offsets over, they are what the host's decoder would find."""
    from flowshunt.packets.decode import decode

    frames = conversations().frames
    delivery = _receive(case.open(), frames)
    if delivery.headers is not None:
        expected = decode(frames.select(delivery.rows))
        for field in ("l3", "l4", "payload", "payload_length", "protocol", "source_port", "destination_port", "vlan"):
            must(np.array_equal(delivery.headers[field], expected[field]), f"{field} differs from the decoder's")


def learns_or_refuses_each_flow(case: NicCase) -> None:
    """`learn` answers for each flow, and the counters of asked, learned and refused flows add up."""
    nic = case.open()
    flows = conversations().flows
    name, parameters = case.action if case.has_table else ("drop", {})
    status = _learn(nic, flows, name, parameters)
    if case.has_table:
        must((status == LEARNED).all(), f"{int((status != LEARNED).sum())} of 60 flows were refused by an empty table")
    else:
        must(not np.isin(status, (LEARNED, ALREADY_LEARNED)).any(), "it learned a flow, but has no flow table")
    counts = nic.statistics()
    learned = int((status == LEARNED).sum())
    must(counts.flows_asked == len(flows), f"flows_asked is {counts.flows_asked}, asked were {len(flows)}")
    must(counts.flows_learned == learned, f"flows_learned is {counts.flows_learned}, learned were {learned}")
    refused = sum(counts.flows_refused.values())
    must(refused == len(flows) - learned, f"flows_refused adds up to {refused}, refused were {len(flows) - learned}")
    must(counts.active_flows == learned, f"active_flows is {counts.active_flows}, learned were {learned}")
    must(len(nic.learn(flows[:0], name, parameters)) == 0, "learning no flows must give an empty answer")
    nic.close()


def a_flow_learned_again_is_known(case: NicCase) -> None:
    """Learning a flow that is in the table says so, and makes no second entry."""
    if not case.has_table:
        return
    nic = case.open()
    flows = conversations().flows
    _learn(nic, flows, *case.action)
    status = _learn(nic, flows, *case.action)
    must((status == ALREADY_LEARNED).all(), "a flow that was in the table was not ALREADY_LEARNED")
    must(nic.statistics().active_flows == len(flows), "a flow is in the table twice")
    must(len(nic.close()) == len(flows), "close must give one record a flow")


def only_learned_flows_get_the_action(case: NicCase) -> None:
    """After `learn`, exactly the frames of those flows carry the action, in both directions."""
    if not case.has_table:
        return
    traffic = conversations(whole=False)
    chosen = np.arange(0, len(traffic.flows), 2)
    nic = case.open()
    must((_receive(nic, traffic.frames).action == 0).all(), "frames carry an action before any flow was learned")
    _learn(nic, traffic.flows[chosen], *case.action)
    delivery = _receive(nic, _later(traffic.frames))
    expected = np.isin(traffic.owner, chosen)
    must(np.array_equal(delivery.action != 0, expected), "the action was taken on other frames than the flows'")
    if case.action[0] == "drop":
        must((delivery.disposition[expected] == 0).all(), "frames of dropped flows were delivered or sent")
    must((delivery.disposition[~expected] == HOST).all(), "frames of other flows were not delivered")
    named = nic.statistics().by_action.get(case.action[0])
    size = int(traffic.frames.wire[expected].sum(dtype=np.int64))
    must(named == (int(expected.sum()), size), f"by_action[{case.action[0]!r}] is {named}")
    nic.close()


def records_count_to_the_frame(case: NicCase) -> None:
    """A learned flow's record has exactly the packets and bytes that came after, in each direction."""
    if not case.has_table:
        return
    traffic = conversations(whole=False)
    nic = case.open()
    _receive(nic, traffic.frames)
    _learn(nic, traffic.flows, *case.action)
    later = _later(traffic.frames)
    for part in split(later, 3):
        _receive(nic, part)
    records = nic.close()
    _check_records(records, traffic, later)
    must((records["end_reason"] == EndReason.SHUTDOWN).all(), "flows that end with the run must say SHUTDOWN")


def unlearned_flows_leave_with_their_record(case: NicCase) -> None:
    """An unlearned flow ends with its exact record, once; its frames reach the host again; unknown ids do no harm."""
    if not case.has_table:
        return
    traffic = conversations(whole=False)
    nic = case.open()
    _learn(nic, traffic.flows, *case.action)
    _receive(nic, traffic.frames)
    now = int(traffic.frames.timestamp[-1])
    must(len(nic.ended(now)) == 0, "flows ended that were just in use")
    nic.unlearn(np.array([1 << 60], np.uint64))
    nic.unlearn(traffic.flows["id"])
    records = nic.ended(now)
    _check_records(records, traffic, traffic.frames)
    must((records["end_reason"] == EndReason.UNLEARNED).all(), "flows that were unlearned must say UNLEARNED")
    must(len(nic.ended(now)) == 0, "a flow ended twice")
    must(nic.statistics().active_flows == 0, "unlearned flows are still counted as active")
    must((_receive(nic, _later(traffic.frames)).action == 0).all(), "an unlearned flow still has its action")
    must(len(nic.close()) == 0, "a flow that was unlearned ended again at close")


def idle_flows_age_out(case: NicCase) -> None:
    """A flow that is idle for an hour leaves the table with its exact record and the reason TIMEOUT."""
    if not case.has_table:
        return
    traffic = conversations(whole=False)
    nic = case.open()
    _learn(nic, traffic.flows, *case.action)
    _receive(nic, traffic.frames)
    records = nic.ended(int(traffic.frames.timestamp[-1]) + HOUR)
    _check_records(records, traffic, traffic.frames)
    must((records["end_reason"] == EndReason.TIMEOUT).all(), "flows that idled out must say TIMEOUT")
    must(len(nic.close()) == 0, "a flow that idled out ended again at close")


def a_full_table_refuses(case: NicCase) -> None:
    """With room for few flows it keeps no more than that, and says TABLE_FULL for the rest."""
    if not case.has_table:
        return
    room = 16
    nic = case.open(flow_capacity=room)
    flows = conversations(200).flows
    status = _learn(nic, flows, *case.action)
    learned = int((status == LEARNED).sum())
    must(0 < learned <= room, f"a table of {room} flows learned {learned}")
    must(np.isin(status, (LEARNED, TABLE_FULL)).all(), "a flow that found no room was not TABLE_FULL")
    must(nic.statistics().active_flows == learned, "active_flows is not the number of learned flows")
    must(sum(nic.statistics().flows_refused.values()) == len(flows) - learned, "flows_refused does not add up")
    must(len(nic.close()) == learned, "close must give one record for each flow that was learned")


CLAIMS = (
    object_holds_the_contract,
    opens_with_any_number_of_host_buffers,
    every_frame_is_accounted_once,
    both_directions_share_a_host_buffer,
    batches_may_be_cut_anywhere,
    an_empty_batch_is_nothing,
    hostile_frames_are_only_frames,
    layer_offsets_are_those_of_the_decoder,
    learns_or_refuses_each_flow,
    a_flow_learned_again_is_known,
    only_learned_flows_get_the_action,
    records_count_to_the_frame,
    unlearned_flows_leave_with_their_record,
    idle_flows_age_out,
    a_full_table_refuses,
)


def _receive(nic: Nic, frames: FrameBatch) -> Delivery:
    """Receive a batch, and check the form of the answer."""
    delivery = nic.receive(frames)
    must(isinstance(delivery, Delivery), f"receive returned {type(delivery).__name__}, not a Delivery")
    count, rows = len(frames), delivery.rows
    check_column("rows", rows, np.int64, None)
    check_column("host_buffer", delivery.host_buffer, np.uint16, len(rows))
    check_column("disposition", delivery.disposition, np.uint8, count)
    check_column("action", delivery.action, np.uint8, count)
    if delivery.headers is not None:
        check_column("headers", delivery.headers, HEADER, len(rows))
    if delivery.captured is not None:
        check_column("captured", delivery.captured, np.uint32, len(rows))
        must((delivery.captured <= frames.captured[rows]).all(), "more bytes are delivered than were captured")
    must(
        not (delivery.disposition & ~np.uint8(HOST | TRANSMIT)).any(), "a disposition has bits beside HOST and TRANSMIT"
    )
    expected = np.flatnonzero(delivery.disposition & HOST)
    must(np.array_equal(rows, expected), "rows are not the frames whose disposition has HOST, in order, each once")
    buffers = len(nic.statistics().host_buffer_frames)
    must(delivery.host_buffer.max(initial=0) < max(buffers, 1), f"a host buffer is outside 0 to {buffers - 1}")
    return delivery


def _check_statistics(nic: Nic, frames: FrameBatch) -> None:
    """The counters after exactly these frames."""
    counts = nic.statistics()
    size = int(frames.wire.sum(dtype=np.int64))
    must(counts.frames == len(frames), f"frames is {counts.frames}, {len(frames)} came in")
    must(counts.bytes == size, f"bytes is {counts.bytes}, {size} came in")
    must(counts.frames == counts.delivered + counts.withheld, "frames is not delivered + withheld")
    must(counts.bytes == counts.delivered_bytes + counts.withheld_bytes, "bytes is not delivered + withheld")
    must(sum(counts.host_buffer_frames) == counts.delivered, "the host buffers' frames are not those delivered")
    must(sum(counts.host_buffer_bytes) == counts.delivered_bytes, "the host buffers' bytes are not those delivered")


def _learn(nic: Nic, flows: NDArray[Any], action: str, parameters: Mapping[str, int]) -> NDArray[np.uint8]:
    status = nic.learn(flows, action, parameters)
    check_column("learn's answer", status, np.uint8, len(flows))
    known = (LEARNED, TABLE_FULL, NOT_OFFLOADED, ALREADY_LEARNED)
    must(np.isin(status, known).all(), f"learn's answer has values beside {known}")
    return status


def _check_records(records: NDArray[Any], traffic: Traffic, frames: FrameBatch) -> None:
    """One record for every conversation, with exactly the packets and bytes of these frames."""
    check_column("records", records, FLOW, len(traffic.flows))
    must(len(np.unique(records["id"])) == len(records), "a flow has two records")
    for record in records:
        number = int(record["id"]) - 1
        must(0 <= number < len(traffic.flows), f"a record has the id {number + 1}, which was never learned")
        for direction in (0, 1):
            rows = (traffic.owner == number) & (traffic.direction == direction)
            packets, size = int(rows.sum()), int(frames.wire[rows].sum(dtype=np.int64))
            found = int(record["packets"][direction]), int(record["bytes"][direction])
            must(
                found == (packets, size),
                f"{traffic.conversations[number]}, direction {direction}: the record has {found[0]} packets and "
                f"{found[1]} bytes, {packets} and {size} came in",
            )


def _later(frames: FrameBatch) -> FrameBatch:
    """The same frames once more, after the last."""
    shift = GAP * len(frames)
    return attrs.evolve(frames, timestamp=frames.timestamp + shift, first=frames.first + len(frames))
