"""Symbolic execution of code that only goes forward: one pass, paths merged where they meet.

A state is a table of terms: registers, flags and memory by name. Where two paths meet, each name's value is chosen by
the condition of the path; so a run of n instructions with any jumps costs n steps.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import attrs

from flowshunt_ebpf.kops.validation.term import Term
from flowshunt_ebpf.kops.validation.terms import Terms

MEMORY_KEY: Final = "memory"


class NotModelledError(Exception):
    """Code that validation has no semantics for: it is not proved. The text says what and where."""


@attrs.frozen
class Access:
    """One access to memory: `size` bytes from `address` on, where `guard` is 1."""

    guard: Term
    address: Term
    size: int
    write: bool


@attrs.define
class State:
    """Where a path stands.

    Attributes:
        terms: makes terms.
        values: every register, flag, and the memory under `MEMORY_KEY`.
        guard: 1 where this path is taken.
        accesses: what all paths of the run have accessed so far; shared by its states.
    """

    terms: Terms
    values: dict[str, Term]
    guard: Term
    accesses: list[Access]

    def load(self, address: Term, size: int) -> Term:
        """Read memory, little-endian."""
        self.accesses.append(Access(self.guard, address, size, write=False))
        return self.terms.load(self.values[MEMORY_KEY], address, size)

    def save(self, address: Term, value: Term) -> None:
        """Write memory, little-endian."""
        self.accesses.append(Access(self.guard, address, value.width // 8, write=True))
        self.values[MEMORY_KEY] = self.terms.save(self.values[MEMORY_KEY], address, value)


@attrs.frozen
class Jump:
    """A jump to a place in the code; `condition`: 1 where it is taken, None: always."""

    target: int
    condition: Term | None = None


class Path:
    """One way through the code: which conditional jumps it takes, in the order in which it meets them.

    Args:
        plan: what the first ones do; those that come after fall through.
    """

    def __init__(self, plan: Sequence[bool]) -> None:
        self._plan = plan
        self.taken: list[bool] = []
        self.conditions: list[Term] = []

    def choose(self, terms: Terms, condition: Term) -> bool:
        """Whether the jump at hand is taken. Adds what that means to `conditions`."""
        take = self._plan[len(self.taken)] if len(self.taken) < len(self._plan) else False
        self.taken.append(take)
        self.conditions.append(condition if take else terms.not_(condition))
        return take

    def following(self) -> tuple[bool, ...] | None:
        """The plan of the next way through, after this one was gone; None: it was the last."""
        plan = list(self.taken)
        while plan and plan[-1]:
            plan.pop()
        return (*plan[:-1], True) if plan else None


Step = Callable[[State], Jump | None]


def run_forward(
    terms: Terms, values: Mapping[str, Term], steps: Sequence[tuple[int, Step]], end: int, path: Path | None = None
) -> tuple[dict[str, Term], list[Access]]:
    """Execute steps at ascending places; gives the values at `end`, and what was accessed. `path`: go one way alone.

    Raises NotModelledError for a jump that does not go forward to a step or to the end.
    """
    places = [place for place, _ in steps] + [end]
    known = set(places)
    one = terms.const(1, 1)
    accesses: list[Access] = []
    waiting: dict[int, list[State]] = {places[0]: [State(terms, dict(values), one, accesses)]}
    for (place, step), following in zip(steps, places[1:], strict=True):
        arrived = waiting.pop(place, None)
        if arrived is None:
            continue
        state = _merge(terms, arrived)
        jump = step(state)
        if jump is None:
            waiting.setdefault(following, []).append(state)
            continue
        if jump.target not in known or jump.target <= place:
            raise NotModelledError(
                f"the jump at {place} goes to {jump.target}: not forward to code in the run, or its end"
            )
        if path is not None and jump.condition is not None:
            place_after = jump.target if path.choose(terms, jump.condition) else following
            waiting.setdefault(place_after, []).append(state)
            continue
        if jump.condition is None:
            waiting.setdefault(jump.target, []).append(state)
            continue
        taken = attrs.evolve(state, values=dict(state.values), guard=terms.and_(state.guard, jump.condition))
        state.guard = terms.and_(state.guard, terms.not_(jump.condition))
        waiting.setdefault(jump.target, []).append(taken)
        waiting.setdefault(following, []).append(state)
    final = _merge(terms, waiting[end])
    return final.values, accesses


def _merge(terms: Terms, states: list[State]) -> State:
    whole = states[0]
    for other in states[1:]:
        values = {name: terms.ite(other.guard, other.values[name], value) for name, value in whole.values.items()}
        whole = State(terms, values, terms.or_(whole.guard, other.guard), whole.accesses)
    return whole


def initial(terms: Terms, widths: Mapping[str, int], shared: Mapping[str, Any] | None = None) -> dict[str, Term]:
    """A state in which everything may have any value. `shared`: values for some names instead."""
    values = {name: terms.var(name, width) for name, width in widths.items()}
    values[MEMORY_KEY] = terms.memory()
    return {**values, **(shared or {})}
