"""Flows and their parsers: stream data in, candidates of the rules on transactions out."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from flowshunt.errors import FlowshuntWarning
from flowshunt_ids.app.contract import BOTH, TO_CLIENT, TO_SERVER, AppProtocol, Context
from flowshunt_ids.app.expectations import Expectations, address_of
from flowshunt_ids.app.flows import NEVER, AppFlow, Found, Outcome, Told, TransactionState
from flowshunt_ids.app.plans import Plan, TransactionRule
from flowshunt_ids.app.recognition import Recognizer
from flowshunt_ids.layout import SEGMENT_END, SEGMENT_GAP, SEGMENT_LOOK, SEGMENT_TO_CLIENT

MAX_TRANSACTIONS = 512
"""The most transactions that one flow keeps; the oldest are given up then (`app-layer.protocols.http` has the same)."""
MAX_HELD = 16 * 1024
"""Bytes of a flow that are kept until its protocol is known."""
CHUNK = 2560
"""Bytes of a stream that are looked at together at least, while a transaction goes on."""
FAILED = "failed"
"""In place of a protocol's name: none was recognized."""

_NO_PLAN = Plan()


class AppLayer:
    """The parsers of all flows."""

    def __init__(
        self,
        protocols: Mapping[str, AppProtocol],
        plans: Mapping[tuple[str, int], Plan],
        interest: frozenset[str],
        *,
        settings: Callable[[AppProtocol], Mapping[str, Any]],
        ports: Mapping[str, tuple[int, ...]],
        wants: frozenset[str] = frozenset(),
        eve: frozenset[str] = frozenset(),
    ) -> None:
        """protocols: those that are switched on, by name. interest: those whose transactions are looked at.

        settings: a protocol's part of the configuration; ports: for `Recognizer`; eve: protocols whose transactions
        are told.
        """
        self._protocols = protocols
        self._plans = plans
        asked = interest | eve
        self._interest = asked | {name for name, protocol in protocols.items() if protocol.expects & asked}
        self._always: dict[tuple[Plan, Callable[[int], bool]], dict[int, int]] = {}
        self._expectations = Expectations()
        self._settings = settings
        self._wants = wants
        self._eve = eve
        self._recognizers = {transport: Recognizer(protocols.values(), transport, ports) for transport in (6, 17)}
        self._flows: dict[int, AppFlow] = {}
        self._fresh: list[AppFlow] = []
        self.counters = {"flows": 0, "transactions": 0, "parser_errors": 0, "transactions_given_up": 0}

    def protocol_of(self, slot: int, direction: int | None = None) -> str:
        """The protocol of a flow; "" where it is not known (yet), `FAILED` where none was recognized.

        direction: what one side seems to speak, where that matters.
        """
        flow = self._flows.get(slot)
        if flow is None:
            return ""
        return flow.protocol if direction is None else flow.others.get(direction, flow.protocol)

    def known_since(self, slot: int) -> tuple[int, int]:
        """For each direction the row of this batch from which on a flow's protocol is known; -1: before; or `NEVER`."""
        flow = self._flows.get(slot)
        return (flow.known[0], flow.known[1]) if flow is not None else (NEVER, NEVER)

    def first_time(self, slot: int, rule: int, direction: int) -> bool:
        """Whether this is asked for the first time of a flow, a rule and a direction."""
        flow = self._flows[slot]
        which = rule << 1 | direction
        if which in flow.asked:
            return False
        flow.asked.add(which)
        return True

    def begin(self) -> None:
        """Begin a batch."""
        for flow in self._fresh:
            flow.known = [-1 if row != NEVER else NEVER for row in flow.known]
        self._fresh = []

    def forget(self, slots: Sequence[int]) -> None:
        """Drop flows that ended."""
        for slot in slots:
            self._flows.pop(slot, None)

    def run(
        self,
        segments: Sequence[tuple[int, ...]],
        buffer: bytes | memoryview,
        flows: Any,
        members: Callable[[int, int], Callable[[int], bool]],
        outcome: Outcome,
    ) -> None:
        """Work through SEGMENT rows (as tuples) of `track`'s second output in their order.

        buffer: holds their bytes. flows: FLOW rows. members: takes a slot and a direction, and gives the function that
        tells whether a rule is in the flow's group.
        """
        for row, slot, gap, start, length, _piece, _pieces, _scan, flags in segments:
            flow = self._flows.get(slot)
            if flow is None:
                flow = self._flows[slot] = AppFlow()
                self.counters["flows"] += 1
            if flow.protocol == FAILED:
                continue
            direction = TO_CLIENT if flags & SEGMENT_TO_CLIENT else TO_SERVER
            if length:
                self._data(flow, slot, row, direction, bytes(buffer[start : start + length]), flows, outcome)
            elif flags & SEGMENT_GAP:
                self._gap(flow, slot, direction, gap, flows, outcome)
            elif flags & SEGMENT_END:
                self._end(flow, slot, direction, outcome)
            if flags & SEGMENT_LOOK and flow.parser is not None:
                self._look(flow, slot, row, direction, members, outcome)

    def _data(
        self, flow: AppFlow, slot: int, row: int, direction: int, data: bytes, flows: Any, outcome: Outcome
    ) -> None:
        if flow.parser is not None and flow.parser.becomes is not None:
            self._change(flow, slot, row, flows, outcome)
        if flow.protocol:
            if flow.known[direction] == NEVER and not flow.over[direction]:
                self._known(flow, direction, row)
                self._recognize_other(flow, slot, direction, data, flows)
            if flow.parser is not None:
                self._parse(flow, direction, data)
                if flow.parser is not None and self._protocols[flow.protocol].expects:
                    self._announce(flow, flows[slot])
            return
        record = flows[slot]
        transport = int(record["protocol"])
        flow.held.append((direction, data))
        flow.held_bytes += len(data)
        begin = data if transport == 17 else flow.begins[direction] + data
        flow.begins[direction] = begin
        if not flow.over[direction] or transport == 17:
            ports = int(record["source_port"]), int(record["destination_port"])
            name = self._recognizers[transport].look(begin, direction, ports)
            expected = None
            if not name and self._expectations:
                expected = self._expectations.take(record, direction)
                name = name if expected is None else expected.protocol
            if name:
                about = None if expected is None else expected.about
                self._recognized(flow, slot, row, name, record, outcome, about)
                return
            flow.over[direction] = name is not None
        if flow.over == [True, True] or flow.held_bytes > MAX_HELD:
            self._known(flow, 0, row)
            self._known(flow, 1, row)
            self._give_up(flow, slot, outcome)

    def _change(self, flow: AppFlow, slot: int, row: int, flows: Any, outcome: Outcome) -> None:
        """Go on with the protocol that follows the one so far."""
        old, name = flow.parser, flow.parser.becomes
        if flow.protocol in self._eve:
            outcome.told.extend(Told(row, slot, flow.protocol, transaction) for transaction in old.transactions)
        flow.parser, flow.protocol = None, ""
        flow.over = [False, False]
        flow.begins = [b"", b""]
        if name in self._protocols:
            self._recognized(flow, slot, row, name, flows[slot], outcome)

    def _known(self, flow: AppFlow, direction: int, row: int) -> None:
        flow.known[direction] = row
        self._fresh.append(flow)

    def _recognize_other(self, flow: AppFlow, slot: int, direction: int, data: bytes, flows: Any) -> None:
        """Note where the side that speaks second seems to speak another protocol than the first."""
        record = flows[slot]
        ports = int(record["source_port"]), int(record["destination_port"])
        name = self._recognizers[int(record["protocol"])].look(data, direction, ports)
        if name and name != flow.protocol:
            flow.others[direction] = name

    def _give_up(self, flow: AppFlow, slot: int, outcome: Outcome) -> None:
        flow.protocol = FAILED
        flow.held = []
        flow.begins = [b"", b""]
        outcome.stop.append(slot)

    def _recognized(
        self,
        flow: AppFlow,
        slot: int,
        row: int,
        name: str,
        record: Any,
        outcome: Outcome,
        about: Any = None,
    ) -> None:
        flow.protocol = name
        for direction in {direction for direction, _part in flow.held}:
            # A side of which nothing was recognized is not said to speak the other's protocol: so does Suricata.
            if not flow.over[direction]:
                self._known(flow, direction, row)
        held, flow.held, flow.begins = flow.held, [], [b"", b""]
        if name not in self._interest:
            outcome.stop.append(slot)
            return
        protocol = self._protocols[name]
        context = Context(
            self._settings(protocol),
            int(record["protocol"]),
            int(record["source_port"]),
            int(record["destination_port"]),
            self._wants,
            address_of(record, "source"),
            about,
        )
        flow.parser = protocol.open(context)
        for direction, part in held:
            if flow.parser is None:
                return
            if isinstance(part, int):
                self._tell(flow, flow.parser.gap, direction, part)
            else:
                self._parse(flow, direction, part)
        if protocol.expects and flow.parser is not None:
            self._announce(flow, record)

    def _announce(self, flow: AppFlow, record: Any) -> None:
        """Take from a parser which flows it expects."""
        for expected in flow.parser.expected:
            if expected.protocol in self._interest:
                self._expectations.add(record, expected)
        flow.parser.expected.clear()

    def _parse(self, flow: AppFlow, direction: int, data: bytes) -> None:
        flow.recent[direction].append(data)
        flow.recent_bytes[direction] += len(data)
        if not self._tell(flow, flow.parser.data, direction, data):
            return
        transactions = flow.parser.transactions
        if len(transactions) > MAX_TRANSACTIONS:
            self.counters["transactions_given_up"] += len(transactions) - MAX_TRANSACTIONS
            del transactions[:-MAX_TRANSACTIONS]

    def _tell(self, flow: AppFlow, call: Callable[..., None], *arguments: Any) -> bool:
        """Tell a flow's parser something. False: it raised, and is left out; a plugin's mistake stops no run."""
        try:
            call(*arguments)
        except Exception as problem:
            self._fail(flow, problem)
            return False
        return True

    def _fail(self, flow: AppFlow, problem: Exception) -> None:
        self.counters["parser_errors"] += 1
        if self.counters["parser_errors"] == 1:
            message = f"the parser of {flow.protocol} raised {type(problem).__name__}: {problem}; its flow is left out"
            warnings.warn(message, FlowshuntWarning, stacklevel=2)
        flow.parser, flow.protocol = None, FAILED

    def _gap(self, flow: AppFlow, slot: int, direction: int, size: int, flows: Any, outcome: Outcome) -> None:
        if flow.parser is not None:
            self._tell(flow, flow.parser.gap, direction, size)
        elif not flow.protocol:
            # Nothing is recognized behind a hole.
            flow.held.append((direction, size))
            flow.over[direction] = True
            if flow.over == [True, True]:
                self._give_up(flow, slot, outcome)

    def _end(self, flow: AppFlow, slot: int, direction: int, outcome: Outcome) -> None:
        if flow.parser is not None:
            self._tell(flow, flow.parser.end, direction)

    def _look(
        self,
        flow: AppFlow,
        slot: int,
        row: int,
        direction: int,
        members: Callable[[int, int], Callable[[int], bool]],
        outcome: Outcome,
    ) -> None:
        """Look at a flow's transactions in one direction, and take out those that are done with."""
        parser, name = flow.parser, flow.protocol
        protocol = self._protocols[name]
        plan = self._plans.get((name, direction), _NO_PLAN)
        done = protocol.done[direction]
        finished = False
        belongs: Callable[[int], bool] | None = None
        for transaction in parser.transactions:
            if not transaction.changed[direction]:
                continue
            transaction.changed[direction] = False
            state = transaction.state[direction]
            if state is None:
                state = transaction.state[direction] = TransactionState()
            progress = transaction.progress[direction]
            if plan.rules:
                if belongs is None:
                    belongs = members(slot, direction)
                self._inspect(flow, slot, row, direction, transaction, state, plan, progress, belongs, outcome)
                transaction.looked(direction)
            if progress >= done:
                state.final = finished = True
        if finished or flow.recent_bytes[direction] >= CHUNK:
            flow.recent[direction].clear()
            flow.recent_bytes[direction] = 0
        if parser.bypass and not flow.wished:
            flow.wished = True
            outcome.wishes.append((slot, row, protocol, parser))
        if finished:
            self._retire(flow, slot, row, protocol, outcome)
        if parser.bypass and not any(each.changed[0] or each.changed[1] for each in parser.transactions):
            # Nothing more comes that anyone looks at.
            outcome.stop.append(slot)
            if name in self._eve:
                outcome.told.extend(Told(row, slot, name, transaction) for transaction in parser.transactions)
            flow.parser = None
            return
        if row < 0 and direction == TO_CLIENT and name in self._eve:
            outcome.told.extend(Told(row, slot, name, transaction) for transaction in parser.transactions)
            parser.transactions.clear()

    def _retire(self, flow: AppFlow, slot: int, row: int, protocol: AppProtocol, outcome: Outcome) -> None:
        kept = []
        for transaction in flow.parser.transactions:
            states = transaction.state
            over = all(
                state is not None and state.final and not transaction.changed[direction]
                for direction, state in zip(BOTH, states, strict=True)
            )
            if not over:
                kept.append(transaction)
                continue
            self.counters["transactions"] += 1
            if protocol.name in self._eve:
                outcome.told.append(Told(row, slot, protocol.name, transaction))
        flow.parser.transactions[:] = kept

    def _inspect(
        self,
        flow: AppFlow,
        slot: int,
        row: int,
        direction: int,
        transaction: Any,
        state: TransactionState,
        plan: Plan,
        progress: int,
        belongs: Callable[[int], bool],
        outcome: Outcome,
    ) -> None:
        opened, closed = state.open, state.closed
        if not state.scanned & 1:
            state.scanned |= 1
            always = self._always.get((plan, belongs))
            if always is None:
                always = self._always[plan, belongs] = dict.fromkeys(filter(belongs, plan.always), 0)
            opened.update(always)
        bit = 1
        for scan in plan.scans:
            bit <<= 1
            if scan.progress > progress:
                break
            if state.scanned & bit:
                continue
            data = scan.get(transaction, direction)
            if data is not None:
                for each in data if scan.multiple else (data,):
                    for pattern in scan.scan(each):
                        for rule in scan.rules[pattern]:
                            if rule not in opened and rule not in closed and belongs(rule):
                                opened[rule] = 0
            if progress > scan.progress or (data is not None and not scan.streaming):
                state.scanned |= bit
        if not opened:
            return
        for rule in sorted(opened):
            mine = plan.rules[rule]
            answer = self._evaluate(flow, mine, opened, transaction, direction, progress)
            if answer is None:
                continue
            if answer and mine.again is not None and progress > mine.again:
                opened[rule] = 0
            elif not (answer and mine.repeats):
                del opened[rule]
                closed.add(rule)
            if answer:
                outcome.found.append(Found(row, slot, direction, rule, transaction))

    @staticmethod
    def _evaluate(
        flow: AppFlow, rule: TransactionRule, opened: dict[int, int], transaction: Any, direction: int, progress: int
    ) -> bool | None:
        """Whether a rule matches; None: that is not decided yet."""
        held = opened[rule.number]
        bit = 1
        for step in rule.steps:
            if not held & bit:
                if step.progress > progress:
                    opened[rule.number] = held
                    return None
                answer = step.judge(transaction, direction)
                if answer:
                    if not step.repeats:
                        held |= bit
                elif step.patient:
                    opened[rule.number] = held
                    return answer
                elif progress > step.progress or (answer is False and not step.streaming):
                    return False
                else:
                    opened[rule.number] = held
                    return None
            bit <<= 1
        opened[rule.number] = held
        if rule.payload is None:
            return True
        recent = flow.recent[direction]
        if len(recent) > 1:
            recent[:] = [b"".join(recent)]
        return True if recent and rule.payload(recent[0]) else None
