"""What the x86-64 instructions mean that shift, rotate, count and pick bits, on terms (Intel SDM, volume 2)."""

from typing import Final

from flowshunt_ebpf.kops.validation.term import Term
from flowshunt_ebpf.kops.validation.terms import Terms
from flowshunt_ebpf.kops.validation.x86_64_decode import Register
from flowshunt_ebpf.kops.validation.x86_64_machine import Machine, Semantics, top


def _count(m: Machine, width: int) -> Term:
    """The count of a shift as a term of the shifted width, cut to 5 bits, 6 for 64-bit operands."""
    mask = 63 if width == 64 else 31
    count = m.read(1, 8) if len(m.operands) > 1 else m.terms.const(1, 8)
    return m.terms.zext(m.terms.and_(count, m.terms.const(mask, 8)), width)


def _shift(op: str) -> Semantics:
    def carry_out(m: Machine) -> None:
        value, terms = m.read(0), m.terms
        width = value.width
        if width < 32:
            raise m.refuse("shifts of 8 and 16 bits are not modelled")
        count = _count(m, width)
        result = terms.apply(op, value, count)
        if count.op == "const" and count.value == 0:
            m.write(0, result)  # flags stay, and the upper half still becomes zero
            return
        # The last bit out: of the value shifted one less, the top bit to the left, the lowest to the right.
        before = terms.apply(op, value, terms.sub(count, terms.const(1, width)))
        cf = top(terms, before) if op == "shl" else terms.extract(before, 0, 1)
        of = {"shl": terms.xor(top(terms, result), cf), "lshr": top(terms, value), "ashr": terms.const(0, 1)}[op]
        _set_if_counted(
            m,
            count,
            {
                "cf": cf,
                "of": terms.ite(terms.eq(count, terms.const(1, width)), of, terms.arbitrary(1)),
                "zf": terms.eq(result, terms.const(0, width)),
                "sf": top(terms, result),
            },
        )
        m.write(0, result)

    return carry_out


def _set_if_counted(m: Machine, count: Term, flags: dict[str, Term]) -> None:
    """A shift by 0 leaves the flags."""
    nothing = m.terms.eq(count, m.terms.const(0, count.width))
    for name, value in flags.items():
        m.state.values[name] = m.terms.ite(nothing, m.state.values[name], value)


def _rotated(terms: Terms, value: Term, count: Term, *, left: bool) -> Term:
    width = value.width
    within = terms.and_(count, terms.const(width - 1, width))
    back = terms.and_(terms.neg(within), terms.const(width - 1, width))
    right_count, left_count = (back, within) if left else (within, back)
    return terms.or_(terms.apply("shl", value, left_count), terms.apply("lshr", value, right_count))


def _rotate(left: bool) -> Semantics:
    def carry_out(m: Machine) -> None:
        value, terms = m.read(0), m.terms
        width = value.width
        count = _count(m, width)
        result = _rotated(terms, value, count, left=left)
        cf = terms.extract(result, 0, 1) if left else top(terms, result)
        next_to_top = terms.extract(result, width - 2, 1)
        of = terms.xor(top(terms, result), cf if left else next_to_top)
        once = terms.eq(count, terms.const(1, width))
        _set_if_counted(m, count, {"cf": cf, "of": terms.ite(once, of, terms.arbitrary(1))})
        m.write(0, result)

    return carry_out


def _double_shift(left: bool) -> Semantics:
    def carry_out(m: Machine) -> None:
        value, filler, terms = m.read(0), m.read(1, m.width(0)), m.terms
        width = value.width
        if width < 32:
            raise m.refuse("undefined for some counts of 16 bits")
        count = terms.zext(terms.and_(m.read(2, 8), terms.const(63 if width == 64 else 31, 8)), width)
        rest = terms.sub(
            terms.const(width, width), count
        )  # the width itself where the count is 0: then nothing comes in
        shifts = ("shl", "lshr") if left else ("lshr", "shl")
        result = terms.or_(terms.apply(shifts[0], value, count), terms.apply(shifts[1], filler, rest))
        _set_if_counted(
            m,
            count,
            {
                "cf": terms.arbitrary(1),
                "of": terms.arbitrary(1),
                "zf": terms.eq(result, terms.const(0, width)),
                "sf": top(terms, result),
            },
        )
        m.write(0, result)

    return carry_out


def _rorx(m: Machine) -> None:
    width = m.width(0)
    count = m.terms.and_(m.read(2, width), m.terms.const(width - 1, width))
    m.write(0, _rotated(m.terms, m.read(1, width), count, left=False))


def _shift_x(op: str) -> Semantics:
    def carry_out(m: Machine) -> None:
        width = m.width(0)
        count = m.terms.and_(m.read(2, width), m.terms.const(width - 1, width))
        m.write(0, m.terms.apply(op, m.read(1, width), count))

    return carry_out


# Bits


def _bextr(m: Machine) -> None:
    width, terms = m.width(0), m.terms
    value, control = m.read(1, width), m.read(2, width)
    start = terms.zext(terms.extract(control, 0, 8), width)
    length = terms.zext(terms.extract(control, 8, 8), width)
    mask = terms.sub(terms.apply("shl", terms.const(1, width), length), terms.const(1, width))
    result = terms.and_(terms.apply("lshr", value, start), mask)
    zero = terms.const(0, 1)
    m.set_flags(result=result, cf=zero, of=zero)
    m.state.values["sf"] = terms.arbitrary(1)
    m.write(0, result)


def _bzhi(m: Machine) -> None:
    width, terms = m.width(0), m.terms
    value = m.read(1, width)
    count = terms.zext(terms.extract(m.read(2, width), 0, 8), width)
    mask = terms.sub(terms.apply("shl", terms.const(1, width), count), terms.const(1, width))
    result = terms.and_(value, mask)  # a count of the width or more: a shift to 0, a mask of all ones
    m.set_flags(result=result, cf=terms.ult(terms.const(width - 1, width), count), of=terms.const(0, 1))
    m.write(0, result)


def _andn(m: Machine) -> None:
    width = m.width(0)
    result = m.terms.and_(m.terms.not_(m.read(1, width)), m.read(2, width))
    zero = m.terms.const(0, 1)
    m.set_flags(result=result, cf=zero, of=zero)
    m.write(0, result)


def _bt(m: Machine) -> None:
    if not isinstance(m.operands[0], Register):
        raise m.refuse("bits of memory are not modelled")
    value, terms = m.read(0), m.terms
    count = terms.and_(m.read(1, value.width), terms.const(value.width - 1, value.width))
    zf = m.flag("zf")
    m.set_flags(cf=terms.extract(terms.apply("lshr", value, count), 0, 1))
    m.state.values["zf"] = zf


def _popcnt(m: Machine) -> None:
    value, terms = m.read(1, m.width(0)), m.terms
    result = terms.ones(value, value.width)
    zero = terms.const(0, 1)
    m.set_flags(result=value, cf=zero, of=zero)
    m.state.values["sf"] = zero
    m.write(0, result)


def _first_bit(terms: Terms, value: Term, order: range, none: Term) -> Term:
    """The position in `order` of the first bit that is set; `none` where there is none."""
    result = none
    for number, at in reversed(list(enumerate(order))):
        result = terms.ite(terms.extract(value, at, 1), terms.const(number, value.width), result)
    return result


def _zero_count(leading: bool) -> Semantics:
    def carry_out(m: Machine) -> None:
        value, terms = m.read(1, m.width(0)), m.terms
        width = value.width
        order = range(width - 1, -1, -1) if leading else range(width)
        result = _first_bit(terms, value, order, terms.const(width, width))
        m.set_flags(result=result, cf=terms.eq(value, terms.const(0, width)))
        m.state.values["sf"] = terms.arbitrary(1)
        m.write(0, result)

    return carry_out


def _bit_scan(backward: bool) -> Semantics:
    def carry_out(m: Machine) -> None:
        value, terms = m.read(1, m.width(0)), m.terms
        width = value.width
        result = _first_bit(terms, value, range(width), terms.arbitrary(width))
        if backward:
            count = _first_bit(terms, value, range(width - 1, -1, -1), terms.arbitrary(width))
            result = terms.sub(terms.const(width - 1, width), count)
        m.set_flags(result=value)
        m.state.values["sf"] = terms.arbitrary(1)
        m.write(0, result)

    return carry_out


MNEMONICS: Final[dict[str, Semantics]] = {
    "shl": _shift("shl"), "sal": _shift("shl"), "shr": _shift("lshr"), "sar": _shift("ashr"),
    "rol": _rotate(True), "ror": _rotate(False), "shld": _double_shift(True), "shrd": _double_shift(False),
    "rorx": _rorx, "shlx": _shift_x("shl"), "shrx": _shift_x("lshr"), "sarx": _shift_x("ashr"),
    "bextr": _bextr, "bzhi": _bzhi, "andn": _andn, "bt": _bt, "popcnt": _popcnt,
    "lzcnt": _zero_count(True), "tzcnt": _zero_count(False), "bsf": _bit_scan(False), "bsr": _bit_scan(True),
}  # fmt: skip
