"""The group `flowshunt bpf`: a table of commands, each imported when it is asked for."""

from importlib import import_module
from typing import Final

import click

COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "asm": ("flowshunt_ebpf.cli.assemble:asm", "Assemble text to instructions."),
    "disasm": ("flowshunt_ebpf.cli.disassemble:disasm", "Print a program as text."),
    "info": ("flowshunt_ebpf.cli.info:info", "Show what an object or program holds."),
    "verify": ("flowshunt_ebpf.cli.verify:verify_command", "Say whether programs are safe to run, and why not."),
    "optimize": ("flowshunt_ebpf.cli.optimize:optimize_command", "Put native operations into a program, each proved."),
    "run": ("flowshunt_ebpf.cli.run_program:run", "Run a program on a packet or on bare memory."),
    "bench": ("flowshunt_ebpf.cli.bench:bench", "Time a program on several runners."),
    "prove": ("flowshunt_ebpf.cli.prove:prove", "Prove native operations, by two solvers."),
    "conformance": ("flowshunt_ebpf.cli.conformance:conformance", "Answer the public conformance suite."),
}
"""Command to the place of its click command ("module:attribute") and its one line of help."""


class LazyGroup(click.Group):
    """A group whose commands stand in `COMMANDS`, so that its help and its siblings import none of them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands' names, in the table's order."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command; None where there is none of the name."""
        if cmd_name not in COMMANDS:
            return None
        module, attribute = COMMANDS[cmd_name][0].split(":")
        command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands from the table alone."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])


@click.group(
    cls=LazyGroup,
    name="bpf",
    help="Assemble, inspect, verify and run eBPF programs.",
    epilog="Example: flowshunt bpf info program.o",
)
def bpf() -> None:
    """The group itself does nothing."""
