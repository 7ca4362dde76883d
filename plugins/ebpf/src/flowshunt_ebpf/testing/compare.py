"""Run one program on every runner, over the same memory, and compare all that it leaves."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs

from flowshunt.errors import InputError
from flowshunt_ebpf.contexts.layout import MEMORY, Context
from flowshunt_ebpf.maps.create import create_all
from flowshunt_ebpf.maps.map import Map
from flowshunt_ebpf.native.emulator import emulate
from flowshunt_ebpf.native.host import host
from flowshunt_ebpf.native.image import context_of, prepare
from flowshunt_ebpf.native.interpreter import interpret
from flowshunt_ebpf.native.machine import Machine
from flowshunt_ebpf.program import Program
from flowshunt_ebpf.testing.checked_code import host_checked, vouched


@attrs.frozen
class State:
    """What a run leaves: r0, the kind and place of a fault, the packet, the maps."""

    value: int
    fault: tuple[int, int] | None
    packet: bytes
    maps: tuple[Any, ...]


class Comparison:
    """A machine and maps that programs with the same maps run on, one after another.

    Args:
        definitions: the maps of every program to come.
        context: what r1 is.
        kernel: whether to run in the kernel too, whose acceptance is then the verdict for the unchecked runs.
        trusted: whether programs are known to be safe, so that they also run unchecked.
    """

    def __init__(
        self, definitions: Sequence[Any] = (), *, context: Context = MEMORY, kernel: bool = False, trusted: bool = False
    ) -> None:
        self.maps = create_all(definitions)
        self.machine = Machine(context, self.maps)
        self.context = context
        self.kernel = kernel
        self.trusted = trusted
        self._in_kernel: Any = None

    def _kernel_maps(self) -> Any:
        if self._in_kernel is None:
            from flowshunt_ebpf.kernel.maps import KernelMaps

            self._in_kernel = KernelMaps(self.maps)
        return self._in_kernel

    def states(
        self, program: Program, packet: bytes, fill: Callable[[], None], *, checked: bool | None = None
    ) -> Iterator[tuple[str, State]]:
        """Run a program on each runner; `fill` sets the maps up anew before each run.

        `checked`: only code that checks (True) or that does not (False) its accesses at run time; None: both.
        """
        image = prepare(program, self.maps, context=self.context)
        machine = self.machine
        verdict = vouched(image) if self.trusted else None
        loaders: list[tuple[str, Callable[[], Any]]] = [("interpret", lambda: interpret(image, machine))]
        if checked is not False or verdict is None:
            loaders += [
                ("host, checked", lambda: host_checked(image, machine)),
                ("unicorn x86_64, checked", lambda: emulate(image, machine, "x86_64")),
                ("unicorn arm64, checked", lambda: emulate(image, machine, "arm64")),
            ]
        if checked is not True and verdict is not None:
            loaders += [
                ("host", lambda: host(image, machine, verdict)),
                ("unicorn x86_64", lambda: emulate(image, machine, "x86_64", verdict)),
                ("unicorn arm64", lambda: emulate(image, machine, "arm64", verdict)),
            ]
        if self.kernel:
            from flowshunt_ebpf.kernel.runner import run_in_kernel

            loaders.append(("kernel", lambda: run_in_kernel(image, machine, self._kernel_maps())))
        for name, load in loaders:
            fill()
            machine.set_packet(packet)
            loaded = load()
            try:
                outcome = loaded.run()
            finally:
                loaded.close()
            value = outcome.value & 0xFFFFFFFF if self.kernel else outcome.value
            fault = (int(outcome.fault.kind), outcome.fault.index) if outcome.fault else None
            yield name, State(value, fault, machine.packet(), tuple(contents(m) for m in self.maps))


def contents(m: Map) -> Any:
    """A map's contents, in an order of their own."""
    try:
        return tuple(sorted(m.items()))
    except InputError:
        return None


def difference(states: Iterator[tuple[str, State]]) -> str | None:
    """The first runner that leaves something else than the first one, and what; None where all agree."""
    first_name, first = next(states)
    for name, state in states:
        if state != first:
            parts = [a.name for a in attrs.fields(State) if getattr(state, a.name) != getattr(first, a.name)]
            return f"{name} differs from {first_name} in {', '.join(parts)}: {state} against {first}"
    return None


__all__ = ["Comparison", "State", "context_of", "difference"]
