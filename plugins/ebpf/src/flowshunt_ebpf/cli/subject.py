"""What a command works on: a program out of an object or a text, and how it is loaded."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs
import click

from flowshunt.errors import CapabilityError, FlowshuntError, InputError
from flowshunt_ebpf.cli.source import read_object, read_program
from flowshunt_ebpf.contexts.layout import CONTEXTS, MEMORY, Context
from flowshunt_ebpf.kops.encoding import is_encoded
from flowshunt_ebpf.native.image import Image, context_of
from flowshunt_ebpf.native.machine import Machine
from flowshunt_ebpf.native.verdict import Verdict
from flowshunt_ebpf.native.workbench import Workbench
from flowshunt_ebpf.program import Program

RUNNERS: Final = ("interpret", "host", "unicorn-x86_64", "unicorn-arm64", "kernel")


@attrs.frozen
class Subject:
    """A program, and the others of its object by name."""

    program: Program
    others: Mapping[str, Callable[[], Program]]


def read_subject(file: str, name: str | None, context: str | None, btf: str | None = None) -> Subject:
    """Read an object, a text or bare instructions ("-": standard input) and choose a program.

    Sites of extended operations are lowered, and have their native forms. `context`: run it on this context, whatever
    its section says. `btf`: the types that the object is relocated against.
    Raises InputError.
    """
    found = read_object(file, btf) if file != "-" else None
    if found is not None:
        program = found.program(name)
        others = {other: _later(found.program, other) for other in found.names}
    else:
        program = plain(read_program(file, name, None, btf))
        others = {program.name: lambda: program}
    if context is not None:
        program = attrs.evolve(program, type=CONTEXTS[context].program_type)
    return Subject(program, others)


def plain(program: Program) -> Program:
    """A program whose sites of extended operations, if it has any, are lowered and have their native forms."""
    if not is_encoded(program):
        return program
    from flowshunt_ebpf.kops.optimize import lowered

    return lowered(program)


def read_subjects(
    file: str, name: str | None, section: str | None, context: str | None, btf: str | None = None
) -> list[Subject]:
    """Read an object's programs: one by its name, all of a section, or all; or the one of a text or bare instructions.

    Raises InputError.
    """
    found = read_object(file, btf) if file != "-" else None
    if found is None or name is not None:
        if section is not None:
            what = "is no object, so it has no sections" if found is None else "a program's name says enough"
            raise InputError(what, file, "leave out --section")
        return [read_subject(file, name, context, btf)]
    names = [each for each in found.names if section is None or found.section_of(each) == section]
    if not names:
        known = ", ".join(sorted({found.section_of(each) for each in found.names})) or "none"
        raise InputError("has no programs there", file, f"sections with programs: {known}")
    others = {other: _later(found.program, other) for other in found.names}
    programs = [found.program(each) for each in names]
    if context is not None:
        programs = [attrs.evolve(program, type=CONTEXTS[context].program_type) for program in programs]
    return [Subject(program, others) for program in programs]


def _later(program: Callable[[str], Program], name: str) -> Callable[[], Program]:
    return lambda: program(name)


def chosen_context(program: Program, name: str | None) -> Context:
    """The context by its name, or by the program's type."""
    return CONTEXTS[name] if name is not None else context_of(program)


def load(runner: str, image: Image, machine: Machine, verdict: Verdict | None = None, *, budget: bool = False) -> Any:
    """Load an image for a runner by its name. The host needs a verdict; emulated code checks itself without one.

    `budget`: whether the host stops it, too, when its budget is used up; interrupts need that.
    """
    if runner == "interpret":
        from flowshunt_ebpf.native.interpreter import interpret

        return interpret(image, machine)
    if runner == "host":
        from flowshunt_ebpf.native.host import host

        return host(image, machine, verdict, budget=budget)
    if runner == "kernel":
        from flowshunt_ebpf.kernel.runner import run_in_kernel

        return run_in_kernel(image, machine)
    from flowshunt_ebpf.native.emulator import emulate

    return emulate(image, machine, runner.removeprefix("unicorn-"), verdict)


class RejectedError(FlowshuntError):
    """The verifier rejects a program that is to run."""


VERIFIERS: Final = ("flowshunt", "kernel")


def own_verdict(image: Image, machine: Machine) -> Verdict:
    """Our verifier's verdict. Raises RejectedError, with all that it says, where it rejects the program."""
    from flowshunt_ebpf.verifier import verify_cached

    program = image.as_loaded()
    verdict = verify_cached(program, context=image.context)
    if not verdict.accepted:
        said = verdict.rejection.describe(program) if verdict.rejection is not None else verdict.reason
        raise RejectedError(f"the verifier rejects it: {said}")
    return verdict


def judged(bench: Workbench, verifier: str) -> Verdict:
    """The verdict about a workbench's program, and those that it tail-calls, of one of `VERIFIERS`."""
    return bench.judge(kernel_verdict if verifier == "kernel" else own_verdict)


def kernel_verdict(image: Image, machine: Machine) -> Verdict:
    """The running kernel's verdict. Raises InputError where it rejects it, CapabilityError where it can't say."""
    from flowshunt_ebpf.kernel.runner import run_in_kernel

    if image.context is MEMORY:
        raise CapabilityError("the kernel judges no program on bare memory; choose a context with --context")
    loaded = run_in_kernel(image, machine)
    loaded.close()
    return loaded.verdict


def file_argument(command: Any) -> Any:
    """The argument FILE and the options that choose a program in it."""
    options = (
        click.argument("file", type=str),
        click.option("-p", "--program", "name", help="The program's or its section's name."),
        click.option("--btf", metavar="FILE", help="The types for CO-RE relocations; else the running kernel's."),
        click.option("--context", type=click.Choice(sorted(CONTEXTS)), help="What r1 is, if not by its section."),
    )  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


def parse_hex(text: str, what: str) -> bytes:
    """Bytes from hexadecimal digits with or without spaces. Raises InputError."""
    try:
        return bytes.fromhex(text.removeprefix("0x"))
    except ValueError:
        raise InputError(f"{text[:40]!r} is no run of hexadecimal bytes", what, "such as 4500 or '45 00'") from None
