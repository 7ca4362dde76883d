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
from flowshunt.flows.layout import SECOND, STATE
from flowshunt.flows.siphash import flow_hash

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
        ("ports", "<u8"),  # source port | destination port << 16
        ("seen", "<i8"),  # packet time at the first fragment, + 1; 0: free
    ]
)

DATAGRAMS = column(DATAGRAM)
WAYS = 4
_LIFETIME = 60 * SECOND
_VLANS = np.uint64(0xFFFFFFFF00000000)
_LOWER = np.uint64(0xFFFFFFFF)
_0 = np.uint64(0)


@kernel(types.void(DATAGRAMS, from_dtype(STATE), from_dtype(KEY), _U64, _I64), entry=False)
def complete_fragment(datagrams: NDArray[Any], state: Any, key: Any, identification: Any, later: int) -> None:
    """Give a later fragment's key the ports of its datagram, or remember those of a first fragment."""
    label = (key.ends & _VLANS) | identification
    ports = key.ends & _LOWER
    place = flow_hash(
        state.key_1,
        state.key_0,
        key.source_0,
        key.source_1,
        key.destination_0,
        key.destination_1,
        label,
        key.kind,
    )
    start: Any = np.int64(place) % (len(datagrams) // WAYS) * WAYS
    chosen = start
    known = False
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
            chosen = at
            known = state.clock - (entry.seen - 1) <= _LIFETIME
            break
        if entry.seen < datagrams[chosen].seen:
            chosen = at
    entry = datagrams[chosen]
    if later == 0:
        entry.source_0 = key.source_0
        entry.source_1 = key.source_1
        entry.destination_0 = key.destination_0
        entry.destination_1 = key.destination_1
        entry.label = label
        entry.kind = key.kind
        entry.ports = ports
        entry.seen = state.clock + 1
        return
    ports = _0
    if known:
        ports = entry.ports
        state.fragments_matched += 1
    else:
        state.fragments_unmatched += 1
    key.ends = (key.ends & _VLANS) | ports
    key.hash = flow_hash(
        state.key_0,
        state.key_1,
        key.source_0,
        key.source_1,
        key.destination_0,
        key.destination_1,
        key.ends,
        key.kind,
    )
