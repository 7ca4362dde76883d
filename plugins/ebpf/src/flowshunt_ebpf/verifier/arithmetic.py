"""What arithmetic makes of numbers and pointers.

Which arithmetic pointers allow follows `adjust_reg_min_max_vals` and `adjust_ptr_min_max_vals` of the kernel's
kernel/bpf/verifier.c, for a loader that may see addresses.
"""

from typing import TYPE_CHECKING, Final

from flowshunt.insn import ADD, ALU64, AND, ARSH, DIV, END, LSH, MOD, MOV, NEG, OR, RSH, SUB, XOR, Instruction, X
from flowshunt_ebpf.verifier.memory import MAX_OFFSET
from flowshunt_ebpf.verifier.rejection import UnsafeError
from flowshunt_ebpf.verifier.scalar import (
    Scalar,
    alu32,
    alu64,
    byte_swap,
    const,
    sdiv32,
    sdiv64,
    sign_extend,
    smod32,
    smod64,
    truncate,
    unsigned_range,
)
from flowshunt_ebpf.verifier.values import (
    CONTEXT,
    FUNCTION,
    KIND_NAMES,
    MAP,
    NUMBER,
    PACKET,
    PACKET_END,
    PACKET_META,
    SCALAR,
    SIZE_ID,
    SOCKET,
    STACK,
    ZERO,
    Value,
    describe,
    number,
)

if TYPE_CHECKING:
    from flowshunt_ebpf.verifier.analysis import Analysis
    from flowshunt_ebpf.verifier.state import State

_LOW: Final = unsigned_range(0, 0xFFFFFFFF)
_LOW_NUMBER: Final = number(_LOW)
_FIXED_PLACE: Final = frozenset({PACKET_END, FUNCTION, MAP, SOCKET})
_NAMES: Final = {
    AND: "and", OR: "or", XOR: "exclusive or", LSH: "a shift", RSH: "a shift", ARSH: "a shift", DIV: "division",
    MOD: "modulo", MOV: "move", NEG: "negation", END: "a byte swap", ADD: "addition", SUB: "subtraction",
}  # fmt: skip


def arithmetic(run: "Analysis", state: "State", i: Instruction) -> None:
    """Carry an arithmetic instruction out on a state."""
    registers = state.frames[-1].registers
    op = i.opcode & 0xF0
    wide = i.opcode & 7 == ALU64
    dst = i.dst
    if op == MOV:
        registers[dst] = _move(run, registers, i, wide)
        return
    old = registers[dst]
    if old is None:
        raise uninitialised(dst)
    if op == NEG:
        registers[dst] = number((alu64 if wide else alu32)(NEG, old.scalar, ZERO)) if old.kind == SCALAR else NUMBER
        if old.kind != SCALAR and not wide:
            registers[dst] = _LOW_NUMBER
        return
    if op == END:
        registers[dst] = _swapped(old, i, wide)
        return
    if i.opcode & X:
        operand = registers[i.src]
        if operand is None:
            raise uninitialised(i.src)
        if operand.kind != SCALAR or old.kind != SCALAR:
            registers[dst] = _with_pointer(run, op, wide, dst, old, i.src, operand)
            return
        other = operand.scalar
    else:
        other = const(i.imm)
        if op in (DIV, MOD) and i.imm == 0:
            raise UnsafeError("division", "a division by the constant 0 is not allowed", "", "divide by something else")
        if op in (LSH, RSH, ARSH) and not 0 <= i.imm < (64 if wide else 32):
            raise UnsafeError(
                "shift", f"a shift by {i.imm} bits is not allowed", "", f"shift by 0 to {63 if wide else 31}"
            )
        if old.kind != SCALAR:
            registers[dst] = _with_pointer(run, op, wide, dst, old, -1, number(other))
            return
    registers[dst] = number(_computed(op, wide, i.offset, old.scalar, other))


def _computed(op: int, wide: bool, offset: int, a: Scalar, b: Scalar) -> Scalar:
    if offset == 1 and op in (DIV, MOD):
        if op == DIV:
            return sdiv64(a, b) if wide else sdiv32(a, b)
        return smod64(a, b) if wide else smod32(a, b)
    return alu64(op, a, b) if wide else alu32(op, a, b)


def uninitialised(register: int) -> UnsafeError:
    """A register is read that has no value."""
    return UnsafeError("uninitialised", f"r{register} is read", f"r{register} is not initialised", "set it first")


def _move(run: "Analysis", registers: list[Value | None], i: Instruction, wide: bool) -> Value:
    if not i.opcode & X:
        return number(const(i.imm) if wide else const(i.imm & 0xFFFFFFFF))
    value = registers[i.src]
    if value is None:
        raise uninitialised(i.src)
    if i.offset:
        if i.offset not in (8, 16, 32):
            raise UnsafeError("instruction", "a move between address spaces needs an arena", "", "leave it out")
        if value.kind != SCALAR:
            return NUMBER if wide else _LOW_NUMBER
        if value.scalar.umax < 1 << (i.offset - 1):
            return run.linked(registers, i.src)
        extended = sign_extend(value.scalar, i.offset)
        return number(extended if wide else truncate(extended))
    if wide:
        return run.linked(registers, i.src) if value.kind == SCALAR else value
    if value.kind != SCALAR:
        return _LOW_NUMBER
    if value.scalar.umax <= 0xFFFFFFFF:
        return run.linked(registers, i.src)
    return number(truncate(value.scalar))


def _swapped(old: Value, i: Instruction, wide: bool) -> Value:
    if old.kind != SCALAR:
        return NUMBER if i.imm == 64 else number(unsigned_range(0, (1 << i.imm) - 1))
    kind = "swap" if wide else ("be" if i.opcode & X else "le")
    return number(byte_swap(old.scalar, i.imm, kind))


def _with_pointer(run: "Analysis", op: int, wide: bool, dst: int, old: Value, src: int, other: Value) -> Value:
    """`old op other`, of which at least one is a pointer."""
    if SCALAR not in (old.kind, other.kind):
        if op == SUB:
            return NUMBER if wide else _LOW_NUMBER
        raise UnsafeError(
            "pointer-arithmetic",
            f"{_NAMES.get(op, 'this')} of two pointers is not allowed",
            f"r{dst} is {describe(old)}, r{src} is {describe(other)}",
            "pointers are only subtracted from each other",
        )
    if op == SUB and not wide:
        return _LOW_NUMBER
    if old.kind == SCALAR:
        if op != ADD or not wide:
            raise UnsafeError(
                "pointer-arithmetic",
                "a pointer is only added to a number, with 64 bits",
                f"r{src} is {describe(other)}",
                "start from the pointer, and add or subtract the number",
            )
        return moved(run, src, other, old, ADD)
    if not wide:
        raise UnsafeError(
            "pointer-arithmetic",
            "32-bit arithmetic on pointers is not allowed",
            f"r{dst} is {describe(old)}",
            "use 64-bit arithmetic",
        )
    return moved(run, dst, old, other, op)


def moved(run: "Analysis", register: int, pointer: Value, by: Value, op: int) -> Value:
    """A pointer, a number added or subtracted."""
    kind = pointer.kind
    name = f"r{register}"
    if op not in (ADD, SUB):
        raise UnsafeError(
            "pointer-arithmetic",
            f"{_NAMES.get(op, 'this arithmetic')} on a pointer is not allowed",
            f"{name} is {describe(pointer)}",
            "add to pointers and subtract from them only",
        )
    if pointer.nullable:
        raise UnsafeError(
            "null",
            "arithmetic on a pointer that may be null is not allowed",
            f"{name} is {describe(pointer)}",
            f"compare {name} with 0 first, and go on only where it is not equal",
        )
    scalar = by.scalar
    if kind in _FIXED_PLACE:
        if kind == MAP and op == ADD and scalar.is_const and not scalar.value:
            return pointer
        raise UnsafeError(
            "pointer-arithmetic", f"arithmetic on {KIND_NAMES[kind]} is not allowed", f"{name} is {describe(pointer)}"
        )
    if kind == STACK and op == SUB:
        raise UnsafeError(
            "pointer-arithmetic",
            "a subtraction from a stack pointer is not allowed",
            f"{name} is {describe(pointer)}",
            "add a negative number",
        )
    if kind == PACKET and by.id == SIZE_ID and op == ADD and not pointer.offset and pointer.scalar is ZERO:
        return Value(PACKET_END)
    if scalar.is_const:
        change = scalar.smin if op == ADD else -scalar.smin
        offset = pointer.offset + change
        _sane(name, pointer, scalar.smin, offset)
        return pointer.moved(offset, pointer.scalar, pointer.id, pointer.range)
    if kind == CONTEXT:
        raise UnsafeError(
            "pointer-arithmetic",
            "the context pointer is only moved by constants",
            f"the number is {describe(by)}",
            "name its fields",
        )
    _sane(name, pointer, scalar.smin, pointer.offset)
    variable = alu64(op, pointer.scalar, scalar)
    _sane(name, pointer, variable.smin, pointer.offset)
    if kind in (PACKET, PACKET_META):
        return pointer.moved(pointer.offset, variable, run.new_id(), 0)
    return pointer.moved(pointer.offset, variable, pointer.id, pointer.range)


def _sane(name: str, pointer: Value, least: int, offset: int) -> None:
    """Offsets stay so small that nothing wraps round."""
    if not -MAX_OFFSET < least < MAX_OFFSET:
        raise UnsafeError(
            "pointer-arithmetic",
            f"arithmetic on pointers needs a number above {-MAX_OFFSET} and below {MAX_OFFSET}",
            f"{name} is {describe(pointer)}; the number may be {least}",
            "bound the number below first: compare it with 0, or mask it",
        )
    if not -MAX_OFFSET < offset < MAX_OFFSET:
        raise UnsafeError(
            "pointer-arithmetic",
            f"a pointer's offset stays above {-MAX_OFFSET} and below {MAX_OFFSET}",
            f"{name} would have offset {offset}",
        )
