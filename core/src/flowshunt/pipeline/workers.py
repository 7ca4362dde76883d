"""A run by several processes: each plays the card's share of the frames and inspects it, and here their answers meet.

Every worker reads the captures itself, through the same pages of memory where they are files. Answers are put in order
burst by burst, so that alerts come out in the order of their frames, as from one process.
"""

import multiprocessing
import signal
from collections import Counter, deque
from collections.abc import Callable, Sequence
from functools import reduce
from multiprocessing.connection import Connection, wait
from typing import Any

import attrs
from numpy.typing import NDArray

from flowshunt.engine import JudgingEngine
from flowshunt.errors import ContractError, InputError
from flowshunt.pipeline.alert import AlertRecord, EventRecord, in_order
from flowshunt.pipeline.host import Sink
from flowshunt.pipeline.result import RunResult, merge
from flowshunt.pipeline.run import RunConfig, stop_request, work
from flowshunt.pipeline.shares import Share

MAX_WORKERS = 64
_AHEAD = 16
"""Bursts that a worker's answers may be ahead of the slowest one's."""


@attrs.define
class _Answer:
    """What a worker found in one burst. `upto`: how many frames of the run were read until then."""

    upto: int = 0
    time: int = 0
    done: int = 0
    total: int | None = None
    alerts: list[AlertRecord] = attrs.field(factory=list)
    told: list[EventRecord] = attrs.field(factory=list)
    flows: list[tuple[NDArray[Any], list[str]]] = attrs.field(factory=list)


class _Reporter:
    """The sink in a worker. Fulfils `flowshunt.pipeline.host.Sink`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._answer = _Answer()

    def alerts(self, alerts: Sequence[AlertRecord]) -> None:
        self._answer.alerts.extend(alerts)

    def told(self, events: Sequence[EventRecord]) -> None:
        self._answer.told.extend(events)

    def flows(self, records: NDArray[Any], actions: Sequence[str]) -> None:
        self._answer.flows.append((records.copy(), list(actions)))

    def burst(self, upto: int, time: int, done: int, total: int | None) -> None:
        """Send what was found since the last call."""
        answer = self._answer
        answer.upto, answer.time, answer.done, answer.total = upto, time, done, total
        self._connection.send(answer)
        self._answer = _Answer(upto, time, done, total)


def _main(connection: Connection, config: RunConfig, share: Share) -> None:
    """The body of a worker."""
    reporter = _Reporter(connection)
    try:
        with stop_request() as stop:
            result = work(config, reporter, None, stop, share=share, burst=reporter.burst)
        reporter.burst(reporter._answer.upto, reporter._answer.time, reporter._answer.done, reporter._answer.total)
        connection.send(result)
    except InputError as error:
        connection.send(error)
    except ContractError as error:
        connection.send(error)
    finally:
        connection.close()


@attrs.define(eq=False)
class _Worker:
    """One worker, as seen from here."""

    number: int
    process: Any
    connection: Connection
    answers: deque[_Answer] = attrs.field(factory=deque)
    result: RunResult | None = None
    error: Exception | None = None
    over: bool = False
    upto: int = 0
    time: int = 0

    def take(self) -> None:
        """Read one message; the end of them without a result means that the worker is gone."""
        try:
            message = self.connection.recv()
        except (EOFError, OSError):
            self.over = True
            return
        if isinstance(message, _Answer):
            self.answers.append(message)
        elif isinstance(message, RunResult):
            self.result = message
        else:
            self.error = message

    def loss(self, count: int, frames: int) -> str:
        """What is lost with a worker that is gone; `frames`: of the whole run."""
        self.process.join()
        code = self.process.exitcode
        how = (
            f"was killed by signal {-code} ({signal.Signals(-code).name})" if code < 0 else f"ended with status {code}"
        )
        return (
            f"worker {self.number + 1} of {count} {how}: its share of frames {self.upto + 1:,} to {frames:,} "
            "was not inspected; what was found before is reported"
        )


class _Merger:
    """Puts answers in order and hands them to the run's sink."""

    def __init__(self, sink: Sink | None, engine: Any) -> None:
        self._sink = sink
        self._judge = engine.judge() if isinstance(engine, JudgingEngine) else None
        self.alerts: Counter[Any] = Counter()
        self.alert_flows: Counter[tuple[int, int, str]] = Counter()

    def put(self, answers: Sequence[_Answer]) -> None:
        """Take the workers' answers to one burst."""
        alerts = in_order(alert for answer in answers for alert in answer.alerts)
        kept = [alert for alert in alerts if self._stands(alert)]
        for alert in kept:
            self.alerts[alert.signature] += 1
            self.alert_flows[alert.signature.gid, alert.signature.sid, alert.flow_label] += 1
        if self._sink is None:
            return
        if kept:
            self._sink.alerts(kept)
        told = sorted((event for answer in answers for event in answer.told), key=lambda event: event.frame)
        if told:
            self._sink.told(told)
        for answer in answers:
            for records, actions in answer.flows:
                self._sink.flows(records, actions)

    def _stands(self, alert: AlertRecord) -> bool:
        return alert.deferred is None or self._judge is None or self._judge(alert.deferred, alert.timestamp)


def run_workers(
    config: RunConfig,
    workers: int,
    sink: Sink | None = None,
    progress: Callable[[int, int | None], None] | None = None,
) -> RunResult:
    """`flowshunt.pipeline.run.run` by several processes. Alerts are those of one process, in the same order.

    Where a worker is killed, the others go on, and the result's `problems` name the frames that were lost with it.
    Raises InputError where there is nothing to share: captures that are streams can be read only once.
    """
    if "-" in config.captures:
        raise InputError("standard input can't be shared by workers", "-", "name capture files, or use one worker")
    context = multiprocessing.get_context("spawn")
    crew: list[_Worker] = []
    merger = _Merger(sink, config.engine)
    with stop_request() as stop:
        try:
            for number in range(workers):
                ours, theirs = context.Pipe(duplex=False)
                arguments = (theirs, attrs.evolve(config, workers=workers), Share(number, workers))
                process = context.Process(target=_main, args=arguments, daemon=True)
                process.start()
                theirs.close()
                crew.append(_Worker(number, process, ours))
            _follow(crew, merger, progress, stop.asked)
        finally:
            for worker in crew:
                if worker.process.is_alive() and worker.result is None:
                    worker.process.kill()
                worker.process.join()
                worker.connection.close()
        ended_by = stop.signal
    for worker in crew:
        if worker.error is not None:
            raise worker.error
    results = [worker.result for worker in crew if worker.result is not None]
    frames = max((worker.upto for worker in crew), default=0)
    lost = [worker.loss(workers, frames) for worker in crew if worker.result is None and worker.error is None]
    if not results:
        raise InputError(lost[0], ", ".join(config.captures), "there may be too little memory for so many workers")
    merged = reduce(merge, results)
    return attrs.evolve(
        merged,
        alerts=dict(merger.alerts),
        alert_flows=dict(merger.alert_flows),
        skipped_rules=results[0].skipped_rules,
        problems=(*dict.fromkeys(merged.problems), *lost),
        signal=ended_by or merged.signal,
    )


def _follow(
    crew: Sequence[_Worker],
    merger: _Merger,
    progress: Callable[[int, int | None], None] | None,
    stopped: Callable[[], bool],
) -> None:
    """Read what the workers send, and hand it on burst by burst, until all are done or gone."""
    told_to_stop = False
    while True:
        if stopped() and not told_to_stop:
            told_to_stop = True
            for worker in crew:
                worker.process.terminate()
        waiting = {worker.connection: worker for worker in crew if not worker.over and len(worker.answers) < _AHEAD}
        for connection in wait(list(waiting), timeout=0.2) if waiting else ():
            assert isinstance(connection, Connection)
            waiting[connection].take()
        while all(worker.answers or worker.over for worker in crew) and any(worker.answers for worker in crew):
            answers = []
            for worker in crew:
                if worker.answers:
                    answer = worker.answers.popleft()
                    worker.upto, worker.time = answer.upto, answer.time
                    answers.append(answer)
            merger.put(answers)
            if progress is not None:
                progress(max(answer.done for answer in answers), answers[0].total)
        if all(worker.over and not worker.answers for worker in crew):
            return
