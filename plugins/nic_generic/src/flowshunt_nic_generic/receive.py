"""The data path of a standard NIC: Toeplitz hash, indirection table, receive queue. Every frame reaches the host."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from flowshunt.action import HOST
from flowshunt.flows.hashing import SYMMETRIC_RSS_KEY, toeplitz_hash
from flowshunt.flows.record import FLOW
from flowshunt.nic import NOT_OFFLOADED, Delivery, NicStatistics
from flowshunt.nic_counters import NicCounters
from flowshunt.packets.batch import FrameBatch
from flowshunt.packets.decode import decode

if TYPE_CHECKING:
    from flowshunt_nic_generic.model import StandardNicModel


class StandardNic:
    """An open standard NIC. The key is the low-entropy one (0x6d5a repeated), so both directions share a queue."""

    def __init__(self, model: "StandardNicModel", queues: int) -> None:
        self._indirection = (np.arange(model.indirection) % queues).astype(np.uint16)
        self._counters = NicCounters(queues)
        self._asked = 0

    def receive(self, batch: FrameBatch) -> Delivery:
        """Spread a batch over the receive queues. The host gets no layer offsets from the card."""
        hashes = toeplitz_hash(batch, decode(batch, depth=0), SYMMETRIC_RSS_KEY)
        queue = self._indirection[hashes & np.uint32(len(self._indirection) - 1)]
        self._counters.count(batch, batch, queue)
        count = len(batch)
        return Delivery(
            rows=np.arange(count, dtype=np.int64),
            host_buffer=queue,
            headers=None,
            disposition=np.full(count, HOST, np.uint8),
            action=np.zeros(count, np.uint8),
        )

    def learn(self, flows: NDArray[Any], action: str, parameters: Mapping[str, int]) -> NDArray[np.uint8]:
        """Refuse every flow: there is no flow table."""
        del action, parameters
        self._asked += len(flows)
        return np.full(len(flows), NOT_OFFLOADED, np.uint8)

    def unlearn(self, ids: NDArray[np.uint64]) -> None:
        """Nothing to take out."""

    def ended(self, now: int) -> NDArray[Any]:
        """No flow was learned, so none ends."""
        del now
        return np.empty(0, FLOW)

    def statistics(self) -> NicStatistics:
        """The counters so far."""
        refused = {"no flow table": self._asked} if self._asked else {}
        return self._counters.statistics(flows_asked=self._asked, flows_refused=refused)

    def close(self) -> NDArray[Any]:
        """Nothing is open."""
        return np.empty(0, FLOW)
