"""`flowshunt compare`: bypass off, in software and in hardware on the same captures, side by side."""

import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from flowshunt.cli.options import DEFAULT_SOFTWARE_NIC, apply_options, engine_options, pipeline_options, run_config
from flowshunt.cli.root import ANSWER_IS_NO, DONE, INTERRUPTED
from flowshunt.pipeline.mode import BypassMode

if TYPE_CHECKING:
    from flowshunt.nic import NicModel
    from flowshunt.pipeline.compare import Comparison

_COPY_BYTES = 1 << 20


@contextmanager
def _rereadable(captures: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """The captures, standard input copied to a file, since each mode reads them again."""
    if "-" not in captures:
        yield tuple(captures)
        return
    with tempfile.NamedTemporaryFile(prefix="flowshunt-", suffix=".capture") as copy:
        while block := sys.stdin.buffer.read(_COPY_BYTES):
            copy.write(block)
        copy.flush()
        yield tuple(copy.name if capture == "-" else capture for capture in captures)


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
    """The NIC models of hardware bypass, and of the other modes (the same where the standard one isn't installed)."""
    from flowshunt.plugins import load_plugins, nic_model

    model = nic_model(nic)
    return model, nic_model(software_nic) if software_nic in load_plugins().nic_models else model


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
    if last.interrupted:
        return INTERRUPTED
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
        comparison = compare_captures(readable, quiet=as_json, **options)
    return report(comparison, as_json, verbose)
