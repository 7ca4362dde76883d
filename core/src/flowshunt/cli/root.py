"""The root of the command: finds commands by name, and turns every error into one line and an exit status.

The core's commands are named in `flowshunt.commands`; each is the attribute `command` of the module of its name in this
package. A command's function returns its exit status (None: 0), or raises:

- 0: done; 1: finished, but the answer is "no" (a failed check, a damaged capture); 2: bad usage or unreadable input.
- `FlowshuntError` and `OSError` are told on one line, status 2. A reader that closes our pipe ends the command quietly.
- SIGTERM arrives as `Terminated`, a `KeyboardInterrupt`: a command that has partial results catches
  `KeyboardInterrupt`, writes them, and raises again. Status 130 after Ctrl-C, 143 after SIGTERM.
"""

import errno
import importlib
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import click

from flowshunt import __version__
from flowshunt.commands import CORE_COMMANDS
from flowshunt.errors import FlowshuntError, FlowshuntWarning, Terminated
from flowshunt.output.plain import plain

DONE = 0
ANSWER_IS_NO = 1
UNUSABLE = 2
INTERRUPTED = 128 + signal.SIGINT
TERMINATED = 128 + signal.SIGTERM
PIPE_CLOSED = 128 + signal.SIGPIPE

_LOST_SIGNAL_SECONDS = 0.05
_WRITING_FAILED = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF})


class _ClosedPipeError(Exception):
    """The reader of standard output went away. Click would end with status 1, which means something else here."""


class Root(click.Group):
    """The group of all commands: the core's by table, the plugins' through `flowshunt_cli_commands`."""

    debug = False

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The core's commands in their order, then those of plugins by name."""
        return [*CORE_COMMANDS, *sorted(_plugin_commands())]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a name. Plugins are loaded only for a name that the core has not."""
        if cmd_name not in CORE_COMMANDS:
            return _plugin_commands().get(cmd_name)
        command: click.Command = importlib.import_module(f"flowshunt.cli.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing those of the core."""
        rows = list(CORE_COMMANDS.items())
        rows += [(name, command.get_short_help_str(90)) for name, command in sorted(_plugin_commands().items())]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that was asked for."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise _ClosedPipeError from error
        except SystemExit as end:
            if isinstance(end.__context__, BrokenPipeError):  # rich leaves the process with status 1
                raise _ClosedPipeError from end
            raise

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run the command and leave the process with its exit status."""
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        self.debug = os.environ.get("FLOWSHUNT_DEBUG", "") not in ("", "0")
        _open_standard_streams()
        with _terminable(), _plain_warnings():
            try:
                status = super().main(args, prog_name or "flowshunt", complete_var, standalone_mode=False, **extra)
                sys.stdout.flush()
            except (Exception, KeyboardInterrupt) as error:
                status = self._told(error)
        sys.exit(status if isinstance(status, int) else DONE)

    def _told(self, error: BaseException) -> int:
        """Tell the user of an error; returns the exit status."""
        if isinstance(error, click.Abort) and isinstance(error.__cause__, KeyboardInterrupt):
            error = error.__cause__
        _flush_or_drop()
        if isinstance(error, _ClosedPipeError | BrokenPipeError):
            return PIPE_CLOSED
        if self.debug:
            traceback.print_exception(error)
        if isinstance(error, KeyboardInterrupt):
            return TERMINATED if isinstance(error, Terminated) else INTERRUPTED
        if isinstance(error, click.UsageError) and type(error).__name__ == "NoArgsIsHelpError":
            click.echo(error.format_message(), err=True)
        else:
            click.echo(_line(error), err=True)
        return UNUSABLE


def _line(error: BaseException) -> str:
    """What is said of an error, on one line."""
    place, way_out = "flowshunt", ""
    if isinstance(error, click.UsageError):
        text = error.format_message()
        if error.ctx is not None:
            place = error.ctx.command_path
            way_out = f" (see '{place} --help')"
    elif isinstance(error, click.ClickException):
        text = error.format_message()
    elif isinstance(error, FlowshuntError):
        text = str(error)
    elif isinstance(error, click.Abort):
        text = "stopped"
    elif isinstance(error, OSError):
        where = error.filename or ("output can't be written" if error.errno in _WRITING_FAILED else "")
        text = f"{where}: {error.strerror}" if where else error.strerror or str(error)
    else:
        text = f"internal error: {type(error).__name__}: {error}"
        way_out = " (a fault in flowshunt or a plugin; 'flowshunt --debug ...' shows where)"
    return plain(f"{place}: {' '.join(text.split()).removesuffix('.')}{way_out}")


def _flush_or_drop() -> None:
    """Write out what standard output holds; where that fails, send it nowhere, so that the exit can't fail again."""
    try:
        sys.stdout.flush()
    except OSError:
        with Path(os.devnull).open("w") as nowhere, suppress(OSError, ValueError):
            os.dup2(nowhere.fileno(), sys.stdout.fileno())


def _open_standard_streams() -> None:
    """Fill standard descriptors that came closed, so that no file that is opened later is taken for one of them.

    Standard output is filled so that writing fails ("Bad file descriptor"): figures don't vanish in silence.
    """
    for number, mode in enumerate((os.O_WRONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, mode)  # takes the lowest number, which is this one
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 -- stays open to the end


@contextmanager
def _terminable() -> Iterator[None]:
    """Raise `Terminated` at SIGTERM while the command runs. Only the main thread can arrange that."""

    def tell_again(arguments: Any) -> None:
        """An interrupt that arose where exceptions are lost, as in callbacks of compiled code, comes again."""
        if not isinstance(arguments.exc_value, KeyboardInterrupt):
            lost(arguments)
            return
        number = signal.SIGTERM if isinstance(arguments.exc_value, Terminated) else signal.SIGINT
        again = threading.Timer(_LOST_SIGNAL_SECONDS, os.kill, (os.getpid(), number))
        again.daemon = True
        again.start()

    def terminate(_number: int, _frame: FrameType | None) -> None:
        raise Terminated

    if signal.getsignal(signal.SIGTERM) is signal.SIG_IGN:
        yield
        return
    try:
        previous = signal.signal(signal.SIGTERM, terminate)
    except ValueError:
        yield
        return
    lost, sys.unraisablehook = sys.unraisablehook, tell_again
    try:
        yield
    finally:
        sys.unraisablehook = lost
        signal.signal(signal.SIGTERM, previous)


@contextmanager
def _plain_warnings() -> Iterator[None]:
    """Show flowshunt's own warnings as one line on standard error, each text once."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", FlowshuntWarning)
        other = warnings.showwarning
        shown: set[str] = set()

        def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
            if not issubclass(category, FlowshuntWarning):
                other(message, category, *where, **more)
            elif (text := plain(" ".join(str(message).split()))) not in shown:
                shown.add(text)
                click.echo(f"flowshunt: warning: {text}", err=True)

        warnings.showwarning = show
        yield


def _plugin_commands() -> Mapping[str, click.Command]:
    from flowshunt.plugins import load_plugins

    return load_plugins().commands


def _set_debug(ctx: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if value and isinstance(ctx.command, Root):
        ctx.command.debug = True


@click.group(
    name="flowshunt", cls=Root, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.version_option(__version__, prog_name="flowshunt")
@click.option(
    "--debug",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_set_debug,
    help="Show where in the code an error arose (also FLOWSHUNT_DEBUG=1).",
)
def main() -> None:
    """Move work off the slow path, safely and only where it pays.

    \b
    Examples:
      flowshunt demo                                  the whole of it on sample traffic
      flowshunt compare my.pcap --rules my.rules      what bypass saves, and what it loses
      flowshunt plugins                               what is installed
    """
