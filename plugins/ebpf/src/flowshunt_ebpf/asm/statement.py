"""What both parsers give and both printers take: instructions whose targets may still be names."""

from enum import Enum

import attrs

from flowshunt.insn import Instruction


class Field(Enum):
    """The field of an instruction that a name fills."""

    OFFSET = "offset"  # a jump's distance in slots, 16 bits
    IMMEDIATE = "imm"  # a long jump's distance in slots, 32 bits
    CALL = "call"  # a local call's distance in slots
    FUNCTION = "function"  # a function's distance in slots, in a 64-bit load
    MAP = "map"  # a map's index, in a 64-bit load
    MAP_VALUE = "map value"  # a map's index; the upper half of the immediate is set already
    SYMBOL = "symbol"  # a map or a function, whichever has the name, in a 64-bit load


@attrs.frozen
class Reference:
    """A name that is to be resolved, and the column where it stands."""

    name: str
    field: Field
    column: int


@attrs.frozen
class Statement:
    """One instruction as written.

    Attributes:
        reference: the name that fills one of its fields; None: it is complete.
    """

    instruction: Instruction
    line: int
    column: int
    reference: Reference | None = None
