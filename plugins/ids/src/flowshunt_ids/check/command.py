"""The command group `flowshunt rules`."""

from typing import Any

import click

_BROKEN = 1


@click.group(
    name="rules",
    short_help="Check detection rules.",
    epilog="Example: flowshunt rules check local.rules --findings",
)
def command() -> None:
    """Check the rules of the detection engine."""


@command.command(name="check", epilog="Example: flowshunt rules check local.rules --config suricata.yaml")
@click.argument("files", nargs=-1, metavar="FILE...")
@click.option("--config", metavar="FILE", help="suricata.yaml: variables, classes and rule files.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Setting that wins over --config.")
@click.option("--findings", is_flag=True, help="Show only rules that are not loaded or have findings.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def check(files: tuple[str, ...], config: str | None, settings: tuple[str, ...], findings: bool, as_json: bool) -> int:
    """Say of each rule whether it loads, what is searched for first, what it costs, and what may be a mistake.

    Exit status 1: some rule is not loaded.
    """
    from flowshunt.cli.options import parse_settings, readable_files
    from flowshunt.engine import EngineConfig
    from flowshunt.errors import InputError
    from flowshunt_ids.check.report import LOADED, check_files
    from flowshunt_ids.settings import load_settings

    path = readable_files([config], "--config")[0] if config else None
    loaded = load_settings(EngineConfig(config=path, settings=parse_settings(settings)))
    paths = readable_files(files, "rule file") if files else loaded.rule_files
    if not paths:
        raise InputError("no rule file is named", "rules check", "name one, or --config with rule-files")
    reports = check_files(paths, loaded)
    if as_json:
        _print_json(reports, loaded.warnings)
    else:
        _print_text(reports, loaded.warnings, findings)
    return 0 if all(report.state == LOADED for report in reports) else _BROKEN


def _print_json(reports: Any, warnings: Any) -> None:
    import json

    from flowshunt_ids.check.findings import show
    from flowshunt_ids.check.report import summary_of

    rules = [
        {
            "file": report.path,
            "line": report.line,
            "sid": report.sid,
            "msg": report.message,
            "state": report.state,
            "reason": report.reason,
            "scope": report.scope,
            "buffer": report.buffer,
            "pattern": show(report.pattern.literal) if report.pattern else None,
            "nocase": report.pattern.nocase if report.pattern else None,
            "cost": report.cost,
            "cost_reason": report.cost_reason,
            "findings": [{"code": finding.code, "text": finding.text} for finding in report.findings],
        }
        for report in reports
    ]
    click.echo(json.dumps({"rules": rules, "summary": summary_of(reports), "warnings": list(warnings)}, indent=1))


def _print_text(reports: Any, warnings: Any, only_findings: bool) -> None:
    from flowshunt.output.plain import plain
    from flowshunt_ids.check.findings import show
    from flowshunt_ids.check.report import LOADED, summary_of

    for report in reports:
        if only_findings and report.state == LOADED and not report.findings:
            continue
        line = f"{report.path}:{report.line}: sid {report.sid}: {report.state}"
        if report.state != LOADED:
            click.echo(plain(f"{line}: {report.reason}"))
            continue
        searched = (
            f"searches {report.buffer} for {show(report.pattern.literal)}" if report.pattern else "searches nothing"
        )
        nocase = " nocase" if report.pattern and report.pattern.nocase else ""
        click.echo(plain(f"{line}, {report.scope}, {searched}{nocase}, {report.cost} ({report.cost_reason})"))
        for finding in report.findings:
            click.echo(plain(f"    {finding.code}: {finding.text}"))
    for warning in warnings:
        click.echo(plain(warning))
    for title, counts in summary_of(reports).items():
        if counts:
            click.echo(f"{title}: " + ", ".join(f"{count} {name}" for name, count in counts.items()))
