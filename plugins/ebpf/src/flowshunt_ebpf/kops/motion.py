"""Bringing the instructions of an idiom together: what stands between them goes before or after, where nothing minds.

Only a proposal like the idiom itself: the rewritten run is proved equal to the original one.
"""

from collections.abc import Sequence

import attrs

from flowshunt.insn import LDX, MEM, ST, STX
from flowshunt.insn.registers import Memory, memory, reads, writes
from flowshunt.recognition import View
from flowshunt_ebpf.kops.splice import position_dependent

MAX_SPAN = 160
"""Instructions from an idiom's first to its last."""


@attrs.frozen
class Arrangement:
    """How a run is rewritten: those that stay, by old index, before and after the site."""

    before: tuple[int, ...]
    after: tuple[int, ...]


@attrs.frozen
class _Unit:
    """Instructions that move as one."""

    indices: tuple[int, ...]
    reads: int
    writes: int
    memory: Memory


def arrange(view: View, indices: Sequence[int], bound: Sequence[range] = ()) -> Arrangement | str:
    """How to bring instructions together, or why that can't be.

    Args:
        indices: the idiom's, ascending.
        bound: runs between them that must stay together (sites already made).
    """
    first, last = indices[0], indices[-1]
    if last - first + 1 == len(indices):
        return Arrangement((), ())
    if last - first >= MAX_SPAN:
        return f"its instructions lie {last - first} apart"
    idiom = set(indices)
    jump = next((index for index in indices if view.targets[index] >= 0), None)
    if jump is not None and any(index not in idiom for index in range(jump, last + 1)):
        return "other instructions stand between its jump and its end"
    before: list[_Unit] = []
    after: list[_Unit] = []
    passed: list[_Unit] = []
    waiting = [_unit(view, (index,)) for index in indices]
    for unit in _units(view, first, last, idiom, bound):
        while waiting and waiting[0].indices[0] < unit.indices[0]:
            passed.append(waiting.pop(0))
        if any(position_dependent(view.instructions[index]) for index in unit.indices):
            return f"a jump or local call stands between its instructions, at {unit.indices[0]}"
        if all(_independent(view, other, unit) for other in (*passed, *after)):
            before.append(unit)
        elif all(_independent(view, unit, other) for other in waiting):
            after.append(unit)
        else:
            return f"instruction {unit.indices[0]} stands between its instructions and depends on them"
    return Arrangement(
        tuple(index for unit in before for index in unit.indices),
        tuple(index for unit in after for index in unit.indices),
    )


def _units(view: View, first: int, last: int, idiom: set[int], bound: Sequence[range]) -> list[_Unit]:
    units = []
    index = first
    while index <= last:
        run = next((run for run in bound if run.start <= index < run.stop), None)
        if run is not None:
            units.append(_unit(view, tuple(run)))
            index = run.stop
            continue
        if index not in idiom:
            units.append(_unit(view, (index,)))
        index += 1
    return units


def _unit(view: View, indices: tuple[int, ...]) -> _Unit:
    read = written = 0
    touched = Memory.NONE
    for index in indices:
        i = view.instructions[index]
        read |= reads(i)
        written |= writes(i)
        touched |= memory(i)
    return _Unit(indices, read, written, touched)


def _independent(view: View, one: _Unit, other: _Unit) -> bool:
    """Whether two units may change places."""
    if one.writes & (other.reads | other.writes) or one.reads & other.writes:
        return False
    if not one.memory or not other.memory:
        return True
    if (one.memory | other.memory) & Memory.ORDER:
        return False
    if not (one.memory | other.memory) & Memory.WRITE:
        return True
    return all(
        _apart(view, a, b)
        for a in one.indices
        for b in other.indices
        if memory(view.instructions[a]) and memory(view.instructions[b])
    )


def _apart(view: View, a: int, b: int) -> bool:
    """Whether two accesses are based on one value and touch different bytes."""
    first, second = _access(view, a), _access(view, b)
    if first is None or second is None or first[0] != second[0]:
        return False
    return first[1] + first[2] <= second[1] or second[1] + second[2] <= first[1]


def _access(view: View, index: int) -> tuple[int, int, int] | None:
    """Base value, offset and bytes of a plain load or store."""
    i = view.instructions[index]
    if i.cls == LDX:
        return view.src_value(index), i.offset, i.size_bytes
    if i.cls == ST or (i.cls == STX and i.mode == MEM):
        return view.dst_value(index), i.offset, i.size_bytes
    return None
