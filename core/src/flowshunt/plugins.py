"""How plugins are found: entry points of the group `flowshunt`, checked one by one, so that none can stop the rest.

A plugin that fails to import, raises in a hook or implements a hook that nobody specifies is left out whole. An
object that breaks its contract, or has a name that is taken, is left out alone. Plugins come in the order of their
distributions' names, so the first to have a name keeps it on every machine. Each thing left out is named in one
`FlowshuntWarning`, with its distribution, version and reason, and in `PluginSet.left_out`.
"""

import functools
import inspect
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import metadata
from types import ModuleType
from typing import TYPE_CHECKING, Any

import attrs
import pluggy

from flowshunt import hookspecs
from flowshunt.commands import CORE_COMMANDS
from flowshunt.contracts import KINDS, Kind
from flowshunt.errors import ContractError, FlowshuntWarning, InputError

if TYPE_CHECKING:
    import click

    from flowshunt.action import OffloadAction
    from flowshunt.engine import DetectionEngine
    from flowshunt.nic import NicModel
    from flowshunt.operation import ExtendedOperation

GROUP = "flowshunt"
"""The entry-point group, and pluggy's project name."""


@attrs.frozen
class Plugin:
    """A plugin in use. `gives`: for each `Kind.key`, the names of the objects that were taken from it."""

    name: str
    distribution: str
    version: str
    module: str
    gives: Mapping[str, tuple[str, ...]] = attrs.field(factory=dict)


@attrs.frozen
class LeftOut:
    """Something that is not used.

    Attributes:
        what: "plugin NAME", or one object of it such as "NIC model NAME".
        names: what a user may know it by: the distribution's, the plugin's, the object's.
    """

    distribution: str
    version: str
    what: str
    reason: str
    names: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return f"{self.what} of {self.distribution} {self.version} is left out: {self.reason}"


@attrs.frozen(eq=False)
class PluginSet:
    """Everything that the installed plugins give, by name."""

    nic_models: "Mapping[str, NicModel]"
    actions: "Mapping[str, OffloadAction]"
    operations: "Mapping[str, ExtendedOperation]"
    engines: "Mapping[str, DetectionEngine]"
    commands: "Mapping[str, click.Command]"
    plugins: tuple[Plugin, ...]
    left_out: tuple[LeftOut, ...]
    _implementations: Mapping[str, Sequence[tuple[Plugin, Callable[..., Any]]]] = attrs.field(factory=dict)

    def call(self, hook: str, **arguments: Any) -> Iterator[tuple[Plugin, Any]]:
        """Each plugin's result of a hook that a plugin added; one that raises is named in a warning and passed over.

        `arguments` are the specification's; an implementation is given those that it names.
        """
        for plugin, function in self._implementations.get(hook, ()):
            wanted = inspect.signature(function).parameters
            try:
                result = function(**{name: arguments[name] for name in wanted})
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                _warn(_part(plugin, f"{hook} of plugin {plugin.name}", f"it raised {_said(error)}"))
                continue
            yield plugin, result


@functools.cache
def load_plugins() -> PluginSet:
    """The installed plugins, found once a process. Each thing left out is told in a warning."""
    found = discover(metadata.entry_points(group=GROUP))
    for item in found.left_out:
        _warn(item)
    return found


def nic_model(name: str) -> "NicModel":
    """The NIC model of a name. Raises InputError with the names there are, and why this one was left out if it was."""
    return _named("nic_models", name)


def action(name: str) -> "OffloadAction":
    """The offload action of a name. Raises InputError as `nic_model` does."""
    return _named("actions", name)


def operation(name: str) -> "ExtendedOperation":
    """The extended operation of a name. Raises InputError as `nic_model` does."""
    return _named("operations", name)


def engine(name: str) -> "DetectionEngine":
    """The detection engine of a name. Raises InputError as `nic_model` does."""
    return _named("engines", name)


def discover(entry_points: Iterable[metadata.EntryPoint]) -> PluginSet:
    """Load and check the plugins that entry points name. Raises nothing but KeyboardInterrupt."""
    manager = pluggy.PluginManager(GROUP)
    manager.add_hookspecs(hookspecs)
    left_out: list[LeftOut] = []
    loaded: list[tuple[Plugin, Any]] = []
    for entry_point in sorted(entry_points, key=lambda e: (_distribution(e)[0].lower(), e.name, e.value)):
        candidate = Plugin(entry_point.name, *_distribution(entry_point), module=entry_point.value)
        try:
            module = entry_point.load()
            manager.register(module, f"{candidate.distribution} {candidate.name}")
            _add_hookspecs(manager, module)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            left_out.append(_whole(candidate, _said(error)))
            continue
        loaded.append((candidate, module))

    collected = _Collected({kind.key: {} for kind in KINDS}, [], left_out, {})
    for candidate, module in loaded:
        _take(manager, candidate, module, collected)
    return PluginSet(
        **collected.objects,
        plugins=tuple(collected.plugins),
        left_out=tuple(left_out),
        implementations=collected.implementations,
    )


@attrs.define
class _Collected:
    objects: dict[str, dict[str, Any]]
    plugins: list[Plugin]
    left_out: list[LeftOut]
    implementations: dict[str, list[tuple[Plugin, Callable[..., Any]]]]


def _take(manager: pluggy.PluginManager, candidate: Plugin, module: Any, collected: _Collected) -> None:
    """Call a plugin's hooks, and take from it what holds its contract."""
    given: dict[str, Any] = {}
    hook = "its hooks"
    try:
        functions = _functions(manager, module)
        for kind in KINDS:
            if kind.hook in functions:
                hook = kind.hook
                result = functions[kind.hook]()
                given[kind.key] = tuple(result) if _is_sequence(result) else result
    except ContractError as error:
        collected.left_out.append(_whole(candidate, str(error)))
        return
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        collected.left_out.append(_whole(candidate, f"{hook} raised {_said(error)}"))
        return
    gives: dict[str, tuple[str, ...]] = {}
    for kind in KINDS:
        if kind.key in given:
            gives[kind.key] = _checked(kind, given[kind.key], candidate, collected)
    plugin = attrs.evolve(candidate, gives=gives)
    collected.plugins.append(plugin)
    for name, function in functions.items():
        if not hasattr(hookspecs, name):
            collected.implementations.setdefault(name, []).append((plugin, function))


def _functions(manager: pluggy.PluginManager, module: Any) -> dict[str, Callable[..., Any]]:
    """A plugin's hook implementations by hook. Raises ContractError for one that nobody specifies, or that wraps."""
    functions: dict[str, Callable[..., Any]] = {}
    for caller in manager.get_hookcallers(module) or ():
        for implementation in caller.get_hookimpls():
            if implementation.plugin is not module:
                continue
            if not caller.has_spec():
                if implementation.optionalhook:
                    continue
                raise ContractError(f"it implements the hook {caller.name}, which nothing installed specifies")
            if implementation.wrapper or implementation.hookwrapper:
                raise ContractError(f"{caller.name} is a hook wrapper, which could change what other plugins give")
            functions[caller.name] = implementation.function
    for name in vars(hookspecs):
        if name.startswith("flowshunt_") and name not in functions and inspect.isroutine(getattr(module, name, None)):
            raise ContractError(f"its {name} is not marked with flowshunt.hookimpl")
    return functions


def _checked(kind: Kind, given: Any, candidate: Plugin, collected: _Collected) -> tuple[str, ...]:
    """Take the objects of one kind that hold their contract and whose names are free; returns their names."""

    def leave_out(what: str, reason: str, *names: str) -> None:
        collected.left_out.append(_part(candidate, what, reason, *names))

    if not isinstance(given, tuple):
        leave_out(f"{kind.hook} of plugin {candidate.name}", f"it returned {type(given).__name__}, not a sequence")
        return ()
    taken = collected.objects[kind.key]
    names: list[str] = []
    for number, thing in enumerate(given, 1):
        what = f"{kind.noun} number {number} of plugin {candidate.name}"
        try:
            kind.check(thing)
            name = str(thing.name)
        except KeyboardInterrupt:
            raise
        except ContractError as error:
            label = _label(thing)
            leave_out(f"{kind.noun} {label}" if label else what, str(error), *([label] if label else []))
            continue
        except BaseException as error:
            leave_out(what, f"its attributes raise {_said(error)}")
            continue
        if name in taken or (kind.key == "commands" and name in CORE_COMMANDS):
            owner = _owner(kind, name, names, collected)
            leave_out(f"{kind.noun} {name}", f"the name {name} is taken by {owner}", name)
            continue
        taken[name] = thing
        names.append(name)
    return tuple(names)


def _label(thing: Any) -> str:
    """The name of an object that broke its contract, as far as it has one; else ""."""
    try:
        return thing.name if isinstance(thing.name, str) and not isinstance(thing, type) else ""
    except Exception:
        return ""


def _is_sequence(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _owner(kind: Kind, name: str, names: Sequence[str], collected: _Collected) -> str:
    if name in names:
        return "another of the same plugin"
    for plugin in collected.plugins:
        if name in plugin.gives.get(kind.key, ()):
            return f"{plugin.distribution} {plugin.version}"
    return "flowshunt-core"


def _add_hookspecs(manager: pluggy.PluginManager, module: Any) -> None:
    """Make the hooks known that a plugin adds."""
    function = getattr(module, "flowshunt_hookspecs", None)
    if function is None:
        return
    for specifications in function():
        if not isinstance(specifications, ModuleType):
            raise ContractError(f"flowshunt_hookspecs returned {type(specifications).__name__}, not modules")
        manager.add_hookspecs(specifications)


def _named(key: str, name: str) -> Any:
    """The object of a kind and name, or InputError."""
    found = load_plugins()
    objects: Mapping[str, Any] = getattr(found, key)
    if name in objects:
        return objects[name]
    noun = next(kind.noun for kind in KINDS if kind.key == key)
    reasons = [str(item) for item in found.left_out if item.what == f"{noun} {name}"]
    reasons = reasons or [str(item) for item in found.left_out if item.what.startswith("plugin ")]
    way_out = f"installed: {', '.join(sorted(objects)) or 'none'}"
    raise InputError(f"there is no {noun} {name!r}", way_out="; ".join([way_out, *reasons]))


def _distribution(entry_point: metadata.EntryPoint) -> tuple[str, str]:
    """The name and version of the distribution that an entry point came from."""
    distribution = entry_point.dist
    if distribution is None:
        return "(unknown)", "?"
    return str(distribution.metadata["Name"] or "(unknown)"), str(distribution.metadata["Version"] or "?")


def _whole(candidate: Plugin, reason: str) -> LeftOut:
    return _part(candidate, f"plugin {candidate.name}", reason)


def _part(plugin: Plugin, what: str, reason: str, *names: str) -> LeftOut:
    known_as = frozenset({plugin.distribution, plugin.name, *names})
    return LeftOut(plugin.distribution, plugin.version, what, reason, known_as)


def _said(error: BaseException) -> str:
    """An exception on one line, with the place in the plugin that it came from."""
    frames = traceback.extract_tb(error.__traceback__)
    place = ""
    if frames and isinstance(error, Exception) and not isinstance(error, pluggy.PluginValidationError):
        last = frames[-1]
        if not last.filename.startswith("<frozen"):
            place = f" ({last.filename}, line {last.lineno})"
    try:
        text = " ".join(str(error).split())
    except Exception:
        text = ""
    return f"{type(error).__name__}{': ' if text else ''}{text}{place}"


def _warn(item: LeftOut) -> None:
    warnings.warn(str(item), FlowshuntWarning, stacklevel=3)
