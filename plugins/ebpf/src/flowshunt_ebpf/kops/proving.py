"""What must be proved before a site is used, asked of validation: its rewrite, and its native forms' bytes.

Nothing here is trusted to be right about a program, and nothing here decides that something is proved: only a `Proof`
that validation gave makes a native form.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import attrs

from flowshunt.errors import CapabilityError
from flowshunt.insn import Instruction
from flowshunt.operation import ExtendedOperation
from flowshunt_ebpf.kops.validation.proof import Proof, Refusal
from flowshunt_ebpf.program import NativeForm


@attrs.frozen
class Unproved:
    """Why something was not proved."""

    reason: str


class Prover(Protocol):
    """What is asked of validation."""

    def rewrite(
        self,
        original: Sequence[Instruction],
        rewritten: Sequence[Instruction],
        live_out: int,
        lost: Mapping[int, int],
    ) -> Unproved | None:
        """None where both do the same to all that is live and to memory, whatever they start from; else why not.

        `lost`: by index in `rewritten`, the registers whose values native code leaves undefined there.
        """

    def native(
        self, operation: ExtendedOperation, payload: int, architecture: str, features: frozenset[str]
    ) -> NativeForm | Unproved:
        """The native form that a CPU would use, proved to do what the proof sequence does; else why there is none."""


class Validation:
    """The prover that is used: both solvers, or a cache of what they found."""

    def rewrite(
        self,
        original: Sequence[Instruction],
        rewritten: Sequence[Instruction],
        live_out: int,
        lost: Mapping[int, int],
    ) -> Unproved | None:
        """See `Prover`."""
        from flowshunt_ebpf.kops.validation import prove_site

        found = _asked(lambda: prove_site(tuple(original), tuple(rewritten), live_out, lost=lost))
        return Unproved(found.reason) if isinstance(found, Unproved | Refusal) else None

    def native(
        self, operation: ExtendedOperation, payload: int, architecture: str, features: frozenset[str]
    ) -> NativeForm | Unproved:
        """See `Prover`."""
        from flowshunt_ebpf.kops.validation import prove_emit

        found = _asked(lambda: prove_emit(operation, payload, architecture, features))
        if isinstance(found, Unproved | Refusal):
            return Unproved(found.reason)
        if found.disjoint:
            return Unproved("it needs ranges of memory that don't overlap, which nothing proves")
        return found.form if found.form is not None else Unproved("validation gave no native form")


def _asked(question: Callable[[], Proof | Refusal]) -> Proof | Refusal | Unproved:
    try:
        return question()
    except CapabilityError as error:  # a solver is missing: nothing is proved
        return Unproved(str(error))
