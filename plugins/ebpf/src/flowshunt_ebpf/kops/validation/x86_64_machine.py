"""One x86-64 instruction at work: its operands read and written, its flags set.

A write to the low 32 bits of a register clears the upper ones; one to the low 8 or 16 leaves the rest. What a processor
leaves undefined is a variable of its own each time, so that a proof holds whatever it is.
"""

from collections.abc import Callable
from typing import Final

from flowshunt_ebpf.kops.validation.forward import Jump, NotModelledError, State
from flowshunt_ebpf.kops.validation.term import Term
from flowshunt_ebpf.kops.validation.terms import Terms
from flowshunt_ebpf.kops.validation.x86_64_decode import FULL, VECTORS, Decoded, Immediate, Place, Register

FLAGS: Final = ("cf", "zf", "sf", "of")
WIDTHS: Final = {**dict.fromkeys(FULL, 64), **dict.fromkeys(VECTORS, 256), **dict.fromkeys(FLAGS, 1)}
"""The state: every name with its width in bits."""


class Machine:
    """One instruction at work on a state: its operands read and written by position."""

    def __init__(self, state: State, instruction: Decoded) -> None:
        self.state = state
        self.terms = state.terms
        self.instruction = instruction
        self.operands = instruction.operands

    def refuse(self, why: str) -> NotModelledError:
        """The error that says why the instruction has no semantics here."""
        return NotModelledError(f"{self.instruction.text}: {why}")

    def width(self, position: int = 0) -> int:
        """The width in bits of an operand in a register or in memory."""
        operand = self.operands[position]
        if isinstance(operand, Immediate):
            raise self.refuse(f"operand {position + 1} is a constant")
        return operand.width if isinstance(operand, Register) else 8 * operand.size

    def register(self, name: str, width: int = 64) -> Term:
        """The low bits of a register."""
        return self.terms.extract(self.state.values[name], 0, width)

    def put_register(self, name: str, value: Term) -> None:
        """Write a value to the low bits of a register."""
        values, terms = self.state.values, self.terms
        whole = values[name]
        if value.width >= 32 and whole.width == 64:
            values[name] = terms.zext(value, 64)
        else:
            values[name] = terms.concat(terms.extract(whole, value.width, whole.width - value.width), value)

    def address(self, place: Place) -> Term:
        """Where an operand in memory lies."""
        terms = self.terms
        where = self.register(place.base) if place.base else terms.const(0, 64)
        if place.index:
            shift = terms.const({1: 0, 2: 1, 4: 2, 8: 3}[place.scale], 64)
            where = terms.add(where, terms.apply("shl", self.register(place.index), shift))
        return terms.plus(where, place.displacement)

    def read(self, position: int, width: int | None = None) -> Term:
        """The value of an operand. `width`: of a constant, its sign extended; for others it must be theirs."""
        operand = self.operands[position]
        if isinstance(operand, Immediate):
            assert width is not None
            return self.terms.const(operand.value, width)
        if width is not None and self.width(position) != width:
            raise self.refuse("operands of these widths are not modelled")
        if isinstance(operand, Register):
            return self.register(operand.full, operand.width)
        return self.state.load(self.address(operand), operand.size)

    def write(self, position: int, value: Term) -> None:
        """Give an operand a value, of exactly its width."""
        operand = self.operands[position]
        if isinstance(operand, Immediate) or self.width(position) != value.width:
            raise self.refuse("operands of these widths are not modelled")
        if isinstance(operand, Register):
            self.put_register(operand.full, value)
        else:
            self.state.save(self.address(operand), value)

    def flag(self, name: str) -> Term:
        """A flag's value."""
        return self.state.values[name]

    def set_flags(self, *, result: Term | None = None, cf: Term | None = None, of: Term | None = None) -> None:
        """Set ZF and SF by a result, CF and OF to what is given; those not given become undefined."""
        terms = self.terms
        undefined = terms.arbitrary
        self.state.values |= {
            "cf": undefined(1) if cf is None else cf,
            "of": undefined(1) if of is None else of,
            "zf": undefined(1) if result is None else terms.eq(result, terms.const(0, result.width)),
            "sf": undefined(1) if result is None else top(terms, result),
        }


Semantics = Callable[[Machine], Jump | None]


def top(terms: Terms, value: Term) -> Term:
    """The highest bit."""
    return terms.extract(value, value.width - 1, 1)
