"""IP defragmentation: datagrams put together from their fragments, with bounded memory.

Fragments are rare, so this is Python. Of overlapping fragments the bytes received first are kept.
"""

import bisect
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np

from flowshunt.packets.batch import LINK_RAW, FrameBatch
from flowshunt.packets.headers import MORE_FRAGMENTS

TIMEOUT = 60 * 1_000_000_000
"""How long (ns) a datagram may take to become whole, as in Suricata."""
MAX_DATAGRAM = 65535

_EXTENSIONS = frozenset({0, 43, 60})
_FRAGMENT_HEADER = 44
_OVERHEAD = 64
"""Bytes that a fragment is charged beside its own."""

Key = tuple[Any, ...]


@attrs.define
class _Datagram:
    first_seen: int
    starts: list[int] = attrs.field(factory=list)
    parts: list[bytes] = attrs.field(factory=list)
    total: int | None = None
    size: int = 0
    header: bytes = b""
    protocol: int = 0
    slot: int = -1
    flow: int = 0


@attrs.frozen
class Reassembled:
    """A whole datagram: an IP packet without fragmentation, and the flow of its first fragment (slot, flow id)."""

    packet: bytes
    slot: int
    flow: int


class Defragmenter:
    """The datagrams that are not whole yet."""

    def __init__(self, memory: int) -> None:
        self._memory = memory
        self._used = 0
        self._open: OrderedDict[Key, _Datagram] = OrderedDict()
        self.completed = 0
        self.given_up = 0

    @property
    def used(self) -> int:
        """Bytes held."""
        return self._used

    def add(self, frames: FrameBatch, row: int, header: Any, slot: int, flow: int) -> Reassembled | None:
        """Take a fragment; gives the datagram that it completes. header: its HEADER row."""
        now = int(frames.timestamp[row])
        frame = frames.frame(row)
        found = _fragment(frame, header)
        if found is None:
            return None
        addresses, packet_header, protocol, payload = found
        key: Key = (addresses, int(header["fragment_id"]), protocol, int(header["vlan"]), int(header["inner_vlan"]))
        self._expire(now)
        datagram = self._open.get(key)
        if datagram is None:
            datagram = self._open[key] = _Datagram(now)
            self._used += _OVERHEAD
        offset = 8 * int(header["fragment_offset"])
        if offset + len(payload) > MAX_DATAGRAM:
            self._drop(key)
            return None
        if offset == 0 and not datagram.header:
            datagram.header, datagram.protocol = packet_header, protocol
            datagram.slot, datagram.flow = slot, flow
        if not int(header["flags"]) & MORE_FRAGMENTS and datagram.total is None:
            datagram.total = offset + len(payload)
        self._insert(datagram, offset, payload)
        if datagram.total is not None and datagram.header and _is_whole(datagram):
            del self._open[key]
            self._used -= datagram.size + _OVERHEAD
            self.completed += 1
            return Reassembled(_packet(datagram), datagram.slot, datagram.flow)
        while self._used > self._memory and self._open:
            self._drop(next(iter(self._open)))
        return None

    def _insert(self, datagram: _Datagram, start: int, payload: bytes) -> None:
        at = bisect.bisect_right(datagram.starts, start)
        if at:
            over = datagram.starts[at - 1] + len(datagram.parts[at - 1]) - start
            if over > 0:
                payload, start = payload[over:], start + over
        while payload:
            room = datagram.starts[at] - start if at < len(datagram.starts) else len(payload)
            if room > 0:
                part = payload[:room]
                datagram.starts.insert(at, start)
                datagram.parts.insert(at, part)
                datagram.size += len(part) + _OVERHEAD
                self._used += len(part) + _OVERHEAD
                at += 1
            if room >= len(payload):
                return
            skip = datagram.starts[at] + len(datagram.parts[at]) - start
            payload, start = payload[skip:], start + skip
            at += 1

    def _expire(self, now: int) -> None:
        while self._open:
            key, datagram = next(iter(self._open.items()))
            if now - datagram.first_seen < TIMEOUT:
                return
            self._drop(key)

    def _drop(self, key: Key) -> None:
        datagram = self._open.pop(key)
        self._used -= datagram.size + _OVERHEAD
        self.given_up += 1


def _is_whole(datagram: _Datagram) -> bool:
    assert datagram.total is not None
    end = 0
    for start, part in zip(datagram.starts, datagram.parts, strict=True):
        if start != end:
            break
        end += len(part)
        if end >= datagram.total:
            return True
    return end >= datagram.total


def _fragment(frame: bytes, header: Any) -> tuple[bytes, bytes, int, bytes] | None:
    """A fragment's addresses, the header to put before the datagram, its protocol, and its part of the payload."""
    l3 = int(header["l3"])
    end = int(header["payload"]) + int(header["payload_length"])
    if int(header["ip_version"]) == 4:
        start = l3 + 4 * (frame[l3] & 15) if l3 < len(frame) else end
        if start > end or end > len(frame):
            return None
        return frame[l3 + 12 : l3 + 20], frame[l3:start], frame[l3 + 9], frame[start:end]
    if l3 + 40 > len(frame) or end > len(frame):
        return None
    following, at = frame[l3 + 6], l3 + 40
    while following in _EXTENSIONS and at + 8 <= end:
        following, at = frame[at], at + 8 * (frame[at + 1] + 1)
    if following != _FRAGMENT_HEADER or at + 8 > end:
        return None
    return frame[l3 + 8 : l3 + 40], frame[l3 : l3 + 40], frame[at], frame[at + 8 : end]


def _packet(datagram: _Datagram) -> bytes:
    """The datagram as an IP packet; its checksum is not made anew."""
    assert datagram.total is not None
    payload = b"".join(datagram.parts)[: datagram.total]
    header = bytearray(datagram.header)
    if header[0] >> 4 == 4:
        header[2:4] = min(len(header) + len(payload), 65535).to_bytes(2, "big")
        header[6:8] = b"\0\0"
    else:
        header[4:6] = len(payload).to_bytes(2, "big")
        header[6] = datagram.protocol
    return bytes(header) + payload


def extended(frames: FrameBatch, rows: Sequence[int], packets: Sequence[bytes]) -> tuple[FrameBatch, FrameBatch]:
    """Frames with IP packets behind them, and the packets as a batch of their own.

    rows: the frames that the packets take their time and port from. No byte of the frames is copied: the offsets of
    the packets count from the end of the frames' data.
    """
    lengths = np.array([len(packet) for packet in packets], np.uint32)
    places = np.cumsum(lengths, dtype=np.int64) - lengths
    chosen = np.array(rows, np.int64)
    alone = FrameBatch(
        np.frombuffer(b"".join(packets) or b"\0", np.uint8),
        places,
        lengths,
        lengths,
        frames.timestamp[chosen],
        frames.port[chosen],
        np.full(len(packets), LINK_RAW, np.uint16),
        frames.first,
    )
    whole = attrs.evolve(
        frames,
        offset=np.concatenate([frames.offset, places + len(frames.data)]),
        captured=np.concatenate([frames.captured, lengths]),
        wire=np.concatenate([frames.wire, lengths]),
        timestamp=np.concatenate([frames.timestamp, alone.timestamp]),
        port=np.concatenate([frames.port, alone.port]),
        link=np.concatenate([frames.link, alone.link]),
    )
    return whole, alone
