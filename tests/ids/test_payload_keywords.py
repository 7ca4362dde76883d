"""Payload keywords beyond plain contents: bsize, base64, byte_math, numbers of any length, pcre's dialect."""

import base64

import pytest
from conversation import udp
from hypothesis import given
from hypothesis import strategies as st
from replay import inspect

from flowshunt_ids.inspection import InspectionCounters, PayloadMatcher, decode_base64
from flowshunt_ids.rules.classification import Classification
from flowshunt_ids.rules.keywords.pcre import compile_pattern, translate
from flowshunt_ids.rules.lexer import RuleError
from flowshunt_ids.rules.loader import build_rule
from flowshunt_ids.rules.variables import Variables


def rule_of(options, header="alert udp any any -> any any"):
    return build_rule(f"{header} ({options}; sid:1;)", Variables(), Classification())[0]


def matches(options, payload):
    """Whether a rule's payload matches, by the engine and by the whole match in Python alike."""
    found = inspect([udp(payload)], [f"alert udp any any -> any any ({options}; sid:1;)"]).numbered() == [(1, 1)]
    assert PayloadMatcher(rule_of(options).payload, InspectionCounters()).matches(payload) is found
    return found


@pytest.mark.parametrize(
    ("options", "payload", "expected"),
    [
        ("byte_math:bytes 1,offset 0,oper +,rvalue 2,result n; byte_test:1,=,n,1", b"\x03\x05", True),
        ("byte_math:bytes 1,offset 0,oper -,rvalue 4,result n; isdataat:n", b"\x03\x05", False),
        ("byte_math:bytes 2,offset 0,oper /,rvalue 256,result n; byte_test:1,=,n,0", b"\x07\x99", True),
        ("byte_math:bytes 1,offset 0,oper /,rvalue 0,result n; isdataat:0", b"\x07", False),
        ("byte_math:bytes 1,offset 0,oper <<,rvalue 4,result n; byte_test:1,=,n,1", b"\x03\x30", True),
        ("byte_math:bytes 1,offset 0,oper >>,rvalue 4,result n,bitmask 0x3; byte_test:1,=,n,1", b"\x73\x03", True),
        ("byte_math:bytes 2,offset 0,oper *,rvalue 1,result n,endian little; byte_test:1,=,n,2", b"\x02\x00\x02", True),
        ("byte_math:bytes 3,offset 0,oper +,rvalue 1,result n,string dec; isdataat:!n", b"004abc", False),
        ('byte_extract:1,0,n; content:"xy"; offset:n; depth:2', b"\x03..xy", True),
        ('byte_extract:1,0,n; content:"xy"; offset:n; depth:2', b"\x02..xy", False),
        ("byte_extract:1,0,n; byte_test:n,=,0x0102,1", b"\x02\x01\x02", True),
        ("byte_test:0,>,300,0,string,dec", b"  301 bytes", True),
        ("byte_test:0,>,300,0,string,dec", b"bytes", False),
        ("byte_test:0,>,300,0,string,dec", b"9" * 30, False),
        ("byte_test:1,<,-1,0", b"\xff", True),
        ('content:"a"; byte_test:1,=,5,0,relative; content:"b"; distance:0', b"ab\x05 a\x05b", True),
    ],
)
def test_numbers(options, payload, expected):
    assert matches(options, payload) is expected


@pytest.mark.parametrize(
    ("options", "payload", "expected"),
    [
        ('base64_decode; base64_data; content:"secret"', base64.b64encode(b"a secret"), True),
        ('base64_decode:bytes 8; base64_data; content:"secret"', base64.b64encode(b"a secret"), False),
        ('content:"auth "; base64_decode:relative; base64_data; content:"x"; offset:1', b"auth " + b"YXg=", True),
        ('base64_decode:offset 2; base64_data; content:"ab"; endswith', b"..YWI!", True),
        ('base64_decode; base64_data; content:"a"', b"!!!!", False),
        ('base64_decode; base64_data; pcre:"/^s.c/"; content:!"z"', base64.b64encode(b"sec"), True),
    ],
)
def test_base64(options, payload, expected):
    assert matches(options, payload) is expected


@given(st.binary(max_size=60))
def test_what_was_encoded_is_decoded_with_and_without_padding(data):
    text = base64.b64encode(data)
    assert decode_base64(text) == data
    assert decode_base64(text.rstrip(b"=")) == data
    assert decode_base64(text.rstrip(b"=") + b"=====")[: len(data)] == data


@given(st.binary(max_size=80))
def test_any_bytes_are_decoded_up_to_the_first_that_is_no_base64(data):
    assert len(decode_base64(data)) <= 3 * (len(data) // 4 + 1)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("bsize:5", "sticky buffer"),
        ('udp.hdr; content:"abc"; bsize:2', "too short"),
        ('udp.hdr; content:"abc"; content:"de"; distance:2; bsize:<7', "too short"),
        ("udp.hdr; bsize:5<>6", "can never match"),
        ('base64_data; content:"a"', "base64_decode before"),
        ("base64_decode; base64_data", "nothing is matched"),
        ('base64_decode; base64_data; udp.hdr; content:"a"', "no buffer can follow"),
        ("udp.hdr; to_md5", "nothing is matched"),
        ('to_md5; content:"a"', "sticky buffer"),
        ('udp.hdr; to_lowercase; content:"A"', "never left"),
        ('udp.hdr; content:"a"; http_uri', "can't follow a sticky buffer"),
        ("byte_math:bytes 1,offset 0,oper %,rvalue 1,result n", "not an operator"),
        ("byte_math:bytes 1,offset 0,oper +,rvalue 1", "fewer than 5"),
        ("byte_test:1,=,later,0; byte_extract:1,0,later", "neither a number nor a variable"),
        ('content:"ab"; replace:"cd"', "changes packets"),
        ('content:"a"b"', "must be written"),
        ('ttl:"5"', "without quotes"),
        ("flowvar:x,y", "not compared"),
        ("lua:script.lua", "scripts are not run"),
        ("geoip:src,DE", "database of countries"),
        ("iprep:src,Bad,>,5", "not supported"),
        ('pcre:"/(a)/, flow:x, flow:y"', "2 variables for 1 groups"),
        ('pcre:"/a/R"', "needs a match before"),
        ('flow:only_stream; dsize:>5; content:"a"', "can't mix"),
        ("prefilter", "nothing stands before"),
    ],
)
def test_refused_with_a_reason(options, reason):
    with pytest.raises(RuleError) as refused:
        rule_of(options)
    assert reason in str(refused.value)


@pytest.mark.parametrize(
    ("expression", "subject", "found"),
    [
        (r"a(?i)b", b"aB", b"aB"),
        (r"a(?i)b", b"AB", None),
        (r"(?i)a(?-i)b", b"Ab", b"Ab"),
        (r"(?i)a(?-i)b", b"AB", None),
        (r"(a(?i)b)c", b"aBc", b"aBc"),
        (r"(a(?i)b)c", b"aBC", None),
        (r"x(?#comment)y", b"xy", b"xy"),
        (r"a\Rb", b"a\r\nb", b"a\r\nb"),
        (r"[\H]+", b"ab c", b"ab"),
        (r"a\Nb", b"a\nb", None),
        (r"\cA", b"\x01", b"\x01"),
        (r"(?<q>['\"]).*?\k<q>", b"x'y'", b"'y'"),
        (r"a+(*SKIP)b|a", b"aac", None),
        (r"foo\Kbar", b"foobar", b"bar"),
    ],
)
def test_expressions_mean_what_they_mean_in_pcre(expression, subject, found):
    result = compile_pattern(translate(expression).encode("latin-1"), 0).search(subject)
    assert (result[0] if result else None) == found


@pytest.mark.parametrize(("expression", "found"), [("a+", b"a"), ("a+?", b"aaa"), ("a{2,3}", b"aa"), ("a++", b"aaa")])
def test_flag_g_turns_greediness_round(expression, found):
    result = compile_pattern(translate(expression, ungreedy=True).encode(), 0).search(b"aaa")
    assert result is not None
    assert result[0] == found


@given(st.text("ab(|)[]^$.*+?{}1,\\dwsRK<>!=:i-#/", max_size=24))
def test_any_expression_is_translated_and_compiled_or_refused(text):
    try:
        compile_pattern(translate(text).encode("latin-1", "backslashreplace"), 0)
    except RuleError:
        return


def test_a_variable_of_a_buffer_that_was_not_looked_at_is_zero():
    rule = rule_of('byte_extract:1,0,n; udp.hdr; content:"|0f a0|"; offset:n; depth:2')
    assert PayloadMatcher(rule.packet_buffers[0].matches, InspectionCounters()).matches(b"\x0f\xa0")


def test_bytes_of_an_expression_that_are_no_text_are_kept():
    rule = rule_of('pcre:"/\udc80.\u00e9/"')
    assert PayloadMatcher(rule.payload, InspectionCounters()).matches(b"\x80a\xc3\xa9")
