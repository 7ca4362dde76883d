"""Bulk copy and fill: runs of loads and stores, or of stores, as moves of 16 bytes.

Two operations: `bulkcopy` copies, `bulkfill` fills. A copy whose ranges may overlap is not the same in wide moves, so
one between different bases is used only where the verifier knows that they don't.
"""

from collections.abc import Iterator, Sequence

from flowshunt.host_registers import HostRegisters
from flowshunt.insn import DW, B, H, Instruction, W, ldx, mov64_imm, st, stx
from flowshunt.operation import Disjoint, ExtendedOperation, NativeEmit
from flowshunt.payload import Layout, Values, number, signed, source, temporary
from flowshunt_einsn_bulkcopy.copies import recognize_copies
from flowshunt_einsn_bulkcopy.fills import recognize_fills

COPY = Layout(
    source("to"),
    source("from_"),
    temporary("part"),
    signed("to_offset", 13),
    signed("from_offset", 13),
    number("count", 7, 2, 127),
    number("unit", 2),
    number("down", 1),
)
"""`count` parts of 1 << unit bytes, the last first where `down`; `part` is where each passes through."""

FILL = Layout(
    source("to"),
    source("value"),
    signed("offset", 16),
    number("count", 7, 2, 127),
    number("unit", 2),
    number("kind", 2),
)
"""`kind`: 0 and 1: all bits of that kind, and `value` is `to`; 2: the register `value`, 8 bytes a time; 3: zeros, and
the register `value` becomes zero too, as where the plain form stores it."""

MOST = 256
"""Bytes that one site moves at most."""
_SIZES = (B, H, W, DW)


def _length(v: Values) -> int:
    return v.count << v.unit


def copy_admissible(v: Values) -> str | None:
    """A part that would destroy an address, ranges too long or overlapping for certain."""
    if v.part in (v.to, v.from_) or v.part > 9:
        return "what is copied needs a register of its own"
    if v.to == v.from_ and abs(v.to_offset - v.from_offset) < _length(v):
        return "the ranges overlap"
    return "it is too long" if _length(v) > MOST else None


def copy_proof(v: Values) -> Sequence[Instruction]:
    """Part for part, a load and a store."""
    size = _SIZES[v.unit]
    order = range(v.count - 1, -1, -1) if v.down else range(v.count)
    return [
        i
        for n in order
        for i in (
            ldx(size, v.part, v.from_, v.from_offset + (n << v.unit)),
            stx(size, v.to, v.part, v.to_offset + (n << v.unit)),
        )
    ]


def copy_assumes(v: Values) -> Sequence[Disjoint]:
    """That the ranges are apart; with one base they are."""
    return () if v.to == v.from_ else (Disjoint(v.to, v.to_offset, v.from_, v.from_offset, _length(v)),)


def fill_admissible(v: Values) -> str | None:
    """Values that don't repeat byte for byte, ranges too long."""
    if v.kind == 2:
        if v.unit != 3:
            return "a register fills 8 bytes at a time"
    elif v.kind == 3:
        if v.value == v.to or v.value > 9:
            return "the address would be lost"
    elif v.value != v.to:
        return "it fills with a constant, not with a register"
    return "it is too long" if _length(v) > MOST or v.offset + _length(v) > 0x7FFF else None


def fill_proof(v: Values) -> Sequence[Instruction]:
    """Part for part, a store."""
    size = _SIZES[v.unit]
    if v.kind >= 2:
        zero = [mov64_imm(v.value, 0)] if v.kind == 3 else []
        return [*zero, *(stx(size, v.to, v.value, v.offset + (n << v.unit)) for n in range(v.count))]
    return [st(size, v.to, v.offset + (n << v.unit), -v.kind) for n in range(v.count)]


def _pieces(length: int, widest: int) -> Iterator[tuple[int, int]]:
    """Offset and size of the moves that make up a length, the widest first."""
    at = 0
    while at < length:
        size = widest
        while size > length - at:
            size //= 2
        yield at, size
        at += size


def copy_x86_64(v: Values, register: HostRegisters) -> str:
    """x86-64: 16 bytes at a time through vector registers, the rest through a scratch register."""
    words = {8: ("mov", "qword ptr", 64), 4: ("mov", "dword ptr", 32), 2: ("movzx", "word ptr", 32)}
    text = []
    for n, (at, size) in enumerate(_pieces(_length(v), 16)):
        to, origin = (f"[{register(base)}+{offset + at}]" for base, offset in
                      ((v.to, v.to_offset), (v.from_, v.from_offset)))  # fmt: skip
        if size == 16:
            vector = register.vector(n % 8)
            text += [f"movdqu {vector}, {origin}", f"movdqu {to}, {vector}"]
        else:
            name, pointer, bits = words.get(size, ("movzx", "byte ptr", 32))
            text.append(f"{name} {register.scratch(n % 2, bits)}, {pointer} {origin}")
            text.append(f"mov {pointer} {to}, {register.scratch(n % 2, 8 * size)}")
    return "\n".join(text)


def fill_x86_64(v: Values, register: HostRegisters) -> str:
    """x86-64: 16 bytes at a time from a vector register."""
    vector = register.vector(0)
    scratch = register.scratch(0)
    text = [f"pxor {vector}, {vector}"]
    if v.kind == 3:
        text.append(f"xor {register(v.value, 32)}, {register(v.value, 32)}")
    elif v.kind:
        value = register(v.value) if v.kind == 2 else scratch
        text = [] if v.kind == 2 else [f"mov {scratch}, -1"]
        text += [f"movq {vector}, {value}", f"punpcklqdq {vector}, {vector}"]
    for at, size in _pieces(_length(v), 16):
        place = f"[{register(v.to)}+{v.offset + at}]"
        if size == 16:
            text.append(f"movdqu {place}, {vector}")
        elif size == 8:
            text.append(f"movq qword ptr {place}, {vector}")
        else:
            text.append(
                f"mov {('', 'byte', 'word', '', 'dword')[size]} ptr {place}, {-(v.kind & 1) if v.kind < 3 else 0}"
            )
    return "\n".join(text)


def _address(register: HostRegisters, scratch: int, base: int, offset: int) -> str:
    """Base and offset into a scratch register."""
    place = register.scratch(scratch)
    if -4096 < offset < 4096:
        return f"{'add' if offset >= 0 else 'sub'} {place}, {register(base)}, #{abs(offset)}"
    return f"mov {place}, #{offset}\nadd {place}, {place}, {register(base)}"


_ARM64_NARROW = {8: ("r", 64), 4: ("r", 32), 2: ("rh", 32), 1: ("rb", 32)}


def copy_arm64(v: Values, register: HostRegisters) -> str:
    """ARM64: 16 bytes at a time through a pair of scratch registers."""
    text = [_address(register, 0, v.from_, v.from_offset), _address(register, 1, v.to, v.to_offset)]
    origin, to = register.scratch(0), register.scratch(1)
    for at, size in _pieces(_length(v), 16):
        if size == 16:
            pair = f"{register.scratch(2)}, {register.scratch(3)}"
            text += [f"ldp {pair}, [{origin}, #{at}]", f"stp {pair}, [{to}, #{at}]"]
        else:
            name, bits = _ARM64_NARROW[size]
            value = register.scratch(2, bits)
            text += [f"ld{name} {value}, [{origin}, #{at}]", f"st{name} {value}, [{to}, #{at}]"]
    return "\n".join(text)


def fill_arm64(v: Values, register: HostRegisters) -> str:
    """ARM64: 16 bytes at a time, one register twice."""
    text = [_address(register, 0, v.to, v.offset)]
    if v.kind == 1:
        text.append(f"mov {register.scratch(2)}, #-1")
    elif v.kind == 3:
        text.append(f"mov {register(v.value)}, #0")
    to = register.scratch(0)
    for at, size in _pieces(_length(v), 16):
        name, bits = ("p", 64) if size == 16 else _ARM64_NARROW[size]
        narrow = "w" if bits == 32 else "x"
        value = (f"{narrow}zr", register.scratch(2, bits), register(v.value, bits), f"{narrow}zr")[v.kind]
        text.append(f"st{name} {value}, {value}, [{to}, #{at}]" if size == 16 else f"st{name} {value}, [{to}, #{at}]")
    return "\n".join(text)


def _copy_cost(v: Values) -> float:
    return 1.0 + 2.0 * sum(1 for _ in _pieces(_length(v), 16))


def _fill_cost(v: Values) -> float:
    return 1.0 + sum(1 for _ in _pieces(_length(v), 16))


COPIES = ExtendedOperation(
    name="bulkcopy",
    summary="bulk copy: a run of loads and stores as moves of 16 bytes",
    layout=COPY,
    proof=copy_proof,
    recognizer=lambda view: recognize_copies(view, COPY, copy_admissible),
    emits={
        "x86_64": (NativeEmit(copy_x86_64, cost=_copy_cost),),
        "arm64": (NativeEmit(copy_arm64, cost=_copy_cost),),
    },
    max_instructions=254,
    max_bytes=512,
    admissible=copy_admissible,
    assumes=copy_assumes,
)
FILLS = ExtendedOperation(
    name="bulkfill",
    summary="bulk fill: a run of stores of one value as moves of 16 bytes",
    layout=FILL,
    proof=fill_proof,
    recognizer=lambda view: recognize_fills(view, FILL, fill_admissible),
    emits={
        "x86_64": (NativeEmit(fill_x86_64, cost=_fill_cost),),
        "arm64": (NativeEmit(fill_arm64, cost=_fill_cost),),
    },
    max_instructions=128,
    max_bytes=256,
    admissible=fill_admissible,
)
OPERATIONS = (COPIES, FILLS)
