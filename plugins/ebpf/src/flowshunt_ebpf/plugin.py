"""The plugin: what it gives to flowshunt."""

from collections.abc import Sequence

import click

from flowshunt import hookimpl
from flowshunt_ebpf.cli.group import bpf


@hookimpl
def flowshunt_cli_commands() -> Sequence[click.Command]:
    """The command group `bpf`."""
    return (bpf,)
