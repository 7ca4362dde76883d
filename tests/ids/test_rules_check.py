"""flowshunt rules check."""

import json

import pytest
from click.testing import CliRunner

from flowshunt.engine import EngineConfig
from flowshunt_ids.check.findings import show
from flowshunt_ids.check.report import check_files
from flowshunt_ids.settings import load_settings

FLOW = "flow:established,to_server; "


def reports(tmp_path, *rules):
    path = tmp_path / "test.rules"
    path.write_text("\n".join(rules) + "\n")
    return check_files([path], load_settings(EngineConfig()))


def codes(tmp_path, rule):
    (report,) = reports(tmp_path, rule)
    assert report.state == "loaded", report.reason
    return {finding.code for finding in report.findings}


def tcp(options, header="alert tcp any any -> any 80"):
    return f'{header} (msg:"m"; {options}; sid:1;)'


@pytest.mark.parametrize(
    ("rule", "code"),
    [
        (tcp(FLOW + 'pcre:"/a.*b/"'), "pcre-alone"),
        (tcp(FLOW + 'content:!"abcd"'), "negated-only"),
        (tcp(FLOW + 'content:"ab"'), "short-content"),
        (tcp(FLOW + 'content:"abc"'), "short-pattern"),
        (tcp(FLOW + "isdataat:100"), "no-content"),
        (tcp(FLOW + 'content:"ab"; fast_pattern; content:"abcdefgh"'), "weak-fast-pattern"),
        (tcp(FLOW + 'content:"abcdef"; pcre:"/(a+b*)+c/"'), "pcre-nested"),
        (tcp(FLOW + 'content:"abcdef"; pcre:"/.*c/"'), "pcre-leading-any"),
        (tcp('content:"abcdef"'), "no-flow"),
        (tcp('flow:established; content:"abcdef"'), "no-direction"),
        (tcp('flow:to_server; content:"abcdef"'), "no-established"),
        (tcp(FLOW + 'content:"abcdef"', "alert tcp any 80 -> any any"), "ports-reversed"),
        (tcp(FLOW + 'content:"abcdef"', "alert tcp any any <> any 80"), "both-and-flow"),
        (tcp(FLOW + 'content:"abcdef"', "alert tcp $HOME_NET any -> $HOME_NET any"), "same-addresses"),
        (tcp(FLOW + 'content:"GET /evil"'), "http-as-tcp"),
        (tcp(FLOW + 'content:"abcdef"; dsize:>10'), "dsize-tcp"),
        (tcp(FLOW + 'content:"abcdef"; noalert'), "no-effect"),
        (tcp(FLOW + 'content:"abcdef"; flowbits:isset,never.set'), "flowbit-never-set"),
        (tcp(FLOW + 'content:"abcdef"; flowbits:set,never.asked; noalert'), "flowbit-never-asked"),
        ('alert ip any any -> any any (msg:"m"; sid:1;)', "matches-all"),
        ("alert tcp any any -> any 80 (flags:S; sid:1;)", "no-msg"),
        (tcp(FLOW + 'http.method; content:"get"', "alert http any any -> any any"), "case"),
        (tcp(FLOW + 'http.host; content:"Example.ORG"', "alert http any any -> any any"), "never"),
        (tcp(FLOW + 'http.uri; content:"/a%20b"', "alert http any any -> any any"), "encoded"),
        (tcp(FLOW + 'content:"abcdef"; http.uri; content:"/index"', "alert http any any -> any any"), "outside-buffer"),
        (tcp(FLOW + 'content:"abcdef"', "alert http any any -> any any"), "http-without-buffer"),
    ],
)
def test_a_likely_mistake_is_named(tmp_path, rule, code):
    assert code in codes(tmp_path, rule)


@pytest.mark.parametrize(
    "rule",
    [
        tcp(FLOW + 'content:"a long pattern|00 01|"; pcre:"/^x{2}/R"'),
        tcp("flags:S; threshold:type limit, track by_src, count 1, seconds 60"),
        tcp(FLOW + 'http.method; content:"POST"; http.uri; content:"/gate.php"', "alert http any any -> any any"),
        'alert udp any any -> any 53 (msg:"m"; content:"|01 00 00 01|evil"; offset:2; sid:1;)',
    ],
)
def test_a_sound_rule_has_no_finding(tmp_path, rule):
    assert codes(tmp_path, rule) == set()


def test_the_state_of_each_rule_and_why(tmp_path):
    found = reports(
        tmp_path,
        'alert tcp any any -> any any (content:"abc"; sid:1; rev:1;)',
        'alert tcp any any -> any any (content:"abcd"; sid:1; rev:2;)',
        'alert tcp any any -> any any (content:"abc"; sid:1; rev:1;)',
        "alert mqtt any any -> any any (sid:2;)",
        "alert tcp any any -> any any (requires:version >= 9; sid:3;)",
        "alert tcp any any -> any any (nonsense; sid:4;)",
    )
    assert [(report.line, report.sid, report.state) for report in found] == [
        (1, 1, "replaced"),
        (2, 1, "loaded"),
        (3, 1, "replaced"),
        (4, 2, "protocol not supported"),
        (5, 3, "not for this version"),
        (6, 4, "invalid"),
    ]
    assert "with rev 2" in found[0].reason


@pytest.mark.parametrize(
    ("rule", "scope", "pattern", "cost"),
    [
        (tcp(FLOW + 'content:"short"; content:"a much longer one"'), "streams", '"a much longer one"', "cheap"),
        (tcp(FLOW + 'content:"0000"'), "streams", None, "expensive"),
        (tcp(FLOW + 'content:"0102"; pcre:"/a/"'), "streams", '"0102"', "expensive"),
        ("alert ip any any -> 1.2.3.4 any (sid:1;)", "first packet of each direction", None, "cheap"),
        ("alert tcp any any -> any any (flags:S; sid:1;)", "every packet", None, "moderate"),
        ('alert tcp any any -> any any (tcp.hdr; content:"a"; sid:1;)', "every packet", None, "expensive"),
    ],
)
def test_what_is_searched_for_and_what_it_costs(tmp_path, rule, scope, pattern, cost):
    (report,) = reports(tmp_path, rule)
    shown = show(report.pattern.literal) if report.pattern else None
    assert (report.scope, shown, report.cost) == (scope, pattern, cost)


def test_bytes_are_shown_as_rules_have_them():
    assert show(b'a"b\x00\xffc') == '"a|22|b|00 ff|c"'


def command(*arguments):
    from flowshunt_ids.check.command import command as group

    return CliRunner().invoke(group, ["check", *arguments], standalone_mode=False)


def test_the_command_prints_rules_and_says_by_its_status_whether_all_load(tmp_path):
    path = tmp_path / "a.rules"
    path.write_text(tcp(FLOW + 'content:"abcdef|1b|"') + "\nalert foo any any -> any any (sid:2;)\n")
    done = command(str(path), "--json")
    assert done.return_value == 1
    report = json.loads(done.output)
    assert report["summary"]["states"] == {"loaded": 1, "invalid": 1}
    assert report["rules"][0]["pattern"] == '"abcdef|1b|"'
    text = command(str(path)).output
    assert f"{path}:1: sid 1: loaded" in text
    assert "'foo' is not a protocol" in text
    path.write_text(tcp(FLOW + 'content:"abcdefgh"') + "\n")
    assert command(str(path), "--findings").return_value == 0


def test_the_command_takes_the_files_of_a_configuration(tmp_path):
    (tmp_path / "b.rules").write_text(tcp(FLOW + 'content:"abcdefgh"').replace("any 80", "$MINE 80"))
    config = tmp_path / "s.yaml"
    config.write_text("vars: {address-groups: {MINE: 10.0.0.1}}\nrule-files: [b.rules]\n")
    assert command("--config", str(config)).return_value == 0
