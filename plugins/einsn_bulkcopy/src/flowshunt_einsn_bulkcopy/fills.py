"""Where memory is filled: stores of one value, or of one constant, to adjoining places."""

from collections.abc import Callable, Iterator
from typing import Final

import attrs

from flowshunt.insn import ALU, ALU64, DW, MEM, MOV, ST, STX, B, H, K, W
from flowshunt.payload import Layout, Values
from flowshunt.recognition import Match, View

MIN_BYTES: Final = 16
MAX_BYTES: Final = 256
_UNITS: Final = {cls | MEM | size: unit for cls in (ST, STX) for unit, size in enumerate((B, H, W, DW))}
_CONSTANTS: Final = frozenset({ALU64 | MOV | K, ALU | MOV | K})


@attrs.frozen
class _Store:
    """A store, and its offset."""

    index: int
    offset: int


def recognize_fills(view: View, layout: Layout, admissible: Callable[[Values], str | None]) -> Iterator[Match]:
    """Every run of stores of at least 16 bytes in all, whatever their order."""
    groups: dict[tuple[int, int, int, int, int], list[_Store]] = {}
    for index in view.having(*_UNITS):
        i = view.instructions[index]
        unit = _UNITS[i.opcode]
        kind, stored = _stored(view, index, unit)
        if kind >= 0:
            key = (view.run_of(index)[0], view.dst_value(index), unit, kind, stored)
            groups.setdefault(key, []).append(_Store(index, i.offset))
    for (_, to, unit, kind, stored), stores in groups.items():
        for part in _adjoining(stores, 1 << unit):
            yield from _match(view, layout, admissible, to, unit, kind, stored, part)


def _stored(view: View, index: int, unit: int) -> tuple[int, int]:
    """Kind and value of what a store stores; kind -1 for what no fill can store."""
    i = view.instructions[index]
    if i.opcode & 7 == ST:
        return (-i.imm, 0) if i.imm in (0, -1) else (-1, 0)
    definition = view.value(view.src_definition(index))
    if definition >= 0:
        made = view.instructions[definition]
        if made.opcode in _CONSTANTS and made.imm == 0:
            return 3, definition
    return (2, definition) if unit == 3 else (-1, 0)


def _adjoining(stores: list[_Store], size: int) -> Iterator[list[_Store]]:
    """Stores in runs of adjoining offsets; of several to one place none is taken."""
    by_offset: dict[int, list[_Store]] = {}
    for one in stores:
        by_offset.setdefault(one.offset, []).append(one)
    run: list[_Store] = []
    for offset in sorted(by_offset):
        single = by_offset[offset]
        if run and (
            offset != run[-1].offset + size or len(single) > 1 or (len(run) + 1) * size > MAX_BYTES or len(run) == 127
        ):
            yield run
            run = []
        if len(single) == 1:
            run.append(single[0])
    yield run


def _match(
    view: View,
    layout: Layout,
    admissible: Callable[[Values], str | None],
    to: int,
    unit: int,
    kind: int,
    stored: int,
    stores: list[_Store],
) -> Iterator[Match]:
    if len(stores) << unit < MIN_BYTES:
        return
    indices = tuple(sorted(one.index for one in stores))
    if kind == 3:
        indices = (stored, *indices)
    start = indices[0]
    base = next((r for r in (10, *range(10)) if view.value_in(r, start) == to), None)
    value = base
    if kind == 2:
        value = next((r for r in range(11) if view.value_in(r, start) == stored), None)
    elif kind == 3:
        value = view.instructions[stored].dst
    if base is None or value is None:
        return
    fields = {
        "to": base, "value": value, "offset": min(one.offset for one in stores), "count": len(stores), "unit": unit,
        "kind": kind,
    }  # fmt: skip
    if admissible(Values(fields)) is None:
        yield Match(indices, layout.encode(**fields))
