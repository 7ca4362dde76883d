"""Memory of a flow table: the private half of a row, the table's scalars, and a scalar view of flow records.

All arrays of a table are as long as its capacity and never move; the system commits their memory page by page as rows
come into use, so that a large capacity costs nothing until it is needed.
"""

import contextlib
import mmap
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flowshunt.errors import CapabilityError
from flowshunt.flows.record import FLOW


def _scalars(*names: tuple[str, str, str, int]) -> np.dtype[Any]:
    """FLOW with some fields only, as scalars: (name, format, field of FLOW, bytes past its start)."""
    fields: Mapping[str, Any] = FLOW.fields or {}
    return np.dtype(
        {
            "names": [name for name, _, _, _ in names],
            "formats": [form for _, form, _, _ in names],
            "offsets": [fields[field][1] + extra for _, _, field, extra in names],
            "itemsize": FLOW.itemsize,
        }
    )


FLOW_WORDS = _scalars(
    ("id", "<u8", "id", 0),
    ("source_0", "<u8", "source", 0),
    ("source_1", "<u8", "source", 8),
    ("destination_0", "<u8", "destination", 0),
    ("destination_1", "<u8", "destination", 8),
    ("ports", "<u4", "source_port", 0),  # source port | destination port << 16
    ("vlans", "<u4", "vlan", 0),  # outer | inner << 16
    ("kind", "<u2", "protocol", 0),  # protocol | IP version << 8
    ("tcp_state", "u1", "tcp_state", 0),
    ("end_reason", "u1", "end_reason", 0),
    ("tcp_flags_0", "u1", "tcp_flags", 0),
    ("tcp_flags_1", "u1", "tcp_flags", 1),
    ("action", "u1", "action", 0),
    ("bypass", "u1", "bypass", 0),
    ("port", "<u2", "port", 0),
    ("first", "<i8", "first", 0),
    ("last", "<i8", "last", 0),
    ("packets_0", "<u8", "packets", 0),
    ("packets_1", "<u8", "packets", 8),
    ("bytes_0", "<u8", "bytes", 0),
    ("bytes_1", "<u8", "bytes", 8),
    ("bypassed_packets_0", "<u8", "bypassed_packets", 0),
    ("bypassed_packets_1", "<u8", "bypassed_packets", 8),
    ("bypassed_bytes_0", "<u8", "bypassed_bytes", 0),
    ("bypassed_bytes_1", "<u8", "bypassed_bytes", 8),
)
"""A flow record as kernels see it: the same bytes as FLOW, addresses and pairs as scalars. Neighbouring fields of FLOW
that are compared together (ports, VLAN ids, protocol and version) are one word."""

LIFE = np.dtype(
    [
        ("seen", "<i8"),  # packet time at the last frame
        ("fin_0", "<u4"),  # sequence number after the FIN of direction 0, where FIN_0 is set
        ("fin_1", "<u4"),
        ("batch", "<i4"),  # the call that last touched the row
        ("after", "<i4"),  # next row of the same second in the timer wheel, + 1; 0: none
        ("before", "<i4"),  # previous row, + 1; 0: first
        ("bucket", "<u2"),  # the row's bucket of the timer wheel, + 1; 0: no live flow in this row
        ("bits", "u1"),  # the bits below
        ("timer", "u1"),  # index into the table's timeouts
    ]
)
assert LIFE.itemsize == 32

SEEN_0 = 1  # a frame of direction 0 was seen; direction d: SEEN_0 << d
FIN_0 = 4  # direction 0 has sent its FIN
ACKED_0 = 16  # the FIN of direction 0 was acknowledged
HANDSHAKE = 64  # the TCP handshake was completed

# Timers: indices into the timeouts, in the order of the fields of FlowTimeouts, and one that never runs out.
TIMER_TCP_NEW = 0
TIMER_TCP_ESTABLISHED = 1
TIMER_TCP_CLOSED = 2
TIMER_UDP_NEW = 3
TIMER_ICMP_NEW = 5
TIMER_OTHER_NEW = 7
TIMER_BYPASSED = 9
TIMER_NEVER = 10

STATE = np.dtype(
    [
        ("clock", "<i8"),  # packet time, ns
        ("turn", "<i8"),  # when the timer wheel turns next, ns
        ("shift", "<i8"),  # packet time minus the capture's timestamps
        ("stray", "<i8"),  # 1, -1: the last frame's time was far ahead, behind, and not believed; 0: it was not
        ("stray_slot", "<i8"),  # the row of that frame's flow, + 1
        ("stray_time", "<i8"),  # its timestamp
        ("started", "<i8"),  # packet time has begun
        ("high", "<i8"),  # rows ever used
        ("free", "<i8"),  # rows in the stack of free ones
        ("ended", "<i8"),  # rows in the list of ended ones
        ("active", "<i8"),  # live flows
        ("limit", "<i8"),  # live flows at which `track` evicts
        ("next_id", "<u8"),
        ("batch", "<i8"),  # number of the running call
        ("hand", "<i8"),  # where the next search for a row to evict starts
        ("by_id", "<i8"),  # 1: flows are indexed by id too
        ("key_0", "<u8"),  # the key of the table's hash
        ("key_1", "<u8"),
        ("created", "<i8"),
        ("overflow", "<i8"),
        ("fragments_matched", "<i8"),
        ("fragments_unmatched", "<i8"),
        ("ended_by", "<i8", (6,)),  # flows ended, by EndReason
    ]
)
"""The scalars of a flow table."""

WHEEL = 1024
"""Buckets of the timer wheel, one a second; one more holds the flows that never time out."""

SECOND = 1_000_000_000


def reserve(dtype: Any, count: int) -> NDArray[Any]:
    """A zeroed array whose memory is committed only where it is written, and at its two ends.

    Raises CapabilityError where the system refuses even the address space.
    """
    kind = np.dtype(dtype)
    size = max(1, count * kind.itemsize)
    try:
        if sys.platform != "linux":
            return np.zeros(count, kind)
        no_reserve = 0x4000  # MAP_NORESERVE: no swap is set aside, so that the mapping may exceed free memory
        area = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | no_reserve)
        if size >= 1 << 22:
            with contextlib.suppress(OSError, AttributeError):
                area.madvise(mmap.MADV_HUGEPAGE)  # rows are reached at random: fewer address translations miss
        # The first flows and the first that end should not wait for memory to be cleared.
        area[0] = area[size - 1] = 0
        return np.frombuffer(area, kind, count)
    except (MemoryError, OSError, ValueError, OverflowError) as error:
        raise CapabilityError(
            f"no address space for {count} rows of a flow table ({size >> 20} MB): {error}; choose a lower capacity"
        ) from error
