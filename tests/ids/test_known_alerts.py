"""Captures with Suricata 7.0.10's alerts, for the rules that this engine supports."""

import json

import pytest
from replay import replay

BETTER = {
    "1d1f5d38167f": "`<=`, `>=` and `!=` hold with `prefilter` too; Suricata 7.0.10 finds nothing by them then",
}
OTHER = {
    "00a5d0f188e1": "data connections of FTP are not parsed yet",
    "5e5b76c9d581": "an ICMP error is not yet counted to the flow that it is about",
    "ddd1efcb86c3": "HTTP/2 is not parsed",
}


def cases(shared):
    return json.loads((shared / "alerts.json").read_text())


def answer(shared, case):
    found = replay([shared / case["pcap"]], [shared / case["rules"]], config=shared / "suricata.yaml", bypass=False)
    return {str(sid): count for sid, count in found.counts().items()}, found.summary


def test_cases_whose_rules_are_all_supported_agree(shared):
    agree, differ = [], {}
    for case in cases(shared):
        got, summary = answer(shared, case)
        if summary.skipped:
            continue
        if got == case["alerts"]:
            agree.append(case["id"])
        elif case["id"] not in BETTER | OTHER:
            differ[case["id"]] = (case["alerts"], got)
    assert differ == {}
    assert len(agree) >= 50


def test_rules_that_are_not_supported_never_alert(shared):
    for case in cases(shared):
        got, summary = answer(shared, case)
        # A rule that asks for another version may stand beside one of the same sid for this one.
        skipped = {str(problem.sid) for problem in summary.skipped if not problem.reason.startswith("requires:")}
        assert not skipped & got.keys(), case["id"]
        if not summary.loaded:
            assert got == {}


def test_emerging_threats_alerts_of_supported_rules_agree(shared):
    from replay import Run

    from flowshunt.engine import EngineConfig
    from flowshunt.packets.capture import open_captures
    from flowshunt_ids.ruleset import load_rule_set
    from flowshunt_ids.session import Session

    rule_set = load_rule_set(EngineConfig((shared / "et-open-2019.rules",), shared / "suricata.yaml", bypass=False))
    loaded = {str(rule.signature.sid) for rule in rule_set.loaded.rules}
    assert len(loaded) > 3900
    assert all(problem.reason and problem.sid for problem in rule_set.loaded.problems)
    expected = json.loads((shared / "et-alerts.json").read_text())
    planted = 0
    for name, alerts in expected.items():
        run = Run([])
        run.session = Session(rule_set, 1 << 14)
        with open_captures([str(shared / "pcaps" / name)]) as source:
            for batch in source:
                run.give(batch)
        wanted = {sid: count for sid, count in alerts.items() if sid in loaded}
        planted += len(wanted)
        assert {str(sid): count for sid, count in run.close().counts().items()} == wanted, name
    assert planted >= 10


@pytest.mark.parametrize("batch_frames", [1, 5])
def test_batches_make_no_difference(shared, batch_frames):
    for case in cases(shared)[::7]:
        capture, rules = shared / case["pcap"], shared / case["rules"]
        if capture.stat().st_size > 200_000:
            continue
        whole = replay([capture], [rules], config=shared / "suricata.yaml", bypass=False)
        cut = replay([capture], [rules], config=shared / "suricata.yaml", bypass=False, batch_frames=batch_frames)
        assert cut.numbered() == whole.numbered(), case["id"]
