"""The domain tried out at a few bits: every concrete result of every operation must be in the abstract one."""

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from flowshunt.insn import (
    ADD,
    AND,
    ARSH,
    DIV,
    JEQ,
    JGE,
    JGT,
    JLE,
    JLT,
    JNE,
    JSET,
    JSGE,
    JSGT,
    JSLE,
    JSLT,
    LSH,
    MOD,
    MOV,
    MUL,
    NEG,
    OR,
    RSH,
    SUB,
    XOR,
)  # fmt: skip
from flowshunt_ebpf.testing.narrow_domain import Domain

OPERATIONS: Final = {
    "add": ADD, "sub": SUB, "mul": MUL, "div": DIV, "mod": MOD, "and": AND, "or": OR, "xor": XOR, "lsh": LSH,
    "rsh": RSH, "arsh": ARSH, "mov": MOV, "neg": NEG,
}  # fmt: skip
CONDITIONS: Final = {
    "jeq": JEQ, "jne": JNE, "jgt": JGT, "jge": JGE, "jlt": JLT, "jle": JLE, "jset": JSET, "jsgt": JSGT, "jsge": JSGE,
    "jslt": JSLT, "jsle": JSLE,
}  # fmt: skip

Value = Any
"""A `Scalar` of a domain that was loaded at another width."""


class Trial:
    """Abstract values of a narrow domain, and what is tried with them.

    Semantics are written here once more, so that nothing is compared with itself.
    """

    def __init__(self, domain: Domain) -> None:
        self.domain = domain
        self.width = domain.width
        self.half = domain.width // 2
        self.ones = (1 << self.width) - 1
        self.low = (1 << self.half) - 1
        self._sets: dict[Value, frozenset[int]] = {}

    # Abstract values

    def values_of(self, a: Value) -> frozenset[int]:
        """The values that a set has, by its fields."""
        known = self._sets.get(a)
        if known is None:
            known = self._sets[a] = frozenset(x for x in range(self.ones + 1) if self._has(a, x))
        return known

    def _has(self, parts: Sequence[int], x: int) -> bool:
        value, mask, umin, umax, smin, smax, low_umin, low_umax, low_smin, low_smax = parts
        low = x & self.low
        return (
            x & ~mask == value
            and umin <= x <= umax
            and smin <= signed(self.width, x) <= smax
            and low_umin <= low <= low_umax
            and low_smin <= signed(self.half, low) <= low_smax
        )

    def random_parts(self, rng: random.Random) -> tuple[int, ...]:
        """Parts that were not refined against each other, and may have nothing in common."""
        mask = rng.getrandbits(self.width) if rng.random() < 0.5 else self.ones
        parts = [rng.getrandbits(self.width) & ~mask, mask]
        for bits in (self.width, self.half):
            for low, high in ((0, (1 << bits) - 1), (-1 << bits - 1, (1 << bits - 1) - 1)):
                bounds = (low, high) if rng.random() < 0.5 else sorted((rng.randint(low, high), rng.randint(low, high)))
                parts += bounds
        return tuple(parts)

    def elements(self, rng: random.Random, count: int) -> list[Value]:
        """Different abstract values, in an order that depends on nothing else."""
        settle = self.domain.scalar_value.settle
        found = dict.fromkeys(settle(*self.random_parts(rng)) for _ in range(count))
        found.pop(None, None)
        return list(found)

    # What must hold

    def settled(self, parts: tuple[int, ...]) -> str | None:
        """Settling keeps exactly the values that are in all parts."""
        result = self.domain.scalar_value.settle(*parts)
        expected = {x for x in range(self.ones + 1) if self._has(parts, x)}
        if result is None:
            return f"settle{parts} is empty" if expected else None
        if lost := expected - self.values_of(result):
            return f"settle{parts} = {result} lost {sorted(lost)}"
        if extra := self.values_of(result) - expected:
            return f"settle{parts} = {result} has {sorted(extra)} too"
        return None

    def unary(self, a: Value) -> Iterator[str]:
        """What is wrong with extensions and byte orders of a set."""
        s = self.domain.scalar
        values = self.values_of(a)
        for bits in range(1, self.width + 1):
            ones = (1 << bits) - 1
            yield from self._lost("zero_extend", (a, bits), s.zero_extend(a, bits), {x & ones for x in values})
            extended = {signed(bits, x & ones) & self.ones for x in values}
            yield from self._lost("sign_extend", (a, bits), s.sign_extend(a, bits), extended)
        yield from self._lost("truncate", (a,), s.truncate(a), {x & self.low for x in values})
        if self.width >= 8:
            for width, kind in itertools.product((self.width // 4, self.half, self.width), ("le", "be", "swap")):
                swapped = {self._swapped(x, width) if kind != "le" else x & ((1 << width) - 1) for x in values}
                yield from self._lost("byte_swap", (a, width, kind), s.byte_swap(a, width, kind), swapped)
        for x in range(self.ones + 1):
            if s.contains(a, x) != (x in values):
                yield f"contains({a}, {x}) is {s.contains(a, x)}"
            if s.includes(a, s.const(x)) != (x in values):
                yield f"includes({a}, {x}) is {s.includes(a, s.const(x))}"

    def _swapped(self, x: int, width: int) -> int:
        octet = self.width // 8
        parts = [x >> octet * at & ((1 << octet) - 1) for at in range(width // octet)]
        return sum(part << octet * at for at, part in enumerate(reversed(parts)))

    def binary(self, a: Value, b: Value) -> Iterator[str]:
        """What is wrong with operations on, and comparisons of, two sets."""
        s = self.domain.scalar
        pairs = list(itertools.product(self.values_of(a), self.values_of(b)))
        for name, op in OPERATIONS.items():
            wide = {self.concrete(self.width, name, x, y) for x, y in pairs}
            yield from self._lost(f"alu64 {name}", (a, b), s.alu64(op, a, b), wide)
            narrow = {self.concrete(self.half, name, x & self.low, y & self.low) for x, y in pairs}
            yield from self._lost(f"alu32 {name}", (a, b), s.alu32(op, a, b), narrow)
        for name in ("sdiv", "smod"):
            wide = {self.concrete(self.width, name, x, y) for x, y in pairs}
            yield from self._lost(f"{name}64", (a, b), getattr(s, f"{name}64")(a, b), wide)
            narrow = {self.concrete(self.half, name, x & self.low, y & self.low) for x, y in pairs}
            yield from self._lost(f"{name}32", (a, b), getattr(s, f"{name}32")(a, b), narrow)
        yield from self._lost("join", (a, b), s.join(a, b), self.values_of(a) | self.values_of(b))
        both = self.values_of(a) & self.values_of(b)
        yield from self._lost("intersect", (a, b), s.intersect(a, b), both)
        if s.includes(a, b) and not self.values_of(b) <= self.values_of(a):
            yield f"includes({a}, {b})"
        for (name, op), wide_jump in itertools.product(CONDITIONS.items(), (True, False)):
            yield from self._compared(name, op, a, b, pairs, wide_jump)

    def _compared(
        self, name: str, op: int, a: Value, b: Value, pairs: list[tuple[int, int]], wide: bool
    ) -> Iterator[str]:
        s = self.domain.scalar
        holding = [p for p in pairs if self.holds(name, *p, wide=wide)]
        failing = [p for p in pairs if not self.holds(name, *p, wide=wide)]
        for function, kept in ((s.refine, holding), (s.refine_not, failing)):
            result = function(op, a, b, wide)
            where = f"{function.__name__} {name}"
            if result is None:
                if kept:
                    yield f"{where}({a}, {b}, {wide}) is None"
                continue
            yield from self._lost(where, (a, b, wide), result[0], {x for x, _ in kept})
            yield from self._lost(where, (a, b, wide), result[1], {y for _, y in kept})
        known = s.decide(op, a, b, wide)
        if (known is True and failing) or (known is False and holding):
            yield f"decide {name}({a}, {b}, {wide}) is {known}"

    def _lost(
        self, name: str, arguments: tuple[Any, ...], result: Value, expected: set[int] | frozenset[int]
    ) -> Iterator[str]:
        lost = expected if result is None else expected - self.values_of(result)
        if lost:
            yield f"{name}{tuple(map(str, arguments))} = {result} lost {sorted(lost)[:8]}"

    def ranges(self, low: int, high: int) -> Iterator[str]:
        """What is wrong with the sets of all values from one to another."""
        s = self.domain.scalar
        values = set(range(low, high + 1))
        yield from self._lost("unsigned_range", (low, high), s.unsigned_range(low, high), values)
        low, high = low - (1 << self.width - 1), high - (1 << self.width - 1)
        values = {x & self.ones for x in range(low, high + 1)}
        yield from self._lost("signed_range", (low, high), s.signed_range(low, high), values)

    # Semantics

    def concrete(self, bits: int, name: str, x: int, y: int) -> int:
        """An operation on values."""
        return _CONCRETE[name](x, y, bits) & ((1 << bits) - 1)

    def holds(self, name: str, x: int, y: int, *, wide: bool) -> bool:
        """A comparison of values."""
        bits = self.width if wide else self.half
        x, y = x & ((1 << bits) - 1), y & ((1 << bits) - 1)
        if name.startswith("js") and name != "jset":
            x, y, name = signed(bits, x), signed(bits, y), "j" + name[2:]
        return {
            "jeq": x == y, "jne": x != y, "jgt": x > y, "jge": x >= y, "jlt": x < y, "jle": x <= y, "jset": x & y != 0,
        }[name]  # fmt: skip


def signed(bits: int, x: int) -> int:
    """The signed reading."""
    return x - (1 << bits) if x >> bits - 1 else x


def _signed_quotient(x: int, y: int, bits: int) -> int:
    a, b = signed(bits, x), signed(bits, y)
    return int(a / b) if b else 0  # small numbers: exact


_CONCRETE: Final[dict[str, Callable[[int, int, int], int]]] = {
    "add": lambda x, y, _: x + y,
    "sub": lambda x, y, _: x - y,
    "mul": lambda x, y, _: x * y,
    "div": lambda x, y, _: x // y if y else 0,
    "mod": lambda x, y, _: x % y if y else x,
    "and": lambda x, y, _: x & y,
    "or": lambda x, y, _: x | y,
    "xor": lambda x, y, _: x ^ y,
    "lsh": lambda x, y, bits: x << y % bits,
    "rsh": lambda x, y, bits: x >> y % bits,
    "arsh": lambda x, y, bits: signed(bits, x) >> y % bits,
    "mov": lambda x, y, _: y,
    "neg": lambda x, y, _: -x,
    "sdiv": _signed_quotient,
    "smod": lambda x, y, bits: signed(bits, x) - signed(bits, y) * _signed_quotient(x, y, bits),
}


def first_wrong(domain: Domain, *, pairs: int, seed: int = 1) -> str | None:
    """The first thing found wrong with a domain: settling, each set by itself, random pairs of sets."""
    trial = Trial(domain)
    rng = random.Random(seed)
    for _ in range(pairs):
        wrong = trial.settled(trial.random_parts(rng))
        if wrong is not None and " too" not in wrong:
            return wrong
    for low in range(trial.ones + 1):
        for wrong in trial.ranges(low, rng.randint(low, trial.ones)):
            return wrong
    elements = trial.elements(rng, 10 * pairs)
    constants = [domain.scalar.const(x) for x in range(trial.ones + 1)]
    for a in [*constants, *elements[:pairs]]:
        for wrong in trial.unary(a):
            return wrong
    for _ in range(pairs):
        a, b = rng.choice(elements), rng.choice(elements if rng.random() < 0.7 else constants)
        for wrong in trial.binary(a, b):
            return wrong
    return None
