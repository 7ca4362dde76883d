"""Rule sets in the cache: what comes back is what was put in, and damage is noticed."""

import contextlib

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowshunt_ids.rules import loader, store
from flowshunt_ids.rules.classification import Classification
from flowshunt_ids.rules.loader import load_rules
from flowshunt_ids.rules.variables import Variables

RULES = r"""
alert tcp $HOME_NET any -> !$HOME_NET 1:1024 (msg:"a \"b\" é"; content:"|00 ff|x"; nocase; offset:3; \
    pcre:"/a\xff/Ri"; byte_extract:1,0,v; content:"b"; distance:v; metadata:k v, k w; reference:cve,1; \
    threshold:type limit,track by_src,count 1,seconds 5; classtype:trojan-activity; sid:1; rev:2;)
pass udp any any <> [2001:db8::/32,10.0.0.0/8,!10.1.0.0/16] any (flowbits:set,a; flowint:one,+,1; flowint:two,==,2; \
    xbits:set,x,track ip_pair; sid:2;)
alert ip any any -> any any (ipv4.hdr; to_sha256; content:"a"; bsize:32; stream_size:both,>,5; sid:3;)
drop icmp any any -> any any (itype:8; icode:!0; tag:session; sid:4;)
alert tcp any any -> any any (mqtt.topic; sid:5;)
"""


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FLOWSHUNT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(loader, "MIN_CACHED", 0)
    return tmp_path / "cache"


def load(tmp_path, text=RULES, variables=None):
    path = tmp_path / "test.rules"
    path.write_text(text)
    return load_rules([path], variables or Variables(), Classification())


def values(loaded):
    return [attrs.asdict(rule) for rule in loaded.rules], loaded.problems, loaded.warnings


def test_a_second_load_gives_the_same_without_reading_the_rules(tmp_path, cache, monkeypatch):
    first = load(tmp_path)
    assert [rule.signature.sid for rule in first.rules] == [2, 4, 1, 3]
    monkeypatch.setattr(loader, "build_rule", None)
    second = load(tmp_path)
    assert values(second) == values(first)
    assert second.rules[0].header.action is first.rules[0].header.action
    assert second.rules[0].scope is first.rules[0].scope
    assert second.rules[0].header.destination.negated


def test_other_rules_variables_or_keywords_are_other_sets(tmp_path, cache):
    load(tmp_path)
    load(tmp_path, RULES + "\n")
    load(tmp_path, variables=Variables({"HOME_NET": "10.0.0.0/8"}))
    assert len(list(cache.glob("rules-*.json"))) == 3


@pytest.mark.parametrize("damage", [lambda data: data[:-9], lambda data: data[:40] + b"x" + data[41:], lambda _: b""])
def test_a_damaged_file_is_made_anew(tmp_path, cache, damage):
    first = load(tmp_path)
    (path,) = cache.glob("rules-*.json")
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    assert values(load(tmp_path)) == values(first)
    assert path.read_bytes() == whole


def test_sets_of_values_are_read_each_time(tmp_path, cache):
    (tmp_path / "hosts").write_text("10.0.0.1\n")
    load(tmp_path, "alert ip any any -> any any (ip.src; dataset:isset,h,type ipv4,load hosts; sid:1;)\n")
    assert not list(cache.glob("rules-*.json"))


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20) | st.binary(max_size=20),
    lambda inner: (
        st.tuples(inner, inner) | st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=10,
)


@given(PLAIN)
def test_plain_data_comes_back_as_it_was(value):
    assert store.load(store.dump(value)) == value


@given(st.binary(max_size=300))
def test_any_bytes_are_a_rule_set_or_an_error(data):
    with contextlib.suppress(ValueError):
        store.load(data)


def test_stored_data_names_no_class_outside_the_list():
    with pytest.raises(ValueError, match="not a stored rule set"):
        store.load(b'[[["Path",["a"]]],[[0,1]],[4,0]]')
    with pytest.raises(TypeError):
        store.dump(object())
