"""Byte swap: a load and a byte swap in one, a value put together from its bytes, and the same for stores.

Two operations: `bswap` loads, `bswap_store` stores. Either order of the bytes is one payload, so a value that is put
together in the processor's own order becomes a plain wide access.
"""

from collections.abc import Sequence

from flowshunt.host_registers import HostRegisters
from flowshunt.insn import DW, LSH, OR, RSH, B, H, Instruction, W, alu64, alu64_imm, bswap, ldx, mov64, stx
from flowshunt.operation import ExtendedOperation, NativeEmit
from flowshunt.payload import NO_REGISTER, Layout, Values, number, result, signed, source, temporary
from flowshunt_einsn_bswap.loads import recognize_loads
from flowshunt_einsn_bswap.stores import recognize_stores

LOAD = Layout(
    result("dst"),
    source("base"),
    temporary("part"),
    temporary("whole"),
    signed("offset", 16),
    number("size", 2, 1, 3),
    number("unit", 2, 0, 3),
    number("swap", 1),
)
"""dst = the 1 << size bytes at base + offset, which the plain form loads 1 << unit at a time; `swap`: the first is the
most significant. `part`, `whole`: where it puts a part, and the value until it is whole (where dst is still needed)."""

STORE = Layout(
    source("base"),
    source("src"),
    temporary("part"),
    signed("offset", 16),
    number("size", 2, 1, 3),
    number("unit", 2, 0, 3),
    number("swap", 1),
)

_SIZES = (B, H, W, DW)
_BITS = (8, 16, 32, 64)
_LAST = 0x7FF8


def load_admissible(v: Values) -> str | None:
    """Registers that would be lost too early, orders that no access has, offsets that run out of range."""
    if v.unit == v.size:
        if not v.swap or (v.part, v.whole) != (NO_REGISTER, NO_REGISTER):
            return "one load is only fused with a swap, and needs no temporary"
    elif v.unit > v.size or (v.swap and v.unit):
        return "it swaps bytes, and a value is made of smaller ones"
    elif v.part in (NO_REGISTER, v.dst, v.base):
        return "a part needs a register of its own"
    elif v.dst == v.base and v.size - v.unit > 1:
        if v.whole in (NO_REGISTER, v.part, v.base, v.dst):
            return "the base is lost before the last load"
    elif v.whole != NO_REGISTER:
        return "the result is put together in place"
    return "the last byte's offset is out of range" if v.offset > _LAST else None


def load_proof(v: Values) -> Sequence[Instruction]:
    """A load and a swap; or the parts from the most significant on, each shifted in."""
    size, bits, count = _SIZES[v.unit], _BITS[v.unit], 1 << (v.size - v.unit)
    if count == 1:
        return (ldx(size, v.dst, v.base, v.offset), bswap(v.dst, bits))
    offsets = [v.offset + (n if v.swap else count - 1 - n) * bits // 8 for n in range(count)]
    if count == 2:
        return (ldx(size, v.part, v.base, offsets[1]), ldx(size, v.dst, v.base, offsets[0]),
                alu64_imm(LSH, v.dst, bits), alu64(OR, v.dst, v.part))  # fmt: skip
    whole = v.dst if v.whole == NO_REGISTER else v.whole
    sequence = [ldx(size, whole, v.base, offsets[0])]
    for offset in offsets[1:]:
        sequence += [ldx(size, v.part, v.base, offset), alu64_imm(LSH, whole, bits), alu64(OR, whole, v.part)]
    return (*sequence, mov64(v.dst, whole)) if whole != v.dst else sequence


def store_admissible(v: Values) -> str | None:
    """Registers that would be lost too early, orders that no access has, offsets that run out of range."""
    if v.part in (NO_REGISTER, v.base):
        return "a part needs a register of its own, or the source's"
    if v.unit == v.size:
        if not v.swap:
            return "one store is only fused with a swap"
    elif v.unit > v.size or (v.swap and v.unit):
        return "it swaps bytes, and a value is made of smaller ones"
    return "the last byte's offset is out of range" if v.offset > _LAST else None


def store_proof(v: Values) -> Sequence[Instruction]:
    """A swap and a store; or the parts, each shifted down; in the source itself where that is the temporary."""
    size, bits, count = _SIZES[v.unit], _BITS[v.unit], 1 << (v.size - v.unit)
    lost = v.part == v.src
    if count == 1:
        move = [] if lost else [mov64(v.part, v.src)]
        return (*move, bswap(v.part, bits), stx(size, v.base, v.part, v.offset))
    sequence: list[Instruction] = []
    for n in range(count):
        offset = v.offset + (count - 1 - n if v.swap else n) * bits // 8
        if not n:
            sequence.append(stx(size, v.base, v.src, offset))
            continue
        shift = [alu64_imm(RSH, v.part, bits)] if lost else [mov64(v.part, v.src), alu64_imm(RSH, v.part, n * bits)]
        sequence += [*shift, stx(size, v.base, v.part, offset)]
    return sequence


_POINTER = {1: "word ptr", 2: "dword ptr", 3: "qword ptr"}


def load_movbe(v: Values, register: HostRegisters) -> str:
    """x86-64 with MOVBE: one instruction."""
    if not v.swap or v.size == 1:
        return ""
    return f"movbe {register(v.dst, _BITS[v.size])}, {_POINTER[v.size]} [{register(v.base)}+{v.offset}]"


def load_x86_64(v: Values, register: HostRegisters) -> str:
    """x86-64: a load, and a swap where the order asks for one."""
    place = f"{_POINTER[v.size]} [{register(v.base)}+{v.offset}]"
    if v.size == 1:
        swap = f"\nrol {register(v.dst, 16)}, 8" if v.swap else ""
        return f"movzx {register(v.dst, 32)}, {place}{swap}"
    dst = register(v.dst, _BITS[v.size])
    return f"mov {dst}, {place}" + (f"\nbswap {dst}" if v.swap else "")


def store_movbe(v: Values, register: HostRegisters) -> str:
    """x86-64 with MOVBE: one instruction."""
    if not v.swap:
        return ""
    return f"movbe {_POINTER[v.size]} [{register(v.base)}+{v.offset}], {register(v.src, _BITS[v.size])}"


def store_x86_64(v: Values, register: HostRegisters) -> str:
    """x86-64: a store, and before it a swap in a scratch register where the order asks for one."""
    place = f"{_POINTER[v.size]} [{register(v.base)}+{v.offset}]"
    src = register(v.src, _BITS[v.size])
    if not v.swap:
        return f"mov {place}, {src}"
    swapped = register.scratch(0, _BITS[v.size])
    swap = f"rol {swapped}, 8" if v.size == 1 else f"bswap {swapped}"
    return f"mov {register.scratch(0)}, {register(v.src)}\n{swap}\nmov {place}, {swapped}"


def _arm64_access(v: Values, register: HostRegisters, name: str, value: str) -> str:
    """A load or store of any offset."""
    width = "h" if v.size == 1 else ""
    if 0 <= v.offset < 4096 << v.size and v.offset % (1 << v.size) == 0:
        return f"{name}r{width} {value}, [{register(v.base)}, #{v.offset}]"
    if -256 <= v.offset < 256:
        return f"{name}ur{width} {value}, [{register(v.base)}, #{v.offset}]"
    index = register.scratch(1)
    return f"mov {index}, #{v.offset}\n{name}r{width} {value}, [{register(v.base)}, {index}]"


def load_arm64(v: Values, register: HostRegisters) -> str:
    """ARM64: a load, and a swap where the order asks for one."""
    dst = register(v.dst, 64 if v.size == 3 else 32)
    text = _arm64_access(v, register, "ld", dst)
    return text + (f"\n{'rev16' if v.size == 1 else 'rev'} {dst}, {dst}" if v.swap else "")


def store_arm64(v: Values, register: HostRegisters) -> str:
    """ARM64: a store, and before it a swap in a scratch register where the order asks for one."""
    bits = 64 if v.size == 3 else 32
    if not v.swap:
        return _arm64_access(v, register, "st", register(v.src, bits))
    swapped = register.scratch(0, bits)
    name = "rev16" if v.size == 1 else "rev"
    return f"{name} {swapped}, {register(v.src, bits)}\n" + _arm64_access(v, register, "st", swapped)


def _swapping(v: Values) -> float:
    return 1.0 + v.swap


LOADS = ExtendedOperation(
    name="bswap",
    summary="byte swap: a load with its swap, or a value put together from smaller loads in either order",
    layout=LOAD,
    proof=load_proof,
    recognizer=lambda view: recognize_loads(view, LOAD, load_admissible),
    emits={
        "x86_64": (NativeEmit(load_movbe, frozenset({"movbe"}), cost=1.5), NativeEmit(load_x86_64, cost=_swapping)),
        "arm64": (NativeEmit(load_arm64, cost=_swapping),),
    },
    max_instructions=23,
    max_bytes=24,
    admissible=load_admissible,
)
STORES = ExtendedOperation(
    name="bswap_store",
    summary="byte swap: a swap with its store, or a value stored in smaller parts in either order",
    layout=STORE,
    proof=store_proof,
    recognizer=lambda view: recognize_stores(view, STORE, store_admissible),
    emits={
        "x86_64": (NativeEmit(store_movbe, frozenset({"movbe"}), cost=1.5), NativeEmit(store_x86_64, cost=_swapping)),
        "arm64": (NativeEmit(store_arm64, cost=_swapping),),
    },
    max_instructions=22,
    max_bytes=24,
    admissible=store_admissible,
)
OPERATIONS = (LOADS, STORES)
