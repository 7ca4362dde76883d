"""Test beds that were measured by others, for the model to reproduce."""

from collections.abc import Mapping
from typing import Final

from flowshunt.model.bed import Card, Host, TestBed, Traffic
from flowshunt.pipeline.mode import BypassMode

_ARTICLE: Final = "'Accelerating Suricata with Napatech stateful flow processing technology'"

_XL710: Final = Card("xl710", 40.0, zero_copy=False, local=False, flow_table=False, buffer_bytes=32e6)
_NT200: Final = Card("nt200a02", 80.0, zero_copy=True, local=True, flow_table=True, buffer_bytes=32e6)

NAPATECH_2019: Final = TestBed(
    name="napatech-2019",
    host=Host(cores=40, nodes=2, inspect_ns=6600.0, skip_ns=1230.0, copy_ns=1000.0, remote_factor=2.4, jitter=0.5),
    cards={BypassMode.OFF: _XL710, BypassMode.SOFTWARE: _XL710, BypassMode.HARDWARE: _NT200},
    traffic=Traffic(
        frame_bytes=820.0, flows=1_000_000, skew=1.3, largest_share=0.0005, bypass_share=0.70, burst_frames=16.0
    ),
    sources={
        "host.cores": f"{_ARTICLE}: two E5-2690 v2, 40 threads",
        "host.nodes": "two sockets of that server",
        "host.inspect_ns": "fitted: the 15 Gbit/s without bypass; Suricata takes 4 to 10 us a frame",
        "host.skip_ns": "fitted: the 30 Gbit/s of software bypass",
        "host.copy_ns": "fitted with skip_ns (the two add up there); a kernel's receive path takes about 1 us a frame",
        "host.remote_factor": f"fitted: half the cores full, the rest under 50 %; {_ARTICLE} names non-local memory",
        "host.jitter": "assumed; the results hardly depend on it",
        "cards": f"{_ARTICLE}: XL710 1 x 40 Gbit/s, NT200 2 x 40 Gbit/s; 32 MB buffers are assumed",
        "traffic.frame_bytes": "assumed: the mean of an internet mix that is 88 % TCP",
        "traffic.flows": f"{_ARTICLE}: over 1 million flows",
        "traffic.skew": "assumed: heavy-tailed, as flow sizes on backbones",
        "traffic.largest_share": "assumed: 40 Mbit/s for the greatest flow at 76 Gbit/s",
        "traffic.bypass_share": f"{_ARTICLE}: about 70 % bypassed",
        "traffic.burst_frames": "assumed",
    },
)

MEASURED: Final[Mapping[str, Mapping[BypassMode, float]]] = {
    "napatech-2019": {BypassMode.OFF: 15.0, BypassMode.SOFTWARE: 30.0, BypassMode.HARDWARE: 76.0},
}
"""Lossless throughput in Gbit/s that the sources measured."""

PRESETS: Final[Mapping[str, TestBed]] = {NAPATECH_2019.name: NAPATECH_2019}
