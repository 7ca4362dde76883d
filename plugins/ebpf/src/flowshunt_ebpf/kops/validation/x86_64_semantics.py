"""What x86-64 instructions mean, on terms (Intel SDM, volume 2).

Moves, arithmetic and jumps are here, the rest in `x86_64_bits` and `x86_64_vectors`. The flags AF and PF have no
semantics here, nor has anything that reads them. DF is 0 on entry, as the calling convention has it, and no instruction
that is modelled sets it.
"""

from typing import Final

from flowshunt_ebpf.kops.validation import x86_64_bits, x86_64_vectors
from flowshunt_ebpf.kops.validation.forward import Access, Jump, NotModelledError, Path, State, Step, run_forward
from flowshunt_ebpf.kops.validation.term import Term
from flowshunt_ebpf.kops.validation.terms import Terms
from flowshunt_ebpf.kops.validation.x86_64_decode import Decoded, Immediate, Place, Register
from flowshunt_ebpf.kops.validation.x86_64_machine import Machine, Semantics, top


def run_x86_64(
    terms: Terms, values: dict[str, Term], code: tuple[Decoded, ...], path: Path | None = None
) -> tuple[dict[str, Term], list[Access]]:
    """Run decoded instructions from the first byte to one past the last.

    `values`: by the names of `x86_64_machine.WIDTHS`, and memory. `path`: go one way alone.

    Raises NotModelledError, naming the instruction, for what has no semantics here.
    """
    steps: list[tuple[int, Step]] = []
    for instruction in code:
        carry_out = _MNEMONICS.get(instruction.mnemonic)
        if carry_out is None:
            raise NotModelledError(f"{instruction.text}: the instruction is not modelled")
        steps.append((instruction.at, _step(instruction, carry_out)))
    if not code:
        return dict(values), []
    return run_forward(terms, values, steps, code[-1].at + code[-1].size, path)


def _step(instruction: Decoded, carry_out: Semantics) -> Step:
    def step(state: State) -> Jump | None:
        try:
            return carry_out(Machine(state, instruction))
        except (IndexError, AssertionError):
            raise NotModelledError(f"{instruction.text}: operands of this form are not modelled") from None

    return step


# Moves


def _mov(m: Machine) -> None:
    m.write(0, m.read(1, m.width(0)))


def _movzx(m: Machine) -> None:
    m.write(0, m.terms.zext(m.read(1), m.width(0)))


def _movsx(m: Machine) -> None:
    m.write(0, m.terms.sext(m.read(1), m.width(0)))


def _lea(m: Machine) -> None:
    place = m.operands[1]
    if not isinstance(place, Place):
        raise m.refuse("no address")
    m.write(0, m.terms.extract(m.address(place), 0, m.width(0)))


def _xchg(m: Machine) -> None:
    if not all(isinstance(operand, Register) for operand in m.operands):
        raise m.refuse("exchanges with memory are not modelled")
    first, second = m.read(0), m.read(1)
    m.write(0, second)
    m.write(1, first)


def _reversed_bytes(terms: Terms, value: Term) -> Term:
    return terms.concat(*(terms.extract(value, at, 8) for at in range(0, value.width, 8)))


def _bswap(m: Machine) -> None:
    value = m.read(0)
    if value.width not in (32, 64):
        raise m.refuse("undefined for 16 bits")
    m.write(0, _reversed_bytes(m.terms, value))


def _movbe(m: Machine) -> None:
    m.write(0, _reversed_bytes(m.terms, m.read(1, m.width(0))))


# Arithmetic and logic


def _add(m: Machine, carry: Term | None = None) -> None:
    left, right = m.read(0), m.read(1, m.width(0))
    terms, width = m.terms, left.width
    result = terms.add(left, right)
    carried = terms.ult(result, left)
    if carry is not None:
        before, result = result, terms.add(result, terms.zext(carry, width))
        carried = terms.or_(carried, terms.ult(result, before))
    overflow = terms.and_(terms.xor(left, result), terms.xor(right, result))
    m.set_flags(result=result, cf=carried, of=top(terms, overflow))
    m.write(0, result)


def _difference(m: Machine, left: Term, right: Term, borrow: Term | None = None) -> Term:
    terms, width = m.terms, left.width
    result = terms.sub(left, right)
    borrowed = terms.ult(left, right)
    if borrow is not None:
        one = terms.zext(borrow, width)
        borrowed = terms.or_(borrowed, terms.ult(result, one))
        result = terms.sub(result, one)
    overflow = terms.and_(terms.xor(left, right), terms.xor(left, result))
    m.set_flags(result=result, cf=borrowed, of=top(terms, overflow))
    return result


def _sub(m: Machine, borrow: Term | None = None) -> None:
    left = m.read(0)
    m.write(0, _difference(m, left, m.read(1, m.width(0)), borrow))


def _cmp(m: Machine) -> None:
    left = m.read(0)
    _difference(m, left, m.read(1, m.width(0)))


def _neg(m: Machine) -> None:
    value = m.read(0)
    m.write(0, _difference(m, m.terms.const(0, value.width), value))


def _increment(by: int) -> Semantics:
    def carry_out(m: Machine) -> None:
        value, kept, terms = m.read(0), m.flag("cf"), m.terms
        result = terms.plus(value, by & ((1 << value.width) - 1))
        edge = (1 << (value.width - 1)) - (0 if by < 0 else 1)
        m.set_flags(result=result, cf=kept, of=terms.eq(value, terms.const(edge, value.width)))
        m.write(0, result)

    return carry_out


def _logic(op: str, *, keep: bool = True) -> Semantics:
    def carry_out(m: Machine) -> None:
        left = m.read(0)
        result = m.terms.apply(op, left, m.read(1, m.width(0)))
        zero = m.terms.const(0, 1)
        m.set_flags(result=result, cf=zero, of=zero)
        if keep:
            m.write(0, result)

    return carry_out


def _not(m: Machine) -> None:
    m.write(0, m.terms.not_(m.read(0)))


def _imul(m: Machine) -> None:
    if len(m.operands) == 1:
        raise m.refuse("the form with one operand is not modelled")
    width = m.width(0)
    first = len(m.operands) - 2
    terms = m.terms
    left, right = m.read(first, width), m.read(first + 1, width)
    wide = terms.apply("mul", terms.sext(left, 2 * width), terms.sext(right, 2 * width))
    result = terms.apply("mul", left, right)
    overflow = terms.not_(terms.eq(wide, terms.sext(result, 2 * width)))
    m.set_flags(cf=overflow, of=overflow)
    m.write(0, result)


# Conditions


def _condition(m: Machine, name: str) -> Term:
    terms = m.terms
    cf, zf = m.flag("cf"), m.flag("zf")
    less = terms.xor(m.flag("sf"), m.flag("of"))
    true = {
        "o": m.flag("of"), "b": cf, "e": zf, "be": terms.or_(cf, zf), "s": m.flag("sf"), "l": less,
        "le": terms.or_(zf, less),
    }  # fmt: skip
    opposite = {"no": "o", "ae": "b", "ne": "e", "a": "be", "ns": "s", "ge": "l", "g": "le"}
    return true[name] if name in true else terms.not_(true[opposite[name]])


CONDITIONS: Final = ("o", "no", "b", "ae", "e", "ne", "be", "a", "s", "ns", "l", "ge", "le", "g")


def _cmov(name: str) -> Semantics:
    def carry_out(m: Machine) -> None:  # a 32-bit form clears the upper half whether it moves or not; it always loads
        other = m.read(1, m.width(0))
        m.write(0, m.terms.ite(_condition(m, name), other, m.read(0)))

    return carry_out


def _setcc(name: str) -> Semantics:
    return lambda m: m.write(0, m.terms.zext(_condition(m, name), 8))


def _jcc(name: str | None) -> Semantics:
    def carry_out(m: Machine) -> Jump:
        target = m.operands[0]
        if not isinstance(target, Immediate):
            raise m.refuse("jumps to an address in a register are not modelled")
        return Jump(target.value, None if name is None else _condition(m, name))

    return carry_out


def _nothing(m: Machine) -> None:
    """No effect on registers or memory, and no fault: prefetches, nop."""


_MNEMONICS: Final[dict[str, Semantics]] = {
    "mov": _mov, "movabs": _mov, "movzx": _movzx, "movsx": _movsx, "movsxd": _movsx, "lea": _lea, "xchg": _xchg,
    "bswap": _bswap, "movbe": _movbe,
    "add": _add, "adc": lambda m: _add(m, m.flag("cf")), "sub": _sub, "sbb": lambda m: _sub(m, m.flag("cf")),
    "cmp": _cmp, "neg": _neg, "inc": _increment(1), "dec": _increment(-1), "not": _not, "imul": _imul,
    "and": _logic("and"), "or": _logic("or"), "xor": _logic("xor"), "test": _logic("and", keep=False),
    "jmp": _jcc(None),
    **{f"cmov{name}": _cmov(name) for name in CONDITIONS},
    **{f"set{name}": _setcc(name) for name in CONDITIONS},
    **{f"j{name}": _jcc(name) for name in CONDITIONS},
    **dict.fromkeys(("prefetcht0", "prefetcht1", "prefetcht2", "prefetchnta", "nop"), _nothing),
    **x86_64_bits.MNEMONICS, **x86_64_vectors.MNEMONICS,
}  # fmt: skip
