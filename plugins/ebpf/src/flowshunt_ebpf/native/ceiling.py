"""A program as an optimising compiler translates it: what native code could reach at most, to compare with.

The image's instructions become LLVM's intermediate language, with registers and the stack frame as local variables, and
are compiled at -O3 for this processor. It is for measuring alone: programs with tail calls, callbacks, may_goto or
legacy packet loads are refused, and map lookups that the JIT writes out are calls here.
"""

import ctypes
import io
import time
from typing import Any, Final

import attrs

from flowshunt.errors import CapabilityError, InputError
from flowshunt_ebpf.native import state
from flowshunt_ebpf.native.ceiling_ir import module_text
from flowshunt_ebpf.native.helper_call import bind_all
from flowshunt_ebpf.native.image import Image
from flowshunt_ebpf.native.interpreter import RunError
from flowshunt_ebpf.native.machine import DEFAULT_BUDGET, Machine
from flowshunt_ebpf.native.runner import Outcome
from flowshunt_ebpf.native.verdict import Verdict

_ENTRY: Final = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_uint64)
_REPEAT: Final = ctypes.CFUNCTYPE(None, ctypes.c_uint64, ctypes.c_uint64)


@attrs.frozen
class CompiledCode:
    """What the compiler made. `program_bytes`: of the functions' machine code."""

    program_bytes: int


class CeilingProgram:
    """An image on a machine, compiled by LLVM.

    Attributes:
        code: what is known of its machine code.
    """

    def __init__(self, image: Image, machine: Machine, verdict: Verdict) -> None:
        if not verdict.covers(image):
            raise InputError(
                f"the verdict of {verdict.verifier} is not about it, or rejects it",
                f"program {image.program.name}",
                "verify exactly what is to run",
            )
        image.freeze()
        bind_all(image, machine, checked=False)
        self.image = image
        self.machine = machine
        self._engine, size = _compile(module_text(image))
        self.code = CompiledCode(size)
        self._entry = _ENTRY(self._engine.get_function_address("entry"))
        self._repeat = _REPEAT(self._engine.get_function_address("repeat"))

    def run(self, *, budget: int = DEFAULT_BUDGET) -> Outcome:
        """Run once. The budget is not counted: what a verifier accepted comes to an end."""
        self.machine.begin(budget)
        value = self._entry(self.machine.address)
        fault = self.machine.fault(-1) if self.machine.get32(state.FAULT) else None
        return Outcome(value, fault)

    def time(self, repeat: int, *, budget: int = DEFAULT_BUDGET) -> float:
        """Run `repeat` times; ns per run, of the processor's time."""
        self.machine.begin(budget)
        start = time.thread_time_ns()
        self._repeat(self.machine.address, repeat)
        spent = time.thread_time_ns() - start
        fault = self.machine.fault(-1)
        if fault is not None:
            raise RunError(fault.describe(self.image.program))
        return spent / repeat

    def close(self) -> None:
        """Its memory goes when nothing refers to it any more."""


def compiled_by_llvm(image: Image, machine: Machine, verdict: Verdict) -> CeilingProgram:
    """Compile a program that a verifier accepted.

    Raises CapabilityError where llvmlite is not installed, or for a program that this does not translate.
    """
    return CeilingProgram(image, machine, verdict)


def _compile(text: str) -> tuple[Any, int]:
    """The engine that holds the code of a module, and the bytes of its functions."""
    try:
        import llvmlite.binding as llvm
    except ImportError as error:
        raise CapabilityError(f"the ceiling needs llvmlite, which can't be imported here ({error})") from None
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = llvm.parse_assembly(text)
    module.verify()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=3
    )
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    size = _function_bytes(machine.emit_object(module))
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    return engine, size


def _function_bytes(code: bytes) -> int:
    """The bytes of the program's own functions in an object, without entry and repeat."""
    from elftools.elf.elffile import ELFFile

    table: Any = ELFFile(io.BytesIO(code)).get_section_by_name(".symtab")
    symbols = [s for s in table.iter_symbols() if s["st_info"]["type"] == "STT_FUNC"]
    return sum(s["st_size"] for s in symbols if s.name not in ("entry", "repeat"))
