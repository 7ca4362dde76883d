"""The command `flowshunt`: one module a command group, imported only when that command is asked for."""

from flowshunt.cli.root import main

__all__ = ["main"]
