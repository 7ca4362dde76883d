"""The command finds its commands by name, and turns every error into one line and an exit status."""

import errno
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from flowshunt.cli import main
from flowshunt.cli.root import Root, Terminated
from flowshunt.commands import CORE_COMMANDS
from flowshunt.errors import CapabilityError, FlowshuntWarning, InputError
from flowshunt.plugins import load_plugins


def run_raising(error, arguments=("boom",), **environment):
    """Run a command that raises."""

    @click.command()
    def boom():
        raise error

    class WithBoom(Root):
        def get_command(self, ctx, cmd_name):
            return boom if cmd_name == "boom" else super().get_command(ctx, cmd_name)

    root = WithBoom(name="flowshunt", params=main.params)
    return CliRunner().invoke(root, list(arguments), env=environment)


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (InputError("no such file", "a.pcap", "check the path"), "flowshunt: a.pcap: no such file (check the path)"),
        (CapabilityError("the card has no flow table"), "flowshunt: the card has no flow table"),
        (InputError("two\nlines"), "flowshunt: two lines"),
        (OSError(errno.ENOSPC, "No space left on device", "eve.json"), "flowshunt: eve.json: No space left on device"),
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "x"), "flowshunt: x: No such file or directory"),
        (click.UsageError("odd option"), "flowshunt boom: odd option (see 'flowshunt boom --help')"),
        (click.BadParameter("bad"), "flowshunt boom: Invalid value: bad (see 'flowshunt boom --help')"),
        (click.ClickException("no good"), "flowshunt: no good"),
        (click.Abort(), "flowshunt: stopped"),
        (
            ZeroDivisionError("division by zero"),
            "flowshunt: internal error: ZeroDivisionError: division by zero "
            "(a fault in flowshunt or a plugin; 'flowshunt --debug ...' shows where)",
        ),
    ],
)
def test_an_error_is_one_line_and_status_2(error, line):
    result = run_raising(error)
    assert result.stderr.strip() == line
    assert result.exit_code == 2
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "environment"), [(("--debug", "boom"), {}), (("boom",), {"FLOWSHUNT_DEBUG": "1"})]
)
def test_debugging_shows_where_an_error_arose(arguments, environment):
    result = run_raising(InputError("no such file", "a.pcap"), arguments, **environment)
    assert "Traceback" in result.stderr
    assert result.stderr.rstrip().endswith("flowshunt: a.pcap: no such file")
    assert result.exit_code == 2


@pytest.mark.parametrize(("error", "status"), [(KeyboardInterrupt(), 130), (Terminated(), 143)])
def test_an_interrupt_ends_without_a_traceback(error, status):
    result = run_raising(error)
    assert result.exit_code == status
    assert result.stderr.strip() == ""


@pytest.mark.parametrize("status", [None, 0, 1, 2])
def test_a_command_returns_its_exit_status(status):
    root = Root(name="flowshunt")
    root.get_command = lambda ctx, name: click.Command("answer", callback=lambda: status)
    assert CliRunner().invoke(root, ["answer"]).exit_code == (status or 0)


def test_warnings_of_flowshunt_are_one_line_each_and_told_once():
    def warn():
        for _ in range(3):
            warnings.warn("the capture\nis cut short", FlowshuntWarning, stacklevel=1)

    root = Root(name="flowshunt")
    root.get_command = lambda ctx, name: click.Command("warn", callback=warn)
    result = CliRunner().invoke(root, ["warn"])
    assert result.stderr == "flowshunt: warning: the capture is cut short\n"


def test_an_unknown_command_is_one_line():
    result = CliRunner().invoke(main, ["no-such-command"])
    assert result.exit_code == 2
    assert result.stderr.splitlines() == ["flowshunt: No such command 'no-such-command' (see 'flowshunt --help')"]


def test_without_a_command_the_help_is_shown():
    result = CliRunner().invoke(main, [])
    assert "Commands:" in result.output


def all_commands():
    yield "", main
    context = click.Context(main)
    waiting = [(name, main.get_command(context, name)) for name in main.list_commands(context)]
    while waiting:
        path, command = waiting.pop()
        yield path, command
        if isinstance(command, click.Group):
            context = click.Context(command)
            waiting += [
                (f"{path} {name}", command.get_command(context, name)) for name in command.list_commands(context)
            ]


@pytest.mark.parametrize("name", CORE_COMMANDS)
def test_the_line_in_the_list_of_commands_is_not_another_story(name):
    assert CORE_COMMANDS[name] in CliRunner().invoke(main, ["--help"], env={"COLUMNS": "120"}).output
    assert isinstance(main.get_command(click.Context(main), name), click.Command)


def test_every_command_says_what_it_does_with_an_example():
    silent = [
        path
        for path, command in all_commands()
        if "Example" not in command.get_help(click.Context(command, info_name=path)) or not command.help
    ]
    assert silent == []


def test_commands_of_plugins_are_added():
    for name in load_plugins().commands:
        assert name in CliRunner().invoke(main, ["--help"]).output


def python(code, **more):
    return subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=120, **more
    )


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["run", "--help"], ["plugins"]])
def test_start_up_imports_nothing_heavy(arguments):
    code = f"""
import sys
sys.argv = ["flowshunt", *{arguments!r}]
from flowshunt.cli import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
heavy = {{"numba", "scapy", "hyperscan", "keystone", "unicorn", "capstone", "z3", "bitwuzla", "pytest", "zstandard"}}
print("heavy:", sorted(heavy & set(sys.modules)))
"""
    done = python(code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("heavy: []\n")


def test_importing_flowshunt_imports_nothing_heavy():
    done = python("import sys, flowshunt; print(sorted({'numpy', 'numba', 'click', 'scapy'} & set(sys.modules)))")
    assert done.stdout == "[]\n"


LONG_OUTPUT = """
import sys, click
from flowshunt.cli.root import Root
def talk():
    for number in range(200000):
        click.echo(f"line {number}")
root = Root(name="flowshunt")
root.get_command = lambda ctx, name: click.Command("talk", callback=talk)
root(["talk"])
"""


def test_a_reader_that_goes_away_ends_the_command_quietly():
    process = subprocess.Popen(
        [sys.executable, "-c", LONG_OUTPUT], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "line 0\n"
    process.stdout.close()
    errors = process.stderr.read()
    process.stderr.close()
    assert process.wait(timeout=60) == 128 + signal.SIGPIPE
    assert errors == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_one_line():
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-c", LONG_OUTPUT], check=False, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60
        )
    assert done.returncode == 2
    assert done.stderr == "flowshunt: output can't be written: No space left on device\n"


def test_what_was_written_before_an_error_is_not_lost():
    code = """
import sys, click
from flowshunt.cli.root import Root
def fail():
    print("half of the figures")
    raise FileNotFoundError(2, "No such file or directory", "x")
root = Root(name="flowshunt")
root.get_command = lambda ctx, name: click.Command("fail", callback=fail)
root(["fail"])
"""
    done = python(code)
    assert (done.returncode, done.stdout) == (2, "half of the figures\n")


WAITING = """
import sys, time, click
from flowshunt.cli.root import Root
def wait():
    print("ready", flush=True)
    try:
        time.sleep(60)
    except KeyboardInterrupt:
        print("what was measured so far", flush=True)
        raise
root = Root(name="flowshunt")
root.get_command = lambda ctx, name: click.Command("wait", callback=wait)
root(["wait"])
"""


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_command_can_write_what_it_has_when_it_is_stopped(number, status):
    process = subprocess.Popen(
        [sys.executable, "-c", WAITING], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.05)
    process.send_signal(number)
    output, errors = process.communicate(timeout=30)
    assert process.returncode == status
    assert output == "what was measured so far\n"
    assert errors.strip() == ""
