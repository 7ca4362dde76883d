"""Flow keys in compiled code: a frame's endpoints, and a hash of them that is the same for both directions.

A key is the two endpoints (address, port), the outer and inner VLAN id, the protocol and the IP version. Addresses are
16 bytes as two little-endian words (IPv4: the low half of the first word); "ends" is one word: source port, destination
port, outer and inner VLAN id, 16 bits each from the lowest; "kind" is protocol | IP version << 8.
"""

from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from flowshunt.compiled import BYTES, column, kernel
from flowshunt.flows.siphash import flow_hash
from flowshunt.packets.headers import FRAGMENT, HEADER

_U64 = types.uint64
_I64 = types.int64

KEY = np.dtype(
    [
        ("source_0", "<u8"),
        ("source_1", "<u8"),
        ("destination_0", "<u8"),
        ("destination_1", "<u8"),
        ("ends", "<u8"),
        ("kind", "<u8"),
        ("hash", "<u8"),  # 32 bits
        ("found", "<i8"),  # KEY_NONE, KEY_WHOLE or KEY_FRAGMENT
    ]
)
"""The key of one frame, source and destination as in the frame."""

KEYS = column(KEY)

KEY_NONE = 0
"""`KEY.found`: the frame has no IP header that can be read."""
KEY_WHOLE = 1
"""`KEY.found`: the key is complete."""
KEY_FRAGMENT = 2
"""`KEY.found`: a fragment of a protocol with ports, which its datagram decides."""

TCP = 6
UDP = 17
SCTP = 132

_PORT = np.uint64(0xFFFF)
_UPPER = np.uint64(0xFFFFFFFF00000000)
_0 = np.uint64(0)
_1 = np.uint64(1)
_2 = np.uint64(2)
_3 = np.uint64(3)
_4 = np.uint64(4)
_8 = np.uint64(8)
_16 = np.uint64(16)
_24 = np.uint64(24)
_32 = np.uint64(32)
_48 = np.uint64(48)


@kernel(_U64(BYTES, _U64), inline=True, entry=False)
def _word(data: NDArray[np.uint8], at: Any) -> Any:
    low = data[at] | (data[at + _1] << _8) | (data[at + _2] << _16)
    return low | (data[at + _3] << _24)


@kernel(types.UniTuple(_U64, 4)(BYTES, _U64, _I64), inline=True, entry=False)
def addresses(data: NDArray[np.uint8], at: Any, version: int) -> tuple[Any, Any, Any, Any]:
    """Source and destination address of the IP header at `at`, two words each.

    The caller has checked that the header's 20 (IPv4) or 40 (IPv6) bytes are there.
    """
    at += _8
    if version == 4:
        return _word(data, at + _4), _0, _word(data, at + _8), _0
    source_0 = _word(data, at) | (_word(data, at + _4) << _32)
    at += _8
    source_1 = _word(data, at) | (_word(data, at + _4) << _32)
    at += _8
    destination_0 = _word(data, at) | (_word(data, at + _4) << _32)
    at += _8
    return source_0, source_1, destination_0, _word(data, at) | (_word(data, at + _4) << _32)


@kernel(_I64(_I64, _I64, _I64, _I64, _I64), inline=True, entry=False)
def ip_header(size: int, frame: int, captured: int, l3: int, version: int) -> int:
    """Where a frame's IP header lies in a buffer of `size` bytes; -1 where its fixed part can't be read.

    It can where the version is 4 or 6 and the header lies within the frame and the frame within the buffer.
    """
    need = 20
    if version == 6:
        need = 40
    elif version != 4:
        return -1
    if frame < 0 or captured > size - frame or l3 + need > captured:
        return -1
    return frame + l3


@kernel(types.boolean(_I64), inline=True, entry=False)
def has_ports(protocol: int) -> bool:
    """Whether a protocol has ports that tell its flows apart: TCP, UDP, SCTP."""
    return protocol == TCP or protocol == UDP or protocol == SCTP  # noqa: PLR1714


@kernel(_U64(_U64), inline=True, entry=False)
def swap_ports(ends: Any) -> Any:
    """`ends` as seen from the other side: the ports swapped, the VLAN ids kept."""
    return (ends & _UPPER) | ((ends & _PORT) << _16) | ((ends >> _16) & _PORT)


@kernel(
    types.void(
        BYTES,
        column(np.int64, readonly=True),
        column(np.uint32, readonly=True),
        column(HEADER, readonly=True),
        _I64,
        _I64,
        _U64,
        _U64,
        _I64,
        KEYS,
    )
)
def read_keys(
    data: NDArray[np.uint8],
    offset: NDArray[np.int64],
    captured: NDArray[np.uint32],
    headers: NDArray[Any],
    start: int,
    stop: int,
    k0: Any,
    k1: Any,
    spread: int,
    keys: NDArray[Any],
) -> None:
    """Read the keys of the frames in [start, stop) into the first rows of `keys`.

    Where `spread` is not 0, they are for spreading frames over queues: without VLAN ids, fragments without ports.
    """
    size = len(data)
    for at in range(start, stop):
        key = keys[at - start]
        key.found = KEY_NONE
        header = headers[at]
        where = ip_header(size, offset[at], captured[at], header.l3, header.ip_version)
        if where < 0:
            continue
        s0, s1, d0, d1 = addresses(data, where, header.ip_version)
        ends = _0
        if spread == 0:
            ends = (header.vlan << _32) | (header.inner_vlan << _48)
        key.found = KEY_WHOLE
        if has_ports(header.protocol):
            if header.flags & FRAGMENT:
                key.found = KEY_FRAGMENT
            if header.l4 != 0 and (spread == 0 or key.found == KEY_WHOLE):
                ends |= header.source_port | (header.destination_port << _16)
        kind = header.protocol | (header.ip_version << _8)
        key.source_0 = s0
        key.source_1 = s1
        key.destination_0 = d0
        key.destination_1 = d1
        key.ends = ends
        key.kind = kind
        key.hash = flow_hash(k0, k1, s0, s1, d0, d1, ends, kind)
