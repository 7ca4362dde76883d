"""What keywords write into while a rule is read, and how a keyword is declared."""

from collections.abc import Callable

import attrs

from flowshunt_ids.rules.classification import Classification
from flowshunt_ids.rules.lexer import RuleError
from flowshunt_ids.rules.rule import Flowbits, FlowCondition, Header, Match, PacketTest, Threshold


@attrs.define
class RuleBuilder:
    """A rule in the making. Keywords set these in the order in which they stand in the rule.

    needs_packet, needs_stream: what a keyword says of where the payload is looked for.
    """

    header: Header
    classification: Classification
    sid: int | None = None
    gid: int = 1
    rev: int | None = None
    message: str | None = None
    category: str = ""
    class_priority: int | None = None
    priority: int | None = None
    references: list[str] = attrs.field(factory=list)
    metadata: dict[str, list[str]] = attrs.field(factory=dict)
    payload: list[Match] = attrs.field(factory=list)
    tests: list[PacketTest] = attrs.field(factory=list)
    flow: FlowCondition | None = None
    flowbits: list[Flowbits] = attrs.field(factory=list)
    threshold: Threshold | None = None
    noalert: bool = False
    bypass: bool = False
    alert: bool = False
    needs_packet: bool = False
    needs_stream: bool = False
    first_only: bool = True
    warnings: list[str] = attrs.field(factory=list)


@attrs.frozen
class Keyword:
    """How a keyword is read.

    read: takes the builder and the value ("" where there is none); raises `RuleError`.
    value: True where a value is needed, False where there must be none, None where it may be left out.
    first_only: whether a rule with it may still be one that is looked at only once for each direction of a flow.
    """

    read: Callable[[RuleBuilder, str], None]
    value: bool | None = True
    first_only: bool = False


def whole_number(text: str, what: str, minimum: int, maximum: int) -> int:
    """A decimal number within limits. Raises `RuleError`."""
    stripped = text.strip()
    digits = stripped[1:] if stripped[:1] == "-" else stripped
    if not digits.isascii() or not digits.isdigit() or len(digits) > 12:
        raise RuleError(f"{what}: {stripped!r} is not a number")
    value = int(stripped)
    if not minimum <= value <= maximum:
        raise RuleError(f"{what}: {value} is outside {minimum} to {maximum}")
    return value


def unquoted(text: str, what: str) -> tuple[str, bool]:
    """The text between the quotes of a value, and whether a '!' stood before it. Raises `RuleError`."""
    negated = text.startswith("!")
    inner = text[1:].strip() if negated else text
    if len(inner) < 2 or inner[0] != '"' or inner[-1] != '"':
        raise RuleError(f"{what}: the value must stand in double quotes")
    return inner[1:-1], negated
