"""`flowshunt model`: what a host with a NIC keeps up with, by simulation; and what packet loss costs."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import attrs
import click
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from flowshunt.cli.options import DEFAULT_SOFTWARE_NIC, engine_options, parse_settings, pipeline_options, run_config
from flowshunt.cli.root import DONE
from flowshunt.errors import InputError

if TYPE_CHECKING:
    from flowshunt.model.bed import TestBed
    from flowshunt.model.loss import LossEffect
    from flowshunt.model.spread import Spread
    from flowshunt.model.throughput import Estimate

_SWEEPS = {
    "bypass": ("traffic.bypass_share", (*(n / 10 for n in range(10)), 0.95, 0.999)),
    "cores": ("host.cores", (2, 4, 8, 16, 24, 32, 40, 56, 64)),
    "frame-size": ("traffic.frame_bytes", (60, 128, 256, 512, 820, 1024, 1514)),
    "flows": ("traffic.flows", (100, 1_000, 10_000, 100_000, 1_000_000)),
}


@click.command(epilog="Example: flowshunt model --preset napatech-2019 --sweep bypass")
@click.argument("captures", nargs=-1, metavar="[CAPTURE]...")
@click.option("--preset", help="A test bed that others measured (napatech-2019).")
@click.option(
    "--value",
    "values",
    multiple=True,
    metavar="NAME=NUMBER",
    help="Another value of a parameter, such as host.cores=64.",
)
@click.option("--sweep", type=click.Choice(list(_SWEEPS)), help="Throughput over a range of one parameter.")
@click.option("--sensitivity", is_flag=True, help="Throughput with each parameter 10 % lower and higher.")
@click.option("--rate", type=click.FloatRange(0.001, 10_000), help="The loss at this rate, in Gbit/s.")
@click.option(
    "--loss", metavar="PERCENT,...", help="What such shares of lost frames cost on CAPTURE, run with the engine."
)
@click.option("--seeds", type=click.IntRange(1, 100), default=5, show_default=True, help="Runs with each --loss.")
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="Of the simulation.")
@click.option(
    "--cores", type=click.IntRange(1, 1024), default=8, show_default=True, help="Cores, where costs are measured."
)
@click.option(
    "--software-nic", default=DEFAULT_SOFTWARE_NIC, show_default=True, help="NIC of the modes without flow table."
)
@engine_options
@pipeline_options
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def command(
    captures: tuple[str, ...],
    preset: str | None,
    values: Sequence[str],
    sweep: str | None,
    sensitivity: bool,
    rate: float | None,
    loss: str | None,
    seeds: int,
    seed: int,
    as_json: bool,
    **options: Any,
) -> int:
    """Estimate the lossless throughput without, with software and with hardware bypass, and how busy cores are there.

    With a preset, from the parameters of that test bed; with CAPTURE, from the costs per frame that `compare` measures
    on this machine and the spread of the captures' flows. With --loss, run the engine on CAPTURE with frames left out,
    and count the alerts and whole payloads that are missing.
    """
    if loss is not None:
        return _loss(captures, _rates(loss), seeds, as_json, **options)
    bed, shares = _bed(captures, preset, as_json, **options)
    for name, text in parse_settings(values).items():
        bed = _with(bed, name, text)
        shares = None if name == "host.cores" else shares
    return _throughput(bed, shares, sweep, sensitivity, rate, seed, as_json)


def _rates(text: str) -> tuple[float, ...]:
    try:
        rates = tuple(float(part) / 100 for part in text.split(","))
    except ValueError:
        raise InputError(f"{text!r} is no list of percentages", "--loss", "such as --loss 0.4,3") from None
    if not all(0 < rate < 1 for rate in rates):
        raise InputError("a loss is more than 0 and less than 100 percent", "--loss")
    return rates


def _bed(
    captures: Sequence[str], preset: str | None, quiet: bool, cores: int, software_nic: str, **options: Any
) -> "tuple[TestBed, Spread | None]":
    from flowshunt.model.presets import PRESETS

    if captures and preset:
        raise InputError("a preset has its own costs", "--preset", "name a capture or a preset, not both")
    if not captures:
        name = preset or "napatech-2019"
        if name not in PRESETS:
            raise InputError(f"there is no preset {name}", "--preset", f"there are: {', '.join(PRESETS)}")
        return PRESETS[name], None
    from flowshunt.cli.compare import compare_captures
    from flowshunt.model.measured import measured_bed
    from flowshunt.plugins import nic_model

    comparison = compare_captures(captures, software_nic=software_nic, cores=cores, rounds=1, quiet=quiet, **options)
    if not comparison.complete:
        raise InputError("the comparison is not complete", ", ".join(captures), "see: flowshunt compare")
    try:
        found = measured_bed(comparison, nic_model(software_nic), nic_model(options["nic"]), cores)
    except ValueError as error:
        raise InputError(str(error), ", ".join(captures), "name a capture with frames, and rules that bypass") from None
    return found.bed, found.spread


def _with(bed: "TestBed", name: str, text: str) -> "TestBed":
    try:
        number = float(text)
        return bed.with_value(name, int(number) if name in ("host.cores", "host.nodes", "traffic.flows") else number)
    except ValueError as error:
        from flowshunt.model.bed import PARAMETERS

        raise InputError(f"{name}={text}: {error}", "--value", f"parameters: {', '.join(PARAMETERS)}") from None


def _throughput(
    bed: "TestBed",
    shares: "Spread | None",
    sweep: str | None,
    sensitivity: bool,
    rate: float | None,
    seed: int,
    as_json: bool,
) -> int:
    from flowshunt.cli.progress import working
    from flowshunt.model.presets import MEASURED
    from flowshunt.model.spread import spread
    from flowshunt.model.throughput import estimate, offered
    from flowshunt.model.throughput import sensitivity as varied
    from flowshunt.model.throughput import sweep as swept

    used = shares if shares is not None else spread(bed.traffic, bed.host.cores, seed)
    with working("simulating", as_json):
        estimates = [estimate(bed, mode, spread_=used, seed=seed) for mode in bed.cards]
        rows = list(swept(bed, *_SWEEPS[sweep], seed)) if sweep else []
        changes = list(varied(bed, seed=seed)) if sensitivity else []
        at = {mode: offered(bed, mode, rate, used, seed) for mode in bed.cards} if rate else {}
    measured = MEASURED.get(bed.name, {})
    if as_json:
        figures: dict[str, Any] = {
            "bed": _plain_bed(bed),
            "modes": {str(e.mode): {**_plain(e), "measured_gbps": measured.get(e.mode)} for e in estimates},
        }
        if sweep:
            figures["sweep"] = {
                "parameter": _SWEEPS[sweep][0],
                "rows": [{"value": value, **{str(e.mode): _plain(e) for e in found}} for value, found in rows],
            }
        if sensitivity:
            figures["sensitivity"] = [
                {"parameter": name, "change": change, **{str(e.mode): e.gbps for e in found}}
                for name, change, found in changes
            ]
        if rate:
            figures["at_rate"] = {str(mode): {"gbps": rate, "loss": load.loss} for mode, load in at.items()}
        click.echo(json.dumps(figures, indent=2))
        return DONE
    console = Console()
    _print_estimates(console, estimates, measured)
    for mode, load in at.items():
        console.print(f"  at {rate:g} Gbit/s, bypass {mode}: {load.loss:.2%} of the frames are lost")
    if rows:
        _print_rows(console, _SWEEPS[sweep or ""][0], rows)
    if changes:
        named = [(f"{name} {change:+.0%}", found) for name, change, found in changes]
        _print_rows(console, "parameter", named)
    return DONE


def _plain_bed(bed: "TestBed") -> dict[str, Any]:
    return {
        "name": bed.name,
        "host": attrs.asdict(bed.host),
        "cards": {str(mode): attrs.asdict(card) for mode, card in bed.cards.items()},
        "traffic": attrs.asdict(bed.traffic),
        "sources": dict(bed.sources),
    }


def _plain(estimate: "Estimate") -> dict[str, Any]:
    return {
        "gbps": estimate.gbps,
        "line_limited": estimate.line_limited,
        "cores_full": estimate.load.full,
        "cores": list(estimate.load.cores),
    }


def _print_estimates(console: Console, estimates: "Sequence[Estimate]", measured: Any) -> None:
    table = Table(
        "bypass", "Gbit/s", "measured", "limited by", "cores full", "busiest", "median", "idlest", box=SIMPLE_HEAD
    )
    for e in estimates:
        cores = e.load.cores
        table.add_row(
            str(e.mode),
            f"{e.gbps:.1f}",
            f"{measured[e.mode]:g}" if e.mode in measured else "-",
            "line rate" if e.line_limited else "cores",
            f"{e.load.full} of {len(cores)}",
            f"{cores[0]:.0%}",
            f"{cores[len(cores) // 2]:.0%}",
            f"{cores[-1]:.0%}",
        )
    console.print(table)


def _print_rows(console: Console, parameter: str, rows: "Sequence[tuple[float | str, Sequence[Estimate]]]") -> None:
    modes = [str(e.mode) for e in rows[0][1]]
    table = Table(parameter, *(f"{mode} Gbit/s" for mode in modes), box=SIMPLE_HEAD)
    for value, found in rows:
        table.add_row(value if isinstance(value, str) else f"{value:g}", *(f"{e.gbps:.1f}" for e in found))
    console.print(table)


def _loss(
    captures: Sequence[str],
    rates: tuple[float, ...],
    seeds: int,
    as_json: bool,
    *,
    cores: int,
    software_nic: str,
    nic: str,
    **options: Any,
) -> int:
    from flowshunt.cli.progress import working
    from flowshunt.model.loss import effects
    from flowshunt.pipeline.mode import BypassMode
    from flowshunt.plugins import nic_model

    del cores, software_nic
    if not captures:
        raise InputError("no capture given", "--loss", "name a capture and --rules")
    config = run_config(captures, nic_model(nic), BypassMode.OFF, **options)
    with working("running the engine", as_json) as told:
        found = list(effects(config, rates, seeds=seeds, progress=told))
    if as_json:
        click.echo(json.dumps([_plain_loss(effect) for effect in found], indent=2))
        return DONE
    table = Table("loss", "frames", "left out", "alerts lost", "payloads lost", box=SIMPLE_HEAD)
    for effect in found:
        payloads = effect.payloads
        table.add_row(
            effect.kind,
            f"{effect.rate:.2%}",
            f"{effect.frames_lost:.2%}",
            _share(*effect.alerts),
            "-" if payloads is None else _share(*payloads),
        )
    Console().print(table)
    return DONE


def _share(mean: float, error: float) -> str:
    return f"{mean:.1%} ± {error:.1%}"


def _plain_loss(effect: "LossEffect") -> dict[str, Any]:
    payloads = effect.payloads
    return {
        "kind": effect.kind,
        "rate": effect.rate,
        "frames_lost": effect.frames_lost,
        "alerts_lost": {"mean": effect.alerts[0], "error": effect.alerts[1], "runs": list(effect.alerts_lost)},
        "payloads_lost": None if payloads is None else {"mean": payloads[0], "error": payloads[1]},
    }
