"""`flowshunt bpf prove`: native operations proved equal to what they stand for, by two solvers."""

import json
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs
import click

from flowshunt.errors import CapabilityError, InputError
from flowshunt.host_registers import BY_ARCHITECTURE
from flowshunt.insn import Instruction
from flowshunt.operation import Disjoint, ExtendedOperation
from flowshunt_ebpf.cli.source import read_object, read_program
from flowshunt_ebpf.kops.validation.campaign import LIMIT, FormReport, Plan, prove_operations, write_shipped
from flowshunt_ebpf.kops.validation.proof import Proof, Refusal
from flowshunt_ebpf.kops.validation.prove import Prover, prove_emit, prove_site
from flowshunt_ebpf.kops.validation.solvers import SOLVERS, version
from flowshunt_ebpf.program import Program

ARCHITECTURES: Final = ("x86_64", "arm64")
_REFUSED_SHOWN: Final = 5


@click.command(name="prove", short_help="Prove native operations, by two solvers.")
@click.argument("subjects", metavar="[OPERATION|FILE]...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Every operation that is installed.")
@click.option("-p", "--program", "name", help="Which program of an object; else all.")
@click.option("--btf", metavar="FILE", help="The types for CO-RE relocations; else the running kernel's.")
@click.option("--arch", "architectures", type=click.Choice(ARCHITECTURES), multiple=True, help="Repeatable; else both.")
@click.option("--solver", "solvers", type=click.Choice(SOLVERS), multiple=True,
              help="Ask this one alone. What one solver proves is shown, and kept nowhere.")  # fmt: skip
@click.option("--limit", type=click.IntRange(1), default=LIMIT, show_default=True, help="Payloads of an operation.")
@click.option("--timeout", type=click.FloatRange(0.001), default=60.0, show_default=True, help="Seconds of one proof.")
@click.option("--anew", is_flag=True, help="Leave all caches aside.")
@click.option("--rebuild", is_flag=True, help="With --all: prove everything anew, and make the file that is shipped.")
@click.option("--jobs", type=click.IntRange(1), help="Processes; by default one a CPU.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def prove(
    subjects: tuple[str, ...],
    everything: bool,
    name: str | None,
    btf: str | None,
    architectures: tuple[str, ...],
    solvers: tuple[str, ...],
    limit: int,
    timeout: float,
    anew: bool,
    rebuild: bool,
    jobs: int | None,
    as_json: bool,
) -> int:
    """Prove that each native form of an OPERATION does what its proof sequence does, for all values of registers and
    memory, and compare both on concrete ones; or prove each site that the installed operations find in the programs of
    a FILE: its rewrite, and its machine code. Ends with 1 where something is not proved, and says why.

    \b
    Examples:
      flowshunt bpf prove rotate --arch arm64
      flowshunt bpf prove program.o -p main
      flowshunt bpf prove --all --rebuild
    """
    from flowshunt_ebpf.kops.registry import installed_operations

    operations = installed_operations()
    chosen = dict(operations) if everything else {s: operations[s] for s in subjects if s in operations}
    files = [subject for subject in subjects if subject not in operations]
    _check_usage(chosen, files, subjects, everything, rebuild, solvers, operations)
    plan = Plan(limit, solvers or SOLVERS, timeout, anew or rebuild)
    targets = architectures or ARCHITECTURES
    began = time.perf_counter()
    reports: list[FormReport] = []
    if chosen:
        workers = jobs or os.cpu_count() or 1
        for report in prove_operations(chosen, targets, plan, find=installed_operations, jobs=workers):
            reports.append(report)
            if not as_json:
                click.echo("\n".join(_form_lines(report)))
    sites = [row for file in files for row in _sites(file, name, btf, targets, plan, operations)]
    if not as_json and files:
        click.echo("\n".join(line for row in sites for line in row.lines()) or "no operation finds a site there")
    seconds = time.perf_counter() - began
    written = str(write_shipped(reports, seconds)) if rebuild else None
    unproved = sum(len(report.refused) for report in reports) + sum(not row.proved for row in sites)
    said = [version(solver) for solver in plan.solvers]
    if as_json:
        answer: dict[str, Any] = {"solvers": said, "seconds": seconds, "unproved": unproved}
        answer["forms"] = [_form_json(report) for report in reports]
        answer["sites"] = [row.json() for row in sites]
        click.echo(json.dumps({**answer, "written": written} if written else answer, indent=2))
    else:
        digests = len({digest for report in reports for digest in report.digests})
        proofs = f"{digests} proofs of native forms, " if reports else ""
        click.echo(
            f"{proofs}{f'{len(sites)} proofs about sites, ' if files else ''}{unproved} not proved, {seconds:.1f} s; "
            f"each by {' and '.join(said)}, over all values of registers and memory"
        )
        if written:
            click.echo(f"wrote {written}")
    return 1 if unproved else 0


def _check_usage(
    chosen: Mapping[str, ExtendedOperation],
    files: Sequence[str],
    subjects: Sequence[str],
    everything: bool,
    rebuild: bool,
    solvers: Sequence[str],
    operations: Mapping[str, ExtendedOperation],
) -> None:
    known = ", ".join(sorted(operations)) or "none"
    if rebuild and (not everything or subjects or solvers):
        raise InputError(
            "--rebuild makes the file of everything, by both solvers", "--rebuild", "give it with --all alone"
        )
    if not chosen and not files:
        what = "no operation is installed" if everything else "nothing to prove is named"
        raise InputError(what, "flowshunt bpf prove", f"name a file or an operation; installed: {known}")
    for file in files:
        if not os.path.exists(file) and file != "-":  # noqa: PTH110
            raise InputError("is neither an operation nor a file", file, f"operations are: {known}")


@attrs.frozen
class SiteRow:
    """One proof about a site."""

    program: str
    where: str
    operation: str
    values: str
    obligation: str
    proof: Proof | Refusal

    @property
    def proved(self) -> bool:
        """Whether it holds."""
        return isinstance(self.proof, Proof)

    def lines(self) -> list[str]:
        """For a terminal."""
        head = f"{self.program} {self.where}: {self.operation} ({self.values}), {self.obligation}: "
        if isinstance(self.proof, Proof):
            if self.proof.source == "identical":
                return [f"{head}nothing to prove"]
            by = " and ".join(self.proof.solvers) or f"found in the cache ({self.proof.source})"
            return [f"{head}proved, {by}, {1000 * self.proof.seconds:.1f} ms"]
        return [f"{head}not proved: {self.proof.reason}"]

    def json(self) -> dict[str, Any]:
        """As data."""
        row: dict[str, Any] = {
            "program": self.program, "where": self.where, "operation": self.operation, "values": self.values,
            "obligation": self.obligation, "proved": self.proved, "seconds": self.proof.seconds,
        }  # fmt: skip
        if isinstance(self.proof, Proof):
            return {
                **row,
                "solvers": list(self.proof.solvers),
                "source": self.proof.source,
                "digest": self.proof.digest.hex(),
            }
        return {**row, "reason": self.proof.reason, "counterexample": self.proof.counterexample}


class _Recorder:
    """Asks validation as optimizing does, and keeps what it said."""

    def __init__(self, prover: Prover) -> None:
        self._prover = prover
        self.rewrites: list[tuple[tuple[Instruction, ...], Proof | Refusal]] = []
        self.natives: dict[tuple[str, int, str], Proof | Refusal] = {}

    def rewrite(
        self,
        original: Sequence[Instruction],
        rewritten: Sequence[Instruction],
        live_out: int,
        lost: Mapping[int, int],
        context: Sequence[Instruction],
        disjoint: Sequence[Disjoint],
    ) -> Any:
        from flowshunt_ebpf.kops.proving import Unproved

        proof = prove_site(
            original, rewritten, live_out, lost=lost, disjoint=disjoint, context=context, prover=self._prover
        )
        self.rewrites.append((tuple(original), proof))
        return None if isinstance(proof, Proof) else Unproved(proof.reason)

    def native(self, operation: ExtendedOperation, payload: int, architecture: str, features: frozenset[str]) -> Any:
        from flowshunt_ebpf.kops.proving import Native, Unproved

        if operation.emit(architecture, payload, features, BY_ARCHITECTURE[architecture]) is None:
            return Unproved("there is no native form for it: it stays lowered, so that there is nothing to prove")
        proof = prove_emit(operation, payload, architecture, features, self._prover)
        self.natives[operation.name, payload, architecture] = proof
        if isinstance(proof, Refusal):
            return Unproved(proof.reason)
        return Native(proof.form, proof.disjoint) if proof.form is not None else Unproved("validation gave no form")


def _sites(
    file: str,
    name: str | None,
    btf: str | None,
    architectures: Sequence[str],
    plan: Plan,
    operations: Mapping[str, ExtendedOperation],
) -> list[SiteRow]:
    """Every proof about every site that operations find in a file's programs."""
    from flowshunt.operation import CPU_FEATURES
    from flowshunt_ebpf.kops.optimize import Target, optimize
    from flowshunt_ebpf.kops.policy import Policy

    rows: list[SiteRow] = []
    for program in _programs(file, name, btf):
        for architecture in architectures:
            prover = (
                Prover(None, plan.solvers, plan.timeout)
                if plan.anew
                else Prover(solvers=plan.solvers, timeout=plan.timeout)
            )
            recorder = _Recorder(prover)
            try:
                optimized = optimize(
                    program,
                    policy=Policy.ALL,
                    operations=operations,
                    target=Target(architecture, CPU_FEATURES[architecture]),
                    prover=recorder,
                )
            except CapabilityError as error:
                raise InputError(str(error), file, "install what is missing") from None
            findings = {(f.place.operation, f.place.payload): f for f in optimized.rewritten.findings}
            for (operation, payload, _), proof in recorder.natives.items():
                finding = findings.get((operation, payload))
                where = program.where(finding.place.index).removeprefix(f"program {program.name}, ") if finding else "-"
                values = str(operations[operation].layout.decode(payload))
                rows.append(SiteRow(program.name, where, operation, values, f"machine code of {architecture}", proof))
            if architecture == architectures[0]:  # rewrites are the same whatever the architecture
                rows += [_rewrite_row(program, original, proof) for original, proof in recorder.rewrites]
    return rows


def _rewrite_row(program: Program, original: Sequence[Instruction], proof: Proof | Refusal) -> SiteRow:
    length = len(original)
    starts = [
        at for at in range(len(program) - length + 1) if program.instructions[at : at + length] == tuple(original)
    ]
    where = program.where(starts[0]).removeprefix(f"program {program.name}, ") if starts else "after earlier rewrites"
    return SiteRow(program.name, where, "rewrite", f"{length} instructions", "original == proof sequence", proof)


def _programs(file: str, name: str | None, btf: str | None) -> list[Program]:
    held = read_object(file, btf) if file != "-" else None
    if held is None:
        return [read_program(file, name, None, btf)]
    return [held.program(each) for each in ([name] if name is not None else held.names)]


def _form_lines(report: FormReport) -> list[str]:
    needs = f" with {', '.join(report.features)}" if report.features else ""
    lines = [
        f"{report.operation:12} {report.architecture:7} form {report.number + 1}{needs}: {report.payloads} payloads, "
        f"{report.solved + report.cached} proofs ({report.solved} solved in {report.seconds:.1f} s, slowest "
        f"{1000 * report.slowest:.0f} ms; {report.cached} from the cache), {len(report.refused)} not proved; "
        f"compared on {report.unicorn} states in Unicorn, {report.host} on this machine"
    ]
    for item in report.refused[:_REFUSED_SHOWN]:
        text = "; ".join(item.text.splitlines())
        lines += [f"  not proved: {item.values}", f"    machine code: {text}", f"    {item.reason}"]
    if len(report.refused) > _REFUSED_SHOWN:
        lines.append(f"  and {len(report.refused) - _REFUSED_SHOWN} more")
    return lines


def _form_json(report: FormReport) -> dict[str, Any]:
    row = attrs.asdict(report, filter=lambda field, value: field.name not in ("digests", "refused"))
    return {**row, "proofs": len(report.digests), "refused": [attrs.asdict(item) for item in report.refused]}
