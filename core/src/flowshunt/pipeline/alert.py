"""Alerts with the packet and flow that they belong to."""

import ipaddress
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from flowshunt.engine import Alert, EngineEvent, Signature
from flowshunt.flows.record import FLOW
from flowshunt.packets.batch import FrameBatch

PROTOCOL_NAMES = {
    1: "ICMP",
    2: "IGMP",
    4: "IPIP",
    6: "TCP",
    17: "UDP",
    41: "IPV6",
    47: "GRE",
    50: "ESP",
    51: "AH",
    58: "IPV6-ICMP",
    132: "SCTP",
}


def protocol_name(number: int) -> str:
    """The name that EVE uses for an IP protocol number."""
    return PROTOCOL_NAMES.get(number, str(number))


@attrs.frozen
class Endpoint:
    """An address and a port; address "" where there is no IP packet, port 0 where the protocol has none."""

    address: str = ""
    port: int = 0

    def __str__(self) -> str:
        if not self.port:
            return self.address or "-"
        return f"[{self.address}]:{self.port}" if ":" in self.address else f"{self.address}:{self.port}"


@attrs.frozen
class AlertRecord:
    """One alert, whole.

    Attributes:
        timestamp: ns since 1970-01-01 UTC, of the frame that triggered it (of the flow's last frame at its end).
        frame: that frame's number, counted from 0; -1 where none did.
        flow_id: the flow's number, see `flow_number`; 0: none. `initiator` and `responder` are the flow's ends, in
            this order.
    """

    timestamp: int
    frame: int
    signature: Signature
    source: Endpoint
    destination: Endpoint
    protocol: int
    flow_id: int
    initiator: Endpoint
    responder: Endpoint
    direction: int
    vlans: tuple[int, ...] = ()
    app_proto: str = ""
    details: Any = attrs.field(factory=dict, eq=False)
    deferred: Any = attrs.field(default=None, eq=False)

    @property
    def flow_label(self) -> str:
        """The flow in one line: protocol, initiator, responder."""
        return f"{protocol_name(self.protocol)} {self.initiator} -> {self.responder}"


@attrs.frozen
class EventRecord:
    """What an engine told of a flow, with what it belongs to. See `flowshunt.engine.EngineEvent` and `AlertRecord`."""

    timestamp: int
    frame: int
    kind: str
    fields: Mapping[str, Any]
    source: Endpoint
    destination: Endpoint
    protocol: int
    flow_id: int
    vlans: tuple[int, ...] = ()


def resolve_event(event: EngineEvent, frames: FrameBatch, numbers: NDArray[np.int64], flow: Any) -> EventRecord:
    """Put an event together with its frame (row of the batch inspected) and its flow (FLOW row)."""
    source, destination = flow_endpoints(flow)
    if event.direction:
        source, destination = destination, source
    return EventRecord(
        timestamp=int(frames.timestamp[event.row]) if event.row >= 0 else event.timestamp,
        frame=int(numbers[event.row]) if event.row >= 0 else -1,
        kind=event.kind,
        fields=event.fields,
        source=source,
        destination=destination,
        protocol=int(flow["protocol"]),
        flow_id=flow_number(flow),
        vlans=vlan_ids(flow),
    )


def in_order(alerts: Iterable[AlertRecord]) -> list[AlertRecord]:
    """Alerts in the order of their frames; first those of no frame, by time and flow."""
    return sorted(alerts, key=lambda a: (a.frame, 0, 0) if a.frame >= 0 else (a.frame, a.timestamp, a.flow_id))


_IDENTITY = ("source", "destination", "source_port", "destination_port", "protocol", "ip_version", "vlan", "first")
_PLACES = tuple(
    slice(FLOW.fields[name][1], FLOW.fields[name][1] + FLOW.fields[name][0].itemsize)
    for name in _IDENTITY
    if FLOW.fields is not None
)


def flow_number(record: Any) -> int:
    """A number of 53 bits for a FLOW row, by its addresses, ports, protocol, VLANs and the time of its first frame.

    It is the same in every run over the same frames, whatever the bypass mode and however many workers there are.
    """
    content = record.tobytes()
    parts = b"".join([content[place] for place in _PLACES])
    return int.from_bytes(blake2b(parts, digest_size=8).digest(), "big") >> 11 or 1


def address_text(raw: NDArray[np.uint8], ip_version: int) -> str:
    """The text of an address in uint8[16] (IPv4: the first four bytes)."""
    if ip_version == 4:
        return ".".join(map(str, raw[:4].tolist()))
    return str(ipaddress.IPv6Address(raw[:16].tobytes())) if ip_version == 6 else ""


def flow_endpoints(record: Any) -> tuple[Endpoint, Endpoint]:
    """Initiator and responder of a FLOW row."""
    version = int(record["ip_version"])
    return (
        Endpoint(address_text(record["source"], version), int(record["source_port"])),
        Endpoint(address_text(record["destination"], version), int(record["destination_port"])),
    )


def frame_endpoints(frames: FrameBatch, header: Any, row: int) -> tuple[Endpoint, Endpoint]:
    """Source and destination of a frame by its HEADER row, for frames of no flow."""
    version = int(header["ip_version"])
    if version not in (4, 6):
        return Endpoint(), Endpoint()
    start = int(frames.offset[row]) + int(header["l3"]) + (12 if version == 4 else 8)
    size = 4 if version == 4 else 16
    raw = frames.data[start : start + 2 * size]
    return (
        Endpoint(address_text(raw[:size], version), int(header["source_port"])),
        Endpoint(address_text(raw[size:], version), int(header["destination_port"])),
    )


def vlan_ids(row: Any) -> tuple[int, ...]:
    """The VLAN ids of a FLOW or HEADER row, outer first."""
    return tuple(int(row[name]) for name in ("vlan", "inner_vlan") if row[name] != 0xFFFF)


def resolve(
    alert: Alert, frames: FrameBatch, headers: NDArray[Any], numbers: NDArray[np.int64], flow: Any | None
) -> AlertRecord:
    """Put an alert together with its frame (row of the batch inspected) and its flow (FLOW row, None: no flow)."""
    header = headers[alert.row] if alert.row >= 0 else None
    if flow is not None:
        initiator, responder = flow_endpoints(flow)
        source, destination = (responder, initiator) if alert.direction else (initiator, responder)
        protocol, vlans, flow_id = int(flow["protocol"]), vlan_ids(flow), flow_number(flow)
    elif header is not None:
        source, destination = initiator, responder = frame_endpoints(frames, header, alert.row)
        protocol, vlans, flow_id = int(header["protocol"]), vlan_ids(header), 0
    else:
        source = destination = initiator = responder = Endpoint()
        protocol, vlans, flow_id = 0, (), 0
    return AlertRecord(
        timestamp=int(frames.timestamp[alert.row]) if alert.row >= 0 else alert.timestamp,
        frame=int(numbers[alert.row]) if alert.row >= 0 else -1,
        signature=alert.signature,
        source=source,
        destination=destination,
        protocol=protocol,
        flow_id=flow_id,
        initiator=initiator,
        responder=responder,
        direction=alert.direction,
        vlans=vlans,
        app_proto=alert.app_proto,
        details=alert.details,
        deferred=alert.deferred,
    )
