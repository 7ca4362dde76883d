"""The just-in-time compiler: an image to machine code, in one call of the assembler.

One instruction at a time, but for sites with a proved native form: there, and only where accesses are not checked at
run time, the proved bytes stand for the whole run.
"""

import struct
from bisect import bisect_right
from collections.abc import Callable
from types import ModuleType
from typing import Final

import attrs

from flowshunt.errors import CapabilityError
from flowshunt_ebpf.native import assembler
from flowshunt_ebpf.native.emission import Emission
from flowshunt_ebpf.native.image import Image

ENTRY: Final = 0
"""Where the code's C function `r0 = entry(state block)` starts."""


@attrs.frozen(eq=False)
class NativeCode:
    """Machine code of one program, position-independent but for the maps and helpers that it names.

    Attributes:
        architecture: "x86_64" or "arm64".
        code: the bytes; they start with `entry`.
        repeat: where the C function `repeat(state block, times)` starts.
        main: where the main program starts, for tail calls.
        functions: where each function starts, in the order of the image's.
        offsets: where each instruction's code starts; ascending inside a function.
        shared: where the routines start that the functions share.
        checked: whether it checks every access at run time.
    """

    architecture: str
    code: bytes = attrs.field(repr=False)
    repeat: int
    main: int
    functions: tuple[int, ...] = attrs.field(repr=False)
    offsets: tuple[int, ...] = attrs.field(repr=False)
    shared: int
    checked: bool

    def index_at(self, offset: int) -> int:
        """The instruction whose code a byte belongs to; -1 where it is none's."""
        if not self.offsets or not self.offsets[0] <= offset < self.shared:
            return -1
        return bisect_right(self.offsets, offset) - 1

    @property
    def program_bytes(self) -> int:
        """Bytes of the functions' code, without entry and shared routines."""
        return self.shared - self.main


def target(architecture: str) -> tuple[ModuleType, ModuleType]:
    """The modules that emit instructions, and calls, for an architecture."""
    if architecture == assembler.X86_64:
        from flowshunt_ebpf.native import x86_64, x86_64_calls

        return x86_64, x86_64_calls
    if architecture == assembler.ARM64:
        from flowshunt_ebpf.native import arm64, arm64_calls

        return arm64, arm64_calls
    raise CapabilityError(
        f"no code generator for {architecture}; there is one for {', '.join(assembler.ARCHITECTURES)}"
    )


def _native_forms(image: Image, architecture: str, features: frozenset[str]) -> dict[int, tuple[int, bytes]]:
    """By their first instruction, the ends of the sites that have a proved native form, and its bytes."""
    found = {}
    for site in image.sites:
        form = site.form(image.instructions, architecture, features)
        if form is not None:
            found[site.start] = (site.end, form.code)
    return found


def compile_image(
    image: Image,
    architecture: str,
    *,
    checked: bool,
    budget: bool = True,
    features: frozenset[str] = frozenset(),
    helper_address: Callable[[int], int],
    native: bool = True,
    chained: bool = False,
    offsets: bool = True,
) -> NativeCode:
    """Compile a program.

    Args:
        image: the program.
        architecture: "x86_64" or "arm64".
        checked: emit a check of every access, call and callback. Only a program with a verdict may go without.
        budget: charge backward jumps and calls to the run's budget.
        features: CPU features that the code may use.
        helper_address: the address of a helper's native code, by number; `emission.CHECK_CALL` for the check of its
            arguments.
        native: whether those addresses are of code for the same processor, so that maps may be called directly.
        chained: whether it runs in a chain of tail calls: then calls are checked for depth even with a verdict.
        offsets: also tell where each instruction's code starts.
    """
    instructions, calls = target(architecture)
    e = Emission(image, checked, budget, features, helper_address, native, chained)
    calls.entry(e)
    lines = e.lines
    emit = instructions.instruction
    jump_targets = set(image.targets)
    program = image.instructions
    forms = {} if checked else _native_forms(image, architecture, features)
    for number, (start, end) in enumerate(zip(image.functions, image.ends, strict=True)):
        e.function = number
        lines.append(f"F{start}:")
        calls.enter(e)
        native_end = 0
        for index in range(start, end):
            e.index = index
            if offsets or (index in jump_targets and index >= native_end):
                lines.append(f"I{index}:")
            if index in forms:
                native_end, code = forms[index]
                lines.append(f".byte {', '.join(map(str, code))}")
            if index >= native_end:
                emit(e, program[index])
    lines.append("shared:")
    calls.shared(e)
    marks = ["repeat", "shared", *(f"F{start}" for start in image.functions)]
    count = len(image.functions)
    if offsets:
        marks += [f"I{index}" for index in range(len(program))]
    lines.append("marks:")
    lines += [f".long {', '.join(f'{mark}-entry' for mark in marks[at : at + 64])}" for at in range(0, len(marks), 64)]
    blob = assembler.assemble(architecture, "\n".join(lines))
    size = len(blob) - 4 * len(marks)
    repeat, shared, *found = struct.unpack_from(f"<{len(marks)}I", blob, size)
    functions, places = tuple(found[:count]), tuple(found[count:])
    return NativeCode(architecture, blob[:size], repeat, functions[0], functions, places, shared, checked)
