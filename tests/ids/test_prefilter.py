"""The prefilter and the groups: no rule is missed that a plain comparison finds."""

from pathlib import Path

import numpy as np
import pytest
from conversation import udp
from hypothesis import given, settings
from hypothesis import strategies as st
from replay import inspect

from flowshunt_ids.encoding import MIN_PATTERN, Pattern, choose_pattern
from flowshunt_ids.inspection import InspectionCounters, PayloadMatcher
from flowshunt_ids.prefilter import Prefilter
from flowshunt_ids.rules.classification import Classification
from flowshunt_ids.rules.loader import build_rule
from flowshunt_ids.rules.variables import Variables

WORDS = ["abc", "bca", "abcab", "cab", "ABC", "aBc", "zzz", "ab", "c", "|00 01 02|", "|00|", "|ff 00 ff|"]
PORTS = ["any", "80", "[80,90]", "!80", "1000:"]


@st.composite
def rule_texts(draw):
    count = draw(st.integers(1, 12))
    texts = []
    for sid in range(1, count + 1):
        parts = []
        for _ in range(draw(st.integers(1, 2))):
            part = f'content:{draw(st.sampled_from(["", "", "", "!"]))}"{draw(st.sampled_from(WORDS))}"'
            parts.append(part + draw(st.sampled_from(["", "; nocase", "; offset:1", "; distance:0"])))
        port = draw(st.sampled_from(PORTS))
        texts.append(f"alert udp any any -> any {port} ({'; '.join(parts)}; sid:{sid};)")
    return texts


PAYLOADS = st.lists(
    st.tuples(
        st.lists(
            st.sampled_from([b"abc", b"ABC", b"ca", b"b", b"\0", b"\0\1\2", b"\xff\0\xff", b"zz"]), max_size=8
        ).map(b"".join),
        st.sampled_from([80, 90, 5000]),
    ),
    max_size=12,
)


@given(rule_texts(), PAYLOADS)
@settings(max_examples=60, deadline=None)
def test_it_finds_what_a_plain_comparison_finds(texts, payloads):
    rules = [build_rule(text, Variables(), Classification())[0] for text in texts]
    expected = set()
    for number, (payload, port) in enumerate(payloads, 1):
        for rule in rules:
            inside = any(low <= port <= high for low, high in rule.header.destination_ports.ports)
            if inside and payload and PayloadMatcher(rule.payload, InspectionCounters()).matches(payload):
                expected.add((number, rule.signature.sid))
    frames = [udp(payload, dport=port, sport=2000 + at) for at, (payload, port) in enumerate(payloads)]
    assert set(inspect(frames, texts, settings={"packet-alert-max": "100"}).numbered()) == expected


def rule(options):
    return build_rule(f"alert udp any any -> any any ({options}; sid:1;)", Variables(), Classification())[0]


@pytest.mark.parametrize(
    ("options", "pattern"),
    [
        ('content:"GET "; content:"/xQz9|ff|"', Pattern(b"/xQz9\xff", False)),
        ('content:"GET "; fast_pattern; content:"/xQz9|ff|"', Pattern(b"GET ", False)),
        ('content:"abcdef"; fast_pattern:2,3', Pattern(b"cde", False)),
        ('content:"ABC"; nocase', Pattern(b"abc", True)),
        ('content:!"abcdef"', None),
        ('content:"ab"', None),
        ('content:"|00 00 00 00|"', None),
        ('pcre:"/abcdef/"', None),
    ],
)
def test_the_pattern_of_a_rule(options, pattern):
    assert MIN_PATTERN == 3
    assert choose_pattern(rule(options).payload) == pattern


def scan(folder, text):
    rules = [rule('content:"needle"'), rule('content:"PIN|00|"; nocase')]
    made = Prefilter(rules, [choose_pattern(one.payload) for one in rules])
    return len(made.databases[made.classes.datagram - 1].scan(np.frombuffer(text, np.uint8)))


def stored(folder: Path):
    return list(folder.glob("*.hsdb"))


def test_databases_are_cached_and_a_damaged_cache_is_made_anew(tmp_path, monkeypatch):
    monkeypatch.setenv("FLOWSHUNT_CACHE", str(tmp_path))
    text = b"..needle.." + b"pin\0" + b"needl"
    assert scan(tmp_path, text) == 2
    (path,) = stored(tmp_path)
    whole = path.read_bytes()
    assert scan(tmp_path, text) == 2
    assert path.read_bytes() == whole
    for damaged in (b"", whole[:100], whole[:50] + b"\0\1\2" + whole[53:], b"x" * 4000):
        path.write_bytes(damaged)
        assert scan(tmp_path, text) == 2
        assert path.read_bytes() == whole
    assert stored(tmp_path) == [path]


def test_a_cache_that_cant_be_written_does_no_harm(tmp_path, monkeypatch):
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setattr("flowshunt_ids.prefilter.cache_folder", lambda: blocked / "below")
    assert scan(tmp_path, b"needle") == 1
