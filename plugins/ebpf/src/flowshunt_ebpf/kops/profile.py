"""The policy that measures: families and hot sites on the user's own packets, in interleaved rounds.

What gains more than the noise is kept. The noise is what the program differs from itself, measured as one more variant.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import attrs

from flowshunt_ebpf.kops.optimize import Optimized, Target
from flowshunt_ebpf.kops.policy import Plan, cpu_name, program_digest
from flowshunt_ebpf.kops.rewrite import Place
from flowshunt_ebpf.native.measure import Timing
from flowshunt_ebpf.program import Program

MAX_HOT_SITES: Final = 8
"""Sites that are measured one by one."""

LEAST_GAIN: Final = 0.01
"""What a program must gain at least, as a share, for a family or site to be kept."""

MAX_LOOKS: Final = 3
"""How often what gained in the first round is measured again where the machine was too busy to tell."""

FLOOR: Final = 0.98
"""A choice that makes the program slower than this share of its speed is dropped as a whole."""

BASE: Final = "none"
_AGAIN: Final = "none, again"

Measure = Callable[[Mapping[str, Program]], Mapping[str, Timing]]
"""Times variants of a program against each other in interleaved rounds; the first is the base of the ratios."""

Build = Callable[[frozenset[Place] | None], Optimized]
"""The program with certain sites alone; None: with all."""


@attrs.frozen(eq=False)
class Profile:
    """What was measured, and what it led to.

    Attributes:
        plan: the decision.
        chosen: the program with the sites of the decision.
        timings: every variant's, by name.
    """

    plan: Plan
    chosen: Optimized
    timings: Mapping[str, Timing]


def profile(
    program: Program, build: Build, measure: Measure, target: Target, counts: Sequence[int] | None = None
) -> Profile:
    """Decide which sites of a program to use, by measuring.

    Args:
        program: the plain program.
        build: makes the program with certain sites.
        measure: times variants.
        target: the CPU that it is measured on.
        counts: how often each of the program's instructions runs; None: all sites count as hot.
    """
    everything = build(None)
    places = everything.rewritten.places
    timings: dict[str, Timing] = {}
    if not places:
        return Profile(_plan(program, target, {}, (), 1.0, 0.0), everything, timings)
    families = sorted({place.operation for place in places})
    variants: dict[str, Program] = {BASE: program, _AGAIN: program, "all": everything.program}
    sets: dict[str, frozenset[Place]] = {BASE: frozenset(), "all": frozenset(places)}
    for family in families if len(families) > 1 else []:
        sets[family] = frozenset(place for place in places if place.operation == family)
        variants[family] = build(sets[family]).program
    hot = _hottest(places, counts)
    for number, place in enumerate(hot if len(places) > len(families) else ()):
        name = f"{place.operation} at {place.index}, site {number}"
        sets[name] = frozenset({place})
        variants[name] = build(sets[name]).program
    timings.update(measure(variants))
    noise = _noise(timings[_AGAIN])
    kept = {name for name in sets if name != BASE and _gains(timings[name], noise)}
    mixed = frozenset(place for name in kept if name in families for place in sets[name]) | frozenset(
        place for name in kept if len(sets[name]) == 1 for place in sets[name]
    )
    losing = {
        place
        for name, places_ in sets.items()
        if len(places_) == 1 and timings[name].high < 1 - noise
        for place in places_
    }
    # A second look, at the few choices that are left: single measurements add up, and so do their errors.
    finals = {"all": frozenset(places), "gaining": mixed, "gaining, but for losing sites": mixed - losing}
    for name in [name for name in kept if name in families]:
        finals[name] = sets[name]
    second = {name: build(chosen) for name, chosen in finals.items() if chosen}
    chosen, ratio, used = build(frozenset()), 1.0, frozenset[Place]()
    for _ in range(MAX_LOOKS if kept else 1):
        again = measure({BASE: program, _AGAIN: program, **{name: one.program for name, one in second.items()}})
        noise = _noise(again[_AGAIN])
        timings.update({f"{name}, second round": timing for name, timing in again.items()})
        best = max(second, key=lambda name: again[name].ratio)
        if _gains(again[best], noise) and again[best].ratio >= FLOOR:
            chosen, ratio, used = second[best], again[best].ratio, finals[best]
            break
    shares = {family: timings[family if family in timings else "all"].ratio for family in families}
    ordered = tuple(sorted(used, key=lambda place: (place.index, place.operation, place.payload)))
    return Profile(_plan(program, target, shares, ordered, ratio, noise), chosen, timings)


def _hottest(places: Sequence[Place], counts: Sequence[int] | None) -> list[Place]:
    if counts is None:
        return list(places[:MAX_HOT_SITES])
    run = [place for place in places if counts[place.index]]
    return sorted(run, key=lambda place: -counts[place.index])[:MAX_HOT_SITES]


def _noise(again: Timing) -> float:
    return max(abs(again.ratio - 1), _error(again))


def _error(timing: Timing) -> float:
    """How far a ratio's median may be off: of nine rounds' medians some 95 % lie within half the quartiles' span."""
    return (timing.high - timing.low) / 2


def _gains(timing: Timing, noise: float) -> bool:
    """Whether a variant is faster by more than the noise, its own included."""
    return timing.ratio > 1 + max(noise, LEAST_GAIN, _error(timing))


def _plan(
    program: Program,
    target: Target,
    families: Mapping[str, float],
    sites: tuple[Place, ...],
    ratio: float,
    noise: float,
) -> Plan:
    return Plan(
        program_digest(program),
        program.name,
        target.architecture,
        tuple(sorted(target.features)),
        cpu_name(),
        families,
        sites,
        ratio,
        noise,
    )
