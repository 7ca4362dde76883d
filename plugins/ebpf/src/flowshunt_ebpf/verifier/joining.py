"""Making one state include others, where there are too many to follow each."""

from typing import Final

from flowshunt_ebpf.verifier.inclusion import PACKETS, place
from flowshunt_ebpf.verifier.scalar import Scalar, join, unsigned_range
from flowshunt_ebpf.verifier.state import State
from flowshunt_ebpf.verifier.values import NUMBER, SCALAR, SIZE_ID, Value, number

_MOST_ROUNDED: Final = 3
"""Times that the bounds of a number are rounded at a join before it is given up."""


def join_states(state: State, other: State, joins: int) -> None:
    """Make a state include what another one does, but for relations between its values.

    `joins`: how often states were joined here, this time included: a number that keeps growing is let go, so that
    what follows is not looked at anew for each step of it.
    """
    for now, before in zip(state.frames, other.frames, strict=True):
        for r in range(10):
            a, b = now.registers[r], before.registers[r]
            if a is not None and b is not None and a is not b:
                now.registers[r] = _joined(a, b, joins)
        for offset, (size, a) in list(now.stack.cells.items()):
            b = before.stack.load(offset, size)
            if b is None or not _alike(a, b):
                now.stack.drop([offset])
            elif a is not b:
                now.stack.put(offset, size, _joined(a, b, joins))


def widen_state(state: State, other: State, fully: bool) -> None:
    """Forget every number in which two states differ, and take the fewest packet bytes.

    `fully`: forget pointers at different variable offsets, too.
    """
    for now, before in zip(state.frames, other.frames, strict=True):
        for r in range(10):
            a, b = now.registers[r], before.registers[r]
            if a is not None and b is not None and a is not b:
                now.registers[r] = _widened(a, b, fully)
        for offset, (size, a) in list(now.stack.cells.items()):
            b = before.stack.load(offset, size)
            if b is None or not _alike(a, b) or (a.kind == SCALAR and a.scalar != b.scalar):
                now.stack.drop([offset])
            elif a.kind != SCALAR:
                wider = _widened(a, b, fully)
                if wider.kind == SCALAR:
                    now.stack.drop([offset])
                else:
                    now.stack.put(offset, size, wider)


def _alike(a: Value, b: Value) -> bool:
    return a.kind == b.kind and (a.kind == SCALAR or place(a) == place(b))


def _joined(a: Value, b: Value, joins: int) -> Value:
    """`a` with what `b` may be, too; of the same kind and place."""
    if a.scalar == b.scalar:
        scalar = a.scalar
    elif joins == 1:
        scalar = join(a.scalar, b.scalar)
    elif a.kind == SCALAR and joins > _MOST_ROUNDED and a.id != SIZE_ID:
        return NUMBER
    else:
        scalar = _rounded(join(a.scalar, b.scalar))
    if a.kind == SCALAR:
        if a.scalar == b.scalar and a.id == b.id:
            return a
        return number(scalar, SIZE_ID if a.id == b.id == SIZE_ID else 0)
    return a.moved(a.offset, scalar, a.id, min(a.range, b.range) if a.kind in PACKETS else a.range)


def _rounded(scalar: Scalar) -> Scalar:
    """All numbers from 0 to the next power of two, if none is greater."""
    return unsigned_range(0, (1 << scalar.umax.bit_length()) - 1)


def _widened(a: Value, b: Value, fully: bool) -> Value:
    if a.kind == SCALAR:
        if a.id == SIZE_ID:
            return a
        if a.scalar == b.scalar:
            return a if a.id == b.id else number(a.scalar)
        return NUMBER
    if a.scalar != b.scalar and fully:
        return NUMBER
    scalar = join(a.scalar, b.scalar) if a.scalar != b.scalar else a.scalar
    return a.moved(a.offset, scalar, a.id, min(a.range, b.range) if a.kind in PACKETS else a.range)
