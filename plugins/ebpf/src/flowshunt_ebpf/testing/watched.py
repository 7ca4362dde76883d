"""The interpreter, watched: at each step each register must be where the verifier said it would be."""

from collections.abc import Iterator, Sequence
from typing import Any

import attrs

from flowshunt.insn import ATOMIC, LDX, LOAD_ACQ, ST, STX, Instruction
from flowshunt_ebpf.native import state
from flowshunt_ebpf.native.image import Image
from flowshunt_ebpf.native.interpreter import Interpreter
from flowshunt_ebpf.native.machine import Machine
from flowshunt_ebpf.verifier import Facts
from flowshunt_ebpf.verifier.facts import Region
from flowshunt_ebpf.verifier.scalar import UNKNOWN, Scalar, contains
from flowshunt_ebpf.verifier.values import CONTEXT, MAP_VALUE, PACKET, STACK


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


Place = tuple[int, int, int]
"""A register, a frame's number, and where in the frame it points."""

Access = tuple[int, int, bool, Region | None]
"""A base register, an offset, whether it is the context that is accessed, and the memory the register points to."""


class Claims:
    """A verifier's facts, ready to be compared with registers."""

    def __init__(self, facts: Facts, instructions: Sequence[Instruction]) -> None:
        self.checks: list[tuple[Check, ...] | None] = [_checks(known) for known in facts.bounds]
        self.places: list[tuple[Place, ...]] = [_places(known or ()) for known in facts.regions]
        self.accesses = [_access(i, n in facts.context_accesses, facts.regions[n]) for n, i in enumerate(instructions)]


def _checks(known: Sequence[Scalar | None] | None) -> tuple[Check, ...] | None:
    if known is None:
        return None
    return tuple(
        (n, s.value, ~s.mask & UNKNOWN.umax, s.umin, s.umax, s)
        for n, s in enumerate(known)
        if s is not None and s != UNKNOWN
    )


def _places(known: Sequence[Region | None]) -> tuple[Place, ...]:
    return tuple((n, r[1], r[2]) for n, r in enumerate(known) if r is not None and r[2] is not None)


def _access(i: Instruction, context: bool, regions: Sequence[Region | None] | None) -> Access | None:
    if i.cls not in (LDX, ST, STX) or regions is None:
        return None
    base = i.src if i.cls == LDX or (i.mode == ATOMIC and i.imm == LOAD_ACQ) else i.dst
    return base, i.offset, context, regions[base]


class _Watched(Sequence[Instruction]):
    """A program's instructions; each time one is taken, the registers are compared with what is claimed of them."""

    def __init__(self, instructions: Sequence[Instruction], claims: Claims, interpreter: "WatchedInterpreter") -> None:
        self._instructions = instructions
        self._checks = claims.checks
        self._places = claims.places
        self._accesses = claims.accesses
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
        top = self._interpreter.stack_top
        for n, frame, offset in self._places[index]:
            if registers[n] != top - state.FRAME_BYTES * frame + offset:
                what = (
                    f"r{n} is claimed to point to byte {offset} of frame {frame}; it is {registers[n] - top} of frame 0"
                )
                raise ViolationError(index, what)
        access = self._accesses[index]
        if access is not None:
            self._interpreter.check_place(index, *access)
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
        self.stack_top = machine.get64(state.STACK_TOP)
        self._watched = attrs.evolve(image, instructions=_Watched(image.instructions, claims, self))  # type: ignore[arg-type]

    def _steps(self, image: Image, index: int, r: list[int]) -> int:
        outer = self.registers
        self.registers = r
        try:
            return super()._steps(self._watched if image is self._plain else image, index, r)
        finally:
            self.registers = outer

    def _inside(self, address: int, size: int, flags: int) -> bool:
        if self._stack <= address < self.stack_top and address < self.registers[10] - state.FRAME_BYTES:
            return False
        return super()._inside(address, size, flags)

    def check_place(self, index: int, base: int, offset: int, context: bool, region: Region | None) -> None:
        """Raise ViolationError where an instruction accesses other memory than is claimed."""
        address = self.registers[base] + offset
        if self._is_in(address, CONTEXT, 0) != context:
            raise ViolationError(index, f"it is claimed {'' if context else 'not '}to access the context")
        if region is not None and not self._is_in(address, *region[:2]):
            raise ViolationError(index, f"r{base} points to memory of another kind than is claimed")

    def _is_in(self, address: int, kind: int, frame: int) -> bool:
        """Whether an address is in a kind of memory, as facts name it."""
        machine = self.machine
        if kind == STACK:
            base = self.stack_top - state.FRAME_BYTES * frame
            return base - state.FRAME_BYTES <= address < base
        if kind == PACKET:
            return machine.packet_start <= address < machine.packet_end
        context = machine.get64(state.CONTEXT)
        if kind == CONTEXT:
            return context <= address < context + machine.context.size
        assert kind == MAP_VALUE
        return any(base <= address < base + size for base, size, *_ in self._regions[state.FIRST_MAP_REGION :])
