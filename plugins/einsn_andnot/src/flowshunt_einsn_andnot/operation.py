"""And-not: dst = kept & ~cleared, which compilers write as an XOR with -1 and an AND."""

from collections.abc import Iterator, Sequence
from typing import Final

from flowshunt.host_registers import HostRegisters
from flowshunt.insn import AND, XOR, Instruction, alu32, alu32_imm, alu64, alu64_imm, mov64
from flowshunt.operation import ExtendedOperation, NativeEmit
from flowshunt.payload import NO_REGISTER, Layout, Values, number, result, source, temporary
from flowshunt.recognition import Computed, Match, Pattern, View, alu, constant, either, find, low32, value

LAYOUT: Final = Layout(result("dst"), source("kept"), source("cleared"), temporary("complement"), number("wide", 1))
"""`complement`: where it goes while dst is still needed as `kept`."""


def admissible(v: Values) -> str | None:
    """Registers that would be lost before they are read."""
    if v.dst == v.kept:
        if v.complement in (v.dst, NO_REGISTER):
            return "the complement needs a register of its own"
    elif v.complement != NO_REGISTER:
        return "the complement is made in place"
    return "it is zero whatever the value" if v.kept == v.cleared else None


def proof(v: Values) -> Sequence[Instruction]:
    """The complement, and the AND."""
    by_register, by_number = (alu64, alu64_imm) if v.wide else (alu32, alu32_imm)
    place = v.complement if v.dst == v.kept else v.dst
    move = [mov64(place, v.cleared)] if place != v.cleared else []
    other = v.complement if v.dst == v.kept else v.kept
    return (*move, by_number(XOR, place, -1), by_register(AND, v.dst, other))


def andn(v: Values, register: HostRegisters) -> str:
    """x86-64 with BMI1."""
    bits = 64 if v.wide else 32
    return f"andn {register(v.dst, bits)}, {register(v.cleared, bits)}, {register(v.kept, bits)}"


def bic(v: Values, register: HostRegisters) -> str:
    """ARM64."""
    bits = 64 if v.wide else 32
    return f"bic {register(v.dst, bits)}, {register(v.kept, bits)}, {register(v.cleared, bits)}"


def _pattern(bits: int) -> Computed:
    def narrow(name: str) -> Pattern:
        return value(name) if bits == 64 else either(value(name), low32(value(name)))

    ones = constant(wanted=(1 << bits) - 1)
    return alu(AND, alu(XOR, narrow("cleared"), ones, bits=bits), narrow("kept"), bits=bits)


_PATTERNS: Final = {bits: _pattern(bits) for bits in (64, 32)}


def recognize(view: View) -> Iterator[Match]:
    """Every AND with a complement."""
    for bits, pattern in _PATTERNS.items():
        for found in find(view, pattern):
            kept, cleared = found.registers["kept"], found.registers["cleared"]
            free = sorted(found.temporaries, key=lambda r, wanted=cleared: r != wanted)  # type: ignore[misc]
            fields = {
                "dst": found.dst, "kept": kept, "cleared": cleared, "wide": int(bits == 64),
                "complement": free[0] if found.dst == kept and free else NO_REGISTER,
            }  # fmt: skip
            if admissible(Values(fields)) is None:
                yield found.match(LAYOUT.encode(**fields))


OPERATION = ExtendedOperation(
    name="andnot",
    summary="and-not: an AND with a complement",
    layout=LAYOUT,
    proof=proof,
    recognizer=recognize,
    emits={"x86_64": (NativeEmit(andn, frozenset({"bmi1"})),), "arm64": (NativeEmit(bic),)},
    max_instructions=3,
    max_bytes=6,
    admissible=admissible,
)
