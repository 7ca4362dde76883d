"""eBPF to ARM64, one instruction at a time: arithmetic, memory, jumps.

Registers are mapped as in the kernel (arch/arm64/net/bpf_jit_comp.c): r0 is x7, r1 to r5 are x0 to x4, r6 to r9 are x19
to x22, r10 is x25. x28 holds the machine's state block; x9 to x17 are scratch. Atomics are loops of exclusive loads and
stores, which every ARM64 processor has.
"""

from collections.abc import Callable
from functools import lru_cache
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
    DIV,
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
from flowshunt_ebpf.native.arm64_calls import FORGET, call, charge, leave
from flowshunt_ebpf.native.emission import Emission
from flowshunt_ebpf.native.image import Access

XR: Final = ("x7", "x0", "x1", "x2", "x3", "x4", "x19", "x20", "x21", "x22", "x25")
WR: Final = ("w7", "w0", "w1", "w2", "w3", "w4", "w19", "w20", "w21", "w22", "w25")

_PLAIN: Final = {ADD: "add", SUB: "sub", OR: "orr", AND: "and", XOR: "eor"}
_SHIFT: Final = {LSH: "lsl", RSH: "lsr", ARSH: "asr"}
_CONDITION: Final = {
    JEQ: "eq", JGT: "hi", JGE: "hs", JSET: "ne", JNE: "ne", JSGT: "gt", JSGE: "ge", JLT: "lo", JLE: "ls", JSLT: "lt",
    JSLE: "le",
}  # fmt: skip
_OPPOSITE: Final = {
    "eq": "ne", "ne": "eq", "hi": "ls", "ls": "hi", "hs": "lo", "lo": "hs", "gt": "le", "le": "gt", "ge": "lt",
    "lt": "ge",
}  # fmt: skip
_NEAR: Final = 8000
"""Instructions up to which every conditional branch (1 MiB either way) reaches its target."""
_SUFFIX: Final = {1: "b", 2: "h", 4: "", 8: ""}


def instruction(e: Emission, i: Instruction) -> None:
    """Emit one instruction."""
    _CLASS[i.opcode & 7](e, i)


def constant(e: Emission, register: int, value: int, *, wide: bool = True) -> str:
    """Emit what puts a value into scratch register x`register`; gives its name."""
    name = f"{'x' if wide else 'w'}{register}"
    bits = 64 if wide else 32
    value &= (1 << bits) - 1
    parts = [(value >> at & 0xFFFF, at) for at in range(0, bits, 16)]
    ones = sum(part == 0xFFFF for part, _ in parts)
    inverted = ones > sum(part == 0 for part, _ in parts)
    filler = 0xFFFF if inverted else 0
    rest = [(part, at) for part, at in parts if part != filler] or [(filler, 0)]
    first, at = rest[0]
    e.lines.append(f"movn {name}, #{first ^ 0xFFFF}, lsl #{at}" if inverted else f"movz {name}, #{first}, lsl #{at}")
    e.lines += [f"movk {name}, #{part}, lsl #{at}" for part, at in rest[1:]]
    return name


@lru_cache(maxsize=4096)
def bitmask(value: int, bits: int) -> bool:
    """Whether a value is a logical immediate: a run of ones, rotated, in elements of 2 to 64 bits that repeat."""
    value &= (1 << bits) - 1
    if value in (0, (1 << bits) - 1):
        return False
    element = bits
    while element > 2:
        half = element // 2
        low = (1 << half) - 1
        if value & low != value >> half & low:
            break
        element = half
        value &= low
    value &= (1 << element) - 1
    rotated = value ^ ((value << 1 | value >> (element - 1)) & ((1 << element) - 1))
    return rotated.bit_count() == 2


def _arithmetic(e: Emission, i: Instruction) -> None:
    wide = i.opcode & 7 == ALU64
    names = XR if wide else WR
    op = i.opcode & 0xF0
    dst = names[i.dst]
    register = i.opcode & X
    if op == MOV:
        _move(e, i, wide)
    elif op == END:
        _swap(e, i, wide)
    elif op == NEG:
        e.lines.append(f"neg {dst}, {dst}")
    elif op in _SHIFT:
        e.lines.append(f"{_SHIFT[op]} {dst}, {dst}, {names[i.src] if register else f'#{i.imm & (63 if wide else 31)}'}")
    elif op in _PLAIN and not register and _immediate(e, op, dst, i.imm, 64 if wide else 32):
        pass
    else:
        operand = names[i.src] if register else constant(e, 10, i.imm, wide=wide)
        if op in _PLAIN:
            e.lines.append(f"{_PLAIN[op]} {dst}, {dst}, {operand}")
        elif op == MUL:
            e.lines.append(f"mul {dst}, {dst}, {operand}")
        else:
            _divide(e, i, dst, operand, wide)


def _immediate(e: Emission, op: int, dst: str, imm: int, bits: int) -> bool:
    if op in (ADD, SUB):
        if not -4096 < imm < 4096:
            return False
        name = _PLAIN[op] if imm >= 0 else _PLAIN[ADD if op == SUB else SUB]
        e.lines.append(f"{name} {dst}, {dst}, #{abs(imm)}")
        return True
    if not bitmask(imm, bits):
        return False
    e.lines.append(f"{_PLAIN[op]} {dst}, {dst}, #{imm & ((1 << bits) - 1):#x}")
    return True


def _move(e: Emission, i: Instruction, wide: bool) -> None:
    names = XR if wide else WR
    if not i.opcode & X:
        constant(e, int(names[i.dst][1:]), i.imm, wide=wide)
    elif i.offset:
        e.lines.append(f"{ {8: 'sxtb', 16: 'sxth', 32: 'sxtw'}[i.offset] } {names[i.dst]}, {WR[i.src]}")
    else:
        e.lines.append(f"mov {names[i.dst]}, {names[i.src]}")


def _swap(e: Emission, i: Instruction, wide: bool) -> None:
    narrow, broad = WR[i.dst], XR[i.dst]
    swapped = wide or i.opcode & X
    if i.imm == 16:
        e.emit(*([f"rev16 {narrow}, {narrow}"] if swapped else []), f"uxth {narrow}, {narrow}")
    elif i.imm == 32:
        e.lines.append(f"rev {narrow}, {narrow}" if swapped else f"mov {narrow}, {narrow}")
    elif swapped:
        e.lines.append(f"rev {broad}, {broad}")


def _divide(e: Emission, i: Instruction, dst: str, operand: str, wide: bool) -> None:
    """The processor's own results are eBPF's: a quotient by zero is zero, an overflowing one wraps."""
    name = "sdiv" if i.offset == 1 else "udiv"
    if i.opcode & 0xF0 == DIV:
        e.lines.append(f"{name} {dst}, {dst}, {operand}")
    else:
        assert i.opcode & 0xF0 == MOD
        quotient = "x11" if wide else "w11"
        e.emit(f"{name} {quotient}, {dst}, {operand}", f"msub {dst}, {quotient}, {operand}, {dst}")


def check_access(e: Emission, base: int, offset: int, size: int, *, write: bool) -> None:
    """Emit what proves an access allowed, where there is no verdict. Changes x9 to x17."""
    if not e.checked:
        return
    known = e.image.access[e.index]
    if known == Access.EITHER:
        e.emit(f"ldr x9, [x28, #{state.CONTEXT}]", f"cmp {XR[base]}, x9", f"b.eq pass_{e.index}")
    if known in (Access.REGION, Access.EITHER):
        _address(e, 11, base, offset)
        e.emit(f"movz w10, #{size}", f"movz w12, #{state.WRITABLE if write else 0}", "bl check_access")
        if known == Access.EITHER:
            e.emit(f"pass_{e.index}:")
    elif known == Access.CONTEXT:
        e.emit(f"ldr x9, [x28, #{state.CONTEXT}]", f"cmp {XR[base]}, x9", f"b.eq pass_{e.index}", "bl fault_context")
        e.emit(f"pass_{e.index}:")


def _address(e: Emission, register: int, base: int, offset: int) -> str:
    name = f"x{register}"
    if -4096 < offset < 4096:
        e.lines.append(f"{'add' if offset >= 0 else 'sub'} {name}, {XR[base]}, #{abs(offset)}")
    else:
        constant(e, register, offset)
        e.lines.append(f"add {name}, {name}, {XR[base]}")
    return name


def _place(e: Emission, base: int, offset: int, size: int) -> tuple[str, str]:
    """What a load or store names its memory by, and the letter that its mnemonic takes for an unscaled offset."""
    if 0 <= offset < 4096 * size and not offset % size:
        return f"[{XR[base]}, #{offset}]", "r"
    if -256 <= offset < 256:
        return f"[{XR[base]}, #{offset}]", "ur"
    return f"[{XR[base]}, {constant(e, 10, offset)}]", "r"


def _load(e: Emission, i: Instruction) -> None:
    size, n = i.size_bytes, e.index
    pointer = e.image.pointers.get(n)
    if pointer is not None:
        e.emit(f"ldr x9, [x28, #{state.CONTEXT}]", f"cmp {XR[i.src]}, x9", f"b.ne other_{n}")
        e.emit(f"ldur {XR[i.dst]}, [{XR[i.src]}, #{pointer}]", f"b done_{n}", f"other_{n}:")
    check_access(e, i.src, i.offset, size, write=False)
    place, kind = _place(e, i.src, i.offset, size)
    if i.opcode & 0xE0 == MEMSX:
        e.lines.append(f"ld{kind}s{'w' if size == 4 else _SUFFIX[size]} {XR[i.dst]}, {place}")
    else:
        e.lines.append(f"ld{kind}{_SUFFIX[size]} {(XR if size == 8 else WR)[i.dst]}, {place}")
    if pointer is not None:
        e.lines.append(f"done_{n}:")


def _store(e: Emission, i: Instruction) -> None:
    size = i.size_bytes
    check_access(e, i.dst, i.offset, size, write=True)
    value = ("xzr" if size == 8 else "wzr") if i.imm == 0 else constant(e, 9, i.imm, wide=size == 8)
    place, kind = _place(e, i.dst, i.offset, size)
    e.lines.append(f"st{kind}{_SUFFIX[size]} {value}, {place}")


def _store_register(e: Emission, i: Instruction) -> None:
    size = i.size_bytes
    if i.opcode & 0xE0 == ATOMIC:
        _atomic(e, i, size)
        return
    check_access(e, i.dst, i.offset, size, write=True)
    place, kind = _place(e, i.dst, i.offset, size)
    e.lines.append(f"st{kind}{_SUFFIX[size]} {(XR if size == 8 else WR)[i.src]}, {place}")


def _atomic(e: Emission, i: Instruction, size: int) -> None:
    names, letter = (XR, "x") if size == 8 else (WR, "w")
    n = e.index
    base = i.src if i.imm == LOAD_ACQ else i.dst
    check_access(e, base, i.offset, size, write=i.imm != LOAD_ACQ)
    _address(e, 10, base, i.offset)
    src = names[i.src]
    if i.imm == LOAD_ACQ:
        e.lines.append(f"ldar{_SUFFIX[size]} {names[i.dst]}, [x10]")
    elif i.imm == STORE_REL:
        e.lines.append(f"stlr{_SUFFIX[size]} {src}, [x10]")
    elif i.imm == XCHG:
        e.emit(f"retry_{n}:", f"ldxr {letter}9, [x10]", f"stlxr w12, {src}, [x10]", f"cbnz w12, retry_{n}", "dmb ish")
        e.lines.append(f"mov {src}, {letter}9")
    elif i.imm == CMPXCHG:
        e.emit(f"retry_{n}:", f"ldxr {letter}9, [x10]", f"cmp {letter}9, {names[0]}", f"b.ne done_{n}")
        e.emit(
            f"stlxr w12, {src}, [x10]", f"cbnz w12, retry_{n}", "dmb ish", f"done_{n}:", f"mov {names[0]}, {letter}9"
        )
    elif not i.imm & FETCH:
        e.emit(f"retry_{n}:", f"ldxr {letter}9, [x10]", f"{_PLAIN[i.imm & 0xF0]} {letter}9, {letter}9, {src}")
        e.emit(f"stxr w12, {letter}9, [x10]", f"cbnz w12, retry_{n}")
    else:
        e.emit(f"retry_{n}:", f"ldxr {letter}9, [x10]", f"{_PLAIN[i.imm & 0xF0]} {letter}11, {letter}9, {src}")
        e.emit(f"stlxr w12, {letter}11, [x10]", f"cbnz w12, retry_{n}", "dmb ish", f"mov {src}, {letter}9")


def _branch(e: Emission, condition: str, target: int) -> None:
    if len(e.image.instructions) <= _NEAR:
        e.lines.append(f"b.{condition} I{target}")
    else:
        e.emit(f"b.{_OPPOSITE[condition]} none_{e.index}", f"b I{target}", f"none_{e.index}:")


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
        e.lines.append(f"b I{target}")
        return
    if op == JCOND:
        e.emit("ldr x9, [sp]", "cmp x9, #0")
        _branch(e, "eq", target)
        e.emit("sub x9, x9, #1", "str x9, [sp]")
        return
    names, bits = (XR, 64) if wide else (WR, 32)
    dst = names[i.dst]
    if i.opcode & X:
        e.lines.append(f"{'tst' if op == JSET else 'cmp'} {dst}, {names[i.src]}")
    elif op == JSET:
        right = f"#{i.imm & ((1 << bits) - 1):#x}" if bitmask(i.imm, bits) else constant(e, 10, i.imm, wide=wide)
        e.lines.append(f"tst {dst}, {right}")
    elif 0 <= i.imm < 4096:
        e.lines.append(f"cmp {dst}, #{i.imm}")
    elif -4096 < i.imm < 0:
        e.lines.append(f"cmn {dst}, #{-i.imm}")
    else:
        e.lines.append(f"cmp {dst}, {constant(e, 10, i.imm, wide=wide)}")
    _branch(e, _CONDITION[op], target)


def _load_immediate(e: Emission, i: Instruction) -> None:
    if i.opcode == LD_IMM64:
        constant(e, int(XR[i.dst][1:]), e.image.values[e.index])
    else:
        _legacy_load(e, i)


def _legacy_load(e: Emission, i: Instruction) -> None:
    """r0 = the big-endian value at packet byte imm (+ src); outside the packet the program ends and returns 0."""
    size, n = i.size_bytes, e.index
    check_access(e, 6, 0, 4, write=False)
    constant(e, 11, i.imm)
    if i.opcode & 0xE0 == IND:
        e.emit(f"sxtw x9, {WR[i.src]}", "add x11, x11, x9")
    e.emit(f"ldur x10, [x19, #{DATA}]", f"ldur x12, [x19, #{DATA_END}]", "sub x12, x12, x10", f"sub x12, x12, #{size}")
    e.emit("movz w7, #0", "cmp x12, x11", f"b.lt outside_{n}", "cmp x11, #0", f"b.ge inside_{n}", f"outside_{n}:")
    leave(e)
    e.emit("ret", f"inside_{n}:", f"ldr{_SUFFIX[size]} w7, [x10, x11]")
    e.emit(*{1: [], 2: ["rev16 w7, w7", "uxth w7, w7"], 4: ["rev w7, w7"]}[size])
    if e.checked:
        e.emit(*FORGET)


_CLASS: Final[dict[int, Callable[[Emission, Instruction], None]]] = {
    LD: _load_immediate, LDX: _load, ST: _store, STX: _store_register,
    ALU: _arithmetic, ALU64: _arithmetic, JMP: _jump, JMP32: _jump,
}  # fmt: skip
