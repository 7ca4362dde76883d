"""Results as tables for a terminal. They render what `flowshunt.pipeline` computed, and compute nothing."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from rich.box import SIMPLE, SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from flowshunt.output.plain import plain
from flowshunt.pipeline.compare import AlertChange, Comparison, ModeFigures
from flowshunt.pipeline.mode import BypassMode
from flowshunt.pipeline.result import Amount, RunResult

_FLOWS_SHOWN = 5
_RULES_SHOWN = 10
_FEWEST_FRAMES_TIMED = 20_000
_COLUMNS = {
    BypassMode.OFF: "no bypass",
    BypassMode.SOFTWARE: "in software",
    BypassMode.HARDWARE: "in hardware",
}
_MODE_TITLES = {
    BypassMode.OFF: "no bypass",
    BypassMode.SOFTWARE: "software bypass",
    BypassMode.HARDWARE: "hardware bypass",
}


def bytes_text(count: int) -> str:
    """A number of bytes in decimal units."""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def _share(part: int, total: int, text: str) -> str:
    if not total:
        return text
    return f"{text} (100%)" if part == total else f"{text} ({part / total:.1%})"


def _frames(pick: Callable[[RunResult], Amount]) -> Callable[[RunResult], str]:
    return lambda r: _share(pick(r).frames, r.total.frames, f"{pick(r).frames:,}")


def _bytes(pick: Callable[[RunResult], Amount]) -> Callable[[RunResult], str]:
    return lambda r: _share(pick(r).bytes, r.total.bytes, bytes_text(pick(r).bytes))


def _spread(result: RunResult) -> str:
    frames = [buffer.frames for buffer in result.host_buffers]
    busiest = f"{max(frames) / sum(frames):.1%}" if sum(frames) else "0%"
    return f"{busiest} (1 of {len(frames)})"


def _flows_bypassed(result: RunResult) -> str:
    parts = [f"{count:,} {who}" for who, count in sorted(result.flows_bypassed.items()) if count]
    return "\n".join(parts) or "0"


def _actions(result: RunResult) -> str:
    return "\n".join(f"{name} {amount.frames:,}" for name, amount in sorted(result.by_action.items())) or "-"


_RUN_ROWS: tuple[tuple[str, Callable[[RunResult], str]], ...] = (
    ("NIC", lambda r: r.nic),
    ("frames in", lambda r: f"{r.total.frames:,}"),
    ("bytes in", lambda r: bytes_text(r.total.bytes)),
    ("delivered to the host", _frames(lambda r: r.delivered)),
    ("  bytes", _bytes(lambda r: r.delivered)),
    ("bypassed on the NIC", _frames(lambda r: r.bypassed_nic)),
    ("bypassed in the host", _frames(lambda r: r.bypassed_host)),
    ("  both, by action", _actions),
    ("dropped by rule", _frames(lambda r: r.dropped)),
    ("inspected", _frames(lambda r: r.inspected)),
    ("  bytes", _bytes(lambda r: r.inspected)),
    ("flows", lambda r: f"{r.flows:,}"),
    ("  bypassed", _flows_bypassed),
    ("busiest host buffer", _spread),
    ("host CPU time", lambda r: f"{r.host_time.total / 1e6:,.1f} ms"),
)


def _throughput(figures: ModeFigures) -> str:
    throughput = figures.throughput
    bound = "line rate" if throughput.host_gbps >= throughput.line_rate else "host"
    return f"{throughput.lossless_gbps:.1f} Gbit/s ({bound})"


def print_run(console: Console, result: RunResult) -> None:
    """A run's figures and its alerts."""
    table = Table(
        title=f"{_MODE_TITLES[result.mode]}, engine {result.engine}",
        show_header=False,
        title_justify="left",
        box=SIMPLE,
    )
    table.add_column()
    table.add_column(justify="right")
    for name, show in _RUN_ROWS:
        table.add_row(name, show(result))
    table.add_row("  per frame", f"{result.host_ns_per_frame:,.0f} ns")
    table.add_row("alerts", f"{sum(result.alerts.values()):,}")
    console.print(table)
    if result.alerts:
        alerts = Table(title="alerts by signature", title_justify="left", box=SIMPLE_HEAD)
        for column, justify in (("sid", "right"), ("signature", "left"), ("alerts", "right")):
            alerts.add_column(column, justify=justify)  # type: ignore[arg-type]
        for signature, count in sorted(result.alerts.items(), key=lambda item: (item[0].gid, item[0].sid)):
            alerts.add_row(str(signature.sid), Text(plain(signature.message)), f"{count:,}")
        console.print(alerts)


def print_comparison(console: Console, comparison: Comparison) -> None:
    """The modes side by side, alerts by signature, and the alerts that bypass loses."""
    modes = comparison.modes
    table = Table(title="bypass modes side by side", title_justify="left", box=SIMPLE_HEAD)
    table.add_column(no_wrap=True)
    for mode in modes:
        table.add_column(_COLUMNS[mode], justify="right")
    for name, show in _RUN_ROWS:
        table.add_row(name, *(show(m.result) for m in modes.values()))
    rounds = f" (median of {comparison.rounds})" if comparison.rounds > 1 else ""
    table.add_row(f"  per frame{rounds}", *(f"{m.host_ns_per_frame:,.0f} ns" for m in modes.values()))
    table.add_row("  to no bypass", *(f"{m.cost_ratio:.3f}" for m in modes.values()))
    cores = next(iter(modes.values())).throughput.cores
    label = f"lossless with {cores} core{'s' if cores > 1 else ''}"
    table.add_row("line rate", *(f"{m.throughput.line_rate:g} Gbit/s" for m in modes.values()))
    table.add_row(label, *(_throughput(m) for m in modes.values()))
    table.add_row("alerts", *(f"{sum(m.result.alerts.values()):,}" for m in modes.values()))
    table.add_row("  lost", *(f"{sum(c.count for c in m.lost):,}" for m in modes.values()))
    console.print(table)
    _print_cost(console, comparison)
    _print_alerts(console, comparison)
    _print_by_mode(console, "alerts lost to", {mode: m.lost for mode, m in modes.items()})
    _print_by_mode(console, "alerts only with", {mode: m.gained for mode, m in modes.items()})


def _print_cost(console: Console, comparison: Comparison) -> None:
    """Host time of hardware bypass over software bypass, or why there is none; and where times say little."""
    results = [figures.result for figures in comparison.modes.values()]
    frames = results[0].total.frames
    ratio = comparison.hardware_to_software
    if not any(count for result in results for count in result.flows_bypassed.values()):
        console.print("no flow was bypassed: times differ only by card and by chance")
    elif ratio:
        inverse = f" (1/{1 / ratio:.1f})" if ratio < 1 else ""
        console.print(f"host CPU time, hardware bypass to software bypass: {ratio:.3f}{inverse}")
    if frames < _FEWEST_FRAMES_TIMED:
        console.print(f"{frames:,} frames are too few to time: fixed costs of runs and bursts prevail")


def _print_by_mode(console: Console, what: str, by_mode: Mapping[BypassMode, Sequence[AlertChange]]) -> None:
    """Changes of alerts, told once for modes that have the same."""
    told: list[tuple[list[str], Sequence[AlertChange]]] = []
    for mode, changes in by_mode.items():
        names = next((names for names, known in told if known == changes), None)
        if names is None:
            told.append(([_MODE_TITLES[mode]], changes))
        else:
            names.append(_MODE_TITLES[mode])
    for names, changes in told:
        _print_changes(console, f"{what} {' and '.join(names)}", changes)


def _print_alerts(console: Console, comparison: Comparison) -> None:
    signatures = {s for m in comparison.modes.values() for s in m.result.alerts}
    if not signatures:
        return
    table = Table(title="alerts by signature", title_justify="left", box=SIMPLE_HEAD)
    table.add_column("sid", justify="right")
    table.add_column("signature")
    for mode in comparison.modes:
        table.add_column(_COLUMNS[mode], justify="right", no_wrap=True)
    for signature in sorted(signatures, key=lambda s: (s.gid, s.sid)):
        counts = (m.result.alerts.get(signature, 0) for m in comparison.modes.values())
        table.add_row(str(signature.sid), Text(plain(signature.message)), *(f"{count:,}" for count in counts))
    console.print(table)


def _print_changes(console: Console, title: str, changes: Sequence[AlertChange]) -> None:
    if not changes:
        return
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD)
    table.add_column("sid", justify="right")
    table.add_column("signature")
    table.add_column("alerts", justify="right")
    table.add_column("flows")
    for change in changes:
        flows = [f"{flow} ({count})" if count > 1 else flow for flow, count in change.flows[:_FLOWS_SHOWN]]
        if len(change.flows) > _FLOWS_SHOWN:
            flows.append(f"and {len(change.flows) - _FLOWS_SHOWN:,} more (--json has all)")
        table.add_row(
            str(change.signature.sid), Text(plain(change.signature.message)), f"{change.count:,}", "\n".join(flows)
        )
    console.print(table)


def print_problems(console: Console, result: RunResult, *, verbose: bool) -> None:
    """What was left out or went wrong, a line each: skipped rules (by reason if many, unless verbose), captures."""
    if result.skipped_rules:
        loaded, skipped = result.loaded_rules, len(result.skipped_rules)
        console.print(f"rules: {loaded:,} loaded, {skipped:,} skipped", style="yellow")
        if verbose or skipped <= _RULES_SHOWN:
            for problem in result.skipped_rules:
                console.print(
                    plain(f"  {problem.path}:{problem.line}: sid {problem.sid}: {problem.reason}"), markup=False
                )
        else:
            _print_reasons(console, result)
    for cause, count in result.nic_flows.items():
        if count and cause.startswith("refused"):
            why = cause.removeprefix("refused ")
            flows = f"{count:,} flow{'s' if count > 1 else ''}"
            text = f"warning: {result.nic} refused to learn {flows} {why}: left to the host"
            console.print(text, style="yellow", markup=False)
    for text in (*result.warnings, *result.problems):
        console.print(plain(f"warning: {text}"), style="yellow", markup=False)
    if result.interrupted:
        console.print("interrupted: the figures cover what was read until then", style="yellow")


def _print_reasons(console: Console, result: RunResult) -> None:
    """Skipped rules by reason, most frequent first, each with its first rule."""
    counts = Counter(problem.reason for problem in result.skipped_rules)
    first = {problem.reason: problem for problem in reversed(result.skipped_rules)}
    for reason, count in counts.most_common(_RULES_SHOWN):
        where = f"{first[reason].path}:{first[reason].line}: sid {first[reason].sid}"
        console.print(plain(f"  {count:>6,}  {reason} (first: {where})"), markup=False)
    rest = len(counts) - _RULES_SHOWN
    others = f"and for {rest:,} other reasons; " if rest > 0 else ""
    console.print(f"  {others}-v or --json names every rule")
