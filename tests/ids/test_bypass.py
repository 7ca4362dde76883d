"""Bypass: which flows, from which frame on, by whose wish, and what it costs."""

import sys

import numpy as np
import pytest
from conversation import Conversation, udp
from replay import Run, ethernet_batch, inspect

from flowshunt.engine import DROPPED, INSPECTED, SKIPPED

SHUNT = 'drop tcp any any -> any ![80,20,21,23,25,53,67,68] (msg:"shunt"; noalert; bypass; sid:1;)'


def talk(dport=443):
    return Conversation(dport=dport).handshake().send(0, b"hello").send(1, b"hello").finish().frames


def test_the_rest_of_a_flow_is_skipped_from_the_match_on():
    found = inspect(talk(), [SHUNT])
    assert found.dispositions() == [DROPPED] + [SKIPPED] * (len(talk()) - 1)
    assert list(found.causes.values()) == ["rule sid 1"]
    verdicts = found.verdicts[0]
    assert len(verdicts.bypass_slot) == 1
    assert verdicts.requests[verdicts.bypass_request[0]].action == "drop"


def test_other_rules_see_the_frame_that_bypasses_and_none_after_it():
    rules = [
        SHUNT,
        "alert tcp any any -> any any (flow:to_server; sid:2;)",
        'alert tcp any any -> any any (content:"hello"; sid:3;)',
    ]
    assert inspect(talk(), rules).numbered() == [(1, 2)]


def test_a_flow_that_is_not_bypassed_is_inspected():
    found = inspect(talk(80), ["drop tcp any ![80] -> any ![80] (noalert; bypass; sid:1;)"])
    assert set(found.dispositions()) == {INSPECTED}
    assert not found.causes


def test_the_action_is_a_setting():
    found = inspect(talk(), [SHUNT], settings={"bypass-action": "forward"})
    assert [request.action for request in found.verdicts[0].requests] == ["forward"]


@pytest.mark.parametrize("batch", [1, 4096])
def test_a_content_that_bypasses(batch):
    rules = [
        'alert tcp-pkt any any -> any any (content:"hello"; bypass; sid:1;)',
        "alert tcp any any -> any any (flow:to_server; sid:2;)",
    ]
    found = inspect(talk(), rules, batch=batch)
    assert found.numbered() == [(1, 2), (3, 2), (4, 1), (4, 2)]
    dispositions = found.dispositions()
    assert dispositions[:4] == [INSPECTED] * 4
    assert set(dispositions[4:]) <= {SKIPPED}


def test_pass_with_bypass_silences_the_flow():
    rules = ["pass ip any any <> 10.0.0.2 any (bypass; sid:1;)", "alert tcp any any -> any any (sid:2;)"]
    found = inspect(talk(), rules)
    assert found.numbered() == []
    assert found.dispositions() == [INSPECTED] + [SKIPPED] * (len(talk()) - 1)


def test_without_bypass_every_frame_is_inspected():
    rules = [
        SHUNT,
        "pass ip any any <> 10.0.0.2 any (bypass; sid:4;)",
        "alert tcp any any -> any any (flow:to_server; sid:2;)",
        'alert tcp any any -> any any (content:"hello"; bypass; sid:3;)',
    ]
    found = inspect(talk(), rules, bypass=False)
    assert set(found.dispositions()) == {INSPECTED}
    assert not found.causes
    assert found.counts() == {2: 6, 3: 2}


def test_a_flow_whose_depth_is_reached_is_bypassed():
    conversation = Conversation().handshake()
    for _ in range(10):
        conversation.send(0, b"q" * 1000)
    rules = ['alert tcp any any -> any any (flow:to_server; content:"hello"; sid:1;)']
    settings = {"stream.bypass": "yes", "stream.reassembly.depth": "4kb"}
    found = inspect(conversation.frames, rules, settings=settings)
    assert list(found.causes.values()) == ["stream depth"]
    assert found.dispositions().count(SKIPPED) == len(conversation.frames) - 12
    assert not inspect(conversation.frames, rules, settings=settings, bypass=False).causes


def test_a_slot_that_is_used_again_is_inspected_anew():
    run_frames = [*talk(), *talk(80)]
    rules = ["drop tcp any any -> any 443 (noalert; bypass; sid:1;)", "alert tcp any any -> any 80 (sid:2;)"]
    assert inspect(run_frames, rules, batch=1).numbered() == [(len(talk()) + 1, 2)]


def python_calls(run, batch):
    count = 0

    def count_call(_frame, event, _argument):
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(count_call)
    try:
        run.session.inspect(batch)
    finally:
        sys.setprofile(None)
    return count


def inspection_batch(run, frames):
    from flowshunt.engine import InspectionBatch
    from flowshunt.packets.decode import decode

    batch = ethernet_batch(frames)
    headers = decode(batch)
    tracking = run.table.track(batch, headers)
    return InspectionBatch(
        batch, headers, tracking.slot, tracking.direction, tracking.events, run.table.records, run.table.drain().slots
    )


@pytest.mark.parametrize(
    "rules",
    [
        [SHUNT],
        [
            'alert udp any any -> any any (content:"needle"; sid:1;)',
            'alert tcp any any -> any any (content:"x"; sid:2;)',
        ],
        ["alert tcp any any -> any any (flags:SF; sid:1;)", "alert tcp any any -> any any (ttl:<3; sid:2;)"],
    ],
    ids=["bypassed at once", "no candidates", "no packet matches"],
)
def test_frames_cost_no_python(tmp_path, rules):
    path = tmp_path / "a.rules"
    path.write_text("\n".join(rules))

    def frames(count):
        made = []
        for at in range(count):
            host = f"10.{at >> 8}.{at & 255}.1"
            made += Conversation(client=host).handshake().send(0, b"abcdefgh").frames
            made.append(udp(b"abcdefgh", source=host))
        return made

    calls = []
    for count in (10, 1000):
        run = Run([path])
        run.session.inspect(inspection_batch(run, frames(2)))
        calls.append(python_calls(run, inspection_batch(run, frames(count))))
    assert calls[1] - calls[0] < 100


def test_verdicts_name_no_slot_twice(tmp_path):
    rules = [
        'alert udp any any -> any any (content:"a"; bypass; sid:1;)',
        'alert udp any any -> any any (content:"b"; bypass; sid:2;)',
    ]
    found = inspect([udp(b"ab", sport=port) for port in (1, 2, 1, 2, 3)], rules)
    slots = found.verdicts[0].bypass_slot
    assert len(slots) == 3 == len(np.unique(slots))
    assert found.dispositions() == [INSPECTED, INSPECTED, SKIPPED, SKIPPED, INSPECTED]
    assert found.counts() == {1: 3, 2: 3}
