"""Run Python functions on unknown integers, along every path, and let two solvers prove what they return.

A function that takes ints is called with `Number`s. Where it asks whether something is so (`if`, `and`, `max`,
`while`), each answer that the numbers allow is followed by a run of its own, so that the paths together are all that
the function does. What holds of every path's result holds of the function: of its very code, not of a model of it.

Python's integers have no width; a `Number` is a bit-vector with room to spare, and that no operation leaves this room
is proved with each claim. Loops must end by themselves; a function that calls on the numbers anything but operators,
`bit_length`, `min` and `max` fails with a TypeError.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import attrs
import z3

ROOM: Final = 160
"""Bits of a number, unless the explorer is given another count: enough for products of 64-bit values."""

MAX_PATHS: Final = 20_000


class Number:
    """An unknown integer."""

    __slots__ = ("explorer", "term")

    def __init__(self, explorer: "Explorer", term: Any) -> None:
        self.explorer = explorer
        self.term = term

    def _of(self, other: Any) -> Any:
        if isinstance(other, Number):
            return other.term
        if isinstance(other, Truth):
            return other.number().term
        if isinstance(other, int):
            return z3.BitVecVal(int(other), self.explorer.room)
        raise TypeError(f"{type(other).__name__} with an unknown integer")

    def _new(self, term: Any, *fits: Any) -> "Number":
        self.explorer.obligations.extend(fits)
        return Number(self.explorer, term)

    def _truth(self, term: Any) -> "Truth":
        return Truth(self.explorer, term)

    def __add__(self, other: Any) -> "Number":
        a, b = self.term, self._of(other)
        return self._new(a + b, z3.BVAddNoOverflow(a, b, True), z3.BVAddNoUnderflow(a, b))

    def __sub__(self, other: Any) -> "Number":
        a, b = self.term, self._of(other)
        return self._new(a - b, z3.BVSubNoOverflow(a, b), z3.BVSubNoUnderflow(a, b, True))

    def __rsub__(self, other: Any) -> "Number":
        return Number(self.explorer, self._of(other)) - self

    def __mul__(self, other: Any) -> "Number":
        a, b = self.term, self._of(other)
        limit = 1 << (self.explorer.room // 2 - 1)  # an operator for this overflow is not in every solver
        return self._new(a * b, *(z3.And(n >= -limit, n < limit) for n in (a, b)))

    def __floordiv__(self, other: Any) -> "Number":
        a, b = self.term, self._of(other)
        quotient, rest = a / b, z3.SRem(a, b)
        return self._new(z3.If(z3.And(rest != 0, (rest < 0) != (b < 0)), quotient - 1, quotient), b != 0)

    def __rfloordiv__(self, other: Any) -> "Number":
        return Number(self.explorer, self._of(other)) // self

    def __mod__(self, other: Any) -> "Number":
        return self - (self // other) * other

    def __rmod__(self, other: Any) -> "Number":
        return Number(self.explorer, self._of(other)) % self

    def __neg__(self) -> "Number":
        return 0 - self

    def __invert__(self) -> "Number":
        return self._new(~self.term)

    def __and__(self, other: Any) -> "Number":
        return self._new(self.term & self._of(other))

    def __or__(self, other: Any) -> "Number":
        return self._new(self.term | self._of(other))

    def __xor__(self, other: Any) -> "Number":
        return self._new(self.term ^ self._of(other))

    def __lshift__(self, other: Any) -> "Number":
        a, b = self.term, self._of(other)
        return self._new(a << b, z3.And(b >= 0, b < self.explorer.room, (a << b) >> b == a))

    def __rlshift__(self, other: Any) -> "Number":
        return Number(self.explorer, self._of(other)) << self

    def __rshift__(self, other: Any) -> "Number":
        a, b = self.term, self._of(other)
        return self._new(a >> b, b >= 0)

    def __rrshift__(self, other: Any) -> "Number":
        return Number(self.explorer, self._of(other)) >> self

    __radd__ = __add__
    __rmul__ = __mul__
    __rand__ = __and__
    __ror__ = __or__
    __rxor__ = __xor__

    def __lt__(self, other: Any) -> "Truth":
        return self._truth(self.term < self._of(other))

    def __le__(self, other: Any) -> "Truth":
        return self._truth(self.term <= self._of(other))

    def __gt__(self, other: Any) -> "Truth":
        return self._truth(self.term > self._of(other))

    def __ge__(self, other: Any) -> "Truth":
        return self._truth(self.term >= self._of(other))

    def __eq__(self, other: object) -> Any:
        return self._truth(self.term == self._of(other))

    def __ne__(self, other: object) -> Any:
        return self._truth(self.term != self._of(other))

    def __hash__(self) -> int:
        return id(self)

    def __bool__(self) -> bool:
        return bool(self != 0)

    def bit_length(self) -> "Number":
        """As of int."""
        size = self.explorer.room
        magnitude = z3.If(self.term < 0, -self.term, self.term)
        length = z3.BitVecVal(0, size)
        for bit in range(size):
            length = z3.If(z3.Extract(bit, bit, magnitude) == 1, z3.BitVecVal(bit + 1, size), length)
        return self._new(length)


class Truth:
    """Whether something is so, where that depends on unknown integers."""

    __slots__ = ("explorer", "term")

    def __init__(self, explorer: "Explorer", term: Any) -> None:
        self.explorer = explorer
        self.term = term

    def __bool__(self) -> bool:
        return self.explorer.choose(self.term)

    def __eq__(self, other: object) -> Any:
        return Truth(self.explorer, self.term == as_term(other))

    def __ne__(self, other: object) -> Any:
        return Truth(self.explorer, self.term != as_term(other))

    def __hash__(self) -> int:
        return id(self)

    def number(self) -> Number:
        """1 where it is so, else 0."""
        room = self.explorer.room
        return Number(self.explorer, z3.If(self.term, z3.BitVecVal(1, room), z3.BitVecVal(0, room)))


@attrs.frozen
class Path:
    """One way through a function.

    Attributes:
        condition: a solver's term: that the numbers lead here.
        result: what it returns.
        fits: a solver's term: that no number on the way outgrew its room.
    """

    condition: Any
    result: Any
    fits: Any


class Explorer:
    """Unknown integers, and runs of functions on them."""

    def __init__(self, room: int = ROOM) -> None:
        self.room = room
        self.obligations: list[Any] = []
        self.assumptions: list[Any] = []
        self._given: list[bool] = []
        self._taken: list[bool] = []
        self._open: list[bool] = []
        self._terms: list[Any] = []
        self._solver: Any = None

    def number(self, name: str, low: int, high: int) -> Number:
        """An unknown integer from `low` to `high`."""
        term = z3.BitVec(name, self.room)
        self.assumptions += [term >= low, term <= high]
        return Number(self, term)

    def assume(self, *claims: Any) -> None:
        """Take as given: comparisons of numbers, or solver's terms."""
        self.assumptions += map(as_term, claims)

    def choose(self, term: Any) -> bool:
        """The answer to a question on the path that is being followed."""
        if self._solver is None:
            raise TypeError("an unknown integer is asked outside a run")
        plain = z3.simplify(term)  # only to see whether it depends on anything: it has operators of z3's own
        if z3.is_true(plain) or z3.is_false(plain):
            return bool(z3.is_true(plain))
        at = len(self._taken)
        if at < len(self._given):
            answer, other = self._given[at], False
        else:
            answer, other = self._possible(term), True
            other = answer and self._possible(z3.Not(term))
        self._taken.append(answer)
        self._open.append(other)
        claim = term if answer else z3.Not(term)
        self._terms.append(claim)
        self._solver.add(claim)
        return answer

    def _possible(self, term: Any) -> bool:
        return self._solver.check(term) != z3.unsat

    def paths(self, function: Callable[[], Any]) -> list[Path]:
        """Every way through a function that the assumptions allow."""
        found: list[Path] = []
        pending: list[list[bool]] = [[]]
        while pending:
            self._given = pending.pop()
            self._taken, self._open, self._terms, self.obligations = [], [], [], []
            self._solver = z3.Solver()
            self._solver.add(*self.assumptions)
            try:
                result = function()
            finally:
                self._solver = None
            found.append(Path(_all(self._terms), result, _all(self.obligations)))
            if len(found) > MAX_PATHS:
                raise RuntimeError(f"more than {MAX_PATHS} paths")
            for at in range(len(self._given), len(self._taken)):
                if self._open[at]:
                    pending.append([*self._taken[:at], not self._taken[at]])
        return found

    def prove(self, paths: Iterable[Path], claim: Callable[[Any], Any]) -> None:
        """Prove of every path that its numbers fit and that `claim` holds of its result, with both solvers.

        `claim` gives a comparison, a solver's term or a bool; the parts of a conjunction (`every`) are proved one by
        one, which is easier. Raises AssertionError with values that refute it.
        """
        wrong: list[list[Any]] = []
        for path in paths:
            parts = [path.fits, *_parts(as_term(claim(path.result)))]
            for number, part in enumerate(parts):
                if number == len(wrong):
                    wrong.append([])
                wrong[number].append(z3.And(path.condition, z3.Not(part)))
        for cases in wrong:
            self._refute(cases)

    def _refute(self, cases: Sequence[Any]) -> None:
        solver = z3.Solver()
        solver.add(*self.assumptions, z3.Or(z3.BoolVal(False), *cases))
        answer = solver.check()
        assert answer == z3.unsat, f"z3: {answer}: {solver.model() if answer == z3.sat else solver.reason_unknown()}"
        other = check_with_bitwuzla(solver.to_smt2())
        assert other == "unsat", f"bitwuzla: {other}, where z3 says unsat"


def _parts(term: Any) -> list[Any]:
    if z3.is_and(term):
        return [part for child in term.children() for part in _parts(child)]
    return [term]


def check_with_bitwuzla(script: str) -> str:
    """What Bitwuzla says of an SMT-LIB script's assertions: sat, unsat or unknown."""
    import bitwuzla

    manager = bitwuzla.TermManager()
    options = bitwuzla.Options()
    parser = bitwuzla.Parser(manager, options)
    body = "".join(line for line in script.splitlines(keepends=True) if "(check-sat)" not in line)
    parser.parse("(set-logic QF_BV)\n" + body, True, False)
    result = parser.bitwuzla().check_sat()
    return {bitwuzla.Result.SAT: "sat", bitwuzla.Result.UNSAT: "unsat"}.get(result, "unknown")


def as_term(claim: Any) -> Any:
    """A solver's term for a comparison, a bool or a term."""
    if isinstance(claim, Truth):
        return claim.term
    return z3.BoolVal(claim) if isinstance(claim, bool) else claim


def every(*claims: Any) -> Any:
    """That all hold, without a fork."""
    return _all([as_term(claim) for claim in claims])


def _all(terms: Sequence[Any]) -> Any:
    if len(terms) == 1:  # not every solver reads a conjunction of one
        return terms[0]
    return z3.And(*terms) if terms else z3.BoolVal(True)


def implies(claim: Any, then: Any) -> Any:
    """That the second holds where the first does, without a fork."""
    return z3.Implies(as_term(claim), as_term(then))


def between(low: Any, value: Number, high: Any) -> Any:
    """low <= value <= high, without a fork."""
    return every(value >= low, value <= high)


def member(value: Number, known: Any, mask: Any) -> Any:
    """That a value is in a tnum, without a fork."""
    return as_term(
        (value ^ known) & ~(mask if isinstance(mask, Number) else Number(value.explorer, value._of(mask))) == 0
    )
