"""`flowshunt demo`: make sample traffic and compare the three bypass modes on it."""

import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from flowshunt.cli.compare import compare_captures, comparison_options, first_run, report
from flowshunt.cli.options import pipeline_options
from flowshunt.cli.root import ANSWER_IS_NO
from flowshunt.errors import InputError
from flowshunt.pipeline.mode import BypassMode

_FLOWS = 8000
_QUICK_FLOWS = 2000
_FLOWS_A_SECOND = 1000.0
"""So many flows start in a second that a few thousand are open at a time, as on a busy link."""


@contextmanager
def _folder(keep: str | None) -> Iterator[Path]:
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="flowshunt-demo-") as name:
            yield Path(name)
        return
    try:
        Path(keep).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"can't make the folder: {error.strerror}", f"--keep {keep}") from None
    yield Path(keep)


@click.command(epilog="Example: flowshunt demo --quick")
@click.option("--quick", is_flag=True, help="Less traffic: done in seconds.")
@click.option("--sample-flows", type=click.IntRange(1), help="Flows of sample traffic.")
@click.option("--seed", default=1, show_default=True, help="Seed of the sample traffic.")
@click.option("--keep", metavar="DIR", help="Keep the sample, its rules and its expected alerts in this folder.")
@pipeline_options
@comparison_options
def command(
    quick: bool,
    sample_flows: int | None,
    seed: int,
    keep: str | None,
    as_json: bool,
    verbose: bool,
    **options: Any,
) -> int:
    """Make sample traffic with planted attacks, and compare no, software and hardware bypass on it.

    Exit status 1: the alerts without bypass are not those that were planted.
    """
    from flowshunt.packets.sample import write_sample

    notes = Console(stderr=True, quiet=as_json, soft_wrap=True)
    with _folder(keep) as folder:
        path = folder / "sample.pcap"
        flows = sample_flows or (_QUICK_FLOWS if quick else _FLOWS)
        with (
            first_run(options["nic"], options["software_nic"], "ids", notes),
            notes.status(f"making sample traffic, {flows:,} flows"),
        ):
            summary = write_sample(path, flows=flows, seed=seed, rate=_FLOWS_A_SECOND)
        notes.print(f"sample traffic: {summary}", highlight=False)
        comparison = compare_captures(
            [str(path)],
            quiet=as_json,
            engine_name="ids",
            rules=(f"{path}.rules",),
            config=None,
            settings=(),
            **options,
        )
        status = report(comparison, as_json, verbose)
    if comparison.signal:
        return status
    expected = dict(Counter(alert.sid for alert in summary.planted))
    found = {s.sid: count for s, count in comparison.modes[BypassMode.OFF].result.alerts.items()}
    if found != expected:
        wrong = sorted(sid for sid in {*found, *expected} if found.get(sid) != expected.get(sid))
        Console(stderr=True).print(
            f"planted attacks: sids {', '.join(map(str, wrong))} did not alert as often as planted", style="red"
        )
        return status or ANSWER_IS_NO
    notes.print(f"planted attacks: all {sum(expected.values())} alerts found without bypass")
    return status
