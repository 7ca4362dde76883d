"""Which registers and what memory an instruction reads and writes, as sets with one bit a register: bit n is r n.

Coarser than what the eBPF toolchain's liveness knows: whole registers, and every call reads all its arguments.
"""

from enum import IntFlag

from flowshunt.insn.instruction import Instruction
from flowshunt.insn.opcodes import (
    ALU,
    ALU64,
    ATOMIC,
    CALL_K,
    CALL_X,
    CMPXCHG,
    CONDITIONS,
    DW,
    END,
    EXIT_K,
    FETCH,
    GOTOL,
    IMM,
    JA_K,
    JMP,
    JMP32,
    LD,
    LDX,
    LOAD_ACQ,
    MAY_GOTO,
    MOV,
    NEG,
    REGISTERS,
    ST,
    STX,
    X,
)

ALL_REGISTERS = (1 << REGISTERS) - 1
CALLER_SAVED = 0b111111
"""r0 to r5."""
ARGUMENTS = 0b111110
"""r1 to r5."""


class Memory(IntFlag):
    """What an instruction does to memory."""

    NONE = 0
    READ = 1
    WRITE = 2
    ORDER = 4  # an atomic operation or a call: nothing moves past it


_DST, _SRC = 1, 2
_READS = bytearray(256)
_WRITES = bytearray(256)
for _cls in (ALU, ALU64):
    for _op in range(0, 0xE0, 0x10):
        for _source in (0, X):
            _opcode = _cls | _op | _source
            _WRITES[_opcode] = _DST
            _READS[_opcode] = (0 if _op == MOV else _DST) | (_SRC if _source and _op not in (NEG, END) else 0)
for _cls in (JMP, JMP32):
    for _op in CONDITIONS:
        _READS[_cls | _op] = _DST
        _READS[_cls | _op | X] = _DST | _SRC
for _opcode in range(256):
    if _opcode & 7 == LDX:
        _READS[_opcode], _WRITES[_opcode] = _SRC, _DST
    elif _opcode & 7 == ST:
        _READS[_opcode] = _DST
    elif _opcode & 7 == STX:
        _READS[_opcode] = _DST | _SRC
_WRITES[LD | IMM | DW] = _DST
_PLAIN = bytearray(256)
for _opcode in range(256):
    _known = _READS[_opcode] or _WRITES[_opcode] or _opcode in (JA_K, GOTOL, MAY_GOTO)
    _PLAIN[_opcode] = bool(_known) and not (_opcode & 7 == STX and _opcode & 0xE0 == ATOMIC)


def reads(i: Instruction) -> int:
    """The registers that an instruction reads."""
    opcode = i.opcode
    if _PLAIN[opcode]:
        which = _READS[opcode]
        return (1 << i.dst if which & _DST else 0) | (1 << i.src if which & _SRC else 0)
    if opcode & 7 == STX:
        if i.imm == LOAD_ACQ:
            return 1 << i.src
        return 1 << i.dst | 1 << i.src | (1 if i.imm == CMPXCHG else 0)
    if opcode == EXIT_K:
        return 1
    if opcode == CALL_K:
        return ARGUMENTS
    if opcode == CALL_X:
        return ARGUMENTS | 1 << i.dst
    return ALL_REGISTERS


def writes(i: Instruction) -> int:
    """The registers that an instruction writes, or leaves with no defined value."""
    opcode = i.opcode
    if _PLAIN[opcode]:
        return 1 << i.dst if _WRITES[opcode] else 0
    if opcode & 7 == STX:
        if i.imm == LOAD_ACQ:
            return 1 << i.dst
        if i.imm == CMPXCHG:
            return 1
        return 1 << i.src if i.imm & FETCH else 0
    if opcode == EXIT_K:
        return 0
    return CALLER_SAVED if opcode in (CALL_K, CALL_X) or opcode & 7 == LD else ALL_REGISTERS


def memory(i: Instruction) -> Memory:
    """What an instruction does to memory."""
    cls = i.opcode & 7
    if cls == LDX:
        return Memory.READ
    if cls == ST:
        return Memory.WRITE
    if cls == STX:
        return Memory.WRITE if i.opcode & 0xE0 != ATOMIC else Memory.READ | Memory.WRITE | Memory.ORDER
    if i.opcode in (CALL_K, CALL_X) or (cls == LD and i.opcode != LD | IMM | DW):
        return Memory.READ | Memory.WRITE | Memory.ORDER
    return Memory.NONE
