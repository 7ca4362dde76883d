"""Why a run was stopped."""

from enum import IntEnum

import attrs

from flowshunt_ebpf.program import Program


class FaultKind(IntEnum):
    """What a run-time check found. The numbers are those in the machine's state block."""

    ACCESS = 1
    BUDGET = 2
    CALL_DEPTH = 3
    ARGUMENT = 4
    CONTEXT = 5
    CALLBACK = 6
    MACHINE = 7
    POISONED = 8


_TEXT = {
    FaultKind.ACCESS: "it accessed memory that is not its own, at {address:#x}",
    FaultKind.BUDGET: "it used up its budget",
    FaultKind.CALL_DEPTH: "it called more than 8 functions deep",
    FaultKind.ARGUMENT: "argument {argument} of the helper call is not what the helper takes",
    FaultKind.CONTEXT: "the register is not the context pointer that it was taken for",
    FaultKind.CALLBACK: "the callback is no function of the program",
    FaultKind.POISONED: "it reached an instruction that the target has no answer for",
    FaultKind.MACHINE: "the emulated processor stopped: {detail}",
}


@attrs.frozen
class Fault:
    """A stopped run.

    Attributes:
        kind: what went wrong.
        index: the instruction, from 0; -1 where it is not known.
        address: what was to be accessed.
        argument: which argument of the helper, from 1.
        detail: what else is known.
    """

    kind: FaultKind
    index: int = -1
    address: int = 0
    argument: int = 0
    detail: str = ""

    def describe(self, program: Program) -> str:
        """One line for the user."""
        place = program.where(self.index) if self.index >= 0 else f"program {program.name}"
        text = _TEXT[self.kind].format(address=self.address, argument=self.argument, detail=self.detail)
        return f"{place}: stopped: {text}"
