"""Sites of extended operations in a lowered program: runs of plain instructions that native code may do otherwise."""

import hashlib
from collections.abc import Sequence
from typing import Final

import attrs

from flowshunt.insn import Instruction, encode

_VERSION: Final = b"native form 1"


@attrs.frozen
class NativeForm:
    """Machine code that was proved to do what a site's instructions do.

    Attributes:
        architecture: "x86_64" or "arm64".
        features: CPU features that it needs.
        code: the bytes; they run wherever they lie.
        token: `proof_token` of exactly what was proved; made by `flowshunt_ebpf.kops.validation` alone.
    """

    architecture: str
    features: frozenset[str]
    code: bytes = attrs.field(repr=False)
    token: bytes = attrs.field(repr=False)


@attrs.frozen
class Site:
    """A run of instructions that is an extended operation's proof sequence.

    Attributes:
        start, length: instruction indices [start, start + length) of the lowered program.
        operation: the operation's name.
        payload: its 52 bits.
        changes: the registers that native code may change, one bit each.
        forms: proved native forms, the preferred first; none: it runs lowered everywhere.
    """

    start: int
    length: int
    operation: str
    payload: int
    changes: int = 0
    forms: tuple[NativeForm, ...] = ()

    @property
    def end(self) -> int:
        """One past its last instruction."""
        return self.start + self.length

    def form(
        self, instructions: Sequence[Instruction], architecture: str, features: frozenset[str]
    ) -> NativeForm | None:
        """The form to use for a program's instructions on a CPU; None where none was proved for exactly these."""
        own = instructions[self.start : self.end]
        for form in self.forms:
            fits = form.architecture == architecture and form.features <= features
            if fits and form.token == proof_token(own, self.changes, architecture, form.code):
                return form
        return None


def proof_token(instructions: Sequence[Instruction], changes: int, architecture: str, code: bytes) -> bytes:
    """What a proof is about: the instructions, the registers that may end changed, and the machine code."""
    text = b"%s %s %d %d " % (_VERSION, architecture.encode(), changes, len(instructions))
    return hashlib.sha256(text + encode(instructions) + code).digest()
