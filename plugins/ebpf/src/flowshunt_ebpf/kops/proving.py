"""What must be proved before a site is used, asked of validation: its rewrite, and its native forms' bytes.

Nothing here is trusted to be right about a program, and nothing here decides that something is proved: only a `Proof`
that validation gave makes a native form.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import attrs

from flowshunt.errors import CapabilityError
from flowshunt.insn import Instruction
from flowshunt.operation import Disjoint, ExtendedOperation
from flowshunt_ebpf.program import NativeForm

if TYPE_CHECKING:
    from flowshunt_ebpf.kops.validation import Proof, Refusal


@attrs.frozen
class Unproved:
    """Why something was not proved."""

    reason: str


@attrs.frozen
class Native:
    """A proved native form.

    Attributes:
        form: the form.
        disjoint: ranges of memory that were taken not to overlap: it is only right where they don't.
    """

    form: NativeForm
    disjoint: tuple[Disjoint, ...] = ()


class Prover(Protocol):
    """What is asked of validation."""

    def rewrite(
        self,
        original: Sequence[Instruction],
        rewritten: Sequence[Instruction],
        live_out: int,
        lost: Mapping[int, int],
        context: Sequence[Instruction],
        disjoint: Sequence[Disjoint],
    ) -> Unproved | None:
        """None where both do the same to all that is live and to memory, whatever they start from; else why not.

        `lost`: by index in `rewritten`, the registers whose values native code leaves undefined there. `context`: what
        always runs straight before either. `disjoint`: ranges that are taken not to overlap where both start.
        """

    def native(
        self, operation: ExtendedOperation, payload: int, architecture: str, features: frozenset[str]
    ) -> Native | Unproved:
        """The native form that a CPU would use, proved to do what the proof sequence does; else why there is none."""


class Validation:
    """The prover that is used: both solvers, or a cache of what they found."""

    def rewrite(
        self,
        original: Sequence[Instruction],
        rewritten: Sequence[Instruction],
        live_out: int,
        lost: Mapping[int, int],
        context: Sequence[Instruction],
        disjoint: Sequence[Disjoint],
    ) -> Unproved | None:
        """See `Prover`."""
        from flowshunt_ebpf.kops.validation import Refusal, prove_site

        found = _asked(
            lambda: prove_site(
                tuple(original), tuple(rewritten), live_out, lost=lost, disjoint=disjoint, context=context
            )
        )
        return Unproved(found.reason) if isinstance(found, Unproved | Refusal) else None

    def native(
        self, operation: ExtendedOperation, payload: int, architecture: str, features: frozenset[str]
    ) -> Native | Unproved:
        """See `Prover`."""
        from flowshunt_ebpf.kops.validation import Refusal, prove_emit

        found = _asked(lambda: prove_emit(operation, payload, architecture, features))
        if isinstance(found, Unproved | Refusal):
            return Unproved(found.reason)
        return Native(found.form, found.disjoint) if found.form is not None else Unproved("validation gave no form")


def _asked(question: "Callable[[], Proof | Refusal]") -> "Proof | Refusal | Unproved":
    try:
        return question()
    except CapabilityError as error:  # a solver is missing: nothing is proved
        return Unproved(str(error))
