"""What the host counts for each frame, in compiled code: bypassed frames set aside, dispositions added up."""

from typing import Any

import numpy as np
from numba import types

from flowshunt.compiled import column, kernel
from flowshunt.engine import SKIPPED
from flowshunt.flows.record import FLOW

ACTIONS = 256

_TALLY = types.Array(types.int64, 2, "C")
_SLOTS = column(np.int32, readonly=True)
_WIRE = column(np.uint32, readonly=True)


@kernel(types.int64(_SLOTS, _WIRE, column(FLOW), _TALLY, column(np.int64)))
def set_aside(slot: Any, wire: Any, records: Any, by_action: Any, rows: Any) -> Any:
    """Count the frames whose flow is bypassed, and list the others.

    slot: int32[n], rows of `records` (FLOW) or -1; wire: uint32[n]; by_action: int64[256, 2], frames and bytes by the
    number of the flow's action, added to; rows: int64[n], filled with the rows to inspect. Returns how many these are.
    """
    kept = 0
    for i in range(len(slot)):
        at = slot[i]
        if at >= 0 and records[at].bypass != 0:
            number = records[at].action
            by_action[number, 0] += 1
            by_action[number, 1] += np.int64(wire[i])
        else:
            rows[kept] = i
            kept += 1
    return kept


@kernel(
    types.int64(
        column(np.uint8, readonly=True),
        _SLOTS,
        column(np.uint8, readonly=True),
        _WIRE,
        column(FLOW),
        _TALLY,
        _TALLY,
    )
)
def settle(
    disposition: Any, slot: Any, direction: Any, wire: Any, records: Any, by_disposition: Any, by_action: Any
) -> Any:
    """Add up an engine's dispositions, and count skipped frames as bypassed ones of their flow.

    disposition, direction: uint8[n]; slot: int32[n]; wire: uint32[n]; records: FLOW, which knows the actions of flows
    that were just bypassed; by_disposition: int64[3, 2] and by_action: int64[256, 2], frames and bytes, added to.
    Returns -1, or the row of a disposition that can't be: unknown, or skipped in a flow that is not bypassed.
    """
    for i in range(len(disposition)):
        what = disposition[i]
        if what > SKIPPED:
            return i
        size = np.int64(wire[i])
        by_disposition[what, 0] += 1
        by_disposition[what, 1] += size
        if what == SKIPPED:
            at = slot[i]
            if at < 0 or records[at].bypass == 0:
                return i
            number = records[at].action
            by_action[number, 0] += 1
            by_action[number, 1] += size
            way = direction[i] & 1
            records[at].bypassed_packets[way] += np.uint64(1)
            records[at].bypassed_bytes[way] += np.uint64(size)
    return -1
