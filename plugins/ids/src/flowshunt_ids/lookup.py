"""Rule groups of flows and packets in compiled code: header classes, then the table of known combinations."""

# ruff: noqa: PLR1714, SIM109 -- kernels compare scalars

from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from flowshunt.compiled import BYTES, column, kernel, matrix
from flowshunt.engine import NEW
from flowshunt.packets.headers import FRAGMENT, HEADER
from flowshunt_ids.header_classes import CLASS_TABLES, FLOWLESS, NO_PORTS, ClassTables
from flowshunt_ids.layout import (
    GROUP,
    GROUP_APP,
    GROUP_RULES,
    GROUP_STREAM,
    NOT_STOPPED,
    SESSION,
    SESSION_IDLE,
    SESSION_KNOWN,
    SIDE,
    SIDE_APP,
    SIDE_STREAM,
)
from flowshunt_ids.streams.handshake import clear
from flowshunt_ids.streams.pool import POOL, Pool

_I64 = types.int64
_TABLE = matrix(np.uint64)
_TCP, _UDP, _SCTP = 6, 17, 132

FLOW_ADDRESS = 8
FLOW_PORTS = 40
FLOW_PROTOCOL = 48
FLOW_VERSION = 49
"""Where FLOW keeps what a lookup needs, in bytes; checked when a session opens."""


_MIX_1 = 0x9E3779B97F4A7C15
_MIX_2 = 0xC2B2AE3D27D4EB4F
_MIX_3 = 0xBF58476D1CE4E5B9
_WORD = (1 << 64) - 1


def place_of(keys: NDArray[np.uint64], values: NDArray[np.int32], first: int, second: int) -> int:
    """Where a combination stands in the table, or the free place (value -1) where it belongs."""
    mask = len(values) - 1
    mixed = (first * _MIX_1 ^ second * _MIX_2) & _WORD
    mixed ^= mixed >> 29
    place = ((mixed * _MIX_3 & _WORD) >> 20) & mask
    while values[place] >= 0 and (keys[place, 0] != first or keys[place, 1] != second):
        place = (place + 1) & mask
    return place


@kernel(_I64(_TABLE, column(np.int32), types.uint64, types.uint64), entry=False)
def _group_of(keys: NDArray[np.uint64], values: NDArray[np.int32], first: int, second: int) -> Any:
    """The group of a combination; -1: not known. The search is that of `place_of`."""
    mask = len(values) - 1
    mixed = np.uint64(first) * np.uint64(_MIX_1) ^ np.uint64(second) * np.uint64(_MIX_2)
    mixed ^= mixed >> np.uint64(29)
    place = np.int64(mixed * np.uint64(_MIX_3) >> np.uint64(20)) & mask
    while values[place] >= 0 and (keys[place, 0] != first or keys[place, 1] != second):
        place = (place + 1) & mask
    return values[place]


@kernel(_I64(CLASS_TABLES, matrix(np.uint8, readonly=True), _I64, _I64, _I64), entry=False)
def _address_class(tables: ClassTables, data: NDArray[np.uint8], row: int, at: int, version: int) -> Any:
    """The class of the address at data[row, at:]."""
    if version == 4:
        value = np.uint32(0)
        for step in range(4):
            value = (value << np.uint32(8)) | np.uint32(data[row, at + step])
        low, high = np.int64(0), np.int64(len(tables.ipv4_start))
        while high - low > 1:
            middle = (low + high) >> 1
            if tables.ipv4_start[middle] <= value:
                low = middle
            else:
                high = middle
        return np.int64(tables.ipv4_class[low])
    upper, lower = np.uint64(0), np.uint64(0)
    for step in range(8):
        upper = (upper << np.uint64(8)) | np.uint64(data[row, at + step])
        lower = (lower << np.uint64(8)) | np.uint64(data[row, at + 8 + step])
    low, high = np.int64(0), np.int64(len(tables.ipv6_high))
    while high - low > 1:
        middle = (low + high) >> 1
        bound = tables.ipv6_high[middle]
        if bound < upper or (bound == upper and tables.ipv6_low[middle] <= lower):
            low = middle
        else:
            high = middle
    return np.int64(tables.ipv6_class[low])


@kernel(types.uint64(_I64, _I64), inline=True, entry=False)
def _first_key(source: int, destination: int) -> Any:
    """The first half of a packed combination (`RuleGroups.add` unpacks it)."""
    return (np.uint64(source) << np.uint64(32)) | np.uint64(destination)


@kernel(types.uint64(_I64, _I64, _I64, _I64), inline=True, entry=False)
def _second_key(source_port: int, destination_port: int, protocol: int, direction: int) -> Any:
    """The second half."""
    return (
        (np.uint64(source_port) << np.uint64(44))
        | (np.uint64(destination_port) << np.uint64(24))
        | (np.uint64(protocol) << np.uint64(4))
        | np.uint64(direction)
    )


@kernel(
    _I64(
        CLASS_TABLES,
        _TABLE,
        column(np.int32),
        column(GROUP, readonly=True),
        column(np.int32, readonly=True),
        column(np.uint8, readonly=True),
        matrix(np.uint8, readonly=True),
        POOL,
        column(SESSION),
        column(SIDE),
        _TABLE,
    )
)
def open_flows(
    tables: ClassTables,
    keys: NDArray[np.uint64],
    values: NDArray[np.int32],
    groups: NDArray[Any],
    slot: NDArray[np.int32],
    events: NDArray[np.uint8],
    flows: NDArray[np.uint8],
    pool: Pool,
    sessions: NDArray[Any],
    sides: NDArray[Any],
    missing: NDArray[np.uint64],
) -> Any:
    """Clear the state of flows that begin in a batch, find the groups of both sides, and note what these want.

    flows: the batch's FLOW rows as bytes. Combinations without a group go to `missing` (room for two a row is needed);
    returns how many there are. If there are any, make their groups and call again.
    """
    count = 0
    for row in range(len(slot)):
        at = np.int64(slot[row])
        if at < 0 or not events[row] & NEW or at >= len(flows) or at >= len(sessions):
            continue
        session = sessions[at]
        clear(pool, sessions, sides, at, not session.flags & SESSION_KNOWN)
        session.flags = SESSION_IDLE | SESSION_KNOWN
        session.stopped = NOT_STOPPED
        version = np.int64(flows[at, FLOW_VERSION])
        source_port = np.int64(flows[at, FLOW_PORTS]) | np.int64(flows[at, FLOW_PORTS + 1]) << 8
        destination_port = np.int64(flows[at, FLOW_PORTS + 2]) | np.int64(flows[at, FLOW_PORTS + 3]) << 8
        source = _address_class(tables, flows, at, FLOW_ADDRESS, version)
        destination = _address_class(tables, flows, at, FLOW_ADDRESS + 16, version)
        source_port = tables.port_class[source_port]
        destination_port = tables.port_class[destination_port]
        protocol = tables.protocol_class[flows[at, FLOW_PROTOCOL]]
        parsed = False
        for side in range(2 * at, 2 * at + 2):
            me = sides[side]
            if side & 1:
                first = _first_key(destination, source)
                second = _second_key(destination_port, source_port, protocol, 1)
            else:
                first = _first_key(source, destination)
                second = _second_key(source_port, destination_port, protocol, 0)
            group = _group_of(keys, values, first, second)
            me.group = group
            if group < 0:
                missing[count, 0] = first
                missing[count, 1] = second
                count += 1
                continue
            if groups[group].flags & GROUP_RULES or groups[group].request != 0:
                session.flags &= ~SESSION_IDLE
            if groups[group].flags & GROUP_STREAM:
                me.flags |= SIDE_STREAM
            if groups[group].flags & GROUP_APP:
                parsed = True
        if parsed and (flows[at, FLOW_PROTOCOL] == _TCP or flows[at, FLOW_PROTOCOL] == _UDP):
            session.flags &= ~SESSION_IDLE
            sides[2 * at].flags |= SIDE_APP
            sides[2 * at + 1].flags |= SIDE_APP
    return count


@kernel(
    _I64(
        CLASS_TABLES,
        _TABLE,
        column(np.int32),
        column(np.int32, readonly=True),
        BYTES,
        column(np.int64, readonly=True),
        column(np.uint32, readonly=True),
        column(HEADER, readonly=True),
        column(np.int32),
        matrix(np.uint8),
        _TABLE,
    )
)
def find_packet_groups(
    tables: ClassTables,
    keys: NDArray[np.uint64],
    values: NDArray[np.int32],
    slot: NDArray[np.int32],
    data: NDArray[np.uint8],
    offset: NDArray[np.int64],
    captured: NDArray[np.uint32],
    headers: NDArray[Any],
    groups: NDArray[np.int32],
    scratch: NDArray[np.uint8],
    missing: NDArray[np.uint64],
) -> Any:
    """Set `groups[row]` for IP packets of no flow (-1 for other rows). scratch: uint8[1, 32].

    See `open_flows` for `missing` and what is returned.
    """
    count = 0
    for row in range(len(slot)):
        groups[row] = -1
        if slot[row] >= 0:
            continue
        header = headers[row]
        version = np.int64(header.ip_version)
        size = 4 if version == 4 else 16
        at = np.int64(header.l3) + (12 if version == 4 else 8)
        if version == 0 or at + 2 * size > np.int64(captured[row]):
            continue
        begin = offset[row] + at
        if begin < 0 or begin + 2 * size > len(data):
            continue
        for step in range(size):
            scratch[0, step] = data[begin + step]
            scratch[0, 16 + step] = data[begin + size + step]
        protocol = np.int64(header.protocol)
        source_port, destination_port = np.int64(0), np.int64(0)
        if header.flags & FRAGMENT:
            source_port = destination_port = np.int64(NO_PORTS)
        elif header.l4 != 0 and (protocol == _TCP or protocol == _UDP or protocol == _SCTP):
            source_port = np.int64(header.source_port)
            destination_port = np.int64(header.destination_port)
        first = _first_key(
            _address_class(tables, scratch, 0, 0, version), _address_class(tables, scratch, 0, 16, version)
        )
        second = _second_key(
            np.int64(tables.port_class[source_port]),
            np.int64(tables.port_class[destination_port]),
            np.int64(tables.protocol_class[protocol]),
            FLOWLESS,
        )
        group = _group_of(keys, values, first, second)
        if group < 0:
            missing[count, 0] = first
            missing[count, 1] = second
            count += 1
        groups[row] = group
    return count
