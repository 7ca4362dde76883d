"""The extension points. A plugin implements any of these, marked with `flowshunt.hookimpl`.

A plugin is a module that a distribution names in the entry-point group `flowshunt`:

    [project.entry-points.flowshunt]
    my_plugin = "my_package.plugin"
"""

from collections.abc import Sequence
from types import ModuleType

import click
import pluggy

from flowshunt.action import OffloadAction
from flowshunt.engine import DetectionEngine
from flowshunt.nic import NicModel
from flowshunt.operation import ExtendedOperation

hookspec = pluggy.HookspecMarker("flowshunt")


@hookspec
def flowshunt_nic_models() -> Sequence[NicModel]:  # type: ignore[empty-body]
    """NIC models that this plugin offers, for `--nic NAME`.

    Each fulfils `flowshunt.nic.NicModel`: what the card is (ports, line rate, memory, flow-table size, host buffers,
    actions) and `open(config)`, which gives a `flowshunt.nic.Nic` for one run.
    """


@hookspec
def flowshunt_offload_actions() -> Sequence[OffloadAction]:  # type: ignore[empty-body]
    """Offload actions that this plugin offers: what a NIC does with the frames of a bypassed flow.

    Each is a `flowshunt.action.OffloadAction`: a name, parameters, and the eBPF fragment that carries it out in a
    flow program. The fragment's calling convention is in `flowshunt.action`.
    """


@hookspec
def flowshunt_extended_operations() -> Sequence[ExtendedOperation]:  # type: ignore[empty-body]
    """Extended operations that this plugin offers: an eBPF idiom with its proof sequence and native forms.

    Each fulfils `flowshunt.operation.ExtendedOperation`.
    """


@hookspec
def flowshunt_detection_engines() -> Sequence[DetectionEngine]:  # type: ignore[empty-body]
    """Detection engines that this plugin offers, for `--engine NAME`.

    Each fulfils `flowshunt.engine.DetectionEngine`: `open(config)` gives a session whose `inspect(batch)` returns
    verdicts (alerts, frames to drop, flows to bypass).
    """


@hookspec
def flowshunt_cli_commands() -> Sequence[click.Command]:  # type: ignore[empty-body]
    """Commands (click commands or groups) to add to `flowshunt`. A name that exists already is refused.

    A command's function returns its exit status, see `flowshunt.cli.root`. The plugin's module is imported for
    `flowshunt --help`: heavy imports belong inside the command's function.
    """


@hookspec
def flowshunt_hookspecs() -> Sequence[ModuleType]:  # type: ignore[empty-body]
    """Modules with hook specifications of this plugin's own, which other plugins then implement.

    Each specification is marked with `pluggy.HookspecMarker("flowshunt")`, and its name starts with `flowshunt_` and
    the plugin's name. The plugin collects what was implemented with `flowshunt.plugins.load_plugins().call(hook)`.
    """
