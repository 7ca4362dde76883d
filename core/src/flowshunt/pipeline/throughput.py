"""The lossless throughput that a measured host cost implies."""

import attrs

from flowshunt.pipeline.result import RunResult

WIRE_OVERHEAD = 24
"""Bytes that Ethernet adds to each frame on the wire: frame check sequence 4, preamble 8, inter-frame gap 12."""


@attrs.frozen
class Throughput:
    """An estimate: the host CPU time of a run, laid on cores as its host buffers were filled.

    Attributes:
        cores: cores that serve the host buffers, buffer i on core i mod cores.
        busiest_share: the busiest core's share of the delivered frames (1 / cores: even).
        host_gbps: wire rate at which the busiest core is fully loaded; inf where the host has nothing to do.
        line_rate: the NIC model's.
    """

    cores: int
    busiest_share: float
    host_gbps: float
    line_rate: float

    @property
    def lossless_gbps(self) -> float:
        """What the host keeps up with, at most the line rate. Gbit/s on the wire."""
        return min(self.host_gbps, self.line_rate)


def implied_throughput(result: RunResult, line_rate: float, cores: int) -> Throughput:
    """The lossless throughput that a run's host time implies for a NIC's line rate (Gbit/s) and a number of cores."""
    load = [0] * cores
    for number, buffer in enumerate(result.host_buffers):
        load[number % cores] += buffer.frames
    delivered = sum(load)
    share = max(load) / delivered if delivered else 1 / cores
    bits = 8 * (result.total.bytes + WIRE_OVERHEAD * result.total.frames)
    busiest_ns = result.host_time.total * share
    return Throughput(cores, share, bits / busiest_ns if busiest_ns else float("inf"), line_rate)
