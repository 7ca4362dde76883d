"""Transforms of buffers."""

import hashlib

import pytest
from conversation import udp
from hypothesis import given
from hypothesis import strategies as st
from replay import inspect

from flowshunt_ids.rules import transforms
from flowshunt_ids.rules.lexer import RuleError
from flowshunt_ids.rules.transforms import TRANSFORMS

BY_NAME = {transform.name: transform for transform in TRANSFORMS}


def apply(name, data, value=""):
    return BY_NAME[name].prepare(value)(data)


@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        ("to_lowercase", b"AbC1", b"abc1"),
        ("to_uppercase", b"AbC1", b"ABC1"),
        ("strip_whitespace", b" a\t\r\nb\v\fc ", b"abc"),
        ("compress_whitespace", b"a \t b\n\nc", b"a b\nc"),
        ("url_decode", b"%41+%4a%zz%4", b"A J%zz%4"),
        ("dotprefix", b"example.org", b".example.org"),
        ("dotprefix", b"", b""),
        ("strip_pseudo_headers", b":method: GET\r\nhost: a\r\n:path: /\r\nx: y", b"host: a\r\nx: y"),
        ("header_lowercase", b"Host: A:B\r\nX-Y: Z\r\n", b"host: A:B\r\nx-y: Z\r\n"),
        ("to_md5", b"a", hashlib.md5(b"a").digest()),
        ("to_sha1", b"a", hashlib.sha1(b"a").digest()),
        ("to_sha256", b"a", hashlib.sha256(b"a").digest()),
    ],
)
def test_what_is_made_of_bytes(name, data, expected):
    assert apply(name, data) == expected


def test_xor_repeats_its_key():
    assert apply("xor", b"\x00\x01\x02\x03\x04", '"ff0f"') == b"\xff\x0e\xfd\x0c\xfb"


def test_pcrexform_leaves_the_group_or_everything():
    assert apply("pcrexform", b"GET /index", r'"[a-zA-Z]+\s+(.*)"') == b"/index"
    assert apply("pcrexform", b"12345", r'"[a-z]+(.*)"') == b"12345"


def test_an_expression_that_takes_too_long_leaves_the_buffer_and_is_counted(monkeypatch):
    monkeypatch.setattr(transforms, "SECONDS", 0.01)
    before = transforms.Timeouts.count
    data = b"a" * 60 + b"b" * 5
    assert apply("pcrexform", data, r'"(a|aa)+$"') == data
    assert transforms.Timeouts.count == before + 1


@pytest.mark.parametrize(
    ("name", "value"), [("xor", '"abc"'), ("xor", '"zz"'), ("xor", ""), ("pcrexform", '"abc"'), ("pcrexform", "(a)")]
)
def test_values_that_make_no_transform(name, value):
    with pytest.raises(RuleError):
        BY_NAME[name].prepare(value)


@given(st.sampled_from([name for name in BY_NAME if name not in ("xor", "pcrexform")]), st.binary(max_size=200))
def test_any_bytes_are_taken_and_grow_by_little(name, data):
    assert len(apply(name, data)) <= max(len(data) + 1, 32)


def test_rules_match_what_is_left():
    rule = 'alert udp any any -> any any (udp.hdr; to_sha256; content:"|{}|"; sid:1;)'
    frame = udp(b"abc")
    digest = hashlib.sha256(frame[34:42]).hexdigest()
    assert inspect([frame], [rule.format(digest)]).numbered() == [(1, 1)]
    assert inspect([frame], [rule.format("00" * 32)]).numbered() == []
