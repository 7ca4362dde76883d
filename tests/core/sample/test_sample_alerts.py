"""The alerts that a sample's description lists are those that are there, found by trying every rule everywhere."""

import ipaddress
import json

import pytest
from plain_packets import read_packets
from plain_rules import header_matches, payload_matches, read_rules, search

from flowshunt.packets.sample import schedule, write_sample

NAMES = {6: "TCP", 17: "UDP", 1: "ICMP", 58: "IPv6-ICMP"}


def found_alerts(summary, packets):
    rules = read_rules(summary.rules.read_text())
    bypass = [rule for rule in rules if rule.bypasses]
    found = []
    for sid, packet in search(rules, packets):
        (source, source_port), (destination, destination_port) = packet.ends
        found.append(
            {
                "sid": sid,
                "pcap_cnt": packet.number,
                "src_ip": str(ipaddress.ip_address(source)),
                "src_port": source_port,
                "dest_ip": str(ipaddress.ip_address(destination)),
                "dest_port": destination_port,
                "proto": NAMES[packet.protocol],
                "vlan": list(packet.vlans),
                "lost": any(header_matches(rule, packet.ends, packet.protocol) for rule in bypass),
            }
        )
    return found


def described_alerts(summary):
    described = json.loads(summary.alerts.read_text())
    alerts = [
        {"sid": int(sid)} | {name: value for name, value in packet.items() if name != "timestamp"}
        for sid, entry in described["alerts"].items()
        for packet in entry["packets"]
    ]
    return sorted(alerts, key=lambda alert: (alert["pcap_cnt"], alert["sid"]))


def test_described_alerts_are_those_that_a_plain_search_finds(sample, packets):
    assert found_alerts(sample, packets) == described_alerts(sample)


@pytest.mark.parametrize(("flows", "seed"), [(250, 5), (40, 0)])
def test_described_alerts_are_right_in_other_samples(tmp_path, flows, seed):
    summary = write_sample(tmp_path / "other.pcap", flows=flows, seed=seed)
    described = described_alerts(summary)
    assert described
    assert found_alerts(summary, read_packets(summary.capture)) == described


def test_counts_sum_up_the_described_packets(sample):
    described = json.loads(sample.alerts.read_text())["alerts"]
    assert all(entry["count"] == len(entry["packets"]) for entry in described.values())
    assert all(entry["lost_to_bypass"] == sum(p["lost"] for p in entry["packets"]) for entry in described.values())
    assert sum(entry["count"] for entry in described.values()) == len(sample.planted) >= 40


def test_every_rule_is_described_as_alerting_or_never(sample):
    described = json.loads(sample.alerts.read_text())
    rules = read_rules(sample.rules.read_text())
    assert sorted([*map(int, described["alerts"]), *described["never"]]) == sorted(rule.sid for rule in rules)
    assert {1000181, 1000182, 1000183, 1000184, 1000185} < set(described["never"])


def test_some_alerts_are_lost_to_bypass_and_some_of_one_rule_only_in_part(sample):
    described = json.loads(sample.alerts.read_text())["alerts"].values()
    assert sum(entry["lost_to_bypass"] == entry["count"] for entry in described) >= 5
    assert any(0 < entry["lost_to_bypass"] < entry["count"] for entry in described)
    assert sum(entry["lost_to_bypass"] == 0 for entry in described) >= 25


def test_bypass_rules_come_first_and_name_the_backup_server_and_the_clear_text_ports(sample):
    first, second, *others = read_rules(sample.rules.read_text())
    assert (first.action, first.protocol, first.arrow, first.destination) == ("pass", "ip", "<>", "10.99.0.10")
    assert (second.action, second.protocol) == ("drop", "tcp")
    assert second.source_port == second.destination_port == "![80,20,21,23,25,53,67,68]"
    assert first.bypasses and second.bypasses and not any(rule.bypasses for rule in others)


def test_larger_samples_hold_the_attacks_more_often(tmp_path, monkeypatch):
    monkeypatch.setattr(schedule, "ROUND", 300)
    summary = write_sample(tmp_path / "larger.pcap", flows=600, seed=2)
    counts = json.loads(summary.alerts.read_text())["alerts"]
    assert counts["1000131"]["count"] == 6
    assert counts["1000101"]["count"] == 2


def test_timestamps_are_those_of_the_packets(sample, packets):
    for alert in sample.planted:
        assert packets[alert.frame - 1].time == alert.time


@pytest.mark.parametrize(
    ("options", "data", "expected"),
    [
        ('content:"b"; offset:2; depth:2;', b"aaba", True),
        ('content:"b"; offset:2; depth:1;', b"aaab", False),
        ('content:"a"; content:"b"; distance:1; within:1;', b"axb", True),
        ('content:"a"; content:"b"; distance:1; within:1;', b"ab", False),
        ('content:"a"; content:"b"; distance:0; within:1;', b"axab", True),
        ('content:"A"; nocase; content:!"c"; within:3;', b"xxabcc", False),
        ('content:"x"; startswith; content:"z"; endswith;', b"xyz", True),
        ('content:"|61 62|c"; isdataat:2,relative;', b"abcdef", True),
        ('content:"abc"; isdataat:2,relative;', b"abcd", False),
        ('content:"a"; pcre:"/^b/R";', b"xab", True),
    ],
)
def test_the_plain_search_itself(options, data, expected):
    (rule,) = read_rules(f"alert udp any any -> any any ({options} sid:1;)")
    assert payload_matches(rule.tests, data) is expected
