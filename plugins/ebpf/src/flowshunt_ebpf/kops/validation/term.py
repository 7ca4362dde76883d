"""Bit-vector terms: what validation reasons about, neutral to any solver.

A term has a width in bits; 1-bit terms serve as truth values. Memory is a term of its own sort (width 0): an array from
64-bit addresses to bytes. Operators are those of SMT-LIB's theories of bit vectors and arrays: a shift by the width or
more gives 0 (`ashr`: the sign), `udiv` by 0 gives all ones and `urem` by 0 the dividend.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

MEMORY: Final = 0
"""The width that stands for the sort of memory."""


class Term:
    """One node. Made by `terms.Terms` alone, which keeps equal nodes one object, so that `is` compares."""

    __slots__ = ("args", "base", "name", "number", "offset", "op", "value", "width")

    def __init__(self, op: str, width: int, args: "tuple[Term, ...]", value: int, name: str, number: int) -> None:
        self.op = op
        self.width = width
        self.args = args
        self.value = value  # of a constant; the lowest bit of an extract
        self.name = name  # of a variable
        self.number = number  # ascending: arguments come before what they are arguments of
        # As an address: a term (none: the address is a constant) and a constant to add to it.
        self.base: Term | None = self
        self.offset = 0
        if op == "const":
            self.base, self.offset = None, value
        elif op == "add" and args[1].op == "const":
            self.base, self.offset = args[0], args[1].value

    def __repr__(self) -> str:
        if self.op == "const":
            return f"{self.value:#x}:{self.width}"
        if self.op == "var":
            return self.name
        inside = ", ".join(map(repr, self.args))
        return f"{self.op}({inside}{f', {self.value}, {self.width}' if self.op == 'extract' else ''})"


def signed(value: int, width: int) -> int:
    """The signed reading of `width` bits."""
    half = 1 << (width - 1)
    return (value ^ half) - half


def _shift_left(width: int, a: int, b: int) -> int:
    return a << b if b < width else 0


def _shift_right(width: int, a: int, b: int) -> int:
    return a >> b if b < width else 0


def _shift_right_signed(width: int, a: int, b: int) -> int:
    return signed(a, width) >> min(b, width - 1)


BINARY: Final[Mapping[str, Callable[[int, int, int], int]]] = {
    "add": lambda w, a, b: a + b,
    "sub": lambda w, a, b: a - b,
    "mul": lambda w, a, b: a * b,
    "and": lambda w, a, b: a & b,
    "or": lambda w, a, b: a | b,
    "xor": lambda w, a, b: a ^ b,
    "shl": _shift_left,
    "lshr": _shift_right,
    "ashr": _shift_right_signed,
    "udiv": lambda w, a, b: a // b if b else -1,
    "urem": lambda w, a, b: a % b if b else a,
}
"""Operators on two terms of one width, which the result has too: (width, left, right) to the value, before masking."""

COMPARISONS: Final[Mapping[str, Callable[[int, int, int], int]]] = {
    "eq": lambda w, a, b: a == b,
    "ult": lambda w, a, b: a < b,
    "slt": lambda w, a, b: signed(a, w) < signed(b, w),
}
"""Operators on two terms of one width that give one bit."""


def compute(op: str, width: int, values: Sequence[int], arg_widths: Sequence[int], low: int = 0) -> int:
    """The value of an operator on values. `low`: the lowest bit of an extract."""
    mask = (1 << width) - 1
    if op in BINARY:
        return BINARY[op](width, values[0], values[1]) & mask
    if op in COMPARISONS:
        return int(COMPARISONS[op](arg_widths[0], values[0], values[1]))
    if op == "not":
        return ~values[0] & mask
    if op == "neg":
        return -values[0] & mask
    if op == "concat":
        return values[0] << arg_widths[1] | values[1]
    if op == "extract":
        return values[0] >> low & mask
    if op == "zext":
        return values[0]
    if op == "sext":
        return signed(values[0], arg_widths[0]) & mask
    assert op == "ite", op
    return values[1] if values[0] else values[2]


class Valuation:
    """Concrete values for variables, and what terms come to under them.

    Args:
        variables: values by name; those that are not named are 0.
        byte_at: the initial memory: address to byte.
    """

    def __init__(self, variables: Mapping[str, int], byte_at: Callable[[int], int]) -> None:
        self._variables = variables
        self.byte_at = byte_at
        self._known: dict[int, int | dict[int, int]] = {}

    def value(self, term: Term) -> int:
        """The value of a term that is not memory."""
        result = self._evaluate(term)
        assert isinstance(result, int)
        return result

    def written(self, memory: Term) -> dict[int, int]:
        """The bytes that a memory holds beyond the initial ones, by address."""
        result = self._evaluate(memory)
        assert isinstance(result, dict)
        return result

    def _evaluate(self, term: Term) -> int | dict[int, int]:
        known = self._known
        stack = [term]
        while stack:
            top = stack[-1]
            if top.number in known:
                stack.pop()
                continue
            missing = [arg for arg in top.args if arg.number not in known]
            if missing:
                stack.extend(missing)
                continue
            known[top.number] = self._node(top)
            stack.pop()
        return known[term.number]

    def _node(self, term: Term) -> int | dict[int, int]:
        op = term.op
        if op == "const":
            return term.value
        if op == "var":
            return {} if term.width == MEMORY else self._variables.get(term.name, 0) & ((1 << term.width) - 1)
        values = [self._known[arg.number] for arg in term.args]
        if op == "store":
            memory, address, byte = values
            assert isinstance(memory, dict) and isinstance(address, int) and isinstance(byte, int)
            return {**memory, address: byte}
        if op == "select":
            memory, address = values
            assert isinstance(memory, dict) and isinstance(address, int)
            return memory[address] if address in memory else self.byte_at(address)
        if op == "ite" and term.width == MEMORY:
            return values[1] if values[0] else values[2]
        return compute(op, term.width, values, [arg.width for arg in term.args], term.value)  # type: ignore[arg-type]
