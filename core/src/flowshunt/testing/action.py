"""The contract tests of offload actions: every fragment obeys the rules, every wrong parameter is refused."""

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from flowshunt.action import DESCRIPTOR, HOST, NO_PORT, STATE_BYTES, TRANSMIT, OffloadAction, Parameter
from flowshunt.contracts import check_action
from flowshunt.fragments import MAX_INSTRUCTIONS, check_fragment, run_fragment
from flowshunt.insn import R0, R1, W, stx
from flowshunt.testing.claims import Claim, make_claims, must

_FIELDS: Mapping[str, Any] = DESCRIPTOR.fields or {}
_DELIVER: int = _FIELDS["deliver"][1]

MAX_COMBINATIONS = 256
"""Of parameter values that are tried together."""


def action_contract(action: OffloadAction) -> tuple[Claim, ...]:
    """The claims that an offload action must hold."""
    return make_claims(f"offload action {getattr(action, 'name', type(action).__name__)}", action, CLAIMS)


def object_holds_the_contract(action: OffloadAction) -> None:
    """It has a name, a summary, a fragment, and parameters with sound ranges."""
    check_action(action)


def every_parameter_gives_a_sound_fragment(action: OffloadAction) -> None:
    """At the ends, the middle and the default of every parameter's range the fragment obeys the rules of actions."""
    for parameters in _combinations(action):
        fragment = action.fragment(action.check(parameters))
        must(isinstance(fragment, tuple), f"fragment({parameters}) is {type(fragment).__name__}, not a tuple")
        try:
            check_fragment(fragment)
        except Exception as error:
            raise AssertionError(f"fragment({parameters}): {error}") from error


def a_fragment_depends_on_its_parameters_alone(action: OffloadAction) -> None:
    """The same parameters give the same fragment."""
    for parameters in _combinations(action):
        full = action.check(parameters)
        must(action.fragment(full) == action.fragment(dict(full)), f"fragment({parameters}) changes from call to call")


def wrong_parameters_are_refused(action: OffloadAction) -> None:
    """Values outside a range, unknown names and missing values raise ValueError."""
    valid = next(_combinations(action))
    wrong: list[dict[str, int]] = [{**valid, "no-such-parameter": 0}]
    for parameter in action.parameters:
        wrong.append({**valid, parameter.name: parameter.minimum - 1})
        wrong.append({**valid, parameter.name: parameter.maximum + 1})
        if parameter.default is None:
            wrong.append({name: value for name, value in valid.items() if name != parameter.name})
    for parameters in wrong:
        try:
            action.check(parameters)
        except ValueError:
            continue
        raise AssertionError(f"check({parameters}) raised no ValueError")


def a_fragment_leaves_a_disposition(action: OffloadAction) -> None:
    """On many frames, and over a flow's life, it leaves a sum of HOST and TRANSMIT, and sane outputs."""
    for parameters in _combinations(action):
        fragment = action.fragment(action.check(parameters))
        entry = _descriptors()
        states, same_states = (np.zeros((len(entry), STATE_BYTES), np.uint8) for _ in range(2))
        for _ in range(3):
            descriptors, told = entry.copy(), entry.copy()
            disposition = run_fragment(fragment, descriptors, states)
            if len(fragment) < MAX_INSTRUCTIONS:
                run_fragment((*fragment, stx(W, R1, R0, _DELIVER)), told, same_states)
                must((told["deliver"] <= HOST | TRANSMIT).all(), f"with {parameters} it leaves another disposition")
            sent = (disposition & TRANSMIT) != 0
            must((descriptors["tx_port"][sent] != NO_PORT).all(), f"with {parameters} it sends, but sets no tx_port")
            must(
                (descriptors["deliver"] <= entry["captured"]).all(),
                f"with {parameters} it delivers more bytes than were captured",
            )


CLAIMS = (
    object_holds_the_contract,
    every_parameter_gives_a_sound_fragment,
    a_fragment_depends_on_its_parameters_alone,
    wrong_parameters_are_refused,
    a_fragment_leaves_a_disposition,
)


def _values(parameter: Parameter) -> list[int]:
    middle = (parameter.minimum + parameter.maximum) // 2
    values = {parameter.minimum, min(parameter.minimum + 1, parameter.maximum), middle, parameter.maximum}
    if parameter.default is not None:
        values.add(parameter.default)
    return sorted(values)


def _combinations(action: OffloadAction) -> Iterator[dict[str, int]]:
    names = [parameter.name for parameter in action.parameters]
    products = itertools.product(*(_values(parameter) for parameter in action.parameters))
    for values in itertools.islice(products, MAX_COMBINATIONS):
        yield dict(zip(names, values, strict=True))


def _descriptors() -> "np.ndarray[tuple[int], np.dtype[np.void]]":
    """DESCRIPTOR[n] with every combination of small, large and odd values."""
    sizes, ports, hashes = (0, 60, 1514, 0xFFFF), ((0, 1), (1, 0), (7, NO_PORT)), (0, 1, 0xFFFFFFFF)
    rows = list(itertools.product(sizes, ports, hashes, (0, 1)))
    descriptors = np.zeros(len(rows), DESCRIPTOR)
    for row, (size, (port, peer), hashed, direction) in enumerate(rows):
        descriptors[row] = (row, size, size, hashed, 0, port, NO_PORT, hashed % 8, peer, size, direction, row + 1)
    return descriptors
