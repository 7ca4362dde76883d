"""`flowshunt bpf disasm`: a program as text, with its bytes, source lines, and machine code beside it."""

import json
from typing import Any

import click

from flowshunt.insn import encode
from flowshunt_ebpf.asm import Form, disassemble, instruction_texts, labels
from flowshunt_ebpf.cli.source import read_program
from flowshunt_ebpf.cli.subject import plain
from flowshunt_ebpf.program import Program


@click.command(name="disasm", short_help="Print a program as text.")
@click.argument("file")
@click.option("-p", "--program", "name", help="Which of an object's programs, by its or its section's name.")
@click.option("--form", type=click.Choice([f.value for f in Form]), default=Form.C.value, show_default=True)
@click.option(
    "--listing", is_flag=True, help="Show slots, bytes and source lines too; that is no longer a text to assemble."
)
@click.option("--native", type=click.Choice(["x86_64", "arm64"]), help="Show the machine code of each instruction.")
@click.option("--btf", metavar="FILE", help="The types to fill CO-RE relocations in from; else the running kernel's.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def disasm(
    file: str, name: str | None, form: str, listing: bool, native: str | None, btf: str | None, as_json: bool
) -> int:
    """Print a program of the object, text or bare instructions FILE ("-": standard input) as text.

    Without --listing and --native the output assembles to the same program.

    \b
    Examples:
      flowshunt bpf disasm program.o -p main --form mnemonic
      flowshunt bpf disasm program.o --native x86_64
    """
    program = read_program(file, name, None, btf)
    if native:
        program = plain(program)
    chosen = Form(form)
    machine = _machine_code(program, native) if native else None
    if as_json:
        click.echo(json.dumps(_rows(program, chosen, machine), indent=2))
    elif listing or machine is not None:
        click.echo("\n".join(_listing(program, chosen, machine)))
    else:
        click.echo(disassemble(program, chosen), nl=False)
    return 0


def _machine_code(program: Program, architecture: str) -> list[list[tuple[int, str, str]]]:
    from flowshunt_ebpf.native.listing import machine_code

    return machine_code(program, architecture)


def _rows(program: Program, form: Form, machine: list[list[tuple[int, str, str]]] | None) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    texts = instruction_texts(program, form)
    for index, (instruction, text) in enumerate(zip(program.instructions, texts, strict=True)):
        raw = encode([instruction], big_endian=program.big_endian)
        row: dict[str, Any] = {"slot": program.slot_of[index], "bytes": raw.hex(), "text": text}
        line = program.line_at(index)
        if line is not None:
            row["source"] = {"file": line.file, "line": line.line, "column": line.column, "text": line.text.strip()}
        if index in program.poisoned:
            row["poisoned"] = program.poisoned[index]
        if index in program.externals:
            row["external"] = program.externals[index]
        if machine is not None:
            row["native"] = [{"offset": at, "bytes": code, "text": what} for at, code, what in machine[index]]
        rows.append(row)
    return rows


def _listing(program: Program, form: Form, machine: list[list[tuple[int, str, str]]] | None) -> list[str]:
    places = labels(program)
    starts = {f.start: f.name for f in program.functions}
    shown: list[str] = []
    previous: tuple[str, int] | None = None
    for index, row in enumerate(_rows(program, form, machine)):
        name = starts.get(index) or places.get(index)
        if name is not None:
            shown.append(f"{name}:")
        line = program.line_at(index)
        if line is not None and line.line and (line.file, line.line) != previous:
            shown.append(f"; {line.text.strip()}  ({line.file}:{line.line})")
            previous = line.file, line.line
        text = row["text"] + _note(row)
        if machine is None:
            code = " ".join(row["bytes"][at : at + 2] for at in range(0, len(row["bytes"]), 2))
            shown.append(f"{row['slot']:6}: {code:<47}  {text}")
            continue
        native = machine[index]
        shown.append(f"{row['slot']:6}: {text:<46}" + (_native_text(native[0]) if native else "").rstrip())
        shown += [f"{'':54}{_native_text(item)}".rstrip() for item in native[1:]]
    return shown


def _note(row: dict[str, Any]) -> str:
    if "poisoned" in row:
        return f"   ; poisoned: {row['poisoned']}"
    return f"   ; {row['external']}" if "external" in row else ""


def _native_text(item: tuple[int, str, str]) -> str:
    at, _, what = item
    return f"{at:5x}: {what}"
