"""x86-64 machine code to instructions as data, by capstone. (The assembler that makes the code is keystone.)"""

from functools import lru_cache
from typing import Any, Final

import attrs

from flowshunt.errors import CapabilityError
from flowshunt_ebpf.kops.validation.forward import NotModelledError

FULL: Final = (
    "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15",
)  # fmt: skip
"""The general registers, in the order of their encoding."""

VECTORS: Final = tuple(f"ymm{number}" for number in range(16))


def _parts() -> dict[str, tuple[str, int]]:
    """Each name that an operand may have, with the register that it is the low bits of, and how many.

    ah, bh, ch and dh are not among them: code with them is not proved.
    """
    parts: dict[str, tuple[str, int]] = {}
    for name in FULL[:8]:
        stem = name[1:]
        parts |= {name: (name, 64), f"e{stem}": (name, 32), stem: (name, 16)}
        parts[f"{stem[0]}l" if stem.endswith("x") else f"{stem}l"] = (name, 8)
    for name in FULL[8:]:
        parts |= {name: (name, 64), f"{name}d": (name, 32), f"{name}w": (name, 16), f"{name}b": (name, 8)}
    for number, name in enumerate(VECTORS):
        parts |= {name: (name, 256), f"xmm{number}": (name, 128)}
    return parts


PARTS: Final = _parts()


@attrs.frozen
class Register:
    """An operand in a register: its low `width` bits."""

    full: str
    width: int


@attrs.frozen
class Immediate:
    """A constant operand, signed as it was encoded."""

    value: int


@attrs.frozen
class Place:
    """An operand in memory: `size` bytes at base + index * scale + displacement."""

    base: str | None
    index: str | None
    scale: int
    displacement: int
    size: int


Operand = Register | Immediate | Place


@attrs.frozen
class Decoded:
    """One instruction. `at`, `size`: its first byte in the code, and its bytes."""

    at: int
    size: int
    mnemonic: str
    operands: tuple[Operand, ...]
    text: str = attrs.field(eq=False)


@lru_cache(maxsize=1)
def _engine() -> Any:
    try:
        import capstone
    except ImportError as error:
        raise CapabilityError(
            f"proofs need the package capstone, which can't be imported here ({error}); install it"
        ) from None
    engine = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    engine.detail = True
    return engine


def decode(code: bytes) -> tuple[Decoded, ...]:
    """The instructions of machine code that starts at address 0, every byte of it.

    Raises NotModelledError for bytes that are no instruction, and for operands and prefixes without semantics here.
    """
    found: list[Decoded] = []
    end = 0
    for instruction in _engine().disasm(code, 0):
        found.append(_decoded(instruction))
        end = instruction.address + instruction.size
    if end != len(code):
        raise NotModelledError(f"the bytes at {end} are no instruction: {code[end : end + 8].hex(' ')}")
    return tuple(found)


def _decoded(instruction: Any) -> Decoded:
    from capstone import x86

    text = f"{instruction.mnemonic} {instruction.op_str}".strip()
    operands: list[Operand] = []
    for operand in instruction.operands:
        if operand.type == x86.X86_OP_IMM:
            operands.append(Immediate(operand.imm))
        elif operand.type == x86.X86_OP_REG:
            operands.append(Register(*_part(instruction, operand.reg, text)))
        else:
            operands.append(_place(instruction, operand, text))
    legacy, segment = instruction.prefix[0], instruction.prefix[1]
    if legacy == 0xF0 or segment in (0x64, 0x65) or instruction.addr_size != 8:
        raise NotModelledError(f"{text}: lock, segment and address size prefixes are not modelled")
    return Decoded(instruction.address, instruction.size, instruction.mnemonic, tuple(operands), text)


def _part(instruction: Any, register: int, text: str) -> tuple[str, int]:
    name = instruction.reg_name(register)
    if name not in PARTS:
        raise NotModelledError(f"{text}: the register {name} is not modelled")
    return PARTS[name]


def _place(instruction: Any, operand: Any, text: str) -> Place:
    memory = operand.mem
    base = _part(instruction, memory.base, text) if memory.base else None
    index = _part(instruction, memory.index, text) if memory.index else None
    if memory.segment or any(part is not None and part[1] != 64 for part in (base, index)):
        raise NotModelledError(f"{text}: only addresses over whole registers are modelled")
    return Place(base[0] if base else None, index[0] if index else None, memory.scale, memory.disp, operand.size)
