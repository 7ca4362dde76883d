"""A sample of any size is made in the memory that its open flows take."""

import tracemalloc

import pytest

from flowshunt.packets.sample import schedule as schedule_module
from flowshunt.packets.sample import write_sample
from flowshunt.packets.sample.pools import Pools
from flowshunt.packets.sample.schedule import Schedule

POOLS = Pools.from_seed(1)


def run(flows, rate):
    schedule = Schedule(flows, 1, rate, 0, POOLS)
    tracemalloc.start()
    frames = sum(1 for _ in schedule.run(lambda flow: None))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return schedule, frames, peak


def test_memory_does_not_grow_with_the_number_of_flows():
    run(100, 100.0)  # templates are made once
    few, few_frames, few_peak = run(200, 8.0)
    many, many_frames, many_peak = run(800, 8.0)
    assert many_frames > 3 * few_frames
    assert many.most_open < 2.5 * few.most_open
    assert many_peak < 2 * few_peak


def test_open_flows_are_limited(monkeypatch):
    monkeypatch.setattr(schedule_module, "OPEN_LIMIT", 20)
    schedule = Schedule(300, 1, 1e6, 0, POOLS)
    last = frames = 0
    ended = []
    for (time, *_), _flow in schedule.run(ended.append):
        assert time >= last
        last = time
        frames += 1
    assert schedule.most_open == 20
    assert len(ended) == 300
    assert frames == sum(flow.frames for flow in ended)


def test_size_grows_in_step_with_the_flows(tmp_path):
    sizes = [write_sample(tmp_path / "x.pcap", flows=flows).file_bytes for flows in (500, 1000, 2000)]
    assert sizes[1] / sizes[0] == pytest.approx(2, rel=0.15)
    assert sizes[2] / sizes[1] == pytest.approx(2, rel=0.1)
