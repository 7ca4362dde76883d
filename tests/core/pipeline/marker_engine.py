"""A detection engine for pipeline tests that is plain enough to predict: it looks for marks in frames' payloads.

ATTACK: an alert. BYPASS: the flow is bypassed from this frame on. DROPIT: the frame is dropped.
"""

import attrs
import numpy as np

from flowshunt.engine import (
    DROPPED,
    INSPECTED,
    SKIPPED,
    Alert,
    BypassRequest,
    EngineConfig,
    EngineSummary,
    InspectionBatch,
    Signature,
    Verdicts,
)

ATTACK = Signature(1, message="attack")
AT_END = Signature(2, message="flow ended")


@attrs.define
class MarkerSession:
    config: EngineConfig
    request: BypassRequest
    alert_at_end: bool = False
    frames: int = 0
    ended: list[int] = attrs.field(factory=list)

    def inspect(self, batch: InspectionBatch) -> Verdicts:
        assert not set(batch.ended.tolist()) & set(batch.slot.tolist())
        alerts, bypassed = self._ended(batch.flows, batch.ended), set()
        disposition = np.full(len(batch), INSPECTED, np.uint8)
        for row in range(len(batch)):
            slot = int(batch.slot[row])
            payload = batch.frames.frame(row)
            if slot in bypassed:
                disposition[row] = SKIPPED
                continue
            if b"ATTACK" in payload:
                alerts.append(Alert(row, slot, int(batch.direction[row]), ATTACK, 0))
            if b"DROPIT" in payload:
                disposition[row] = DROPPED
            if b"BYPASS" in payload and self.config.bypass:
                bypassed.add(slot)
        self.frames += len(batch)
        slots = np.array(sorted(bypassed), np.int32)
        return Verdicts(alerts, disposition, slots, np.zeros(len(slots), np.uint16), (self.request,))

    def _ended(self, flows, ended):
        self.ended += ended.tolist()
        if not self.alert_at_end:
            return []
        return [Alert(-1, int(slot), 0, AT_END, int(flows[slot]["last"])) for slot in ended]

    def close(self, flows, ended) -> Verdicts:
        return Verdicts(self._ended(flows, ended))

    def summary(self) -> EngineSummary:
        return EngineSummary(counters={"frames": self.frames})


@attrs.define
class MarkerEngine:
    request: BypassRequest = attrs.field(factory=BypassRequest)
    alert_at_end: bool = False
    name: str = "marker"
    summary: str = "looks for marks"
    session: MarkerSession | None = None

    def open(self, config: EngineConfig) -> MarkerSession:
        self.session = MarkerSession(config, self.request, self.alert_at_end)
        return self.session
