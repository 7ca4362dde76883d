"""Making terms. Solvers are given terms as they are built here, but for three things that are always done.

Constants are folded; constants that are added to one term are summed up, so that addresses are a base and an offset;
and a load over stores is resolved where the distance of the two addresses is a constant, or their ranges are known to
lie apart: no solver decides arrays of a few dozen stores in useful time otherwise.
"""

from collections.abc import Iterable, Sequence

import attrs

from flowshunt_ebpf.kops.validation.term import COMPARISONS, MEMORY, Term, compute


@attrs.frozen
class Apart:
    """Two ranges of memory that are known not to overlap: [first, first + first_bytes) and the other likewise."""

    first: Term
    first_bytes: int
    second: Term
    second_bytes: int


class Terms:
    """Makes terms. Equal ones are one object."""

    def __init__(self) -> None:
        self._apart: dict[tuple[Term | None, Term | None], list[tuple[int, int, int, int]]] = {}
        self._table: dict[tuple[object, ...], Term] = {}
        self._fresh = 0

    def _node(self, op: str, width: int, args: tuple[Term, ...] = (), value: int = 0, name: str = "") -> Term:
        key = (op, width, value, name, *(arg.number for arg in args))
        found = self._table.get(key)
        if found is None:
            found = self._table[key] = Term(op, width, args, value, name, len(self._table))
        return found

    # Leaves

    def const(self, value: int, width: int) -> Term:
        """A constant; `value` is taken modulo 2^width."""
        return self._node("const", width, value=value & ((1 << width) - 1))

    def var(self, name: str, width: int) -> Term:
        """A variable. The same name is the same variable."""
        return self._node("var", width, name=name)

    def memory(self, name: str = "memory") -> Term:
        """A variable that stands for all of memory."""
        return self._node("var", MEMORY, name=name)

    def arbitrary(self, width: int) -> Term:
        """A variable that nothing else names: what a processor leaves undefined."""
        self._fresh += 1
        return self.var(f"undefined {self._fresh}", width)

    # Operators

    def apply(self, op: str, a: Term, b: Term) -> Term:
        """A binary operator or comparison by its name."""
        assert a.width == b.width and a.width, (op, a.width, b.width)
        width = 1 if op in COMPARISONS else a.width
        if a.op == "const" and b.op == "const":
            return self.const(compute(op, width, (a.value, b.value), (a.width, b.width)), width)
        if op == "sub" and b.op == "const":
            op, b = "add", self.const(-b.value, b.width)
        if op == "add" and b.op == "const":
            if a.op == "add" and a.args[1].op == "const":
                a, b = a.args[0], self.const(a.args[1].value + b.value, b.width)
            if b.value == 0:
                return a
        return self._node(op, width, (a, b))

    def add(self, a: Term, b: Term) -> Term:
        """a + b."""
        return self.apply("add", a, b)

    def sub(self, a: Term, b: Term) -> Term:
        """a - b."""
        return self.apply("sub", a, b)

    def and_(self, *parts: Term) -> Term:
        """All parts and'ed."""
        return self._fold("and", parts)

    def or_(self, *parts: Term) -> Term:
        """All parts or'ed."""
        return self._fold("or", parts)

    def xor(self, a: Term, b: Term) -> Term:
        """a ^ b."""
        return self.apply("xor", a, b)

    def eq(self, a: Term, b: Term) -> Term:
        """1 where both are equal."""
        return self.apply("eq", a, b)

    def ult(self, a: Term, b: Term) -> Term:
        """1 where a < b, unsigned."""
        return self.apply("ult", a, b)

    def slt(self, a: Term, b: Term) -> Term:
        """1 where a < b, signed."""
        return self.apply("slt", a, b)

    def _fold(self, op: str, parts: Sequence[Term]) -> Term:
        whole = parts[0]
        for part in parts[1:]:
            whole = self.apply(op, whole, part)
        return whole

    def not_(self, a: Term) -> Term:
        """Every bit inverted."""
        if a.op == "const":
            return self.const(~a.value, a.width)
        return self._node("not", a.width, (a,))

    def neg(self, a: Term) -> Term:
        """The two's complement."""
        return self.const(-a.value, a.width) if a.op == "const" else self._node("neg", a.width, (a,))

    def concat(self, *parts: Term) -> Term:
        """Parts one after another, the highest bits first."""
        whole = parts[-1]
        for part in reversed(parts[:-1]):
            whole = self._concat(part, whole)
        return whole

    def _concat(self, high: Term, low: Term) -> Term:
        width = high.width + low.width
        if high.op == "const" and low.op == "const":
            return self.const(high.value << low.width | low.value, width)
        return self._node("concat", width, (high, low))

    def extract(self, a: Term, low: int, width: int) -> Term:
        """`width` bits from bit `low`."""
        assert low >= 0 and width > 0 and low + width <= a.width, (low, width, a.width)
        if width == a.width:
            return a
        if a.op == "const":
            return self.const(a.value >> low, width)
        return self._node("extract", width, (a,), value=low)

    def zext(self, a: Term, width: int) -> Term:
        """Zeros put above, up to `width` bits."""
        if width == a.width:
            return a
        if a.op == "const":
            return self.const(a.value, width)
        return self._node("zext", width, (a,))

    def sext(self, a: Term, width: int) -> Term:
        """The sign bit repeated above, up to `width` bits."""
        if width == a.width:
            return a
        if a.op == "const":
            return self.const(compute("sext", width, (a.value,), (a.width,)), width)
        return self._node("sext", width, (a,))

    def ite(self, condition: Term, then: Term, other: Term) -> Term:
        """`then` where the condition is 1, else `other`; of memory too."""
        assert condition.width == 1 and then.width == other.width
        if condition.op == "const":
            return then if condition.value else other
        if then is other:
            return then
        return self._node("ite", then.width, (condition, then, other))

    def ones(self, a: Term, width: int) -> Term:
        """How many bits are set, in `width` bits: sums of neighbours, of their sums, and so on.

        Solvers find the usual ways to count equal to this order in no time, and to others not at all.
        """
        parts = [self.extract(a, at, 1) for at in range(a.width)]
        while len(parts) > 1:
            bits = parts[0].width + 1
            pairs = zip(parts[::2], parts[1::2], strict=True)
            parts = [self.add(self.zext(left, bits), self.zext(right, bits)) for left, right in pairs]
        return self.zext(parts[0], width)

    # Memory

    def select(self, memory: Term, address: Term) -> Term:
        """The byte at an address."""
        while memory.op == "store":
            distance = self.distance(address, memory.args[1])
            if distance == 0:
                return memory.args[2]
            if distance is None and not self._known_apart(address, memory.args[1]):
                break
            memory = memory.args[0]
        return self._node("select", 8, (memory, address))

    def store(self, memory: Term, address: Term, byte: Term) -> Term:
        """Memory with the byte at an address replaced. Stores at one base stand in ascending order, each once."""
        above: list[Term] = []
        under = memory
        while under.op == "store":
            distance = self.distance(address, under.args[1])
            if distance is None or 0 < distance < 1 << 63:
                break
            if distance:
                above.append(under)
            under = under.args[0]
            if not distance:
                break
        memory = self._node("store", MEMORY, (under, address, byte))
        for item in reversed(above):
            memory = self._node("store", MEMORY, (memory, item.args[1], item.args[2]))
        return memory

    def load(self, memory: Term, address: Term, size: int) -> Term:
        """`size` bytes from an address on, little-endian."""
        return self.concat(*(self.select(memory, self.plus(address, n)) for n in reversed(range(size))))

    def save(self, memory: Term, address: Term, value: Term) -> Term:
        """Memory with a value's bytes put at an address, little-endian."""
        for n in range(value.width // 8):
            memory = self.store(memory, self.plus(address, n), self.extract(value, 8 * n, 8))
        return memory

    def plus(self, a: Term, offset: int) -> Term:
        """a + offset."""
        return self.add(a, self.const(offset, a.width)) if offset else a

    def assume_apart(self, ranges: Iterable[Apart]) -> None:
        """From now on take these ranges of memory not to overlap, and no others. Who says so answers for it."""
        self._apart = {}
        for known in ranges:
            first, second = known.first, known.second
            spans = (first.offset, known.first_bytes, second.offset, known.second_bytes)
            self._apart.setdefault((first.base, second.base), []).append(spans)
            self._apart.setdefault((second.base, first.base), []).append((*spans[2:], *spans[:2]))

    def _known_apart(self, a: Term, b: Term) -> bool:
        mask = (1 << a.width) - 1
        return any(
            (a.offset - first) & mask < first_bytes and (b.offset - second) & mask < second_bytes
            for first, first_bytes, second, second_bytes in self._apart.get((a.base, b.base), ())
        )

    @staticmethod
    def distance(a: Term, b: Term) -> int | None:
        """a - b modulo 2^width, where that is a constant for sure."""
        return (a.offset - b.offset) & ((1 << a.width) - 1) if a.base is b.base else None
