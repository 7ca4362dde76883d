"""The standard NIC: every frame reaches the host, spread by the symmetric Toeplitz hash; nothing is offloaded."""

import numpy as np
import pytest

from flowshunt.errors import CapabilityError
from flowshunt.nic import NOT_OFFLOADED, NicConfig
from flowshunt.testing.traffic import conversations, hostile
from flowshunt_nic_generic.model import XL710


def test_every_frame_reaches_the_host_undecoded():
    traffic = conversations(40)
    delivery = XL710.open(NicConfig()).receive(traffic.frames)
    assert delivery.rows.tolist() == list(range(len(traffic.frames)))
    assert delivery.headers is None


def test_both_directions_share_a_queue_and_flows_spread():
    traffic = conversations(200)
    delivery = XL710.open(NicConfig(host_buffers=8)).receive(traffic.frames)
    queue = {}
    for owner, number in zip(traffic.owner.tolist(), delivery.host_buffer.tolist(), strict=True):
        if owner >= 0:
            assert queue.setdefault(owner, number) == number
    assert len(set(queue.values())) == 8


def test_a_flow_is_refused_because_there_is_no_table():
    nic = XL710.open(NicConfig())
    flows = conversations(5).flows
    assert nic.learn(flows, "drop", {}).tolist() == [NOT_OFFLOADED] * 5
    assert dict(nic.statistics().flows_refused) == {"no flow table": 5}


def test_hostile_frames_are_counted_once():
    frames = hostile()
    nic = XL710.open(NicConfig())
    nic.receive(frames)
    statistics = nic.statistics()
    assert statistics.frames == statistics.delivered == len(frames)
    assert statistics.bytes == int(frames.wire.sum(dtype=np.int64))


def test_more_queues_than_it_has_are_refused():
    with pytest.raises(CapabilityError, match="1 to 64 receive queues, not 65"):
        XL710.open(NicConfig(host_buffers=65))
