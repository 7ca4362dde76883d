"""Instructions in the mnemonic form. `mnemonic_parser` reads it back."""

from collections.abc import Callable
from typing import Final

from flowshunt import insn
from flowshunt.insn import Instruction, check
from flowshunt_ebpf.asm.names import Names, raw_text, wide_text
from flowshunt_ebpf.asm.symbols import ALU_WORD, ATOMIC_WORD, JUMP_WORD, SIZE_SUFFIX, SWAP_WORD
from flowshunt_ebpf.program.helper_calls import helper_name


def print_mnemonic(i: Instruction, names: Names) -> str:
    """One instruction as text. What is not valid eBPF comes as `.insn`."""
    return raw_text(i) if check(i) is not None else _PRINTERS[i.cls](i, names)


def _address(register: int, offset: int) -> str:
    return f"[%r{register}{f'{offset:+}' if offset else ''}]"


def _arithmetic(i: Instruction, names: Names) -> str:
    suffix = "" if i.cls == insn.ALU64 else "32"
    dst = f"%r{i.dst}"
    if i.op == insn.NEG:
        return f"neg{suffix} {dst}"
    if i.op == insn.END:
        return f"{SWAP_WORD[i.opcode]}{i.imm} {dst}"
    if i.op == insn.MOV and i.source == insn.X and i.offset:
        if i.offset == insn.ADDRESS_SPACE_CAST:
            return f"addr_space_cast {dst}, %r{i.src}, {i.imm >> 16}, {i.imm & 0xFFFF}"
        return f"movsx{i.offset}{suffix or '64'} {dst}, %r{i.src}"
    value = f"%r{i.src}" if i.source == insn.X else str(i.imm)
    signed = "s" if i.op in (insn.DIV, insn.MOD) and i.offset else ""
    return f"{signed}{ALU_WORD[i.op]}{suffix} {dst}, {value}"


def _jump(i: Instruction, names: Names) -> str:
    if i.op in JUMP_WORD:
        suffix = "" if i.cls == insn.JMP else "32"
        value = f"%r{i.src}" if i.source == insn.X else str(i.imm)
        return f"{JUMP_WORD[i.op]}{suffix} %r{i.dst}, {value}, {names.jump(i.offset)}"
    if i.op == insn.JA:
        return f"ja {names.jump(i.offset)}" if i.cls == insn.JMP else f"ja32 {names.jump(i.imm)}"
    if i.op == insn.JCOND:
        return f"may_goto {names.jump(i.offset)}"
    if i.op == insn.EXIT:
        return "exit"
    if i.source == insn.X:
        return f"callx %r{i.dst}"
    if i.src == insn.PSEUDO_CALL:
        return f"call local {names.function(i.imm) or f'{i.imm:+}'}"
    if i.src == insn.PSEUDO_KFUNC_CALL:
        return f"call runtime {i.imm}" + (f", {i.offset}" if i.offset else "")
    return f"call helper {helper_name(i.imm) or i.imm}"


def _load_immediate(i: Instruction, names: Names) -> str:
    if i.opcode == insn.LD_IMM64:
        return f"lddw %r{i.dst}, {wide_text(i, names) or hex(i.imm & 0xFFFFFFFFFFFFFFFF)}"
    if i.mode == insn.ABS:
        return f"ldabs{SIZE_SUFFIX[i.size]} {i.imm}"
    return f"ldind{SIZE_SUFFIX[i.size]} %r{i.src}" + (f", {i.imm}" if i.imm else "")


def _load(i: Instruction, names: Names) -> str:
    signed = "s" if i.mode == insn.MEMSX else ""
    return f"ldx{signed}{SIZE_SUFFIX[i.size]} %r{i.dst}, {_address(i.src, i.offset)}"


def _store(i: Instruction, names: Names) -> str:
    return f"st{SIZE_SUFFIX[i.size]} {_address(i.dst, i.offset)}, {i.imm}"


def _store_register(i: Instruction, names: Names) -> str:
    if i.mode == insn.MEM:
        return f"stx{SIZE_SUFFIX[i.size]} {_address(i.dst, i.offset)}, %r{i.src}"
    if i.imm == insn.LOAD_ACQ:
        return f"ldacq{SIZE_SUFFIX[i.size]} %r{i.dst}, {_address(i.src, i.offset)}"
    if i.imm == insn.STORE_REL:
        return f"strel{SIZE_SUFFIX[i.size]} {_address(i.dst, i.offset)}, %r{i.src}"
    suffix = "" if i.size == insn.DW else "32"
    word = {insn.XCHG: "xchg", insn.CMPXCHG: "cmpxchg"}.get(i.imm)
    if word is None:
        fetch = "fetch " if i.imm & insn.FETCH else ""
        word = fetch + ATOMIC_WORD[i.imm & ~insn.FETCH]
    return f"lock {word}{suffix} {_address(i.dst, i.offset)}, %r{i.src}"


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
