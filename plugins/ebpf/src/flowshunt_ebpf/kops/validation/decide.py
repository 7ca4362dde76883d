"""Deciding an obligation: both solvers must find that none of its claims can fail."""

import random
import time
from collections.abc import Callable, Sequence
from typing import Final

import attrs

from flowshunt_ebpf.kops.validation.proof import Proof, Refusal
from flowshunt_ebpf.kops.validation.solvers import NEVER, SOLVERS, SOMETIMES, solve, version
from flowshunt_ebpf.kops.validation.term import Term, Valuation
from flowshunt_ebpf.kops.validation.terms import Terms

TIMEOUT: Final = 10.0
"""Seconds that a solver has for one obligation."""

LEMMA_TIMEOUT: Final = 1.0
"""Seconds that a solver has to find that two ranges of memory lie apart."""


@attrs.frozen
class Claim:
    """Something that must never fail.

    Attributes:
        fails: 1 where it fails.
        words: what a failure means, with a place {0}, {1}... for the value of each of `shown`.
        shown: terms whose values make a failure plain.
    """

    fails: Term
    words: str
    shown: tuple[Term, ...] = ()


@attrs.frozen
class Obligation:
    """Claims over one set of terms.

    Attributes:
        claims: what must never fail,
        given: where this is 1.
        inputs: the variables to name in a counterexample.
        memories: two memories that must be equal and that only arrays can tell apart, and who left the second; None:
            the claims say it without arrays.
        next_plan: the code's next way through (see `forward.Path`), another obligation; None: there is none.
    """

    claims: tuple[Claim, ...]
    given: Term
    inputs: tuple[Term, ...]
    memories: tuple[Term, Term, str] | None = None
    next_plan: tuple[bool, ...] | None = None


@attrs.frozen
class Asked:
    """One solver, as what builds an obligation sees it.

    Attributes:
        terms: makes its terms.
        never: whether it finds, in short time, that a term is never 1.
    """

    terms: Terms
    never: Callable[[Term], bool]


PATHS: Final = 32
"""Ways through machine code that are looked at, at most."""


def decide(
    kind: str,
    digest: bytes,
    build: Callable[[Asked, tuple[bool, ...]], Obligation],
    *,
    solvers: Sequence[str] = SOLVERS,
    timeout: float = TIMEOUT,
) -> Proof | Refusal:
    """Prove an obligation, or say why not.

    `build` is called for each solver and each way through the code: solvers share nothing but how terms are made.
    Raises CapabilityError where a solver is not installed.
    """
    began = time.perf_counter()
    for solver in solvers:
        refusal = _each_path(solver, build, timeout)
        if refusal is not None:
            reason, values = refusal
            return Refusal(kind, reason, values, time.perf_counter() - began)
    seconds = time.perf_counter() - began
    return Proof(kind, digest, tuple(version(solver) for solver in solvers), seconds)


def _each_path(
    solver: str, build: Callable[[Asked, tuple[bool, ...]], Obligation], timeout: float
) -> tuple[str, dict[str, int]] | None:
    terms = Terms()
    asked = Asked(terms, lambda term: solve(solver, term, (), min(timeout, LEMMA_TIMEOUT)).verdict == NEVER)
    ends = time.monotonic() + timeout
    plan: tuple[bool, ...] | None = ()
    count = 0
    while plan is not None:
        count += 1
        if count > PATHS:
            return f"there are more than {PATHS} ways through the machine code", {}
        obligation = build(asked, plan)
        refusal = _ask(solver, terms, obligation, max(0.001, ends - time.monotonic()))
        if refusal is not None:
            return refusal
        plan = obligation.next_plan
    return None


def _ask(solver: str, terms: Terms, obligation: Obligation, timeout: float) -> tuple[str, dict[str, int]] | None:
    """Why a solver does not find an obligation proved; None where it does."""
    if obligation.memories is not None and (found := _tried(obligation)):
        return found
    claims = obligation.claims
    never = terms.const(0, 1)
    whole = terms.and_(obligation.given, terms.or_(never, *(claim.fails for claim in claims)))
    wanted = [*obligation.inputs]
    for claim in claims:
        wanted += [claim.fails, *claim.shown]
    answer = solve(solver, whole, wanted, timeout)
    if answer.verdict == NEVER:
        return None
    if answer.verdict != SOMETIMES:
        return f"{solver} found neither a proof nor a counterexample in time", {}
    values = dict(zip((i.name for i in obligation.inputs), answer.values, strict=False))
    at = len(obligation.inputs)
    for claim in claims:
        fails, shown = answer.values[at], answer.values[at + 1 : at + 1 + len(claim.shown)]
        at += 1 + len(claim.shown)
        if fails:
            text = claim.words.format(*(f"{value:#x}" for value in shown))
            given = ", ".join(f"{name} = {value:#x}" for name, value in values.items())
            return f"{solver} found a counterexample: {text}{f' (with {given})' if given else ''}", values
    raise AssertionError("a counterexample in which nothing fails")


_TRIALS: Final = 40
_NEAR: Final = (0, 1, 2, 3, 4, 6, 7, 8, 9, 12, 15, 16, 20, 24, 31, 32, 40, 48, 64, 100, 128, 192, 256)


def _tried(obligation: Obligation) -> tuple[str, dict[str, int]] | None:
    """A counterexample among states in which all registers point near each other.

    Where ranges overlap, solvers take seconds to find what a few attempts do.
    """
    assert obligation.memories is not None
    wanted, found, who = obligation.memories
    chosen = random.Random(_TRIALS)
    for _ in range(_TRIALS):
        values = {i.name: 0x10000 + chosen.choice((1, -1)) * chosen.choice(_NEAR) for i in obligation.inputs}
        valuation = Valuation(values, lambda address: address * 29 + (address >> 8) & 0xFF)
        if not valuation.value(obligation.given):
            continue
        left, right = valuation.written(wanted), valuation.written(found)
        for address in sorted({*left, *right}):
            before = valuation.byte_at(address)
            should, does = left.get(address, before), right.get(address, before)
            if should != does:
                given = ", ".join(f"{name} = {value:#x}" for name, value in values.items())
                text = f"the byte at {address:#x} should become {should:#x}, {who} makes it {does:#x}"
                return f"an attempt found a counterexample: {text} (with {given})", values
    return None
