"""A test bed from what was measured on this machine: costs per frame and spread, out of a comparison."""

import attrs
import numpy as np

from flowshunt.model.bed import Card, Host, TestBed, Traffic
from flowshunt.model.spread import Spread, measured_spread
from flowshunt.nic import NicModel
from flowshunt.pipeline.compare import Comparison
from flowshunt.pipeline.mode import BypassMode

_BUFFER_BYTES = 32e6


@attrs.frozen(eq=False)
class Measured:
    """A bed, and how the traffic's own hash spread it over host buffers."""

    bed: TestBed
    spread: Spread


def measured_bed(comparison: Comparison, plain: NicModel, smart: NicModel, cores: int) -> Measured:
    """The bed of a comparison in all three modes. Raises ValueError where frames are missing for a cost."""
    off = comparison.modes[BypassMode.OFF].result
    software = comparison.modes[BypassMode.SOFTWARE].result
    if not off.total.frames or not software.inspected.frames:
        raise ValueError("no frame was inspected")
    copy = off.host_time.receive / off.total.frames
    inspect = (off.host_time.total - off.host_time.receive) / off.total.frames
    rest = (
        software.host_time.total
        - software.host_time.receive
        - inspect * (software.total.frames - software.bypassed_host.frames)
    )
    skip = max(1.0, rest / software.bypassed_host.frames) if software.bypassed_host.frames else inspect
    share = software.bypassed_host.frames / software.total.frames
    frames = np.array([buffer.frames for buffer in off.host_buffers], np.int64)
    shares = np.zeros(cores, np.int64)
    np.add.at(shares, np.arange(len(frames)) % cores, frames)
    standard = Card(plain.name, plain.line_rate, plain.zero_copy, True, False, _BUFFER_BYTES)
    card = Card(smart.name, smart.line_rate, smart.zero_copy, True, smart.flow_table_capacity > 0, _BUFFER_BYTES)
    bed = TestBed(
        name="measured",
        host=Host(cores=cores, nodes=1, inspect_ns=inspect, skip_ns=skip, copy_ns=copy),
        cards={BypassMode.OFF: standard, BypassMode.SOFTWARE: standard, BypassMode.HARDWARE: card},
        traffic=Traffic(
            frame_bytes=off.total.bytes / off.total.frames,
            flows=max(1, off.flows),
            skew=1.3,
            largest_share=1.0,
            bypass_share=share,
            burst_frames=16.0,
        ),
        sources={
            "host.inspect_ns": "measured: no bypass, all stages but the copy",
            "host.skip_ns": "measured: software bypass, what is left for bypassed frames",
            "host.copy_ns": "measured: the stage receive",
            "traffic.frame_bytes": "measured",
            "traffic.bypass_share": "measured: frames of bypassed flows in software bypass",
            "spread": "measured: frames of each host buffer by the NIC's own hash",
        },
    )
    return Measured(bed, measured_spread(shares, share))
