"""The test bed as data: host, NIC and traffic, each parameter with its unit and, for presets, its source."""

from collections.abc import Mapping

import attrs

from flowshunt.pipeline.mode import BypassMode


@attrs.frozen
class Host:
    """A host.

    Attributes:
        cores: cores (hardware threads) that serve host buffers, one buffer each.
        nodes: NUMA nodes that the cores are spread over evenly.
        inspect_ns: to inspect one frame, its memory being local.
        skip_ns: to find that a frame's flow is bypassed, and to let it go.
        copy_ns: to copy one frame out of the kernel's packet ring; a NIC with zero copy spares it.
        remote_factor: how many times as much a core costs that works on another node's memory.
        jitter: the spread of a frame's cost, as the standard deviation over the mean.
    """

    cores: int
    nodes: int
    inspect_ns: float
    skip_ns: float
    copy_ns: float
    remote_factor: float = 1.0
    jitter: float = 0.5


@attrs.frozen
class Card:
    """A NIC.

    Attributes:
        line_rate: Gbit/s over all ports.
        zero_copy: whether frames land in memory that the application reads.
        local: whether each host buffer lies on the node of the core that serves it. A standard NIC's ring lies on the
            NIC's node, and cores of the others work on remote memory.
        flow_table: whether it acts on bypassed flows itself.
        buffer_bytes: of one host buffer.
    """

    name: str
    line_rate: float
    zero_copy: bool
    local: bool
    flow_table: bool
    buffer_bytes: float


@attrs.frozen
class Traffic:
    """What arrives.

    Attributes:
        frame_bytes: mean bytes of a frame, without the frame check sequence.
        flows: active flows, spread over the host buffers by a hash.
        skew: the exponent of the flows' sizes (Pareto; towards 1 few flows carry most).
        largest_share: the most that one flow may carry of all frames.
        bypass_share: of the frames, those of flows that the engine bypasses.
        burst_frames: frames that arrive together at line rate, in the mean.
    """

    frame_bytes: float
    flows: int
    skew: float
    largest_share: float
    bypass_share: float
    burst_frames: float


@attrs.frozen
class TestBed:
    """A host, the NIC of each bypass mode, and traffic.

    Attributes:
        sources: by parameter ("host.cores"), where its value comes from; "fitted: ..." where it was chosen to agree.
    """

    __test__ = False  # no test for pytest to collect

    name: str
    host: Host
    cards: Mapping[BypassMode, Card]
    traffic: Traffic
    sources: Mapping[str, str] = attrs.field(factory=dict)

    def with_value(self, parameter: str, value: float) -> "TestBed":
        """The same bed with another value of one parameter, such as "host.inspect_ns". Raises ValueError for none."""
        part, _, name = parameter.partition(".")
        if part not in ("host", "traffic") or name not in {
            field.name for field in attrs.fields(type(getattr(self, part)))
        }:
            raise ValueError(f"there is no parameter {parameter}")
        return attrs.evolve(self, **{part: attrs.evolve(getattr(self, part), **{name: value})})


PARAMETERS = (
    "host.cores", "host.inspect_ns", "host.skip_ns", "host.copy_ns", "host.remote_factor", "host.jitter",
    "traffic.frame_bytes", "traffic.flows", "traffic.skew", "traffic.largest_share", "traffic.bypass_share",
    "traffic.burst_frames",
)  # fmt: skip
"""The parameters that a sensitivity analysis varies."""
