"""Configuration files and settings."""

from pathlib import Path

import pytest

from flowshunt.engine import EngineConfig
from flowshunt.errors import InputError
from flowshunt_ids.ruleset import load_rule_set
from flowshunt_ids.settings import MAX_REASSEMBLY, load_settings


def settings_of(tmp_path, text, **settings):
    path = tmp_path / "suricata.yaml"
    path.write_text(text)
    return load_settings(EngineConfig(config=path, settings={key.replace("__", "."): v for key, v in settings.items()}))


def test_defaults_are_suricatas():
    settings = load_settings(EngineConfig())
    assert (settings.depth, settings.chunk_to_server, settings.midstream) == (1 << 20, 2560, False)
    assert settings.variables.addresses["EXTERNAL_NET"] == "!$HOME_NET"


def test_a_file_and_the_settings_that_win_over_it(tmp_path):
    text = """%YAML 1.1
---
vars:
  address-groups: {HOME_NET: "10.1.0.0/16", LIST: [1.2.3.4, "5.6.7.0/24"]}
  port-groups: {HTTP_PORTS: "[80,8080]", ONE: 81}
stream:
  midstream: yes
  reassembly: {depth: 2mb, memcap: 100gb, toserver-chunk-size: 1kb}
not-known: [1, 2, {a: b}]
"""
    settings = settings_of(tmp_path, text, stream__reassembly__depth="64kb", packet_alert_max="3")
    assert settings.variables.addresses["LIST"] == "[1.2.3.4,5.6.7.0/24]"
    assert settings.variables.ports["ONE"] == "81"
    assert (settings.midstream, settings.depth, settings.chunk_to_server) == (True, 65536, 1024)
    assert settings.reassembly_memory == MAX_REASSEMBLY


def test_rule_files_and_classes_of_the_configuration(tmp_path):
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "one.rules").write_text(
        'alert udp any any -> any any (content:"a"; classtype:mine; sid:1;)\n'
    )
    (tmp_path / "classes").write_text("# c\nconfig classification: mine,My own class,7\nnonsense\n")
    (tmp_path / "refs").write_text("config reference: cve http://cve.example/\n")
    path = tmp_path / "s.yaml"
    path.write_text(
        "default-rule-path: rules\nrule-files: ['*.rules']\nclassification-file: classes\nreference-config-file: refs\n"
    )
    rules = load_rule_set(EngineConfig(config=path)).loaded.rules
    assert (rules[0].signature.category, rules[0].signature.priority) == ("My own class", 7)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("a: [1, 2", "not valid YAML"),
        ("- a\n- b\n", "not a mapping"),
        ("a: !!python/object/apply:os.system ['true']", "not valid YAML"),
        ("stream: {midstream: maybe}", "neither yes nor no"),
        ("stream: {reassembly: {depth: lots}}", "not a number of bytes"),
        ("stream: {reassembly: {depth: [1]}}", "not a number of bytes"),
        ("vars: {address-groups: [1]}", "not a mapping"),
        ("vars: {address-groups: {HOME_NET: {a: b}}}", "not a list"),
        ("rule-files: one.rules", "not a list"),
        ("classification-file: missing.config", "can't read"),
        ("bypass-action: 'rm -rf'", "not the name of an offload action"),
        ("a: " + "[" * 20000, ""),
    ],
)
def test_a_wrong_configuration_is_named(tmp_path, text, part):
    with pytest.raises(InputError) as wrong:
        settings_of(tmp_path, text)
    assert part in str(wrong.value)


def test_aliases_that_grow_do_no_harm(tmp_path):
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{at}: &a{at} [{', '.join([f'*a{at - 1}'] * 10)}]" for at in range(1, 30)]
    assert settings_of(tmp_path, "\n".join(lines)).depth == 1 << 20


def test_missing_files_are_named(tmp_path):
    with pytest.raises(InputError, match="nowhere"):
        load_rule_set(EngineConfig(rules=(tmp_path / "nowhere.rules",)))
    with pytest.raises(InputError, match="nowhere"):
        load_settings(EngineConfig(config=Path("/nowhere.yaml")))
