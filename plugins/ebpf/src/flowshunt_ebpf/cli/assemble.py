"""`flowshunt bpf asm`: text to instructions."""

import json
from pathlib import Path

import click

from flowshunt.errors import InputError
from flowshunt.insn import check
from flowshunt_ebpf.asm import Form, assemble, instruction_texts
from flowshunt_ebpf.cli.source import read_text


@click.command(name="asm", short_help="Assemble text to instructions.")
@click.argument("file")
@click.option("--form", type=click.Choice([f.value for f in Form]), help="The text's form; found from it otherwise.")
@click.option("-o", "--output", metavar="FILE", help="Write the instructions' bytes there instead of hexadecimal.")
@click.option("--strict", is_flag=True, help="Refuse instructions that are not valid eBPF.")
@click.option("--json", "as_json", is_flag=True, help="Print each instruction's fields as JSON.")
def asm(file: str, form: str | None, output: str | None, strict: bool, as_json: bool) -> int:
    """Assemble the text FILE ("-": standard input), one slot of hexadecimal bytes a line.

    \b
    Examples:
      flowshunt bpf asm program.s -o program.bin
      echo 'r0 = 1; exit' | tr ';' '\\n' | flowshunt bpf asm -
    """
    program = assemble(read_text(file), form=Form(form) if form else None, file=file)
    if strict:
        for index, instruction in enumerate(program.instructions):
            wrong = check(instruction)
            if wrong is not None:
                raise InputError(f"instruction {index} is not valid: {wrong}", file, "leave out --strict to keep it")
    raw = program.encode()
    if output is not None:
        Path(output).write_bytes(raw)
    if as_json:
        texts = instruction_texts(program)
        rows = [
            {
                "slot": slot,
                "opcode": i.opcode,
                "dst": i.dst,
                "src": i.src,
                "offset": i.offset,
                "imm": i.imm,
                "text": text,
            }
            for slot, i, text in zip(program.slot_of, program.instructions, texts, strict=False)
        ]
        click.echo(json.dumps({"name": program.name, "slots": program.slots, "instructions": rows}, indent=2))
    elif output is None:
        for at in range(0, len(raw), 8):
            click.echo(raw[at : at + 8].hex(" "))
    return 0
