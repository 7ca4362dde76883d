"""Counters of a flow table."""

from collections.abc import Mapping

import attrs

from flowshunt.flows.record import EndReason


@attrs.frozen
class FlowCounters:
    """What a flow table has done since it was made.

    Attributes:
        active: live flows.
        created: flows started by frames or inserted.
        ended: flows that ended, by reason; `created == active + the sum of these`, always.
        overflow: frames that got no flow because no row was free.
        fragments_matched: later fragments (of protocols with ports) that took the ports of their first fragment.
        fragments_unmatched: those whose first fragment had not been seen; they went to the flow without ports.
    """

    active: int = 0
    created: int = 0
    ended: Mapping[EndReason, int] = attrs.field(factory=dict)
    overflow: int = 0
    fragments_matched: int = 0
    fragments_unmatched: int = 0

    @property
    def evicted(self) -> int:
        """Flows that made room for others."""
        return self.ended.get(EndReason.DISPLACED, 0)
