"""What the card does with each frame of a batch, as compiled code: the action of its flow, or delivery to the host."""

from typing import Any

import numpy as np
from numba import types

from flowshunt.action import HOST
from flowshunt.compiled import column, kernel

INTERPRETED = 255
"""In the table of dispositions: the action's fragment is carried out frame by frame."""


@kernel(
    types.UniTuple(types.int64, 2)(
        column(np.int32),
        column(np.uint8),
        column(np.uint8),
        column(np.uint8),
        column(np.uint8),
        column(np.int64),
        column(np.int64),
    )
)
def act(
    slots: Any, flow_action: Any, outcome: Any, action: Any, disposition: Any, delivered: Any, interpreted: Any
) -> Any:
    """Look up each frame's disposition by its flow's action number.

    slots: int32[n], -1 for no flow; flow_action: uint8[n], the number each frame's flow has (0 where none);
    outcome: uint8[256], the disposition by action number, or INTERPRETED. Fills action, disposition: uint8[n];
    delivered: int64[n], the rows whose disposition is known to include HOST; interpreted: int64[n], the rows still to
    decide. Returns how many rows of each.
    """
    hosts = 0
    open_rows = 0
    for i in range(len(slots)):
        number = flow_action[i] if slots[i] >= 0 else np.uint8(0)
        action[i] = number
        what = outcome[number]
        disposition[i] = what
        if what == INTERPRETED:
            interpreted[open_rows] = i
            open_rows += 1
        elif what & HOST:
            delivered[hosts] = i
            hosts += 1
    return hosts, open_rows
