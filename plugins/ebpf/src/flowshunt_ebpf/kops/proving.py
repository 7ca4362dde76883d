"""What must be proved before a site is used, asked of validation: its rewrite, and its native forms' bytes.

Nothing here is trusted to be right about a program, and nothing here decides that something is proved: only a `Proof`
that validation gave makes a native form.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import attrs

from flowshunt.errors import CapabilityError
from flowshunt.insn import Instruction
from flowshunt.operation import ExtendedOperation
from flowshunt_ebpf.program import NativeForm, proof_token

_Answer = TypeVar("_Answer")


@attrs.frozen
class Unproved:
    """Why something was not proved."""

    reason: str


class Prover(Protocol):
    """What is asked of validation."""

    def rewrite(
        self, original: Sequence[Instruction], rewritten: Sequence[Instruction], live_out: int
    ) -> Unproved | None:
        """None where both do the same to all that is live and to memory, whatever they start from; else why not."""

    def native(
        self, operation: ExtendedOperation, payload: int, architecture: str, features: frozenset[str]
    ) -> NativeForm | Unproved:
        """The native form that a CPU would use, proved to do what the proof sequence does; else why there is none."""


class Validation:
    """The prover that is used: both solvers, or a cache of what they found."""

    def rewrite(
        self, original: Sequence[Instruction], rewritten: Sequence[Instruction], live_out: int
    ) -> Unproved | None:
        """See `Prover`."""
        from flowshunt_ebpf.kops.validation import Proof, prove_site

        found = _asked(lambda: prove_site(tuple(original), tuple(rewritten), live_out))
        return None if isinstance(found, Proof) else Unproved(found.reason)

    def native(
        self, operation: ExtendedOperation, payload: int, architecture: str, features: frozenset[str]
    ) -> NativeForm | Unproved:
        """See `Prover`."""
        from flowshunt_ebpf.kops.validation import Proof, prove_emit

        found = _asked(lambda: prove_emit(operation, payload, architecture, features))
        if not isinstance(found, Proof):
            return Unproved(found.reason)
        return sealed(operation, payload, architecture, features, found.code)


def sealed(
    operation: ExtendedOperation, payload: int, architecture: str, features: frozenset[str], code: bytes
) -> NativeForm | Unproved:
    """The native form of code that was proved to be the payload's."""
    from flowshunt.host_registers import BY_ARCHITECTURE

    chosen = operation.emit(architecture, payload, features, BY_ARCHITECTURE[architecture])
    if chosen is None:
        return Unproved(f"it has no native form for {architecture} with these CPU features")
    if len(code) > operation.max_bytes:
        return Unproved(f"its native form has {len(code)} bytes, {operation.max_bytes} are declared")
    use = operation.use(payload)
    changes = use.writes | use.clobbers
    token = proof_token(operation.proof_sequence(payload), changes, architecture, code)
    return NativeForm(architecture, chosen[0].features, code, token)


def _asked(question: Callable[[], _Answer]) -> _Answer | Unproved:
    try:
        return question()
    except CapabilityError as error:  # a solver is missing: nothing is proved
        return Unproved(str(error))
