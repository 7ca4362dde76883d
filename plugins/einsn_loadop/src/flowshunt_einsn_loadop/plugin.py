"""The plugin: what it gives to flowshunt."""

from collections.abc import Sequence

from flowshunt import hookimpl
from flowshunt.operation import ExtendedOperation
from flowshunt_einsn_loadop.operation import OPERATIONS


@hookimpl
def flowshunt_extended_operations() -> Sequence[ExtendedOperation]:
    """The operations loadop and memop."""
    return OPERATIONS
