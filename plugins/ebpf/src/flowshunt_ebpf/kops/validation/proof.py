"""What validation hands out: a proof, or the reason why there is none."""

import attrs

from flowshunt.operation import Disjoint
from flowshunt_ebpf.program import NativeForm

EMIT = "emit"
SITE = "site"


@attrs.frozen
class Proof:
    """That two pieces of code are equal, for all inputs.

    Attributes:
        kind: EMIT, a proof sequence and machine code; SITE, the instructions of a program and what replaces them.
        digest: sha256 of everything that the proof is about: both pieces of code, what is compared, and validation's
            own sources. A proof is about nothing else.
        solvers: who decided it, with their versions; empty where it was taken from a cache.
        seconds: how long that took.
        source: "solved"; "identical", where there was nothing to prove; or the cache that it came from: "process",
            "shipped" or "user".
        form: the machine code that was proved; None for a site.
        disjoint: what the proof takes for granted of memory: who uses it must know that it holds.
    """

    kind: str
    digest: bytes = attrs.field(repr=lambda digest: digest.hex()[:16])
    solvers: tuple[str, ...] = ()
    seconds: float = 0.0
    source: str = "solved"
    form: NativeForm | None = attrs.field(default=None, repr=False)
    disjoint: tuple[Disjoint, ...] = ()

    def __bool__(self) -> bool:
        return True


@attrs.frozen
class Refusal:
    """That two pieces of code are not proved equal.

    Attributes:
        kind: as of a `Proof`.
        reason: why, in plain words: a counterexample with values, an instruction without semantics, a solver out of
            time.
        counterexample: the values of registers (by name) that show the difference; empty where there are none.
        seconds: how long it took to find out.
    """

    kind: str
    reason: str
    counterexample: dict[str, int] = attrs.field(factory=dict)
    seconds: float = 0.0

    def __bool__(self) -> bool:
        return False
