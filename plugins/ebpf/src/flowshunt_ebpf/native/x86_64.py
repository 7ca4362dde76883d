"""eBPF to x86-64, one instruction at a time: arithmetic, memory, jumps.

Registers are mapped as in the kernel (arch/x86/net/bpf_jit_comp.c): r0 is rax, r1 to r5 are rdi, rsi, rdx, rcx and r8,
r6 to r9 are rbx, r13, r14 and r15, r10 is rbp. r12 holds the machine's state block; r9, r10 and r11 are scratch.
"""

from collections.abc import Callable
from typing import Final

from flowshunt.insn import (
    ADD,
    ALU,
    ALU64,
    AND,
    ARSH,
    ATOMIC,
    CALL,
    CMPXCHG,
    END,
    EXIT,
    FETCH,
    IND,
    JA,
    JCOND,
    JEQ,
    JGE,
    JGT,
    JLE,
    JLT,
    JMP,
    JMP32,
    JNE,
    JSET,
    JSGE,
    JSGT,
    JSLE,
    JSLT,
    LD,
    LD_IMM64,
    LDX,
    LOAD_ACQ,
    LSH,
    MEMSX,
    MOD,
    MOV,
    MUL,
    NEG,
    OR,
    RSH,
    ST,
    STORE_REL,
    STX,
    SUB,
    XCHG,
    XOR,
    Instruction,
    X,
)  # fmt: skip
from flowshunt_ebpf.contexts.layout import DATA, DATA_END
from flowshunt_ebpf.native import state
from flowshunt_ebpf.native.emission import Emission
from flowshunt_ebpf.native.image import Access
from flowshunt_ebpf.native.x86_64_calls import call, leave

R64: Final = ("rax", "rdi", "rsi", "rdx", "rcx", "r8", "rbx", "r13", "r14", "r15", "rbp")
R32: Final = ("eax", "edi", "esi", "edx", "ecx", "r8d", "ebx", "r13d", "r14d", "r15d", "ebp")
R16: Final = ("ax", "di", "si", "dx", "cx", "r8w", "bx", "r13w", "r14w", "r15w", "bp")
R8: Final = ("al", "dil", "sil", "dl", "cl", "r8b", "bl", "r13b", "r14b", "r15b", "bpl")

_PLAIN: Final = {ADD: "add", SUB: "sub", OR: "or", AND: "and", XOR: "xor"}
_SHIFT: Final = {LSH: "shl", RSH: "shr", ARSH: "sar"}
_SHIFT_X: Final = {LSH: "shlx", RSH: "shrx", ARSH: "sarx"}
_WIDTH: Final = {1: "byte ptr", 2: "word ptr", 4: "dword ptr", 8: "qword ptr"}
_BY_SIZE: Final = {1: R8, 2: R16, 4: R32, 8: R64}
_CONDITION: Final = {
    JEQ: "je", JGT: "ja", JGE: "jae", JSET: "jne", JNE: "jne", JSGT: "jg", JSGE: "jge", JLT: "jb", JLE: "jbe",
    JSLT: "jl", JSLE: "jle",
}  # fmt: skip


def instruction(e: Emission, i: Instruction) -> None:
    """Emit one instruction."""
    _CLASS[i.opcode & 7](e, i)


def _arithmetic(e: Emission, i: Instruction) -> None:
    wide = i.opcode & 7 == ALU64
    names = R64 if wide else R32
    op = i.opcode & 0xF0
    dst = names[i.dst]
    register = i.opcode & X
    if op in _PLAIN:
        e.lines.append(f"{_PLAIN[op]} {dst}, {names[i.src] if register else i.imm}")
    elif op == MOV:
        _move(e, i, wide)
    elif op in _SHIFT:
        if register:
            _shift(e, op, i, names)
        else:
            e.lines.append(f"{_SHIFT[op]} {dst}, {i.imm & (63 if wide else 31)}")
    elif op == MUL:
        e.lines.append(f"imul {dst}, {names[i.src]}" if register else f"imul {dst}, {dst}, {i.imm}")
    elif op == NEG:
        e.lines.append(f"neg {dst}")
    elif op == END:
        _swap(e, i, wide)
    else:
        _divide(e, i, wide)


def _move(e: Emission, i: Instruction, wide: bool) -> None:
    if not i.opcode & X:
        if i.imm == 0:
            e.lines.append(f"xor {R32[i.dst]}, {R32[i.dst]}")
        elif wide and i.imm < 0:
            e.lines.append(f"mov {R64[i.dst]}, {i.imm}")
        else:
            e.lines.append(f"mov {R32[i.dst]}, {i.imm & 0xFFFFFFFF}")
    elif i.offset == 0:
        names = R64 if wide else R32
        e.lines.append(f"mov {names[i.dst]}, {names[i.src]}")
    elif i.offset == 32:
        e.lines.append(f"movsxd {R64[i.dst]}, {R32[i.src]}")
    else:
        names = R64 if wide else R32
        e.lines.append(f"movsx {names[i.dst]}, {(R8 if i.offset == 8 else R16)[i.src]}")


def _shift(e: Emission, op: int, i: Instruction, names: tuple[str, ...]) -> None:
    dst, src = names[i.dst], names[i.src]
    if "bmi2" in e.features:
        e.lines.append(f"{_SHIFT_X[op]} {dst}, {dst}, {src}")
        return
    scratch = "r11" if names is R64 else "r11d"
    if i.dst == 4:  # rcx holds the value and has to hold the count
        e.emit("mov r11, rcx", f"mov ecx, {R32[i.src]}", f"{_SHIFT[op]} {scratch}, cl", "mov rcx, r11")
    elif i.src == 4:
        e.emit(f"{_SHIFT[op]} {dst}, cl")
    else:
        e.emit("mov r11, rcx", f"mov ecx, {R32[i.src]}", f"{_SHIFT[op]} {dst}, cl", "mov rcx, r11")


def _swap(e: Emission, i: Instruction, wide: bool) -> None:
    if not wide and not i.opcode & X:  # to little-endian: cut off
        if i.imm == 16:
            e.lines.append(f"movzx {R32[i.dst]}, {R16[i.dst]}")
        elif i.imm == 32:
            e.lines.append(f"mov {R32[i.dst]}, {R32[i.dst]}")
    elif i.imm == 16:
        e.emit(f"ror {R16[i.dst]}, 8", f"movzx {R32[i.dst]}, {R16[i.dst]}")
    else:
        e.lines.append(f"bswap {(R32 if i.imm == 32 else R64)[i.dst]}")


def _divide(e: Emission, i: Instruction, wide: bool) -> None:
    names = R64 if wide else R32
    modulo, signed = i.opcode & 0xF0 == MOD, i.offset == 1
    dst = names[i.dst]
    scratch = "r11" if wide else "r11d"
    register = i.opcode & X
    n = e.index
    by_zero = f"xor {R32[i.dst]}, {R32[i.dst]}" if not modulo else "" if wide else f"mov {dst}, {dst}"
    if not register and i.imm == 0:
        if by_zero:
            e.lines.append(by_zero)
        return
    if not register:
        e.lines.append(f"mov {scratch}, {i.imm if wide else i.imm & 0xFFFFFFFF}")
        divisor = scratch
    elif i.src in (0, 3):
        e.lines.append(f"mov {scratch}, {names[i.src]}")
        divisor = scratch
    else:
        divisor = names[i.src]
    minus_one = signed and (register or i.imm == -1)
    if register:
        e.emit(f"test {divisor}, {divisor}", f"je zero_{n}")
    if minus_one:
        e.emit(f"cmp {divisor}, -1", f"je minus_{n}")
    if i.dst != 0:
        e.emit("mov r10, rax", f"mov {names[0]}, {dst}")
    if i.dst != 3:
        e.lines.append("mov r9, rdx")
    if signed:
        e.emit("cqo" if wide else "cdq", f"idiv {divisor}")
    else:
        e.emit("xor edx, edx", f"div {divisor}")
    if i.dst == 0:
        e.emit(*(["mov rax, rdx"] if modulo else []), "mov rdx, r9")
    elif i.dst == 3:
        e.emit(*([] if modulo else ["mov rdx, rax"]), "mov rax, r10")
    else:
        e.emit(f"mov {dst}, {names[3 if modulo else 0]}", "mov rdx, r9", "mov rax, r10")
    if register or minus_one:
        e.lines.append(f"jmp done_{n}")
        if minus_one:  # the quotient may overflow, which the processor traps
            e.emit(f"minus_{n}:", f"xor {R32[i.dst]}, {R32[i.dst]}" if modulo else f"neg {dst}", f"jmp done_{n}")
        e.lines.append(f"zero_{n}:")
        if by_zero and register:
            e.lines.append(by_zero)
        e.lines.append(f"done_{n}:")


def check_access(e: Emission, base: int, offset: int, size: int, *, write: bool) -> None:
    """Emit what proves an access allowed, where there is no verdict. Changes r9, r10 and r11."""
    if not e.checked:
        return
    known = e.image.access[e.index]
    if known == Access.EITHER:
        e.emit(f"cmp {R64[base]}, qword ptr [r12+{state.CONTEXT}]", f"je pass_{e.index}")
    if known in (Access.REGION, Access.EITHER):
        e.emit(
            f"lea r11, [{R64[base]}{offset:+d}]",
            f"mov r9d, {size}",
            f"mov r10d, {state.WRITABLE}" if write else "xor r10d, r10d",
            "call check_access",
        )
    if known == Access.EITHER:
        e.emit(f"pass_{e.index}:")
    elif known == Access.CONTEXT:
        e.emit(
            f"cmp {R64[base]}, qword ptr [r12+{state.CONTEXT}]",
            f"je pass_{e.index}",
            "call fault_context",
            f"pass_{e.index}:",
        )


def _load(e: Emission, i: Instruction) -> None:
    size, n = i.size_bytes, e.index
    pointer = e.image.pointers.get(n)
    if pointer is not None:
        e.emit(f"cmp {R64[i.src]}, qword ptr [r12+{state.CONTEXT}]", f"jne other_{n}")
        e.emit(f"mov {R64[i.dst]}, qword ptr [{R64[i.src]}{pointer:+d}]", f"jmp done_{n}", f"other_{n}:")
    check_access(e, i.src, i.offset, size, write=False)
    where = f"{_WIDTH[size]} [{R64[i.src]}{i.offset:+d}]"
    if i.opcode & 0xE0 == MEMSX:
        e.lines.append(f"{'movsxd' if size == 4 else 'movsx'} {R64[i.dst]}, {where}")
    elif size < 4:
        e.lines.append(f"movzx {R32[i.dst]}, {where}")
    else:
        e.lines.append(f"mov {_BY_SIZE[size][i.dst]}, {where}")
    if pointer is not None:
        e.lines.append(f"done_{n}:")


def _store(e: Emission, i: Instruction) -> None:
    size = i.size_bytes
    check_access(e, i.dst, i.offset, size, write=True)
    value = i.imm if size >= 4 else i.imm & ((1 << 8 * size) - 1)
    e.lines.append(f"mov {_WIDTH[size]} [{R64[i.dst]}{i.offset:+d}], {value}")


def _store_register(e: Emission, i: Instruction) -> None:
    size = i.size_bytes
    if i.opcode & 0xE0 == ATOMIC:
        _atomic(e, i, size)
        return
    check_access(e, i.dst, i.offset, size, write=True)
    e.lines.append(f"mov {_WIDTH[size]} [{R64[i.dst]}{i.offset:+d}], {_BY_SIZE[size][i.src]}")


def _atomic(e: Emission, i: Instruction, size: int) -> None:
    names = _BY_SIZE[size]
    if i.imm == LOAD_ACQ:  # plain loads and stores are ordered on this architecture
        check_access(e, i.src, i.offset, size, write=False)
        where = f"{_WIDTH[size]} [{R64[i.src]}{i.offset:+d}]"
        e.lines.append(f"movzx {R32[i.dst]}, {where}" if size < 4 else f"mov {names[i.dst]}, {where}")
        return
    check_access(e, i.dst, i.offset, size, write=True)
    where = f"{_WIDTH[size]} [{R64[i.dst]}{i.offset:+d}]"
    if i.imm == STORE_REL:
        e.lines.append(f"mov {where}, {names[i.src]}")
    elif i.imm == XCHG:
        e.lines.append(f"xchg {where}, {names[i.src]}")
    elif i.imm == CMPXCHG:
        e.lines.append(f"lock cmpxchg {where}, {names[i.src]}")
        if size == 4:
            e.lines.append("mov eax, eax")  # not written where the exchange took place
    elif not i.imm & FETCH:
        e.lines.append(f"lock {_PLAIN[i.imm & 0xF0]} {where}, {names[i.src]}")
    elif i.imm & 0xF0 == ADD:
        e.lines.append(f"lock xadd {where}, {names[i.src]}")
    else:
        operand = names[i.src] if i.src else ("r11" if size == 8 else "r11d")
        if not i.dst:
            where = f"{_WIDTH[size]} [r11{i.offset:+d}]"
        scratch = "r10" if size == 8 else "r10d"
        e.emit(
            "mov r11, rax",
            f"mov {names[0]}, {where}",
            f"retry_{e.index}:",
            f"mov {scratch}, {names[0]}",
            f"{_PLAIN[i.imm & 0xF0]} {scratch}, {operand}",
            f"lock cmpxchg {where}, {scratch}",
            f"jne retry_{e.index}",
        )
        if i.src:
            e.emit(f"mov {names[i.src]}, {names[0]}", "mov rax, r11")


def _jump(e: Emission, i: Instruction) -> None:
    op = i.opcode & 0xF0
    wide = i.opcode & 7 == JMP
    if op == CALL and wide:
        call(e, i)
        return
    if op == EXIT and wide:
        leave(e)
        e.lines.append("ret")
        return
    target = e.image.targets[e.index]
    if e.budget and target <= e.index:
        charge(e, e.charge(e.index))
    if op == JA:
        e.lines.append(f"jmp I{target}")
        return
    if op == JCOND:
        e.emit("cmp qword ptr [rsp], 0", f"je I{target}", "dec qword ptr [rsp]")
        return
    names = R64 if wide else R32
    if i.opcode & X:
        right = names[i.src]
    elif i.imm == 0 and op in (JEQ, JNE):
        e.emit(f"test {names[i.dst]}, {names[i.dst]}", f"{_CONDITION[op]} I{target}")
        return
    else:
        right = str(i.imm)
    e.emit(f"{'test' if op == JSET else 'cmp'} {names[i.dst]}, {right}", f"{_CONDITION[op]} I{target}")


def charge(e: Emission, cost: int) -> None:
    """Emit the charge of a cost to the run's budget."""
    e.emit(
        f"sub qword ptr [r12+{state.BUDGET}], {cost}", f"jns paid_{e.index}", "call fault_budget", f"paid_{e.index}:"
    )


def _load_immediate(e: Emission, i: Instruction) -> None:
    if i.opcode != LD_IMM64:
        _legacy_load(e, i)
        return
    value = e.image.values[e.index]
    if value == 0:
        e.lines.append(f"xor {R32[i.dst]}, {R32[i.dst]}")
    else:
        e.lines.append(f"mov {(R32 if value < 1 << 32 else R64)[i.dst]}, {value}")


def _legacy_load(e: Emission, i: Instruction) -> None:
    """r0 = the big-endian value at packet byte imm (+ src); outside the packet the program ends and returns 0."""
    size, n = i.size_bytes, e.index
    check_access(e, 6, 0, 4, write=False)
    if i.opcode & 0xE0 == IND:
        e.emit(f"movsxd r11, {R32[i.src]}", f"add r11, {i.imm}")
    else:
        e.emit(f"mov r11, {i.imm}")
    e.emit(
        f"mov r10, qword ptr [rbx{DATA:+d}]",
        f"mov r9, qword ptr [rbx{DATA_END:+d}]",
        "sub r9, r10",
        f"sub r9, {size}",
        "xor eax, eax",
        "cmp r9, r11",
        f"jl outside_{n}",
        "test r11, r11",
        f"jns inside_{n}",
        f"outside_{n}:",
    )
    leave(e)
    e.emit("ret", f"inside_{n}:")
    where = f"{_WIDTH[size]} [r10+r11]"
    e.emit(
        *{1: [f"movzx eax, {where}"], 2: [f"movzx eax, {where}", "ror ax, 8"], 4: [f"mov eax, {where}", "bswap eax"]}[
            size
        ]
    )
    if e.checked:
        e.emit("xor edi, edi", "xor esi, esi", "xor edx, edx", "xor ecx, ecx", "xor r8d, r8d")


_CLASS: Final[dict[int, Callable[[Emission, Instruction], None]]] = {
    LD: _load_immediate, LDX: _load, ST: _store, STX: _store_register,
    ALU: _arithmetic, ALU64: _arithmetic, JMP: _jump, JMP32: _jump,
}  # fmt: skip
