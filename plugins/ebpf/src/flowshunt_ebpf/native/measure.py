"""Comparing runners by time: interleaved rounds, the empty program's time subtracted, ratios with their spread."""

import statistics
from collections.abc import Callable, Mapping
from typing import Final

import attrs

EMPTY: Final = bytes.fromhex("b700000000000000 9500000000000000")
"""r0 = 0; exit: what calling a program costs by itself."""

Timer = Callable[[int], float]
"""Runs something a number of times; gives ns per run."""


@attrs.frozen
class Timing:
    """What a runner took.

    Attributes:
        name: the runner.
        ns: median ns per run, without the floor.
        floor: median ns per run of the empty program.
        ratio: how many times as fast as the base runner, the median over rounds; 1 for the base.
        low, high: the ratio's quartiles.
    """

    name: str
    ns: float
    floor: float
    ratio: float
    low: float
    high: float


def repeats(timer: Timer, seconds: float) -> int:
    """How often to run something so that it takes about so long."""
    count = 1
    while count < 1 << 30:
        spent = timer(count) * count / 1e9
        if spent > seconds / 8:
            return max(1, int(count * seconds / spent))
        count *= 4
    return count


def compare(
    programs: Mapping[str, Timer], floors: Mapping[str, Timer], *, rounds: int = 9, seconds: float = 0.02
) -> list[Timing]:
    """Time programs against each other; the first is the base of the ratios.

    Each round times every program and its floor, so that a change of the machine's speed hits all alike. `seconds`:
    about how long one measurement takes. A time that does not exceed its floor counts as a tenth of a nanosecond.
    """
    times = {name: repeats(timer, seconds) for name, timer in programs.items()}
    floor_times = {name: repeats(timer, seconds) for name, timer in floors.items()}
    net: dict[str, list[float]] = {name: [] for name in programs}
    base: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(rounds):
        for name, timer in programs.items():
            floor = floors[name](floor_times[name])
            spent = timer(times[name])
            base[name].append(floor)
            net[name].append(max(0.1, spent - floor))
    first = next(iter(programs))
    out = []
    for name in programs:
        ratios = sorted(reference / own for reference, own in zip(net[first], net[name], strict=True))
        low, high = (ratios[0], ratios[-1]) if rounds < 4 else _quartiles(ratios)
        ns, floor = statistics.median(net[name]), statistics.median(base[name])
        out.append(Timing(name, ns, floor, statistics.median(ratios), low, high))
    return out


def _quartiles(values: list[float]) -> tuple[float, float]:
    low, _, high = statistics.quantiles(values, n=4)
    return low, high
