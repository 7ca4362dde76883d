"""A function's stack frame, by byte.

What is known is kept in cells: a cell has an offset from r10 (negative), 1, 2, 4 or 8 bytes, and a value; pointers take
8. Bytes without a cell hold something of which nothing is known: never written, or written with what is not known.
Offsets are multiples of the size, so that a cell lies in one word of 8 bytes.
"""

from collections.abc import Callable, Iterable
from typing import Final

from flowshunt.insn import AND, LSH, OR, RSH
from flowshunt_ebpf.verifier.scalar import Scalar, alu64, const
from flowshunt_ebpf.verifier.values import SCALAR, UNKNOWN_BYTES, Value, constant, number

FRAME_BYTES: Final = 512

Cell = tuple[int, Value]


class Stack:
    """A frame's memory. `depth`: bytes in use, as far as they were accessed."""

    __slots__ = ("_shared", "cells")

    def __init__(self, cells: dict[int, Cell] | None = None) -> None:
        self.cells: dict[int, Cell] = {} if cells is None else cells
        self._shared = False

    def copy(self) -> "Stack":
        """A stack that can be changed without changing this one."""
        other = Stack(self.cells)
        other._shared = self._shared = True
        return other

    def _own(self) -> dict[int, Cell]:
        if self._shared:
            self.cells = self.cells.copy()
            self._shared = False
        return self.cells

    def store(self, offset: int, size: int, value: Value) -> None:
        """Store a value at a fixed place; `size` bytes of a number, or a pointer with 8."""
        cells = self._own()
        old = cells.get(offset)
        if old is None or old[0] != size:
            self._cut(offset, size)
        if value.kind == SCALAR and size < 8:
            scalar = value.scalar
            if scalar.umax >> 8 * size:
                scalar = alu64(AND, scalar, const((1 << 8 * size) - 1))
                value = number(scalar)
        cells[offset] = (size, value)

    def forget(self, first: int, last: int) -> None:
        """Bytes [first, last) may have been written with anything."""
        cells = self._own()
        if not cells:
            return
        if last - first <= 16:
            self._cut(first, last - first)
            return
        self._cut(first, 1)
        self._cut(last - 1, 1)
        for offset in [offset for offset in cells if first <= offset < last]:
            del cells[offset]

    def _cut(self, first: int, size: int) -> None:
        """Take bytes out of the cells that have them; what is left of a number's cell stays, byte by byte."""
        cells = self.cells
        if not cells:
            return
        last = first + size
        for offset in range(first & ~7, last):
            cell = cells.get(offset)
            if cell is None or offset + cell[0] <= first:
                continue
            length, value = cells.pop(offset)
            if value.kind != SCALAR or (offset >= first and offset + length <= last):
                continue
            if not value.scalar.is_const:
                continue
            known = value.scalar.value
            for at in range(length):
                if not first <= offset + at < last:
                    cells[offset + at] = (1, constant(known >> 8 * at & 0xFF))

    def load(self, offset: int, size: int) -> Value | None:
        """What is at a fixed place, its upper bytes zero; None where it is a part of a pointer."""
        cells = self.cells
        cell = cells.get(offset)
        if cell is not None and cell[0] == size:
            return cell[1]
        word = offset & ~7
        for start in range(word, offset + 1):
            cell = cells.get(start)
            if cell is not None and start + cell[0] >= offset + size:
                if cell[1].kind != SCALAR:
                    return None
                part = alu64(RSH, cell[1].scalar, const(8 * (offset - start)))
                return number(alu64(AND, part, const((1 << 8 * size) - 1)))
        return self._gather(offset, size)

    def _gather(self, offset: int, size: int) -> Value:
        """A number out of several cells."""
        cells = self.cells
        whole: Scalar | None = const(0)
        at = offset
        while at < offset + size:
            cell = cells.get(at)
            if cell is None or cell[1].kind != SCALAR or whole is None:
                return UNKNOWN_BYTES[size]
            whole = alu64(OR, whole, alu64(LSH, cell[1].scalar, const(8 * (at - offset))))
            at += cell[0]
        assert whole is not None
        return number(whole)

    def has_pointer(self, first: int, last: int) -> bool:
        """Whether a byte of [first, last) belongs to a pointer."""
        return any(
            value.kind != SCALAR and offset < last and offset + size > first
            for offset, (size, value) in self.cells.items()
        )

    def drop(self, offsets: Iterable[int]) -> None:
        """Forget cells."""
        cells = self._own()
        for offset in offsets:
            del cells[offset]

    def put(self, offset: int, size: int, value: Value) -> None:
        """Change the value of a cell."""
        self._own()[offset] = (size, value)

    def replace(self, change: Callable[[Value], Value | None]) -> None:
        """Replace each value by `change(value)`; None: forget it."""
        changed = []
        for offset, (size, value) in self.cells.items():
            new = change(value)
            if new is not value:
                changed.append((offset, size, new))
        if not changed:
            return
        cells = self._own()
        for offset, size, new in changed:
            if new is None:
                del cells[offset]
            else:
                cells[offset] = (size, new)
