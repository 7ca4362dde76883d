"""The plugin: what it gives to flowshunt."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from flowshunt import hookimpl

if TYPE_CHECKING:
    from flowshunt.operation import ExtendedOperation


@hookimpl
def flowshunt_extended_operations() -> "Sequence[ExtendedOperation]":
    """The operations bulkcopy and bulkfill."""
    from flowshunt_einsn_bulkcopy.operation import OPERATIONS

    return OPERATIONS
