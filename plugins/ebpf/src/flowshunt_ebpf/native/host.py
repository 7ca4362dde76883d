"""The host runner: native code on this machine's own processor.

It runs programs that a verifier accepted, with a verdict for exactly their bytes, maps and context, and no others.
"""

import ctypes
import platform
import time
from functools import lru_cache
from pathlib import Path
from typing import Final

from flowshunt.errors import CapabilityError, InputError
from flowshunt.operation import CPU_FEATURES
from flowshunt_ebpf.maps.arrays import MAX_PROGRAMS
from flowshunt_ebpf.native import assembler, state
from flowshunt_ebpf.native.code_memory import CodeMemory
from flowshunt_ebpf.native.emission import CHECK_CALL, TAIL_CALL
from flowshunt_ebpf.native.helper_call import bind_all
from flowshunt_ebpf.native.image import Image
from flowshunt_ebpf.native.interpreter import RunError
from flowshunt_ebpf.native.jit import NativeCode, compile_image
from flowshunt_ebpf.native.machine import DEFAULT_BUDGET, Machine
from flowshunt_ebpf.native.runner import Outcome
from flowshunt_ebpf.native.verdict import Verdict, issued

_MACHINES: Final = {
    "x86_64": assembler.X86_64,
    "amd64": assembler.X86_64,
    "aarch64": assembler.ARM64,
    "arm64": assembler.ARM64,
}
_KNOWN_FEATURES: Final = frozenset[str]().union(*CPU_FEATURES.values())
_ENTRY: Final = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_uint64)
_REPEAT: Final = ctypes.CFUNCTYPE(None, ctypes.c_uint64, ctypes.c_uint64)


def architecture() -> str:
    """This machine's architecture. Raises CapabilityError where there is no code generator for it."""
    name = platform.machine().lower()
    if name not in _MACHINES:
        raise CapabilityError(f"no code generator for {name}; use the interpreter or Unicorn")
    return _MACHINES[name]


@lru_cache(maxsize=1)
def features() -> frozenset[str]:
    """The CPU features that the code generators know of and this machine has."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")
    except OSError:
        return frozenset()
    line = next((line for line in text.splitlines() if line.startswith(("flags", "Features"))), "")
    return frozenset(line.partition(":")[2].split()) & _KNOWN_FEATURES


def helper_address(number: int) -> int:
    """The address of a helper's native code in this process."""
    from flowshunt_ebpf.maps import helpers

    return helpers.check_address() if number == CHECK_CALL else helpers.helper_address(number)


class HostProgram:
    """An image on a machine, as native code in this process.

    Attributes:
        code: the compiled program.
        verdict: who says that the program is safe.
        checked: whether its accesses are checked at run time, too; only for tests of the code that does so.
    """

    def __init__(self, image: Image, machine: Machine, verdict: Verdict, *, budget: bool = False) -> None:
        _require(image, verdict)
        image.freeze()
        self.verdict: Verdict | None = verdict
        self._load(image, machine, checked=False, budget=budget)

    def _load(self, image: Image, machine: Machine, *, checked: bool, budget: bool) -> None:
        self.image = image
        self.machine = machine
        self.checked = checked
        bind_all(image, machine, checked=checked)
        self._budgeted = budget
        self.code = self._compile(image)
        self.memory = CodeMemory(self.code.code)
        self._entry = _ENTRY(self.memory.address)
        self._repeat = _REPEAT(self.memory.address + self.code.repeat)
        self._table: ctypes.Array[ctypes.c_uint64] | None = None
        self._others: list[CodeMemory] = []
        if TAIL_CALL in image.helpers:
            self._load_targets()

    def _compile(self, image: Image) -> NativeCode:
        return compile_image(
            image,
            architecture(),
            checked=self.checked,
            budget=self._budgeted,
            features=features(),
            helper_address=helper_address,
            chained=bool(self.machine.programs),
            offsets=self.checked,
        )

    def _load_targets(self) -> None:
        """Compile the machine's other programs, so that tail calls reach them."""
        # As long as handles may be: one of a program that was added later leads nowhere.
        table = (ctypes.c_uint64 * (MAX_PROGRAMS + 1))()
        for number, (image, verdict) in enumerate(zip(self.machine.programs, self.machine.verdicts, strict=True), 1):
            if not self.checked:
                _require(image, verdict)
                image.freeze()
            bind_all(image, self.machine, checked=self.checked)
            code = self._compile(image)
            memory = CodeMemory(code.code)
            self._others.append(memory)
            table[number] = memory.address + code.main
        self._table = table

    def run(self, *, budget: int = DEFAULT_BUDGET) -> Outcome:
        """Run once."""
        self.machine.begin(budget)
        self._point()
        value = self._entry(self.machine.address)
        fault = self.machine.fault(self._index()) if self.machine.get32(state.FAULT) else None
        return Outcome(value, fault)

    def time(self, repeat: int, *, budget: int = DEFAULT_BUDGET) -> float:
        """Run `repeat` times; ns per run. The budget is for each run on average."""
        self.machine.begin(budget * repeat)
        self._point()
        start = time.thread_time_ns()
        self._repeat(self.machine.address, repeat)
        spent = time.thread_time_ns() - start
        fault = self.machine.fault(self._index())
        if fault is not None:
            raise RunError(fault.describe(self.image.program))
        return spent / repeat

    def _point(self) -> None:
        self.machine.put64(state.CODE_TABLE, ctypes.addressof(self._table) if self._table is not None else 0)

    @property
    def entry_address(self) -> int:
        """The address of the C function `r0 = entry(state block)`, for the batch driver."""
        self._point()
        return self.memory.address

    def _index(self) -> int:
        return self.code.index_at(self.machine.get64(state.FAULT_PC) - 1 - self.memory.address)

    def close(self) -> None:
        """Its memory goes when nothing refers to it any more."""


def _require(image: Image, verdict: Verdict | None) -> None:
    """Raise InputError unless a verdict accepts exactly this image."""
    if not image.is_prepared:
        raise InputError("it was changed after it was made ready", f"program {image.program.name}", "use `prepare`")
    if verdict is not None and issued(verdict) and verdict.covers(image):
        return
    if verdict is None:
        said = "no verifier has accepted it"
    elif not verdict.accepted:
        said = ": ".join(part for part in (f"{verdict.verifier} rejects it", verdict.reason) if part)
    elif not issued(verdict):
        said = f"no verifier issued the verdict in the name of {verdict.verifier}"
    else:
        said = f"the verdict of {verdict.verifier} is about other bytes, maps or another context"
    raise InputError(said, f"program {image.program.name}", "have exactly what is to run verified, or interpret it")


def host(image: Image, machine: Machine, verdict: Verdict | None, *, budget: bool = False) -> HostProgram:
    """Load a program as native code.

    Args:
        image: the program.
        machine: what it runs on; the verdicts about the programs that it may tail-call stand there.
        verdict: a verifier's, for exactly this program.
        budget: whether the program is stopped when it used up its budget; a verified one comes to an end by itself.

    Raises InputError where the verdict does not accept exactly this program, or one that it may tail-call has none.
    """
    if verdict is None:
        _require(image, None)
    assert verdict is not None
    return HostProgram(image, machine, verdict, budget=budget)
