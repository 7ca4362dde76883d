"""The words and operators of the two text forms, by operation. Parsers read these tables backwards."""

from typing import Final

from flowshunt import insn

ASSIGNMENT: Final = {
    insn.ADD: "+=",
    insn.SUB: "-=",
    insn.MUL: "*=",
    insn.DIV: "/=",
    insn.OR: "|=",
    insn.AND: "&=",
    insn.LSH: "<<=",
    insn.RSH: ">>=",
    insn.MOD: "%=",
    insn.XOR: "^=",
    insn.MOV: "=",
    insn.ARSH: "s>>=",
}
"""Operators of the C-like form; `s/=` and `s%=` are the signed forms of the division."""

COMPARISON: Final = {
    insn.JEQ: "==",
    insn.JGT: ">",
    insn.JGE: ">=",
    insn.JSET: "&",
    insn.JNE: "!=",
    insn.JSGT: "s>",
    insn.JSGE: "s>=",
    insn.JLT: "<",
    insn.JLE: "<=",
    insn.JSLT: "s<",
    insn.JSLE: "s<=",
}

SIZE_TYPE: Final = {insn.B: "u8", insn.H: "u16", insn.W: "u32", insn.DW: "u64"}
SIZE_SIGNED_TYPE: Final = {insn.B: "s8", insn.H: "s16", insn.W: "s32"}
SIZE_SUFFIX: Final = {insn.B: "b", insn.H: "h", insn.W: "w", insn.DW: "dw"}

ATOMIC_ASSIGNMENT: Final = {insn.ADD: "+=", insn.OR: "|=", insn.AND: "&=", insn.XOR: "^="}
ATOMIC_WORD: Final = {insn.ADD: "add", insn.OR: "or", insn.AND: "and", insn.XOR: "xor"}

ALU_WORD: Final = {op: name.lower() for op, name in insn.ALU_NAMES.items() if op not in (insn.NEG, insn.END)}
JUMP_WORD: Final = {op: insn.JUMP_NAMES[op].lower() for op in sorted(insn.CONDITIONS)}

SWAP_WORD: Final = {
    insn.ALU | insn.END | insn.K: "le",
    insn.ALU | insn.END | insn.X: "be",
    insn.ALU64 | insn.END | insn.K: "bswap",
}
"""Opcodes of byte swaps to the word before their width."""
