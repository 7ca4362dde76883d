"""The plugin: what it gives to flowshunt."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from flowshunt import hookimpl

if TYPE_CHECKING:
    from flowshunt.operation import ExtendedOperation


@hookimpl
def flowshunt_extended_operations() -> "Sequence[ExtendedOperation]":
    """The operations loadpair and storepair."""
    from flowshunt_einsn_pair.operation import OPERATIONS

    return OPERATIONS
