"""A detection engine for pipeline tests that bypasses flows by their endpoints, as the rules of the reference say."""

import attrs
import numpy as np
from reference import BypassRules, Fate, parse

from flowshunt.engine import DROPPED, INSPECTED, SKIPPED, BypassRequest, EngineConfig, EngineSummary, Verdicts

REQUESTS = (BypassRequest("drop", cause="pass rule"), BypassRequest("drop", cause="drop rule"))


@attrs.define
class EndpointSession:
    rules: BypassRules

    def inspect(self, batch) -> Verdicts:
        disposition = np.full(len(batch), INSPECTED, np.uint8)
        bypassed = {}
        for row, slot in enumerate(batch.slot.tolist()):
            if slot in bypassed:
                disposition[row] = SKIPPED
                continue
            fate = self.rules.verdict(parse(batch.frames.frame(row)))
            if fate is Fate.DROPPED:
                disposition[row] = DROPPED
            if fate is not None and slot >= 0:
                bypassed[slot] = int(fate is Fate.DROPPED)
        slots, requests = np.array(list(bypassed), np.int32), np.array(list(bypassed.values()), np.uint16)
        return Verdicts([], disposition, slots, requests, REQUESTS)

    def close(self, flows, ended) -> Verdicts:
        return Verdicts()

    def summary(self) -> EngineSummary:
        return EngineSummary()


@attrs.frozen
class EndpointEngine:
    name = "endpoints"
    summary = "bypasses flows by their endpoints"
    rules: BypassRules = attrs.field(factory=BypassRules)

    def open(self, config: EngineConfig) -> EndpointSession:
        return EndpointSession(self.rules)
