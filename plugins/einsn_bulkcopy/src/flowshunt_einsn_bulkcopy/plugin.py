"""The plugin: what it gives to flowshunt."""

from collections.abc import Sequence

from flowshunt import hookimpl
from flowshunt.operation import ExtendedOperation
from flowshunt_einsn_bulkcopy.operation import OPERATIONS


@hookimpl
def flowshunt_extended_operations() -> Sequence[ExtendedOperation]:
    """The operations bulkcopy and bulkfill."""
    return OPERATIONS
