"""The plugin: what it gives to flowshunt."""

from collections.abc import Sequence

from flowshunt import hookimpl
from flowshunt.nic import NicModel
from flowshunt_nic_napatech.model import MODELS


@hookimpl
def flowshunt_nic_models() -> Sequence[NicModel]:
    """The SmartNICs."""
    return MODELS
