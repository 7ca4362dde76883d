"""Payload matching. The answers in the tables are Suricata 7.0.10's."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import types

from flowshunt.compiled import column, kernel
from flowshunt_ids.encoding import encode
from flowshunt_ids.inspection import InspectionCounters, PayloadMatcher
from flowshunt_ids.layout import GROUP, RULE_ARRAYS, RULE_PYTHON, RuleArrays
from flowshunt_ids.matching import SCRATCH, SCRATCH_SIZE, match_payload
from flowshunt_ids.rules.classification import Classification
from flowshunt_ids.rules.lexer import RuleError
from flowshunt_ids.rules.loader import build_rule
from flowshunt_ids.rules.variables import Variables


@kernel(types.boolean(RULE_ARRAYS, types.int64, column(np.uint8), types.int64, types.int64, SCRATCH))
def match(arrays, rule, buffer, start, end, scratch):
    return match_payload(arrays, rule, buffer, start, end, scratch)


def rule_of(options):
    return build_rule(f"alert udp any any -> any any ({options}; sid:1;)", Variables(), Classification())[0]


def compiled(rule, payload):
    """What the kernel says of a payload, and whether that is all there is to say."""
    encoded = encode([rule])
    arrays = RuleArrays(
        encoded.rules,
        encoded.tests,
        encoded.ops,
        encoded.pool,
        np.zeros(1, GROUP),
        np.zeros(1, np.int32),
        np.zeros((1, 1), np.uint64),
    )
    around = np.frombuffer(b"aX" + payload + b"bZ", np.uint8).copy()
    found = match(arrays, 0, around, 2, 2 + len(payload), np.zeros(SCRATCH_SIZE, np.int64))
    return bool(found), not encoded.rules["flags"][0] & RULE_PYTHON


def in_python(rule, payload):
    return PayloadMatcher(rule.payload, InspectionCounters()).matches(payload)


def matches(options, payload):
    """The answer, the same from both where both have one; the compiled part of a match always holds."""
    rule = rule_of(options)
    answer = in_python(rule, payload)
    kernel, whole = compiled(rule, payload)
    assert kernel == answer if whole else kernel >= answer
    return answer


TABLES = {
    b"0123456789": {
        "isdataat:9": True,
        "isdataat:10": False,
        'content:"5"; isdataat:4,relative': True,
        'content:"5"; isdataat:5,relative': False,
        "isdataat:!9": False,
        "isdataat:!10": True,
        'content:"9"; isdataat:!1,relative': True,
        'content:"9"; isdataat:0,relative': True,
        'content:"8"; isdataat:1,relative': True,
    },
    b"ab\x00\x05cdefg0012xyz": {
        'content:"ab"; byte_jump:2,0,relative; content:"0012"; within:4': True,
        'content:"ab"; byte_jump:2,0,relative; content:"g0"; distance:-1; within:2': True,
        "byte_test:2,=,5,2": True,
        "byte_test:2,>,4,2": True,
        "byte_test:2,!=,4,2": True,
        "byte_test:2,!,5,2": False,
        "byte_test:4,=,12,9,string,dec": True,
        "byte_test:2,=,0x500,2,little": True,
        "byte_test:4,=,18,9,string,hex": True,
        'byte_jump:2,2; content:"0012"; distance:0': True,
        'byte_jump:2,2; content:"g"; distance:-1': True,
        'byte_jump:2,2,from_beginning; content:"d"; within:1': True,
        'byte_jump:4,9,string,dec,from_beginning; content:"1"; within:1': False,
        'byte_jump:4,9,string,dec,from_end,post_offset -14; content:"z"; distance:0': True,
        "byte_test:2,&,1,2": True,
        "byte_test:2,^,5,2": False,
        "byte_test:2,=,1,2,bitmask 0xff00": False,
        "byte_test:2,=,5,2,bitmask 0x00ff": True,
        "byte_test:1,=,0,20": False,
        'byte_jump:1,3,multiplier 2; content:"2"; within:1': False,
        'byte_jump:1,3,align; content:"0"; within:1': False,
    },
    b"aXbaYbaZb": {
        'content:"a"; content:"Z"; within:1': True,
        'content:"a"; content:"b"; within:2; content:"a"; within:1; content:"Z"; within:1': True,
        'content:"a"; content:!"X"; within:1': True,
        'content:"b"; content:!"a"; within:1': True,
        'content:"a"; pcre:"/^Z/R"': True,
        'pcre:"/a/"; content:"Z"; within:1': True,
        'content:"a"; isdataat:!6,relative; content:"Z"; within:1': True,
        'content:"Z"; content:"a"; distance:-2; within:1': True,
        'content:"Z"; content:"X"; distance:-10': True,
        'content:"b"; endswith': True,
        'content:"b"; depth:3; endswith': False,
        'content:"a"; content:"b"; endswith; distance:0': True,
        'content:"aX"; startswith': True,
        'content:"b"; offset:8': True,
        'content:"b"; offset:9': False,
        'content:"Zb"; within:3': False,
        'content:"aXb"; within:3': True,
        'content:"aXb"; distance:0; within:3': True,
        'content:"b"; offset:4; depth:2': True,
        'content:"x"; nocase; content:"B"; nocase; distance:0': True,
        'content:!"a"; depth:1': False,
        'content:!"b"; depth:2': True,
        'content:"aX"; pcre:"/b/R"; content:"Zb"; distance:0': True,
        'content:"Z"; pcre:!"/Y/R"': True,
        'content:"b"; pcre:!"/Y/R"': True,
        'pcre:"/aX/A"': True,
        'pcre:"/bY/A"': False,
    },
    b"abc\ndef\n": {
        'pcre:"/def$/"': True,
        'pcre:"/def$/E"': False,
        'pcre:"/^def/"': False,
        'pcre:"/^def/m"': True,
        'pcre:"/c.d/"': False,
        'pcre:"/c.d/s"': True,
        'pcre:"/ a b c /x"': True,
        'pcre:"/def\\Z/"': True,
        'pcre:"/def\\z/"': False,
        'pcre:"/(?i)ABC/"': True,
        'pcre:"/[^]a]/"': True,
        'pcre:"/a{,2}/"': False,
    },
    b"\x02\x05abcdefg12": {
        'byte_extract:1,0,n; content:"a"; offset:n; depth:1': True,
        'byte_extract:1,1,n; content:"a"; content:"f"; distance:n; within:n': False,
        "byte_extract:1,1,n; byte_test:1,=,n,1": True,
        "byte_extract:1,1,n; byte_test:1,=,n,0": False,
        "byte_extract:1,1,n; isdataat:n": True,
        'byte_extract:1,0,n,multiplier 2; content:"c"; offset:n; depth:1': True,
    },
}


@pytest.mark.parametrize(
    ("payload", "options", "answer"),
    [(payload, options, answer) for payload, table in TABLES.items() for options, answer in table.items()],
)
def test_answers(payload, options, answer):
    assert matches(options, payload) is answer


SMALL = st.integers(-3, 6).map(str)
LITERAL = st.text(alphabet="abAB", min_size=1, max_size=3)


@st.composite
def matches_in_order(draw):
    parts = []
    for _ in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(["content"] * 4 + ["isdataat", "byte_test", "byte_jump"]))
        if kind == "content":
            part = f'content:{draw(st.sampled_from(["", "", "!"]))}"{draw(LITERAL)}"'
            for modifier in draw(st.sampled_from([(), ("nocase",), ("offset", "depth"), ("distance", "within")])):
                part += f"; {modifier}" + (f":{draw(SMALL)}" if modifier != "nocase" else "")
            if draw(st.booleans()):
                part += draw(st.sampled_from(["", "; endswith", "; startswith", "; within:5", "; distance:0"]))
        elif kind == "isdataat":
            part = f"isdataat:{draw(st.sampled_from(['', '!']))}{draw(st.integers(0, 9))}"
            part += draw(st.sampled_from(["", ",relative"]))
        else:
            relative = draw(st.sampled_from(["", ",relative"]))
            text = draw(st.sampled_from(["", ",little", ",string,hex"]))
            count = draw(st.integers(1, 2))
            if kind == "byte_test":
                operator = draw(st.sampled_from(["<", ">", "=", "!=", "<=", ">=", "&", "^"]))
                part = (
                    f"byte_test:{count},{operator},{draw(st.sampled_from([10, 97, 171]))},{draw(SMALL)}{relative}{text}"
                )
            else:
                extra = draw(st.sampled_from(["", ",align", ",from_beginning", ",multiplier 2", ",post_offset -95"]))
                part = f"byte_jump:{count},{draw(SMALL)}{relative}{text}{extra}"
        parts.append(part)
    return "; ".join(parts)


@given(matches_in_order(), st.lists(st.binary(max_size=2) | st.sampled_from([b"ab", b"aB", b"Ab", b"b"]), max_size=8))
def test_compiled_code_says_what_python_says(options, payload):
    try:
        rule = rule_of(options)
    except RuleError:
        return
    text = b"".join(payload)
    assert compiled(rule, text) == (in_python(rule, text), True)


def test_the_steps_of_one_match_are_bounded():
    options = 'content:"a"; ' + "; ".join('content:"a"; distance:0' for _ in range(12)) + '; content:"b"; distance:0'
    counters = InspectionCounters()
    rule = rule_of(options)
    assert not PayloadMatcher(rule.payload, counters).matches(b"a" * 400)
    assert counters.step_limits == 1
    assert compiled(rule, b"a" * 400) == (False, True)


def test_an_expression_that_takes_too_long_counts_as_no_match():
    counters = InspectionCounters()
    rule = rule_of('pcre:"/(a|aa)+$/"')
    assert not PayloadMatcher(rule.payload, counters).matches(b"a" * 60 + b"b" * 5)
    assert counters.expression_timeouts == 1
