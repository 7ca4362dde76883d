"""One run over captures: NIC to host buffers to engine to verdict to offload."""

import secrets
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import attrs
import numpy as np

from flowshunt.action import OffloadAction
from flowshunt.engine import BypassRequest, DetectionEngine, EngineConfig
from flowshunt.flows.record import FlowTimeouts
from flowshunt.flows.table import FlowTable
from flowshunt.nic import Delivery, Nic, NicConfig, NicModel
from flowshunt.packets.batch import FrameBatch
from flowshunt.packets.capture import open_captures
from flowshunt.pipeline.burst import default_burst
from flowshunt.pipeline.host import Host, Sink
from flowshunt.pipeline.mode import BypassMode
from flowshunt.pipeline.result import Amount, RunResult
from flowshunt.rows import take_rows

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


@attrs.define
class _Stop:
    """The number of the signal that asked a run to end; 0: none did."""

    signal: int = 0

    def asked(self) -> bool:
        return self.signal != 0


@contextmanager
def _stop_request() -> Iterator[_Stop]:
    """What SIGINT and SIGTERM ask for, so that a run ends after its burst; a second signal acts as usual.

    A signal that is ignored (nohup, a shell's background job) stays so.
    """
    stop = _Stop()
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
    session = config.engine.open(
        EngineConfig(
            rules=config.rules,
            config=config.engine_config,
            settings=config.settings,
            bypass=config.mode is not BypassMode.OFF,
            flow_capacity=config.flow_capacity,
            events=config.events,
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
    table = FlowTable(config.flow_capacity, config.timeouts, seed=config.seed)
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
    with _stop_request() as stop:
        with open_captures(
            config.captures, batch_frames=config.burst or default_burst(config.captures), stop=stop.asked
        ) as source:
            now = 0
            for batch in source:
                now = max(now, int(batch.timestamp.max()))
                card.burst(batch, host, now)
                if progress is not None:
                    progress(source.bytes_read, source.total_bytes)
                if stop.asked():
                    break
            ended_by = stop.signal
            problems = [str(problem) for problem in source.problems if problem.damage]
            notices = [str(problem) for problem in source.problems if not problem.damage]
        host.close()
        return _result(config, host, card, table, problems, notices, ended_by)


class Card:
    """The NIC's side of a run: what it took, and what it acted on alone."""

    def __init__(self, nic: Nic) -> None:
        self.nic = nic
        self.ns = 0
        self.total = Amount()
        self.alone = Amount()

    def burst(self, batch: FrameBatch, host: Host, now: int) -> None:
        """Run one burst through the card, and hand what is for inspection to the host."""
        start = time.thread_time_ns()
        delivery = self.nic.receive(batch)
        frames, headers, numbers = _for_inspection(batch, delivery)
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
