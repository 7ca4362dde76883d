"""Whether what the verifier accepts is safe: random programs, run on random inputs by the interpreter.

The interpreter checks every access by itself. No accepted program may ever fault, and at each step each register must
lie in the bounds that the verdict's facts claim.
"""

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

import attrs

from flowshunt.errors import InputError
from flowshunt_ebpf.contexts.layout import BY_TYPE, XDP, Context
from flowshunt_ebpf.maps.create import create_all
from flowshunt_ebpf.native.fault import FaultKind
from flowshunt_ebpf.native.image import Image, prepare
from flowshunt_ebpf.native.machine import Machine
from flowshunt_ebpf.program import Program
from flowshunt_ebpf.testing.memory_blocks import MAPS
from flowshunt_ebpf.testing.memory_programs import memory_program
from flowshunt_ebpf.testing.watched import Claims, Violation, ViolationError, WatchedInterpreter
from flowshunt_ebpf.verifier import Facts, Limits, verify

BUDGET: Final = 20_000
"""Jumps and calls of a run: loops that the runtime ends (bpf_loop, may_goto) may take longer and are left there."""
LIMITS: Final = Limits(instructions=20_000, seconds=20)
"""Random programs beyond this cost more time than they are worth."""


@attrs.define
class Tally:
    """What was tried, and what came of it.

    Attributes:
        accepted, rejected: programs.
        runs, steps: of accepted programs.
        cut: runs that the budget ended.
        rules: why programs were rejected.
        violations: by the seed of the program.
    """

    accepted: int = 0
    rejected: int = 0
    runs: int = 0
    steps: int = 0
    cut: int = 0
    rules: Counter[str] = attrs.field(factory=Counter)
    violations: dict[int, Violation] = attrs.field(factory=dict)


class Bench:
    """Machines that random programs run on, one for each kind of context."""

    def __init__(self) -> None:
        self.maps = create_all(MAPS)
        self._machines: dict[str, Machine] = {}

    def machine(self, context: Context) -> Machine:
        """The machine for programs of a context."""
        machine = self._machines.get(context.name)
        if machine is None:
            machine = self._machines[context.name] = Machine(context, self.maps)
        return machine

    def fill(self, machine: Machine, rng: random.Random, near: Sequence[int], lengths: Sequence[int]) -> None:
        """A random packet, random contents of maps: often numbers that the program compares with, or next to them.

        `lengths`: what packets are often as long as.
        """
        array, table, _, variables = self.maps
        for key in range(4):
            array.update(key.to_bytes(4, "little"), _contents(rng, near, 48))
        variables.update(bytes(4), _contents(rng, near, 40))
        table.clear()
        for key in range(6):
            if rng.random() < 0.7:
                table.update(key.to_bytes(4, "little"), _contents(rng, near, 24))
        size = rng.choice((14, 20, 34, 60, 64, 100, 1500))
        if rng.random() < 0.7:
            size = rng.choice(lengths) + rng.choice((-1, 0, 0, 1))
        machine.set_packet(_contents(rng, near, size))
        field = "ingress_ifindex" if machine.context is XDP else "mark"
        machine.set_context({field: rng.choice(near) & 0xFFFFFFFF})

    def prepare(self, program: Program) -> Image:
        """A program ready to run on the machine for its context."""
        return prepare(program, self.maps, context=BY_TYPE[program.type])

    def run(self, image: Image, facts: Facts, seed: int, *, runs: int, tally: Tally) -> Violation | None:
        """Run an accepted program on random inputs; the first thing that is not as claimed."""
        machine = self.machine(image.context)
        interpreter = WatchedInterpreter(image, machine, Claims(facts, image.program.instructions))
        rng = random.Random(seed)
        near = sorted({abs(i.imm) & 0xFFFFFFFF for i in image.program.instructions} | {1, 14})
        lengths = [*(n for n in near if 2 <= n <= 100), 14]
        for _ in range(runs):
            self.fill(machine, rng, near, lengths)
            before = machine.packet()
            try:
                outcome = interpreter.run(budget=BUDGET)
            except ViolationError as error:
                return error.violation
            finally:
                tally.runs += 1
                tally.steps, interpreter.steps = tally.steps + interpreter.steps, 0
            if outcome.fault is not None:
                if outcome.fault.kind != FaultKind.BUDGET:
                    return Violation(outcome.fault.index, outcome.fault.describe(image.program))
                tally.cut += 1
            if not facts.writes_packet and machine.packet() != before:
                return Violation(0, "it is claimed that it does not write to the packet; it did")
        return None


def _contents(rng: random.Random, near: Sequence[int], size: int) -> bytes:
    """Bytes that are anything, at an edge, or words that the program compares with."""
    kind = rng.random()
    if kind < 0.3:
        return rng.randbytes(size)
    if kind < 0.5:
        return bytes(rng.choice((0, 0, 1, 2, 7, 8, 31, 0x7F, 0x80, 0xFF)) for _ in range(size))
    if kind < 0.55:
        return bytes([rng.choice((0, 0xFF))]) * size
    words = [rng.choice(near) + rng.choice((-1, 0, 0, 1)) for _ in range(min(size, 64) // 8 + 1)]
    data = b"".join((word & 0xFFFFFFFFFFFFFFFF).to_bytes(8, "little") for word in words)
    return (data + bytes(max(size - len(data), 0)))[:size]


def try_programs(seeds: Iterable[int], *, runs: int = 4, accepted: int | None = None) -> Tally:
    """Verify a random program for each seed and run those that are accepted, until so many were."""
    bench, tally = Bench(), Tally()
    for seed in seeds:
        program = memory_program(seed)
        verdict = verify(program, limits=LIMITS)
        if verdict.facts is None:
            tally.rejected += 1
            assert verdict.rejection is not None
            tally.rules[verdict.rejection.rule] += 1
            continue
        try:
            image = bench.prepare(program)
        except InputError:  # an access to the context that no run reaches, which no runner takes all the same
            tally.rejected += 1
            tally.rules["not made ready"] += 1
            continue
        tally.accepted += 1
        violation = bench.run(image, verdict.facts, seed, runs=runs, tally=tally)
        if violation is not None:
            tally.violations[seed] = violation
        if accepted is not None and tally.accepted >= accepted:
            break
    return tally
