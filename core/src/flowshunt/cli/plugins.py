"""`flowshunt plugins`: list, show, make and check plugins."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import click

from flowshunt.action import OffloadAction
from flowshunt.cli.root import ANSWER_IS_NO, DONE
from flowshunt.contracts import KINDS, Kind
from flowshunt.errors import InputError
from flowshunt.plugins import Plugin, PluginSet, load_plugins

_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@attrs.frozen
class Found:
    """An object that a name stands for, with the plugin that gave it."""

    kind: Kind
    name: str
    thing: Any
    plugin: Plugin


@click.group(invoke_without_command=True, epilog="Example: flowshunt plugins show drop")
@_json_option
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> int:
    """List, show, make and check plugins. Alone it lists them.

    Plugins are found by the entry-point group `flowshunt` of installed distributions.
    """
    if ctx.invoked_subcommand is None:
        return _list(as_json)
    if as_json:
        raise click.UsageError(f"--json belongs after {ctx.invoked_subcommand}")
    return DONE


@command.command("list", epilog="Example: flowshunt plugins list --json")
@_json_option
def list_(as_json: bool) -> int:
    """List plugins: distribution, version, what each gives, and what was left out and why."""
    return _list(as_json)


@command.command(epilog="Example: flowshunt plugins show flowshunt-offload-actions")
@click.argument("name")
@_json_option
def show(name: str, as_json: bool) -> int:
    """Show a distribution, a plugin, or one object of a plugin (a NIC model, an action ...) by NAME."""
    found = load_plugins()
    plugins = [_plugin_data(plugin, found) for plugin in found.plugins if _is_named(plugin, name)]
    things = [_thing_data(item) for item in _things(found) if item.name == name]
    left_out = [_left_out_data(item) for item in _left_out(found, name)]
    if not plugins and not things and not left_out:
        raise _unknown(found, name)
    if as_json:
        click.echo(json.dumps({"plugins": plugins, "objects": things, "left_out": left_out}, indent=2))
        return DONE
    for entry in (*plugins, *things):
        _print_entry(entry)
    for item in left_out:
        click.echo(f"left out: {item['what']} of {item['distribution']} {item['version']}: {item['reason']}")
    return DONE


@command.command(epilog="Example: flowshunt plugins new engine sizes --dir ~/src")
@click.argument("kind", metavar="KIND")
@click.argument("name")
@click.option(
    "--dir", "folder", default=".", show_default=True, metavar="FOLDER", help="Where to make the plugin's own folder."
)
def new(kind: str, name: str, folder: str) -> int:
    """Write a new plugin: a distribution with its source, tests and README, ready to install.

    KIND is nic, action, operation or engine; NAME is what it will be called on the command line.
    """
    from flowshunt.scaffold import write_plugin

    made = write_plugin(kind, name, Path(folder).expanduser())
    click.echo(f"{made} holds a plugin that works: its README says what to change")
    click.echo(f"install it:  pip install -e {made}")
    click.echo(f"check it:    flowshunt plugins check {name}")
    return DONE


@command.command(epilog="Example: flowshunt plugins check ids --rules local.rules")
@click.argument("name")
@click.option("--rules", multiple=True, metavar="FILE", help="Rule file to open an engine with; may be given again.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Setting to open an engine with.")
@_json_option
def check(name: str, rules: tuple[str, ...], settings: tuple[str, ...], as_json: bool) -> int:
    """Check that plugins keep their contract: a distribution, a plugin or one object by NAME.

    Exit status 1: a claim does not hold, or something of that name was left out.
    """
    from flowshunt.cli.options import parse_settings, readable_files
    from flowshunt.engine import EngineConfig
    from flowshunt.testing import CONTRACTS, engine_contract, examine

    found = load_plugins()
    left_out = _left_out(found, name)
    named = [item for item in _things(found) if item.name == name or _is_named(item.plugin, name)]
    things = [item for item in named if item.kind.key in CONTRACTS]
    if not named and not left_out and not any(_is_named(plugin, name) for plugin in found.plugins):
        raise _unknown(found, name)
    config = EngineConfig(rules=readable_files(rules, "--rules"), settings=parse_settings(settings))
    passed = failed = 0
    rows: list[dict[str, Any]] = []
    for item in things:
        is_engine = item.kind.key == "engines"
        claims = engine_contract(item.thing, config) if is_engine else CONTRACTS[item.kind.key](item.thing)
        if not as_json:
            click.echo(f"{item.kind.noun} {item.name} ({item.plugin.distribution} {item.plugin.version})")
        for outcome in examine(claims):
            passed, failed = passed + outcome.passed, failed + (not outcome.passed)
            rows.append(
                {
                    "kind": item.kind.noun,
                    "name": item.name,
                    "claim": outcome.claim.name,
                    "statement": outcome.claim.statement,
                    "passed": outcome.passed,
                    "reason": outcome.reason,
                }
            )
            if not as_json:
                click.echo(f"  {'ok    ' if outcome.passed else 'FAILED'}  {outcome.claim.statement}")
                if not outcome.passed:
                    click.echo(f"          {outcome.reason}")
    if as_json:
        click.echo(json.dumps({"claims": rows, "left_out": [_left_out_data(item) for item in left_out]}, indent=2))
    else:
        for item in left_out:
            click.echo(f"left out: {item}")
        if not things and not left_out:
            click.echo(f"{name} gives nothing that has a contract")
        click.echo(f"{passed} claims hold, {failed} do not" + (f", {len(left_out)} left out" if left_out else ""))
    return ANSWER_IS_NO if failed or left_out else DONE


def _list(as_json: bool) -> int:
    found = load_plugins()
    plugins = [_plugin_data(plugin, found) for plugin in found.plugins]
    left_out = [_left_out_data(item) for item in found.left_out]
    if as_json:
        click.echo(json.dumps({"plugins": plugins, "left_out": left_out}, indent=2))
        return DONE
    if not plugins:
        click.echo("no plugin is installed")
    for plugin in found.plugins:
        click.echo(f"{plugin.distribution} {plugin.version}")
        for kind in KINDS:
            if names := plugin.gives.get(kind.key):
                click.echo(f"  {kind.noun + ('s' if len(names) > 1 else '')}: {', '.join(names)}")
    if left_out:
        click.echo("left out:")
    for item in found.left_out:
        click.echo(f"  {item.distribution} {item.version}, {item.what}: {item.reason}")
    return DONE


def _things(found: PluginSet) -> Iterator[Found]:
    for kind in KINDS:
        objects: Mapping[str, Any] = getattr(found, kind.key)
        for plugin in found.plugins:
            for name in plugin.gives.get(kind.key, ()):
                yield Found(kind, name, objects[name], plugin)


def _left_out(found: PluginSet, name: str) -> list[Any]:
    wanted = _canonical(name)
    return [item for item in found.left_out if name in item.names or wanted == _canonical(item.distribution)]


def _is_named(plugin: Plugin, name: str) -> bool:
    return name == plugin.name or _canonical(name) == _canonical(plugin.distribution)


def _canonical(name: str) -> str:
    """A distribution's name as package indexes compare it."""
    return name.lower().replace("_", "-").replace(".", "-")


def _unknown(found: PluginSet, name: str) -> InputError:
    names = sorted({plugin.distribution for plugin in found.plugins} | {item.name for item in _things(found)})
    return InputError(f"nothing is called {name!r}", way_out=f"installed: {', '.join(names) or 'no plugin'}")


def _plugin_data(plugin: Plugin, found: PluginSet) -> dict[str, Any]:
    gives = {
        kind.key: {name: _summary(getattr(found, kind.key)[name]) for name in plugin.gives[kind.key]}
        for kind in KINDS
        if plugin.gives.get(kind.key)
    }
    return {
        "distribution": plugin.distribution,
        "version": plugin.version,
        "plugin": plugin.name,
        "module": plugin.module,
        "gives": gives,
    }


def _thing_data(item: Found) -> dict[str, Any]:
    thing = item.thing
    data: dict[str, Any] = {
        "kind": item.kind.noun,
        "name": item.name,
        "summary": _summary(thing),
        "distribution": f"{item.plugin.distribution} {item.plugin.version}",
    }
    if item.kind.key == "nic_models":
        for name in ("ports", "line_rate", "memory", "flow_table_capacity", "host_buffers", "zero_copy"):
            data[name] = getattr(thing, name)
        data["actions"] = None if thing.actions is None else sorted(thing.actions)
    elif isinstance(thing, OffloadAction):
        data["parameters"] = [attrs.asdict(parameter) for parameter in thing.parameters]
    elif item.kind.key == "operations":
        data["max_instructions"], data["max_bytes"] = thing.max_instructions, thing.max_bytes
        data["payload"] = [attrs.asdict(field) for field in thing.layout.fields]
        data["emits"] = {
            architecture: [
                {"features": sorted(form.features), "cost": None if callable(form.cost) else form.cost}
                for form in forms
            ]
            for architecture, forms in thing.emits.items()
        }
    return data


def _left_out_data(item: Any) -> dict[str, str]:
    return {name: getattr(item, name) for name in ("distribution", "version", "what", "reason")}


def _summary(thing: Any) -> str:
    return thing.get_short_help_str(100) if isinstance(thing, click.Command) else str(thing.summary)


def _print_entry(entry: Mapping[str, Any]) -> None:
    if "gives" in entry:
        click.echo(f"{entry['distribution']} {entry['version']}")
        click.echo(f"  plugin {entry['plugin']}, module {entry['module']}")
        for kind in KINDS:
            for name, summary in entry["gives"].get(kind.key, {}).items():
                click.echo(f"  {kind.noun} {name}: {summary}")
        return
    click.echo(f"{entry['kind']} {entry['name']} ({entry['distribution']})")
    click.echo(f"  {entry['summary']}")
    for label, text in _details(entry):
        click.echo(f"  {label}: {text}")


def _details(entry: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if "line_rate" in entry:
        yield "ports", str(entry["ports"])
        yield "line rate", f"{entry['line_rate']:g} Gbit/s"
        flows = entry["flow_table_capacity"]
        yield "flow table", f"{flows:,} flows, {entry['memory'] / 2**20:,.0f} MiB" if flows else "none"
        yield "host buffers", f"1 to {entry['host_buffers']}"
        yield "delivery", "zero copy" if entry["zero_copy"] else "through the kernel's packet ring, one copy"
        actions = entry["actions"]
        yield "actions", "any" if actions is None else ", ".join(actions) or "none"
    for parameter in entry.get("parameters", ()):
        default = "required" if parameter["default"] is None else f"default {parameter['default']}"
        limits = f"{parameter['minimum']} to {parameter['maximum']}, {default}"
        yield f"parameter {parameter['name']}", f"{parameter['summary']} ({limits})"
    if "emits" in entry:
        yield "proof sequence", f"at most {entry['max_instructions']} instructions"
        for architecture, forms in entry["emits"].items():
            needs = [" + ".join(form["features"]) or "every CPU" for form in forms]
            yield f"native on {architecture}", ", ".join(needs)
