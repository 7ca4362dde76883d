"""The engine `ids`."""

from collections.abc import Callable
from typing import Any

import attrs

from flowshunt.engine import EngineConfig, EngineSession


@attrs.frozen
class IdsEngine:
    """Suricata's rules over packets and reassembled streams. Fulfils `flowshunt.engine.DetectionEngine`."""

    name: str = "ids"
    summary: str = "Suricata rules over packets and reassembled TCP streams, with bypass"

    def open(self, config: EngineConfig) -> EngineSession:
        """Load the rules and start a session. Raises `flowshunt.errors.InputError`."""
        from flowshunt_ids.ruleset import load_rule_set
        from flowshunt_ids.session import Session

        return Session(load_rule_set(config), config.flow_capacity, workers=config.workers)

    def judge(self) -> Callable[[Any, int], bool]:
        """See `flowshunt.engine.JudgingEngine`."""
        from flowshunt_ids.shares import judge

        return judge()
