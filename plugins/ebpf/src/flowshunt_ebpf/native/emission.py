"""What both code generators share: the text under construction, and the questions that they ask of the image."""

from collections.abc import Callable
from typing import Final

import attrs

from flowshunt.insn import CALL_K, MAY_GOTO, PSEUDO_CALL
from flowshunt_ebpf.maps.map import Map
from flowshunt_ebpf.native.image import Image

TAIL_CALL: Final = 12
MAP_LOOKUP: Final = 1
LOOP: Final = 181

CHECK_CALL: Final = -1
"""The "helper" that checks a helper's arguments, for `Emission.helper_address`."""


@attrs.define(eq=False)
class Emission:
    """A program's text under construction.

    Attributes:
        image: the program.
        checked: whether every access, call and callback is checked at run time: there is no verdict.
        budget: whether backward jumps and calls are charged to the run's budget.
        features: CPU features that may be used, such as "bmi2".
        helper_address: the address of a helper's native code, by number.
        native: whether helpers run on the same processor: then maps are called by the addresses in their headers.
        lines: the text.
        index: the instruction at hand.
        function: the number of the function at hand, in `image.functions`.
        chained: whether programs tail-call each other: from inside functions they can come deeper than one program can.
        routines: maps whose lookup is written out, by address.
        saved: the registers that the function at hand has pushed, in order.
        padding: bytes that it has taken from the native stack besides.
    """

    image: Image
    checked: bool
    budget: bool
    features: frozenset[str]
    helper_address: Callable[[int], int]
    native: bool = True
    chained: bool = False
    lines: list[str] = attrs.field(factory=list)
    index: int = 0
    function: int = 0
    routines: dict[int, Map] = attrs.field(factory=dict)
    saved: tuple[str, ...] = ()
    padding: int = 0

    @property
    def main(self) -> bool:
        """Whether the function at hand is the main program."""
        return self.function == 0

    def emit(self, *lines: str) -> None:
        """Append lines."""
        self.lines.extend(lines)

    def charge(self, index: int) -> int:
        """What an instruction costs of the budget each time it is reached: the length of a backward jump, 1 a call."""
        return charge(self.image, index)

    def used(self, register: int) -> bool:
        """Whether the function at hand changes a register, itself or by a tail call: main programs save none."""
        image = self.image
        for i in image.instructions[image.functions[self.function] : image.ends[self.function]]:
            if i.opcode == CALL_K and not i.src and i.imm == TAIL_CALL:
                return True
            if i.dst == register and i.opcode & 7 not in (2, 3, 5, 6):
                return True
            if i.opcode & 7 == 3 and i.opcode & 0xE0 == 0xC0 and register in (i.src, i.dst):
                return True
        start, end = image.functions[self.function], image.ends[self.function]
        return any(start <= site.start < end and site.changes >> register & 1 for site in image.sites)

    def calls(self) -> bool:
        """Whether the function at hand calls anything."""
        image = self.image
        span = image.instructions[image.functions[self.function] : image.ends[self.function]]
        return any(i.opcode == CALL_K for i in span)

    def counts(self) -> bool:
        """Whether the function at hand has a may_goto."""
        image = self.image
        span = image.instructions[image.functions[self.function] : image.ends[self.function]]
        return any(i.opcode == MAY_GOTO for i in span)


def charge(image: Image, index: int) -> int:
    """What instruction `index` costs of a run's budget each time it is reached.

    A jump that can go backward costs its length in instructions, whether taken or not; a local call costs 1. All else
    is free: a run can't be longer than its budget times the program's length.
    """
    target = image.targets[index]
    if target < 0:
        return 0
    i = image.instructions[index]
    if i.opcode == CALL_K and i.src == PSEUDO_CALL:
        return 1
    return index - target + 1 if target <= index else 0
