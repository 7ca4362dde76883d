"""Sets of addresses and ports as sorted, disjoint, inclusive intervals."""

from collections.abc import Iterable

Interval = tuple[int, int]
Intervals = tuple[Interval, ...]


def union(intervals: Iterable[Interval]) -> Intervals:
    """Sort and merge."""
    merged: list[Interval] = []
    for low, high in sorted(intervals):
        if merged and low <= merged[-1][1] + 1:
            if high > merged[-1][1]:
                merged[-1] = (merged[-1][0], high)
        else:
            merged.append((low, high))
    return tuple(merged)


def subtract(intervals: Intervals, without: Intervals) -> Intervals:
    """What of `intervals` (sorted, disjoint) is not in `without` (sorted, disjoint)."""
    rest: list[Interval] = []
    holes = list(without)
    at = 0
    for low, high in intervals:
        start = low
        while at < len(holes) and holes[at][1] < start:
            at += 1
        scan = at
        while scan < len(holes) and holes[scan][0] <= high:
            if holes[scan][0] > start:
                rest.append((start, holes[scan][0] - 1))
            start = max(start, holes[scan][1] + 1)
            scan += 1
        if start <= high:
            rest.append((start, high))
    return tuple(rest)
