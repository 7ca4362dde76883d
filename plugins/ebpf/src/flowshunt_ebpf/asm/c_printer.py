"""Instructions in the C-like form, as LLVM prints it. `c_parser` reads it back."""

from collections.abc import Callable
from typing import Final

from flowshunt import insn
from flowshunt.insn import Instruction, check
from flowshunt_ebpf.asm.names import Names, helper_text, raw_text, wide_text
from flowshunt_ebpf.asm.symbols import (
    ASSIGNMENT,
    ATOMIC_ASSIGNMENT,
    ATOMIC_WORD,
    COMPARISON,
    SIZE_SIGNED_TYPE,
    SIZE_TYPE,
    SWAP_WORD,
)

_BITS: Final = frozenset({insn.AND, insn.OR, insn.XOR})


def print_c(i: Instruction, names: Names) -> str:
    """One instruction as text. What is not valid eBPF comes as `.insn`."""
    return raw_text(i) if check(i) is not None else _PRINTERS[i.cls](i, names)


def _number(value: int, *, bits: bool = False, half: bool = False) -> str:
    """An immediate: masks in hexadecimal, and as 32 bits where they are used with 32."""
    if bits and half and value < -256:
        value &= 0xFFFFFFFF
    return hex(value) if bits and value > 255 else str(value)


def _at(register: int, offset: int) -> str:
    return f"(r{register} {'-' if offset < 0 else '+'} {abs(offset)})"


def _typed(i: Instruction, register: int) -> str:
    return f"({SIZE_TYPE[i.size]} *){_at(register, i.offset)}"


def _arithmetic(i: Instruction, names: Names) -> str:
    width = "r" if i.cls == insn.ALU64 else "w"
    dst = f"{width}{i.dst}"
    if i.op == insn.NEG:
        return f"{dst} = -{dst}"
    if i.op == insn.END:
        return f"r{i.dst} = {SWAP_WORD[i.opcode]}{i.imm} r{i.dst}"
    if i.op == insn.MOV and i.offset == insn.ADDRESS_SPACE_CAST and i.source == insn.X:
        return f"{dst} = addr_space_cast(r{i.src}, {i.imm >> 16}, {i.imm & 0xFFFF})"
    value = f"{width}{i.src}" if i.source == insn.X else _number(i.imm, bits=i.op in _BITS, half=width == "w")
    if i.op == insn.MOV and i.offset:
        return f"{dst} = (s{i.offset}){value}"
    signed = "s" if i.op in (insn.DIV, insn.MOD) and i.offset else ""
    return f"{dst} {signed}{ASSIGNMENT[i.op]} {value}"


def _jump(i: Instruction, names: Names) -> str:
    if i.op in COMPARISON:
        width = "r" if i.cls == insn.JMP else "w"
        value = f"{width}{i.src}" if i.source == insn.X else _number(i.imm, bits=i.op == insn.JSET, half=width == "w")
        return f"if {width}{i.dst} {COMPARISON[i.op]} {value} goto {names.jump(i.offset)}"
    if i.op == insn.JA:
        return f"goto {names.jump(i.offset)}" if i.cls == insn.JMP else f"gotol {names.jump(i.imm)}"
    if i.op == insn.JCOND:
        return f"may_goto {names.jump(i.offset)}"
    if i.op == insn.EXIT:
        return "exit"
    if i.source == insn.X:
        return f"callx r{i.dst}"
    if i.src == insn.PSEUDO_CALL:
        return f"call {names.function(i.imm) or f'pc{i.imm:+}'}"
    if i.src == insn.PSEUDO_KFUNC_CALL:
        return f"call kernel-function#{i.imm}" + (f"@{i.offset}" if i.offset else "")
    return f"call {helper_text(i.imm)}"


def _load_immediate(i: Instruction, names: Names) -> str:
    if i.opcode == insn.LD_IMM64:
        text = wide_text(i, names)
        return f"r{i.dst} = {text}" if text else f"r{i.dst} = {i.imm & 0xFFFFFFFFFFFFFFFF:#x} ll"
    kind = SIZE_TYPE[i.size]
    if i.mode == insn.ABS:
        return f"r0 = *({kind} *)skb[{i.imm}]"
    return f"r0 = *({kind} *)skb[r{i.src}{f' {chr(45) if i.imm < 0 else chr(43)} {abs(i.imm)}' if i.imm else ''}]"


def _load(i: Instruction, names: Names) -> str:
    kind = SIZE_SIGNED_TYPE[i.size] if i.mode == insn.MEMSX else SIZE_TYPE[i.size]
    return f"r{i.dst} = *({kind} *){_at(i.src, i.offset)}"


def _store(i: Instruction, names: Names) -> str:
    return f"*{_typed(i, i.dst)} = {i.imm}"


def _store_register(i: Instruction, names: Names) -> str:
    if i.mode == insn.MEM:
        return f"*{_typed(i, i.dst)} = r{i.src}"
    width = "r" if i.size == insn.DW else "w"
    src = f"{width}{i.src}"
    if i.imm == insn.LOAD_ACQ:
        return f"{width}{i.dst} = load_acquire({_typed(i, i.src)})"
    if i.imm == insn.STORE_REL:
        return f"store_release({_typed(i, i.dst)}, {src})"
    if i.imm == insn.XCHG:
        word = "xchg_64" if i.size == insn.DW else "xchg32_32"
        return f"{src} = {word}{_at(i.dst, i.offset)[:-1]}, {src})"
    if i.imm == insn.CMPXCHG:
        word = "cmpxchg_64" if i.size == insn.DW else "cmpxchg32_32"
        return f"{width}0 = {word}{_at(i.dst, i.offset)[:-1]}, {width}0, {src})"
    if i.imm & insn.FETCH:
        return f"{src} = atomic_fetch_{ATOMIC_WORD[i.imm & ~insn.FETCH]}({_typed(i, i.dst)}, {src})"
    return f"lock *{_typed(i, i.dst)} {ATOMIC_ASSIGNMENT[i.imm]} {src}"


_PRINTERS: Final[dict[int, Callable[[Instruction, Names], str]]] = {
    insn.LD: _load_immediate,
    insn.LDX: _load,
    insn.ST: _store,
    insn.STX: _store_register,
    insn.ALU: _arithmetic,
    insn.JMP: _jump,
    insn.JMP32: _jump,
    insn.ALU64: _arithmetic,
}
