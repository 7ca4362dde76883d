"""The contract of detection engines: batches of delivered frames in, verdicts out."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import attrs
import numpy as np
from numpy.typing import NDArray

from flowshunt.packets.batch import FrameBatch

NEW = 1
"""`InspectionBatch.events`: the first frame of its flow, or of a slot that is used again."""
ESTABLISHED = 2
"""`InspectionBatch.events`: frames were seen both ways (TCP: the handshake is complete), this one included."""

INSPECTED = 0
"""`Verdicts.disposition`: the engine looked at the frame and let it pass."""
DROPPED = 1
"""`Verdicts.disposition`: a rule says that this frame is dropped."""
SKIPPED = 2
"""`Verdicts.disposition`: the frame's flow was bypassed by an earlier frame of the same batch."""


@attrs.frozen
class EngineConfig:
    """What a run asks of an engine.

    Attributes:
        rules: rule files, in the order given.
        config: a configuration file in the engine's own format, or None.
        settings: `key=value` settings from the command line, which win over `config`.
        bypass: whether verdicts may bypass flows. Without it, what a rule says of bypassing (and the pass or drop of
            a rule that bypasses) has no effect, so that every frame is inspected: the base line of a comparison.
        flow_capacity: slots are in [0, flow_capacity).
        events: types of events beside alerts that the run writes ("http", ...), for engines that tell them.
        workers: how many sessions share the run's frames, each with the frames between some hosts. With more than one,
            what depends on all of them is left open in `Alert.deferred`, and named in `EngineSummary.unshared`.
    """

    rules: tuple[Path, ...] = ()
    config: Path | None = None
    settings: Mapping[str, str] = attrs.field(factory=dict)
    bypass: bool = True
    flow_capacity: int = 1 << 20
    events: frozenset[str] = frozenset()
    workers: int = 1


@attrs.frozen(eq=False)
class InspectionBatch:
    """Frames that reached the host and are not bypassed, in order of arrival, as columns of length n.

    Attributes:
        frames: the frames themselves.
        headers: HEADER[n], see `flowshunt.packets.headers`.
        slot: int32[n], the row of `flows` that the frame belongs to; -1 for frames of no flow (no IP, table full).
        direction: uint8[n], 0 from the flow's initiator, 1 to it.
        events: uint8[n], the bits NEW and ESTABLISHED.
        flows: FLOW[capacity], the host's flow records, read only, as they stand after the whole batch.
        ended: int32[k], slots whose flows ended before this batch; none of them is used in this batch.
    """

    frames: FrameBatch
    headers: NDArray[Any]
    slot: NDArray[np.int32]
    direction: NDArray[np.uint8]
    events: NDArray[np.uint8]
    flows: NDArray[Any]
    ended: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.slot)


@attrs.frozen
class Signature:
    """What identifies a rule in an alert. `action`: what the rule's header says (alert, pass, drop, reject)."""

    sid: int
    gid: int = 1
    rev: int = 0
    message: str = ""
    category: str = ""
    priority: int = 3
    action: str = "alert"
    references: tuple[str, ...] = ()
    metadata: Mapping[str, Sequence[str]] = attrs.field(factory=dict, eq=False)


@attrs.frozen
class Alert:
    """One alert: the row of the batch that triggered it, its flow's slot (-1: none), and the rule.

    `row` is -1 where no frame of the batch triggered it (the end of a stream); `timestamp` (ns) then is the flow's
    last, and source and destination are the flow's in the given direction. `deferred`: plain data that tells whether
    the alert stands where all sessions' alerts meet, see `JudgingEngine`; None: it does.
    """

    row: int
    slot: int
    direction: int
    signature: Signature
    timestamp: int
    app_proto: str = ""
    details: Mapping[str, Any] = attrs.field(factory=dict, eq=False)
    deferred: Any = attrs.field(default=None, eq=False)


@attrs.frozen
class EngineEvent:
    """What an engine tells of a flow beside alerts, for EVE.

    Attributes:
        row, slot, direction, timestamp: as in `Alert`; source and destination are the flow's in that direction.
        kind: the event's type ("http").
        fields: what stands beside the fields that all events have, by name.
    """

    row: int
    slot: int
    direction: int
    kind: str
    fields: Mapping[str, Any]
    timestamp: int


@attrs.frozen
class BypassRequest:
    """One way to act on the rest of a flow: an offload action's name, its parameters, and who asked (for reports)."""

    action: str = "drop"
    parameters: Mapping[str, int] = attrs.field(factory=dict)
    cause: str = ""


def _empty(dtype: Any) -> NDArray[Any]:
    return np.empty(0, dtype)


@attrs.frozen(eq=False)
class Verdicts:
    """An engine's answer to one batch.

    Attributes:
        alerts: in the order of the frames that triggered them.
        disposition: uint8[n], INSPECTED, DROPPED or SKIPPED for each frame of the batch.
        bypass_slot: int32[k], the flows to bypass from now on, no slot twice.
        bypass_request: uint16[k], for each of them an index into `requests`.
        requests: the distinct requests.
        events: what is told beside, in order.
    """

    alerts: Sequence[Alert] = ()
    disposition: NDArray[np.uint8] = attrs.field(factory=lambda: _empty(np.uint8))
    bypass_slot: NDArray[np.int32] = attrs.field(factory=lambda: _empty(np.int32))
    bypass_request: NDArray[np.uint16] = attrs.field(factory=lambda: _empty(np.uint16))
    requests: Sequence[BypassRequest] = ()
    events: Sequence[EngineEvent] = ()


@attrs.frozen
class RuleProblem:
    """A rule that was not loaded: where it stands, its sid (0: unknown), and why."""

    path: str
    line: int
    sid: int
    reason: str


@attrs.frozen
class EngineSummary:
    """What an engine says of itself after loading and at the end of a run.

    Attributes:
        loaded: rules in use.
        skipped: rules left out, each with its reason.
        warnings: one line each.
        counters: anything else that is worth reporting, as plain numbers by dotted name.
        unshared: why sessions can't share the frames of a run with these rules, one line each (state that rules keep
            across flows); empty: they can.
    """

    loaded: int = 0
    skipped: Sequence[RuleProblem] = ()
    warnings: Sequence[str] = ()
    counters: Mapping[str, int] = attrs.field(factory=dict)
    unshared: Sequence[str] = ()


@runtime_checkable
class EngineSession(Protocol):
    """An engine at work on one run. Not thread-safe; one session per partition.

    It may have an attribute `flow_timeouts`: the `flowshunt.flows.record.FlowTimeouts` that its configuration asks for
    (None: it asks for none), by which flows then end.
    """

    def inspect(self, batch: InspectionBatch) -> Verdicts:
        """Judge a batch. Called in order of arrival; must not keep views of the batch's buffer after it returns."""

    def close(self, flows: NDArray[Any], ended: NDArray[np.int32]) -> Verdicts:
        """Finish: flush the streams of the slots in `ended` (all that are still open) and give the last alerts."""

    def summary(self) -> EngineSummary:
        """What was loaded and counted so far; valid before the first batch and after `close`."""


@runtime_checkable
class DetectionEngine(Protocol):
    """What a plugin returns from `flowshunt_detection_engines`."""

    @property
    def name(self) -> str:
        """The name to choose it by on the command line, lower case."""

    @property
    def summary(self) -> str:
        """One line on what it does."""

    def open(self, config: EngineConfig) -> EngineSession:
        """Start a session. Raises `flowshunt.errors.InputError` for rules or settings that can't be read."""


@runtime_checkable
class JudgingEngine(Protocol):
    """An engine whose sessions can share the frames of a run, and leave to one place what depends on all of them."""

    def judge(self) -> Callable[[Any, int], bool]:
        """What decides whether an alert stands, by its `deferred` and its timestamp; asked in the alerts' order."""
