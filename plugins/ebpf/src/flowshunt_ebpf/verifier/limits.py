"""How far the analysis goes before it gives up, and how closely it looks. Reaching a limit rejects the program."""

from typing import Final

import attrs

from flowshunt.errors import InputError
from flowshunt_ebpf.native.state import FRAMES


@attrs.frozen
class Limits:
    """Limits with the kernel's values (include/linux/bpf_verifier.h, kernel/bpf/verifier.c), where it has one.

    Attributes:
        instructions: instructions looked at, each as often as it is (BPF_COMPLEXITY_LIMIT_INSNS).
        branches: branches that wait (BPF_COMPLEXITY_LIMIT_JMP_SEQ).
        states: states kept for one instruction; with more, the oldest are forgotten (BPF_COMPLEXITY_LIMIT_STATES).
        frames: nested functions, the program included (MAX_CALL_FRAMES); no more, since machines have no more frames.
        stack: bytes of stack of a chain of calls (MAX_BPF_STACK).
        tail_call_stack: the same, of what calls a function that makes a tail call.
        size: instructions of a program.
        seconds: of the processor's time.
        kept_states: states kept for all instructions together, a bound on memory.
    """

    instructions: int = 1_000_000
    branches: int = 8192
    states: int = 64
    frames: int = attrs.field(default=FRAMES)
    stack: int = 512
    tail_call_stack: int = 256
    size: int = 1_000_000
    seconds: float = 60.0
    kept_states: int = 100_000

    @frames.validator
    def _check_frames(self, _: "attrs.Attribute[int]", value: int) -> None:
        if value > FRAMES:
            raise InputError(f"{value} nested functions", "limit frames", f"programs run with up to {FRAMES}")


@attrs.frozen
class Attempt:
    """How a function is looked at.

    Attributes:
        compared: whether numbers that are only compared matter.
        width: how many states alike are kept at a point before they are joined; 0: none ever are.
    """

    compared: bool
    width: int


FIRST: Final = Attempt(compared=False, width=4)
