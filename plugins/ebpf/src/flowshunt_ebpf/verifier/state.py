"""The state of an analysis: frames with registers and stack, references to release, the lock that is held."""

from collections.abc import Iterator
from typing import Any

from flowshunt_ebpf.verifier.stack import Stack
from flowshunt_ebpf.verifier.values import Value

Registers = list[Value | None]
"""r0 to r10; None: not initialised."""

Path = tuple[Any, int, bool] | None
"""The branches on the way, the last first: (those before, index, taken)."""


class Frame:
    """A function's registers and stack.

    Attributes:
        number: 0: the program itself.
        subprogram: the number of its subprogram.
        call: the index of the call that made it; -1: none.
        callback: the number of the helper that called it as a callback; 0: none.
        returns: how a callback's result is bounded: it is 0 to this.
        entered: the references and the lock as it was entered.
    """

    __slots__ = ("call", "callback", "entered", "number", "registers", "returns", "stack", "subprogram")

    def __init__(
        self,
        number: int,
        subprogram: int,
        call: int,
        registers: Registers,
        stack: Stack,
        callback: int = 0,
        returns: int = 0,
    ) -> None:
        self.number = number
        self.subprogram = subprogram
        self.call = call
        self.registers = registers
        self.stack = stack
        self.callback = callback
        self.returns = returns
        self.entered: Any = None

    def copy(self) -> "Frame":
        """A frame that can be changed without changing this one."""
        other = Frame(
            self.number,
            self.subprogram,
            self.call,
            self.registers.copy(),
            self.stack.copy(),
            self.callback,
            self.returns,
        )
        other.entered = self.entered
        return other


class State:
    """A state before an instruction.

    Attributes:
        frames: outermost first; the last is that of the function that runs.
        index: the instruction.
        references: (id, where acquired) of what has to be released, in order.
        lock: the map value whose lock is held, as (map, id of the pointer); None: none is held.
        node: the kept state that this one comes from; see `pruning`.
        path: the branches on the way.
        returned: whether a callback has just returned to the helper that the instruction calls.
    """

    __slots__ = ("frames", "index", "lock", "node", "path", "references", "returned")

    def __init__(
        self,
        frames: list[Frame],
        index: int,
        references: tuple[tuple[int, int], ...] = (),
        lock: tuple[Any, int] | None = None,
        node: Any = None,
        path: Path = None,
    ) -> None:
        self.frames = frames
        self.index = index
        self.references = references
        self.lock = lock
        self.node = node
        self.path = path
        self.returned = False

    def copy(self, index: int) -> "State":
        """A state at another instruction that can be changed without changing this one."""
        return State([frame.copy() for frame in self.frames], index, self.references, self.lock, self.node, self.path)

    def values(self) -> Iterator[Value]:
        """All values in registers and stacks."""
        for frame in self.frames:
            for value in frame.registers:
                if value is not None:
                    yield value
            for _, value in frame.stack.cells.values():
                yield value

    def replace(self, change: Any) -> None:
        """Replace each value by `change(value)`; a value for which that is the same object stays; None: forget it."""
        for frame in self.frames:
            registers = frame.registers
            for n, value in enumerate(registers):
                if value is not None:
                    registers[n] = change(value)
            frame.stack.replace(change)
