"""Where values are stored in another byte order, or byte by byte."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

import attrs

from flowshunt.insn import ALU, ALU64, DW, MEM, MOV, RSH, STX, B, H, K, W, X
from flowshunt.payload import NO_REGISTER, Layout, Values
from flowshunt.recognition import Match, View, find, settle, store, swapped, value
from flowshunt.recognition.pattern import NOTHING

_STORE: Final = STX | MEM | B
_MOVES: Final = frozenset({ALU64 | MOV | X, ALU | MOV | X})
_SHIFTS: Final = frozenset({ALU64 | RSH | K, ALU | RSH | K})
_FUSED: Final = tuple(
    (size, store(unit, value("base"), swapped(value("src"), 8 << size))) for size, unit in ((1, H), (2, W), (3, DW))
)


@attrs.frozen
class _Byte:
    """A store of one byte of a value: which, where, and the instructions that serve it."""

    index: int
    number: int
    offset: int
    serving: frozenset[int]


def recognize_stores(view: View, layout: Layout, admissible: Callable[[Values], str | None]) -> Iterator[Match]:
    """Every store of a swapped value, and every run of stores of the bytes of one value."""
    for size, pattern in _FUSED:
        for found in find(view, pattern):
            fields = {
                "base": found.registers["base"], "src": found.registers["src"], "part": NO_REGISTER,
                "offset": found.numbers["offset"], "size": size, "unit": size, "swap": 1,
            }  # fmt: skip
            for part in found.temporaries:
                if admissible(Values({**fields, "part": part})) is None:
                    yield found.match(layout.encode(**{**fields, "part": part}))
                    break
    groups: dict[tuple[int, int, int], list[_Byte]] = {}
    for index in view.having(_STORE):
        stored, shift, serving = _stored(view, index)
        if stored is not None and shift % 8 == 0:
            key = (view.run_of(index)[0], view.dst_value(index), stored)
            groups.setdefault(key, []).append(
                _Byte(index, shift // 8, view.instructions[index].offset, frozenset(serving))
            )
    for (_, base, stored), found_bytes in groups.items():
        yield from _grouped(view, layout, admissible, base, stored, found_bytes)


def _stored(view: View, index: int) -> tuple[int | None, int, list[int]]:
    """The value that a store takes a byte of, how far it is shifted down, and the instructions between."""
    serving: list[int] = []
    definition = view.src_definition(index)
    shift = 0
    while definition >= 0:
        i = view.instructions[definition]
        if i.opcode in _SHIFTS and shift + i.imm <= (56 if i.opcode & 7 == ALU64 else 24):
            shift += i.imm
            serving.append(definition)
            definition = view.dst_definition(definition)
        elif i.opcode in _MOVES and not i.offset:
            serving.append(definition)
            definition = view.src_definition(definition)
        else:
            break
    return definition, shift, serving


def _grouped(
    view: View,
    layout: Layout,
    admissible: Callable[[Values], str | None],
    base: int,
    stored: int,
    found: list[_Byte],
) -> Iterator[Match]:
    by_offset: Mapping[int, _Byte] = {byte.offset: byte for byte in found}
    done: set[int] = set()
    for low in sorted(by_offset):
        for size in (8, 4, 2):
            run = [by_offset.get(low + n) for n in range(size)]
            if low in done or any(byte is None for byte in run):
                continue
            numbers = [byte.number for byte in run if byte]
            if numbers not in (list(range(size)), list(range(size - 1, -1, -1))):
                continue
            match = _match(view, layout, admissible, base, stored, [byte for byte in run if byte], numbers[0] != 0)
            if match is not None:
                done.update(range(low, low + size))
                yield match
                break


def _match(
    view: View,
    layout: Layout,
    admissible: Callable[[Values], str | None],
    base: int,
    stored: int,
    run: list[_Byte],
    swap: bool,
) -> Match | None:
    last = max(byte.index for byte in run)
    stores = {byte.index for byte in run}
    taken = frozenset().union(*(byte.serving for byte in run), stores)
    # Steps that other instructions read as well stay; nothing of the idiom may then come after them.
    settled = settle(view, last, NOTHING.taking(*taken))
    if settled is None:
        return None
    start = settled.indices[0]
    registers = [next((r for r in range(11) if view.value_in(r, start) == wanted), None) for wanted in (base, stored)]
    if None in registers:
        return None
    free = sorted((r for r in settled.temporaries if r != registers[0]), key=lambda r: r == registers[1])
    fields = {
        "base": registers[0] or 0, "src": registers[1] or 0, "part": free[0] if free else NO_REGISTER,
        "offset": min(byte.offset for byte in run), "size": len(run).bit_length() - 1, "unit": 0, "swap": int(swap),
    }  # fmt: skip
    return settled.match(layout.encode(**fields)) if admissible(Values(fields)) is None else None
