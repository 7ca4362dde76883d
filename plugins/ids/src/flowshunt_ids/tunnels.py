"""The outer packets of tunnels. As in Suricata they are inspected by their headers, not by what they carry."""

from collections import OrderedDict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowshunt.packets.batch import FrameBatch

MAX_OUTER_FLOWS = 1 << 14
"""The most directions of outer flows that are remembered."""

_UDP = 17


class OuterFlows:
    """Which outer UDP flows were seen, by direction: rules of the first packet alert once for each."""

    def __init__(self) -> None:
        self._seen: OrderedDict[bytes, None] = OrderedDict()

    def is_repeated(self, frames: FrameBatch, headers: NDArray[Any]) -> NDArray[np.bool_]:
        """For outer packets, whether an earlier packet of the same outer flow and direction was seen."""
        repeated = np.zeros(len(headers), np.bool_)
        for version, start, size in ((4, 12, 8), (6, 8, 32)):
            rows = np.flatnonzero((headers["ip_version"] == version) & (headers["protocol"] == _UDP))
            if not len(rows):
                continue
            chosen = headers[rows]
            at = frames.offset[rows] + chosen["l3"] + start
            keys = np.empty((len(rows), size + 4), np.uint8)
            places = np.minimum(at[:, None] + np.arange(size), len(frames.data) - 1)
            keys[:, :size] = frames.data[places]
            keys[:, size : size + 2] = chosen["source_port"][:, None].view(np.uint8)
            keys[:, size + 2 :] = chosen["destination_port"][:, None].view(np.uint8)
            values, first = np.unique(keys, axis=0, return_index=True)
            repeated[rows] = True
            for value, place in zip(values, first.tolist(), strict=True):
                key = value.tobytes()
                if key not in self._seen:
                    repeated[rows[place]] = False
                    self._seen[key] = None
                    if len(self._seen) > MAX_OUTER_FLOWS:
                        self._seen.popitem(last=False)
        return repeated
