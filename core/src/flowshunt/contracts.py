"""What each contract asks of the objects that plugins return, checked on the object alone, without running it.

The claims about how an object behaves are tested by `flowshunt.testing`.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import click

from flowshunt.action import OffloadAction, Parameter
from flowshunt.errors import ContractError
from flowshunt.operation import CPU_FEATURES, ExtendedOperation, NativeEmit
from flowshunt.payload import Layout

NAME = re.compile(r"[a-z][a-z0-9_-]*")
"""What a plugin's objects may be called."""

MAX_HOST_BUFFERS = 128
"""The most host buffers that a NIC model may have; `Delivery.host_buffer` and the reports are sized by it."""

MAX_PARAMETER = (1 << 64) - 1
"""Action parameters are unsigned 64-bit numbers."""

ARCHITECTURES = frozenset(CPU_FEATURES)
"""Keys of `ExtendedOperation.emits`."""

MAX_PROOF_INSTRUCTIONS = 256
"""The most instructions that an operation may declare for its proof sequences."""

MAX_EMIT_BYTES = 1024
"""The most bytes of machine code that an operation may declare for its native forms."""


@attrs.frozen
class Kind:
    """A kind of object that plugins give.

    Attributes:
        key: its place in `flowshunt.plugins.PluginSet`.
        noun: what it is called in messages.
        hook: the hook that returns such objects.
        check: raises ContractError where an object breaks the contract.
        aliases: the words for it on the command line, the proper one first.
    """

    key: str
    noun: str
    hook: str
    check: Callable[[Any], None]
    aliases: tuple[str, ...] = ()


def check_nic_model(model: Any) -> None:
    """Raise ContractError where an object can't be a `flowshunt.nic.NicModel`."""
    _check_head(model)
    _check_number(model, "ports", int, 1, 1 << 16)
    _check_number(model, "line_rate", (int, float), 0, math.inf)
    if not model.line_rate > 0:
        raise ContractError("line_rate is 0: it is the card's rate in Gbit/s")
    _check_number(model, "memory", int, 0, 1 << 63)
    _check_number(model, "flow_table_capacity", int, 0, 1 << 40)
    _check_number(model, "host_buffers", int, 1, MAX_HOST_BUFFERS)
    if not isinstance(_attribute(model, "zero_copy"), bool):
        raise ContractError("zero_copy is not True or False")
    actions = _attribute(model, "actions")
    if actions is not None:
        if not isinstance(actions, frozenset):
            raise ContractError(f"actions is {_kind_of(actions)}, not a frozenset of names or None")
        for action in actions:
            _check_name(action, "an action in actions")
    _check_methods(model, "open")


def check_action(action: Any) -> None:
    """Raise ContractError where an object can't be a `flowshunt.action.OffloadAction`."""
    if not isinstance(action, OffloadAction):
        raise ContractError(f"it is {_kind_of(action)}, not a flowshunt.action.OffloadAction")
    _check_head(action)
    if not callable(action.fragment):
        raise ContractError("fragment is not callable")
    if not isinstance(action.parameters, tuple):
        raise ContractError(f"parameters is {_kind_of(action.parameters)}, not a tuple")
    seen: set[str] = set()
    for parameter in action.parameters:
        if not isinstance(parameter, Parameter):
            raise ContractError(f"a parameter is {_kind_of(parameter)}, not a flowshunt.action.Parameter")
        _check_name(parameter.name, "a parameter")
        if parameter.name in seen:
            raise ContractError(f"parameter {parameter.name} stands twice")
        seen.add(parameter.name)
        _check_number(parameter, "minimum", int, 0, MAX_PARAMETER)
        _check_number(parameter, "maximum", int, parameter.minimum, MAX_PARAMETER)
        if parameter.default is not None:
            _check_number(parameter, "default", int, parameter.minimum, parameter.maximum)


def check_operation(operation: Any) -> None:
    """Raise ContractError where an object can't be a `flowshunt.operation.ExtendedOperation`."""
    if not isinstance(operation, ExtendedOperation):
        raise ContractError(f"it is {_kind_of(operation)}, not a flowshunt.operation.ExtendedOperation")
    _check_head(operation)
    if not isinstance(operation.layout, Layout):
        raise ContractError(f"layout is {_kind_of(operation.layout)}, not a flowshunt.payload.Layout")
    for field in operation.layout.fields:
        if not field.name.isidentifier():
            raise ContractError(f"a field of the payload is called {field.name!r}, which is no identifier")
    _check_number(operation, "max_instructions", int, 1, MAX_PROOF_INSTRUCTIONS)
    _check_number(operation, "max_bytes", int, 1, MAX_EMIT_BYTES)
    if not isinstance(operation.emits, Mapping):
        raise ContractError(f"emits is {_kind_of(operation.emits)}, not a mapping of architectures")
    for architecture, forms in operation.emits.items():
        if architecture not in ARCHITECTURES:
            raise ContractError(f"emits names the architecture {architecture!r} (known: {_list(ARCHITECTURES)})")
        if not _is_sequence(forms) or not all(isinstance(form, NativeEmit) for form in forms):
            raise ContractError(f"emits[{architecture!r}] is not a sequence of flowshunt.operation.NativeEmit")
        for form in forms:
            _check_emit(architecture, form)
    names = ["proof", "recognizer", "admissible", "assumes", *(["cost"] if operation.cost is not None else [])]
    _check_methods(operation, *names)


def _check_emit(architecture: str, form: NativeEmit) -> None:
    if not callable(form.assembly):
        raise ContractError(f"emits[{architecture!r}]: assembly is not callable")
    if not isinstance(form.features, frozenset):
        raise ContractError(f"emits[{architecture!r}]: features is {_kind_of(form.features)}, not a frozenset of names")
    if unknown := form.features - CPU_FEATURES[architecture]:
        known = _list(CPU_FEATURES[architecture])
        raise ContractError(f"emits[{architecture!r}] needs the CPU feature {_list(unknown)} (known: {known})")
    if not callable(form.cost):
        _check_number(form, "cost", (int, float), 0, math.inf)


def check_engine(engine: Any) -> None:
    """Raise ContractError where an object can't be a `flowshunt.engine.DetectionEngine`."""
    _check_head(engine)
    _check_methods(engine, "open")


def check_command(command: Any) -> None:
    """Raise ContractError where an object can't be added to `flowshunt` as a command."""
    if not isinstance(command, click.Command):
        raise ContractError(f"it is {_kind_of(command)}, not a click command")
    _check_name(command.name, "the command's name")


KINDS = (
    Kind("nic_models", "NIC model", "flowshunt_nic_models", check_nic_model, ("nic", "nic-model", "nic_model")),
    Kind("actions", "offload action", "flowshunt_offload_actions", check_action, ("action", "offload-action")),
    Kind(
        "operations",
        "extended operation",
        "flowshunt_extended_operations",
        check_operation,
        ("operation", "extended-operation", "einsn"),
    ),
    Kind("engines", "detection engine", "flowshunt_detection_engines", check_engine, ("engine", "detection-engine")),
    Kind("commands", "command", "flowshunt_cli_commands", check_command),
)
"""All that the core's hooks collect, in the order it is reported."""


def _check_head(thing: Any) -> None:
    _check_name(_attribute(thing, "name"), "name")
    summary = _attribute(thing, "summary")
    if not isinstance(summary, str) or not summary.strip() or len(summary.splitlines()) != 1:
        raise ContractError(f"summary is {summary!r}, not one line of text")


def _check_name(name: Any, what: str) -> None:
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise ContractError(f"{what} is {name!r}, not a name in lower case (letters, digits, '_', '-'; a letter first)")


def _check_number(thing: Any, attribute: str, types: Any, minimum: float, maximum: float) -> None:
    value = _attribute(thing, attribute)
    if not isinstance(value, types) or isinstance(value, bool):
        raise ContractError(f"{attribute} is {value!r}, not a number of the right type")
    if not minimum <= value <= maximum:
        raise ContractError(f"{attribute} is {value}, outside {minimum} to {maximum}")


def _check_methods(thing: Any, *names: str) -> None:
    for name in names:
        if not callable(_attribute(thing, name)):
            raise ContractError(f"{name} is not callable")


def _attribute(thing: Any, name: str) -> Any:
    if isinstance(thing, type):
        raise ContractError(f"it is the class {thing.__name__}, not an object of it")
    try:
        return getattr(thing, name)
    except AttributeError:
        raise ContractError(f"{_kind_of(thing)} has no {name}") from None


def _is_sequence(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _kind_of(value: Any) -> str:
    return "None" if value is None else f"of type {type(value).__name__}"


def _list(names: Any) -> str:
    return ", ".join(sorted(names))
