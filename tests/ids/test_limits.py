"""Thresholds and suppressions, in rules and in threshold files."""

import pytest
from conversation import udp
from replay import inspect

from flowshunt.engine import EngineConfig
from flowshunt_ids.rules.rule import Suppression, Threshold
from flowshunt_ids.rules.threshold_file import read_entries
from flowshunt_ids.ruleset import load_rule_set
from flowshunt_ids.thresholds import ALERT, CHANGED, MAX_ENTRIES, NOTHING, SECOND, SILENT, Thresholds

RULE = 'alert udp any any -> any any (content:"x"; sid:1;)'


def outcomes(threshold, *seconds):
    table = Thresholds()
    return [table.judge(1, threshold, b"", int(second * SECOND)) for second in seconds]


@pytest.mark.parametrize(
    ("threshold", "seconds", "expected"),
    [
        (("limit", 1, 10), (0, 1, 10, 10.1), [ALERT, SILENT, SILENT, ALERT]),
        (("threshold", 2, 10), (0, 1, 2, 3, 11), [NOTHING, ALERT, NOTHING, ALERT, NOTHING]),
        (("threshold", 1, 10), (0, 1), [ALERT, ALERT]),
        (("both", 2, 10), (0, 1, 2, 11, 12), [NOTHING, ALERT, SILENT, NOTHING, ALERT]),
        (("filter", 2, 10), (0, 1, 2, 3, 11, 12), [NOTHING, NOTHING, ALERT, ALERT, NOTHING, NOTHING]),
    ],
)
def test_what_becomes_of_matches_at_these_seconds(threshold, seconds, expected):
    kind, count, period = threshold
    assert outcomes(Threshold(kind, "by_src", count, period), *seconds) == expected


def test_a_rate_filter_holds_for_its_timeout():
    rate = Threshold("rate", "by_src", 2, 10, "drop", 5)
    expected = [ALERT, ALERT, CHANGED, CHANGED, CHANGED, ALERT]
    assert outcomes(rate, 0, 1, 2, 3, 7, 8.5) == expected


def test_the_number_of_counts_is_bounded():
    table = Thresholds()
    for number in range(MAX_ENTRIES + 5):
        table.judge(1, Threshold("limit", "by_src", 1, 1), number.to_bytes(4, "big"), 0)
    assert (len(table), table.forgotten) == (MAX_ENTRIES, 5)


def alerts(tmp_path, lines, rule=RULE, frames=None):
    path = tmp_path / "threshold.config"
    path.write_text(lines)
    found = inspect(frames or [udp(b"x")] * 5, [rule], config=f"threshold-file: {path}\n")
    return [number for number, _sid in found.numbered()], found.summary.warnings


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("suppress gen_id 1, sig_id 1", []),
        ("suppress gen_id 1, sig_id 2", [1, 2, 3, 4, 5]),
        ("suppress gen_id 1, sig_id 1, track by_src, ip 10.0.0.0/24", []),
        ("suppress gen_id 1, sig_id 1, track by_dst, ip 10.0.0.1", [1, 2, 3, 4, 5]),
        ("suppress gen_id 1, sig_id 0, track by_either, ip [10.0.0.2,192.168.0.0/16]", []),
        ("suppress gen_id 1, sig_id 1, track by_src, ip $HOME_NET", []),
        ("event_filter gen_id 1, sig_id 1, type limit, track by_src, count 2, seconds 60", [1, 2]),
        ("threshold gen_id 0, sig_id 0, type both, track by_rule, count 3, seconds 60", [3]),
        ("# nothing\n\nthreshold gen_id 1, sig_id 1, type \\\nlimit, track by_both, count 1, seconds 60", [1]),
    ],
)
def test_entries_of_a_file(tmp_path, lines, expected):
    numbers, warnings = alerts(tmp_path, lines)
    assert numbers == expected
    assert not warnings


def test_an_entry_for_one_rule_takes_the_place_of_its_threshold_and_one_for_all_does_not(tmp_path):
    rule = RULE.replace("sid:1", "threshold:type limit, track by_src, count 3, seconds 60; sid:1")
    assert alerts(tmp_path, "threshold gen_id 1, sig_id 1, type limit, track by_src, count 1, seconds 60", rule)[0] == [
        1
    ]
    wide = "threshold gen_id 1, sig_id 0, type limit, track by_src, count 1, seconds 60"
    assert alerts(tmp_path, wide, rule)[0] == [1, 2, 3]


def test_a_rate_filter_that_drops_a_flow_changes_no_alert_of_a_packet(tmp_path):
    lines = "rate_filter gen_id 1, sig_id 1, track by_src, count 2, seconds 60, new_action pass, timeout 60"
    assert alerts(tmp_path, lines)[0] == [1, 2]


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("suppress gen_id 1, sig_id 1, track by_src", "takes ip, track"),
        ("threshold gen_id 1, sig_id 1, type limit, track by_foo, count 1, seconds 1", "by_foo"),
        ("threshold gen_id 1, sig_id 1, type limit, track by_src, count 0, seconds 1", "count"),
        ("event gen_id 1, sig_id 1", "not an entry"),
        ("suppress gen_id 0, sig_id 7", "gen_id 0"),
        ("suppress gen_id 1, sig_id 1, track by_src, ip 300.1.1.1", "not an address"),
        ("rate_filter gen_id 1, sig_id 1, track by_src, count 1, seconds 1, new_action foo, timeout 1", "new_action"),
    ],
)
def test_a_line_that_cannot_be_used_is_named_and_left_out(line, part):
    entries, warnings = read_entries(f"\n{line}\nsuppress gen_id 1, sig_id 9\n", {}, "file")
    assert [entry.limit for entry in entries] == [Suppression()]
    assert len(warnings) == 1
    assert warnings[0].startswith("file:2: ")
    assert part in warnings[0]


def test_a_threshold_file_that_is_not_there_is_named(tmp_path):
    rules = tmp_path / "a.rules"
    rules.write_text(RULE)
    from flowshunt.errors import InputError

    with pytest.raises(InputError, match="threshold"):
        load_rule_set(EngineConfig((rules,), settings={"threshold-file": str(tmp_path / "none")}))
