"""The actions that a card was given, numbered: constant outcomes at hand, other fragments ready to be carried out."""

from collections.abc import Mapping

import numpy as np

from flowshunt.action import HOST, TRANSMIT, OffloadAction
from flowshunt.errors import ContractError
from flowshunt.fragments import Outcome, compile_fragment, constant_outcome
from flowshunt_nic_napatech.data_path import INTERPRETED

_UNSET = -1


class ActionTable:
    """Numbers from 1 for each distinct pair of action and parameters; 0 is a frame of no flow.

    Actions that need no parameters are there from the start, so that the first flow to learn does not wait for theirs.

    Attributes:
        outcome: uint8[256], the disposition by number, or INTERPRETED.
        host_buffer: int64[256], the host buffer that a constant outcome sets, or -1.
        deliver: int64[256], the bytes that a constant outcome delivers, or -1.
        names: action names by number.
    """

    def __init__(self, actions: Mapping[str, OffloadAction], ports: int, host_buffers: int) -> None:
        self._actions = actions
        self._ports = ports
        self._host_buffers = host_buffers
        self._numbers: dict[tuple[str, tuple[tuple[str, int], ...]], int] = {}
        self.outcome = np.zeros(256, np.uint8)
        self.outcome[0] = HOST
        self.host_buffer = np.full(256, _UNSET, np.int64)
        self.deliver = np.full(256, _UNSET, np.int64)
        self.names: dict[int, str] = {}
        self.fragment_index = np.zeros(256, np.int64)
        self.code = np.empty((0, 5), np.int64)
        self.bounds = np.zeros(1, np.int64)
        for name, action in actions.items():
            if all(parameter.default is not None for parameter in action.parameters):
                self.number(name, {})

    def number(self, name: str, parameters: Mapping[str, int]) -> int | str:
        """The number of an action with parameters, added where it is new; a string says why it can't be offloaded."""
        key = (name, tuple(sorted(parameters.items())))
        known = self._numbers.get(key)
        if known is not None:
            return known
        action = self._actions.get(name)
        if action is None:
            return f"no action {name}"
        if len(self._numbers) == INTERPRETED - 1:
            return "too many distinct actions"
        try:
            fragment = action.fragment(action.check(parameters))
            code = compile_fragment(fragment)
        except (ValueError, ContractError) as error:
            return str(error)
        outcome = constant_outcome(fragment)
        number = len(self._numbers) + 1
        if outcome is None:
            self.outcome[number] = INTERPRETED
            self.fragment_index[number] = len(self.bounds) - 1
            self.code = np.concatenate([self.code, code])
            self.bounds = np.append(self.bounds, len(self.code))
        elif problem := self._unfit(outcome):
            return problem
        else:
            self.outcome[number] = outcome.disposition
            self.host_buffer[number] = _UNSET if outcome.host_buffer is None else outcome.host_buffer
            self.deliver[number] = _UNSET if outcome.deliver is None else outcome.deliver
        self._numbers[key] = number
        self.names[number] = name
        return number

    def _unfit(self, outcome: Outcome) -> str | None:
        if outcome.disposition & TRANSMIT and not (outcome.tx_port is not None and outcome.tx_port < self._ports):
            return f"no port {outcome.tx_port}"
        if outcome.host_buffer is not None and outcome.host_buffer >= self._host_buffers:
            return f"no host buffer {outcome.host_buffer}"
        return None
