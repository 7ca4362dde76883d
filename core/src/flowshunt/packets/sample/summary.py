"""What a sample holds, in numbers, and the alerts that an engine should give on it."""

import datetime
import ipaddress
import re
from collections.abc import Iterable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import attrs

from flowshunt.packets.sample.flow import SECOND, Flow
from flowshunt.packets.sample.templates import ICMP, ICMP6, TCP, UDP

PROTOCOLS = {TCP: "TCP", UDP: "UDP", ICMP: "ICMP", ICMP6: "IPv6-ICMP"}

_RULE = re.compile(r'^\w+ .*?\(msg:"(?P<message>[^"]*)".*sid:(?P<sid>\d+);', re.MULTILINE)


def rules_text() -> str:
    """The rules that belong to every sample, as Suricata reads them."""
    return resources.files(__package__).joinpath("sample.rules").read_text(encoding="utf-8")


@attrs.frozen
class PlantedAlert:
    """An alert that inspection without bypass gives.

    Attributes:
        sid: the rule.
        frame: number of the frame that completes the match, counted from 1 as EVE's `pcap_cnt` and Wireshark do.
        time: of that frame, ns since 1970-01-01 UTC.
        source, destination: its addresses; ports are 0 for ICMP.
        protocol: as EVE names it.
        vlans: VLAN ids, outer first.
        lost: whether it lies in a flow that the bypass rules take off inspection.
    """

    sid: int
    frame: int
    time: int
    source: str
    source_port: int
    destination: str
    destination_port: int
    protocol: str
    vlans: tuple[int, ...]
    lost: bool

    @classmethod
    def at(cls, sid: int, flow: Flow, direction: int, frame: int, time: int) -> "PlantedAlert":
        """The alert of a signature on a frame that a flow sent in a direction."""
        ends = flow.ends
        sides = ((ends.client, ends.client_port), (ends.server, ends.server_port))
        (source, source_port), (destination, destination_port) = sides[direction], sides[1 - direction]
        return cls(
            sid=sid,
            frame=frame,
            time=time,
            source=str(ipaddress.ip_address(source.address)),
            source_port=source_port,
            destination=str(ipaddress.ip_address(destination.address)),
            destination_port=destination_port,
            protocol=PROTOCOLS[flow.protocol],
            vlans=ends.vlans,
            lost=flow.bypassable,
        )

    def as_json(self) -> dict[str, Any]:
        """With the names that EVE uses."""
        return {
            "pcap_cnt": self.frame,
            "timestamp": timestamp(self.time),
            "src_ip": self.source,
            "src_port": self.source_port,
            "dest_ip": self.destination,
            "dest_port": self.destination_port,
            "proto": self.protocol,
            "vlan": list(self.vlans),
            "lost": self.lost,
        }


def timestamp(time: int) -> str:
    """A time in ns since 1970-01-01 as EVE writes it, in UTC, to the microsecond."""
    moment = datetime.datetime.fromtimestamp(time // SECOND, datetime.UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{time % SECOND // 1000:06d}+0000"


@attrs.frozen(str=False)
class SampleSummary:
    """What was written.

    Attributes:
        capture, rules, alerts, summary: the files.
        seed: that it was made from.
        flows: flows in all; most_open: the most at work at one time.
        frames, bytes: in all; bytes on the wire, frame check sequences left out. file_bytes: of the capture file.
        tcp_frames, udp_frames, other_frames: by protocol, fragments with theirs.
        bypassable_frames, bypassable_bytes: of flows that the bypass rules take off inspection.
        reordered_frames, retransmitted_frames, fragments: frames that arrive late, again, in pieces.
        ipv6_flows, vlan_flows: flows over IPv6, and flows with VLAN tags.
        duration: from the first frame to the last, ns.
        kinds: frames by kind of traffic.
        planted: alerts that inspection without bypass gives, in order of their frames.
    """

    capture: Path
    rules: Path
    alerts: Path
    summary: Path
    seed: int
    flows: int
    most_open: int
    frames: int
    bytes: int
    file_bytes: int
    tcp_frames: int
    udp_frames: int
    other_frames: int
    bypassable_frames: int
    bypassable_bytes: int
    reordered_frames: int
    retransmitted_frames: int
    fragments: int
    ipv6_flows: int
    vlan_flows: int
    duration: int
    kinds: Mapping[str, int]
    planted: tuple[PlantedAlert, ...] = attrs.field(repr=False)

    def __str__(self) -> str:
        return (
            f"{self.frames:,} frames and {self.bytes / 1e6:,.1f} MB in {self.flows:,} flows, "
            f"{self.tcp_share:.1%} TCP, {self.udp_share:.1%} UDP; "
            f"bypassable {self.bypassable_frame_share:.1%} of the frames, {self.bypassable_byte_share:.1%} of the bytes"
        )

    @property
    def tcp_share(self) -> float:
        """TCP's share of the frames."""
        return self.tcp_frames / max(self.frames, 1)

    @property
    def udp_share(self) -> float:
        """UDP's share of the frames."""
        return self.udp_frames / max(self.frames, 1)

    @property
    def bypassable_frame_share(self) -> float:
        """The share of the frames that lie in flows which the bypass rules take off inspection."""
        return self.bypassable_frames / max(self.frames, 1)

    @property
    def bypassable_byte_share(self) -> float:
        """The same of the bytes."""
        return self.bypassable_bytes / max(self.bytes, 1)

    def as_json(self) -> dict[str, Any]:
        """Plain data, without the single alerts."""
        plain = attrs.asdict(self, filter=attrs.filters.exclude("planted"), value_serializer=_plain)
        shares = ("tcp_share", "udp_share", "bypassable_frame_share", "bypassable_byte_share")
        plain |= {name: round(getattr(self, name), 6) for name in shares}
        plain["planted_alerts"] = len(self.planted)
        plain["lost_alerts"] = sum(alert.lost for alert in self.planted)
        return plain


def _plain(_instance: object, _field: object, value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value


def alerts_json(planted: Iterable[PlantedAlert], capture: str, rules: str) -> dict[str, Any]:
    """What the rules find without bypass, by sid, and the sids of those that never alert."""
    found: dict[int, list[PlantedAlert]] = {}
    for alert in planted:
        found.setdefault(alert.sid, []).append(alert)
    messages = {int(rule["sid"]): rule["message"] for rule in _RULE.finditer(rules_text())}
    return {
        "capture": capture,
        "rules": rules,
        "alerts": {
            str(sid): {
                "signature": messages[sid],
                "count": len(alerts),
                "lost_to_bypass": sum(alert.lost for alert in alerts),
                "packets": [alert.as_json() for alert in alerts],
            }
            for sid, alerts in sorted(found.items())
        },
        "never": [sid for sid in messages if sid not in found],
    }
