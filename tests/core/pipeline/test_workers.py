"""Several workers find what one finds, and say what is lost where one of them is killed."""

import json
import multiprocessing
import os
import struct
from pathlib import Path

import numpy as np
import pytest

from flowshunt.errors import InputError
from flowshunt.output.eve import EveWriter
from flowshunt.packets.sample import write_sample
from flowshunt.pipeline.mode import BypassMode
from flowshunt.pipeline.run import RunConfig, run
from flowshunt.pipeline.shares import Share
from flowshunt.plugins import engine, load_plugins, nic_model

SHARED = Path(os.environ.get("FLOWSHUNT_SHARED", Path(__file__).parents[4] / "shared"))


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    path = tmp_path_factory.mktemp("workers") / "sample.pcap"
    write_sample(path, flows=300, seed=4)
    return path, Path(f"{path}.rules")


def config(captures, rules, workers=1, mode=BypassMode.OFF, **more):
    return RunConfig(
        captures=tuple(map(str, captures)),
        model=nic_model("xl710"),
        engine=engine("ids"),
        mode=mode,
        actions=load_plugins().actions,
        rules=(rules,),
        workers=workers,
        **more,
    )


def events(path, settings, progress=None):
    writer = EveWriter(str(path), ("alert", "flow"))
    result = run(settings, writer, progress)
    writer.finish(result)
    found = [json.loads(line) for line in path.read_text().splitlines()]
    alerts = [event for event in found if event["event_type"] == "alert"]
    flows = sorted((event["flow_id"], json.dumps(event["flow"])) for event in found if event["event_type"] == "flow")
    return result, alerts, flows


@pytest.mark.parametrize("mode", list(BypassMode))
def test_workers_find_what_one_process_finds_in_the_same_order(sample, tmp_path, mode):
    capture, rules = sample
    one, alerts, flows = events(tmp_path / "1.json", config([capture], rules, mode=mode))
    assert alerts
    for workers in (2, 3):
        settings = config([capture], rules, workers, mode)
        result, more_alerts, more_flows = events(tmp_path / f"{workers}.json", settings)
        assert more_alerts == alerts
        assert more_flows == flows
        for field in ("total", "inspected", "dropped", "bypassed_host", "bypassed_nic", "flows", "alerts"):
            assert getattr(result, field) == getattr(one, field), field
        assert result.complete


@pytest.mark.skipif(not (SHARED / "data" / "pcaps").is_dir(), reason="no captures")
def test_workers_agree_on_real_captures(tmp_path):
    captures = sorted((SHARED / "data" / "pcaps").glob("*.pcap"))[:40:4]
    rules = tmp_path / "all.rules"
    rules.write_text(
        "alert ip any any -> any any (sid:1;)\n"
        'alert tcp any any -> any any (content:"HTTP"; sid:2;)\n'
        "alert tcp any any -> any any (flags:S; threshold: type limit, track by_src, count 3, seconds 60; sid:3;)\n"
        "alert udp any any -> any 53 (flowbits:set,asked; sid:4;)\n"
    )
    _, alerts, flows = events(tmp_path / "1.json", config(captures, rules, burst=256))
    assert alerts
    _, again, more_flows = events(tmp_path / "3.json", config(captures, rules, 3, burst=256))
    assert again == alerts
    assert more_flows == flows


def write(path, frames):
    records = b"".join(struct.pack("<IIII", 1_700_000_000, at, len(f), len(f)) + f for at, f in enumerate(frames))
    path.write_bytes(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1) + records)
    return path


def udp(source, destination):
    body = struct.pack(">HHHH", 1000, 2000, 12, 0) + b"data"
    header = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + len(body), 1, 0, 64, 17, 0, source, destination)
    return bytes(12) + b"\x08\0" + header + body


def test_limits_count_the_matches_of_all_workers(tmp_path):
    frames = [udp(bytes((10, 0, 0, 1)), bytes((10, 1, 0, number))) for number in range(1, 60)]
    capture = write(tmp_path / "a.pcap", frames)
    rules = tmp_path / "a.rules"
    rules.write_text(
        "alert udp any any -> any any (dsize:>1; threshold: type limit, track by_src, count 5, seconds 60; sid:1;)\n"
    )
    _, alerts, _ = events(tmp_path / "1.json", config([capture], rules))
    _, shared, _ = events(tmp_path / "3.json", config([capture], rules, 3))
    assert len(alerts) == 5
    assert shared == alerts


def test_rules_that_keep_state_across_hosts_leave_the_work_to_one(tmp_path):
    frames = [udp(bytes((10, 0, 0, 1)), bytes((10, 1, 0, number))) for number in range(1, 20)]
    rules = tmp_path / "a.rules"
    rules.write_text("alert udp any any -> any any (dsize:>1; xbits:set,seen,track ip_src; sid:7;)\n")
    result, alerts, _ = events(tmp_path / "2.json", config([write(tmp_path / "a.pcap", frames)], rules, 2))
    assert len(alerts) == 19
    assert any("one worker does all the work" in warning and "rule 7" in warning for warning in result.warnings)


def test_a_killed_worker_is_named_with_what_is_lost_and_the_rest_is_reported(sample, tmp_path):
    capture, rules = sample
    calls = []

    def kill_one(_done, _total):
        calls.append(1)
        if len(calls) == 1:  # a worker waits when its answers are not read: it can't be done with all bursts yet
            multiprocessing.active_children()[1].kill()

    result, alerts, _ = events(tmp_path / "e.json", config([capture], rules, 3, burst=4), kill_one)
    assert not result.complete
    (problem,) = result.problems
    assert "of 3 was killed by signal 9 (SIGKILL): its share of frames" in problem
    assert "was not inspected" in problem
    assert alerts
    assert len(calls) > 1


def test_standard_input_is_not_shared(sample):
    with pytest.raises(InputError, match="can't be shared"):
        run(config(["-"], sample[1], 2))


def test_every_frame_is_in_one_share_and_both_ways_in_the_same(sample):
    from flowshunt.packets.capture import open_captures

    with open_captures([str(sample[0])]) as source:
        batch = next(iter(source))
        rows = [Share(number, 3).rows(batch) for number in range(3)]
        assert sorted(np.concatenate(rows).tolist()) == list(range(len(batch)))
        assert all(len(share) > len(batch) // 10 for share in rows)
