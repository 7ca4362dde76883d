"""Whether one state includes another: every run that the other one stands for, it stands for, too."""

from typing import Any, Final

from flowshunt_ebpf.verifier.scalar import includes
from flowshunt_ebpf.verifier.state import State
from flowshunt_ebpf.verifier.values import MAP_KEY, MEMORY, PACKET, PACKET_META, SCALAR, SIZE_ID, Value

PACKETS: Final = frozenset({PACKET, PACKET_META})
_SIZED: Final = frozenset({MEMORY, MAP_KEY})


def shape(state: State) -> tuple[Any, ...]:
    """What two states must have in common for one to include the other."""
    parts: list[Any] = [len(state.references), state.lock is None]
    add = parts.append
    for frame in state.frames:
        add(frame.call)
        add(frame.callback)
        if frame.callback:
            add(len(frame.entered[0]))
        for value in frame.registers:
            if value is None:
                add(None)
            elif value.kind == SCALAR:
                add(SCALAR)
            else:
                add(place(value))
    return tuple(parts)


def place(value: Value) -> tuple[Any, ...]:
    """What can't differ between a pointer and one that it includes."""
    return value.kind, value.of, value.offset, value.nullable, value.kind in PACKETS and not value.id


def contents(state: State) -> int:
    """A hash of all that a state of some shape consists of; ids count by where they come first."""
    ids: dict[int, int] = {0: 0, SIZE_ID: SIZE_ID}
    parts: list[Any] = []
    add = parts.append
    for frame in state.frames:
        for value in frame.registers:
            if value is not None:
                add(value.scalar)
                add(ids.setdefault(value.id, len(ids)))
                add(value.range)
                add(ids.setdefault(value.reference, len(ids)))
        cells = frame.stack.cells
        for offset in sorted(cells):
            size, value = cells[offset]
            add((offset, size, value.kind, value.scalar, value.offset, value.nullable, value.range))
            add(ids.setdefault(value.id, len(ids)))
            add(ids.setdefault(value.reference, len(ids)))
    return hash(tuple(parts))


def covers(old: State, new: State) -> bool:
    """Whether `old`, of the same shape, includes `new`: every run that `new` stands for, `old` stands for, too."""
    ids: dict[int, int] = {}
    for before, now in zip(old.frames, new.frames, strict=True):
        for a, b in zip(before.registers, now.registers, strict=True):
            if a is None or (a is b and not a.id and not a.reference):
                continue
            if b is None or not _value_covers(a, b, ids):
                return False
        cells = now.stack.cells
        for offset, cell in before.stack.cells.items():
            there = cells.get(offset)
            if there is cell and not cell[1].id and not cell[1].reference:
                continue
            size, a = cell
            found = there[1] if there is not None and there[0] == size else now.stack.load(offset, size)
            if found is None or not _value_covers(a, found, ids):
                return False
    held = [(old.references, new.references)]
    held += [(a.entered[0], b.entered[0]) for a, b in zip(old.frames, new.frames, strict=True) if a.callback]
    for theirs, ours in held:
        for one, other in zip(theirs, ours, strict=True):
            if ids.setdefault(one[0], other[0]) != other[0]:
                return False
    if old.lock is None or new.lock is None:
        return old.lock is new.lock
    return old.lock[0] is new.lock[0] and ids.setdefault(old.lock[1], new.lock[1]) == new.lock[1]


def again(old: State, new: State) -> bool:
    """Whether a state is the same as before, in the same run of its function: a callback's next call is another one."""
    return old.frames[-1].entered is new.frames[-1].entered and covers(old, new) and covers(new, old)


def _value_covers(a: Value, b: Value, ids: dict[int, int]) -> bool:
    """Whether `a` includes `b`. `ids`: which id of the one state stands for which of the other."""
    kind = a.kind
    if kind != b.kind:
        return False
    if a is not b:
        if a.scalar is not b.scalar and not includes(a.scalar, b.scalar):
            return False
        if kind != SCALAR:
            if a.of is not b.of and a.of != b.of:
                return False
            if a.offset != b.offset or a.nullable != b.nullable:
                return False
            if kind in PACKETS:
                if a.range > b.range or bool(a.id) != bool(b.id):
                    return False
            elif kind in _SIZED and a.range != b.range:
                return False
            if a.reference != b.reference:
                if not a.reference or not b.reference:
                    return False
                if ids.setdefault(a.reference, b.reference) != b.reference:
                    return False
    if a.reference and a.reference == b.reference and ids.setdefault(a.reference, b.reference) != b.reference:
        return False
    if a.id:
        if a.id == SIZE_ID and b.id != SIZE_ID:
            return False
        if ids.setdefault(a.id, b.id) != b.id:
            return False
        return bool(b.id) or kind != SCALAR
    return True
