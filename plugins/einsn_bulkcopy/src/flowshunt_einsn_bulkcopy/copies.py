"""Where memory is copied: loads and stores of equal parts at offsets that go up or down together."""

from collections.abc import Callable, Iterator
from typing import Final

import attrs

from flowshunt.insn import DW, LDX, MEM, STX, B, H, W
from flowshunt.payload import Layout, Values
from flowshunt.recognition import Match, View

MIN_BYTES: Final = 8
MAX_BYTES: Final = 256
_UNITS: Final = {STX | MEM | size: (unit, LDX | MEM | size) for unit, size in enumerate((B, H, W, DW))}
_RANGE: Final = 1 << 12


@attrs.frozen
class _Part:
    """One part: its load and store, the values of both bases, and both offsets."""

    load: int
    store: int
    unit: int
    to: int
    origin: int
    to_offset: int
    from_offset: int

    def follows(self, other: "_Part", step: int) -> bool:
        """Whether this part is the next in a direction: the same bases, both offsets one part on."""
        return (
            (self.unit, self.to, self.origin) == (other.unit, other.to, other.origin)
            and self.to_offset == other.to_offset + step
            and self.from_offset == other.from_offset + step
        )


def recognize_copies(view: View, layout: Layout, admissible: Callable[[Values], str | None]) -> Iterator[Match]:
    """Every run of parts of at least 8 bytes in all, in one direction."""
    waiting: list[_Part] = []
    step = 0
    for index in view.having(*_UNITS):
        part = _part(view, index)
        if part is None:
            continue
        if waiting and view.run_of(part.store)[0] == view.run_of(waiting[0].store)[0]:
            size = 1 << part.unit
            steps = (step,) if step else (size, -size)
            found = next((s for s in steps if part.follows(waiting[-1], s)), 0)
            if found and (len(waiting) + 1) << part.unit <= MAX_BYTES and len(waiting) < 127:
                step = found
                waiting.append(part)
                continue
        yield from _match(view, layout, admissible, waiting, step)
        waiting, step = [part], 0
    yield from _match(view, layout, admissible, waiting, step)


def _part(view: View, store: int) -> _Part | None:
    """The part that a store ends; None where it stores anything but what one load gave to it alone."""
    i = view.instructions[store]
    unit, opcode = _UNITS[i.opcode]
    load = view.src_definition(store)
    if load < 0 or view.instructions[load].opcode != opcode or view.only_reader(load) != store:
        return None
    origin = view.instructions[load]
    return _Part(load, store, unit, view.dst_value(store), view.src_value(load), i.offset, origin.offset)


def _match(
    view: View, layout: Layout, admissible: Callable[[Values], str | None], parts: list[_Part], step: int
) -> Iterator[Match]:
    if not parts or len(parts) << parts[0].unit < MIN_BYTES or len(parts) < 2:
        return
    indices = tuple(sorted({index for part in parts for index in (part.load, part.store)}))
    start = indices[0]
    lowest = min(parts, key=lambda part: part.to_offset)
    to, origin = _holder(view, parts[0].to, start), _holder(view, parts[0].origin, start)
    passing = {view.instructions[part.load].dst for part in parts} - {to, origin}
    if to is None or origin is None or not passing:
        return
    if not (-_RANGE <= lowest.to_offset < _RANGE and -_RANGE <= lowest.from_offset < _RANGE):
        return
    fields = {
        "to": to, "from_": origin, "part": min(passing), "to_offset": lowest.to_offset,
        "from_offset": lowest.from_offset, "count": len(parts), "unit": parts[0].unit, "down": int(step < 0),
    }  # fmt: skip
    if admissible(Values(fields)) is None:
        yield Match(indices, layout.encode(**fields))


def _holder(view: View, wanted: int, start: int) -> int | None:
    """A register that holds a value just before an instruction."""
    return next((r for r in range(11) if view.value_in(r, start) == wanted), None)
