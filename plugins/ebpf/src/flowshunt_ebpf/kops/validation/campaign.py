"""Proving whole operations: every native form over many payloads, and the file of proofs that is shipped."""

import hashlib
import multiprocessing
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import attrs

from flowshunt.errors import InputError
from flowshunt.host_registers import BY_ARCHITECTURE
from flowshunt.operation import ExtendedOperation
from flowshunt_ebpf.kops.validation import shipped
from flowshunt_ebpf.kops.validation.cache import ProofCache, default_cache, shipped_bytes
from flowshunt_ebpf.kops.validation.crosscheck import cross_check
from flowshunt_ebpf.kops.validation.decide import TIMEOUT
from flowshunt_ebpf.kops.validation.payloads import payloads
from flowshunt_ebpf.kops.validation.proof import Proof
from flowshunt_ebpf.kops.validation.prove import Prover, prove_form
from flowshunt_ebpf.kops.validation.solvers import SOLVERS, version

LIMIT: Final = 300
"""Payloads of an operation that are proved beforehand, at most."""


@attrs.frozen
class Refused:
    """A native form that is not proved, or that a cross-check shows to be wrong."""

    payload: int
    values: str
    text: str
    reason: str


@attrs.frozen
class FormReport:
    """What was proved of one native form.

    Attributes:
        operation, architecture, features: which one; `number`: its place among the operation's forms there, from 0.
        payloads: that were tried; the form declined the others.
        solved: obligations that the solvers decided; the others were the same but for the registers' names.
        cached: obligations that were found in a cache of earlier runs.
        seconds: that solving took; `slowest`: the one that took longest.
        unicorn, host: states on which code and proof sequence were compared besides.
        refused: what is not proved.
        digests: of the proofs.
    """

    operation: str
    architecture: str
    number: int
    features: tuple[str, ...]
    payloads: int
    solved: int
    cached: int
    seconds: float
    slowest: float
    unicorn: int
    host: int
    refused: tuple[Refused, ...] = ()
    digests: tuple[bytes, ...] = attrs.field(default=(), repr=False)


@attrs.frozen
class Plan:
    """How much to prove, and by whom.

    Attributes:
        limit: payloads of an operation.
        solvers, timeout: as of a `Prover`.
        anew: whether caches of earlier runs are left aside.
        checked: whether proofs are cross-checked on concrete states.
    """

    limit: int = LIMIT
    solvers: tuple[str, ...] = SOLVERS
    timeout: float = TIMEOUT
    anew: bool = False
    checked: bool = True


Find = Callable[[], Mapping[str, ExtendedOperation]]


def prove_operations(
    operations: Mapping[str, ExtendedOperation], architectures: Sequence[str], plan: Plan, *, find: Find, jobs: int = 1
) -> Iterator[FormReport]:
    """Prove every form of operations on some architectures, one report after another.

    With several jobs, processes look the operations up by `find`, a function of a module, and name.
    """
    tasks = [
        (name, architecture, number)
        for name, operation in operations.items()
        for architecture in architectures
        for number in range(len(operation.emits.get(architecture, ())))
    ]
    if jobs == 1 or len(tasks) == 1:
        for name, architecture, number in tasks:
            yield prove_operation_form(operations[name], architecture, number, plan)
        return
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:  # an interrupt ends the processes too
        yield from pool.imap(_task, [(find, *task, plan) for task in tasks])


def _task(task: tuple[Find, str, str, int, Plan]) -> FormReport:
    find, name, architecture, number, plan = task
    return prove_operation_form(find()[name], architecture, number, plan)


def prove_operation_form(operation: ExtendedOperation, architecture: str, number: int, plan: Plan) -> FormReport:
    """Prove one form of an operation over its payloads. Raises CapabilityError."""
    form = operation.emits[architecture][number]
    cache = ProofCache(None, use_shipped=False) if plan.anew else default_cache()
    prover = Prover(cache, plan.solvers, plan.timeout)
    tried = solved = cached = unicorn = host = 0
    seconds = slowest = 0.0
    refused: list[Refused] = []
    digests: dict[bytes, None] = {}
    registers = BY_ARCHITECTURE[architecture]

    def text_of(payload: int) -> str:
        return form.assembly(operation.layout.decode(payload), registers)

    for payload in payloads(operation, plan.limit, lambda payload: bool(text_of(payload))):
        values, text = operation.layout.decode(payload), text_of(payload)
        tried += 1
        proof = prove_form(operation, payload, architecture, form, text, prover)
        seconds += proof.seconds
        slowest = max(slowest, proof.seconds)
        if not isinstance(proof, Proof):
            refused.append(Refused(payload, str(values), text, proof.reason))
            continue
        if proof.digest in digests:
            continue
        digests[proof.digest] = None
        solved += proof.source == "solved"
        cached += proof.source != "solved"
        if plan.checked and proof.form is not None:
            sequence, use = operation.proof_sequence(payload), operation.use(payload)
            found = cross_check(sequence, proof.form, use.clobbers, proof.disjoint)
            unicorn, host = unicorn + found.unicorn, host + found.host
            if found.difference:
                refused.append(Refused(payload, str(values), text, f"proved, but {found.difference}"))
    return FormReport(
        operation.name, architecture, number, tuple(sorted(form.features)), tried, solved, cached, seconds, slowest,
        unicorn, host, tuple(refused), tuple(digests),
    )  # fmt: skip


def write_shipped(reports: Sequence[FormReport], seconds: float) -> Path:
    """Make the shipped file of the proofs in reports, and the module that names it. Raises InputError."""
    folder = Path(__file__).parent
    content = shipped_bytes(digest for report in reports for digest in report.digests)
    counts: dict[str, int] = {}
    for report in reports:
        key = f"{report.operation} {report.architecture}"
        counts[key] = counts.get(key, 0) + len(report.digests)
    lines = [
        '"""The proofs that are shipped. Made by `flowshunt bpf prove --all --rebuild`; not to be edited."""',
        "",
        "from typing import Final",
        "",
        f'FILE: Final = "{shipped.FILE}"',
        f'SHA256: Final = "{hashlib.sha256(content).hexdigest()}"',
        "COUNTS: Final[dict[str, int]] = {",
        *(f'    "{name}": {count},' for name, count in sorted(counts.items())),
        "}",
        '"""How many proofs there are of each operation and architecture."""',
        "SOLVERS: Final[tuple[str, ...]] = (",
        *(f'    "{version(solver)}",' for solver in SOLVERS),
        ")",
        f"SECONDS: Final = {seconds:.1f}",
        '"""How long it took to prove all of them, on the machine that made the file."""',
        "",
    ]
    try:
        (folder / shipped.FILE).write_bytes(content)
        (folder / "shipped.py").write_text("\n".join(lines), encoding="utf-8")
    except OSError as error:
        raise InputError(
            f"the file of proofs can't be written: {error.strerror or error}",
            str(folder / shipped.FILE),
            "rebuild it in a checkout of the sources",
        ) from None
    return folder / shipped.FILE
