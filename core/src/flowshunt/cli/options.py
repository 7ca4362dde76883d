"""Options that `run`, `compare` and `demo` share, and what they stand for."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from flowshunt.engine import BypassRequest
from flowshunt.errors import InputError
from flowshunt.nic import NicModel
from flowshunt.pipeline.mode import BypassMode

DEFAULT_NIC = "nt200a02"
DEFAULT_SOFTWARE_NIC = "xl710"
DEFAULT_ENGINE = "ids"

F = TypeVar("F", bound=Callable[..., Any])


def apply_options(options: Sequence[Callable[[F], F]], function: F) -> F:
    """Decorate with options so that `--help` lists them in their order."""
    for option in reversed(options):
        function = option(function)
    return function


def engine_options(function: F) -> F:
    """The options that say what to look for."""
    options = (
        click.option("--engine", "engine_name", default=DEFAULT_ENGINE, show_default=True, help="Detection engine."),
        click.option("--rules", "rules", multiple=True, metavar="FILE", help="Rule file; may be given again."),
        click.option("--config", "config", metavar="FILE", help="The engine's configuration (ids: a suricata.yaml)."),
        click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Setting that wins over --config."),
    )
    return apply_options(options, function)


def pipeline_options(function: F) -> F:
    """The options that say how frames travel."""
    options = (
        click.option("--nic", "nic", default=DEFAULT_NIC, show_default=True, metavar="MODEL", help="NIC model."),
        click.option("--host-buffers", type=click.IntRange(1, 1 << 16), help="Host buffers (receive queues) to use."),
        click.option(
            "--bypass-action",
            metavar="NAME[:PARAMETER=VALUE,...]",
            help="Act so on every bypassed flow, whatever the engine asks for.",
        ),
        click.option(
            "--burst",
            type=click.IntRange(1, 1 << 20),
            help="Frames under way while the host looks at those before; a verdict takes effect with the next burst.  "
            "[default: 1/32 of the captures, 256 to 32768]",
        ),
        click.option(
            "--flows",
            "flow_capacity",
            type=click.IntRange(2, 1 << 26),
            default=1 << 20,
            show_default=True,
            help="Flows that the host keeps.",
        ),
        click.option(
            "--workers",
            type=click.IntRange(1, 64),
            default=1,
            show_default=True,
            help="Processes that share the frames, by the hosts between which they go.",
        ),
        click.option(
            "--nic-flows", type=click.IntRange(2, 1 << 30), help="Rows of the NIC's flow table.  [default: by need]"
        ),
    )
    return apply_options(options, function)


def parse_settings(pairs: Sequence[str]) -> dict[str, str]:
    """`key=value` settings. Raises InputError for one without "=" or with nothing between the key's dots."""
    settings = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not all(part.strip() for part in key.split(".")):
            raise InputError(f"{pair!r} is not KEY=VALUE", "--set")
        settings[key.strip()] = value.strip()
    return settings


def parse_action(text: str | None) -> BypassRequest | None:
    """An offload action and its parameters: "redirect:host_buffer=3". Raises InputError for anything else."""
    if text is None:
        return None
    from flowshunt.plugins import action as action_of

    name, _, rest = text.partition(":")
    action = action_of(name)
    parameters = {}
    for part in filter(None, rest.split(",")):
        key, equals, value = part.partition("=")
        try:
            parameters[key] = int(value, 0)
        except ValueError:
            raise InputError(f"{part!r} is not PARAMETER=NUMBER", "--bypass-action") from None
        if not equals:
            raise InputError(f"{part!r} is not PARAMETER=NUMBER", "--bypass-action")
    try:
        checked = action.check(parameters)
    except ValueError as error:
        raise InputError(str(error), "--bypass-action", f"see: flowshunt plugins show {name}") from None
    return BypassRequest(name, checked, "command line")


def readable_files(paths: Sequence[str], option: str) -> tuple[Path, ...]:
    """Paths of files that exist. Raises InputError naming the first that doesn't."""
    for path in paths:
        if not Path(path).is_file():
            raise InputError("no such file" if not Path(path).exists() else "not a file", f"{option} {path}")
    return tuple(map(Path, paths))


def run_config(
    captures: Sequence[str],
    model: NicModel,
    mode: BypassMode,
    *,
    engine_name: str,
    rules: Sequence[str],
    config: str | None,
    settings: Sequence[str],
    bypass_action: str | None,
    burst: int | None,
    host_buffers: int | None,
    flow_capacity: int,
    nic_flows: int | None,
    workers: int = 1,
) -> Any:
    """The RunConfig of a command's options. Raises InputError for what can't be meant."""
    from flowshunt.pipeline.run import RunConfig
    from flowshunt.plugins import engine, load_plugins

    return RunConfig(
        captures=tuple(captures),
        model=model,
        engine=engine(engine_name),
        mode=mode,
        actions=load_plugins().actions,
        rules=readable_files(rules, "--rules"),
        engine_config=readable_files([config], "--config")[0] if config else None,
        settings=parse_settings(settings),
        override=parse_action(bypass_action),
        burst=burst,
        host_buffers=host_buffers,
        flow_capacity=flow_capacity,
        nic_flows=nic_flows,
        workers=workers,
    )
