"""Arithmetic with an operand in memory, on processors that have it (x86-64).

Two operations: `loadop`, dst = dst op memory; and `memop`, memory = memory op operand.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from flowshunt.host_registers import HostRegisters
from flowshunt.insn import ADD, AND, DW, MUL, OR, SUB, XOR, B, H, Instruction, W, alu32, alu64, alu64_imm, ldx, stx
from flowshunt.operation import ExtendedOperation, NativeEmit
from flowshunt.payload import Layout, Values, number, result, signed, source, temporary
from flowshunt.recognition import Found, Match, View, alu, constant, find, load, store, value

LOAD: Final = Layout(
    result("dst"), source("base"), temporary("loaded"), signed("offset", 16), number("operation", 3, 0, 5),
    number("wide", 1),
)  # fmt: skip
MEMORY: Final = Layout(
    source("base"), source("operand"), temporary("loaded"), signed("offset", 16), number("operation", 3, 0, 4),
    number("size", 2), number("by_number", 1), signed("number", 16),
)  # fmt: skip
"""`operand` is `base` where `number` counts instead."""

_OPERATIONS: Final = (ADD, SUB, AND, OR, XOR, MUL)
_NAMES: Final = ("add", "sub", "and", "or", "xor", "imul")
_SIZES: Final = (B, H, W, DW)
_POINTERS: Final = ("byte ptr", "word ptr", "dword ptr", "qword ptr")


def load_admissible(v: Values) -> str | None:
    """Registers that would be lost before they are read."""
    if v.dst == v.base or v.loaded > 9 or v.loaded == v.dst:
        return "the loaded operand needs a register of its own"
    return None


def load_proof(v: Values) -> Sequence[Instruction]:
    """A load and the operation."""
    size, by_register = (DW, alu64) if v.wide else (W, alu32)
    return (ldx(size, v.loaded, v.base, v.offset), by_register(_OPERATIONS[v.operation], v.dst, v.loaded))


def load_x86_64(v: Values, register: HostRegisters) -> str:
    """x86-64."""
    pointer = "qword ptr" if v.wide else "dword ptr"
    dst = register(v.dst, 64 if v.wide else 32)
    return f"{_NAMES[v.operation]} {dst}, {pointer} [{register(v.base)}{v.offset:+d}]"


def memory_admissible(v: Values) -> str | None:
    """Registers that would be lost before they are read."""
    if v.loaded > 9 or v.loaded == v.base or (not v.by_number and v.loaded == v.operand):
        return "the loaded operand needs a register of its own"
    if v.by_number and (v.operand != v.base):
        return "the operand is a number, not a register"
    if v.by_number and v.size == 0 and not -128 <= v.number < 128:
        return "the number does not fit a byte"
    return "the number is a register's" if not v.by_number and v.number else None


def memory_proof(v: Values) -> Sequence[Instruction]:
    """A load, the operation, and a store of the low part."""
    size, op = _SIZES[v.size], _OPERATIONS[v.operation]
    change = alu64_imm(op, v.loaded, v.number) if v.by_number else alu64(op, v.loaded, v.operand)
    return (ldx(size, v.loaded, v.base, v.offset), change, stx(size, v.base, v.loaded, v.offset))


def memory_x86_64(v: Values, register: HostRegisters) -> str:
    """x86-64."""
    operand = str(v.number) if v.by_number else register(v.operand, 8 << v.size)
    return f"{_NAMES[v.operation]} {_POINTERS[v.size]} [{register(v.base)}{v.offset:+d}], {operand}"


_LOADS: Final = {
    (number_of, wide): alu(op, value("x"), load(size, value("base")), bits=64 if wide else 32)
    for number_of, op in enumerate(_OPERATIONS)
    for wide, size in ((1, DW), (0, W))
}
_STORES: Final = [
    (number_of, size, store(unit, value("base"), alu(op, load(unit, value("base")), operand, bits=bits)))
    for number_of, op in enumerate(_OPERATIONS[:5])
    for size, unit in enumerate(_SIZES)
    for bits in (64, 32)
    for operand in (constant("number", lambda found: True), value("operand"))
    if bits == 64 or size < 3
]


def recognize_loads(view: View) -> Iterator[Match]:
    """Every load whose one use is an operation on the register that its result stays in."""
    for (operation, wide), pattern in _LOADS.items():
        for found in find(view, pattern):
            if len(found.indices) == 2 and found.registers["x"] == found.dst and len(found.temporaries) == 1:
                fields = {
                    "dst": found.dst, "base": found.registers["base"], "loaded": found.temporaries[0],
                    "offset": found.numbers["offset"], "operation": operation, "wide": wide,
                }  # fmt: skip
                if load_admissible(Values(fields)) is None:
                    yield found.match(LOAD.encode(**fields))


def recognize_stores(view: View) -> Iterator[Match]:
    """Every load whose value is changed and stored where it came from."""
    for operation, size, pattern in _STORES:
        for found in find(view, pattern):
            yield from _stored(found, operation, size)


def _stored(found: Found, operation: int, size: int) -> Iterator[Match]:
    base = found.registers["base"]
    by_number = "number" in found.numbers
    constant_ = found.numbers.get("number", 0)
    constant_ -= (constant_ >> 63) << 64 if constant_ >> 32 else (constant_ >> 31) << 32
    if not found.temporaries or not -(1 << 15) <= constant_ < 1 << 15:
        return
    fields = {
        "base": base, "operand": base if by_number else found.registers["operand"], "loaded": found.temporaries[-1],
        "offset": found.numbers["offset"], "operation": operation, "size": size, "by_number": int(by_number),
        "number": constant_,
    }  # fmt: skip
    if memory_admissible(Values(fields)) is None:
        yield found.match(MEMORY.encode(**fields))


LOADS = ExtendedOperation(
    name="loadop",
    summary="an operation with an operand in memory",
    layout=LOAD,
    proof=load_proof,
    recognizer=recognize_loads,
    emits={"x86_64": (NativeEmit(load_x86_64, cost=1.5),)},
    max_instructions=2,
    max_bytes=10,
    admissible=load_admissible,
)
STORES = ExtendedOperation(
    name="memop",
    summary="an operation on memory in place",
    layout=MEMORY,
    proof=memory_proof,
    recognizer=recognize_stores,
    emits={"x86_64": (NativeEmit(memory_x86_64, cost=2.5),)},
    max_instructions=3,
    max_bytes=12,
    admissible=memory_admissible,
)
OPERATIONS = (LOADS, STORES)
