"""What the x86-64 string and vector instructions mean that native forms use, on terms (Intel SDM, volume 2)."""

from typing import Final

from flowshunt_ebpf.kops.validation.term import Term
from flowshunt_ebpf.kops.validation.x86_64_decode import VECTORS, Register
from flowshunt_ebpf.kops.validation.x86_64_machine import Machine, Semantics

STRING_LIMIT: Final = 4096
"""The most elements that one `rep` may move or fill."""


def _repeated(m: Machine) -> int:
    count = m.register("rcx")
    if count.op != "const" or count.value > STRING_LIMIT:
        raise m.refuse(f"rcx is no constant of at most {STRING_LIMIT} there")
    return count.value


def _rep_movs(size: int) -> Semantics:
    def carry_out(m: Machine) -> None:
        count, terms = _repeated(m), m.terms
        source, target = m.register("rsi"), m.register("rdi")
        for n in range(count):
            m.state.save(terms.plus(target, size * n), m.state.load(terms.plus(source, size * n), size))
        values = m.state.values
        values["rsi"], values["rdi"] = terms.plus(source, size * count), terms.plus(target, size * count)
        values["rcx"] = terms.const(0, 64)

    return carry_out


def _rep_stos(size: int) -> Semantics:
    def carry_out(m: Machine) -> None:
        count, terms = _repeated(m), m.terms
        target, value = m.register("rdi"), m.register("rax", 8 * size)
        for n in range(count):
            m.state.save(terms.plus(target, size * n), value)
        m.state.values["rdi"] = terms.plus(target, size * count)
        m.state.values["rcx"] = terms.const(0, 64)

    return carry_out


def _put_vector(m: Machine, position: int, value: Term, *, clear: bool) -> None:
    """Write a vector register's low bits; `clear` (VEX forms): the bits above become zero."""
    operand = m.operands[position]
    if not isinstance(operand, Register):
        m.write(position, value)
        return
    if operand.full not in VECTORS:
        raise m.refuse("operands of this form are not modelled")
    if clear:
        m.state.values[operand.full] = m.terms.zext(value, 256)
    else:
        m.put_register(operand.full, value)


def _move_vector(clear: bool) -> Semantics:
    return lambda m: _put_vector(m, 0, m.read(1, m.width(0)), clear=clear)


def _move_scalar(width: int, *, clear: bool) -> Semantics:
    """movd, movq: between the low bits of a vector register and a general register or memory."""

    def carry_out(m: Machine) -> None:
        source, target = m.operands[1], m.operands[0]
        if isinstance(source, Register):
            if source.full not in VECTORS and source.width != width:
                raise m.refuse("operands of these widths are not modelled")
            value = m.register(source.full, width)
        else:
            value = m.read(1, width)
        if isinstance(target, Register) and target.full in VECTORS:
            _put_vector(m, 0, m.terms.zext(value, 128), clear=clear)
        else:
            m.write(0, value)

    return carry_out


def _vector_logic(op: str, *, clear: bool) -> Semantics:
    def carry_out(m: Machine) -> None:
        width = m.width(0)
        left, right = (m.read(1, width), m.read(2, width)) if clear else (m.read(0), m.read(1, width))
        if width == 128 and not clear and not isinstance(m.operands[1], Register):
            raise m.refuse("it faults on memory that is not aligned")
        _put_vector(m, 0, m.terms.apply(op, left, right), clear=clear)

    return carry_out


def _unpack_low(clear: bool) -> Semantics:
    def carry_out(m: Machine) -> None:
        if not all(isinstance(operand, Register) and operand.width == 128 for operand in m.operands):
            raise m.refuse("operands of this form are not modelled")
        first = len(m.operands) - 2
        low, high = (m.terms.extract(m.read(first + n), 0, 64) for n in range(2))
        _put_vector(m, 0, m.terms.concat(high, low), clear=clear)

    return carry_out


def _broadcast(width: int) -> Semantics:
    def carry_out(m: Machine) -> None:
        source = m.operands[1]
        value = m.register(source.full, width) if isinstance(source, Register) else m.read(1, width)
        _put_vector(m, 0, m.terms.concat(*([value] * (m.width(0) // width))), clear=True)

    return carry_out


def _zero_upper(m: Machine) -> None:
    for name in VECTORS:
        m.state.values[name] = m.terms.zext(m.register(name, 128), 256)


MNEMONICS: Final[dict[str, Semantics]] = {
    **{f"rep movs{letter}": _rep_movs(size) for letter, size in (("b", 1), ("w", 2), ("d", 4), ("q", 8))},
    **{f"rep stos{letter}": _rep_stos(size) for letter, size in (("b", 1), ("w", 2), ("d", 4), ("q", 8))},
    **{name: _move_vector(False) for name in ("movdqu", "movups", "lddqu")},
    **{name: _move_vector(True) for name in ("vmovdqu", "vmovups", "vlddqu")},
    "movd": _move_scalar(32, clear=False), "movq": _move_scalar(64, clear=False),
    "vmovd": _move_scalar(32, clear=True), "vmovq": _move_scalar(64, clear=True),
    "pxor": _vector_logic("xor", clear=False), "xorps": _vector_logic("xor", clear=False),
    "vpxor": _vector_logic("xor", clear=True), "vxorps": _vector_logic("xor", clear=True),
    "punpcklqdq": _unpack_low(False), "vpunpcklqdq": _unpack_low(True),
    "vpbroadcastb": _broadcast(8), "vpbroadcastq": _broadcast(64), "vzeroupper": _zero_upper,
}  # fmt: skip
