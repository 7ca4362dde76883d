"""Flow keys in compiled code: a frame's endpoints, and a hash of them that is the same for both directions.

A key is the two endpoints (address, port), the outer and inner VLAN id, the protocol and the IP version. Addresses are
16 bytes as two little-endian words (IPv4: the low half of the first word); "ends" is one word: source port, destination
port, outer and inner VLAN id, 16 bits each from the lowest; "kind" is protocol | IP version << 8.
"""

from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from flowshunt.compiled import BYTES, kernel
from flowshunt.flows.siphash import siphash

_U64 = types.uint64

TCP = 6
_UDP = 17
_SCTP = 132


@kernel(types.boolean(types.int64), inline=True, entry=False)
def has_ports(protocol: int) -> bool:
    """Whether a protocol has ports that tell its flows apart: TCP, UDP, SCTP."""
    return protocol in (TCP, _UDP, _SCTP)


@kernel(_U64(BYTES, _U64), inline=True, entry=False)
def _word32(data: NDArray[np.uint8], at: Any) -> Any:
    return (
        np.uint64(data[at])
        | (np.uint64(data[at + np.uint64(1)]) << np.uint64(8))
        | (np.uint64(data[at + np.uint64(2)]) << np.uint64(16))
        | (np.uint64(data[at + np.uint64(3)]) << np.uint64(24))
    )


@kernel(types.UniTuple(_U64, 4)(BYTES, types.int64, types.int64), inline=True, entry=False)
def addresses(data: NDArray[np.uint8], at: int, version: int) -> tuple[int, int, int, int]:
    """Source and destination address of the IP header at `at`, two words each.

    The caller has checked that the header's 20 (IPv4) or 40 (IPv6) bytes are there.
    """
    where = np.uint64(at)
    zero = np.uint64(0)
    if version == 4:
        return _word32(data, where + np.uint64(12)), zero, _word32(data, where + np.uint64(16)), zero
    high = np.uint64(32)
    return (
        _word32(data, where + np.uint64(8)) | (_word32(data, where + np.uint64(12)) << high),
        _word32(data, where + np.uint64(16)) | (_word32(data, where + np.uint64(20)) << high),
        _word32(data, where + np.uint64(24)) | (_word32(data, where + np.uint64(28)) << high),
        _word32(data, where + np.uint64(32)) | (_word32(data, where + np.uint64(36)) << high),
    )


@kernel(types.boolean(types.int64, types.int64, types.int64, types.int64, types.int64), inline=True, entry=False)
def readable(version: int, l3: int, offset: int, captured: int, size: int) -> bool:
    """Whether a frame's IP header can be read: version 4 or 6, and its fixed part within the frame and the buffer."""
    need = np.int64(20) if version == 4 else np.int64(40)
    return version in (4, 6) and offset >= 0 and captured <= size - offset and l3 + need <= captured


@kernel(_U64(_U64), inline=True, entry=False)
def swap_ports(ends: Any) -> Any:
    """`ends` as seen from the other side: the ports swapped, the VLAN ids kept."""
    low = np.uint64(0xFFFF)
    rest = ends & np.uint64(0xFFFFFFFF00000000)
    return rest | ((ends & low) << np.uint64(16)) | ((ends >> np.uint64(16)) & low)


@kernel(types.uint32(_U64, _U64, _U64, _U64, _U64, _U64, _U64, _U64), inline=True, entry=False)
def flow_hash(k0: Any, k1: Any, s0: Any, s1: Any, d0: Any, d1: Any, ends: Any, kind: Any) -> Any:
    """The hash of a key under (k0, k1), equal for both directions: the lower endpoint is put first."""
    low = np.uint64(0xFFFF)
    source_port = ends & low
    destination_port = (ends >> np.uint64(16)) & low
    swap = s0 > d0 or (s0 == d0 and (s1 > d1 or (s1 == d1 and source_port > destination_port)))
    if swap:
        s0, s1, d0, d1 = d0, d1, s0, s1
        ends = swap_ports(ends)
    return np.uint32(siphash(k0, k1, s0, s1, d0, d1, ends, kind) & np.uint64(0xFFFFFFFF))
