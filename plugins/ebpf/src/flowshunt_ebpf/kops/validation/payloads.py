"""Payloads to prove beforehand: which values a family of sites may have, spread over all that differ for a proof.

Registers: proofs don't depend on their names (see `canonical`), but on which of them are the same, and on which of them
an instruction names implicitly. So each way to share registers among a payload's fields stands once for each choice of
r4, which lives in rcx, where shifts have their count. Numbers: all of a narrow field, edges of a wide one.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import product
from math import prod
from typing import Final

from flowshunt.operation import ExtendedOperation
from flowshunt.payload import NO_REGISTER, NUMBER, RESULT, SOURCE, TEMPORARIES, TEMPORARY, Field

NARROW: Final = 65
"""Values that a field of numbers may have, for all of them to be taken."""

WORK: Final = 3500
"""Instructions of proof sequences that are proved of an operation beforehand, at most."""

_SEARCHED: Final = 40_000
_POOL: Final = (1, 2, 3, 6, 7, 8, 9, 5)
_COUNT: Final = 4  # r4 lives in rcx
_REGISTERS: Final = (RESULT, SOURCE, TEMPORARY)
_MAGNITUDES: Final = (
    0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30, 32, 34, 36, 38, 40, 48, 54, 56, 64, 72,
    80, 96, 120, 127, 128, 192, 255, 256, 257, 512, 1024, 2048, 4095, 4096, 32760, 65535, 65536,
)  # fmt: skip


def payloads(
    operation: ExtendedOperation, limit: int, wanted: Callable[[int], bool] = lambda payload: True
) -> list[int]:
    """At most `limit` valid payloads of an operation, and no more than `WORK` instructions in all of their proof
    sequences: rather short ones. The same each time. `wanted`: which valid ones may be among them.
    """
    chosen = random.Random(operation.id)
    found = _valid(operation)
    some: list[int] = []
    for payload in chosen.sample(found, len(found)):
        if wanted(payload):
            some.append(payload)
            if len(some) == 4 * limit:
                break
    lengths = {payload: len(operation.proof_sequence(payload)) for payload in some}
    taken: list[int] = []
    work = 0
    for payload in sorted(some, key=lambda payload: chosen.random() * lengths[payload]):
        work += lengths[payload]
        if len(taken) == limit or work > WORK:
            break
        taken.append(payload)
    return sorted(taken)


@lru_cache(maxsize=64)
def _valid(operation: ExtendedOperation) -> tuple[int, ...]:
    """Valid payloads among the combinations of registers and numbers."""
    fields = operation.layout.fields
    registers = [field for field in fields if field.kind in _REGISTERS]
    others = [field for field in fields if field.kind not in _REGISTERS]
    assignments = list(_assignments(registers))
    choices: list[Sequence[object]] = [assignments, *(_values(field) for field in others)]
    chosen = random.Random(operation.id)
    found: dict[int, None] = {}
    for combination in _combinations(choices, chosen):
        assignment, *values = combination
        assert isinstance(assignment, dict)
        named = {**assignment, **{field.name: value for field, value in zip(others, values, strict=True)}}
        try:
            payload = operation.layout.encode(**named)
        except ValueError:
            continue
        if operation.check_payload(payload) is None:
            found[payload] = None
    return tuple(found)


def _combinations(choices: Sequence[Sequence[object]], chosen: random.Random) -> Iterator[tuple[object, ...]]:
    if prod(len(some) for some in choices) <= _SEARCHED:
        yield from product(*choices)
        return
    for _ in range(_SEARCHED):
        yield tuple(chosen.choice(some) for some in choices)


def _values(field: Field) -> list[int]:
    if field.kind == TEMPORARIES:
        return [0, *(sum(1 << r for r in _POOL[-n:]) for n in range(1, 5)), 1 << _COUNT]
    assert field.kind == NUMBER
    if field.high - field.low < NARROW:
        return list(range(field.low, field.high + 1))
    edges = {sign * magnitude + step for magnitude in _MAGNITUDES for sign in (1, -1) for step in (0, 1, -1)}
    edges |= {field.low, field.high, field.low + 1, field.high - 1, field.high // 2}
    return sorted(value for value in edges if field.low <= value <= field.high)


def _assignments(fields: Sequence[Field]) -> Iterator[dict[str, int]]:
    """For each way to share registers, one choice without r4, and one for each that could be r4."""
    for groups in _groupings(len(fields)):
        count = max(groups, default=-1) + 1
        for special in range(-1, count):
            pool = iter(_POOL)
            names = [_COUNT if group == special else next(pool) for group in range(count)]
            given = {
                field.name: names[group] if group >= 0 else NO_REGISTER
                for field, group in zip(fields, groups, strict=True)
            }
            if all(
                value != NO_REGISTER or field.kind == TEMPORARY
                for field, value in zip(fields, given.values(), strict=True)
            ):
                yield given


def _groupings(count: int) -> Iterator[tuple[int, ...]]:
    """Each way to put `count` things into groups, and to leave some out (-1)."""
    if count == 0:
        yield ()
        return
    for before in _groupings(count - 1):
        for group in range(-1, max(before, default=-1) + 2):
            yield (*before, group)
