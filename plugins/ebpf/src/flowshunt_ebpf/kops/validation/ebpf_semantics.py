"""What eBPF instructions mean, on terms (RFC 9669, sections 4 and 5).

Everything that a run of straight or forward-jumping code may hold is here; calls, exits, atomics and legacy packet
loads are not, so that a run with one of them is not proved.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from flowshunt.insn import (
    ADD,
    ALU,
    ALU64,
    AND,
    ARSH,
    CALL,
    DIV,
    END,
    EXIT,
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
    LD_IMM64,
    LDX,
    LSH,
    MEM,
    MEMSX,
    MOD,
    MOV,
    MUL,
    NEG,
    OR,
    RSH,
    ST,
    STX,
    SUB,
    XOR,
    Instruction,
    X,
    check,
)  # fmt: skip
from flowshunt_ebpf.kops.validation.forward import Access, Jump, NotModelledError, State, Step, run_forward
from flowshunt_ebpf.kops.validation.term import Term
from flowshunt_ebpf.kops.validation.terms import Terms

REGISTERS: Final = tuple(f"r{number}" for number in range(11))

_BINARY: Final = {ADD: "add", SUB: "sub", MUL: "mul", OR: "or", AND: "and", XOR: "xor"}
_SHIFT: Final = {LSH: "shl", RSH: "lshr", ARSH: "ashr"}


def run_ebpf(
    terms: Terms, values: dict[str, Term], code: Sequence[Instruction], lost: Mapping[int, int] | None = None
) -> tuple[dict[str, Term], list[Access]]:
    """Run instructions from the first to one past the last; jumps count slots.

    `values`: r0 to r10 and memory. `lost`: by instruction index (the number of instructions: the end), registers whose
    values are undefined from there on, one bit each.

    Raises NotModelledError, naming the instruction, for what has no semantics here.
    """
    steps: list[tuple[int, Step]] = []
    slot = 0
    lost = lost or {}
    for index, instruction in enumerate(code):
        wrong = check(instruction)
        if wrong is not None:
            raise NotModelledError(f"instruction {index}: {wrong}")
        steps.append((slot, _step(instruction, index, slot, lost.get(index, 0))))
        slot += instruction.slots
    if not steps:
        return dict(values), []
    values, accesses = run_forward(terms, values, steps, slot)
    _lose(terms, values, lost.get(len(code), 0))
    return values, accesses


def straight_end(code: Sequence[Instruction]) -> tuple[Instruction, ...]:
    """The longest end of a run that has semantics here and no jump."""
    kept = len(code)
    while kept:
        i = code[kept - 1]
        if i.cls in (JMP, JMP32) or check(i) is not None or (i.opcode != LD_IMM64 and i.cls not in _CLASS):
            break
        if (i.cls == STX and i.mode != MEM) or (i.op == MOV and i.cls == ALU64 and i.opcode & X and i.offset == 1):
            break
        kept -= 1
    return tuple(code[kept:])


def _lose(terms: Terms, values: dict[str, Term], registers: int) -> None:
    for number, name in enumerate(REGISTERS):
        if registers >> number & 1:
            values[name] = terms.arbitrary(64)


def _step(i: Instruction, index: int, slot: int, lost: int) -> Step:
    carry_out = _CLASS.get(i.cls)
    if i.opcode == LD_IMM64:
        carry_out = _load_immediate
    if carry_out is None:
        raise NotModelledError(f"instruction {index}: opcode {i.opcode:#04x} is not modelled")
    if i.cls in (JMP, JMP32) and i.op in (CALL, EXIT, JCOND):
        raise NotModelledError(f"instruction {index}: calls, exits and may_goto are not modelled")
    if i.cls == STX and i.mode != MEM:
        raise NotModelledError(f"instruction {index}: atomic operations are not modelled")

    def step(state: State) -> Jump | None:
        _lose(state.terms, state.values, lost)
        return carry_out(state, i, slot)

    return step


def _name(register: int) -> str:
    return REGISTERS[register]


def _arithmetic(state: State, i: Instruction, slot: int) -> None:
    terms, values = state.terms, state.values
    width = 64 if i.cls == ALU64 else 32
    dst = values[_name(i.dst)]
    if i.op == END:
        values[_name(i.dst)] = terms.zext(_swap(terms, dst, i.imm, i.cls == ALU64 or bool(i.opcode & X)), 64)
        return
    left = terms.extract(dst, 0, width)
    right = terms.extract(values[_name(i.src)], 0, width) if i.opcode & X else terms.const(i.imm, width)
    values[_name(i.dst)] = terms.zext(_operate(terms, i, left, right), 64)


def _operate(terms: Terms, i: Instruction, left: Term, right: Term) -> Term:
    width = left.width
    if i.op in _BINARY:
        return terms.apply(_BINARY[i.op], left, right)
    if i.op in _SHIFT:
        return terms.apply(_SHIFT[i.op], left, terms.and_(right, terms.const(width - 1, width)))
    if i.op == NEG:
        return terms.neg(left)
    if i.op == MOV:
        if not i.offset:
            return right
        if i.offset not in (8, 16, 32):
            raise NotModelledError("a cast between address spaces is not modelled")
        return terms.sext(terms.extract(right, 0, i.offset), width)
    assert i.op in (DIV, MOD)
    return _divide(terms, left, right, modulo=i.op == MOD, signed=i.offset == 1)


def _divide(terms: Terms, left: Term, right: Term, *, modulo: bool, signed: bool) -> Term:
    """By zero a quotient is 0 and a remainder the dividend; signed ones round towards zero."""
    zero = terms.const(0, left.width)
    dividend, divisor = left, right
    negative, other = terms.slt(left, zero), terms.slt(right, zero)
    if signed:
        dividend = terms.ite(negative, terms.neg(left), left)
        divisor = terms.ite(other, terms.neg(right), right)
    result = terms.apply("urem" if modulo else "udiv", dividend, divisor)
    if signed:
        turned = negative if modulo else terms.xor(negative, other)
        result = terms.ite(turned, terms.neg(result), result)
    return terms.ite(terms.eq(right, zero), left if modulo else zero, result)


def _swap(terms: Terms, value: Term, bits: int, swapped: bool) -> Term:
    if not swapped:
        return terms.extract(value, 0, bits)
    return terms.concat(*(terms.extract(value, at, 8) for at in range(0, bits, 8)))


def _address(state: State, register: int, offset: int) -> Term:
    return state.terms.plus(state.values[_name(register)], offset)


def _load(state: State, i: Instruction, slot: int) -> None:
    value = state.load(_address(state, i.src, i.offset), i.size_bytes)
    extend = state.terms.sext if i.mode == MEMSX else state.terms.zext
    state.values[_name(i.dst)] = extend(value, 64)


def _store(state: State, i: Instruction, slot: int) -> None:
    state.save(_address(state, i.dst, i.offset), state.terms.const(i.imm, 8 * i.size_bytes))


def _store_register(state: State, i: Instruction, slot: int) -> None:
    value = state.terms.extract(state.values[_name(i.src)], 0, 8 * i.size_bytes)
    state.save(_address(state, i.dst, i.offset), value)


def _load_immediate(state: State, i: Instruction, slot: int) -> None:
    """A map or function is an address that nothing is known of, the same wherever it is named."""
    known = state.terms.const(i.imm, 64) if i.src == 0 else state.terms.var(f"object {i.src}:{i.imm:#x}", 64)
    state.values[_name(i.dst)] = known


_COMPARE: Final[dict[int, Callable[[Terms, Term, Term], Term]]] = {
    JEQ: lambda t, a, b: t.eq(a, b),
    JNE: lambda t, a, b: t.not_(t.eq(a, b)),
    JGT: lambda t, a, b: t.ult(b, a),
    JGE: lambda t, a, b: t.not_(t.ult(a, b)),
    JLT: lambda t, a, b: t.ult(a, b),
    JLE: lambda t, a, b: t.not_(t.ult(b, a)),
    JSET: lambda t, a, b: t.not_(t.eq(t.and_(a, b), t.const(0, a.width))),
    JSGT: lambda t, a, b: t.slt(b, a),
    JSGE: lambda t, a, b: t.not_(t.slt(a, b)),
    JSLT: lambda t, a, b: t.slt(a, b),
    JSLE: lambda t, a, b: t.not_(t.slt(b, a)),
}


def _jump(state: State, i: Instruction, slot: int) -> Jump | None:
    wide = i.cls == JMP
    target = slot + 1 + (i.imm if i.op == JA and not wide else i.offset)
    if i.op == JA:
        return Jump(target)
    width = 64 if wide else 32
    terms = state.terms
    left = terms.extract(state.values[_name(i.dst)], 0, width)
    right = terms.extract(state.values[_name(i.src)], 0, width) if i.opcode & X else terms.const(i.imm, width)
    return Jump(target, _COMPARE[i.op](terms, left, right))


_CLASS: Final[dict[int, Callable[[State, Instruction, int], Jump | None]]] = {
    LDX: _load, ST: _store, STX: _store_register, ALU: _arithmetic, ALU64: _arithmetic, JMP: _jump, JMP32: _jump,
}  # fmt: skip
