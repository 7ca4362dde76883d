"""What docs/verifier.md shows is so."""

import re
from pathlib import Path

import attrs

from flowshunt_ebpf.verifier import Limits

PAGE = (Path(__file__).parents[4] / "docs" / "verifier.md").read_text(encoding="utf-8")


def test_the_python_example_runs():
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(example, "docs/verifier.md", "exec"), {})


def test_every_rule_of_the_corpus_is_explained(cases):
    explained = set(re.findall(r"`([a-z-]+)`", PAGE))
    assert not {case.rule for case in cases if case.rule} - explained


def test_the_limits_are_those_that_there_are():
    table = PAGE[PAGE.index("## Limits") : PAGE.index("## Rules")]
    for field in attrs.fields(Limits):
        assert f"`{field.name}`" in table
        assert f"{field.default:,.0f}" in table or str(field.default) in table
