"""Opcode fields of eBPF, by the names of RFC 9669 (BPF Instruction Set Architecture), and what Linux added since.

An opcode is one byte. Its three low bits, the class, say how to read the others:

    ALU, ALU64, JMP, JMP32:     7 6 5 4 | 3      | 2 1 0
                                op      | source | class

    LD, LDX, ST, STX:           7 6 5   | 4 3    | 2 1 0
                                mode    | size   | class
"""

from typing import Final

# Classes (RFC 9669, section 3.1), bits 0-2.
LD: Final = 0x00
LDX: Final = 0x01
ST: Final = 0x02
STX: Final = 0x03
ALU: Final = 0x04
JMP: Final = 0x05
JMP32: Final = 0x06
ALU64: Final = 0x07
CLASS_MASK: Final = 0x07

# Sources of arithmetic and jumps (section 4), bit 3.
K: Final = 0x00  # the immediate
X: Final = 0x08  # the register `src`
SOURCE_MASK: Final = 0x08

# Arithmetic operations (section 4.1), bits 4-7.
ADD: Final = 0x00
SUB: Final = 0x10
MUL: Final = 0x20
DIV: Final = 0x30  # offset 1: signed
OR: Final = 0x40
AND: Final = 0x50
LSH: Final = 0x60
RSH: Final = 0x70
NEG: Final = 0x80
MOD: Final = 0x90  # offset 1: signed
XOR: Final = 0xA0
MOV: Final = 0xB0  # offset 8, 16, 32: sign-extending; offset 1 on ALU64: address space cast (Linux)
ARSH: Final = 0xC0
END: Final = 0xD0  # ALU with K: to little-endian, ALU with X: to big-endian, ALU64 with K: unconditional swap
OP_MASK: Final = 0xF0

SIGNED: Final = 1
"""The offset of DIV and MOD that makes them signed."""

ADDRESS_SPACE_CAST: Final = 1
"""The offset of a 64-bit MOV X that casts between address spaces (Linux, `BPF_ADDR_SPACE_CAST`)."""

# Jumps (section 4.3), bits 4-7.
JA: Final = 0x00  # JMP: by the offset; JMP32: by the immediate
JEQ: Final = 0x10
JGT: Final = 0x20
JGE: Final = 0x30
JSET: Final = 0x40
JNE: Final = 0x50
JSGT: Final = 0x60
JSGE: Final = 0x70
CALL: Final = 0x80
EXIT: Final = 0x90
JLT: Final = 0xA0
JLE: Final = 0xB0
JSLT: Final = 0xC0
JSLE: Final = 0xD0
JCOND: Final = 0xE0  # Linux: may_goto, where src is 0

# Sizes of loads and stores (section 5), bits 3-4.
W: Final = 0x00  # 4 bytes
H: Final = 0x08  # 2 bytes
B: Final = 0x10  # 1 byte
DW: Final = 0x18  # 8 bytes
SIZE_MASK: Final = 0x18

# Modes of loads and stores (section 5), bits 5-7.
IMM: Final = 0x00
ABS: Final = 0x20
IND: Final = 0x40
MEM: Final = 0x60
MEMSX: Final = 0x80
ATOMIC: Final = 0xC0
MODE_MASK: Final = 0xE0

# Atomic operations (section 5.3), in the immediate. The plain four share the values of ADD, OR, AND and XOR.
FETCH: Final = 0x01
XCHG: Final = 0xE0 | FETCH
CMPXCHG: Final = 0xF0 | FETCH
LOAD_ACQ: Final = 0x100  # Linux
STORE_REL: Final = 0x110  # Linux

# Sources of the 64-bit immediate load (section 5.4).
PSEUDO_MAP_FD: Final = 1
PSEUDO_MAP_VALUE: Final = 2
PSEUDO_BTF_ID: Final = 3
PSEUDO_FUNC: Final = 4
PSEUDO_MAP_IDX: Final = 5
PSEUDO_MAP_IDX_VALUE: Final = 6

# Sources of CALL (section 4.3.1); 0 is a helper by its number.
PSEUDO_CALL: Final = 1
PSEUDO_KFUNC_CALL: Final = 2

# Registers. r0: results; r1-r5: arguments, lost at a call; r6-r9: kept; r10: the frame pointer, read-only.
R0: Final = 0
R1: Final = 1
R2: Final = 2
R3: Final = 3
R4: Final = 4
R5: Final = 5
R6: Final = 6
R7: Final = 7
R8: Final = 8
R9: Final = 9
R10: Final = 10
REGISTERS: Final = 11

# Whole opcodes that are met often.
LD_IMM64: Final = LD | IMM | DW
CALL_K: Final = JMP | CALL | K
CALL_X: Final = JMP | CALL | X
EXIT_K: Final = JMP | EXIT | K
JA_K: Final = JMP | JA | K
GOTOL: Final = JMP32 | JA | K
MAY_GOTO: Final = JMP | JCOND | K

SIZE_BYTES: Final = {W: 4, H: 2, B: 1, DW: 8}

CLASS_NAMES: Final = {
    LD: "LD", LDX: "LDX", ST: "ST", STX: "STX", ALU: "ALU", JMP: "JMP", JMP32: "JMP32", ALU64: "ALU64",
}  # fmt: skip
ALU_NAMES: Final = {
    ADD: "ADD", SUB: "SUB", MUL: "MUL", DIV: "DIV", OR: "OR", AND: "AND", LSH: "LSH", RSH: "RSH",
    NEG: "NEG", MOD: "MOD", XOR: "XOR", MOV: "MOV", ARSH: "ARSH", END: "END",
}  # fmt: skip
JUMP_NAMES: Final = {
    JA: "JA", JEQ: "JEQ", JGT: "JGT", JGE: "JGE", JSET: "JSET", JNE: "JNE", JSGT: "JSGT", JSGE: "JSGE",
    CALL: "CALL", EXIT: "EXIT", JLT: "JLT", JLE: "JLE", JSLT: "JSLT", JSLE: "JSLE", JCOND: "JCOND",
}  # fmt: skip
ATOMIC_NAMES: Final = {
    ADD: "ADD", OR: "OR", AND: "AND", XOR: "XOR",
    ADD | FETCH: "FETCH_ADD", OR | FETCH: "FETCH_OR", AND | FETCH: "FETCH_AND", XOR | FETCH: "FETCH_XOR",
    XCHG: "XCHG", CMPXCHG: "CMPXCHG", LOAD_ACQ: "LOAD_ACQ", STORE_REL: "STORE_REL",
}  # fmt: skip
CONDITIONS: Final = frozenset({JEQ, JGT, JGE, JSET, JNE, JSGT, JSGE, JLT, JLE, JSLT, JSLE})
"""Jumps that compare two operands."""
