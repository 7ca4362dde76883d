"""Which rules let several sessions share the frames of a run."""

from pathlib import Path

import pytest

from flowshunt.engine import EngineConfig
from flowshunt_ids.ruleset import load_rule_set
from flowshunt_ids.shares import unshared


def reasons(folder: Path, options: str) -> tuple[str, ...]:
    rules = folder / "a.rules"
    rules.write_text(f"alert tcp any any -> any any ({options} sid:7;)\n")
    loaded = load_rule_set(EngineConfig((rules,))).loaded
    assert len(loaded.rules) == 1
    return unshared(loaded.rules)


@pytest.mark.parametrize(
    "options", ['content:"a";', "xbits:set,x,track ip_pair;", "tag:session,5,packets;", "tag:host,300,seconds,src;"]
)
def test_what_is_kept_of_two_hosts_or_changes_nothing_is_shared(tmp_path, options):
    assert reasons(tmp_path, options) == ()


@pytest.mark.parametrize("options", ["hostbits:set,x;", "xbits:set,x,track ip_src;"])
def test_what_is_kept_of_one_host_is_not_and_names_its_rule(tmp_path, options):
    (reason,) = reasons(tmp_path, options)
    assert "rule 7" in reason
