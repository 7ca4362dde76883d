"""Standard NICs as data: ports, rates, receive queues. None has a flow table; the host does all bypassing."""

import attrs

from flowshunt.errors import CapabilityError
from flowshunt.nic import Nic, NicConfig


@attrs.frozen
class StandardNicModel:
    """A NIC with receive-side scaling. Rates in Gbit/s.

    Attributes:
        queues: the most receive queues that its hash can spread over.
        indirection: entries of its indirection table (hash to queue).
        zero_copy: no: its frames come through the kernel's packet ring (AF_PACKET).
    """

    name: str
    summary: str
    ports: int
    line_rate: float
    queues: int
    indirection: int
    default_queues: int = 8
    memory: int = 0
    flow_table_capacity: int = 0
    zero_copy: bool = False
    actions: frozenset[str] = frozenset()

    @property
    def host_buffers(self) -> int:
        """The most receive queues."""
        return self.queues

    def open(self, config: NicConfig) -> Nic:
        """Open the NIC. Raises CapabilityError for more queues than it has."""
        from flowshunt_nic_generic.receive import StandardNic

        queues = self.default_queues if config.host_buffers is None else config.host_buffers
        if not 1 <= queues <= self.queues:
            raise CapabilityError(f"{self.name} has 1 to {self.queues} receive queues, not {queues}")
        return StandardNic(self, queues)


XL710 = StandardNicModel(
    name="xl710",
    summary="Intel XL710, 1 x 40 Gbit/s: Toeplitz RSS with the symmetric key, no flow table",
    ports=1,
    line_rate=40.0,
    queues=64,
    indirection=512,
)

MODELS = (XL710,)
