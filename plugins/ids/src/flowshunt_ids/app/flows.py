"""What is kept of a flow and of a transaction while it is parsed, and what a batch gives."""

from typing import Any

import attrs

from flowshunt_ids.app.contract import AppProtocol

NEVER = 1 << 40
"""A turn that does not come."""


class TransactionState:
    """What rules made of one direction of a transaction.

    scanned: a bit for each scan that is done with; open: the rules that may still match, with a bit for each step that
    holds; closed: those that matched or will not.
    """

    __slots__ = ("closed", "final", "open", "scanned")

    def __init__(self) -> None:
        self.scanned = 0
        self.open: dict[int, int] = {}
        self.closed: set[int] = set()
        self.final = False


class AppFlow:
    """A flow's parser, and what there is before it has one.

    recent: for each direction what of the stream came since it was last looked at as a chunk.
    """

    __slots__ = (
        "asked",
        "begins",
        "held",
        "held_bytes",
        "known",
        "others",
        "over",
        "parser",
        "protocol",
        "recent",
        "recent_bytes",
        "wished",
    )

    def __init__(self) -> None:
        self.protocol = ""
        self.parser: Any = None
        self.held: list[tuple[int, bytes | int]] = []
        self.held_bytes = 0
        self.begins = [b"", b""]
        self.over = [False, False]
        self.known = [NEVER, NEVER]
        self.asked: set[int] = set()
        self.others: dict[int, str] = {}
        self.wished = False
        self.recent: tuple[list[bytes], list[bytes]] = ([], [])
        self.recent_bytes = [0, 0]


@attrs.define
class Found:
    """A rule that matched in a transaction, at a row (-1: the end of the flow)."""

    row: int
    slot: int
    direction: int
    rule: int
    transaction: Any

    @property
    def number(self) -> int:
        """The transaction's number."""
        return int(self.transaction.number)


@attrs.define
class Told:
    """A transaction that is complete, for EVE."""

    row: int
    slot: int
    protocol: str
    transaction: Any


@attrs.define(eq=False)
class Outcome:
    """What a batch gave. stop: flows whose data is of no more interest; wishes: flows that ask to be bypassed."""

    found: list[Found] = attrs.field(factory=list)
    told: list[Told] = attrs.field(factory=list)
    stop: list[int] = attrs.field(factory=list)
    wishes: list[tuple[int, int, AppProtocol, Any]] = attrs.field(factory=list)
