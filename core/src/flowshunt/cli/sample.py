"""`flowshunt sample`: write sample traffic, its rules, and what they find in it."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click
from rich.console import Console

from flowshunt.packets.sample import SampleSummary, write_sample
from flowshunt.packets.sample.flow import SECOND
from flowshunt.packets.sample.write import FLOWS, FLOWS_A_SECOND


@contextmanager
def _flows_bar(quiet: bool) -> Iterator[Callable[[int, int], None] | None]:
    """A function that shows (flows started, flows in all) on standard error; None where that is no terminal."""
    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("flows"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("flows", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _table(summary: SampleSummary) -> str:
    lost = sum(alert.lost for alert in summary.planted)
    rows = (
        ("frames", f"{summary.frames:,}"),
        ("bytes", f"{summary.bytes:,}"),
        ("flows", f"{summary.flows:,}, at most {summary.most_open:,} open at a time"),
        ("duration", f"{summary.duration / SECOND:,.1f} s of packet time"),
        ("TCP, UDP", f"{summary.tcp_share:.1%}, {summary.udp_share:.1%} of the frames"),
        (
            "bypassable",
            f"{summary.bypassable_frame_share:.1%} of the frames, {summary.bypassable_byte_share:.1%} of the bytes",
        ),
        ("planted alerts", f"{len(summary.planted):,}, of which bypass loses {lost:,}"),
        ("capture", str(summary.capture)),
        ("rules", str(summary.rules)),
        ("expected alerts", str(summary.alerts)),
        ("summary", str(summary.summary)),
    )
    return "\n".join(f"{name:<17}{value}" for name, value in rows)


@click.command(epilog="Example: flowshunt sample out.pcap --flows 20000 --seed 7")
@click.argument("out", metavar="OUT.pcap")
@click.option(
    "--flows",
    type=click.IntRange(min=1),
    default=FLOWS,
    show_default=True,
    help="Flows in all, planted attacks included; about 85 frames a flow.",
)
@click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True, help="Equal seeds, equal bytes.")
@click.option(
    "--rate",
    type=click.FloatRange(0.001, 1e9),
    default=FLOWS_A_SECOND,
    show_default=True,
    help="Flows that start in a second of packet time; the higher, the more are open at a time.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(out: str, flows: int, seed: int, rate: float, as_json: bool) -> None:
    """Write a sample capture, and beside it rules and what they find.

    88% TCP and 12% UDP by packets: web, TLS, SSH, mail, file transfer, backups, DNS, QUIC. The rules in
    OUT.pcap.rules let about 70% of the bytes be bypassed; OUT.pcap.alerts.json lists what else they find.
    """
    with _flows_bar(quiet=as_json) as progress:
        summary = write_sample(out, flows=flows, seed=seed, rate=rate, progress=progress)
    click.echo(json.dumps(summary.as_json(), indent=2) if as_json else _table(summary))
