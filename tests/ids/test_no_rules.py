"""An engine without a rule says so, and why."""

import pytest

from flowshunt.engine import EngineConfig
from flowshunt_ids.engine import IdsEngine


@pytest.mark.parametrize(
    ("text", "said"),
    [(None, "is given"), ("# none\n", "is given"), ("alert mqtt any any -> any any (sid:1;)\n", "can be used")],
    ids=["no file", "empty file", "all skipped"],
)
def test_no_rule_is_a_warning(tmp_path, text, said):
    path = tmp_path / "x.rules"
    path.write_text(text or "")
    summary = IdsEngine().open(EngineConfig(rules=() if text is None else (path,))).summary()
    assert any("no rule" in warning and said in warning for warning in summary.warnings)
