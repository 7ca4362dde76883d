"""What the card does with each frame of a batch, as compiled code: the action of its flow, or delivery to the host."""

from typing import Any

import numpy as np
from numba import types

from flowshunt.compiled import column, kernel

INTERPRETED = 255
"""In the table of dispositions: the action's fragment is carried out frame by frame."""


@kernel(
    types.int64(
        column(np.int32), column(np.uint8), column(np.uint8), column(np.uint8), column(np.uint8), column(np.int64)
    )
)
def act(slots: Any, flow_action: Any, outcome: Any, action: Any, disposition: Any, interpreted: Any) -> Any:
    """Look up each frame's disposition by its flow's action number.

    slots: int32[n], -1 for no flow; flow_action: uint8[n], the number each frame's flow has (any where it has none);
    outcome: uint8[256], the disposition by action number, or INTERPRETED. Fills action, disposition: uint8[n], and
    interpreted: int64[n], the rows still to decide. Returns how many there are of these.
    """
    count = 0
    for i in range(len(slots)):
        number = flow_action[i] if slots[i] >= 0 else np.uint8(0)
        action[i] = number
        what = outcome[number]
        disposition[i] = what
        if what == INTERPRETED:
            interpreted[count] = i
            count += 1
    return count
