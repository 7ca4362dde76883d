"""The plugin: what it gives to flowshunt."""

from collections.abc import Sequence

from flowshunt import hookimpl
from flowshunt.action import OffloadAction
from flowshunt_offload_actions.actions import ACTIONS


@hookimpl
def flowshunt_offload_actions() -> Sequence[OffloadAction]:
    """Drop, forward, redirect."""
    return ACTIONS
