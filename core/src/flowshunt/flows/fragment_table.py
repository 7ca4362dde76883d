"""Which ports a fragmented datagram has: learned from its first fragment, looked up by its later ones.

A bounded table in sets of four entries; a set that is full of live entries gives up its oldest. Entries live for 60 s of
packet time, the reassembly time of RFC 8200 (section 4.5) and the lower bound of RFC 1122 (section 3.3.2).
"""

from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from flowshunt.compiled import column, kernel
from flowshunt.flows.layout import SECOND
from flowshunt.flows.siphash import siphash

_U64 = types.uint64

DATAGRAM = np.dtype(
    [
        ("source_0", "<u8"),
        ("source_1", "<u8"),
        ("destination_0", "<u8"),
        ("destination_1", "<u8"),
        ("label", "<u8"),  # IP identification | outer VLAN << 32 | inner VLAN << 48
        ("seen", "<i8"),  # packet time at the first fragment, + 1; 0: free
        ("ports", "<u4"),  # source port | destination port << 16
        ("kind", "<u2"),  # protocol | IP version << 8
        ("pad", "<u2"),
    ]
)

DATAGRAMS = column(DATAGRAM)
WAYS = 4
_LIFETIME = 60 * SECOND


@kernel(
    types.int64(DATAGRAMS, _U64, _U64, _U64, _U64, _U64, _U64, _U64, _U64, types.int64, types.int64),
    entry=False,
)
def datagram_ports(
    datagrams: NDArray[Any],
    k0: Any,
    k1: Any,
    s0: Any,
    s1: Any,
    d0: Any,
    d1: Any,
    label: Any,
    kind: Any,
    now: int,
    ports: int,
) -> int:
    """The ports of a datagram, or -1 where its first fragment wasn't seen. `ports` >= 0 enters them instead."""
    sets = len(datagrams) // WAYS
    start = np.int64(siphash(k1, k0, s0, s1, d0, d1, label, kind) & np.uint64(sets - 1)) * WAYS
    oldest = start
    for at in range(start, start + WAYS):
        entry = datagrams[at]
        if (
            entry.seen != 0
            and entry.label == label
            and entry.kind == kind
            and entry.source_0 == s0
            and entry.destination_0 == d0
            and entry.source_1 == s1
            and entry.destination_1 == d1
        ):
            if ports < 0:
                return np.int64(entry.ports) if now - (entry.seen - 1) <= _LIFETIME else np.int64(-1)
            oldest = at
            break
        if entry.seen < datagrams[oldest].seen:
            oldest = at
    if ports >= 0:
        entry = datagrams[oldest]
        entry.source_0 = s0
        entry.source_1 = s1
        entry.destination_0 = d0
        entry.destination_1 = d1
        entry.label = label
        entry.kind = np.uint16(kind)
        entry.ports = np.uint32(ports)
        entry.seen = now + 1
    return ports
