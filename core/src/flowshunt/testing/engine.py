"""The contract tests of detection engines: well-formed verdicts, whatever the traffic and however it is cut."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from flowshunt.contracts import check_engine
from flowshunt.engine import (
    DROPPED,
    INSPECTED,
    SKIPPED,
    Alert,
    BypassRequest,
    DetectionEngine,
    EngineConfig,
    EngineSession,
    EngineSummary,
    InspectionBatch,
    Signature,
    Verdicts,
)
from flowshunt.errors import FlowshuntError
from flowshunt.flows.record import Bypass
from flowshunt.packets.batch import FrameBatch
from flowshunt.testing.claims import Claim, check_column, make_claims, must
from flowshunt.testing.traffic import conversations, hostile, split

CAPACITY = 1 << 10
"""Flows of the test's host."""


@attrs.frozen
class EngineCase:
    """An engine, and the configuration to open it with."""

    engine: DetectionEngine
    config: EngineConfig

    def open(self, **config: Any) -> EngineSession:
        """A session."""
        return self.engine.open(attrs.evolve(self.config, flow_capacity=CAPACITY, **config))


def engine_contract(engine: DetectionEngine, config: EngineConfig | None = None) -> tuple[Claim, ...]:
    """The claims that a detection engine must hold. `config`: rules and settings to open it with; None: none at all."""
    name = getattr(engine, "name", type(engine).__name__)
    return make_claims(f"detection engine {name}", EngineCase(engine, config or EngineConfig()), CLAIMS)


def object_holds_the_contract(case: EngineCase) -> None:
    """It has every attribute of the contract."""
    check_engine(case.engine)


def opens_and_says_what_it_loaded(case: EngineCase) -> None:
    """It opens as configured, its summary is valid before the first batch and after the last, and so is its end."""
    session = case.open()
    _check_summary(session.summary())
    host = _Host(session)
    host.close()
    _check_summary(session.summary())


def a_missing_rule_file_is_refused(case: EngineCase) -> None:
    """A rule file that does not exist raises InputError, not another error."""
    missing = Path("no-such-folder") / "no-such-file.rules"
    try:
        case.open(rules=(missing,))
    except FlowshuntError:
        return
    raise AssertionError("it opened with a rule file that does not exist")


def verdicts_are_well_formed(case: EngineCase) -> None:
    """Every verdict has one disposition a frame, flows that are bypassed once, and alerts that lie in the batch."""
    for bypass in (True, False):
        host = _Host(case.open(bypass=bypass))
        host.receive(split(conversations().frames, 5))
        host.close()


def without_bypass_every_frame_is_inspected(case: EngineCase) -> None:
    """Opened with bypass=False it bypasses no flow and skips no frame."""
    host = _Host(case.open(bypass=False))
    host.receive(split(conversations().frames, 5))
    host.close()
    must(not host.bypassed, f"{len(host.bypassed)} flows were bypassed")
    must(SKIPPED not in host.dispositions, "frames were skipped")


def an_empty_batch_is_nothing(case: EngineCase) -> None:
    """A batch of no frames gives no alerts and no dispositions, at the start and in the middle."""
    host = _Host(case.open())
    host.receive([FrameBatch.empty()])
    host.receive(split(conversations().frames, 2))
    before = len(host.alerts)
    host.receive([FrameBatch.empty()])
    must(len(host.alerts) == before, "an empty batch gave alerts")
    host.close()


def hostile_frames_are_only_frames(case: EngineCase) -> None:
    """Cut off, random and lying frames raise nothing."""
    for bypass in (True, False):
        host = _Host(case.open(bypass=bypass))
        host.receive(split(hostile(), 7))
        host.close()


def alerts_do_not_depend_on_the_cut(case: EngineCase) -> None:
    """The same frames in one batch, a few, or many give the same alerts on the same frames."""
    frames = conversations().frames
    expected = _alerts(case, [frames])
    for parts in (6, 61):
        found = _alerts(case, split(frames, parts))
        must(found == expected, f"in {parts} batches: {_difference(expected, found)}")


def sessions_share_nothing(case: EngineCase) -> None:
    """Two sessions at once give what each gives alone."""
    frames = conversations().frames
    expected = _alerts(case, split(frames, 4))
    hosts = [_Host(case.open(bypass=False)) for _ in range(2)]
    for part in split(frames, 4):
        for host in hosts:
            host.receive([part])
    for host in hosts:
        host.close()
        found = Counter(host.alerts)
        must(found == expected, f"side by side: {_difference(expected, found)}")


def no_view_of_a_batch_is_kept(case: EngineCase) -> None:
    """Overwriting a batch's buffer once its verdict is there changes no later verdict."""
    frames = conversations().frames
    expected = _alerts(case, split(frames, 9))
    host = _Host(case.open(bypass=False), overwrite=True)
    host.receive(split(frames, 9))
    host.close()
    found = Counter(host.alerts)
    must(found == expected, f"with the buffer overwritten: {_difference(expected, found)}")


CLAIMS = (
    object_holds_the_contract,
    opens_and_says_what_it_loaded,
    a_missing_rule_file_is_refused,
    verdicts_are_well_formed,
    without_bypass_every_frame_is_inspected,
    an_empty_batch_is_nothing,
    hostile_frames_are_only_frames,
    alerts_do_not_depend_on_the_cut,
    sessions_share_nothing,
    no_view_of_a_batch_is_kept,
)


class _Host:
    """The pipeline's host side, as far as an engine can tell; checks every verdict."""

    def __init__(self, session: EngineSession, *, overwrite: bool = False) -> None:
        from flowshunt.flows.table import FlowTable

        self._session = session
        self._overwrite = overwrite
        self._table = FlowTable(CAPACITY)
        self._ended = np.empty(0, np.int32)
        self.alerts: list[tuple[int, int, int, int]] = []
        self.bypassed: set[int] = set()
        self.dispositions: set[int] = set()

    def receive(self, batches: Iterable[FrameBatch]) -> None:
        """Take batches in; frames of flows that were bypassed don't reach the engine."""
        from flowshunt.packets.decode import decode

        for given in batches:
            frames = attrs.evolve(given, data=given.data.copy()) if self._overwrite else given
            headers = decode(frames)
            tracking = self._table.track(frames, headers)
            records = self._table.records
            keep = np.flatnonzero((tracking.slot < 0) | (records["bypass"][tracking.slot] == Bypass.NONE))
            numbers = given.first + keep
            self._judge(
                InspectionBatch(
                    frames.select(keep),
                    headers[keep],
                    tracking.slot[keep],
                    tracking.direction[keep],
                    tracking.events[keep],
                    self._flows(),
                    self._ended,
                ),
                numbers,
            )
            self._ended = self._table.drain().slots
            if self._overwrite:
                frames.data[:] = 0xA5

    def close(self) -> None:
        """End all flows and the session."""
        self._table.close()
        ended = np.concatenate([self._ended, self._table.drain().slots])
        verdicts = self._session.close(self._flows(), ended)
        self._check(verdicts, 0, np.empty(0, np.int32))
        self._note(verdicts, np.empty(0, np.int64))

    def _judge(self, batch: InspectionBatch, numbers: NDArray[np.int64]) -> None:
        verdicts = self._session.inspect(batch)
        self._check(verdicts, len(batch), batch.slot)
        self.dispositions.update(np.unique(verdicts.disposition).tolist())
        skipped = np.unique(batch.slot[verdicts.disposition == SKIPPED])
        must(np.isin(skipped, verdicts.bypass_slot).all(), "a frame is skipped whose flow this verdict does not bypass")
        self._note(verdicts, numbers)
        live = verdicts.bypass_slot[self._table.records["end_reason"][verdicts.bypass_slot] == 0]
        self.bypassed.update(self._table.records["id"][live].tolist())
        self._table.bypass(live, 1, Bypass.LOCAL)

    def _check(self, verdicts: Verdicts, count: int, slot: NDArray[np.int32]) -> None:
        must(isinstance(verdicts, Verdicts), f"the verdict is {type(verdicts).__name__}, not Verdicts")
        check_column("disposition", verdicts.disposition, np.uint8, count)
        known = (INSPECTED, DROPPED, SKIPPED)
        must(np.isin(verdicts.disposition, known).all(), f"a disposition is none of {known}")
        check_column("bypass_slot", verdicts.bypass_slot, np.int32, None)
        check_column("bypass_request", verdicts.bypass_request, np.uint16, len(verdicts.bypass_slot))
        must(len(np.unique(verdicts.bypass_slot)) == len(verdicts.bypass_slot), "a flow is bypassed twice")
        inside = (verdicts.bypass_slot >= 0) & (verdicts.bypass_slot < CAPACITY)
        must(inside.all(), f"a slot to bypass is outside 0 to {CAPACITY - 1}")
        must((self._table.records["id"][verdicts.bypass_slot] != 0).all(), "a slot to bypass holds no flow")
        must((verdicts.bypass_request < len(verdicts.requests)).all(), "a bypass_request has no request")
        must(all(isinstance(r, BypassRequest) for r in verdicts.requests), "a request is no BypassRequest")
        last = -1
        for alert in verdicts.alerts:
            must(isinstance(alert, Alert), f"an alert is {type(alert).__name__}, not Alert")
            must(isinstance(alert.signature, Signature), "an alert's signature is no Signature")
            must(alert.row == -1 or 0 <= alert.row < count, f"an alert's row is {alert.row} in a batch of {count}")
            must(alert.direction in (0, 1), f"an alert's direction is {alert.direction}")
            if alert.row >= 0:
                must(alert.row >= last, "alerts are not in the order of their frames")
                must(alert.slot == slot[alert.row], f"an alert on row {alert.row} has another slot than its frame")
                last = alert.row
            else:
                must(0 <= alert.slot < CAPACITY, f"an alert without a row has the slot {alert.slot}")

    def _note(self, verdicts: Verdicts, numbers: NDArray[np.int64]) -> None:
        for alert in verdicts.alerts:
            number = int(numbers[alert.row]) if alert.row >= 0 else -1 - int(self._table.records["id"][alert.slot])
            self.alerts.append((number, alert.direction, alert.signature.gid, alert.signature.sid))

    def _flows(self) -> NDArray[Any]:
        view = self._table.records.view()
        view.flags.writeable = False
        return view


def _alerts(case: EngineCase, batches: Iterable[FrameBatch]) -> Counter[tuple[int, int, int, int]]:
    """All alerts of a whole run with nothing bypassed: (frame number, direction, gid, sid)."""
    host = _Host(case.open(bypass=False))
    host.receive(batches)
    host.close()
    return Counter(host.alerts)


def _difference(expected: Counter[Any], found: Counter[Any]) -> str:
    missing, more = list((expected - found).items()), list((found - expected).items())
    return f"missing {missing[:3]}, added {more[:3]} (frame, direction, gid, sid)"


def _check_summary(summary: EngineSummary) -> None:
    must(isinstance(summary, EngineSummary), f"the summary is {type(summary).__name__}, not EngineSummary")
    must(isinstance(summary.loaded, int) and summary.loaded >= 0, f"loaded is {summary.loaded!r}")
    for name, value in summary.counters.items():
        must(isinstance(name, str) and isinstance(value, int), f"the counter {name!r} is {value!r}, not a whole number")
