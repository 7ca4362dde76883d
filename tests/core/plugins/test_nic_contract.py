"""The NIC contract tests pass for the NICs that are installed, and fail for NICs with one fault each."""

from types import SimpleNamespace

import attrs
import numpy as np
import pytest

from flowshunt.flows.record import EndReason
from flowshunt.nic import LEARNED, NicConfig
from flowshunt.plugins import load_plugins
from flowshunt.testing import examine, nic_contract


@pytest.mark.parametrize("name", load_plugins().nic_models)
def test_installed_models_keep_the_contract(name):
    failed = [outcome for outcome in examine(nic_contract(load_plugins().nic_models[name])) if not outcome.passed]
    assert failed == []


class Spoiled:
    """An open NIC with one method spoiled."""

    def __init__(self, nic, method, spoil):
        self._nic, self._method, self._spoil = nic, method, spoil

    def __getattr__(self, name):
        method = getattr(self._nic, name)
        if name != self._method:
            return method
        return lambda *arguments: self._spoil(self._nic, method, *arguments)


MODEL_FIELDS = (
    "name",
    "summary",
    "ports",
    "line_rate",
    "memory",
    "flow_table_capacity",
    "host_buffers",
    "zero_copy",
    "actions",
)


def failing_claims(method, spoil, name="nt200a02"):
    model = load_plugins().nic_models[name]
    spoiled = SimpleNamespace(
        **{field: getattr(model, field) for field in MODEL_FIELDS},
        open=lambda config: Spoiled(model.open(config), method, spoil),
    )
    return {outcome.claim.name for outcome in examine(nic_contract(spoiled)) if not outcome.passed}


def edit_delivery(**edits):
    def spoil(nic, receive, batch):
        delivery = receive(batch)
        return attrs.evolve(delivery, **{name: edit(getattr(delivery, name)) for name, edit in edits.items()})

    return spoil


def receive_twice(nic, receive, batch):
    receive(batch)
    return receive(batch)


def lose_a_frame(nic, receive, batch):
    return receive(batch.select(slice(0, max(len(batch) - 1, 0))))


def hash_one_way(nic, receive, batch):
    """Spread by the frame's own bytes, so that the two directions part."""
    delivery = receive(batch)
    first = [batch.frame(row)[-1:] + batch.frame(row)[26:34] for row in delivery.rows.tolist()]
    buffers = len(nic.statistics().host_buffer_frames)
    return attrs.evolve(delivery, host_buffer=np.array([sum(f) % buffers for f in first], np.uint16))


def fail_on_short_frames(nic, receive, batch):
    if (batch.captured < 14).any():
        raise IndexError("short frame")
    return receive(batch)


def edit_statistics(**edits):
    def spoil(nic, statistics):
        counts = statistics()
        return attrs.evolve(counts, **{name: edit(getattr(counts, name)) for name, edit in edits.items()})

    return spoil


def edit_records(edit):
    def spoil(nic, method, *arguments):
        records = method(*arguments).copy()
        edit(records)
        return records

    return spoil


def one_packet_more(records):
    records["packets"][:1, 0] += 1


def swap_directions(records):
    records["bytes"] = records["bytes"][:, ::-1].copy()


def say_timeout(records):
    records["end_reason"] = EndReason.TIMEOUT


def act_on_nothing(nic, receive, batch):
    delivery = receive(batch)
    return attrs.evolve(delivery, action=np.zeros_like(delivery.action))


FAULTS = {
    "rows of another type": (
        "receive",
        edit_delivery(rows=lambda c: c.astype(np.int32)),
        "every-frame-is-accounted-once",
    ),
    "rows out of order": ("receive", edit_delivery(rows=lambda c: c[::-1]), "every-frame-is-accounted-once"),
    "a host buffer too far": (
        "receive",
        edit_delivery(host_buffer=lambda c: c + np.uint16(128)),
        "opens-with-any-number-of-host-buffers",
    ),
    "a disposition with another bit": (
        "receive",
        edit_delivery(disposition=lambda c: c | np.uint8(4)),
        "every-frame-is-accounted-once",
    ),
    "frames counted twice": ("receive", receive_twice, "every-frame-is-accounted-once"),
    "a frame lost": ("receive", lose_a_frame, "every-frame-is-accounted-once"),
    "bytes that don't add up": (
        "statistics",
        edit_statistics(withheld_bytes=lambda v: v + 1),
        "every-frame-is-accounted-once",
    ),
    "everything in one host buffer": (
        "receive",
        edit_delivery(host_buffer=np.zeros_like),
        "both-directions-share-a-host-buffer",
    ),
    "directions part": ("receive", hash_one_way, "both-directions-share-a-host-buffer"),
    "short frames raise": ("receive", fail_on_short_frames, "hostile-frames-are-only-frames"),
    "flows learned are not counted": (
        "statistics",
        edit_statistics(flows_learned=lambda v: 0),
        "learns-or-refuses-each-flow",
    ),
    "learning says yes to all": (
        "learn",
        lambda nic, learn, flows, *how: np.full(len(learn(flows, *how)), LEARNED, np.uint8),
        "a-full-table-refuses",
    ),
    "learning does nothing": (
        "learn",
        lambda nic, learn, flows, *how: np.full(len(flows), LEARNED, np.uint8),
        "records-count-to-the-frame",
    ),
    "the action is not said": ("receive", act_on_nothing, "only-learned-flows-get-the-action"),
    "a packet too many in the last records": ("close", edit_records(one_packet_more), "records-count-to-the-frame"),
    "directions swapped in records": ("close", edit_records(swap_directions), "records-count-to-the-frame"),
    "a packet too many in a record": (
        "ended",
        edit_records(one_packet_more),
        "unlearned-flows-leave-with-their-record",
    ),
    "the wrong reason": ("ended", edit_records(say_timeout), "unlearned-flows-leave-with-their-record"),
    "unlearning does nothing": ("unlearn", lambda nic, unlearn, ids: None, "unlearned-flows-leave-with-their-record"),
    "flows never age": ("ended", lambda nic, ended, now: ended(0), "idle-flows-age-out"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_fails_the_claim_that_it_breaks(fault):
    method, spoil, claim = FAULTS[fault]
    assert claim in failing_claims(method, spoil)


def test_a_nic_without_a_flow_table_that_claims_to_learn_is_caught():
    spoil = lambda nic, learn, flows, *how: np.full(len(flows), LEARNED, np.uint8)  # noqa: E731
    assert failing_claims("learn", spoil, "xl710") == {"learns-or-refuses-each-flow"}


def test_a_model_that_opens_with_too_many_host_buffers_is_caught():
    model = load_plugins().nic_models["xl710"]
    generous = SimpleNamespace(
        **{field: getattr(model, field) for field in MODEL_FIELDS},
        open=lambda config: model.open(
            NicConfig(host_buffers=None if config.host_buffers is None else min(max(config.host_buffers, 1), 64))
        ),
    )
    failed = {outcome.claim.name for outcome in examine(nic_contract(generous)) if not outcome.passed}
    assert failed == {"opens-with-any-number-of-host-buffers"}
