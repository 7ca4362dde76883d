"""Long native runs that an interrupt ends.

Python handles a signal only when native code has returned, and a program with a large budget returns late. So it runs
in a thread, and where the waiting one is interrupted the program loses its budget: it stops at its next backward jump
or call.
"""

import threading
from collections.abc import Callable
from typing import Final, TypeVar

from flowshunt_ebpf.native import state
from flowshunt_ebpf.native.machine import Machine
from flowshunt_ebpf.native.measure import Timer

_Result = TypeVar("_Result")

_FIRST_RUNS: Final = 1000
_LONG_NS: Final = 50_000_000
_MOST_RUNS: Final = 1 << 24
_STOP_SECONDS: Final = 0.01
_OUT_OF_BUDGET: Final = -1


def interruptible(machine: Machine, work: Callable[[], _Result]) -> _Result:
    """The result of `work`, which runs a program on the machine; what it raises is raised here."""
    done = threading.Event()
    results: list[_Result] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            errors.append(error)
        finally:
            done.set()

    threading.Thread(target=run, daemon=True).start()
    try:
        done.wait()
    except BaseException:
        while not done.wait(_STOP_SECONDS):  # again and again: the program's own subtraction may overwrite it
            machine.put64(state.BUDGET, _OUT_OF_BUDGET)
        raise
    if errors:
        raise errors[0]
    return results[0]


def time_in_parts(timer: Timer, repeat: int) -> float:
    """Run a program `repeat` times; ns per run. An interrupt is noticed between parts of a fraction of a second."""
    spent, runs, part = 0.0, 0, _FIRST_RUNS
    while runs < repeat:
        count = min(part, repeat - runs)
        taken = timer(count) * count
        spent += taken
        runs += count
        if taken < _LONG_NS:
            part = min(4 * part, _MOST_RUNS)
    return spent / repeat
