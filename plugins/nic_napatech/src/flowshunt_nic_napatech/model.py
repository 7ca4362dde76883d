"""The SmartNICs as data. Figures from the vendor's public data sheets; rates in Gbit/s, memory in bytes."""

import attrs

from flowshunt.errors import CapabilityError
from flowshunt.nic import Nic, NicConfig

GIGABYTE = 10**9
FLOW_RECORD_BYTES = 64
MAX_HOST_BUFFERS = 128


@attrs.frozen
class SmartNicModel:
    """A card with a flow table.

    Attributes:
        onboard_memory: bytes of memory on the card.
        flow_table_capacity: bidirectional flows that the table holds, at 64 bytes a record and with its index.
        default_host_buffers: host buffers in use where the run doesn't say.
    """

    name: str
    summary: str
    ports: int
    line_rate: float
    onboard_memory: int
    flow_table_capacity: int
    default_host_buffers: int = 8
    host_buffers: int = MAX_HOST_BUFFERS
    zero_copy: bool = True
    actions: frozenset[str] | None = None

    @property
    def memory(self) -> int:
        """Bytes that the records of a full flow table take."""
        return self.flow_table_capacity * FLOW_RECORD_BYTES

    def open(self, config: NicConfig) -> Nic:
        """Open the card. Raises CapabilityError for more host buffers or flows than it has."""
        from flowshunt_nic_napatech.card import SmartNic

        buffers = self.default_host_buffers if config.host_buffers is None else config.host_buffers
        if not 1 <= buffers <= self.host_buffers:
            raise CapabilityError(f"{self.name} fills 1 to {self.host_buffers} host buffers, not {buffers}")
        if config.flow_capacity is not None and not 2 <= config.flow_capacity <= self.flow_table_capacity:
            raise CapabilityError(
                f"{self.name} has room for 2 to {self.flow_table_capacity:,} flows, not {config.flow_capacity:,}"
            )
        return SmartNic(self, config, buffers)


_NT200_CAPACITY = 140_000_000
_NT200_TABLE_BYTES = 10_500_000_000
_NT50_CAPACITY = _NT200_CAPACITY * (10 * GIGABYTE - (12 * GIGABYTE - _NT200_TABLE_BYTES)) // _NT200_TABLE_BYTES
"""The NT50B01's capacity isn't published: its memory less what the NT200A02 keeps back, at the same bytes a flow."""

NT200A02 = SmartNicModel(
    name="nt200a02",
    summary="Napatech NT200A02, 2 x 100 Gbit/s SmartNIC: flow table for 140 million flows, up to 128 host buffers",
    ports=2,
    line_rate=200.0,
    onboard_memory=12 * GIGABYTE,
    flow_table_capacity=_NT200_CAPACITY,
)

NT50B01 = SmartNicModel(
    name="nt50b01",
    summary="Napatech NT50B01, 2 x 25 Gbit/s SmartNIC: flow table, up to 128 host buffers",
    ports=2,
    line_rate=50.0,
    onboard_memory=10 * GIGABYTE,
    flow_table_capacity=_NT50_CAPACITY,
)

MODELS = (NT200A02, NT50B01)
