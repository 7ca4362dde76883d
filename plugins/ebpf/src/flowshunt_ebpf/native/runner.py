"""What every runner offers."""

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import attrs

from flowshunt_ebpf.native.fault import Fault
from flowshunt_ebpf.native.image import Image
from flowshunt_ebpf.native.machine import DEFAULT_BUDGET, Machine


@attrs.frozen
class Outcome:
    """How a run ended.

    Attributes:
        value: r0, 64 bits, unsigned; 0 where it was stopped.
        fault: why it was stopped; None where it came to its end.
        detail: what only this runner tells, in one line.
    """

    value: int
    fault: Fault | None = None
    detail: str = ""


@runtime_checkable
class Loaded(Protocol):
    """A program that is ready to run on a machine."""

    @property
    def image(self) -> Image:
        """The program."""

    @property
    def machine(self) -> Machine:
        """The memory that it runs on: put packets in before, take them out after a run."""

    def run(self, *, budget: int = DEFAULT_BUDGET) -> Outcome:
        """Run once on the machine as it stands."""

    def time(self, repeat: int, *, budget: int = DEFAULT_BUDGET) -> float:
        """Run `repeat` times on the machine as it stands; ns per run. Raises RunError for a stopped run.

        It is the processor's time: what others run in between does not count, as it does not in the kernel's figure.
        """

    def close(self) -> None:
        """Give back what it holds. It can't run any more."""


Loader = Callable[[Image, Machine], Loaded]
"""How runners are made: `interpret`, `host`, ... load an image for a machine."""
