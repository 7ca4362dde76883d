"""One ARM64 instruction at work: its registers read and written, its flags set, its conditions.

A write to the low 32 bits of a register clears the upper ones. Register 31 is zero or the stack pointer, by the place
where it stands.
"""

from collections.abc import Callable, Mapping
from typing import Final

from flowshunt_ebpf.kops.validation.arm64_decode import Decoded, fields_of
from flowshunt_ebpf.kops.validation.forward import Jump, NotModelledError, State
from flowshunt_ebpf.kops.validation.term import Term
from flowshunt_ebpf.kops.validation.terms import Terms

GENERAL: Final = (*(f"x{number}" for number in range(31)), "sp")
VECTORS: Final = tuple(f"v{number}" for number in range(32))
WIDTHS: Final = {**dict.fromkeys(GENERAL, 64), **dict.fromkeys(VECTORS, 128), **dict.fromkeys("nzcv", 1)}
"""The state: every name with its width in bits. v is the overflow flag, v0 to v31 are vector registers."""


class Machine:
    """One instruction at work on a state."""

    def __init__(self, state: State, instruction: Decoded) -> None:
        self.state = state
        self.terms = state.terms
        self.instruction = instruction
        self.fields: Mapping[str, int] = fields_of(instruction)
        self.width = 64 if self.fields.get("sf", 1) else 32

    def __getitem__(self, field: str) -> int:
        return self.fields[field]

    def refuse(self, why: str = "it is not modelled") -> NotModelledError:
        """The error that says why the instruction has no semantics here."""
        return NotModelledError(f"{self.instruction.text} ({self.instruction.kind}): {why}")

    def read(self, field: str, width: int | None = None, *, sp: bool = False) -> Term:
        """The low bits of the register in a field, as wide as the instruction says, or `width`."""
        number, bits = self.fields[field], width or self.width
        if number == 31 and not sp:
            return self.terms.const(0, bits)
        return self.terms.extract(self.state.values[GENERAL[number]], 0, bits)

    def write(self, field: str, value: Term, *, sp: bool = False) -> None:
        """Write the register in a field; the bits above the value become zero."""
        number = self.fields[field]
        if number != 31 or sp:
            self.state.values[GENERAL[number]] = self.terms.zext(value, 64)

    def set_flags(self, n: Term, z: Term, c: Term, v: Term) -> None:
        """Set all four flags."""
        self.state.values |= {"n": n, "z": z, "c": c, "v": v}

    def condition(self, number: int) -> Term:
        """A condition by its four bits."""
        terms, values = self.terms, self.state.values
        same = terms.not_(terms.xor(values["n"], values["v"]))
        base = (
            values["z"],
            values["c"],
            values["n"],
            values["v"],
            terms.and_(values["c"], terms.not_(values["z"])),
            same,
            terms.and_(same, terms.not_(values["z"])),
            terms.const(1, 1),
        )[number >> 1]
        return terms.not_(base) if number & 1 and number != 15 else base


Semantics = Callable[[Machine], Jump | None]


def extended(m: Machine, width: int, shift: int) -> Term:
    """ExtendReg of the manual: the low bits of a register, extended to `width` and shifted."""
    option = m["option"]
    bits = min(8 << (option & 3), width)
    low = m.read("m", bits)
    value = m.terms.sext(low, width) if option & 4 else m.terms.zext(low, width)
    return m.terms.apply("shl", value, m.terms.const(shift, width))


def reversed_bytes(terms: Terms, value: Term, group: int) -> Term:
    """The bytes in each group of `group` bits reversed."""
    starts = range(value.width - group, -1, -group)
    return terms.concat(*(terms.extract(value, start + at, 8) for start in starts for at in range(0, group, 8)))
