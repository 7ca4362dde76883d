"""The contract tests that every plugin must pass: from pytest, or with `flowshunt plugins check NAME`.

    from flowshunt.testing import engine_contract

    @pytest.mark.parametrize("claim", engine_contract(ENGINE), ids=str)
    def test_contract(claim):
        claim.check()

`flowshunt.testing.plugin`, the pytest plugin, offers the same as a marker. `flowshunt.testing.traffic` makes frames for
tests of a plugin's own.
"""

from collections.abc import Callable, Mapping
from typing import Any

from flowshunt.action import OffloadAction
from flowshunt.engine import DetectionEngine
from flowshunt.errors import ContractError
from flowshunt.nic import NicModel
from flowshunt.operation import ExtendedOperation
from flowshunt.testing.action import action_contract
from flowshunt.testing.claims import Claim, Outcome, examine
from flowshunt.testing.engine import engine_contract
from flowshunt.testing.nic import nic_contract
from flowshunt.testing.operation import operation_contract

CONTRACTS: Mapping[str, Callable[[Any], tuple[Claim, ...]]] = {
    "nic_models": nic_contract,
    "actions": action_contract,
    "operations": operation_contract,
    "engines": engine_contract,
}
"""The contract of each `flowshunt.contracts.Kind` that has one, by its key."""


def contract(thing: Any) -> tuple[Claim, ...]:
    """The claims of whichever contract an object is of, told by its attributes. Raises ContractError for none."""
    if isinstance(thing, OffloadAction):
        return action_contract(thing)
    if isinstance(thing, ExtendedOperation):
        return operation_contract(thing)
    if isinstance(thing, NicModel):
        return nic_contract(thing)
    if isinstance(thing, DetectionEngine):
        return engine_contract(thing)
    raise ContractError(f"{thing!r} is no NIC model, offload action, extended operation or detection engine")


__all__ = [
    "CONTRACTS",
    "Claim",
    "Outcome",
    "action_contract",
    "contract",
    "engine_contract",
    "examine",
    "nic_contract",
    "operation_contract",
]
