"""What a register or a stack slot holds: a number, or a pointer of some kind with what is known of it.

Values are never changed once made, so that states share them.
"""

from typing import Any, Final

from flowshunt_ebpf.verifier.scalar import UNKNOWN, Scalar, const, unsigned_range

(
    SCALAR,
    CONTEXT,
    STACK,
    PACKET,
    PACKET_META,
    PACKET_END,
    MAP_VALUE,
    MAP_KEY,
    MAP,
    MEMORY,
    FUNCTION,
    SOCKET,
) = range(12)
"""Kinds of values."""

KIND_NAMES: Final = (
    "a number",
    "the context pointer",
    "a stack pointer",
    "a packet pointer",
    "a pointer to the packet's metadata",
    "the pointer to the packet's end",
    "a pointer to a map value",
    "a pointer to a map key",
    "a map",
    "a pointer to memory",
    "a function",
    "a socket pointer",
)

ZERO: Final = const(0)

SIZE_ID: Final = 1
"""The id of the number that says how many bytes bare memory has."""
FIRST_ID: Final = 2
"""Ids below have a meaning of their own; 0: none."""


class Value:
    """One value.

    Attributes:
        kind: one of the kinds above.
        scalar: the number; of a pointer: the variable part of its offset.
        offset: the fixed part of a pointer's offset, bytes.
        id: numbers with the same id are equal. Pointers to the packet with the same id have the same variable part.
            Pointers that may be null with the same id are null together.
        range: packet: bytes proved from where the variable part leads; memory, map keys: bytes that it has.
        of: stack: the frame's number; maps, values and keys: the map; function: the subprogram's number; socket: its
            `Socket`; memory: whether it may be written (a bool).
        nullable: a pointer that may be null instead.
        reference: what has to be released, by its id; 0: nothing.
    """

    __slots__ = ("id", "kind", "nullable", "of", "offset", "range", "reference", "scalar")

    def __init__(
        self,
        kind: int,
        scalar: Scalar = ZERO,
        offset: int = 0,
        id: int = 0,
        range: int = 0,
        of: Any = None,
        nullable: bool = False,
        reference: int = 0,
    ) -> None:
        self.kind = kind
        self.scalar = scalar
        self.offset = offset
        self.id = id
        self.range = range
        self.of = of
        self.nullable = nullable
        self.reference = reference

    def moved(self, offset: int, scalar: Scalar, id: int, range: int) -> "Value":
        """The same pointer at another place."""
        return Value(self.kind, scalar, offset, id, range, self.of, self.nullable, self.reference)

    def with_id(self, id: int) -> "Value":
        """The same with another id."""
        return Value(self.kind, self.scalar, self.offset, id, self.range, self.of, self.nullable, self.reference)

    def with_range(self, range: int) -> "Value":
        """The same with more or less bytes proved."""
        return Value(self.kind, self.scalar, self.offset, self.id, range, self.of, self.nullable, self.reference)

    def not_null(self) -> "Value":
        """The same, known not to be null."""
        return Value(self.kind, self.scalar, self.offset, self.id, self.range, self.of, False, self.reference)

    def key(self) -> tuple[Any, ...]:
        """All that it consists of, for comparisons."""
        return (
            self.kind, self.scalar, self.offset, self.id, self.range, self.of, self.nullable, self.reference,
        )  # fmt: skip

    def __repr__(self) -> str:
        return f"<{describe(self)}>"


def number(scalar: Scalar, id: int = 0) -> Value:
    """A number."""
    return Value(SCALAR, scalar, 0, id)


NUMBER: Final = Value(SCALAR, UNKNOWN)
"""A number of which nothing is known."""

NULL: Final = Value(SCALAR, ZERO)

UNKNOWN_BYTES: Final = {size: Value(SCALAR, unsigned_range(0, (1 << 8 * size) - 1)) for size in (1, 2, 4)} | {8: NUMBER}
"""A number of which nothing but its bytes is known."""

_CONSTANTS: Final = {n: Value(SCALAR, const(n)) for n in range(-64, 1024)}


def constant(value: int) -> Value:
    """A known number, of any int: its low 64 bits."""
    return _CONSTANTS.get(value) or Value(SCALAR, const(value))


def describe(value: Value | None) -> str:
    """What is known of a value, in words."""
    if value is None:
        return "nothing (it is not initialised)"
    kind = value.kind
    if kind == SCALAR:
        if value.scalar.is_const:
            return f"the number {value.scalar.smin}"
        known = str(value.scalar)
        return "a number of which nothing is known" if known == "any value" else f"a number in {known}"
    text = KIND_NAMES[kind]
    if kind in (MAP_VALUE, MAP_KEY, MAP):
        text = f"{text} of {value.of.name}" if kind != MAP else f"the map {value.of.name}"
    elif kind == MEMORY:
        text = f"a pointer to {value.range} bytes of memory"
    elif kind == FUNCTION:
        return "the address of a function"
    elif kind == STACK:
        text = f"a pointer into the stack of frame {value.of}"
    if value.offset or value.scalar is not ZERO:
        place = f"{value.offset:+d}" if value.offset else ""
        if not value.scalar.is_const or value.scalar.value:
            place += f" plus {value.scalar}"
        text += f" at offset {place.strip().removeprefix('plus ')}"
    if kind in (PACKET, PACKET_META):
        text += f" with {value.range} bytes proved"
    if value.nullable:
        text += " that may be null"
    return text
