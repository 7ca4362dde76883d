"""`flowshunt compare`: bypass off, in software and in hardware on the same captures, side by side."""

import json
import os
import stat
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import click
from rich.console import Console

from flowshunt.cli.options import DEFAULT_SOFTWARE_NIC, apply_options, engine_options, pipeline_options, run_config
from flowshunt.cli.root import ANSWER_IS_NO, DONE
from flowshunt.errors import InputError
from flowshunt.pipeline.mode import BypassMode

if TYPE_CHECKING:
    from flowshunt.nic import NicModel
    from flowshunt.pipeline.compare import Comparison

_COPY_BYTES = 1 << 20
_STANDARD_INPUT = "-"


@contextmanager
def _rereadable(captures: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """The captures, standard input copied to a file, since each mode reads them again."""
    from flowshunt.packets.reader import input_descriptor

    for capture in captures:
        if stat.S_ISFIFO(_mode(capture)):
            raise InputError("is a pipe, and each mode reads it again", capture, "name a file, or - for standard input")
    if _STANDARD_INPUT not in captures:
        yield tuple(captures)
        return
    if captures.count(_STANDARD_INPUT) > 1:
        raise InputError("is a stream, and named twice", _STANDARD_INPUT, "name it once")
    descriptor = input_descriptor()
    with tempfile.NamedTemporaryFile(prefix="flowshunt-", suffix=".capture") as copy:
        try:
            while block := os.read(descriptor, _COPY_BYTES):
                copy.write(block)
            copy.flush()
        except OSError as error:
            raise InputError(
                f"can't be copied to {copy.name}: {error.strerror}",
                _STANDARD_INPUT,
                "make room, set TMPDIR, or name a file",
            ) from None
        try:
            yield tuple(copy.name if capture == _STANDARD_INPUT else capture for capture in captures)
        except InputError as error:
            raise InputError(error.what, error.where.replace(copy.name, _STANDARD_INPUT), error.way_out) from None


def _mode(path: str) -> int:
    try:
        return Path(path).stat().st_mode
    except (OSError, ValueError):
        return 0


def _told_of(comparison: "Comparison", captures: Sequence[str]) -> "Comparison":
    """A comparison that names the captures as the user did, and not the copy of standard input."""
    read = [copy for copy, name in zip(comparison.captures, captures, strict=True) if copy != name]
    if not read:
        return comparison

    def named(lines: Sequence[str]) -> tuple[str, ...]:
        return tuple(line.replace(read[0], _STANDARD_INPUT) for line in lines)

    modes = {}
    for mode, figures in comparison.modes.items():
        result = figures.result
        result = attrs.evolve(result, problems=named(result.problems), warnings=named(result.warnings))
        modes[mode] = attrs.evolve(figures, result=result)
    return attrs.evolve(comparison, captures=tuple(captures), modes=modes)


@contextmanager
def first_run(nic: str, software_nic: str, engine_name: str, notes: Console) -> Iterator[None]:
    """Compile the kernels that a comparison needs while the body runs, where this is the first run."""
    from flowshunt.pipeline.prepare import compiled_kernels
    from flowshunt.plugins import engine

    with compiled_kernels(engine(engine_name), _models(nic, software_nic)) as compiling:
        if compiling:
            notes.print("compiling kernels for the first run")
        yield


def _models(nic: str, software_nic: str) -> "tuple[NicModel, NicModel]":
    """The NIC models of hardware bypass, and of the other modes (the same where the default one isn't installed)."""
    from flowshunt.plugins import load_plugins, nic_model

    model = nic_model(nic)
    missing = software_nic == DEFAULT_SOFTWARE_NIC and software_nic not in load_plugins().nic_models
    return model, model if missing else nic_model(software_nic)


def compare_captures(
    captures: Sequence[str], nic: str, software_nic: str, cores: int, rounds: int, quiet: bool, **options: Any
) -> "Comparison":
    """Compare the modes as the options say, with a progress bar on a terminal."""
    from flowshunt.cli.progress import reading_bar
    from flowshunt.pipeline.compare import compare

    model, plain = _models(nic, software_nic)
    if options.get("host_buffers") is None:
        options["host_buffers"] = min(cores, model.host_buffers, plain.host_buffers)
    config = run_config(captures, model, BypassMode.OFF, **options)
    with first_run(nic, software_nic, config.engine.name, Console(stderr=True, quiet=quiet)):
        pass
    with reading_bar(quiet) as show:

        def progress(mode: BypassMode, number: int, done: int, total: int | None) -> None:
            what = f"bypass {mode}" if rounds == 1 else f"round {number + 1}, bypass {mode}"
            show(what, done, total)

        return compare(config, plain, cores=cores, rounds=rounds, progress=progress)


def report(comparison: "Comparison", as_json: bool, verbose: bool) -> int:
    """Print a comparison; returns the exit status."""
    from flowshunt.output.figures import comparison_figures
    from flowshunt.output.tables import print_comparison, print_problems

    if as_json:
        click.echo(json.dumps(comparison_figures(comparison), indent=2))
    else:
        print_comparison(Console(), comparison)
    last = list(comparison.modes.values())[-1].result
    print_problems(Console(stderr=True, soft_wrap=True), last, verbose=verbose and not as_json)
    if comparison.signal:
        return 128 + comparison.signal
    return DONE if comparison.complete else ANSWER_IS_NO


def comparison_options(function: Any) -> Any:
    """The options that `compare` and `demo` share beside those of the pipeline."""
    options = (
        click.option(
            "--software-nic",
            default=DEFAULT_SOFTWARE_NIC,
            show_default=True,
            metavar="MODEL",
            help="NIC model of the two modes that use no flow table on the card.",
        ),
        click.option(
            "--cores",
            type=click.IntRange(1, 1024),
            default=8,
            show_default=True,
            help="Cores that the implied throughput is for.",
        ),
        click.option("--rounds", type=click.IntRange(1, 99), default=1, show_default=True, help="Runs of each mode."),
        click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON."),
        click.option("-v", "--verbose", is_flag=True, help="Name every skipped rule."),
    )
    return apply_options(options, function)


@click.command(epilog="Example: flowshunt compare capture.pcap --rules local.rules --nic nt200a02 --cores 16")
@click.argument("captures", nargs=-1, required=True, metavar="CAPTURE...")
@engine_options
@pipeline_options
@comparison_options
def command(captures: tuple[str, ...], as_json: bool, verbose: bool, **options: Any) -> int:
    """Run captures with bypass off, in software and in hardware: what each saves, and which alerts it costs.

    Host CPU time is measured; the lossless throughput is what it implies for the NIC's line rate and --cores.
    """
    with _rereadable(captures) as readable:
        comparison = _told_of(compare_captures(readable, quiet=as_json, **options), captures)
    return report(comparison, as_json, verbose)
