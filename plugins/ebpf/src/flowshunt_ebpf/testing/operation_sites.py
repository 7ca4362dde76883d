"""What an extended operation makes of a text: for tests of operations, those of other distributions too."""

from collections.abc import Sequence

from flowshunt.operation import CPU_FEATURES, ExtendedOperation
from flowshunt_ebpf.asm import assemble
from flowshunt_ebpf.kops.policy import Policy, weight
from flowshunt_ebpf.kops.proving import Validation
from flowshunt_ebpf.kops.rewrite import rewrite


def proved_sites(text: str, operation: ExtendedOperation, architecture: str = "x86_64") -> list[str]:
    """The sites that an operation makes in a program, each proved by both solvers, as their payloads' values.

    AssertionError where a site that the rules admit is not proved. The text's last instruction is followed by an exit.
    """
    program = assemble(f"{text}\nexit")
    found = rewrite(
        program,
        (operation,),
        Validation(),
        weight(Policy.ALL),
        architecture=architecture,
        features=CPU_FEATURES[architecture],
    )
    failed = [finding for finding in found.findings if finding.proved is not None]
    assert not failed, failed
    return [str(operation.layout.decode(site.payload)) for site in found.program.sites]


def proposals(text: str, operation: ExtendedOperation) -> Sequence[tuple[int, ...]]:
    """The instructions of each match that the operation's recognizer proposes."""
    from flowshunt.recognition import View

    return [match.indices for match in operation.recognize(View(assemble(f"{text}\nexit").instructions))]
