"""Which protocol a flow speaks."""

import pytest

from flowshunt_ids.app.contract import TO_CLIENT, TO_SERVER, AppProtocol, DetectionPattern, Probe
from flowshunt_ids.app.http.protocol import HTTP
from flowshunt_ids.app.recognition import MOST, Recognizer


def toy(name="toy", **options):
    return AppProtocol(name, lambda context: None, (1, 1), **options)


def test_a_pattern_is_recognized_at_any_port():
    recognizer = Recognizer([HTTP], 6)
    assert recognizer.look(b"GET / HTTP/1.1", TO_SERVER, (1, 2)) == "http"
    assert recognizer.look(b"get / HTTP/1.1", TO_SERVER, (1, 2)) == "http"
    assert recognizer.look(b"HTTP/1.1 200", TO_CLIENT, (1, 2)) == "http"


@pytest.mark.parametrize(("data", "answer"), [(b"GE", None), (b"x" * 40, "")])
def test_too_few_bytes_are_not_a_no(data, answer):
    assert Recognizer([HTTP], 6).look(data, TO_SERVER, (1, 80)) == answer


def test_a_pattern_may_stand_within_bounds():
    recognizer = Recognizer([toy(patterns=(DetectionPattern(b"mark", TO_SERVER, 2, 10),))], 6)
    assert recognizer.look(b"..mark", TO_SERVER, (1, 2)) == "toy"
    assert recognizer.look(b"......mark", TO_SERVER, (1, 2)) == "toy"
    assert recognizer.look(b".mark.....", TO_SERVER, (1, 2)) == ""
    assert recognizer.look(b".......mark", TO_SERVER, (1, 2)) == ""


def test_probes_look_at_their_ports_only_and_the_configuration_names_others():
    probe = Probe(lambda data: None if len(data) < 4 else data[:4] == b"toy!", (99,))
    plain, configured = Recognizer([toy(probes=(probe,))], 6), Recognizer([toy(probes=(probe,))], 6, {"toy": (77,)})
    assert plain.look(b"toy!", TO_SERVER, (1, 99)) == "toy"
    assert plain.look(b"to", TO_SERVER, (1, 99)) is None
    assert plain.look(b"toy!", TO_SERVER, (1, 77)) == ""
    assert configured.look(b"toy!", TO_SERVER, (1, 77)) == "toy"


def test_a_probe_that_never_decides_is_given_up():
    probe = Probe(lambda data: None, None)
    assert Recognizer([toy(probes=(probe,))], 6).look(b"x" * MOST, TO_SERVER, (1, 2)) == ""
