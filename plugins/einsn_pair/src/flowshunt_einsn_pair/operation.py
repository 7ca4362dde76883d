"""Pairs: two loads or two stores of 8 bytes side by side as one instruction, on processors that have it (ARM64)."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from flowshunt.host_registers import HostRegisters
from flowshunt.insn import DW, LDX, MEM, STX, Instruction, ldx, stx
from flowshunt.operation import ExtendedOperation, NativeEmit
from flowshunt.payload import Layout, Values, result, signed, source
from flowshunt.recognition import Match, View

LOAD: Final = Layout(result("first"), result("second"), source("base"), signed("offset", 16))
STORE: Final = Layout(source("first"), source("second"), source("base"), signed("offset", 16))

_REACH: Final = range(-512, 505, 8)


def load_admissible(v: Values) -> str | None:
    """A base that is lost, one register for both, offsets out of reach."""
    if v.first in (v.base, v.second):
        return "the first load would be lost, or the base"
    return store_admissible(v)


def store_admissible(v: Values) -> str | None:
    """Offsets out of reach."""
    return None if v.offset in _REACH else "the offset is out of a pair's reach"


def load_proof(v: Values) -> Sequence[Instruction]:
    """Two loads."""
    return (ldx(DW, v.first, v.base, v.offset), ldx(DW, v.second, v.base, v.offset + 8))


def store_proof(v: Values) -> Sequence[Instruction]:
    """Two stores."""
    return (stx(DW, v.base, v.first, v.offset), stx(DW, v.base, v.second, v.offset + 8))


def ldp(v: Values, register: HostRegisters) -> str:
    """ARM64."""
    return f"ldp {register(v.first)}, {register(v.second)}, [{register(v.base)}, #{v.offset}]"


def stp(v: Values, register: HostRegisters) -> str:
    """ARM64."""
    return f"stp {register(v.first)}, {register(v.second)}, [{register(v.base)}, #{v.offset}]"


def _pairs(view: View, opcode: int) -> Iterator[tuple[Instruction, Instruction, tuple[int, int]]]:
    """Two accesses through one base of 16 bytes that adjoin, the lower first, and where they stand."""
    accesses = view.having(opcode)
    taken = -1
    for first, second in pairwise(accesses):
        base = view.src_value if opcode & 7 == LDX else view.dst_value
        one, other = view.instructions[first], view.instructions[second]
        if first == taken or view.run_of(first) != view.run_of(second) or base(first) != base(second):
            continue
        if abs(one.offset - other.offset) == 8:
            taken = second
            low, high = (one, other) if one.offset < other.offset else (other, one)
            yield low, high, (first, second)


def recognize_loads(view: View) -> Iterator[Match]:
    """Pairs of loads."""
    for low, high, indices in _pairs(view, LDX | MEM | DW):
        fields = {"first": low.dst, "second": high.dst, "base": low.src, "offset": low.offset}
        if low.src == high.src and load_admissible(Values(fields)) is None:
            yield Match(indices, LOAD.encode(**fields))


def recognize_stores(view: View) -> Iterator[Match]:
    """Pairs of stores."""
    for low, high, indices in _pairs(view, STX | MEM | DW):
        fields = {"first": low.src, "second": high.src, "base": low.dst, "offset": low.offset}
        if low.dst == high.dst and store_admissible(Values(fields)) is None:
            yield Match(indices, STORE.encode(**fields))


LOADS = ExtendedOperation(
    name="loadpair",
    summary="two loads side by side as one (ARM64)",
    layout=LOAD,
    proof=load_proof,
    recognizer=recognize_loads,
    emits={"arm64": (NativeEmit(ldp),)},
    max_instructions=2,
    max_bytes=4,
    admissible=load_admissible,
)
STORES = ExtendedOperation(
    name="storepair",
    summary="two stores side by side as one (ARM64)",
    layout=STORE,
    proof=store_proof,
    recognizer=recognize_stores,
    emits={"arm64": (NativeEmit(stp),)},
    max_instructions=2,
    max_bytes=4,
    admissible=store_admissible,
)
OPERATIONS = (LOADS, STORES)
