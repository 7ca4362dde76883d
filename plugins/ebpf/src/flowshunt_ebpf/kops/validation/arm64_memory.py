"""What ARM64 loads and stores mean, on terms (Arm Architecture Reference Manual, C6.2 and C7.2)."""

from typing import Final

from flowshunt_ebpf.kops.validation.arm64_machine import VECTORS, Machine, Semantics, extended
from flowshunt_ebpf.kops.validation.term import Term, signed


def _transfer(m: Machine, address: Term) -> None:
    """LDR, LDRS, STR and PRFM of one register."""
    terms, opc, size = m.terms, m["opc"], 1 << m["size"]
    if m["V"]:
        size = 16 if opc & 2 else size
        if opc & 2 and m["size"]:
            raise m.refuse("a reserved encoding")
        name = VECTORS[m["t"]]
        if opc & 1:
            m.state.values[name] = terms.zext(m.state.load(address, size), 128)
        else:
            m.state.save(address, terms.extract(m.state.values[name], 0, 8 * size))
        return
    if m["size"] == 3 and opc == 2:  # prfm: no effect on the state, and no fault
        if m.instruction.kind in ("transfer_after", "transfer_before"):
            raise m.refuse("a reserved encoding")
        return
    if opc == 0:
        m.state.save(address, m.read("t", 8 * size))
        return
    if opc > 1 and (m["size"] == 3 or (m["size"] == 2 and opc == 3)):
        raise m.refuse("a reserved encoding")
    value = m.state.load(address, size)
    if opc == 1:
        m.write("t", value)
    else:
        m.write("t", terms.sext(value, 64 if opc == 2 else 32))


def _scale(m: Machine) -> int:
    return 4 if m["V"] and m["opc"] & 2 else m["size"]


def _transfer_scaled(m: Machine) -> None:
    _transfer(m, m.terms.plus(m.read("n", sp=True), m["imm"] << _scale(m)))


def _transfer_unscaled(m: Machine) -> None:
    _transfer(m, m.terms.plus(m.read("n", sp=True), signed(m["imm"], 9)))


def _transfer_register(m: Machine) -> None:
    if not m["option"] & 2:
        raise m.refuse("a reserved extension")
    offset = extended(m, 64, _scale(m) if m["S"] else 0)
    _transfer(m, m.terms.add(m.read("n", sp=True), offset))


def _writing_back(before: bool) -> Semantics:
    def carry_out(m: Machine) -> None:
        if not m["V"] and m["n"] == m["t"] and m["n"] != 31:
            raise m.refuse("base and register are the same: unpredictable")
        base = m.read("n", sp=True)
        moved = m.terms.plus(base, signed(m["imm"], 9))
        _transfer(m, moved if before else base)
        m.write("n", moved, sp=True)

    return carry_out


def _pair(m: Machine) -> None:
    terms, mode = m.terms, m["mode"]
    if m["V"]:
        if m["opc"] == 3:
            raise m.refuse("a reserved encoding")
        size = 4 << m["opc"]
    else:
        if m["opc"] not in (0, 2):
            raise m.refuse()
        size = 8 if m["opc"] else 4
    if mode in (1, 3) and not m["V"] and m["n"] != 31 and m["n"] in (m["t"], m["t2"]):
        raise m.refuse("base and register are the same: unpredictable")
    if m["L"] and m["t"] == m["t2"]:
        raise m.refuse("both registers are the same: unpredictable")
    base = m.read("n", sp=True)
    moved = terms.plus(base, signed(m["imm"], 7) * size)
    start = base if mode == 1 else moved
    places = (("t", start), ("t2", terms.plus(start, size)))
    if m["L"]:
        values = [m.state.load(address, size) for _, address in places]
        for (field, _), value in zip(places, values, strict=True):
            if m["V"]:
                m.state.values[VECTORS[m[field]]] = terms.zext(value, 128)
            else:
                m.write(field, value)
    else:
        for field, address in places:
            whole = m.state.values[VECTORS[m[field]]] if m["V"] else m.read(field, 64)
            m.state.save(address, terms.extract(whole, 0, 8 * size))
    if mode in (1, 3):
        m.write("n", moved, sp=True)


KINDS: Final[dict[str, Semantics]] = {
    "transfer_scaled": _transfer_scaled, "transfer_unscaled": _transfer_unscaled,
    "transfer_register": _transfer_register, "transfer_after": _writing_back(before=False),
    "transfer_before": _writing_back(before=True), "pair": _pair,
}  # fmt: skip
