"""Payloads of extended operations: named fields in the 52 bits that a site carries.

The first field stands in the lowest bits; bits that no field takes are zero.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import attrs

PAYLOAD_BITS: Final = 52
"""Bits of payload that a site's sidecar instruction carries: dst (4), offset (16), immediate (32)."""

NO_REGISTER: Final = 15
"""The value of a temporary that a site does without."""

NUMBER: Final = "number"
SOURCE: Final = "source"
RESULT: Final = "result"
TEMPORARY: Final = "temporary"
TEMPORARIES: Final = "temporaries"


@attrs.frozen
class Field:
    """A field of a payload.

    Attributes:
        name: an identifier.
        bits: its width.
        low, high: the least and the greatest value; where `low` is negative, it is kept in two's complement.
        kind: "number"; "source" or "result", the number of a register that a site reads or writes; "temporary", one
            whose value after the site is undefined; "temporaries", a set of such, one bit each.
    """

    name: str
    bits: int
    low: int
    high: int
    kind: str = NUMBER

    def why_not(self, value: int) -> str | None:
        """Why the field can't have a value; None where it can."""
        if self.kind == TEMPORARY and value == NO_REGISTER:
            return None
        if not self.low <= value <= self.high:
            return f"{self.name} is {value}, outside {self.low} to {self.high}"
        return None


def number(name: str, bits: int, low: int = 0, high: int | None = None) -> Field:
    """An unsigned number; `high` None: all that the bits hold."""
    return Field(name, bits, low, (1 << bits) - 1 if high is None else high)


def signed(name: str, bits: int) -> Field:
    """A signed number, two's complement."""
    return Field(name, bits, -(1 << (bits - 1)), (1 << (bits - 1)) - 1)


def source(name: str) -> Field:
    """A register that a site reads: r0 to r10."""
    return Field(name, 4, 0, 10, SOURCE)


def result(name: str) -> Field:
    """A register that a site writes: r0 to r9. It may be a source at the same time."""
    return Field(name, 4, 0, 9, RESULT)


def temporary(name: str) -> Field:
    """A register that a site may change and whose value after it is undefined: r0 to r9, or `NO_REGISTER`."""
    return Field(name, 4, 0, 9, TEMPORARY)


def temporaries(name: str) -> Field:
    """A set of registers r0 to r9 that a site may change and whose values after it are undefined; bit n: r n."""
    return Field(name, 10, 0, (1 << 10) - 1, TEMPORARIES)


class Values(Mapping[str, int]):
    """A payload's fields by name, as items and as attributes."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, int]) -> None:
        self._values = dict(values)

    def __getattr__(self, name: str) -> int:
        if name != "_values":
            try:
                return self._values[name]
            except KeyError:
                pass
        raise AttributeError(f"the payload has no field {name}")

    def __getitem__(self, name: str) -> int:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self._values.items())


@attrs.frozen(init=False)
class Layout:
    """How a payload's bits are shared out."""

    fields: tuple[Field, ...]

    def __init__(self, *fields: Field) -> None:
        """Raises ValueError for fields that need more than 52 bits, or share a name."""
        names = [field.name for field in fields]
        if len(set(names)) != len(names):
            raise ValueError(f"two fields of a payload share a name: {', '.join(names)}")
        width = sum(field.bits for field in fields)
        if width > PAYLOAD_BITS:
            raise ValueError(f"the fields of a payload take {width} bits; there are {PAYLOAD_BITS}")
        self.__attrs_init__(tuple(fields))

    @property
    def bits(self) -> int:
        """Bits that the fields take."""
        return sum(field.bits for field in self.fields)

    def encode(self, **values: int) -> int:
        """The payload of values. Raises ValueError for one that is missing, unknown or out of range."""
        payload = at = 0
        for field in self.fields:
            if field.name not in values:
                raise ValueError(f"the field {field.name} has no value")
            value = values[field.name]
            if why := field.why_not(value):
                raise ValueError(why)
            payload |= (value & ((1 << field.bits) - 1)) << at
            at += field.bits
        if len(values) != len(self.fields):
            unknown = sorted(set(values) - {field.name for field in self.fields})
            raise ValueError(f"the payload has no field {', '.join(unknown)}")
        return payload

    def decode(self, payload: int) -> Values:
        """The values of a payload, in range or not."""
        values = {}
        for field in self.fields:
            value = payload & ((1 << field.bits) - 1)
            payload >>= field.bits
            if field.low < 0 and value >> (field.bits - 1):
                value -= 1 << field.bits
            values[field.name] = value
        return Values(values)

    def check(self, payload: int) -> str | None:
        """Why a payload is not one of this layout; None where it is."""
        if not 0 <= payload < 1 << PAYLOAD_BITS:
            return f"{payload:#x} does not fit {PAYLOAD_BITS} bits"
        if payload >> self.bits:
            return f"bits from {self.bits} on are not zero"
        values = self.decode(payload)
        for field in self.fields:
            if why := field.why_not(values[field.name]):
                return why
        lost = self.temporaries(values)
        for field in self.fields:
            if field.kind == RESULT and values[field.name] in lost:
                return f"{field.name} is r{values[field.name]}, which is a temporary too"
        return None

    def temporaries(self, values: Values) -> frozenset[int]:
        """The registers whose values after a site with these values are undefined."""
        found: set[int] = set()
        for field in self.fields:
            value = values[field.name]
            if field.kind == TEMPORARY and value != NO_REGISTER:
                found.add(value)
            elif field.kind == TEMPORARIES:
                found.update(n for n in range(field.bits) if value >> n & 1)
        return frozenset(found)
