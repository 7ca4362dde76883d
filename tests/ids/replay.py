"""Captures and frames through the flow table and an `ids` session, without a NIC."""

import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from flowshunt.engine import Alert, EngineConfig, EngineSummary, InspectionBatch, Verdicts
from flowshunt.flows.table import FlowTable
from flowshunt.packets.batch import LINK_ETHERNET, FrameBatch
from flowshunt.packets.capture import open_captures
from flowshunt.packets.decode import decode
from flowshunt_ids.engine import IdsEngine


@attrs.frozen
class Replay:
    """What came out.

    Attributes:
        alerts: with the frame's number from 1 (None: the end of a flow).
        verdicts: of each batch, and of the close.
        causes: of bypassed flows, by slot.
    """

    alerts: Sequence[tuple[int | None, Alert]]
    verdicts: Sequence[Verdicts]
    summary: EngineSummary
    causes: Mapping[int, str] = attrs.field(factory=dict)

    def counts(self) -> dict[int, int]:
        return dict(Counter(alert.signature.sid for _number, alert in self.alerts))

    def numbered(self) -> list[tuple[int | None, int]]:
        return [(number, alert.signature.sid) for number, alert in self.alerts]

    def dispositions(self) -> list[int]:
        return [int(value) for verdicts in self.verdicts for value in verdicts.disposition]


class Run:
    """A session fed by hand. Frames of bypassed flows are not given to it, as a host does it."""

    def __init__(
        self,
        rules: Sequence[Path],
        *,
        config: Path | None = None,
        settings: Mapping[str, str] | None = None,
        bypass: bool = True,
        capacity: int = 1 << 14,
    ) -> None:
        self.table = FlowTable(capacity)
        self.session = IdsEngine().open(EngineConfig(tuple(rules), config, settings or {}, bypass, capacity))
        self.alerts: list[tuple[int | None, Alert]] = []
        self.verdicts: list[Verdicts] = []
        self.bypassed = np.zeros(capacity, np.bool_)
        self.causes: dict[int, str] = {}
        self.ended = np.empty(0, np.int32)

    def give(self, frames: FrameBatch) -> Verdicts:
        headers = decode(frames)
        tracking = self.table.track(frames, headers)
        ended, self.ended = self.ended, self.table.drain().slots
        self.bypassed[ended] = False
        keep = ~(self.bypassed[tracking.slot] & (tracking.slot >= 0))
        numbers = frames.first + np.flatnonzero(keep)
        verdicts = self.session.inspect(
            InspectionBatch(
                frames.select(keep),
                headers[keep],
                tracking.slot[keep],
                tracking.direction[keep],
                tracking.events[keep],
                self.table.records,
                ended,
            )
        )
        self._take(verdicts, numbers)
        self.bypassed[verdicts.bypass_slot] = True
        for slot, request in zip(verdicts.bypass_slot.tolist(), verdicts.bypass_request.tolist(), strict=True):
            self.causes[slot] = verdicts.requests[request].cause
        return verdicts

    def _take(self, verdicts: Verdicts, numbers: Any) -> None:
        self.verdicts.append(verdicts)
        for alert in verdicts.alerts:
            self.alerts.append((int(numbers[alert.row]) + 1 if alert.row >= 0 else None, alert))

    def close(self) -> Replay:
        self.table.close()
        ended = np.concatenate([self.ended, self.table.drain().slots])
        self._take(self.session.close(self.table.records, ended), np.empty(0))
        return Replay(self.alerts, self.verdicts, self.session.summary(), self.causes)


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


def inspect(
    frames: Sequence[bytes],
    rules: Sequence[str],
    *,
    settings: Mapping[str, str] | None = None,
    config: str | None = None,
    bypass: bool = True,
    batch: int = 4096,
) -> Replay:
    """Run Ethernet frames through a fresh session with rules given as text; none of them may be skipped."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "test.rules"
        path.write_text("\n".join(rules) + "\n")
        configuration = Path(folder) / "suricata.yaml"
        if config is not None:
            configuration.write_text(config)
        run = Run([path], config=configuration if config is not None else None, settings=settings, bypass=bypass)
        assert not run.session.summary().skipped
        for first in range(0, len(frames), batch):
            run.give(ethernet_batch(frames[first : first + batch], first=first))
        return run.close()


def ethernet_batch(frames: Sequence[bytes], *, step: int = 10_000_000, first: int = 0) -> FrameBatch:
    """Frames made by hand, one every `step` ns; `first`: how many came before."""
    lengths = np.array([len(frame) for frame in frames], np.uint32)
    count = len(frames)
    offsets = np.zeros(count, np.int64)
    offsets[1:] = np.cumsum(lengths[:-1], dtype=np.int64)
    return FrameBatch(
        np.frombuffer(b"".join(frames) or b"\0", np.uint8),
        offsets,
        lengths,
        lengths,
        (1_700_000_000_000_000_000 + step * (first + np.arange(count))).astype(np.int64),
        np.zeros(count, np.uint16),
        np.full(count, LINK_ETHERNET, np.uint16),
        first,
    )
