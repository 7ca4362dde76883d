"""Captures through the flow table and an `ids` session, without a NIC: what the tests compare with known answers."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from flowshunt.engine import Alert, EngineConfig, EngineSummary, InspectionBatch, Verdicts
from flowshunt.flows.record import FlowTimeouts
from flowshunt.flows.table import FlowTable
from flowshunt.packets.batch import LINK_ETHERNET, FrameBatch
from flowshunt.packets.capture import open_captures
from flowshunt.packets.decode import decode
from flowshunt_ids.engine import IdsEngine


@attrs.frozen
class Replay:
    """What came out: alerts with the frame's number in its capture (from 1; None: a flow's end), and all verdicts."""

    alerts: Sequence[tuple[int | None, Alert]]
    verdicts: Sequence[Verdicts]
    summary: EngineSummary
    requests: Mapping[int, str] = attrs.field(factory=dict)

    def counts(self) -> dict[int, int]:
        return dict(Counter(alert.signature.sid for _number, alert in self.alerts))

    def numbered(self) -> list[tuple[int | None, int]]:
        return [(number, alert.signature.sid) for number, alert in self.alerts]


class Run:
    """A session fed by hand."""

    def __init__(
        self,
        rules: Sequence[Path],
        *,
        config: Path | None = None,
        settings: Mapping[str, str] | None = None,
        bypass: bool = True,
        capacity: int = 1 << 14,
    ) -> None:
        self.table = FlowTable(capacity, FlowTimeouts())
        self.session = IdsEngine().open(EngineConfig(tuple(rules), config, settings or {}, bypass, capacity))
        self.alerts: list[tuple[int | None, Alert]] = []
        self.verdicts: list[Verdicts] = []
        self.bypassed: set[int] = set()
        self.requests: dict[int, str] = {}

    def give(self, frames: FrameBatch) -> Verdicts:
        headers = decode(frames)
        tracking = self.table.track(frames, headers)
        ended = self.table.drain()
        keep = ~np.isin(tracking.slot, np.array(sorted(self.bypassed), np.int32))
        numbers = frames.first + np.flatnonzero(keep)
        verdicts = self.session.inspect(
            InspectionBatch(
                frames.select(keep),
                headers[keep],
                tracking.slot[keep],
                tracking.direction[keep],
                tracking.events[keep],
                self.table.records,
                ended.slots,
            )
        )
        self._take(verdicts, numbers)
        self.bypassed |= set(verdicts.bypass_slot.tolist())
        for slot, request in zip(verdicts.bypass_slot.tolist(), verdicts.bypass_request.tolist(), strict=True):
            self.requests[slot] = verdicts.requests[request].cause
        return verdicts

    def _take(self, verdicts: Verdicts, numbers: Any) -> None:
        self.verdicts.append(verdicts)
        for alert in verdicts.alerts:
            self.alerts.append((int(numbers[alert.row]) + 1 if alert.row >= 0 else None, alert))

    def close(self) -> Replay:
        self.table.close()
        ended = self.table.drain()
        self._take(self.session.close(self.table.records, ended.slots), np.empty(0))
        return Replay(self.alerts, self.verdicts, self.session.summary(), self.requests)


def replay(
    captures: Sequence[Path],
    rules: Sequence[Path],
    *,
    config: Path | None = None,
    settings: Mapping[str, str] | None = None,
    bypass: bool = True,
    batch_frames: int = 4096,
) -> Replay:
    """Run captures through a fresh session."""
    run = Run(rules, config=config, settings=settings, bypass=bypass)
    with open_captures([str(path) for path in captures], batch_frames=batch_frames) as source:
        for batch in source:
            run.give(batch)
    return run.close()


def ethernet_batch(frames: Sequence[bytes], *, step: int = 1_000_000, first: int = 0) -> FrameBatch:
    """Frames made by hand, one every `step` ns."""
    lengths = np.array([len(frame) for frame in frames], np.uint32)
    count = len(frames)
    return FrameBatch(
        np.frombuffer(b"".join(frames) or b"\0", np.uint8),
        np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.int64) if count else np.empty(0, np.int64),
        lengths,
        lengths,
        (1_700_000_000_000_000_000 + step * (first + np.arange(count))).astype(np.int64),
        np.zeros(count, np.uint16),
        np.full(count, LINK_ETHERNET, np.uint16),
        first,
    )
