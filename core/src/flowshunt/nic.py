"""The contract of NIC models: frames in, each with an action and a descriptor; flows learned and their records out."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import attrs
import numpy as np
from numpy.typing import NDArray

from flowshunt.action import OffloadAction
from flowshunt.packets.batch import FrameBatch

LEARNED = 0
"""`Nic.learn`: the flow is in the card's table."""
TABLE_FULL = 1
"""`Nic.learn`: refused, no room."""
NOT_OFFLOADED = 2
"""`Nic.learn`: refused, this model can't match such a flow or carry out the action."""
ALREADY_LEARNED = 3
"""`Nic.learn`: the flow was in the table; its action was changed."""


@attrs.frozen
class NicConfig:
    """How a run opens a NIC.

    Attributes:
        host_buffers: how many host buffers (receive queues) to use; None: the model's default.
        actions: the offload actions that plugins offer, by name.
        flow_capacity: rows in the flow table; None: sized by need up to the model's capacity.
        settings: `key=value` settings of the model.
        seed: seed of the flow table's hash.
    """

    host_buffers: int | None = None
    actions: Mapping[str, OffloadAction] = attrs.field(factory=dict)
    flow_capacity: int | None = None
    settings: Mapping[str, str] = attrs.field(factory=dict)
    seed: int = 0


@attrs.frozen(eq=False)
class Delivery:
    """What the NIC did with one batch.

    Attributes:
        rows: int64[k], the rows of the batch that reach the host, in order.
        host_buffer: uint16[k], the host buffer of each.
        headers: HEADER[k] where the card hands its layer offsets to the host in the descriptor; None where the host
            has to decode by itself.
        captured: uint32[k], how many bytes of each are delivered, where an action slices frames; None: all captured.
        disposition: uint8[n], for each frame of the batch the sum of `action.HOST` and `action.TRANSMIT`.
        action: uint8[n], for each frame 0 (no flow entry) or the number that the card gave to the entry's action.
    """

    rows: NDArray[np.int64]
    host_buffer: NDArray[np.uint16]
    headers: NDArray[Any] | None
    disposition: NDArray[np.uint8]
    action: NDArray[np.uint8]
    captured: NDArray[np.uint32] | None = None


@attrs.frozen
class NicStatistics:
    """Counters of a NIC since it was opened; `frames == delivered + withheld` always.

    Attributes:
        frames, bytes: all that came in.
        delivered, delivered_bytes: what reached a host buffer.
        withheld, withheld_bytes: what did not.
        by_action: frames and bytes by the action of their flow's entry.
        host_buffer_frames, host_buffer_bytes: per host buffer.
        flows_asked, flows_learned, flows_refused: requests to learn, and refusals by cause.
        active_flows: entries in the table now.
    """

    frames: int = 0
    bytes: int = 0
    delivered: int = 0
    delivered_bytes: int = 0
    withheld: int = 0
    withheld_bytes: int = 0
    by_action: Mapping[str, tuple[int, int]] = attrs.field(factory=dict)
    host_buffer_frames: Sequence[int] = ()
    host_buffer_bytes: Sequence[int] = ()
    flows_asked: int = 0
    flows_learned: int = 0
    flows_refused: Mapping[str, int] = attrs.field(factory=dict)
    active_flows: int = 0


@runtime_checkable
class Nic(Protocol):
    """A NIC at work on one run. Not thread-safe."""

    def receive(self, batch: FrameBatch) -> Delivery:
        """Run the data path over a batch: count, match the flow table, act, choose host buffers."""

    def learn(self, flows: NDArray[Any], action: str, parameters: Mapping[str, int]) -> NDArray[np.uint8]:
        """Put flows (FLOW[k]) into the card's table with one action. Returns LEARNED, TABLE_FULL, ... for each.

        The card counts from 0; its records carry the `id` of the flow given.
        """

    def unlearn(self, ids: NDArray[np.uint64]) -> None:
        """Take flows out of the table by the `id` they were learned with; unknown ids are passed over."""

    def ended(self, now: int) -> NDArray[Any]:
        """FLOW[k]: records of flows that left the table since the last call. Ages the table to `now` (ns)."""

    def statistics(self) -> NicStatistics:
        """The counters so far."""

    def close(self) -> NDArray[Any]:
        """End every flow (reason SHUTDOWN) and return the last records."""


@runtime_checkable
class NicModel(Protocol):
    """What a plugin returns from `flowshunt_nic_models`. Rates in Gbit/s, memory in bytes."""

    @property
    def name(self) -> str:
        """The name to choose it by on the command line, lower case."""

    @property
    def summary(self) -> str:
        """One line: vendor, product, what it is."""

    @property
    def ports(self) -> int:
        """Physical ports."""

    @property
    def line_rate(self) -> float:
        """The sum of its ports' rates in Gbit/s, in its fastest configuration."""

    @property
    def memory(self) -> int:
        """Bytes of memory on the card that the flow table may use; 0 without a flow table."""

    @property
    def flow_table_capacity(self) -> int:
        """Bidirectional flows that the table holds; 0 without a flow table."""

    @property
    def host_buffers(self) -> int:
        """The most host buffers (receive queues) it can fill."""

    @property
    def zero_copy(self) -> bool:
        """Whether frames land in memory that the application reads.

        Otherwise the host's kernel copies each delivered frame into a packet ring, which the host's CPU pays for.
        """

    @property
    def actions(self) -> frozenset[str] | None:
        """The offload actions it can carry out; None: any action whose fragment passes the check."""

    def open(self, config: NicConfig) -> Nic:
        """Open the card for a run. Raises `flowshunt.errors.CapabilityError` for what the model can't do."""
