"""Rules on transactions: when they match, how often, and what they are told of."""

import pytest
from conversation import Conversation
from replay import inspect

GET = b"GET /index.html?q=1 HTTP/1.1\r\nHost: a.example\r\nUser-Agent: test/1\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 11\r\n\r\nhello world"


def web(*messages, dport=80):
    talk = Conversation(dport=dport).handshake()
    for side, data in messages:
        talk.send(side, data)
    return talk.finish().frames


def counts(frames, *options, header="http any any -> any any", **more):
    rules = [f"alert {header} ({option}; sid:{number};)" for number, option in enumerate(options, 1)]
    found = inspect(frames, rules, **more).counts()
    return [found.get(number, 0) for number in range(1, len(options) + 1)]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ('http.method; content:"GET"; http.uri; content:"/index"; startswith', 1),
        ('content:"/index"; http_uri; content:"test/1"; http_user_agent', 1),
        ('uricontent:"q=1"', 1),
        ("urilen:15", 1),
        ("urilen:>15", 0),
        ('http.host; content:"a.example"; endswith', 1),
        ('http.header; content:"User-Agent: test/1|0d 0a|"', 1),
        ('http.header_names; content:"|0d 0a|Host|0d 0a|User-Agent|0d 0a 0d 0a|"', 1),
        ('http.request_line; content:"GET /index.html?q=1 HTTP/1.1"', 1),
        ('http.stat_code; content:"200"; http.stat_msg; content:"OK"', 1),
        ('http.response_body; content:"hello world"; bsize:11', 1),
        ('file_data; content:"hello"; content:"world"; distance:1', 1),
        ('http.content_type; content:"text/html"; flow:to_client', 1),
        ('pcre:"/^\\/index.html/U"', 1),
        ('http.cookie; content:!"x"', 0),
        ('http.uri; content:!"nothing"', 1),
        ('http.uri; content:"/index"; http.method; content:"POST"', 0),
        ('http.uri; content:"index"; content:"Host"', 0),
        ('content:"index"; http_uri; content:"Host|3a|"; flow:to_server', 1),
        ('fileext:"html"; filesize:11; flow:to_client', 1),
        ('filemagic:"ASCII text"; flow:to_client', 1),
    ],
)
def test_what_a_rule_matches(options, expected):
    assert counts(web((0, GET), (1, OK)), options) == [expected]


def test_http_is_found_at_any_port():
    assert counts(web((0, GET), (1, OK), dport=4444), 'http.method; content:"GET"') == [1]


def test_a_rule_matches_once_in_each_transaction():
    frames = web((0, GET), (1, OK), (0, GET), (1, OK), (0, GET + GET), (1, OK + OK))
    assert counts(frames, 'http.method; content:"GET"', 'http.stat_code; content:"200"') == [4, 4]


@pytest.mark.parametrize("batch", [1, 3, 4096])
def test_batches_change_nothing(batch):
    frames = web((0, GET), (1, OK), (0, GET), (1, OK))
    rules = ('http.uri; content:"/"', 'file_data; content:"world"', 'content:"Host"')
    assert counts(frames, *rules, batch=batch) == counts(frames, *rules)


def test_a_rule_with_an_app_buffer_may_be_one_of_tcp():
    assert counts(web((0, GET)), 'http.method; content:"GET"', header="tcp any any -> any 80") == [1]


def test_ports_and_addresses_of_the_header_count():
    frames = web((0, GET))
    assert counts(frames, 'http.method; content:"GET"', header="http any any -> any 81") == [0]
    assert counts(frames, 'http.method; content:"GET"', header="http 10.0.0.1 any -> any 80") == [1]
    assert counts(frames, 'http.method; content:"GET"', header="http 10.0.0.2 any -> any 80") == [0]


def test_flowbits_join_rules_of_both_directions():
    rules = (
        'http.uri; content:"/index"; flowbits:set,seen; noalert',
        'http.stat_code; content:"200"; flowbits:isset,seen',
        'http.stat_code; content:"200"; flowbits:isset,other',
    )
    assert counts(web((0, GET), (1, OK)), *rules) == [0, 1, 0]


def test_a_pass_rule_ends_the_inspection_of_its_flow():
    rules = [
        'pass http any any -> any any (http.uri; content:"/index"; sid:1;)',
        'alert http any any -> any any (http.stat_code; content:"200"; sid:2;)',
    ]
    assert inspect(web((0, GET), (1, OK)), rules).counts() == {}


def test_a_bypass_rule_bypasses_and_names_itself():
    done = inspect(
        web((0, GET), (1, OK), (0, GET)), ['alert http any any -> any any (http.uri; content:"/"; bypass; sid:7;)']
    )
    assert done.counts() == {7: 1}
    assert "sid 7" in next(iter(done.causes.values()))


def test_an_alert_tells_of_its_transaction():
    done = inspect(web((0, GET), (1, OK)), ['alert http any any -> any any (http.stat_code; content:"200"; sid:1;)'])
    alert = done.alerts[0][1]
    assert alert.app_proto == "http"
    assert alert.details["tx_id"] == 0
    assert alert.details["http"]["url"] == "/index.html?q=1"
    assert alert.details["http"]["status"] == 200


def test_app_layer_protocol_is_asked_once_a_direction():
    frames = web((0, GET), (1, OK), (0, GET), (1, OK))
    assert counts(frames, "app-layer-protocol:http", "app-layer-protocol:!http", header="tcp any any -> any any") == [
        2,
        0,
    ]


def test_an_event_of_the_parser_is_matched():
    frames = web((0, b"GET / HTTP/1.1\r\nbad\r\n\r\n"))
    assert counts(frames, "app-layer-event:http.request_field_missing_colon", "app-layer-event:http.unknown_error") == [
        1,
        0,
    ]


def test_a_hole_ends_a_direction_but_not_the_run():
    talk = Conversation(dport=80).handshake().send(0, GET).send(1, OK).send(0, b"GET /2 HT").skip(0, 30)
    frames = talk.send(0, b"x: y\r\n\r\n").send(1, OK).finish().frames
    assert counts(frames, 'http.uri; content:"/index"', 'http.uri; content:"/2"') == [1, 0]


def test_a_protocol_that_is_switched_off_is_not_parsed():
    config = "%YAML 1.1\n---\napp-layer:\n  protocols:\n    http:\n      enabled: no\n"
    assert counts(web((0, GET)), 'http.method; content:"GET"', config=config) == [0]


def test_limits_of_bodies_come_from_the_configuration():
    config = (
        "%YAML 1.1\n---\napp-layer:\n  protocols:\n    http:\n      enabled: yes\n      libhtp:\n"
        "        default-config:\n          response-body-limit: 5\n"
    )
    frames = web((0, GET), (1, OK))
    assert counts(frames, 'file_data; content:"hello"', 'file_data; content:"world"', config=config) == [1, 0]
