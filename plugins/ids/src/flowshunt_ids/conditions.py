"""Conditions on single packets that are judged in Python, once the compiled tests of a rule hold."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from flowshunt.engine import InspectionBatch
from flowshunt_ids.datasets import Datasets
from flowshunt_ids.inspection import InspectionCounters, PayloadMatcher
from flowshunt_ids.layout import NO_BYTES
from flowshunt_ids.rules.language import TransformKeyword
from flowshunt_ids.rules.rule import BufferMatches, Rule

_ICMP, _TCP, _UDP, _ICMPV6 = 1, 6, 17, 58


@attrs.frozen(eq=False)
class PacketSource:
    """What conditions need beside a batch: the streams' state (SIDE[2 * slots]), and packets put together (see
    `flowshunt_ids.layout.Packets`), and the events of each row that has any."""

    sides: NDArray[Any]
    extra: NDArray[np.uint8] = NO_BYTES
    events: Mapping[int, frozenset[int]] = attrs.field(factory=dict)


@attrs.define(eq=False)
class PacketView:
    """One packet, as conditions look at it. row -1: the end of a stream, which has none.

    direction: 0 to the server, 1 to the client.
    """

    batch: InspectionBatch | None
    row: int
    slot: int
    direction: int
    flows: NDArray[Any]
    source: PacketSource
    _bytes: bytes | None = None
    _addresses: tuple[bytes, bytes] | None = None

    @property
    def header(self) -> Any:
        """The packet's HEADER row."""
        assert self.batch is not None
        return self.batch.headers[self.row]

    @property
    def timestamp(self) -> int:
        """When it came, in ns."""
        if self.batch is not None and self.row >= 0:
            return int(self.batch.frames.timestamp[self.row])
        return int(self.flows["last"][self.slot])

    @property
    def frame(self) -> bytes:
        """Its captured bytes, from the frame's first on."""
        if self._bytes is None:
            assert self.batch is not None
            frames = self.batch.frames
            start, length = int(frames.offset[self.row]), int(frames.captured[self.row])
            data = frames.data
            if start >= len(data):
                data, start = self.source.extra, start - len(data)
            self._bytes = data[start : start + length].tobytes()
        return self._bytes

    @property
    def addresses(self) -> tuple[bytes, bytes] | None:
        """Its source and destination, 4 or 16 bytes each; None: it is no IP packet."""
        if self._addresses is None:
            if self.slot >= 0:
                flow = self.flows[self.slot]
                size = 4 if flow["ip_version"] == 4 else 16
                ends = (flow["source"].tobytes()[:size], flow["destination"].tobytes()[:size])
                self._addresses = ends if self.direction == 0 else ends[::-1]
            elif self.row >= 0 and self.header["ip_version"]:
                first, second = packet_buffer("ip.src", self), packet_buffer("ip.dst", self)
                assert first is not None and second is not None
                self._addresses = (first, second)
        return self._addresses


def _compared(value: int, bounds: tuple[int, int, bool]) -> bool:
    low, high, negated = bounds
    return (low <= value <= high) != negated


def _stream_size(view: PacketView, value: Any) -> bool:
    """Bytes of each side so far, the SYN included: as sequence numbers tell with the packet at hand."""
    if view.row < 0 or view.slot < 0 or view.header["protocol"] != _TCP:
        return False
    which, *bounds = value
    limits = (int(bounds[0]), int(bounds[1]), bool(bounds[2]))
    header = view.header
    sender, receiver = (
        view.source.sides[2 * view.slot + view.direction],
        view.source.sides[2 * view.slot + 1 - view.direction],
    )
    flags = int(header["tcp_flags"])
    known = (int(sender["start"]) != 0, int(receiver["start"]) != 0)
    if not any(known):
        return False
    length = int(header["payload_length"]) + (flags & 1) + (flags >> 1 & 1)
    sent = (int(header["seq"]) + length - int(sender["start"]) + 1) & 0xFFFFFFFF if known[0] else 0
    answered = known[1] and flags & 0x10
    received = (int(header["ack"]) - int(receiver["start"]) + 1) & 0xFFFFFFFF if answered else 0
    client, server = (sent, received) if view.direction == 0 else (received, sent)
    holds = (_compared(client, limits), _compared(server, limits))
    return {"client": holds[0], "server": holds[1], "both": all(holds), "either": any(holds)}[which]


def _flow_age(view: PacketView, value: Any) -> bool:
    if view.slot < 0:
        return False
    age = max(view.timestamp - int(view.flows["first"][view.slot]), 0) // 1_000_000_000
    return _compared(age, value)


def _rpc(view: PacketView, value: Any) -> bool:
    if view.row < 0:
        return False
    protocol = int(view.header["protocol"])
    start = int(view.header["payload"])
    payload = view.frame[start : start + int(view.header["payload_length"])]
    if protocol == _TCP:
        payload = payload[4:]
    elif protocol != _UDP:
        return False
    if len(payload) < 24 or int.from_bytes(payload[4:8], "big") != 0:
        return False
    wanted = zip(value, (12, 16, 20), strict=True)
    return all(each < 0 or int.from_bytes(payload[at : at + 4], "big") == each for each, at in wanted)


def _sums_up(data: bytes) -> bool:
    """Whether the one's complement sum of 16-bit words is that of intact data (RFC 1071)."""
    words = np.frombuffer(data + b"\0" * (len(data) % 2), ">u2")
    total = int(words.sum(dtype=np.uint64))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total == 0xFFFF


_TRANSPORT = {"tcp": _TCP, "udp": _UDP, "icmp": _ICMP}


def _checksum(view: PacketView, value: Any) -> bool:
    layer, version, valid = value
    if view.row < 0:
        return False
    header = view.header
    if int(header["ip_version"]) != version:
        return False
    frame, l3, l4 = view.frame, int(header["l3"]), int(header["l4"])
    if layer == "ip":
        size = 4 * (frame[l3] & 15)
        return len(frame) >= l3 + size and _sums_up(frame[l3 : l3 + size]) == valid
    protocol = _ICMPV6 if (layer, version) == ("icmp", 6) else _TRANSPORT[layer]
    if int(header["protocol"]) != protocol or l4 == 0:
        return False
    end = int(header["payload"]) + int(header["payload_length"])
    segment = frame[l4:end]
    if layer == "udp" and segment[6:8] == b"\0\0":
        return bool(valid)
    pseudo = b""
    if protocol != _ICMP:
        first, size = (l3 + 12, 8) if version == 4 else (l3 + 8, 32)
        pseudo = frame[first : first + size] + bytes([0, protocol]) + len(segment).to_bytes(2, "big")
    return _sums_up(pseudo + segment) == valid


def _elsewhere(_view: PacketView, _value: Any) -> bool:
    """What asks for a flow's protocol is judged in `flowshunt_ids.app.stage`, before anything else."""
    return True


JUDGES: dict[str, Callable[[PacketView, Any], bool]] = {
    "stream_size": _stream_size,
    "event": lambda view, value: value in view.source.events.get(view.row, ()),
    "flow.age": _flow_age,
    "rpc": _rpc,
    "checksum": _checksum,
    "app-layer-protocol": _elsewhere,
    "app-layer-event": _elsewhere,
}
"""How the conditions of each name are judged."""


class PacketConditions:
    """The conditions of a rule set on single packets, and the matches on buffers of their headers.

    `number in conditions`: whether rule `number` has any.
    """

    def __init__(
        self,
        rules: Sequence[Rule],
        transforms: Mapping[str, TransformKeyword],
        counters: InspectionCounters,
        datasets: Datasets,
    ) -> None:
        self._rules = {number: rule for number, rule in enumerate(rules) if rule.conditions or rule.packet_buffers}
        self._transforms = transforms
        self._counters = counters
        self._datasets = datasets
        self._matchers: dict[BufferMatches, tuple[list[Callable[[bytes], bytes]], PayloadMatcher]] = {}

    def __contains__(self, number: int) -> bool:
        return number in self._rules

    def hold(self, number: int, view: PacketView) -> bool:
        """Whether all that a rule asks of a packet holds."""
        rule = self._rules[number]
        for condition in rule.conditions:
            judge = JUDGES.get(condition.name)
            if judge is None or not judge(view, condition.value):
                return False
        return all(self._buffer_matches(matches, view) for matches in rule.packet_buffers)

    def _buffer_matches(self, matches: BufferMatches, view: PacketView) -> bool:
        buffer = packet_buffer(matches.buffer, view)
        if buffer is None:
            return False
        known = self._matchers.get(matches)
        if known is None:
            steps = [self._transforms[each.name].prepare(each.argument) for each in matches.transforms]
            known = (steps, PayloadMatcher(matches.matches, self._counters, self._datasets))
            self._matchers[matches] = known
        for step in known[0]:
            buffer = step(buffer)
        return known[1].matches(buffer)


def packet_buffer(name: str, view: PacketView) -> bytes | None:
    """A buffer of the packet's headers; None where the packet has none."""
    if view.row < 0:
        return None
    header, frame = view.header, view.frame
    version, protocol = int(header["ip_version"]), int(header["protocol"])
    l3, l4 = int(header["l3"]), int(header["l4"])
    if version == 0:
        return None
    if name in ("ip.src", "ip.dst"):
        size = 4 if version == 4 else 16
        first = l3 + (12 if version == 4 else 8) + (size if name == "ip.dst" else 0)
        return frame[first : first + size]
    if name == "ipv4.hdr":
        return _whole(frame, l3, 4 * (frame[l3] & 15)) if version == 4 else None
    if name == "ipv6.hdr":
        return _whole(frame, l3, (l4 or int(header["payload"])) - l3) if version == 6 else None
    if l4 == 0:
        return None
    if name == "tcp.hdr":
        return _whole(frame, l4, 4 * (frame[l4 + 12] >> 4)) if protocol == _TCP else None
    if name == "udp.hdr":
        return _whole(frame, l4, 8) if protocol == _UDP else None
    if name == "icmpv4.hdr":
        return _whole(frame, l4, _icmp_header(frame[l4])) if protocol == _ICMP else None
    return _whole(frame, l4, 8) if protocol == _ICMPV6 else None


def _icmp_header(kind: int) -> int:
    """The length of an ICMP header by its type, as Suricata sees it: 20 with three timestamps."""
    return 20 if kind in (13, 14) else 8


def _whole(frame: bytes, start: int, length: int) -> bytes | None:
    return frame[start : start + length] if start + length <= len(frame) else None
