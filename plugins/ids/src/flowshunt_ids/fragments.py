"""IP defragmentation: datagrams put together from their fragments, with bounded memory.

Fragments are rare, so this is Python. What is kept of overlapping ones is in `flowshunt_ids.fragment_policies`.
"""

import bisect
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from flowshunt.packets.batch import LINK_RAW, FrameBatch
from flowshunt.packets.headers import MORE_FRAGMENTS
from flowshunt_ids.events import number
from flowshunt_ids.fragment_policies import BSD, Fragment, first_hole, insert, join

TIMEOUT = 60 * 1_000_000_000
"""How long (ns) nothing of a datagram may come before it is given up, as in Suricata."""
MAX_DATAGRAM = 65535
MAX_FRAGMENTS = 65535
"""The most fragments that are kept in all (`defrag.max-frags`)."""

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
_TOO_LARGE = {4: number("decoder.ipv4.frag_pkt_too_large"), 6: number("decoder.ipv6.frag_pkt_too_large")}
_OVERLAPS = {4: number("decoder.ipv4.frag_overlap"), 6: number("decoder.ipv6.frag_overlap")}
_IGNORED = {4: number("decoder.ipv4.frag_ignored"), 6: number("decoder.ipv6.frag_ignored")}

Key = tuple[Any, ...]


@attrs.define
class _Datagram:
    last_seen: int
    policy: str
    parts: list[Fragment] = attrs.field(factory=list)
    starts: list[int] = attrs.field(factory=list)
    seen_last: bool = False
    hole: int = 0
    size: int = 0
    slot: int = -1
    flow: int = 0
    taken: int = 0


@attrs.frozen
class Reassembled:
    """A whole datagram: an IP packet without fragmentation, and the flow of its first fragment (slot, flow id)."""

    packet: bytes
    slot: int
    flow: int


class Defragmenter:
    """The datagrams that are not whole yet.

    policy_of: gives the policy (`flowshunt_ids.fragment_policies`) of a destination address, 4 or 16 bytes.
    """

    def __init__(
        self,
        memory: int,
        policy_of: Callable[[bytes], str] | None = None,
        *,
        timeout: int = TIMEOUT,
        most: int = MAX_FRAGMENTS,
    ) -> None:
        self._memory = memory
        self._policy_of = policy_of
        self._timeout = timeout
        self._most = most
        self._used = 0
        self._count = 0
        self._open: OrderedDict[Key, _Datagram] = OrderedDict()
        self.completed = 0
        self.given_up = 0
        self.events: list[tuple[int, int]] = []
        """Rows and numbers of events (`flowshunt_ids.events`) of the last call of `add`."""

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
        self.events = []
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
            source, destination, packet_header, protocol, part = found
            start = 8 * fragment_offset
            if start + len(part) + (20 if version == 4 else 0) > MAX_DATAGRAM:
                self.events.append((row, _TOO_LARGE[version]))
                self.given_up += 1
                continue
            key = (min(source, destination), max(source, destination), identification, protocol, *vlans)
            datagram = self._find(key, now, destination)
            if self._count >= self._most:
                self.events.append((row, _IGNORED[version]))
                continue
            new = Fragment(start, part, bool(flags & MORE_FRAGMENTS), packet_header)
            taken, overlaps = self._insert(datagram, new)
            if overlaps:
                self.events.append((row, _OVERLAPS[version]))
            if start == 0 and datagram.slot < 0:
                datagram.slot, datagram.flow = slot, flow
            if taken and _is_whole(datagram):
                self._close(key)
                self.completed += 1
                whole.append((row, Reassembled(_packet(datagram, version), datagram.slot, datagram.flow)))
            while self._used > self._memory and self._open:
                self._drop(next(iter(self._open)))
        return whole

    def _find(self, key: Key, now: int, destination: bytes) -> _Datagram:
        """The datagram of a fragment; it comes last in the order in which they are given up."""
        while self._open:
            oldest, waiting = next(iter(self._open.items()))
            if now - waiting.last_seen < self._timeout:
                break
            self._drop(oldest)
        datagram = self._open.get(key)
        if datagram is None:
            policy = self._policy_of(destination) if self._policy_of is not None else BSD
            datagram = self._open[key] = _Datagram(now, policy)
            self._used += _OVERHEAD
        else:
            datagram.last_seen = max(datagram.last_seen, now)
            self._open.move_to_end(key)
        return datagram

    def _insert(self, datagram: _Datagram, new: Fragment) -> tuple[bool, bool]:
        size = len(new.data)
        taken, overlaps = insert(datagram.parts, datagram.starts, new, datagram.policy)
        if taken:
            datagram.size += size + _OVERHEAD
            datagram.taken += 1
            self._used += size + _OVERHEAD
            self._count += 1
            datagram.seen_last = datagram.seen_last or not new.more
            if new.start <= datagram.hole:
                datagram.hole = first_hole(
                    datagram.parts, bisect.bisect_left(datagram.starts, new.start), datagram.hole
                )
        return taken, overlaps

    def _close(self, key: Key) -> None:
        datagram = self._open.pop(key)
        self._used -= datagram.size + _OVERHEAD
        self._count -= datagram.taken

    def _drop(self, key: Key) -> None:
        self._close(key)
        self.given_up += 1


def _is_whole(datagram: _Datagram) -> bool:
    """Whether no byte is missing."""
    parts = datagram.parts
    return datagram.seen_last and parts[0].start == 0 and datagram.hole >= parts[-1].end


def _fragment(packet: bytes, end: int, version: int) -> tuple[bytes, bytes, bytes, int, bytes] | None:
    """A fragment's addresses, the headers to put before the datagram, its protocol, and its part of the payload.

    packet: from the IP header on; end: where its payload ends. IPv6 tells the protocol only with the first part, so all
    parts count as of the fragment header's; the headers then say what follows them.
    """
    if version == 4:
        start = 4 * (packet[0] & 15) if packet else end
        if start < 20 or start > end or end > len(packet):
            return None
        return packet[12:16], packet[16:20], packet[:start], packet[9], packet[start:end]
    if len(packet) < 40 or end > len(packet):
        return None
    following, at, place = packet[6], 40, 6
    while following in _EXTENSIONS and at + 8 <= end:
        following, place, at = packet[at], at, at + 8 * (packet[at + 1] + 1)
    if following != _FRAGMENT_HEADER or at + 8 > end:
        return None
    header = bytearray(packet[:at])
    header[place] = packet[at]
    return packet[8:24], packet[24:40], bytes(header), _FRAGMENT_HEADER, packet[at + 8 : end]


def _packet(datagram: _Datagram, version: int) -> bytes:
    """The datagram as an IP packet; its checksum is not made anew."""
    payload = join(datagram.parts)
    header = bytearray(datagram.parts[0].header)
    if version == 4:
        header[2:4] = min(len(header) + len(payload), MAX_DATAGRAM).to_bytes(2, "big")
        header[6:8] = b"\0\0"
    else:
        header[4:6] = min(len(header) - 40 + len(payload), MAX_DATAGRAM).to_bytes(2, "big")
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
