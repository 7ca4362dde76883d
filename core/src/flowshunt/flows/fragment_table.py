"""Which ports a fragmented datagram has: learned from its first fragment, looked up by its later ones.

A bounded table in sets of four entries; a set that is full gives up its oldest. Entries live for 60 s of packet time,
the reassembly time of RFC 8200 (section 4.5) and the lower bound of RFC 1122 (section 3.3.2).
"""

from typing import Any

import numpy as np
from numba import from_dtype, types
from numpy.typing import NDArray

from flowshunt.compiled import column, kernel
from flowshunt.flows.key import KEY
from flowshunt.flows.layout import SECOND
from flowshunt.flows.siphash import siphash

_U64 = types.uint64
_I64 = types.int64

DATAGRAM = np.dtype(
    [
        ("source_0", "<u8"),
        ("source_1", "<u8"),
        ("destination_0", "<u8"),
        ("destination_1", "<u8"),
        ("label", "<u8"),  # IP identification | outer VLAN << 32 | inner VLAN << 48
        ("kind", "<u8"),  # protocol | IP version << 8
        ("ports", "<i8"),  # source port | destination port << 16
        ("seen", "<i8"),  # packet time at the first fragment, + 1; 0: free
    ]
)

DATAGRAMS = column(DATAGRAM)
WAYS = 4
_LIFETIME = 60 * SECOND
_VLANS = np.uint64(0xFFFFFFFF00000000)


@kernel(_I64(DATAGRAMS, from_dtype(KEY), _U64, _U64, _U64, _I64, _I64), entry=False)
def datagram_ports(
    datagrams: NDArray[Any], key: Any, k0: Any, k1: Any, identification: Any, now: int, ports: int
) -> int:
    """The ports of a fragment's datagram, or -1 where its first fragment wasn't seen; `ports` >= 0 enters them."""
    label = (key.ends & _VLANS) | identification
    place = siphash(
        k1, k0, key.source_0, key.source_1, key.destination_0, key.destination_1, label, key.kind
    ) & np.uint64(len(datagrams) // WAYS - 1)
    start: Any = np.int64(place) * WAYS
    oldest = start
    for at in range(start, start + WAYS):
        entry = datagrams[at]
        if (
            entry.seen != 0
            and entry.label == label
            and entry.kind == key.kind
            and entry.source_0 == key.source_0
            and entry.source_1 == key.source_1
            and entry.destination_0 == key.destination_0
            and entry.destination_1 == key.destination_1
        ):
            if ports < 0:
                return entry.ports if now - (entry.seen - 1) <= _LIFETIME else -1
            oldest = at
            break
        if entry.seen < datagrams[oldest].seen:
            oldest = at
    if ports >= 0:
        entry = datagrams[oldest]
        entry.source_0 = key.source_0
        entry.source_1 = key.source_1
        entry.destination_0 = key.destination_0
        entry.destination_1 = key.destination_1
        entry.label = label
        entry.kind = key.kind
        entry.ports = ports
        entry.seen = now + 1
    return ports
