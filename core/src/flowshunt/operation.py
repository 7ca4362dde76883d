"""The contract of extended operations: an idiom of eBPF, its proof sequence, and its native forms."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, runtime_checkable

import attrs

from flowshunt.insn import Instruction

PAYLOAD_BITS = 52
"""Bits of payload that a site's sidecar instruction carries: dst (4), offset (16), immediate (32)."""


@attrs.frozen
class Site:
    """A run of instructions that a recognizer proposes to replace: [start, start + length), and the payload."""

    start: int
    length: int
    payload: int


@attrs.frozen
class NativeEmit:
    """How one architecture carries out an operation.

    Attributes:
        assembly: payload to assembly text (Intel syntax on x86-64), over the registers that `register` names.
        features: CPU features that it needs, such as "bmi2" or "movbe"; none: every CPU of the architecture.
        cost: its cost in machine instructions, for the profitability policy.
    """

    assembly: Callable[[int, Callable[[int, int], str]], str]
    features: frozenset[str] = frozenset()
    cost: float = 1.0


@runtime_checkable
class ExtendedOperation(Protocol):
    """What a plugin returns from `flowshunt_extended_operations`."""

    @property
    def name(self) -> str:
        """The operation's name, lower case."""

    @property
    def summary(self) -> str:
        """One line on what it computes."""

    @property
    def max_instructions(self) -> int:
        """The most instructions that a proof sequence has."""

    @property
    def emits(self) -> Mapping[str, Sequence[NativeEmit]]:
        """Native forms by architecture ("x86_64", "arm64"), the preferred first; none: the site stays lowered."""

    def check_payload(self, payload: int) -> str | None:
        """Why a payload (an integer of at most 52 bits) is not valid; None where it is."""

    def proof_sequence(self, payload: int) -> Sequence[Instruction]:
        """The plain eBPF that says what a site with this payload does. Pure."""

    def recognize(self, program: Sequence[Instruction]) -> Sequence[Site]:
        """Sites in a program where the idiom stands. Proposals only: none is trusted."""
