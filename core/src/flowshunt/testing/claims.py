"""Claims: what a contract says of an object's behaviour, each as a check that passes or says what is wrong."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import attrs
import numpy as np


@attrs.frozen
class Claim:
    """One claim about one object.

    Attributes:
        subject: what it is about, such as "NIC model xl710".
        name: its name, unique within a contract.
        statement: the claim in one sentence.
        function: called with `case`; returns, or raises AssertionError with what is wrong.
    """

    subject: str
    name: str
    statement: str
    function: Callable[[Any], None] = attrs.field(repr=False)
    case: Any = attrs.field(repr=False)

    def check(self) -> None:
        """Raise where the claim does not hold: AssertionError, or whatever the object raised."""
        self.function(self.case)

    def __str__(self) -> str:
        return f"{self.subject} {self.name}".replace(" ", "-")


@attrs.frozen
class Outcome:
    """A claim, and why it does not hold; None: it holds."""

    claim: Claim
    reason: str | None

    @property
    def passed(self) -> bool:
        """Whether the claim holds."""
        return self.reason is None


def make_claims(subject: str, case: Any, functions: Sequence[Callable[[Any], None]]) -> tuple[Claim, ...]:
    """One claim a function: named after it, stated by the first line of its docstring."""
    return tuple(
        Claim(
            subject,
            function.__name__.replace("_", "-"),
            (function.__doc__ or function.__name__).strip().splitlines()[0].rstrip("."),
            function,
            case,
        )
        for function in functions
    )


def examine(claims: Iterable[Claim]) -> Iterator[Outcome]:
    """Check claims one by one. Whatever an object raises is a reason; only KeyboardInterrupt passes through."""
    for claim in claims:
        try:
            claim.check()
        except KeyboardInterrupt:
            raise
        except AssertionError as error:
            yield Outcome(claim, " ".join(str(error).split()) or "the assertion failed")
        except BaseException as error:
            yield Outcome(claim, f"it raised {type(error).__name__}: {' '.join(str(error).split())}")
        else:
            yield Outcome(claim, None)


def must(holds: Any, why: str) -> None:
    """Raise AssertionError, also under `python -O`."""
    if not holds:
        raise AssertionError(why)


def check_column(what: str, column: Any, dtype: Any, count: int | None) -> None:
    """A one-dimensional array of a dtype, with `count` rows (None: any number)."""
    must(isinstance(column, np.ndarray), f"{what} is {type(column).__name__}, not an array")
    must(column.dtype == dtype, f"{what} has the dtype {column.dtype}, not {np.dtype(dtype)}")
    must(column.ndim == 1, f"{what} has {column.ndim} dimensions")
    if count is not None:
        must(len(column) == count, f"{what} has {len(column)} rows, not {count}")
