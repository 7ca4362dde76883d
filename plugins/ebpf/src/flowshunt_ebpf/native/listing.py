"""Machine code beside the instructions that it comes from, as capstone reads it."""

from itertools import pairwise
from typing import Any

from flowshunt_ebpf.contexts.layout import BY_TYPE, MEMORY
from flowshunt_ebpf.maps.create import create_all
from flowshunt_ebpf.native import assembler
from flowshunt_ebpf.native.image import Image, prepare
from flowshunt_ebpf.native.jit import NativeCode, compile_image
from flowshunt_ebpf.program import Program

Line = tuple[int, str, str]
"""Offset in the code, bytes in hexadecimal, text."""


def machine_code(program: Program, architecture: str, features: frozenset[str] = frozenset()) -> list[list[Line]]:
    """For each instruction the machine code that the JIT makes of it, without run-time checks and budget.

    A function's prologue comes with its first instruction. A site's native form, for a CPU with `features`, comes with
    its first instruction. The code is made to be looked at: a helper that is not called through its map stands at an
    address that tells its number, number * 0x10000.

    Raises InputError where the program can't run here, CapabilityError where there is no assembler.
    """
    image, code = _compiled(program, architecture, features)
    reader = _reader(architecture)
    rows: list[list[Line]] = []
    function_ends = [*code.functions[1:], code.shared]
    for start, end, entry, last in zip(image.functions, image.ends, code.functions, function_ends, strict=True):
        places = [entry, *code.offsets[start + 1 : end], last]
        for first, following in pairwise(places):
            found = reader.disasm(code.code[first:following], first)
            rows.append([(i.address, i.bytes.hex(), f"{i.mnemonic} {i.op_str}".strip()) for i in found])
    return rows


def native_bytes(program: Program, architecture: str, features: frozenset[str] = frozenset()) -> int:
    """How many bytes of machine code the JIT makes of a program, without run-time checks and budget.

    Raises as `machine_code` does.
    """
    return _compiled(program, architecture, features)[1].program_bytes


def code_text(code: bytes, architecture: str) -> list[str]:
    """Machine code as capstone reads it, one text an instruction."""
    return [f"{i.mnemonic} {i.op_str}".strip() for i in _reader(architecture).disasm(code, 0)]


def _compiled(program: Program, architecture: str, features: frozenset[str]) -> tuple[Image, NativeCode]:
    context = BY_TYPE.get(program.type, MEMORY)
    image = prepare(program, create_all(program.maps), context=context)
    code = compile_image(
        image,
        architecture,
        checked=False,
        budget=False,
        features=features,
        helper_address=lambda number: number * 0x10000,
        native=False,
    )
    return image, code


def _reader(architecture: str) -> Any:
    import capstone

    if architecture == assembler.X86_64:
        return capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    return capstone.Cs(capstone.CS_ARCH_ARM64, capstone.CS_MODE_ARM)
