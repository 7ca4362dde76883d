"""Bit field extract: dst = `length` bits of src from bit `start` on, zero- or sign-extended, 32 or 64 bits wide."""

from collections.abc import Iterator, Sequence
from typing import Final

from flowshunt.host_registers import HostRegisters
from flowshunt.insn import AND, ARSH, LSH, RSH, Instruction, alu32_imm, alu64_imm, mov64
from flowshunt.operation import ExtendedOperation, NativeEmit
from flowshunt.payload import Layout, Values, number, result, source
from flowshunt.recognition import Computed, Found, Match, View, alu, constant, either, find, low32, value

LAYOUT: Final = Layout(
    result("dst"),
    source("src"),
    number("start", 6),
    number("length", 7, 1, 63),
    number("signed", 1),
    number("masked", 1),
    number("wide", 1),
)
"""`masked`: the plain form shifts and masks; else it shifts to the left and back."""

_MASK_BITS: Final = 31


def admissible(v: Values) -> str | None:
    """Fields that don't lie in the register, and masks that are no immediate."""
    width = 64 if v.wide else 32
    if v.start + v.length > width or v.length == width:
        return "the field does not lie in the register"
    if v.masked and (v.signed or v.length > _MASK_BITS or not v.start):
        return "there is no such mask"
    return None


def proof(v: Values) -> Sequence[Instruction]:
    """A shift and a mask, or two shifts."""
    by_number = alu64_imm if v.wide else alu32_imm
    move = [] if v.dst == v.src else [mov64(v.dst, v.src)]
    if v.masked:
        return (*move, by_number(RSH, v.dst, v.start), by_number(AND, v.dst, (1 << v.length) - 1))
    width = 64 if v.wide else 32
    left = width - v.start - v.length
    shift = [by_number(LSH, v.dst, left)] if left else []
    return (*move, *shift, by_number(ARSH if v.signed else RSH, v.dst, width - v.length))


def extend_x86_64(v: Values, register: HostRegisters) -> str:
    """x86-64: fields of 8, 16 and 32 bits from bit 0 on are moved with extension."""
    if v.start or v.length not in (8, 16, 32):
        return ""
    src = register(v.src, v.length)
    if not v.signed:
        return f"{'mov' if v.length == 32 else 'movzx'} {register(v.dst, 32)}, {src}"
    dst = register(v.dst, 64 if v.wide else 32)
    return f"{'movsxd' if v.length == 32 else 'movsx'} {dst}, {src}"


def rorx_and(v: Values, register: HostRegisters) -> str:
    """x86-64 with BMI2: a rotate to the other register that leaves the flags, and a mask."""
    if v.signed or v.length > _MASK_BITS or not v.start:
        return ""
    bits = 64 if v.wide else 32
    mask = (1 << v.length) - 1
    cut = f"and {register(v.dst, 32)}, {mask}"
    if v.length in (8, 16):
        cut = f"movzx {register(v.dst, 32)}, {register(v.dst, v.length)}"
    return f"rorx {register(v.dst, bits)}, {register(v.src, bits)}, {v.start}\n{cut}"


def shift_and(v: Values, register: HostRegisters) -> str:
    """x86-64: a move, a shift, and a mask or an extension of the low part; for long fields two shifts."""
    bits = 64 if v.wide else 32
    dst = register(v.dst, bits)
    move = f"mov {dst}, {register(v.src, bits)}\n" if v.dst != v.src or not v.wide else ""
    if v.signed or v.length > _MASK_BITS:
        left = bits - v.start - v.length
        shift = f"shl {dst}, {left}\n" if left else ""
        return f"{move}{shift}{'sar' if v.signed else 'shr'} {dst}, {bits - v.length}"
    shift = f"shr {dst}, {v.start}\n" if v.start else ""
    if v.start + v.length == bits:
        return (move + shift).rstrip("\n")
    if v.length in (8, 16):
        return f"{move}{shift}movzx {register(v.dst, 32)}, {register(v.dst, v.length)}"
    return f"{move}{shift}and {register(v.dst, 32)}, {(1 << v.length) - 1}"


def ubfx(v: Values, register: HostRegisters) -> str:
    """ARM64: one instruction."""
    bits = 64 if v.wide else 32
    name = "sbfx" if v.signed else "ubfx"
    return f"{name} {register(v.dst, bits)}, {register(v.src, bits)}, #{v.start}, #{v.length}"


def _patterns(bits: int) -> tuple[Computed, ...]:
    src = value("src") if bits == 64 else either(value("src"), low32(value("src")))
    right, left = constant("right", lambda n: 0 < n < bits), constant("left", lambda n: 0 < n < bits)
    mask = constant("mask", lambda n: 0 < n < 1 << _MASK_BITS and n & (n + 1) == 0)
    shifted = alu(LSH, src, left, bits=bits)
    return (
        alu(AND, alu(RSH, src, right, bits=bits), mask, bits=bits),
        alu(RSH, shifted, right, bits=bits),
        alu(ARSH, shifted, right, bits=bits),
    )


_PATTERNS: Final = {bits: _patterns(bits) for bits in (64, 32)}


def recognize(view: View) -> Iterator[Match]:
    """Every shift with a mask, and every shift to the left and back."""
    for bits, patterns in _PATTERNS.items():
        for number_of, pattern in enumerate(patterns):
            for found in find(view, pattern):
                yield from _made(found, bits, masked=number_of == 0, signed=number_of == 2)


def _made(found: Found, bits: int, *, masked: bool, signed: bool) -> Iterator[Match]:
    right = found.numbers["right"]
    if masked:
        start, length = right, found.numbers["mask"].bit_length()
    else:
        start, length = right - found.numbers["left"], bits - right
    if start < 0 or start + length > bits:
        return
    payload = LAYOUT.encode(
        dst=found.dst, src=found.registers["src"], start=start, length=length, signed=int(signed), masked=int(masked),
        wide=int(bits == 64),
    )  # fmt: skip
    if admissible(LAYOUT.decode(payload)) is None:
        yield found.match(payload)


def _plain_cost(architecture: str, v: Values) -> float:
    """A move costs a quarter, since the processor renames it."""
    return sum(0.25 if i == mov64(i.dst, i.src) else 1.0 for i in proof(v))


OPERATION = ExtendedOperation(
    name="bextr",
    summary="bit field extract: a shift and a mask, or two shifts",
    layout=LAYOUT,
    proof=proof,
    recognizer=recognize,
    emits={
        "x86_64": (
            NativeEmit(extend_x86_64, cost=1.0),
            NativeEmit(rorx_and, frozenset({"bmi2"}), cost=2.0),
            NativeEmit(shift_and, cost=lambda v: 2.0 + 0.25 * (v.dst != v.src)),
        ),
        "arm64": (NativeEmit(ubfx, cost=1.0),),
    },
    max_instructions=3,
    max_bytes=20,
    admissible=admissible,
    cost=_plain_cost,
)
