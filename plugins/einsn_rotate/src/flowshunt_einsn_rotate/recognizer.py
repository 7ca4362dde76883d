"""Where rotates stand: two opposite shifts of one value by counts that add up to the width, joined by OR."""

from collections.abc import Callable, Iterator
from typing import Final

from flowshunt.insn import ALU, ALU64, AND, LSH, OR, RSH, SUB, X
from flowshunt.payload import NO_REGISTER, Layout, Values
from flowshunt.recognition import (
    Computed,
    Found,
    Match,
    Pattern,
    View,
    alu,
    constant,
    either,
    find,
    low32,
    negate,
    value,
)

_COUNT: Final = either(value("n"), low32(value("n")))


def _masked(count: Pattern, bits: int) -> Pattern:
    """A count, or its low bits: shifts take their count modulo the width anyhow."""
    return either(count, *(alu(AND, count, constant(wanted=bits - 1), bits=width) for width in (32, 64)))


def _negative(bits: int) -> Pattern:
    """-n or width - n, computed in 32 or 64 bits."""
    negated = (negate(_COUNT, bits=width) for width in (32, 64))
    subtracted = (alu(SUB, constant(wanted=bits), _COUNT, bits=width) for width in (32, 64))
    return _masked(either(*negated, *subtracted), bits)


def _pattern(bits: int, left: Pattern, right: Pattern) -> Computed:
    x = value("x") if bits == 64 else either(value("x"), low32(value("x")))
    return alu(OR, alu(LSH, x, left, bits=bits), alu(RSH, x, right, bits=bits), bits=bits)


_CONSTANT: Final = {bits: _pattern(bits, constant("left"), constant("right")) for bits in (32, 64)}
_TO_LEFT: Final = {bits: _pattern(bits, _masked(_COUNT, bits), _negative(bits)) for bits in (32, 64)}
_TO_RIGHT: Final = {bits: _pattern(bits, _negative(bits), _masked(_COUNT, bits)) for bits in (32, 64)}


def recognize(view: View, layout: Layout, admissible: Callable[[Values], str | None]) -> Iterator[Match]:
    """Every rotate for whose registers there is a proof sequence."""
    for bits in (32, 64):
        for found in find(view, _CONSTANT[bits]):
            left, right = found.numbers["left"], found.numbers["right"]
            if left + right == bits:
                fields = {"count": found.registers["x"], "negated": NO_REGISTER, "amount": left}
                yield from _made(layout, admissible, found, bits, by_register=0, right=0, **fields)
        if not view.having((ALU64 if bits == 64 else ALU) | LSH | X):
            continue
        for right, patterns in enumerate((_TO_LEFT, _TO_RIGHT)):
            for found in find(view, patterns[bits]):
                fields = {"count": found.registers["n"], "negated": _negated(found), "amount": 0}
                yield from _made(layout, admissible, found, bits, by_register=1, right=right, **fields)


def _shifted(found: Found) -> int:
    """The temporary for one of the shifts: the register that held the value, where it is lost anyhow."""
    usable = [r for r in found.temporaries if r != found.registers.get("n", -1)]
    x = found.registers["x"]
    return x if x in usable else next(iter(usable), NO_REGISTER)


def _negated(found: Found) -> int:
    """The temporary for the negated count: the count's register, where it is lost anyhow."""
    usable = [r for r in found.temporaries if r != _shifted(found)]
    count = found.registers["n"]
    return count if count in usable else next(iter(usable), NO_REGISTER)


def _made(
    layout: Layout, admissible: Callable[[Values], str | None], found: Found, bits: int, **fields: int
) -> Iterator[Match]:
    values = {"dst": found.dst, "src": found.registers["x"], "shifted": _shifted(found), "wide": int(bits == 64)}
    if values["shifted"] == values["dst"] or fields["negated"] == values["dst"]:
        return
    payload = layout.encode(**values, **fields)
    if admissible(layout.decode(payload)) is None:
        yield found.match(payload)
