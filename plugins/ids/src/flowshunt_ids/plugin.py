"""Plugin entry point."""

from collections.abc import Sequence

from flowshunt import hookimpl
from flowshunt.engine import DetectionEngine
from flowshunt_ids.engine import IdsEngine


@hookimpl
def flowshunt_detection_engines() -> Sequence[DetectionEngine]:
    """The engine `ids`."""
    return [IdsEngine()]
