"""The eBPF instruction as data, and its bytes (RFC 9669, section 3).

One slot is 64 bits:

    little-endian   | opcode: 8 | dst: 4 low, src: 4 high | offset: 16, signed | imm: 32, signed |
    big-endian      | opcode: 8 | dst: 4 high, src: 4 low | offset: 16, signed | imm: 32, signed |

The 64-bit immediate load takes a second slot, whose imm holds the upper half of the value; its other fields are zero:

    slot n          | 0x18      | dst, src                | offset             | low half         |
    slot n + 1      | 0         | 0                       | 0                  | high half        |
"""

import struct
from collections.abc import Iterable

import attrs

from flowshunt.errors import InputError
from flowshunt.insn import opcodes

SLOT_BYTES = 8

_LD_IMM64 = opcodes.LD_IMM64


@attrs.frozen
class Instruction:
    """One instruction, whether valid or not: `check` tells.

    Attributes:
        opcode: 0 to 255.
        dst: 0 to 15; registers are 0 to 10.
        src: 0 to 15; registers are 0 to 10; a kind of value in calls and 64-bit immediate loads.
        offset: signed, 16 bits; in slots where it is a jump's.
        imm: signed, 32 bits; 64 bits in a 64-bit immediate load.
    """

    opcode: int
    dst: int = 0
    src: int = 0
    offset: int = 0
    imm: int = 0

    @property
    def slots(self) -> int:
        """Slots of 8 bytes that it takes: 2 for a 64-bit immediate load, else 1. Jumps count in slots."""
        return 2 if self.opcode == _LD_IMM64 else 1

    @property
    def cls(self) -> int:
        """Bits 0-2 of the opcode: LD, LDX, ST, STX, ALU, JMP, JMP32 or ALU64."""
        return self.opcode & opcodes.CLASS_MASK

    @property
    def op(self) -> int:
        """Bits 4-7 of the opcode: the operation of an arithmetic or jump instruction."""
        return self.opcode & opcodes.OP_MASK

    @property
    def source(self) -> int:
        """Bit 3 of the opcode: K or X."""
        return self.opcode & opcodes.SOURCE_MASK

    @property
    def size(self) -> int:
        """Bits 3-4 of the opcode: B, H, W or DW of a load or store."""
        return self.opcode & opcodes.SIZE_MASK

    @property
    def size_bytes(self) -> int:
        """How many bytes a load or store moves."""
        return opcodes.SIZE_BYTES[self.opcode & opcodes.SIZE_MASK]

    @property
    def mode(self) -> int:
        """Bits 5-7 of the opcode: IMM, ABS, IND, MEM, MEMSX or ATOMIC of a load or store."""
        return self.opcode & opcodes.MODE_MASK


def decode(data: bytes | bytearray | memoryview, *, big_endian: bool = False) -> tuple[Instruction, ...]:
    """Read instructions from their bytes. What `encode` gives for the result is `data` again.

    Any slot is read, also one that is not valid eBPF. Raises InputError, naming the slot, where bytes are left over or
    a 64-bit immediate load lacks its second slot or has something else there.
    """
    whole, left = divmod(len(data), SLOT_BYTES)
    if left:
        raise InputError(
            f"{left} bytes are left over after {whole} slots",
            f"slot {whole}",
            f"give whole instructions: a multiple of {SLOT_BYTES} bytes",
        )
    instructions: list[Instruction] = []
    append = instructions.append
    slots = struct.iter_unpack(">BBhi" if big_endian else "<BBhi", data)
    slot = 0
    for opcode, registers, offset, low in slots:
        if big_endian:
            dst, src = registers >> 4, registers & 15
        else:
            dst, src = registers & 15, registers >> 4
        slot += 1
        if opcode == _LD_IMM64:
            upper = next(slots, None)
            if upper is None:
                raise InputError("a 64-bit immediate load lacks its second slot", f"slot {slot - 1}", "add it")
            if upper[0] or upper[1] or upper[2]:
                raise InputError(
                    "the second slot of a 64-bit immediate load has more than an immediate",
                    f"slot {slot}",
                    "set its opcode, registers and offset to zero",
                )
            slot += 1
            append(Instruction(opcode, dst, src, offset, (low & 0xFFFFFFFF) | (upper[3] << 32)))
        else:
            append(Instruction(opcode, dst, src, offset, low))
    return tuple(instructions)


def encode(instructions: Iterable[Instruction], *, big_endian: bool = False) -> bytes:
    """The bytes of instructions. An immediate may be given signed or unsigned.

    Raises InputError, naming the slot, where a field's value does not fit its bits.
    """
    pack = struct.Struct(">BBhI" if big_endian else "<BBhI").pack
    parts = []
    slot = 0
    for i in instructions:
        opcode, dst, src, imm = i.opcode, i.dst, i.src, i.imm
        if (dst | src) & ~15 or opcode & ~0xFF or not -0x8000 <= i.offset <= 0x7FFF:
            raise _unfit(i, slot)
        registers = dst << 4 | src if big_endian else src << 4 | dst
        if opcode == _LD_IMM64:
            if not -(1 << 63) <= imm < 1 << 64:
                raise _unfit(i, slot)
            parts.append(pack(opcode, registers, i.offset, imm & 0xFFFFFFFF))
            parts.append(pack(0, 0, 0, imm >> 32 & 0xFFFFFFFF))
            slot += 2
        else:
            if not -(1 << 31) <= imm < 1 << 32:
                raise _unfit(i, slot)
            parts.append(pack(opcode, registers, i.offset, imm & 0xFFFFFFFF))
            slot += 1
    return b"".join(parts)


def _unfit(instruction: Instruction, slot: int) -> InputError:
    bits = 64 if instruction.opcode == _LD_IMM64 else 32
    limits = {
        "opcode": (0, 0xFF),
        "dst": (0, 15),
        "src": (0, 15),
        "offset": (-0x8000, 0x7FFF),
        "imm": (-(1 << (bits - 1)), (1 << bits) - 1),
    }
    for name, (low, high) in limits.items():
        value = getattr(instruction, name)
        if not low <= value <= high:
            return InputError(f"{name} is {value}", f"slot {slot}", f"{low} to {high} fit")
    raise AssertionError(instruction)
