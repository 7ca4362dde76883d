"""One run over captures: NIC to host buffers to engine to verdict to offload."""

import gc
import secrets
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np
from numpy.typing import NDArray

from flowshunt.action import OffloadAction
from flowshunt.engine import BypassRequest, DetectionEngine, EngineConfig
from flowshunt.flows.record import FlowTimeouts
from flowshunt.flows.table import FlowTable
from flowshunt.nic import Delivery, Nic, NicConfig, NicModel
from flowshunt.packets.batch import FrameBatch
from flowshunt.packets.capture import open_captures
from flowshunt.pipeline.burst import LONGEST, default_burst, parts_of
from flowshunt.pipeline.host import Host, Sink
from flowshunt.pipeline.mode import BypassMode
from flowshunt.pipeline.result import Amount, RunResult
from flowshunt.rows import take_rows

if TYPE_CHECKING:
    from flowshunt.pipeline.shares import Share

DEFAULT_FLOWS = 1 << 20


@attrs.frozen
class RunConfig:
    """What to run.

    Attributes:
        captures: capture files and folders; "-" is standard input.
        model, engine: as plugins offer them.
        rules, engine_config, settings: for the engine, see EngineConfig.
        actions: offload actions by name.
        override: act so on every bypassed flow, whatever the engine asks for.
        burst: frames in a burst, None: by the size of the captures, see `default_burst`. A verdict on a flow takes
            effect on the card with the next burst.
        host_buffers: None: the model's default.
        flow_capacity: flows that the host keeps; beyond it flows are displaced, see `flowshunt.flows.table`. Frames of
            more flows in one burst are inspected without a flow, and a warning tells how many.
        nic_flows: rows of the card's flow table, None: by need up to the model's.
        workers: processes that share the frames.
        seed: of the flow tables' hashes; random, so that nobody can make flows collide. No result depends on it.
    """

    captures: tuple[str, ...]
    model: NicModel
    engine: DetectionEngine
    mode: BypassMode
    actions: Mapping[str, OffloadAction]
    rules: tuple[Path, ...] = ()
    engine_config: Path | None = None
    settings: Mapping[str, str] = attrs.field(factory=dict)
    override: BypassRequest | None = None
    burst: int | None = None
    host_buffers: int | None = None
    flow_capacity: int = DEFAULT_FLOWS
    events: frozenset[str] = frozenset()
    nic_flows: int | None = None
    timeouts: FlowTimeouts = attrs.field(factory=FlowTimeouts)
    seed: int = attrs.field(factory=lambda: secrets.randbits(63))
    workers: int = 1


@attrs.define
class Stop:
    """The number of the signal that asked a run to end; 0: none did."""

    signal: int = 0

    def asked(self) -> bool:
        """Whether one did."""
        return self.signal != 0


@contextmanager
def stop_request() -> Iterator[Stop]:
    """What SIGINT and SIGTERM ask for, so that a run ends after its burst; a second signal acts as usual.

    A signal that is ignored (nohup, a shell's background job) stays so.
    """
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    previous: dict[int, Any] = {}

    def ask(number: int, frame: FrameType | None) -> None:
        del frame
        stop.signal = number
        signal.signal(number, previous[number])

    numbers: tuple[int, ...] = (signal.SIGINT, signal.SIGTERM)
    for number in numbers:
        if signal.getsignal(number) is not signal.SIG_IGN:
            previous[number] = signal.signal(number, ask)
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def run(
    config: RunConfig, sink: Sink | None = None, progress: Callable[[int, int | None], None] | None = None
) -> RunResult:
    """Run and count. `progress` is called with bytes read and bytes in all (None: unknown) after each burst.

    SIGINT and SIGTERM end the run after the burst at hand; the result then says `interrupted`. Raises InputError where
    a capture, rule file or configuration can't be used at all.
    """
    if config.workers > 1:
        from flowshunt.pipeline.workers import run_workers

        return run_workers(config, config.workers, sink, progress)
    with stop_request() as stop:
        return work(config, sink, progress, stop)


def work(
    config: RunConfig,
    sink: Sink | None,
    progress: Callable[[int, int | None], None] | None,
    stop: Stop,
    *,
    share: "Share | None" = None,
    burst: Callable[[int, int, int, int | None], None] | None = None,
) -> RunResult:
    """One process's part of a run: `share` of its frames (None: all).

    burst: called after each burst with the frames read so far, the time, and what `progress` takes. Where the engine
    can't share frames with these rules, share 0 is all of them and the others are empty.
    """
    try:
        return _work(config, sink, progress, stop, share, burst)
    finally:
        gc.unfreeze()


@contextmanager
def _made_to_stay() -> Iterator[None]:
    """Keep the garbage collector off while the many objects of a rule set are made, and afterwards off them."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if enabled:
            gc.enable()


def _work(
    config: RunConfig,
    sink: Sink | None,
    progress: Callable[[int, int | None], None] | None,
    stop: Stop,
    share: "Share | None",
    burst: Callable[[int, int, int, int | None], None] | None,
) -> RunResult:
    with _made_to_stay():
        session = config.engine.open(
            EngineConfig(
                rules=config.rules,
                config=config.engine_config,
                settings=config.settings,
                bypass=config.mode is not BypassMode.OFF,
                flow_capacity=config.flow_capacity,
                events=config.events,
                workers=config.workers,
            )
        )
    nic = config.model.open(
        NicConfig(
            host_buffers=config.host_buffers,
            actions=config.actions,
            flow_capacity=config.nic_flows,
            seed=config.seed,
        )
    )
    timeouts: FlowTimeouts | None = getattr(session, "flow_timeouts", None)
    table = FlowTable(config.flow_capacity, timeouts or config.timeouts, seed=config.seed)
    host = Host(
        nic,
        session,
        table,
        config.mode,
        sink,
        zero_copy=config.model.zero_copy,
        actions=config.actions,
        engine_name=config.engine.name,
        override=config.override,
    )
    card = Card(nic)
    unshared = host.session_summary().unshared if share is not None else ()
    with open_captures(
        config.captures, batch_frames=config.burst or default_burst(config.captures), stop=stop.asked
    ) as source:
        now = 0
        for batch in source:
            for begin, end in parts_of(batch):
                part = batch if end - begin == len(batch) else _part(batch, begin, end)
                if now and int(part.timestamp[0]) - now > LONGEST:
                    host.end_of_burst(int(part.timestamp[0]))
                now = max(now, int(part.timestamp.max()))
                rows = _share_of(part, share, bool(unshared))
                if rows is None:
                    card.burst(part, host, now)
                else:
                    card.burst(part.select(rows), host, now, part.first + rows)
            if progress is not None:
                progress(source.bytes_read, source.total_bytes)
            if burst is not None:
                burst(batch.first + len(batch), now, source.bytes_read, source.total_bytes)
            if stop.asked():
                break
        ended_by = stop.signal
        problems = [str(problem) for problem in source.problems if problem.damage]
        notices = [str(problem) for problem in source.problems if not problem.damage]
    notices.extend(f"one worker does all the work: {reason}" for reason in unshared)
    host.close()
    return _result(config, host, card, table, problems, notices, ended_by)


def _part(batch: FrameBatch, begin: int, end: int) -> FrameBatch:
    return attrs.evolve(batch.select(slice(begin, end)), first=batch.first + begin)


def _share_of(batch: FrameBatch, share: "Share | None", unshared: bool) -> NDArray[np.int64] | None:
    """The rows of a batch to work on; None: all."""
    if share is None or (unshared and share.number == 0):
        return None
    return np.empty(0, np.int64) if unshared else share.rows(batch)


class Card:
    """The NIC's side of a run: what it took, and what it acted on alone."""

    def __init__(self, nic: Nic) -> None:
        self.nic = nic
        self.ns = 0
        self.total = Amount()
        self.alone = Amount()

    def burst(self, batch: FrameBatch, host: Host, now: int, numbers_of: NDArray[np.int64] | None = None) -> None:
        """Run one burst through the card, and hand what is for inspection to the host.

        numbers_of: the number of each frame in the run; None: they count from the batch's first.
        """
        if not len(batch):
            host.end_of_burst(now)
            return
        start = time.thread_time_ns()
        delivery = self.nic.receive(batch)
        frames, headers, numbers = _for_inspection(batch, delivery)
        if numbers_of is not None:
            numbers = numbers_of[numbers - batch.first]
        total = Amount(len(batch), int(batch.wire.sum(dtype=np.int64)))
        self.total += total
        self.alone += Amount(len(batch) - len(frames), total.bytes - int(frames.wire.sum(dtype=np.int64)))
        self.ns += time.thread_time_ns() - start
        if len(frames):
            host.receive(frames, headers, numbers)
        host.end_of_burst(now)


def _for_inspection(batch: FrameBatch, delivery: Delivery) -> tuple[FrameBatch, Any, Any]:
    """Delivered frames of no flow entry. What a flow's action delivers (redirect, mirror) is not inspected again."""
    rows, headers, captured = delivery.rows, delivery.headers, delivery.captured
    if len(rows) == len(batch) and captured is None and not delivery.action.any():
        return batch, headers, batch.first + rows
    keep = delivery.action[rows] == 0
    if not keep.all():
        rows = rows[keep]
        headers = None if headers is None else take_rows(headers, np.flatnonzero(keep))
        captured = None if captured is None else captured[keep]
    frames = batch.select(rows)
    if captured is not None:
        frames = attrs.evolve(frames, captured=captured)
    return frames, headers, batch.first + rows


def _without_flow(table: FlowTable, capacity: int) -> Iterator[str]:
    """Tell of frames that the flow table had no row for: what follows of them was matched without its flow."""
    frames = table.counters.overflow
    if frames:
        yield (
            f"{frames:,} frames were inspected without a flow, since a burst had more flows than the table of "
            f"{capacity:,} has room for (a larger table or smaller bursts help: --flows, --burst)"
        )


def _result(
    config: RunConfig,
    host: Host,
    card: Card,
    table: FlowTable,
    problems: Sequence[str],
    notices: Sequence[str],
    ended_by: int,
) -> RunResult:
    statistics = card.nic.statistics()
    summary = host.session_summary()
    by_action = host.by_action
    for name, (frames, size) in statistics.by_action.items():
        by_action[name] = by_action.get(name, Amount()) + Amount(frames, size)
    nic_flows = {"asked": statistics.flows_asked, "learned": statistics.flows_learned}
    nic_flows.update({f"refused ({cause})": count for cause, count in statistics.flows_refused.items()})
    return RunResult(
        mode=config.mode,
        nic=config.model.name,
        engine=config.engine.name,
        total=card.total,
        delivered=Amount(statistics.delivered, statistics.delivered_bytes),
        inspected=host.inspected,
        dropped=host.dropped,
        bypassed_host=host.bypassed,
        bypassed_nic=card.alone,
        by_action={name: amount for name, amount in by_action.items() if amount.frames},
        host_time=host.time,
        nic_ns=card.ns,
        host_buffers=tuple(map(Amount, statistics.host_buffer_frames, statistics.host_buffer_bytes)),
        flows=table.counters.created,
        flows_bypassed=dict(host.flows_bypassed),
        flows_ended=dict(host.flows_ended),
        flows_overflow=table.counters.overflow,
        nic_flows=nic_flows,
        alerts=dict(host.alerts),
        alert_flows=dict(host.alert_flows),
        loaded_rules=summary.loaded,
        skipped_rules=tuple(summary.skipped),
        engine_counters=dict(summary.counters),
        problems=tuple(problems),
        warnings=(*summary.warnings, *_without_flow(table, config.flow_capacity), *notices),
        signal=ended_by,
    )
