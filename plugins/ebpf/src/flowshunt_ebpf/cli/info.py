"""`flowshunt bpf info`: what an object or a program holds."""

import json
from collections.abc import Mapping
from typing import Any

import click

from flowshunt.errors import InputError
from flowshunt.insn import CALL_K
from flowshunt_ebpf.cli.source import read_object, read_program
from flowshunt_ebpf.elf import Object
from flowshunt_ebpf.program import MapDefinition, Program, control_flow, helper_name


@click.command(name="info", short_help="Show what an object or program holds.")
@click.argument("file")
@click.option("--btf", metavar="FILE", help="The types to fill CO-RE relocations in from; else the running kernel's.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def info(file: str, btf: str | None, as_json: bool) -> int:
    """Show the programs and maps of the object, text or bare instructions FILE ("-": standard input).

    Ends with status 1 where a program can't be linked, or jumps out of itself.

    Example: flowshunt bpf info program.o
    """
    held = read_object(file, btf) if file != "-" else None
    if held is not None:
        facts = _object(held)
    else:
        program = read_program(file, None, None, btf)
        facts = {
            "file": file,
            "license": program.license,
            "programs": [_program(program)],
            "maps": [_map(m) for m in program.maps],
        }
    if as_json:
        click.echo(json.dumps(facts, indent=2))
    else:
        _show(facts)
    return 1 if any(p["error"] for p in facts["programs"]) else 0


def _object(held: Object) -> dict[str, Any]:
    programs = []
    for name in held.names:
        try:
            programs.append(_program(held.program(name)))
        except InputError as error:
            programs.append({"name": name, "section": held.section_of(name), "error": str(error)})
    return {
        "file": held.file,
        "license": held.license,
        "types": len(held.btf) - 1 if held.btf is not None else 0,
        "programs": programs,
        "maps": [_map(definition) for definition in held.maps.values()],
    }


def _program(program: Program) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "name": program.name,
        "section": program.section,
        "type": program.type.name.lower(),
        "attach_type": program.attach_type.name.lower() if program.attach_type is not None else None,
        "instructions": len(program),
        "slots": program.slots,
        "source_lines": len({(line.file, line.line) for line in program.lines}),
        "maps": [m.name for m in program.maps],
        "helpers": _helpers(program),
        "externals": sorted(set(program.externals.values())),
        "poisoned": {str(index): why for index, why in program.poisoned.items()},
        "error": None,
    }
    try:
        flow = control_flow(program)
        facts["functions"] = [
            {"name": s.name, "instructions": s.end - s.start, "blocks": len(flow.order[n])}
            for n, s in enumerate(program.subprograms)
        ]
    except InputError as error:
        facts["error"] = str(error)
    return facts


def _helpers(program: Program) -> list[str]:
    numbers = {i.imm for index, i in enumerate(program.instructions) if _calls_helper(program, index)}
    return [helper_name(number) or f"helper {number}" for number in sorted(numbers)]


def _calls_helper(program: Program, index: int) -> bool:
    instruction = program.instructions[index]
    return instruction.opcode == CALL_K and instruction.src == 0 and index not in program.poisoned


def _map(definition: MapDefinition) -> dict[str, Any]:
    return {
        "name": definition.name,
        "type": definition.type_name,
        "key_size": definition.key_size,
        "value_size": definition.value_size,
        "max_entries": definition.max_entries,
        "flags": int(definition.flags),
        "pinned": bool(definition.pinning),
        "inner": _map(definition.inner) if definition.inner is not None else None,
        "filled_with": dict(definition.values),
    }


def _show(facts: Mapping[str, Any]) -> None:
    click.echo(f"{facts['file']}: license {facts['license'] or 'not given'}, {facts.get('types', 0)} types")
    for program in facts["programs"]:
        attach = f", {program['attach_type']}" if program.get("attach_type") else ""
        place = f", section {program['section']}" if program["section"] else ""
        click.echo(f"\nprogram {program['name']} ({program.get('type', '?')}{attach}{place})")
        if "instructions" in program:
            click.echo(f"  {program['instructions']} instructions, {program['slots'] * 8} bytes")
            for function in program.get("functions", ()):
                what = f"{function['instructions']} instructions, {function['blocks']} blocks"
                click.echo(f"    {function['name']}: {what}")
            for title, names in (("maps", "maps"), ("helpers", "helpers"), ("kernel symbols", "externals")):
                if program[names]:
                    click.echo(f"  {title}: {', '.join(program[names])}")
            for index, why in program["poisoned"].items():
                click.echo(f"  instruction {index} is poisoned: {why}")
        if program["error"]:
            click.echo(f"  can't be used: {program['error']}")
    if facts["maps"]:
        click.echo("\nmaps")
    for held in facts["maps"]:
        sizes = f"key {held['key_size']} B, value {held['value_size']} B, {held['max_entries']} entries"
        more = f", flags {held['flags']:#x}" if held["flags"] else ""
        more += ", pinned" if held["pinned"] else ""
        more += f", of {held['inner']['type']}" if held["inner"] else ""
        more += f", holds {', '.join(map(str, held['filled_with'].values()))}" if held["filled_with"] else ""
        click.echo(f"  {held['name']}: {held['type']}, {sizes}{more}")
