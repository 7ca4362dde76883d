"""Address calculation: dst = base + (index << shift) + displacement, as one instruction that changes no flags."""

from collections.abc import Iterator, Sequence
from typing import Final

from flowshunt.host_registers import HostRegisters
from flowshunt.insn import ADD, LSH, MUL, Instruction, alu32, alu32_imm, alu64, alu64_imm, mov64
from flowshunt.operation import ExtendedOperation, NativeEmit
from flowshunt.payload import NO_REGISTER, Layout, Values, number, result, signed, source, temporary
from flowshunt.recognition import Computed, Found, Match, Pattern, View, alu, constant, either, find, low32, value

LAYOUT: Final = Layout(
    result("dst"),
    source("base"),
    source("index"),
    temporary("scaled"),
    number("shift", 2),
    signed("displacement", 30),
    number("times", 1),
    number("wide", 1),
)
"""`scaled`: where the scaled index goes while dst holds the base. `times`: index and base are one, the plain form is
a product with 3, 5 or 9."""


def admissible(v: Values) -> str | None:
    """Registers that would be lost before they are read."""
    if v.times:
        if v.index != v.base or not v.shift or v.scaled != NO_REGISTER:
            return "a product has one factor, and needs no temporary"
    elif v.dst == v.base:
        if v.scaled in (NO_REGISTER, v.dst):
            return "the base would be lost"
        if v.base in (v.scaled, v.index):
            return "the base would be scaled"
    elif v.scaled != NO_REGISTER:
        return "the index is scaled in place"
    return None


def proof(v: Values) -> Sequence[Instruction]:
    """A move, a shift and additions, or a multiplication."""
    by_register, by_number = (alu64, alu64_imm) if v.wide else (alu32, alu32_imm)
    scaled = v.scaled if v.dst == v.base and not v.times else v.dst
    sequence = [] if scaled == v.index else [mov64(scaled, v.index)]
    if v.times:
        sequence.append(by_number(MUL, v.dst, (1 << v.shift) + 1))
    else:
        if v.shift:
            sequence.append(by_number(LSH, scaled, v.shift))
        sequence.append(by_register(ADD, v.dst, scaled if v.dst == v.base else v.base))
    return (*sequence, by_number(ADD, v.dst, v.displacement)) if v.displacement else sequence


def lea(v: Values, register: HostRegisters) -> str:
    """x86-64."""
    displacement = f"{v.displacement:+d}" if v.displacement else ""
    index = f"{register(v.index)}*{1 << v.shift}"
    return f"lea {register(v.dst, 64 if v.wide else 32)}, [{register(v.base)}+{index}{displacement}]"


def add_arm64(v: Values, register: HostRegisters) -> str:
    """ARM64: an addition with a shifted register, and one of the displacement where it fits."""
    bits = 64 if v.wide else 32
    dst = register(v.dst, bits)
    text = f"add {dst}, {register(v.base, bits)}, {register(v.index, bits)}, lsl #{v.shift}"
    if not v.displacement:
        return text
    if abs(v.displacement) >= 4096:
        return ""
    return f"{text}\n{'add' if v.displacement > 0 else 'sub'} {dst}, {dst}, #{abs(v.displacement)}"


def _patterns(bits: int) -> list[Computed]:
    """The idioms: a scaled index and a base, two registers and a displacement, a product; the displacement last."""

    def any_of(name: str) -> Pattern:
        return value(name) if bits == 64 else either(value(name), low32(value(name)))

    shift = constant("shift", lambda found: 1 <= found <= 3)
    displacement = constant("displacement", lambda found: True)
    sums = (
        alu(ADD, any_of("base"), alu(LSH, any_of("index"), shift, bits=bits), bits=bits),
        alu(ADD, any_of("base"), any_of("index"), bits=bits),
        alu(MUL, any_of("index"), constant("times", lambda found: found in (3, 5, 9)), bits=bits),
    )
    return [*(alu(ADD, one, displacement, bits=bits) for one in sums), *sums]


_PATTERNS: Final = {bits: _patterns(bits) for bits in (64, 32)}


def recognize(view: View) -> Iterator[Match]:
    """Every such calculation of two instructions or more, and every product."""
    for bits, patterns in _PATTERNS.items():
        for pattern in patterns:
            for found in find(view, pattern):
                if len(found.indices) > 1 or "times" in found.numbers:
                    yield from _made(found, bits)


def _made(found: Found, bits: int) -> Iterator[Match]:
    numbers, registers = found.numbers, found.registers
    displacement = numbers.get("displacement", 0)
    displacement -= (displacement >> bits - 1) << bits
    if not -(1 << 29) <= displacement < 1 << 29:
        return
    times = "times" in numbers
    index = registers["index"]
    base = index if times else registers["base"]
    pairs = [(base, index)] if times or "shift" in numbers else [(base, index), (index, base)]
    for base, index in pairs:
        usable = [r for r in found.temporaries if r != base] if found.dst == base and not times else []
        usable.sort(key=lambda r, index=index: r != index)  # type: ignore[misc]
        fields = {
            "dst": found.dst, "base": base, "index": index, "scaled": usable[0] if usable else NO_REGISTER,
            "shift": {3: 1, 5: 2, 9: 3}[numbers["times"]] if times else numbers.get("shift", 0),
            "displacement": displacement, "times": int(times), "wide": int(bits == 64),
        }  # fmt: skip
        if admissible(Values(fields)) is None:
            yield found.match(LAYOUT.encode(**fields))
            return


def _plain_cost(architecture: str, v: Values) -> float:
    """A move costs a quarter, since the processor renames it; a product three."""
    return sum(
        0.25 if i == mov64(i.dst, i.src) else 3.0 if v.times and i.opcode & 0xF0 == MUL else 1.0 for i in proof(v)
    )


def _arm64_cost(v: Values) -> float:
    return 1.25 + 0.5 * (v.displacement != 0)


OPERATION = ExtendedOperation(
    name="lea",
    summary="address calculation: base, scaled index and displacement in one instruction",
    layout=LAYOUT,
    proof=proof,
    recognizer=recognize,
    emits={"x86_64": (NativeEmit(lea, cost=1.0),), "arm64": (NativeEmit(add_arm64, cost=_arm64_cost),)},
    max_instructions=4,
    max_bytes=12,
    admissible=admissible,
    cost=_plain_cost,
)
