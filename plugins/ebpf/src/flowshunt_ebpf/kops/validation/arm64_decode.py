"""ARM64 machine code to instructions as data, by the encodings that the Arm Architecture Reference Manual draws (C4.1).

Nothing of the assembler that makes the code is used. A word that matches no encoding here is not proved.
"""

import struct
from collections.abc import Mapping
from typing import Final

import attrs

from flowshunt_ebpf.kops.validation.forward import NotModelledError

_ENCODINGS: Final = {
    # Data processing, immediate
    "add_sub_immediate": "sf:1 op:1 S:1 100010 sh:1 imm:12 n:5 d:5",
    "logical_immediate": "sf:1 opc:2 100100 N:1 immr:6 imms:6 n:5 d:5",
    "move_wide": "sf:1 opc:2 100101 hw:2 imm:16 d:5",
    "bitfield": "sf:1 opc:2 100110 N:1 immr:6 imms:6 n:5 d:5",
    "extract": "sf:1 00 100111 N:1 0 m:5 imms:6 n:5 d:5",
    # Data processing, register
    "add_sub_shifted": "sf:1 op:1 S:1 01011 shift:2 0 m:5 imm:6 n:5 d:5",
    "add_sub_extended": "sf:1 op:1 S:1 01011 001 m:5 option:3 imm:3 n:5 d:5",
    "add_sub_carry": "sf:1 op:1 S:1 11010000 m:5 000000 n:5 d:5",
    "logical_shifted": "sf:1 opc:2 01010 shift:2 N:1 m:5 imm:6 n:5 d:5",
    "compare_register": "sf:1 op:1 1 11010010 m:5 cond:4 00 n:5 0 nzcv:4",
    "compare_immediate": "sf:1 op:1 1 11010010 imm:5 cond:4 10 n:5 0 nzcv:4",
    "select": "sf:1 op:1 0 11010100 m:5 cond:4 0 op2:1 n:5 d:5",
    "two_source": "sf:1 00 11010110 m:5 opcode:6 n:5 d:5",
    "one_source": "sf:1 10 11010110 00000 opcode:6 n:5 d:5",
    "three_source": "sf:1 00 11011 op31:3 m:5 o0:1 a:5 n:5 d:5",
    # Branches
    "branch": "000101 imm:26",
    "branch_if": "01010100 imm:19 0 cond:4",
    "branch_zero": "sf:1 011010 op:1 imm:19 t:5",
    "branch_bit": "b5:1 011011 op:1 b40:5 imm:14 t:5",
    "nop": "11010101000000110010000000011111",
    # Loads and stores
    "transfer_scaled": "size:2 111 V:1 01 opc:2 imm:12 n:5 t:5",
    "transfer_unscaled": "size:2 111 V:1 00 opc:2 0 imm:9 00 n:5 t:5",
    "transfer_after": "size:2 111 V:1 00 opc:2 0 imm:9 01 n:5 t:5",
    "transfer_before": "size:2 111 V:1 00 opc:2 0 imm:9 11 n:5 t:5",
    "transfer_register": "size:2 111 V:1 00 opc:2 1 m:5 option:3 S:1 10 n:5 t:5",
    "pair": "opc:2 101 V:1 0 mode:2 L:1 imm:7 t2:5 n:5 t:5",
    # Vectors
    "vector_immediate": "0 Q:1 op:1 0111100000 abc:3 cmode:4 01 defgh:5 d:5",
    "vector_duplicate": "0 Q:1 0 01110000 imm5:5 000011 n:5 d:5",
    "vector_insert": "01001110000 imm5:5 000111 n:5 d:5",
    "vector_extract": "0 Q:1 0 01110000 imm5:5 001111 n:5 d:5",
    "vector_logic": "0 Q:1 U:1 01110 size:2 1 m:5 000111 n:5 d:5",
    "vector_count": "0 Q:1 001110001000000101 10 n:5 d:5",
    "vector_add_across": "0 Q:1 001110 size:2 110001101110 n:5 d:5",
    "vector_add_long_across": "0 Q:1 101110 size:2 110000001110 n:5 d:5",
    "vector_reverse": "0 Q:1 U:1 01110 size:2 100000000 o0:1 10 n:5 d:5",
    "vector_move": "sf:1 0011110 type:2 1 rmode:2 opcode:3 000000 n:5 d:5",
}
"""Each encoding, the highest bit first: fixed bits, and fields as name:bits. d, n, m, a, t and t2 are registers."""

REGISTER_FIELDS: Final = ("d", "n", "m", "a", "t", "t2")


@attrs.frozen
class Decoded:
    """One instruction: the encoding that it matches, and its fields. `at`: its first byte in the code."""

    at: int
    kind: str
    fields: tuple[tuple[str, int], ...]
    text: str = attrs.field(eq=False)

    @property
    def size(self) -> int:
        """Every instruction takes 4 bytes."""
        return 4


@attrs.frozen
class _Encoding:
    kind: str
    mask: int
    value: int
    places: tuple[tuple[str, int, int], ...]  # name, lowest bit, bits


def _encoding(kind: str, drawing: str) -> _Encoding:
    mask = value = 0
    places: list[tuple[str, int, int]] = []
    at = 32
    for part in drawing.split():
        name, colon, bits = part.partition(":")
        if colon:
            at -= int(bits)
            places.append((name, at, int(bits)))
        else:
            at -= len(part)
            mask |= ((1 << len(part)) - 1) << at
            value |= int(part, 2) << at
    assert at == 0, (kind, at)
    return _Encoding(kind, mask, value, tuple(places))


_TABLE: Final = tuple(_encoding(kind, drawing) for kind, drawing in _ENCODINGS.items())


def decode(code: bytes) -> tuple[Decoded, ...]:
    """The instructions of machine code that starts at address 0, every byte of it.

    Raises NotModelledError for a word that has no encoding here.
    """
    if len(code) % 4:
        raise NotModelledError(f"{len(code)} bytes are no whole number of ARM64 instructions")
    found = []
    for number, (word,) in enumerate(struct.iter_unpack("<I", code)):
        matching = [encoding for encoding in _TABLE if word & encoding.mask == encoding.value]
        text = f"the word {word:#010x} at byte {4 * number}"
        if len(matching) != 1:
            raise NotModelledError(f"{text} is not modelled")
        fields = tuple((name, word >> at & ((1 << bits) - 1)) for name, at, bits in matching[0].places)
        found.append(Decoded(4 * number, matching[0].kind, fields, text))
    return tuple(found)


def fields_of(instruction: Decoded) -> Mapping[str, int]:
    """The fields by name."""
    return dict(instruction.fields)


def bit_mask(n: int, imms: int, immr: int, width: int) -> tuple[int, int] | None:
    """DecodeBitMasks of the manual (J1.1): wmask and tmask of a logical immediate or bit field; None: reserved."""
    length = (n << 6 | ~imms & 63).bit_length() - 1
    if length < 1 or 1 << length > width:
        return None
    size = 1 << length
    levels = size - 1
    ones, turn = imms & levels, immr & levels
    difference = (ones - turn) & levels
    welem = (1 << (ones + 1)) - 1
    telem = (1 << (difference + 1)) - 1
    if turn:
        welem = (welem >> turn | welem << (size - turn)) & ((1 << size) - 1)
    copies = range(0, width, size)
    return sum(welem << at for at in copies), sum(telem << at for at in copies)
