"""`flowshunt bpf conformance`: the plug-in protocol of the public bpf_conformance suite.

The program comes as space-separated hexadecimal bytes on the first line of standard input, memory likewise as an
optional argument; r1 is its address and r2 its length. The answer is r0 in hexadecimal digits on standard output. A
program that is refused or stopped gives a line on standard error and status 1. The kernel runner gives programs their
memory by itself: the suite's own `--xdp_prolog` is not needed.
"""

import sys

import click

from flowshunt.errors import FlowshuntError, InputError
from flowshunt_ebpf.cli.subject import RUNNERS, load, own_verdict, parse_hex
from flowshunt_ebpf.native.image import prepare
from flowshunt_ebpf.native.machine import DEFAULT_BUDGET, Machine
from flowshunt_ebpf.program import Program


@click.command(name="conformance", short_help="Answer the public conformance suite.")
@click.argument("memory", required=False, default="")
@click.option("--runner", type=click.Choice(RUNNERS), default="interpret", show_default=True)
@click.option("--program", "given", help="The program, instead of standard input.")
@click.option("--debug", is_flag=True, help="Accepted for the suite; errors are always told.")
@click.option("--elf", is_flag=True, help="The program is an ELF file's bytes.")
@click.option("--budget", type=click.IntRange(1), default=DEFAULT_BUDGET, show_default=True)
def conformance(memory: str, runner: str, given: str | None, debug: bool, elf: bool, budget: int) -> int:
    """Run a program of the conformance suite on MEMORY and print r0.

    Example: echo 'b7 00 00 00 07 00 00 00 95 00 00 00 00 00 00 00' | flowshunt bpf conformance --runner host
    """
    code = parse_hex(given if given is not None else sys.stdin.readline().strip(), "program")
    data = parse_hex(memory, "memory")
    try:
        program = _from_elf(code) if elf else Program.from_bytes(code)
        machine = Machine(packet_room=max(4096, len(data)))
        machine.set_packet(data)
        image = prepare(program)
        loaded = load(runner, image, machine, own_verdict(image, machine) if runner == "host" else None)
        outcome = loaded.run(budget=budget)
        loaded.close()
        if outcome.fault is not None:
            raise InputError(outcome.fault.describe(program))
    except FlowshuntError as error:
        click.echo(str(error), err=True)
        return 1
    click.echo(f"{outcome.value:x}")
    return 0


def _from_elf(data: bytes) -> Program:
    from flowshunt_ebpf.elf import load_object
    from flowshunt_ebpf.program import ProgramType

    found = load_object(data, file="standard input").program()
    return Program(found.instructions, name=found.name, type=ProgramType.UNSPEC)
