"""What ARM64 instructions mean, on terms: registers, flags and memory (Arm Architecture Reference Manual, C6.2).

Loads and stores are in `arm64_memory`, vector instructions in `arm64_vectors`.
"""

from typing import Final

from flowshunt_ebpf.kops.validation import arm64_memory, arm64_vectors
from flowshunt_ebpf.kops.validation.arm64_decode import Decoded, bit_mask
from flowshunt_ebpf.kops.validation.arm64_machine import Machine, Semantics, extended, reversed_bytes
from flowshunt_ebpf.kops.validation.forward import Access, Jump, Path, Step, run_forward
from flowshunt_ebpf.kops.validation.term import Term, signed
from flowshunt_ebpf.kops.validation.terms import Terms


def run_arm64(
    terms: Terms, values: dict[str, Term], code: tuple[Decoded, ...], path: Path | None = None
) -> tuple[dict[str, Term], list[Access]]:
    """Run decoded instructions from the first byte to one past the last.

    `values`: by the names of `WIDTHS`, and memory. `path`: go one way alone.

    Raises NotModelledError, naming the instruction, for what has no semantics here.
    """
    steps: list[tuple[int, Step]] = []
    for instruction in code:
        carry_out = _KINDS[instruction.kind]
        steps.append((instruction.at, _step(instruction, carry_out)))
    if not code:
        return dict(values), []
    return run_forward(terms, values, steps, 4 * len(code), path)


def _step(instruction: Decoded, carry_out: Semantics) -> Step:
    return lambda state: carry_out(Machine(state, instruction))


def _top(terms: Terms, value: Term) -> Term:
    return terms.extract(value, value.width - 1, 1)


def _zero(terms: Terms, value: Term) -> Term:
    return terms.eq(value, terms.const(0, value.width))


# Sums


def _sum(m: Machine, left: Term, right: Term, carry: Term, *, flags: bool) -> Term:
    """AddWithCarry of the manual."""
    terms, width = m.terms, left.width
    if not flags and carry.op == "const":  # without flags a sum or difference is plain
        return terms.sub(left, terms.not_(right)) if carry.value else terms.add(left, right)
    wide = terms.add(terms.add(terms.zext(left, width + 1), terms.zext(right, width + 1)), terms.zext(carry, width + 1))
    result = terms.extract(wide, 0, width)
    if flags:
        overflow = terms.and_(terms.xor(left, result), terms.xor(right, result))
        m.set_flags(_top(terms, result), _zero(terms, result), _top(terms, wide), _top(terms, overflow))
    return result


def _add_or_subtract(m: Machine, left: Term, right: Term, *, sp: bool) -> None:
    terms = m.terms
    operand = terms.not_(right) if m["op"] else right
    result = _sum(m, left, operand, terms.const(m["op"], 1), flags=bool(m["S"]))
    m.write("d", result, sp=sp and not m["S"])


def _add_sub_immediate(m: Machine) -> None:
    _add_or_subtract(m, m.read("n", sp=True), m.terms.const(m["imm"] << 12 * m["sh"], m.width), sp=True)


def _shifted(m: Machine, *, rotate: bool) -> Term:
    if m["imm"] >= m.width:
        raise m.refuse("a reserved shift")
    value, amount = m.read("m"), m.terms.const(m["imm"], m.width)
    if m["shift"] == 3:
        if not rotate:
            raise m.refuse("a reserved shift")
        return rotated(m.terms, value, amount)
    return m.terms.apply(("shl", "lshr", "ashr")[m["shift"]], value, amount)


def rotated(terms: Terms, value: Term, amount: Term) -> Term:
    """A value rotated right by an amount less than its width."""
    width = value.width
    back = terms.and_(terms.neg(amount), terms.const(width - 1, width))
    return terms.or_(terms.apply("lshr", value, amount), terms.apply("shl", value, back))


def _add_sub_shifted(m: Machine) -> None:
    _add_or_subtract(m, m.read("n"), _shifted(m, rotate=False), sp=False)


def _add_sub_extended(m: Machine) -> None:
    if m["imm"] > 4:
        raise m.refuse("a reserved shift")
    _add_or_subtract(m, m.read("n", sp=True), extended(m, m.width, m["imm"]), sp=True)


def _add_sub_carry(m: Machine) -> None:
    right = m.terms.not_(m.read("m")) if m["op"] else m.read("m")
    m.write("d", _sum(m, m.read("n"), right, m.state.values["c"], flags=bool(m["S"])))


# Logic, moves, bit fields


def _logic(m: Machine, right: Term, *, sp: bool) -> None:
    terms = m.terms
    result = terms.apply(("and", "or", "xor", "and")[m["opc"]], m.read("n"), right)
    if m["opc"] == 3:
        m.set_flags(_top(terms, result), _zero(terms, result), terms.const(0, 1), terms.const(0, 1))
    m.write("d", result, sp=sp and m["opc"] != 3)


def _logical_immediate(m: Machine) -> None:
    masks = bit_mask(m["N"], m["imms"], m["immr"], m.width)
    if masks is None or (m["imms"] == 63 and m["N"]):
        raise m.refuse("a reserved immediate")
    _logic(m, m.terms.const(masks[0], m.width), sp=True)


def _logical_shifted(m: Machine) -> None:
    right = _shifted(m, rotate=True)
    _logic(m, m.terms.not_(right) if m["N"] else right, sp=False)


def _move_wide(m: Machine) -> None:
    terms, at = m.terms, 16 * m["hw"]
    if at >= m.width or m["opc"] == 1:
        raise m.refuse("a reserved encoding")
    part = terms.const(m["imm"] << at, m.width)
    if m["opc"] == 3:
        kept = terms.const(~(0xFFFF << at), m.width)
        part = terms.or_(terms.and_(m.read("d"), kept), part)
    m.write("d", part if m["opc"] else terms.not_(part))


def _bitfield(m: Machine) -> None:
    """SBFM, BFM and UBFM of the manual: asr, lsl, lsr, sxt, uxt, bfi, bfxil, sbfx, ubfx are names for them."""
    terms, width, r, s = m.terms, m.width, m["immr"], m["imms"]
    if m["opc"] == 3 or m["N"] != m["sf"] or max(r, s) >= width:
        raise m.refuse("a reserved encoding")
    value = m.read("n")
    if s >= r:
        field, at = terms.extract(value, r, s - r + 1), 0
    else:
        field, at = terms.extract(value, 0, s + 1), width - r
    if m["opc"] == 1:
        old = m.read("d")
        above = at + field.width
        parts = [terms.extract(old, above, width - above)] if above < width else []
        parts += [field, *([terms.extract(old, 0, at)] if at else [])]
        m.write("d", terms.concat(*parts))
        return
    placed = terms.concat(field, terms.const(0, at)) if at else field
    m.write("d", terms.sext(placed, width) if m["opc"] == 0 else terms.zext(placed, width))


def _extract(m: Machine) -> None:
    low = m["imms"]
    if m["N"] != m["sf"] or low >= m.width:
        raise m.refuse("a reserved encoding")
    m.write("d", m.terms.extract(m.terms.concat(m.read("n"), m.read("m")), low, m.width))


# Conditions


def _compare(m: Machine, right: Term) -> None:
    terms = m.terms
    holds = m.condition(m["cond"])
    old = dict(m.state.values)
    _sum(m, m.read("n"), terms.not_(right) if m["op"] else right, terms.const(m["op"], 1), flags=True)
    for at, name in enumerate("vczn"):
        otherwise = terms.const(m["nzcv"] >> at, 1)
        m.state.values[name] = terms.ite(holds, m.state.values[name], otherwise)
    assert all(m.state.values[name] is old[name] for name in old if name not in "nzcv")


def _compare_register(m: Machine) -> None:
    _compare(m, m.read("m"))


def _compare_immediate(m: Machine) -> None:
    _compare(m, m.terms.const(m["imm"], m.width))


def _select(m: Machine) -> None:
    terms, other = m.terms, m.read("m")
    if m["op"]:
        other = terms.not_(other)
    if m["op2"]:
        other = terms.plus(other, 1)
    m.write("d", terms.ite(m.condition(m["cond"]), m.read("n"), other))


# Registers from registers


def _two_source(m: Machine) -> None:
    terms, opcode = m.terms, m["opcode"]
    left, right = m.read("n"), m.read("m")
    if opcode == 2:
        zero = terms.const(0, m.width)
        m.write("d", terms.ite(terms.eq(right, zero), zero, terms.apply("udiv", left, right)))
        return
    if not 8 <= opcode <= 11:
        raise m.refuse()
    amount = terms.and_(right, terms.const(m.width - 1, m.width))
    if opcode == 11:
        m.write("d", rotated(terms, left, amount))
    else:
        m.write("d", terms.apply(("shl", "lshr", "ashr")[opcode - 8], left, amount))


def _one_source(m: Machine) -> None:
    terms, value, width = m.terms, m.read("n"), m.width
    opcode = m["opcode"]
    if opcode == 0:
        m.write("d", terms.concat(*(terms.extract(value, at, 1) for at in range(width))))
    elif opcode in (1, 2) or (opcode == 3 and width == 64):
        m.write("d", reversed_bytes(terms, value, 8 << opcode))
    elif opcode == 4:
        result = terms.const(width, width)
        for at in range(width):
            result = terms.ite(terms.extract(value, at, 1), terms.const(width - 1 - at, width), result)
        m.write("d", result)
    else:
        raise m.refuse()


def _three_source(m: Machine) -> None:
    terms, kind = m.terms, m["op31"]
    if kind == 0:
        product, addend = terms.apply("mul", m.read("n"), m.read("m")), m.read("a")
    elif kind in (1, 5) and m.width == 64:
        extend = terms.sext if kind == 1 else terms.zext
        product = terms.apply("mul", extend(m.read("n", 32), 64), extend(m.read("m", 32), 64))
        addend = m.read("a")
    else:
        raise m.refuse()
    m.write("d", terms.sub(addend, product) if m["o0"] else terms.add(addend, product))


# Branches


def _branch(m: Machine, bits: int, condition: Term | None = None) -> Jump:
    return Jump(m.instruction.at + 4 * signed(m["imm"], bits), condition)


def _branch_if(m: Machine) -> Jump:
    return _branch(m, 19, m.condition(m["cond"]))


def _branch_zero(m: Machine) -> Jump:
    zero = _zero(m.terms, m.read("t"))
    return _branch(m, 19, m.terms.not_(zero) if m["op"] else zero)


def _branch_bit(m: Machine) -> Jump:
    bit = m.terms.extract(m.read("t", 64), m["b5"] << 5 | m["b40"], 1)
    return _branch(m, 14, bit if m["op"] else m.terms.not_(bit))


def _nop(m: Machine) -> None:
    """Nothing."""


_KINDS: Final[dict[str, Semantics]] = {
    "add_sub_immediate": _add_sub_immediate, "add_sub_shifted": _add_sub_shifted,
    "add_sub_extended": _add_sub_extended, "add_sub_carry": _add_sub_carry,
    "logical_immediate": _logical_immediate, "logical_shifted": _logical_shifted, "move_wide": _move_wide,
    "bitfield": _bitfield, "extract": _extract, "compare_register": _compare_register,
    "compare_immediate": _compare_immediate, "select": _select, "two_source": _two_source,
    "one_source": _one_source, "three_source": _three_source,
    "branch": lambda m: _branch(m, 26), "branch_if": _branch_if, "branch_zero": _branch_zero,
    "branch_bit": _branch_bit, "nop": _nop, **arm64_memory.KINDS, **arm64_vectors.KINDS,
}  # fmt: skip
