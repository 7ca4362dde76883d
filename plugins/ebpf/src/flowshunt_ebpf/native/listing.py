"""Bytecode and machine code side by side, with source lines."""

from collections.abc import Iterator
from typing import Any

import attrs

from flowshunt.errors import CapabilityError
from flowshunt_ebpf.native import assembler
from flowshunt_ebpf.native.image import Image
from flowshunt_ebpf.native.jit import compile_image


@attrs.frozen
class NativeInstruction:
    """One machine instruction: where it lies from the code's start, its bytes, its text."""

    offset: int
    code: bytes
    text: str


@attrs.frozen
class ListedInstruction:
    """One eBPF instruction by its index, and the machine instructions that carry it out."""

    index: int
    native: tuple[NativeInstruction, ...]


def disassemble_native(architecture: str, code: bytes, address: int = 0) -> Iterator[NativeInstruction]:
    """Machine instructions by capstone. Bytes that are none end the list."""
    try:
        import capstone
    except ImportError as error:
        raise CapabilityError(f"disassembling native code needs the package capstone ({error}); install it") from None
    if architecture == assembler.X86_64:
        engine: Any = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    else:
        engine = capstone.Cs(capstone.CS_ARCH_ARM64, capstone.CS_MODE_LITTLE_ENDIAN)
    for found in engine.disasm(code, address):
        yield NativeInstruction(found.address, bytes(found.bytes), f"{found.mnemonic} {found.op_str}".strip())


def native_listing(
    image: Image, architecture: str, *, checked: bool = False, features: frozenset[str] = frozenset()
) -> list[ListedInstruction]:
    """What the stock JIT makes of each instruction of a program, for reading; helpers are called at address 0.

    `checked`: with the run-time checks of a program that has no verdict.
    """
    code = compile_image(
        image,
        architecture,
        checked=checked,
        budget=checked,
        features=features,
        helper_address=lambda number: 0,
        native=False,
    )
    starts = list(code.offsets)
    for first, offset in zip(image.functions, code.functions, strict=True):
        starts[first] = offset  # what a function begins with goes with its first instruction
    listed = []
    for index, (start, end) in enumerate(zip(starts, [*starts[1:], code.shared], strict=True)):
        native = tuple(disassemble_native(architecture, code.code[start:end], start))
        listed.append(ListedInstruction(index, native))
    return listed
