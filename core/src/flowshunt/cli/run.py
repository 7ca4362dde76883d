"""`flowshunt run`: inspect captures through a NIC model in one bypass mode."""

import json
import sys
from typing import Any

import click
from rich.console import Console

from flowshunt.cli.options import engine_options, pipeline_options, run_config
from flowshunt.cli.root import ANSWER_IS_NO, DONE
from flowshunt.errors import InputError
from flowshunt.pipeline.mode import BypassMode


@click.command(epilog="Example: flowshunt run capture.pcap --rules local.rules --bypass hardware --eve eve.json")
@click.argument("captures", nargs=-1, required=True, metavar="CAPTURE...")
@engine_options
@pipeline_options
@click.option(
    "--bypass",
    type=click.Choice([str(mode) for mode in BypassMode]),
    default=str(BypassMode.HARDWARE),
    show_default=True,
    help="Who acts on the rest of bypassed flows.",
)
@click.option("--eve", metavar="FILE", help='Write EVE JSON events here ("-": standard output).')
@click.option(
    "--eve-types", default="alert,flow,stats", show_default=True, metavar="TYPE,...", help="EVE events to write."
)
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
@click.option("-v", "--verbose", is_flag=True, help="Name every skipped rule.")
def command(
    captures: tuple[str, ...],
    nic: str,
    bypass: str,
    eve: str | None,
    eve_types: str,
    as_json: bool,
    verbose: bool,
    **options: Any,
) -> int:
    """Inspect captures (files, folders, "-" for standard input) through a NIC model.

    Exit status 1: a capture is damaged; the figures cover what is whole.
    """
    import attrs

    from flowshunt.cli.progress import reading_bar
    from flowshunt.output.eve import ENGINE_EVENT_TYPES, EVENT_TYPES, EveWriter
    from flowshunt.output.figures import run_figures
    from flowshunt.output.tables import print_problems, print_run
    from flowshunt.pipeline.prepare import compiled_kernels
    from flowshunt.pipeline.run import run
    from flowshunt.plugins import nic_model

    types = [part.strip() for part in eve_types.split(",") if part.strip()]
    known = (*EVENT_TYPES, *ENGINE_EVENT_TYPES)
    if unknown := sorted(set(types) - set(known)):
        raise InputError(f"no event type {unknown[0]!r}", "--eve-types", f"there are {', '.join(known)}")
    if not types:
        raise InputError("no event type", "--eve-types", f"there are {', '.join(known)}")
    if eve == "-" and as_json:
        raise InputError("events and figures can't both go to standard output", "--eve -", "drop --json")
    config = run_config(captures, nic_model(nic), BypassMode(bypass), **options)
    if eve is not None:
        config = attrs.evolve(config, events=frozenset(types) & frozenset(ENGINE_EVENT_TYPES))
    inputs = [*captures, *config.rules, *([config.engine_config] if config.engine_config else [])]
    notes = Console(stderr=True, soft_wrap=True)
    with compiled_kernels(config.engine, [config.model]) as compiling:
        if compiling and not as_json:
            notes.print("compiling kernels for the first run")
    writer = None if eve is None else EveWriter(eve, types, inputs=inputs)
    try:
        with reading_bar(as_json) as show:
            result = run(config, writer, lambda done, total: show("reading", done, total))
        if writer is not None:
            writer.finish(result)
    except BaseException:
        if writer is not None:
            writer.abandon()
        raise
    if as_json:
        click.echo(json.dumps(run_figures(result), indent=2))
    else:
        print_run(Console(file=sys.stderr if eve == "-" else sys.stdout), result)
    print_problems(notes, result, verbose=verbose and not as_json)
    if writer is not None and writer.failure:
        raise InputError(writer.failure)
    if result.signal:
        return 128 + result.signal
    return DONE if result.complete else ANSWER_IS_NO
