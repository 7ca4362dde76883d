"""What an accepted program's analysis found, for others to use. All of it holds for every run."""

from typing import Final

import attrs

from flowshunt_ebpf.verifier.scalar import UNKNOWN, Scalar, join
from flowshunt_ebpf.verifier.values import CONTEXT, MAP_VALUE, PACKET, PACKET_META, SCALAR, STACK, Value

Bounds = tuple[Scalar | None, ...]
"""What r0 to r9 hold before an instruction; None: nothing is claimed (a pointer, not initialised, not read later)."""

Region = tuple[int, int, int | None]
"""Memory that a pointer stays in: its kind (CONTEXT, STACK, PACKET or MAP_VALUE), a stack frame's number (0 for the
others), and where in the frame it points, from the frame pointer; None: not known, or another kind."""

Regions = tuple[Region | None, ...]
"""The regions that r0 to r10 point to before an instruction; None: nothing is claimed (as for `Bounds`)."""

_REGISTERS: Final = range(10)


@attrs.frozen
class Facts:
    """Facts about a program.

    Attributes:
        bounds: for each instruction what its registers hold before it; None for instructions that no run reaches.
        stack: bytes of stack that each subprogram uses, by number.
        frames: functions that are nested at most, the program included.
        writes_packet: whether it may write to the packet.
        context_accesses: the instructions that access the context; the other loads and stores never do.
        regions: for each instruction the memory that registers which are read later point to before it. Two pointers
            that stay in different kinds of memory, or in different frames, never meet.
    """

    bounds: tuple[Bounds | None, ...] = attrs.field(repr=False)
    stack: tuple[int, ...]
    frames: int
    writes_packet: bool
    context_accesses: frozenset[int] = attrs.field(repr=False)
    regions: tuple[Regions | None, ...] = attrs.field(repr=False, default=())

    @property
    def dead(self) -> frozenset[int]:
        """Instructions that no run reaches."""
        return frozenset(index for index, known in enumerate(self.bounds) if known is None)


class Recorder:
    """Joins what is known at each instruction over all states."""

    def __init__(self, count: int) -> None:
        self._last: list[list[Value | None] | None] = [None] * count
        self._bounds: list[list[Scalar | None]] = [[] for _ in range(count)]
        self._regions: list[list[Region | None]] = [[] for _ in range(count)]

    def note(self, index: int, registers: list[Value | None]) -> None:
        """A state was at an instruction."""
        last = self._last[index]
        if last is None:
            self._last[index] = registers.copy()
            self._bounds[index] = [v.scalar if v is not None and v.kind == SCALAR else None for v in registers[:10]]
            self._regions[index] = [_region(v) for v in registers]
            return
        if last == registers:
            return
        bounds, regions = self._bounds[index], self._regions[index]
        if registers[10] is not last[10]:
            last[10] = registers[10]
            regions[10] = _common(regions[10], registers[10])
        for n in _REGISTERS:
            value = registers[n]
            if value is last[n]:
                continue
            last[n] = value
            if regions[n] is not None:
                regions[n] = _common(regions[n], value)
            known = bounds[n]
            if known is None:
                continue
            if value is None or value.kind != SCALAR:
                bounds[n] = None
            elif known is not UNKNOWN:
                bounds[n] = join(known, value.scalar)

    def bounds(self) -> tuple[Bounds | None, ...]:
        """The facts."""
        return tuple(
            None if last is None else tuple(bounds) for last, bounds in zip(self._last, self._bounds, strict=True)
        )

    def regions(self) -> tuple[Regions | None, ...]:
        """The memory that registers point to."""
        return tuple(
            None if last is None else tuple(regions) for last, regions in zip(self._last, self._regions, strict=True)
        )


def _region(value: Value | None) -> Region | None:
    if value is None or value.nullable:
        return None
    kind = value.kind
    if kind == STACK:
        return STACK, value.of, value.offset + value.scalar.smin if value.scalar.is_const else None
    if kind in (PACKET, PACKET_META):
        return PACKET, 0, None
    return (kind, 0, None) if kind in (CONTEXT, MAP_VALUE) else None


def _common(known: Region | None, value: Value | None) -> Region | None:
    """What two states say together."""
    found = _region(value)
    if known == found or known is None or found is None:
        return known if known == found else None
    return (*known[:2], None) if known[:2] == found[:2] else None


def apart(one: Region | None, one_offset: int, other: Region | None, other_offset: int, size: int) -> bool:
    """Whether `size` bytes from two pointers, each plus an offset, are known not to overlap."""
    if one is None or other is None:
        return False
    if one[:2] != other[:2]:
        return True
    if one[2] is None or other[2] is None:
        return False
    return abs(one[2] + one_offset - other[2] - other_offset) >= size
