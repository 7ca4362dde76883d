"""The analysis: every path of a program is followed, until it ends or meets what is known already."""

import time
from collections.abc import Mapping
from typing import Final

from flowshunt.insn import (
    CALL_K,
    PSEUDO_CALL,
    PSEUDO_KFUNC_CALL,
    Instruction,
)
from flowshunt_ebpf.contexts.layout import BY_TYPE, Context
from flowshunt_ebpf.program import ControlFlow, ProgramType, liveness
from flowshunt_ebpf.verifier.arithmetic import arithmetic
from flowshunt_ebpf.verifier.branches import condition
from flowshunt_ebpf.verifier.facts import Facts, Recorder
from flowshunt_ebpf.verifier.functions import (
    GlobalFunction,
    call_global,
    callback,
    check_released,
    ended_by_tail_call,
    enter,
    leave,
    result_limit,
    stack_pointer,
)
from flowshunt_ebpf.verifier.globals import Signature, initial, signatures
from flowshunt_ebpf.verifier.helper_calls import TAIL_CALL, check_call, finish_call
from flowshunt_ebpf.verifier.limits import FIRST, Attempt, Limits
from flowshunt_ebpf.verifier.map_facts import map_facts
from flowshunt_ebpf.verifier.points import (
    ARITHMETIC,
    ATOMICS,
    CALLS,
    CONDITION,
    EXITS,
    IMMEDIATE,
    JUMP,
    LIMITED,
    LOAD,
    STORE,
    Point,
    jump_targets,
    operation,
    points,
)
from flowshunt_ebpf.verifier.prototypes import PROTOTYPES
from flowshunt_ebpf.verifier.pruning import Visits
from flowshunt_ebpf.verifier.rejection import Rejection, Step, UnsafeError
from flowshunt_ebpf.verifier.relevance import Relevance
from flowshunt_ebpf.verifier.scalar import unsigned_range
from flowshunt_ebpf.verifier.stack import Stack
from flowshunt_ebpf.verifier.stack_depth import callees, nested, with_tail_calls
from flowshunt_ebpf.verifier.state import Frame, Registers, State
from flowshunt_ebpf.verifier.transfer import atomic, legacy_load, load, load_immediate, store
from flowshunt_ebpf.verifier.values import CONTEXT, FIRST_ID, PACKET, SIZE_ID, Value, number

MAX_MEMORY: Final = 1 << 20
"""Bytes of bare memory at most (`native.machine.MAX_PACKET_ROOM`)."""
_PATH_SHOWN: Final = 8
_TIME_CHECKED: Final = 0x3FF


class StoppedError(Exception):
    """The analysis ended with a rejection."""

    def __init__(self, rejection: Rejection) -> None:
        self.rejection = rejection
        super().__init__(rejection.reason)


class Analysis:
    """One analysis of a program.

    Args:
        flow: its control flow, of right form.
        context: what r1 is.
        relevance: which numbers matter, and which control loops.
        limits: how far to go.
        attempts: for the program (0) and each global function by number, how it is looked at; `FIRST` if not named.
        deadline: when to give up, by `time.thread_time`.

    Attributes:
        root: what is looked at: the program (0) or a global function, by number.
        visits: the states that are kept for it.
        processed: instructions looked at.
        states: states kept, but for `visits`.
    """

    packet_writers: Final = frozenset(
        {ProgramType.XDP, ProgramType.SCHED_CLS, ProgramType.SCHED_ACT, ProgramType.UNSPEC}
    )

    def __init__(
        self,
        flow: ControlFlow,
        context: Context,
        relevance: Relevance,
        limits: Limits,
        *,
        attempts: Mapping[int, Attempt],
        deadline: float,
    ) -> None:
        program = flow.program
        self.flow = flow
        self.program = program
        self.context = context
        self.program_type = program.type if BY_TYPE.get(program.type) is context else context.program_type
        self.limits = limits
        self.deadline = deadline
        self.maps = map_facts(program)
        self.writes_packet = False
        self.processed = 0
        self.result_needed = True
        self.global_result = False
        self.result_limit: int | None = None
        live = liveness(flow)
        self._live = live
        self._relevance = relevance
        self._attempts = attempts
        self.root = 0
        self.states = 0
        self.visits = self._visits()
        self._recorder = Recorder(len(program.instructions))
        self._operations = bytes(operation(i) for i in program.instructions)
        self._targets = jump_targets(flow)
        self._points = points(flow)
        self._last_id = FIRST_ID
        self._depth = [0] * len(program.subprograms)
        self._numbers = {s.start: n for n, s in enumerate(program.subprograms)}
        self._accesses: dict[int, bool] = {}
        self._signatures: dict[int, Signature] = {}
        self._globals: dict[int, GlobalFunction] = {}
        self._frames: dict[int, int] = {}
        self._global_calls: dict[int, list[tuple[int, int]]] = {}
        self._work: list[State] = []

    # What the parts of the analysis ask and tell

    def new_id(self) -> int:
        """An id that nothing has yet."""
        self._last_id += 1
        return self._last_id

    def linked(self, registers: Registers, register: int) -> Value:
        """A register's number with an id, for a copy: what is learned of one is learned of both."""
        value = registers[register]
        assert value is not None
        if value.id or value.scalar.is_const:
            return value
        value = registers[register] = number(value.scalar, self.new_id())
        return value

    def note_access(self, index: int, context: bool) -> None:
        """An instruction accesses the context, or other memory; it may not do both."""
        if self._accesses.setdefault(index, context) != context:
            raise UnsafeError(
                "mixed-access",
                "one instruction accesses either the context or other memory",
                "on another way it accessed the other",
                "let the ways have loads and stores of their own",
            )

    def use_stack(self, subprogram: int, first: int) -> None:
        """A subprogram uses its frame from an offset from r10 on."""
        self._depth[subprogram] = max(self._depth[subprogram], -first)

    def note_call(self, state: State) -> None:
        """A function was entered."""
        depth = len(state.frames)
        if depth > self._frames.get(self.root, 1):
            self._frames[self.root] = depth

    def name_of(self, subprogram: int) -> str:
        """A subprogram's name."""
        return self.program.subprograms[subprogram].name

    def start_of(self, subprogram: int) -> int:
        """A subprogram's first instruction."""
        return self.program.subprograms[subprogram].start

    def function_at(self, index: int, imm: int) -> int:
        """The subprogram that a 64-bit load names."""
        low = imm & 0xFFFFFFFF
        return self._numbers[self.program.target(index, (low ^ 0x80000000) - 0x80000000)]

    # The whole

    def run(self) -> Facts:
        """Follow the program and its global functions. Raises StoppedError."""
        try:
            self._signatures = signatures(self.program, self.context.structure)
        except UnsafeError as why:
            raise StoppedError(self._rejection(why, State([], -1), -1)) from None
        self._globals = self._described_globals()
        self.result_limit = result_limit(self.program_type, self.program.attach_type)
        self._explore(0, self._first_arguments())
        done = {0}
        while True:
            called = {callee for calls in self._global_calls.values() for _, callee in calls} - done
            if not called:
                break
            for subprogram in sorted(called):
                done.add(subprogram)
                signature = self._signatures[self.start_of(subprogram)]
                self.result_needed = self.global_result = signature.returns
                self.result_limit = None
                self._explore(subprogram, initial(self, signature))
        frames = nested(self._frames, self._global_calls, 0, self.limits.frames)
        if frames > self.limits.frames:
            deep = UnsafeError("call-depth", f"calls may be {self.limits.frames} functions deep, the program included")
            raise StoppedError(self._rejection(deep, State([], -1), -1))
        accesses = frozenset(index for index, context in self._accesses.items() if context)
        known = self._recorder
        return Facts(known.bounds(), tuple(self._depth), frames, self.writes_packet, accesses, known.regions())

    @property
    def stack_used(self) -> list[int]:
        """Bytes of stack that each subprogram was seen to use."""
        return self._depth

    def _described_globals(self) -> dict[int, GlobalFunction]:
        """The global functions by subprogram number."""
        direct = set(with_tail_calls(self.flow))
        for index, i in enumerate(self.program.instructions):
            if i.opcode == CALL_K and not i.src and i.imm in PROTOTYPES and PROTOTYPES[i.imm].changes_packet:
                direct.add(self.flow.blocks[self.flow.block_of[index]].subprogram)
        calls = callees(self.flow)
        changing = direct
        while True:
            more = {n for n, called in enumerate(calls) if any(c in changing for _, c in called)} - changing
            if not more:
                break
            changing |= more
        return {
            self._numbers[start]: GlobalFunction(
                self.name_of(self._numbers[start]), s.parameters, self._numbers[start] in changing, s.returns
            )
            for start, s in self._signatures.items()
            if start in self._numbers
        }

    def _first_arguments(self) -> Registers:
        if self.context.structure:
            return [Value(CONTEXT), None, None, None, None]
        # Bare memory: its start, and how many bytes it has.
        return [Value(PACKET), number(unsigned_range(0, MAX_MEMORY), SIZE_ID), None, None, None]

    def _explore(self, subprogram: int, arguments: Registers) -> None:
        registers: Registers = [None, *arguments, None, None, None, None, stack_pointer(0)]
        self.root = subprogram
        self.visits = self._visits()
        self._work = [State([Frame(0, subprogram, -1, registers, Stack())], self.start_of(subprogram))]
        work = self._work
        while work:
            state = work.pop()
            self._follow(state)
            if state.node is not None:
                state.node.close()
        self.states += self.visits.kept
        self.visits = self._visits()

    def _visits(self) -> Visits:
        attempt = self._attempts.get(self.root, FIRST)
        return Visits(
            self._live.live_in,
            self._live.live_out,
            self._relevance.matters if attempt.compared else self._relevance.least,
            self._relevance.controls,
            width=attempt.width,
            most=self.limits.states,
            total=self.limits.kept_states - self.states,
        )

    def _push(self, state: State) -> None:
        work = self._work
        work.append(state)
        if state.node is not None:
            state.node.open += 1
        if len(work) > self.limits.branches:
            raise UnsafeError(
                "limit",
                f"{self.limits.branches} branches wait to be looked at",
                "",
                "make the program simpler, or raise the limit",
                limit=True,
            )

    def _follow(self, state: State) -> None:
        """Follow a state to an end. Raises StoppedError."""
        places = self._points
        note = self._recorder.note
        index = state.index
        try:
            while True:
                index = state.index
                point = places[index]
                if point:
                    if state.returned:
                        state.returned = False
                        point = Point.RETURNED
                    if not self.visits.arrive(state, point):
                        return
                note(index, state.frames[-1].registers)
                self.processed += 1
                if not self.processed & _TIME_CHECKED or self.processed > self.limits.instructions:
                    self._check_limits()
                if not self._step(state, index):
                    return
        except UnsafeError as why:
            raise StoppedError(self._rejection(why, state, index)) from None

    def _check_limits(self) -> None:
        if self.processed > self.limits.instructions:
            raise UnsafeError(
                "limit",
                f"{self.limits.instructions} instructions were looked at",
                "",
                "make the program simpler, bound its loops, or raise the limit",
                limit=True,
            )
        if time.thread_time() > self.deadline:
            raise UnsafeError(
                "limit", f"{self.limits.seconds:g} seconds have passed", "", "make the program simpler", limit=True
            )

    def _step(self, state: State, index: int) -> bool:
        """Carry one instruction out; False where the path ends."""
        i = self.program.instructions[index]
        what = self._operations[index]
        if what == ARITHMETIC:
            arithmetic(self, state, i)
        elif what == LOAD:
            load(self, state, i)
        elif what == STORE:
            store(self, state, i)
        elif what == CONDITION:
            return self._condition(state, i, index)
        elif what == JUMP:
            state.index = self._targets[index]
            return True
        elif what == CALLS:
            return self._call(state, i, index)
        elif what == IMMEDIATE:
            load_immediate(self, state, i)
        elif what == EXITS:
            return leave(self, state)
        elif what == ATOMICS:
            atomic(self, state, i)
        elif what == LIMITED:
            taken = state.copy(self._targets[index])
            taken.path = (state.path, index, True)
            self._push(taken)
            state.path = (state.path, index, False)
        else:
            ended = legacy_load(self, state, i)
            if ended is not None and leave(self, ended):
                self._push(ended)
        state.index = index + 1
        return True

    def _condition(self, state: State, i: Instruction, index: int) -> bool:
        path = state.path
        after, taken = condition(self, state, i, self._targets[index])
        if after is not None and taken is not None:
            after.path = (path, index, False)
            taken.path = (path, index, True)
            self._push(taken if after is state else after)
            return True
        state.path = (path, index, taken is not None)
        return True

    def _call(self, state: State, i: Instruction, index: int) -> bool:
        poisoned = self.program.poisoned.get(index)
        if poisoned is not None:
            raise UnsafeError("poisoned", poisoned, "the program may come here", "guard it")
        if i.src == PSEUDO_CALL:
            callee = self.flow.calls[index]
            function = self._globals.get(callee)
            if function is None:
                enter(self, state, callee)
            else:
                self._global_calls.setdefault(self.root, []).append((len(state.frames), callee))
                call_global(self, state, function)
            return True
        if i.src == PSEUDO_KFUNC_CALL:
            name = self.program.externals.get(index, f"of BTF id {i.imm}")
            raise UnsafeError("kernel-function", f"the kernel function {name} is not known", "", "use helpers")
        call = check_call(self, state, i.imm)
        if i.imm == TAIL_CALL:
            check_released(state, "a tail call")
            if len(state.frames) > 1:
                ended = ended_by_tail_call(state)
                if leave(self, ended):
                    self._push(ended)
        elif call.prototype.callback is not None:
            inner = callback(self, state, call)
            if inner is not None:
                self._push(inner)
        finish_call(self, state, call)
        state.index = index + 1
        return True

    def _rejection(self, why: UnsafeError, state: State, index: int) -> Rejection:
        steps: list[Step] = []
        path = state.path
        while path is not None and len(steps) < _PATH_SHOWN:
            path, at, taken = path
            steps.append(Step(at, taken))
        place = self.program.where(index) if index >= 0 else f"program {self.program.name}"
        calls = tuple(frame.call for frame in state.frames[1:])
        return Rejection(
            why.rule, index, place, why.needed, why.known, why.way_out, tuple(reversed(steps)), calls, why.limit
        )
