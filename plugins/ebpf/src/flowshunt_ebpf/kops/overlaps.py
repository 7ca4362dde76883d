"""Choosing among sites that overlap: those that save most together."""

from bisect import bisect_right
from collections.abc import Callable, Sequence

from flowshunt_ebpf.kops.candidate import Candidate


def without_overlaps(found: Sequence[Candidate], weight: Callable[[Candidate], float]) -> list[Candidate]:
    """The candidates of greatest total weight whose runs don't overlap, ascending.

    Weighted interval scheduling; among equal weights the one that ends first. Candidates without gain are worth a
    little, so that they are taken where nothing else is.
    """
    ordered = sorted(found, key=lambda c: (c.piece.end, c.piece.start))
    ends = [c.piece.end for c in ordered]
    best = [0.0]
    take: list[bool] = []
    for number, candidate in enumerate(ordered):
        start = candidate.piece.start
        # Empty runs at one place don't overlap each other's neighbours, but two of them would be put there twice.
        before = bisect_right(ends, start, 0, number)
        if candidate.piece.end == start:
            while before and ordered[before - 1].piece.start == ordered[before - 1].piece.end == start:
                before -= 1
        with_it = best[before] + max(weight(candidate), 1e-6)
        take.append(with_it > best[number])
        best.append(max(with_it, best[number]))
    chosen = []
    number = len(ordered)
    while number:
        number -= 1
        if not take[number]:
            continue
        candidate = ordered[number]
        chosen.append(candidate)
        start = candidate.piece.start
        number = bisect_right(ends, start, 0, number)
        if candidate.piece.end == start:
            while number and ordered[number - 1].piece.start == ordered[number - 1].piece.end == start:
                number -= 1
    chosen.reverse()
    return chosen
