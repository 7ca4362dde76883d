"""Datasets: files, what rules add, ratings."""

import base64
import hashlib

import pytest
from conversation import udp, udp6
from replay import Run, ethernet_batch

from flowshunt_ids.datasets import Datasets
from flowshunt_ids.rules.rule import Dataset, DatasetMatch, ReputationMatch


def run(tmp_path, frames, *rules):
    path = tmp_path / "test.rules"
    path.write_text("\n".join(rules))
    found = Run([path])
    found.give(ethernet_batch(frames))
    done = found.close()
    return done.numbered(), done.summary


def test_values_of_a_file_beside_the_rules(tmp_path):
    (tmp_path / "hosts.lst").write_text("10.0.0.1\n\n10.9.9.9\n")
    rules = (
        "alert udp any any -> any any (ip.src; dataset:isset,hosts,type ipv4,load hosts.lst; sid:1;)",
        "alert udp any any -> any any (ip.dst; dataset:isnotset,hosts; sid:2;)",
    )
    frames = [udp(b"a"), udp(b"a", source="10.1.1.1"), udp(b"a", destination="10.9.9.9", source="10.9.9.9")]
    assert run(tmp_path, frames, *rules)[0] == [(1, 1), (1, 2), (2, 2), (3, 1)]


def test_what_is_added_holds_once(tmp_path):
    rule = "alert udp any any -> any any (ip.src; dataset:set,seen,type ipv4; sid:1;)"
    frames = [udp(b"a"), udp(b"a", sport=7), udp(b"a", source="10.0.0.9")]
    assert run(tmp_path, frames, rule)[0] == [(1, 1), (3, 1)]


def test_digests_are_looked_up_after_a_transform(tmp_path):
    frame = udp(b"abc")
    (tmp_path / "md5.lst").write_text(hashlib.md5(frame[34:42]).hexdigest() + "\n")
    rule = "alert udp any any -> any any (udp.hdr; to_md5; dataset:isset,sums,type md5,load md5.lst; sid:1;)"
    assert run(tmp_path, [frame, udp(b"other", sport=9)], rule)[0] == [(1, 1)]


def test_addresses_of_both_versions(tmp_path):
    (tmp_path / "ip.lst").write_text("10.0.0.1\n2001:db8::1\n::ffff:10.0.0.3\n")
    rule = "alert udp any any -> any any (ip.src; dataset:isset,all,type ip,load ip.lst; sid:1;)"
    six = bytes.fromhex("20010db8000000000000000000000001")
    frames = [udp(b"a"), udp6(b"a", source=six, destination=bytes(16)), udp(b"a", source="10.0.0.3")]
    assert run(tmp_path, frames, rule)[0] == [(1, 1), (2, 1), (3, 1)]


def test_ratings(tmp_path):
    (tmp_path / "rated.lst").write_text("10.0.0.1,50\n10.0.0.2,10\n")
    rule = "alert udp any any -> any any (ip.src; datarep:rated,>,20,type ipv4,load rated.lst; sid:1;)"
    frames = [udp(b"a"), udp(b"a", source="10.0.0.2"), udp(b"a", source="10.0.0.3")]
    assert run(tmp_path, frames, rule)[0] == [(1, 1)]


@pytest.mark.parametrize(
    ("kind", "line"),
    [("md5", "zz"), ("md5", "aabb"), ("string", "not base64!"), ("ipv4", "1.2.3"), ("ipv4", "1.2.3.4,x")],
)
def test_a_file_with_something_else_is_named_and_its_rule_left_out(tmp_path, kind, line):
    (tmp_path / "bad.lst").write_text(f"{line}\n")
    rules = (
        f"alert udp any any -> any any (udp.hdr; dataset:isset,bad,type {kind},load bad.lst; sid:1;)",
        'alert udp any any -> any any (content:"a"; sid:2;)',
    )
    numbers, summary = run(tmp_path, [udp(b"a")], *rules)
    assert numbers == [(1, 2)]
    assert [problem.sid for problem in summary.skipped] == [1]
    assert "bad.lst:1" in summary.skipped[0].reason


def test_strings_are_in_base64_in_files(tmp_path):
    path = tmp_path / "strings"
    path.write_text(base64.b64encode(b"evil value").decode() + "\n")
    sets = Datasets()
    dataset = Dataset("strings", "string", str(path))
    assert sets.judge(DatasetMatch("isset", dataset), b"evil value")
    assert not sets.judge(DatasetMatch("isset", dataset), b"evil")
    assert sets.judge(DatasetMatch("unset", dataset), b"evil value")
    assert not sets.judge(DatasetMatch("isset", dataset), b"evil value")
    assert not sets.judge(DatasetMatch("isnotset", dataset), b"")
    assert not sets.judge(ReputationMatch(dataset, "<", 5), b"unknown")


def test_two_rules_that_give_one_name_two_types_do_not_agree(tmp_path):
    rules = (
        "alert udp any any -> any any (ip.src; dataset:set,x,type ipv4; sid:1;)",
        "alert udp any any -> any any (ip.src; dataset:set,x,type md5; sid:2;)",
    )
    _numbers, summary = run(tmp_path, [], *rules)
    assert "x is a set of type ipv4" in summary.skipped[0].reason
