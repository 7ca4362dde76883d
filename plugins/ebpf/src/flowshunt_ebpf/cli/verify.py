"""`flowshunt bpf verify`: whether programs are safe, why not, and what the kernel says of them."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

import attrs
import click

from flowshunt.errors import CapabilityError, InputError
from flowshunt_ebpf.cli.source import read_object, read_program
from flowshunt_ebpf.cli.subject import plain
from flowshunt_ebpf.contexts.layout import CONTEXTS
from flowshunt_ebpf.program import Program
from flowshunt_ebpf.verifier import Limits, VerifierVerdict, verify_cached

_REJECTED: Final = 1
_UNREADABLE: Final = 2


def _limits(given: tuple[str, ...]) -> Limits:
    """Limits from `name=number`."""
    kinds = {field.name: field.type for field in attrs.fields(Limits)}
    changed: dict[str, Any] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or name not in kinds:
            raise InputError(f"{text!r} is no limit", "--limit", f"such as seconds=10; limits are {', '.join(kinds)}")
        try:
            number = float(value) if kinds[name] is float else int(value, 0)
        except ValueError:
            number = -1
        if not 0 < number < 1 << 40:
            raise InputError(f"{value[:40]!r} is no number above 0", f"--limit {name}", "such as seconds=10")
        changed[name] = number
    return attrs.evolve(Limits(), **changed)


def _programs(
    file: str, name: str | None, section: str | None, btf: str | None
) -> Iterator[tuple[str, Program | InputError]]:
    """What is to be verified, by name; an error where a program of an object can't be linked."""
    held = read_object(file, btf) if file != "-" else None
    if held is None:
        if section is not None:
            raise InputError("is no object, so it has no sections to choose from", file, "leave out --section")
        program = plain(read_program(file, name, None, btf))
        yield program.name, program
        return
    if name is not None:
        names: tuple[str, ...] = (held.program(name).name,)
    else:
        names = tuple(n for n in held.names if section is None or held.section_of(n) == section)
    if not names:
        known = ", ".join(sorted({held.section_of(n) for n in held.names})) or "none"
        what = "has no programs" if section is None else f"has no programs in section {section}"
        raise InputError(what, file, f"sections with programs: {known}")
    for each in names:
        try:
            yield each, held.program(each)
        except InputError as error:
            yield each, error


def _typed(found: Program | InputError, context: str | None) -> Program:
    if isinstance(found, InputError):
        raise found
    return found if context is None else attrs.evolve(found, type=CONTEXTS[context].program_type)


@click.command(name="verify", short_help="Say whether programs are safe to run, and why not.")
@click.argument("file")
@click.option("-p", "--program", "name", help="The program's name; else all programs of an object.")
@click.option("--section", help="All programs of an object's section.")
@click.option("--btf", metavar="FILE", help="The types for CO-RE relocations; else the running kernel's.")
@click.option("--context", type=click.Choice(sorted(CONTEXTS)), help="What r1 is, if not by the program's section.")
@click.option("--against", type=click.Choice(["kernel"]), help="Ask the running kernel too, and show both verdicts.")
@click.option(
    "--limit",
    "limits",
    multiple=True,
    metavar="NAME=NUMBER",
    help="How far to go, such as instructions=100000, states=64 or seconds=10; else as far as the kernel. Repeatable.",
)
@click.option("-v", "--verbose", is_flag=True, help="Show what is known at each instruction.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def verify_command(
    file: str,
    name: str | None,
    section: str | None,
    btf: str | None,
    context: str | None,
    against: str | None,
    limits: tuple[str, ...],
    verbose: bool,
    as_json: bool,
) -> int:
    """Verify the programs of an object, text or bare instructions FILE ("-": standard input).

    Ends with status 0 where all are accepted, 1 where one is rejected, 2 where one can't be read.

    \b
    Examples:
      flowshunt bpf verify program.o
      flowshunt bpf verify program.o --section xdp --against kernel
    """
    allowed = _limits(limits)
    status = 0
    rows = []
    for each, found in _programs(file, name, section, btf):
        row: dict[str, Any] = {"name": each, "error": None}
        try:
            program = _typed(found, context)
            verdict = verify_cached(program, limits=allowed)
            row |= _row(program, verdict, verbose=verbose and as_json)
            if against is not None:
                row["kernel"] = _kernel(program, verbose=verbose)
            if not as_json:
                _show(row, program, verdict, verbose=verbose)
            status = max(status, 0 if verdict.accepted else _REJECTED)
        except InputError as error:
            row["error"] = str(error)
            status = _UNREADABLE
            if not as_json:
                click.echo(f"{each}: not verified\n  {error}")
        rows.append(row)
    if as_json:
        click.echo(json.dumps({"file": file, "programs": rows}, indent=2))
    return status


def _row(program: Program, verdict: VerifierVerdict, *, verbose: bool) -> dict[str, Any]:
    row: dict[str, Any] = {
        "section": program.section,
        "type": program.type.name.lower(),
        "instructions": len(program),
        "accepted": verdict.accepted,
        "verifier": verdict.verifier,
        "digest": verdict.digest.hex(),
        "effort": attrs.asdict(verdict.effort),
        "rejection": attrs.asdict(verdict.rejection) if verdict.rejection is not None else None,
    }
    facts = verdict.facts
    if facts is not None:
        row["stack"] = {s.name: used for s, used in zip(program.subprograms, facts.stack, strict=True)}
        row["frames"] = facts.frames
        row["writes_packet"] = facts.writes_packet
        row["unreached"] = sorted(facts.dead)
        if verbose:
            row["bounds"] = [_bounds_of(facts.bounds[index]) for index in range(len(program))]
    return row


def _bounds_of(bounds: tuple[Any, ...] | None) -> dict[str, Any] | None:
    """The numbers in registers, as JSON; None where no run comes."""
    if bounds is None:
        return None
    return {
        f"r{n}": {
            "unsigned": [scalar.umin, scalar.umax],
            "signed": [scalar.smin, scalar.smax],
            "bits": [scalar.value, scalar.mask],
        }
        for n, scalar in enumerate(bounds)
        if scalar is not None
    }


def _kernel(program: Program, *, verbose: bool) -> dict[str, Any]:
    from flowshunt_ebpf.kernel.judge import judge

    try:
        judgement = judge(program)
    except CapabilityError as error:
        return {"accepted": None, "reason": str(error)}
    answer: dict[str, Any] = {
        "accepted": judgement.accepted,
        "kernel": judgement.kernel,
        "reason": judgement.reason,
        "instructions": judgement.processed,
    }
    if verbose:
        answer["log"] = judgement.log
    return answer


def _show(row: Mapping[str, Any], program: Program, verdict: VerifierVerdict, *, verbose: bool) -> None:
    place = f", section {program.section}" if program.section else ""
    said = "accepted" if verdict.accepted else "rejected"
    click.echo(f"{row['name']} ({row['type']}{place}): {said}")
    if verdict.rejection is not None:
        for line in verdict.rejection.describe(program).splitlines():
            click.echo(f"  {line}")
        if "kernel" not in row:
            click.echo(f"  rule {verdict.rejection.rule}")
    if "kernel" in row:
        _show_kernel(row["kernel"], verdict)
    effort = verdict.effort
    if effort.instructions:
        work = f"{effort.instructions} looked at, {effort.states} states kept, {effort.seconds:.2f} s"
        click.echo(f"  {len(program)} instructions, {work}")
    elif verdict.accepted:
        click.echo(f"  {len(program)} instructions; the verdict is kept from before")
    facts = verdict.facts
    if facts is None:
        return
    stack = ", ".join(f"{name} {used}" for name, used in row["stack"].items() if used) or "none"
    click.echo(f"  stack in bytes: {stack}; {'at most ' if facts.frames > 1 else ''}{facts.frames} frames")
    click.echo(f"  {'may write to the packet' if facts.writes_packet else 'never writes to the packet'}")
    if facts.dead:
        click.echo(f"  never reached: instructions {_ranges(sorted(facts.dead))}")
    if verbose:
        click.echo("\n".join(_listing(program, verdict)))


def _show_kernel(answer: Mapping[str, Any], verdict: VerifierVerdict) -> None:
    if answer["accepted"] is None:
        click.echo(f"  the kernel was not asked: {answer['reason']}")
        return
    rule = f"rule {verdict.rejection.rule}" if verdict.rejection is not None else ""
    rows = [
        (verdict.verifier, verdict.accepted, rule),
        (answer["kernel"], answer["accepted"], answer["reason"]),
    ]
    width = max(len(who) for who, _, _ in rows)
    for who, accepted, reason in rows:
        click.echo(f"  {who:<{width}}  {'accepted' if accepted else 'rejected'}{': ' if reason else ''}{reason}")
    click.echo("  the two agree" if verdict.accepted == answer["accepted"] else "  THE TWO DIFFER")
    for line in answer.get("log", "").splitlines() if not answer["accepted"] else ():
        click.echo(f"  | {line}")


def _ranges(numbers: list[int]) -> str:
    """Numbers in ascending order, with runs as first-last."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def _listing(program: Program, verdict: VerifierVerdict) -> list[str]:
    """Each instruction with what is known before it: numbers in registers that are not all numbers."""
    from flowshunt_ebpf.asm import instruction_texts, labels
    from flowshunt_ebpf.verifier.scalar import UNKNOWN

    assert verdict.facts is not None
    places = labels(program)
    starts = {f.start: f.name for f in program.functions}
    shown = []
    for index, text in enumerate(instruction_texts(program)):
        name = starts.get(index) or places.get(index)
        if name is not None:
            shown.append(f"{name}:")
        bounds = verdict.facts.bounds[index]
        if bounds is None:
            known = "never reached"
        else:
            known = "  ".join(
                f"r{n} {scalar}" for n, scalar in enumerate(bounds) if scalar is not None and scalar != UNKNOWN
            )
        shown.append(f"{index:6}: {text:<46} {'; ' + known if known else ''}".rstrip())
    return shown
