"""Where values are loaded in another byte order, or put together from smaller loads by shifts and ORs."""

from collections.abc import Callable, Iterator
from typing import Final

import attrs

from flowshunt.insn import ALU, ALU64, DW, LDX, LSH, MEM, MOV, OR, B, H, K, W, X
from flowshunt.payload import NO_REGISTER, Layout, Values
from flowshunt.recognition import Match, View, find, load, settle, swapped, value
from flowshunt.recognition.pattern import NOTHING

_LOADS: Final = {LDX | MEM | B: 1, LDX | MEM | H: 2, LDX | MEM | W: 4, LDX | MEM | DW: 8}
_ORS: Final = (ALU64 | OR | X, ALU | OR | X)
_FUSED: Final = tuple((size, swapped(load(unit, value("base")), 8 << size)) for size, unit in ((1, H), (2, W), (3, DW)))
_DEPTH: Final = 64


@attrs.frozen
class _Part:
    """A load, and by how many bits its value is shifted to the left in the whole."""

    index: int
    shift: int


def recognize_loads(view: View, layout: Layout, admissible: Callable[[Values], str | None]) -> Iterator[Match]:
    """Every load with a swap, and every tree of ORs whose leaves are the parts of one value."""
    for size, pattern in _FUSED:
        for found in find(view, pattern):
            fields = {"part": NO_REGISTER, "whole": NO_REGISTER, "size": size, "unit": size, "swap": 1}
            if found.numbers["offset"] < 1 << 15:
                yield found.match(
                    layout.encode(dst=found.dst, base=found.registers["base"], offset=found.numbers["offset"], **fields)
                )
    for root in view.having(*_ORS):
        parts: list[_Part] = []
        taken: set[int] = set()
        if _collect(view, root, 0, 64, parts, taken) and (settled := settle(view, root, NOTHING.taking(*taken))):
            made = _fields(view, parts, settled.dst, settled.temporaries, settled.indices[0])
            if made and admissible(Values(made)) is None:
                yield settled.match(layout.encode(**made))


def _collect(view: View, index: int, shift: int, width: int, parts: list[_Part], taken: set[int]) -> bool:
    """Gather the loads that an instruction's result is made of, each with its shift; False where it is anything else.

    `width`: bits from which on the whole is cut off.
    """
    i = view.instructions[index]
    taken.add(index)
    if len(taken) > _DEPTH:
        return False
    if i.opcode in _LOADS:
        parts.append(_Part(index, shift))
        return shift + 8 * _LOADS[i.opcode] <= width
    if i.opcode & 7 == ALU:
        width = min(width, shift + 32)
    operation = i.opcode & 0xF0
    left, right = view.dst_definition(index), view.src_definition(index)
    if i.opcode in _ORS:
        return all(at >= 0 and _collect(view, at, shift, width, parts, taken) for at in (left, right))
    if i.opcode in (ALU64 | LSH | K, ALU | LSH | K):
        return left >= 0 and _collect(view, left, shift + i.imm, width, parts, taken)
    if i.opcode in (ALU64 | MOV | X, ALU | MOV | X) and not i.offset and operation == MOV:
        return right >= 0 and _collect(view, right, shift, width, parts, taken)
    return False


def _fields(
    view: View, parts: list[_Part], dst: int, temporaries: tuple[int, ...], start: int
) -> dict[str, int] | None:
    """The payload's fields, where the parts are the bytes of one value in one order or the other."""
    loads = [view.instructions[part.index] for part in parts]
    bases = {view.src_value(part.index) for part in parts}
    unit = min(_LOADS[i.opcode] for i in loads)
    size = sum(_LOADS[i.opcode] for i in loads)
    if len(bases) != 1 or size not in (2, 4, 8) or len(parts) < 2:
        return None
    low = min(i.offset for i in loads)
    ascending = all(part.shift == 8 * (i.offset - low) for part, i in zip(parts, loads, strict=True))
    descending = all(part.shift == 8 * (low + size - 1 - i.offset) for part, i in zip(parts, loads, strict=True))
    if not ascending and (not descending or unit != 1 or any(_LOADS[i.opcode] != 1 for i in loads)):
        return None
    covered = sorted(i.offset + n for i in loads for n in range(_LOADS[i.opcode]))
    if covered != list(range(low, low + size)):
        return None
    base = _register(view, bases.pop(), start, loads[0].src)
    if base is None:
        return None
    free = [r for r in temporaries if r not in (dst, base)]
    count = size // unit
    whole = NO_REGISTER
    if dst == base and count > 2:
        whole = free[1] if len(free) > 1 else NO_REGISTER
    return {
        "dst": dst, "base": base, "part": free[0] if free else NO_REGISTER, "whole": whole, "offset": low,
        "size": size.bit_length() - 1, "unit": unit.bit_length() - 1, "swap": int(not ascending),
    }  # fmt: skip


def _register(view: View, wanted: int, start: int, likely: int) -> int | None:
    """A register that holds a value just before an instruction."""
    for register in (likely, *range(11)):
        if view.value_in(register, start) == wanted:
            return register
    return None
