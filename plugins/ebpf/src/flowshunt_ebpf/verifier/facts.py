"""What an accepted program's analysis found, for others to use. All of it holds for every run."""

from typing import Final

import attrs

from flowshunt_ebpf.verifier.scalar import UNKNOWN, Scalar, join
from flowshunt_ebpf.verifier.values import SCALAR, Value

Bounds = tuple[Scalar | None, ...]
"""What r0 to r9 hold before an instruction; None: nothing is claimed (a pointer, not initialised, not read later)."""

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
    """

    bounds: tuple[Bounds | None, ...] = attrs.field(repr=False)
    stack: tuple[int, ...]
    frames: int
    writes_packet: bool
    context_accesses: frozenset[int] = attrs.field(repr=False)

    @property
    def dead(self) -> frozenset[int]:
        """Instructions that no run reaches."""
        return frozenset(index for index, known in enumerate(self.bounds) if known is None)


class Recorder:
    """Joins what is known at each instruction over all states."""

    def __init__(self, count: int) -> None:
        self._last: list[list[Value | None] | None] = [None] * count
        self._bounds: list[list[Scalar | None]] = [[] for _ in range(count)]

    def note(self, index: int, registers: list[Value | None]) -> None:
        """A state was at an instruction."""
        last = self._last[index]
        if last is None:
            self._last[index] = registers.copy()
            self._bounds[index] = [v.scalar if v is not None and v.kind == SCALAR else None for v in registers[:10]]
            return
        if last == registers:
            return
        bounds = self._bounds[index]
        for n in _REGISTERS:
            value = registers[n]
            if value is last[n]:
                continue
            last[n] = value
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
