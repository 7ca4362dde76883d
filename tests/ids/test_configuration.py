"""suricata.yaml beyond single values: includes, settings in lists, keys that are not used, what is handed on."""

import pytest

from flowshunt.engine import EngineConfig
from flowshunt.errors import InputError
from flowshunt.flows.record import FlowTimeouts
from flowshunt_ids.configuration import MAX_UNKNOWN
from flowshunt_ids.ruleset import load_rule_set
from flowshunt_ids.settings import load_settings


def settings_of(tmp_path, text, settings=None, **files):
    for name, content in files.items():
        (tmp_path / f"{name}.yaml").write_text(content)
    path = tmp_path / "suricata.yaml"
    path.write_text(text)
    return load_settings(EngineConfig(config=path, settings=settings or {}))


def test_included_files_put_their_keys_in_place(tmp_path):
    found = settings_of(
        tmp_path,
        "include: [one.yaml, two.yaml]\nstream: !include stream.yaml\n",
        one="vars: {address-groups: {HOME_NET: 10.1.1.0/24}}\n",
        two="packet-alert-max: 7\n",
        stream="midstream: yes\n",
    )
    assert found.variables.addresses["HOME_NET"] == "10.1.1.0/24"
    assert (found.alerts_per_packet, found.midstream) == (7, True)
    assert not found.warnings


@pytest.mark.parametrize(
    ("files", "part"),
    [
        ({"one": "include: suricata.yaml\n"}, "includes itself"),
        ({}, "can't read"),
        ({"one": "- a\n"}, "not a mapping"),
        ({"one": "include: 7\n"}, "not a file name"),
    ],
)
def test_includes_that_cannot_be_used_are_named(tmp_path, files, part):
    with pytest.raises(InputError, match=part):
        settings_of(tmp_path, "include: one.yaml\n", **files)


def test_the_number_of_includes_is_bounded(tmp_path):
    files = {f"f{at}": f"include: [f{at + 1}.yaml, f{at + 1}.yaml, f{at + 1}.yaml]\n" for at in range(20)}
    with pytest.raises(InputError, match="files are included"):
        settings_of(tmp_path, "include: f0.yaml\n", **files, f20="a: 1\n")


def test_keys_that_are_not_used_are_named_once_at_their_highest_place(tmp_path):
    found = settings_of(
        tmp_path,
        "af-packet: [{interface: eth0}]\nvars: {port-groups: {HTTP_PORTS: '80'}, foo: 1}\nstream: {made-up: 1}\n",
        {"threading.cpus": "2"},
    )
    (warning,) = found.warnings
    assert "not used here: af-packet, vars.foo, threading" in warning
    many = settings_of(tmp_path, "".join(f"key{at}: 1\n" for at in range(MAX_UNKNOWN + 5)))
    assert "and 5 more" in many.warnings[0]


def test_what_is_not_used_is_said_with_the_rules_warnings(tmp_path):
    path = tmp_path / "suricata.yaml"
    path.write_text("foo: {bar: 1}\n")
    assert any("not used here: foo" in line for line in load_rule_set(EngineConfig(config=path)).loaded.warnings)


def test_settings_reach_into_lists(tmp_path):
    text = "outputs:\n  - eve-log: {enabled: yes, types: [alert, {http: {extended: yes}}, flow]}\n"
    assert settings_of(tmp_path, text).eve_types == {"alert": {}, "http": {"extended": True}, "flow": {}}
    assert settings_of(tmp_path, text, {"outputs.0.eve-log.types.2": "dns"}).eve_types.keys() == {
        "alert",
        "http",
        "dns",
    }
    assert settings_of(tmp_path, text, {"outputs.0.eve-log.enabled": "no"}).eve_types is None
    with pytest.raises(InputError, match="no entry '4'"):
        settings_of(tmp_path, text, {"outputs.4.eve-log.enabled": "no"})


def test_parts_are_handed_on(tmp_path):
    found = settings_of(
        tmp_path,
        """
app-layer:
  protocols:
    tls: {enabled: no, encryption-handling: bypass}
    imap: {enabled: detection-only}
    dns: {tcp: {enabled: yes}, udp: {enabled: no}}
napatech: {streams: ["0-3"]}
flow-timeouts: {tcp: {new: 60, established: 500, emergency-new: 5}, udp: {new: 20}}
host-os-policy: {linux: [10.0.0.0/8, 192.168.1.100], windows: []}
defrag: {timeout: 30}
""",
    )
    assert found.protocol("tls")["encryption-handling"] == "bypass"
    assert [found.enabled(name) for name in ("tls", "imap", "http")] == ["no", "detection-only", "yes"]
    assert (found.enabled("dns", "tcp"), found.enabled("dns", "udp")) == ("yes", "no")
    assert found.napatech == {"streams": ["0-3"]}
    assert found.timeouts() == FlowTimeouts(tcp_new=60, tcp_established=500, udp_new=20)
    assert found.host_policies["linux"] == "[10.0.0.0/8,192.168.1.100]"
    assert found.defrag_timeout == 30
    assert not found.warnings


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("app-layer: {protocols: [1]}", "not a mapping"),
        ("outputs: {eve-log: 1}", "not a list"),
        ("flow-timeouts: {tcp: {new: soon}}", "not a number"),
        ("host-os-policy: [linux]", "not a mapping"),
    ],
)
def test_parts_of_another_form_are_named(tmp_path, text, part):
    with pytest.raises(InputError, match=part):
        settings_of(tmp_path, text)


def test_flows_end_when_the_configuration_says(tmp_path):
    from flowshunt_ids.engine import IdsEngine

    config = tmp_path / "suricata.yaml"
    config.write_text("flow-timeouts: {default: {new: 5, bypassed: 9}, tcp: {closed: 3}}\n")
    session = IdsEngine().open(EngineConfig(config=config, flow_capacity=16))
    assert session.flow_timeouts == FlowTimeouts(other_new=5, bypassed=9, tcp_closed=3)
    assert IdsEngine().open(EngineConfig(flow_capacity=16)).flow_timeouts is None
