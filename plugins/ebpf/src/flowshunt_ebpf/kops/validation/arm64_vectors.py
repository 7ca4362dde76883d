"""What the ARM64 vector instructions mean that native forms use, on terms (Arm Architecture Reference Manual, C7.2).

Every write to a vector register clears the bits above what it writes.
"""

from typing import Final

from flowshunt_ebpf.kops.validation.arm64_machine import VECTORS, Machine, Semantics, reversed_bytes
from flowshunt_ebpf.kops.validation.term import Term


def _read(m: Machine, field: str) -> Term:
    """The low 64 or all 128 bits of a vector register, by Q."""
    return m.terms.extract(m.state.values[VECTORS[m[field]]], 0, 128 if m["Q"] else 64)


def _write(m: Machine, value: Term) -> None:
    m.state.values[VECTORS[m["d"]]] = m.terms.zext(value, 128)


def _immediate(m: Machine) -> None:
    if m["cmode"] != 0b1110:
        raise m.refuse()
    byte = m["abc"] << 5 | m["defgh"]
    if m["op"]:
        lane = sum(0xFF << 8 * at for at in range(8) if byte >> at & 1)
    else:
        lane = int.from_bytes(bytes([byte]) * 8, "little")
    _write(m, m.terms.const(lane | lane << 64 if m["Q"] else lane, 128 if m["Q"] else 64))


def _lane(m: Machine) -> tuple[int, int]:
    """The bits of a lane and its number, from imm5."""
    imm5 = m["imm5"]
    size = (imm5 & -imm5).bit_length() - 1
    if not 0 <= size <= 3:
        raise m.refuse("a reserved encoding")
    return 8 << size, imm5 >> (size + 1)


def _duplicate(m: Machine) -> None:
    bits, _ = _lane(m)
    whole = 128 if m["Q"] else 64
    if bits == whole:
        raise m.refuse("a reserved encoding")
    _write(m, m.terms.concat(*([m.read("n", bits)] * (whole // bits))))


def _insert(m: Machine) -> None:
    bits, number = _lane(m)
    old, terms, at = m.state.values[VECTORS[m["d"]]], m.terms, bits * number
    parts = [terms.extract(old, at + bits, 128 - at - bits)] if at + bits < 128 else []
    parts += [m.read("n", bits), *([terms.extract(old, 0, at)] if at else [])]
    _write(m, terms.concat(*parts))


def _extract(m: Machine) -> None:
    bits, number = _lane(m)
    if (bits == 64) != bool(m["Q"]):
        raise m.refuse("a reserved encoding")
    m.write("d", m.terms.extract(m.state.values[VECTORS[m["n"]]], bits * number, bits))


def _logic(m: Machine) -> None:
    terms = m.terms
    left, right = _read(m, "n"), _read(m, "m")
    operation = (m["U"], m["size"])
    if operation in ((0, 1), (0, 3)):
        right = terms.not_(right)
    names = {(0, 0): "and", (0, 1): "and", (0, 2): "or", (0, 3): "or", (1, 0): "xor"}
    if operation not in names:
        raise m.refuse()
    _write(m, terms.apply(names[operation], left, right))


def _lanes(m: Machine, value: Term, bits: int) -> list[Term]:
    return [m.terms.extract(value, at, bits) for at in range(0, value.width, bits)]


def _sum(m: Machine, parts: list[Term], width: int) -> Term:
    total = m.terms.const(0, width)
    for part in parts:
        total = m.terms.add(total, m.terms.zext(part, width))
    return total


def _count(m: Machine) -> None:
    counts = [m.terms.ones(byte, 8) for byte in _lanes(m, _read(m, "n"), 8)]
    _write(m, m.terms.concat(*reversed(counts)))


def _add_across(long: bool) -> Semantics:
    def carry_out(m: Machine) -> None:
        bits = 8 << m["size"]
        if m["size"] == 3 or (m["size"] == 2 and not m["Q"]):
            raise m.refuse("a reserved encoding")
        _write(m, _sum(m, _lanes(m, _read(m, "n"), bits), 2 * bits if long else bits))

    return carry_out


def _reverse(m: Machine) -> None:
    operation = m["o0"] << 1 | m["U"]
    if m["size"] or operation > 2:
        raise m.refuse("only lanes of bytes are modelled")
    _write(m, reversed_bytes(m.terms, _read(m, "n"), (64, 32, 16)[operation]))


def _move(m: Machine) -> None:
    """FMOV between a general register and the low bits of a vector register, unchanged."""
    kind = (m["sf"], m["type"], m["rmode"])
    if kind not in ((0, 0, 0), (1, 1, 0)) or m["opcode"] not in (6, 7):
        raise m.refuse()
    if m["opcode"] == 7:
        _write(m, m.read("n"))
    else:
        m.write("d", m.terms.extract(m.state.values[VECTORS[m["n"]]], 0, m.width))


KINDS: Final[dict[str, Semantics]] = {
    "vector_immediate": _immediate, "vector_duplicate": _duplicate, "vector_insert": _insert,
    "vector_extract": _extract, "vector_logic": _logic, "vector_count": _count,
    "vector_add_across": _add_across(long=False), "vector_add_long_across": _add_across(long=True),
    "vector_reverse": _reverse, "vector_move": _move,
}  # fmt: skip
