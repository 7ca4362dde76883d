"""The verifier's verdict: accepted, with facts, or rejected, with the place and the reason."""

from typing import Final

import attrs

from flowshunt_ebpf.native.image import Access, Image
from flowshunt_ebpf.native.verdict import Verdict
from flowshunt_ebpf.verifier.facts import Facts
from flowshunt_ebpf.verifier.rejection import Rejection

VERIFIER = "flowshunt"
"""The verifier's name in its verdicts."""

_OF_CONTEXT: Final = frozenset({Access.CONTEXT, Access.EITHER})


@attrs.frozen
class Effort:
    """What an analysis took.

    Attributes:
        instructions: looked at, each as often as it was.
        states: kept.
        seconds: of the processor's time.
        attempts: how often the analysis began anew, with states joined less eagerly.
    """

    instructions: int = 0
    states: int = 0
    seconds: float = 0.0
    attempts: int = 1


@attrs.frozen
class VerifierVerdict(Verdict):
    """What this verifier says of a program.

    Attributes:
        facts: of an accepted program.
        rejection: of one that is not.
        effort: what it took; nothing where the verdict was kept from before.
    """

    facts: Facts | None = attrs.field(default=None, repr=False)
    rejection: Rejection | None = None
    effort: Effort = attrs.field(default=Effort(), eq=False)

    def covers(self, image: Image) -> bool:
        """Whether it accepts exactly this image, in which accesses to the context stand where they were found."""
        if not super().covers(image) or self.facts is None:
            return False
        accesses = self.facts.context_accesses
        if any(image.access[index] not in _OF_CONTEXT for index in accesses):
            return False
        sure = {index for index, access in enumerate(image.access) if access == Access.CONTEXT}
        return not sure - accesses - self.facts.dead
