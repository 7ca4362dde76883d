"""Rules as text: what loads, and why the rest does not. What Suricata 7 accepts and refuses is the measure."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowshunt_ids.rules.classification import Classification
from flowshunt_ids.rules.lexer import RuleError, logical_lines, parse_rule
from flowshunt_ids.rules.loader import build_rule, load_rules
from flowshunt_ids.rules.rule import Scope
from flowshunt_ids.rules.variables import Variables


def build(options, header="alert tcp any any -> any any"):
    return build_rule(f"{header} {options}", Variables(), Classification())[0]


ACCEPTED = """
    (content:"abc"; distance:1; sid:9;)
    (content:!"abc"; fast_pattern; sid:10;)
    (content:"abc"; fast_pattern:1,2; sid:12;)
    (content:"abc"; endswith; depth:10; sid:16;)
    (content:"a\\"b"; sid:20;)
    (content:"a:b"; sid:22;)
    (msg:"a\\;b"; sid:24;)
    (flags:S; flags:A; sid:31;)
    (flowbits:set,a; sid:38;)
    (flowbits:isset,a|b; sid:39;)
    (flowbits:noalert; sid:40;)
    (content:"a"; isdataat:5,relative; sid:47;)
    (isdataat:!5; sid:48;)
    (content:"a"; rawbytes; sid:50;)
    (priority:0; sid:53;)
    (classtype:unknown-foo; sid:55;)
    (reference:foo,bar; sid:56;)
    (gid:0; sid:57;)
    (content:"a"; content:"b"; distance:-5; within:3; sid:59;)
    (metadata:a b, c; sid:60;)
    (flags:!S; sid:68;)
    (flags:S+; sid:69;)
    (flags:*SA; sid:70;)
    (flags:SA,12; sid:71;)
    (flags:0; sid:72;)
    (threshold: type limit, track by_src, count 1, seconds 60; sid:74;)
    (detection_filter: track by_src, count 1, seconds 60; sid:75;)
    (bypass; sid:76;)
    (content:"abc"; endswith; content:"d"; distance:0; sid:77;)
    (content:"a"; offset:5; depth:3; sid:78;)
    (msg:"x" ; sid:81;)
    (content:"abc" ; sid : 82 ;)
    (content:"a"; content:!"b"; within:3; sid:84;)
    (sid:46;
""".strip().splitlines()


@pytest.mark.parametrize("options", [line.strip() for line in ACCEPTED])
def test_accepted(options):
    assert build(options).signature.sid > 0


REFUSED = [
    ('(msg:"no sid"; content:"a";)', "no sid"),
    ('(content:""; sid:3;)', "empty"),
    ("(content:a; sid:4;)", "double quotes"),
    ('(content:"a"; depth:0; sid:5;)', "less than the 1 bytes"),
    ('(content:"abc"; depth:2; sid:6;)', "less than the 3 bytes"),
    ('(content:"abc"; within:2; sid:7;)', "less than the 3 bytes"),
    ('(content:"abc"; offset:5; distance:1; sid:8;)', "can't be mixed"),
    ('(content:"abc"; fast_pattern:only; offset:1; sid:11;)', "fast_pattern:only"),
    ('(content:"abc"; fast_pattern:1,5; sid:13;)', "past the 3 bytes"),
    ('(content:"abc"; nocase; nocase; sid:14;)', "twice"),
    ('(content:"abc"; startswith; offset:1; sid:15;)', "startswith"),
    ('(content:"a|zz|"; sid:17;)', "not a hexadecimal digit"),
    ('(content:"a|4|"; sid:18;)', "odd number"),
    ('(content:"a|41"; sid:19;)', "without a second"),
    ('(content:"a;b"; sid:21;)', "quotes are not closed"),
    ('(msg:"a;b"; sid:23;)', "quotes are not closed"),
    ("(msg:a; sid:25;)", "double quotes"),
    ("(flow:to_server,to_client; sid:26;)", "another direction"),
    ("(flow:established,not_established; sid:27;)", "another state"),
    ("(flow:foo; sid:28;)", "not an option of flow"),
    ("(flow:established; flow:to_server; sid:61;)", "twice"),
    ("(dsize:10<>5; sid:29;)", "empty range"),
    ("(dsize:5<>6; sid:66;)", "empty range"),
    ("(dsize:>65535; sid:67;)", "can never match"),
    ("(dsize:>10; dsize:5; sid:30;)", "twice"),
    ("(flags:Q; sid:32;)", "not a flag"),
    ('(pcre:"a"; sid:35;)', "/expression/"),
    ('(pcre:"/(/"; sid:36;)', "missing )"),
    ('(pcre:"/a/K"; sid:36;)', "flag K"),
    ('(pcre:"/a(?R)/"; sid:36;)', "not supported"),
    ("(flowbits:set; sid:37;)", "names no bit"),
    ("(sid:0;)", "outside"),
    ("(sid:abc;)", "not a number"),
    ("(sid:5000000000;)", "outside"),
    ("(sid:41; sid:42;)", "twice"),
    ("(foo:bar; sid:43;)", "'foo' is not a keyword"),
    ('(content:"a"; mqtt.publish.topic; sid:43;)', "protocol mqtt: not supported"),
    ("(sid:44)", "doesn't end with ';'"),
    ("(isdataat:5,rawbytes; sid:49;)", "isdataat"),
    ("(nocase; sid:51;)", "no content stands before"),
    ("(rev:a; sid:58;)", "not a number"),
    ('(content:"\\x"; sid:62;)', "must be written"),
    ('(content:"abc"; offset:70000; sid:63;)', "outside"),
    ('(content:"abc"; distance:2000000; sid:65;)', "outside"),
    ('(content:"abc"; within:3; depth:5; sid:85;)', "can't be mixed"),
    ('(content:"abc"; fast_pattern; content:"d"; fast_pattern; sid:86;)', "more than one content"),
    ("(byte_test:1,~,5,0; sid:87;)", "not an operator"),
    ("(byte_test:1,=,5,0,dce; sid:88;)", "not supported"),
    ('(content:"a"; depth:var; sid:89;)', "neither a number nor a variable"),
]


@pytest.mark.parametrize(("options", "reason"), REFUSED)
def test_refused_with_a_reason(options, reason):
    with pytest.raises(RuleError) as refused:
        build(options)
    assert reason in str(refused.value)


REFUSED_HEADERS = [
    ("alert tcp any any -> any 70000", "not a port"),
    ("alert tcp any any -> any 100:50", "not a range"),
    ("alert tcp 1.2.3 any -> any any", "not an address"),
    ("alert tcp !any any -> any any", "no address is left"),
    ("alert tcp [1.2.3.4,!1.2.3.4] any -> any any", "no address is left"),
    ("alert tcp $FOO any -> any any", "variable $FOO"),
    ("alert tcp any any <- any any", "not a direction"),
    ("alert foo any any -> any any", "not a protocol"),
    ("alert mqtt any any -> any any", "protocol mqtt: not supported"),
    ("log tcp any any -> any any", "not an action"),
    ("alert tcp any [80,!80] -> any any", "no port is left"),
    ("alert tcp 1.2.3.4/33 any -> any any", "not an address"),
    ("alert tcp 1.2.3.9-1.2.3.4 any -> any any", "not a range"),
    ("alert tcp any any any any", "not 7"),
    ("alert tcp any any -> any !any", "no port is left"),
    ("alert tcp any [80 -> any any", "without ']'"),
]


@pytest.mark.parametrize(("header", "reason"), REFUSED_HEADERS)
def test_headers_refused_with_a_reason(header, reason):
    with pytest.raises(RuleError) as refused:
        build("(sid:1;)", header)
    assert reason in str(refused.value)


def test_an_option_ends_at_a_semicolon_even_in_quotes():
    with pytest.raises(RuleError):
        parse_rule('alert tcp any any -> any any (content:"a;b"; sid:1;)')
    assert parse_rule('alert tcp any any -> any any (content:"a\\;b"; sid:1;)').options[0] == ("content", '"a\\;b"')


def test_lines_are_joined_and_numbered():
    text = "# comment\nalert a\\\n  b \\\n c\n\n  # more\nalert d\n"
    assert list(logical_lines(text)) == [(2, "alert ab c"), (7, "alert d")]


def test_the_newest_revision_of_a_sid_is_kept(tmp_path):
    path = tmp_path / "a.rules"
    path.write_text(
        'alert tcp any any -> any any (content:"aaa"; sid:1; rev:1;)\n'
        'alert tcp any any -> any any (content:"bbb"; sid:1; rev:2;)\n'
        'alert tcp any any -> any any (content:"ccc"; sid:1; rev:2;)\n'
        "alert tcp any any -> any any (nonsense; sid:77;)\n"
    )
    loaded = load_rules([path], Variables(), Classification())
    assert [rule.payload[0].pattern for rule in loaded.rules] == [b"bbb"]
    assert [(problem.line, problem.sid) for problem in loaded.problems] == [(1, 1), (3, 1), (4, 77)]
    assert "rev 2, which is kept" in loaded.problems[0].reason


def test_order_is_by_action_then_flowbits_then_priority(tmp_path):
    path = tmp_path / "a.rules"
    path.write_text(
        "\n".join(
            f"{action} tcp any any -> any any (sid:{sid}; {rest})"
            for sid, action, rest in [
                (1, "alert", "priority:3;"),
                (2, "alert", "priority:1;"),
                (3, "reject", ""),
                (4, "drop", ""),
                (5, "pass", ""),
                (6, "alert", "flowbits:isset,a;"),
                (7, "alert", "flowbits:set,a;"),
            ]
        )
    )
    rules = load_rules([path], Variables(), Classification()).rules
    assert [rule.signature.sid for rule in rules] == [5, 4, 3, 7, 6, 2, 1]


@pytest.mark.parametrize(
    ("header", "options", "scope"),
    [
        ("alert tcp any any -> any any", "(sid:1;)", Scope.FIRST),
        ("alert tcp any 1: -> any 80", "(sid:1;)", Scope.FIRST),
        ("alert ip any any -> any any", "(ip_proto:6; sid:1;)", Scope.FIRST),
        ("alert ip any any -> any any", "(flowbits:set,a; sid:1;)", Scope.FIRST),
        ("alert tcp !10.0.0.3 any -> any any", "(sid:1;)", Scope.ALL),
        ("alert tcp any any -> any any", "(flow:to_server; sid:1;)", Scope.PACKET),
        ("alert ip any any -> any any", "(ttl:64; sid:1;)", Scope.PACKET),
        ("alert ip any any -> any any", '(content:"a"; sid:1;)', Scope.PAYLOAD),
    ],
)
def test_how_often_a_rule_is_looked_at(header, options, scope):
    assert build(options, header).scope is scope


@pytest.mark.parametrize(
    ("header", "options", "packets", "streams", "datagrams"),
    [
        ("alert tcp any any -> any any", '(content:"a"; sid:1;)', False, True, False),
        ("alert tcp any any -> any any", '(content:"a"; depth:3; sid:1;)', True, True, False),
        ("alert tcp any any -> any any", '(content:"a"; dsize:3; sid:1;)', True, False, False),
        ("alert tcp-pkt any any -> any any", '(content:"a"; sid:1;)', True, False, False),
        ("alert tcp-stream any any -> any any", '(content:"a"; sid:1;)', False, True, False),
        ("alert tcp any any -> any any", '(content:"a"; flow:no_stream; sid:1;)', True, False, False),
        ("alert udp any any -> any any", '(content:"a"; sid:1;)', False, False, True),
        ("alert ip any any -> any any", '(content:"a"; sid:1;)', False, True, True),
    ],
)
def test_where_a_payload_is_looked_for(header, options, packets, streams, datagrams):
    rule = build(options, header)
    assert (rule.in_packets, rule.in_streams, rule.in_datagrams) == (packets, streams, datagrams)


RULES = [
    'alert tcp $HOME_NET [1:100,!50] -> !$HOME_NET any (msg:"x"; flow:established,to_server; content:"a|41 42|c"; '
    "nocase; "
    'depth:10; content:!"zz"; distance:-3; within:9; pcre:"/^a[^b]{2,}\\d+$/Ri"; byte_test:2,>,5,0,relative; '
    "flowbits:set,a; threshold:type limit, track by_src, count 1, seconds 60; classtype:misc-attack; sid:1; rev:3;)",
    "drop udp any any <> [10.0.0.0/8,!10.1.0.0/16] 53 (dsize:5<>90; byte_jump:4,8,relative,little,align; sid:2;)",
]


@given(st.sampled_from(RULES), st.data())
def test_mutated_rules_load_or_give_a_reason(rule, data):
    text = list(rule)
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(text)))
        kind = data.draw(st.sampled_from(["drop", "add", "twice"]))
        if kind == "drop":
            del text[at : at + data.draw(st.integers(1, 12))]
        elif kind == "add":
            text[at:at] = data.draw(st.text(alphabet=st.sampled_from('\\";:,|![]()$<>-/*+?{}09aZé\0 \t'), max_size=4))
        else:
            text[at:at] = text[max(0, at - 20) : at]
    try:
        build_rule("".join(text), Variables(), Classification())
    except RuleError as refused:
        assert str(refused)


@given(st.text(max_size=200))
def test_any_text_loads_or_gives_a_reason(text):
    for _line, rule in logical_lines(text):
        with pytest.raises(RuleError):
            build_rule(rule, Variables(), Classification())
