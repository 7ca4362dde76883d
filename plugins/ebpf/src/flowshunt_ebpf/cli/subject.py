"""What a command works on: a program out of an object or a text, and how it is loaded."""

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs
import click

from flowshunt.errors import CapabilityError, InputError
from flowshunt_ebpf.contexts.layout import CONTEXTS, MEMORY, Context
from flowshunt_ebpf.native.image import Image, context_of
from flowshunt_ebpf.native.machine import Machine
from flowshunt_ebpf.native.verdict import Verdict
from flowshunt_ebpf.program import Program

RUNNERS: Final = ("interpret", "host", "unicorn-x86_64", "unicorn-arm64", "kernel")

_ELF: Final = b"\x7fELF"


@attrs.frozen
class Subject:
    """A program, and the others of its object by name."""

    program: Program
    others: Mapping[str, Callable[[], Program]]


def read_subject(file: str, name: str | None, context: str | None) -> Subject:
    """Read an object or a text ("-": standard input) and choose a program by its or its section's name.

    `context`: run it on this context, whatever its section says. Raises InputError.
    """
    if file == "-":
        data = sys.stdin.buffer.read()
    else:
        path = Path(file)
        if not path.is_file():
            raise InputError("there is no such file", file, "give an eBPF object or a text")
        data = path.read_bytes()
    if data[:4] == _ELF:
        from flowshunt_ebpf.elf import load_object

        found = load_object(data, file=file)
        program = found.program(name)
        others = {other: _later(found.program, other) for other in found.names}
    else:
        from flowshunt_ebpf.asm import assemble

        program = assemble(_text(data, file), file=file)
        others = {program.name: lambda: program}
    if context is not None:
        program = attrs.evolve(program, type=CONTEXTS[context].program_type)
    return Subject(program, others)


def _later(program: Callable[[str], Program], name: str) -> Callable[[], Program]:
    return lambda: program(name)


def _text(data: bytes, file: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InputError(f"byte {error.start} is no text", file, "give an eBPF object or a text") from None


def chosen_context(program: Program, name: str | None) -> Context:
    """The context by its name, or by the program's type."""
    return CONTEXTS[name] if name is not None else context_of(program)


def load(runner: str, image: Image, machine: Machine, verdict: Verdict | None = None) -> Any:
    """Load an image for a runner by its name. With a verdict native code goes unchecked."""
    if runner == "interpret":
        from flowshunt_ebpf.native.interpreter import interpret

        return interpret(image, machine)
    if runner == "host":
        from flowshunt_ebpf.native.host import host

        return host(image, machine, verdict)
    if runner == "kernel":
        from flowshunt_ebpf.kernel.runner import run_in_kernel

        return run_in_kernel(image, machine)
    from flowshunt_ebpf.native.emulator import emulate

    return emulate(image, machine, runner.removeprefix("unicorn-"), verdict)


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


def known_names(names: Sequence[str]) -> str:
    """Names for a message."""
    return ", ".join(names) if names else "none"
