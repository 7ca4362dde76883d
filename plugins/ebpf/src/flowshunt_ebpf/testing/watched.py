"""The interpreter, watched: at each step each register must be where the verifier said it would be."""

from collections.abc import Iterator, Sequence
from typing import Any

import attrs

from flowshunt.insn import Instruction
from flowshunt_ebpf.native import state
from flowshunt_ebpf.native.image import Image
from flowshunt_ebpf.native.interpreter import Interpreter
from flowshunt_ebpf.native.machine import Machine
from flowshunt_ebpf.verifier import Facts
from flowshunt_ebpf.verifier.scalar import UNKNOWN, Scalar, contains


@attrs.frozen
class Violation:
    """A run that was not as claimed.

    Attributes:
        index: the instruction.
        what: what was claimed and what was seen.
    """

    index: int
    what: str


class ViolationError(Exception):
    """A claim that a run refutes."""

    def __init__(self, index: int, what: str) -> None:
        self.violation = Violation(index, what)
        super().__init__(what)


Check = tuple[int, int, int, int, int, Scalar]


class Claims:
    """A verifier's facts, ready to be compared with registers."""

    def __init__(self, facts: Facts) -> None:
        self.checks: list[tuple[Check, ...] | None] = [_checks(known) for known in facts.bounds]


def _checks(known: Sequence[Scalar | None] | None) -> tuple[Check, ...] | None:
    if known is None:
        return None
    return tuple(
        (n, s.value, ~s.mask & UNKNOWN.umax, s.umin, s.umax, s)
        for n, s in enumerate(known)
        if s is not None and s != UNKNOWN
    )


class _Watched(Sequence[Instruction]):
    """A program's instructions; each time one is taken, the registers are compared with what is claimed of them."""

    def __init__(self, instructions: Sequence[Instruction], claims: Claims, interpreter: "WatchedInterpreter") -> None:
        self._instructions = instructions
        self._checks = claims.checks
        self._interpreter = interpreter

    def __getitem__(self, index: Any) -> Any:
        checks = self._checks[index]
        if checks is None:
            raise ViolationError(index, "it is claimed that no run reaches this instruction")
        self._interpreter.steps += 1
        registers = self._interpreter.registers
        for n, value, known, low, high, scalar in checks:
            r = registers[n]
            if r & known != value or not low <= r <= high or not contains(scalar, r):
                raise ViolationError(index, f"r{n} is claimed to be {scalar}; it is {r:#x}")
        return self._instructions[index]

    def __len__(self) -> int:
        return len(self._instructions)

    def __iter__(self) -> Iterator[Instruction]:
        return iter(self._instructions)


class WatchedInterpreter(Interpreter):
    """Runs an image and raises ViolationError where a register is not as claimed.

    Of the stack it allows only the frames of functions that are entered.
    """

    def __init__(self, image: Image, machine: Machine, claims: Claims) -> None:
        super().__init__(image, machine)
        self.registers: list[int] = []
        self.steps = 0
        self._plain = image
        self._stack = machine.stack_address
        self._stack_end = machine.get64(state.STACK_TOP)
        self._watched = attrs.evolve(image, instructions=_Watched(image.instructions, claims, self))  # type: ignore[arg-type]

    def _steps(self, image: Image, index: int, r: list[int]) -> int:
        outer = self.registers
        self.registers = r
        try:
            return super()._steps(self._watched if image is self._plain else image, index, r)
        finally:
            self.registers = outer

    def _inside(self, address: int, size: int, flags: int) -> bool:
        if self._stack <= address < self._stack_end and address < self.registers[10] - state.FRAME_BYTES:
            return False
        return super()._inside(address, size, flags)
