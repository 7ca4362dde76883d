"""IP defragmentation: datagrams put together from their fragments, with bounded memory.

Fragments are rare, so this is Python. Of overlapping fragments the bytes received first are kept.
"""

import bisect
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from flowshunt.packets.batch import LINK_RAW, FrameBatch
from flowshunt.packets.headers import MORE_FRAGMENTS

TIMEOUT = 60 * 1_000_000_000
"""How long (ns) a datagram may take to become whole, as in Suricata."""
MAX_DATAGRAM = 65535

_EXTENSIONS = frozenset({0, 43, 60})
_FRAGMENT_HEADER = 44
_FIELDS = (
    "l3",
    "payload",
    "payload_length",
    "flags",
    "fragment_id",
    "fragment_offset",
    "ip_version",
    "vlan",
    "inner_vlan",
)
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

    def add(
        self,
        frames: FrameBatch,
        rows: NDArray[np.int64],
        headers: NDArray[Any],
        slots: NDArray[np.int32],
        flows: NDArray[np.uint64],
    ) -> list[tuple[int, Reassembled]]:
        """Take a batch's fragments, those at `rows`; gives the datagrams that they complete, each with its last row.

        headers, slots, flows: of these rows, their HEADER rows, flows and flow ids (-1 and 0: none).
        """
        whole: list[tuple[int, Reassembled]] = []
        data = frames.data.data
        columns = zip(
            rows.tolist(),
            zip(*(headers[field].tolist() for field in _FIELDS), strict=True),
            frames.offset[rows].tolist(),
            frames.captured[rows].tolist(),
            frames.timestamp[rows].tolist(),
            slots.tolist(),
            flows.tolist(),
            strict=True,
        )
        for row, header, begin, captured, now, slot, flow in columns:
            l3, payload, length, flags, identification, fragment_offset, version, *vlans = header
            found = _fragment(bytes(data[begin + l3 : begin + captured]), payload + length - l3, version)
            if found is None:
                continue
            addresses, packet_header, protocol, part = found
            datagram = self._part(
                (addresses, identification, protocol, *vlans),
                now,
                8 * fragment_offset,
                part,
                (packet_header, protocol, slot, flow),
                last=not flags & MORE_FRAGMENTS,
            )
            if datagram is not None:
                whole.append((row, Reassembled(_packet(datagram), datagram.slot, datagram.flow)))
        return whole

    def _part(
        self,
        key: Key,
        now: int,
        offset: int,
        payload: bytes,
        origin: tuple[bytes, int, int, int],
        *,
        last: bool,
    ) -> _Datagram | None:
        """Add a part of a datagram; gives the datagram where it is whole now. origin: header, protocol, slot, flow."""
        while self._open:
            oldest, waiting = next(iter(self._open.items()))
            if now - waiting.first_seen < TIMEOUT:
                break
            self._drop(oldest)
        datagram = self._open.get(key)
        if datagram is None:
            datagram = self._open[key] = _Datagram(now)
            self._used += _OVERHEAD
        if offset + len(payload) > MAX_DATAGRAM:
            self._drop(key)
            return None
        if offset == 0 and not datagram.header:
            datagram.header, datagram.protocol, datagram.slot, datagram.flow = origin
        if last and datagram.total is None:
            datagram.total = offset + len(payload)
        self._insert(datagram, offset, payload)
        if datagram.total is not None and datagram.header and _is_whole(datagram):
            del self._open[key]
            self._used -= datagram.size + _OVERHEAD
            self.completed += 1
            return datagram
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


def _fragment(packet: bytes, end: int, version: int) -> tuple[bytes, bytes, int, bytes] | None:
    """A fragment's addresses, the header to put before the datagram, its protocol, and its part of the payload.

    packet: from the IP header on; end: where its payload ends.
    """
    if version == 4:
        start = 4 * (packet[0] & 15) if packet else end
        if start < 20 or start > end or end > len(packet):
            return None
        return packet[12:20], packet[:start], packet[9], packet[start:end]
    if len(packet) < 40 or end > len(packet):
        return None
    following, at = packet[6], 40
    while following in _EXTENSIONS and at + 8 <= end:
        following, at = packet[at], at + 8 * (packet[at + 1] + 1)
    if following != _FRAGMENT_HEADER or at + 8 > end:
        return None
    return packet[8:40], packet[:40], packet[at], packet[at + 8 : end]


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
