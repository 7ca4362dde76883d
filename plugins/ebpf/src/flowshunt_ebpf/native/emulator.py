"""The Unicorn runner: native code of either architecture on any machine, on the machine's own memory.

Unicorn maps the machine's memory at its real addresses, so that pointers mean the same inside and outside. Helpers are
calls into a page of traps; what they call runs outside.
"""

import importlib
import time
from functools import lru_cache
from typing import Any, Final

from flowshunt.errors import CapabilityError, InputError
from flowshunt_ebpf.maps.memory import PAGE, GuardedMemory, pages
from flowshunt_ebpf.native import assembler, state
from flowshunt_ebpf.native.emission import CHECK_CALL, TAIL_CALL
from flowshunt_ebpf.native.fault import Fault, FaultKind
from flowshunt_ebpf.native.helper_call import HelperCalls, bind_all, every_map
from flowshunt_ebpf.native.image import Image
from flowshunt_ebpf.native.interpreter import RunError
from flowshunt_ebpf.native.jit import NativeCode, compile_image
from flowshunt_ebpf.native.machine import DEFAULT_BUDGET, Machine
from flowshunt_ebpf.native.runner import Outcome
from flowshunt_ebpf.native.verdict import Verdict

_TRAPS: Final = 256
_TRAP_BYTES: Final = 16
_MASK64: Final = (1 << 64) - 1
_CODE_ROOM: Final = 1 << 20


class Processor:
    """An emulated processor that many programs run on, one after another. Making one takes milliseconds."""

    def __init__(self, architecture: str) -> None:
        try:
            from unicorn import arm64_const, x86_const
        except ImportError as error:
            raise CapabilityError(f"emulation needs the package unicorn ({error}); use the interpreter") from None
        self.architecture = architecture
        self._unicorn: Any = importlib.import_module("unicorn")
        unicorn = self._unicorn
        if architecture == assembler.X86_64:
            self.engine: Any = unicorn.Uc(unicorn.UC_ARCH_X86, unicorn.UC_MODE_64)
            names = ("RDI", "RSI", "RDX", "RCX", "R8")
            self.arguments = [getattr(x86_const, f"UC_X86_REG_{name}") for name in names]
            self.result, self.stack_pointer = x86_const.UC_X86_REG_RAX, x86_const.UC_X86_REG_RSP
            self.counter, self.link, trap = x86_const.UC_X86_REG_RIP, None, b"\xc3"
        elif architecture == assembler.ARM64:
            self.engine = unicorn.Uc(unicorn.UC_ARCH_ARM64, unicorn.UC_MODE_LITTLE_ENDIAN)
            self.arguments = [getattr(arm64_const, f"UC_ARM64_REG_X{number}") for number in range(5)]
            self.result, self.stack_pointer = arm64_const.UC_ARM64_REG_X0, arm64_const.UC_ARM64_REG_SP
            self.counter, self.link, trap = (
                arm64_const.UC_ARM64_REG_PC,
                arm64_const.UC_ARM64_REG_X30,
                b"\xc0\x03\x5f\xd6",
            )
        else:
            raise CapabilityError(f"no emulation of {architecture}; there is of {', '.join(assembler.ARCHITECTURES)}")
        own = GuardedMemory(_TRAPS * _TRAP_BYTES, 1 << 18, _CODE_ROOM)
        self._own = own
        self.traps, self.stack, self.code = own.addresses
        for number in range(_TRAPS):
            own.view(0)[number * _TRAP_BYTES : number * _TRAP_BYTES + len(trap)] = trap
        self._pages: dict[int, tuple[int, object]] = {}
        self.map(self.traps, _TRAPS * _TRAP_BYTES, own, execute=True)
        self.map(self.stack, 1 << 18, own)
        self.map(self.code, _CODE_ROOM, own, execute=True)
        self.on_trap: Any = None
        self.engine.hook_add(
            unicorn.UC_HOOK_CODE, self._trapped, begin=self.traps, end=self.traps + _TRAPS * _TRAP_BYTES - 1
        )

    def map(self, address: int, size: int, owner: object, *, execute: bool = False) -> None:
        """Let the processor see memory, at its own address."""
        whole = pages(size)
        if address in self._pages:
            if self._pages[address][0] == whole and self._pages[address][1] is owner:
                return
            self.unmap(address)
        rights = self._unicorn.UC_PROT_READ
        rights |= self._unicorn.UC_PROT_EXEC if execute else self._unicorn.UC_PROT_WRITE
        try:
            self.engine.mem_map_ptr(address, whole, rights, address)
        except self._unicorn.UcError as error:
            raise CapabilityError(f"Unicorn can't map {whole} bytes at {address:#x}: {error}") from None
        self._pages[address] = (whole, owner)

    def unmap(self, address: int) -> None:
        """Take memory away."""
        whole, _ = self._pages.pop(address)
        self.engine.mem_unmap(address, whole)

    def only(self, owners: set[int]) -> None:
        """Take away all memory but its own and that of these owners (by id)."""
        for address, (_, owner) in list(self._pages.items()):
            if owner is not self._own and id(owner) not in owners:
                self.unmap(address)

    def put_code(self, code: bytes, at: int = 0) -> int:
        """Put code in, `at` bytes from the start of its room; gives its address."""
        if at + len(code) > _CODE_ROOM:
            raise InputError(
                f"{at + len(code)} bytes of native code", "Unicorn", f"{_CODE_ROOM} fit: use another runner"
            )
        self._own.view(2)[at : at + len(code)] = code
        self.engine.ctl_remove_cache(self.code + at, self.code + at + pages(len(code)))
        return self.code + at

    def call(self, address: int, argument: int) -> str:
        """Run a C function of one argument to its end; gives what stopped it, empty where nothing did."""
        finish = self.traps + (_TRAPS - 1) * _TRAP_BYTES
        top = self.stack + (1 << 18) - 64
        if self.link is None:
            top -= 8
            self.engine.mem_write(top, finish.to_bytes(8, "little"))
        else:
            self.engine.reg_write(self.link, finish)
        self.engine.reg_write(self.stack_pointer, top)
        self.engine.reg_write(self.arguments[0], argument)
        try:
            self.engine.emu_start(address, finish)
        except self._unicorn.UcError as error:
            return str(error)
        return ""

    def _trapped(self, engine: Any, address: int, size: int, data: Any) -> None:
        number = (address - self.traps) // _TRAP_BYTES
        if number == _TRAPS - 1:
            return
        arguments = [engine.reg_read(register) for register in self.arguments]
        engine.reg_write(self.result, self.on_trap(number, arguments) & _MASK64)

    def trap_address(self, number: int) -> int:
        """The address that a helper's number is called at."""
        return self.traps + (_TRAPS - 2 if number == CHECK_CALL else number) * _TRAP_BYTES


@lru_cache(maxsize=2)
def processor(architecture: str) -> Processor:
    """The emulated processor of an architecture that runners share."""
    return Processor(architecture)


class EmulatedProgram:
    """An image on a machine, as native code on an emulated processor.

    Attributes:
        code: the compiled program.
    """

    def __init__(
        self, image: Image, machine: Machine, architecture: str, verdict: Verdict | None, features: frozenset[str]
    ) -> None:
        self.image = image
        self.machine = machine
        self.checked = verdict is None or not verdict.covers(image)
        self.processor = processor(architecture)
        self._features = features
        self._helpers = HelperCalls(image, machine)
        bind_all(image, machine)
        self.code = self._compile(image)
        self._targets: list[NativeCode] = []
        if TAIL_CALL in image.helpers:
            self._targets = [self._compile(other) for other in machine.programs]
        self._table = GuardedMemory(8 * (len(self._targets) + 1)) if self._targets else None

    def _compile(self, image: Image) -> NativeCode:
        return compile_image(
            image,
            self.processor.architecture,
            checked=self.checked,
            features=self._features,
            helper_address=self.processor.trap_address,
            native=False,
            chained=bool(self.machine.programs),
        )

    def run(self, *, budget: int = DEFAULT_BUDGET) -> Outcome:
        """Run once."""
        self.machine.begin(budget)
        return self._run()

    def time(self, repeat: int, *, budget: int = DEFAULT_BUDGET) -> float:
        """Run `repeat` times; ns per run, emulation included."""
        self.machine.begin(budget * repeat)
        start = time.thread_time_ns()
        for _ in range(repeat):
            outcome = self._run()
            if outcome.fault is not None:
                raise RunError(outcome.fault.describe(self.image.program))
        return (time.thread_time_ns() - start) / repeat

    def close(self) -> None:
        """The processor drops its memory when the next program runs."""

    def _run(self) -> Outcome:
        machine, unit = self.machine, self.processor
        maps = every_map(machine)
        memories = [machine.memory, *(m.memory for m in maps)]
        if self._table is not None:
            memories.append(self._table)
        unit.only({id(memory) for memory in memories})
        for memory in memories:
            for address, size in zip(memory.addresses, memory.sizes, strict=True):
                unit.map(address, size, memory)
        at = unit.put_code(self.code.code)
        self._place_targets(len(self.code.code))
        unit.on_trap = self._trap
        stopped = unit.call(at, machine.address)
        pc = machine.get64(state.FAULT_PC)
        if stopped:
            here = unit.engine.reg_read(unit.counter)
            return Outcome(0, Fault(FaultKind.MACHINE, self.code.index_at(here - at), detail=stopped))
        index = self.code.index_at(pc - 1 - at) if machine.get32(state.FAULT) else -1
        fault = machine.fault(index)
        return Outcome(0 if fault else machine.get64(state.RESULT), fault)

    def _place_targets(self, at: int) -> None:
        if self._table is None:
            return
        table = self._table.view(0).cast("Q")
        for number, code in enumerate(self._targets, 1):
            at = -(-at // PAGE) * PAGE
            table[number] = self.processor.put_code(code.code, at) + code.main
            at += len(code.code)
        self.machine.put64(state.CODE_TABLE, self._table.addresses[0])

    def _trap(self, number: int, arguments: list[int]) -> int:
        if number == _TRAPS - 2:
            return self._helpers.wrong_argument(self.machine.get32(state.HELPER), arguments, self._inside)
        return self._helpers.call(number, arguments)

    def _inside(self, address: int, size: int, flags: int) -> bool:
        for base, length, stride, limit, has in self.machine.regions():
            distance = address - base
            if (
                0 <= distance <= length - size
                and not flags & ~has
                and (not stride or distance % stride + size <= limit)
            ):
                return True
        return False


def emulate(
    image: Image,
    machine: Machine,
    architecture: str,
    verdict: Verdict | None = None,
    *,
    features: frozenset[str] = frozenset(),
) -> EmulatedProgram:
    """Load a program as native code for an emulated processor.

    `verdict`: with one, the code is the stock JIT's; without, it is checked, as on the host. `features`: CPU features
    that the code may use.
    """
    return EmulatedProgram(image, machine, architecture, verdict, features)
