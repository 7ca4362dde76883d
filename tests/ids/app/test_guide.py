"""The plugin that the guide builds works as it stands there."""

import importlib.metadata
import re
import sys
import types
from pathlib import Path

import pytest
from conversation import Conversation
from replay import inspect

from flowshunt import plugins
from flowshunt_ids.app import registry
from flowshunt_ids.rules import vocabulary

GUIDE = Path(__file__).parents[3] / "docs" / "ids-plugins.md"


@pytest.fixture
def memo(monkeypatch):
    """The guide's module as an installed plugin."""
    module = types.ModuleType("memo_of_the_guide")
    code = re.search(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)[1]
    exec(compile(code, str(GUIDE), "exec"), module.__dict__)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    points = [*importlib.metadata.entry_points(group=plugins.GROUP)]
    added = importlib.metadata.EntryPoint("memo", module.__name__, plugins.GROUP)
    found = plugins.discover([*points, added])
    monkeypatch.setattr(registry, "load_plugins", lambda: found)
    registry.registry.cache_clear()
    vocabulary.default_language.cache_clear()
    yield module
    registry.registry.cache_clear()
    vocabulary.default_language.cache_clear()


def test_its_rules_match(memo):
    talk = Conversation(dport=7).handshake()
    talk.send(0, b"MEMO k a secret\nMEMO long-long-key a secret\n").send(1, b"OK\nOK\n").send(0, b"MEMO x\n")
    rules = [
        'alert memo any any -> any any (memo.text; content:"secret"; memo.key_length:<8; sid:1;)',
        'alert memo any any -> any any (memo.text; content:"secret"; sid:2;)',
        "alert memo any any -> any any (app-layer-event:memo.no_text; sid:3;)",
        'alert tcp any any -> any any (app-layer-protocol:memo; content:"MEMO"; sid:4;)',
    ]
    assert inspect(talk.finish().frames, rules).counts() == {1: 1, 2: 2, 3: 1, 4: 1}
