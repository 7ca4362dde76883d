"""Hashes that spread frames over receive queues: a symmetric one, and the Toeplitz hash of receive-side scaling.

Both go by the innermost IP header that the header rows name, read with bounds checks; frames without one hash to 0.
Fragments, the first included, hash by addresses only, so that all fragments of a datagram meet.
"""

from functools import lru_cache
from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from flowshunt.compiled import BYTES, column, kernel, matrix
from flowshunt.flows.key import addresses, flow_hash, has_ports, readable
from flowshunt.packets.batch import FrameBatch
from flowshunt.packets.headers import FRAGMENT, HEADER

SYMMETRIC_RSS_KEY = bytes.fromhex("6d5a") * 20
"""The low-entropy key of Woo and Park ("Scalable TCP session monitoring with symmetric receive-side scaling", 2012):
with a key that repeats every 16 bits, swapping the endpoints does not change the Toeplitz hash."""

_INPUT = 36
"""Bytes of the longest hash input: two IPv6 addresses and two ports."""

_OFFSET = column(np.int64, readonly=True)
_LENGTH = column(np.uint32, readonly=True)
_HEADERS = column(HEADER, readonly=True)
_HASHES = column(np.uint32)


@kernel(types.void(BYTES, _OFFSET, _LENGTH, _HEADERS, _HASHES))
def _symmetric(
    data: NDArray[np.uint8],
    offset: NDArray[np.int64],
    captured: NDArray[np.uint32],
    headers: NDArray[Any],
    hashes: NDArray[np.uint32],
) -> None:
    zero = np.uint64(0)
    for at in range(len(headers)):
        header = headers[at]
        version = np.int64(header.ip_version)
        l3 = np.int64(header.l3)
        hashes[at] = 0
        if not readable(version, l3, offset[at], np.int64(captured[at]), len(data)):
            continue
        s0, s1, d0, d1 = addresses(data, offset[at] + l3, version)
        protocol = np.int64(header.protocol)
        ends = zero
        if has_ports(protocol) and header.l4 != 0 and not header.flags & FRAGMENT:
            ends = np.uint64(header.source_port) | (np.uint64(header.destination_port) << np.uint64(16))
        kind = np.uint64(protocol) | (np.uint64(version) << np.uint64(8))
        hashes[at] = flow_hash(zero, zero, s0, s1, d0, d1, ends, kind)


@kernel(types.void(BYTES, _OFFSET, _LENGTH, _HEADERS, matrix(np.uint32, readonly=True), _HASHES))
def _toeplitz(
    data: NDArray[np.uint8],
    offset: NDArray[np.int64],
    captured: NDArray[np.uint32],
    headers: NDArray[Any],
    table: NDArray[np.uint32],
    hashes: NDArray[np.uint32],
) -> None:
    for at in range(len(headers)):
        header = headers[at]
        version = np.int64(header.ip_version)
        l3 = np.int64(header.l3)
        hashes[at] = 0
        if not readable(version, l3, offset[at], np.int64(captured[at]), len(data)):
            continue
        length = np.uint64(8) if version == 4 else np.uint64(32)
        start = np.uint64(offset[at] + l3 + (12 if version == 4 else 8))
        value = np.uint32(0)
        for byte in range(length):
            value ^= table[byte, data[start + byte]]
        if has_ports(np.int64(header.protocol)) and header.l4 != 0 and not header.flags & FRAGMENT:
            value ^= table[length, header.source_port >> 8] ^ table[length + np.uint64(1), header.source_port & 0xFF]
            length += np.uint64(2)
            value ^= table[length, header.destination_port >> 8]
            value ^= table[length + np.uint64(1), header.destination_port & 0xFF]
        hashes[at] = value


@lru_cache(maxsize=8)
def _toeplitz_table(key: bytes) -> NDArray[np.uint32]:
    """uint32[36, 256]: what each value of each input byte adds (by exclusive or) to the hash."""
    bits = int.from_bytes(key, "big")
    table = np.zeros((_INPUT, 256), np.uint32)
    for place in range(_INPUT * 8):
        window = (bits >> (len(key) * 8 - 32 - place)) & 0xFFFFFFFF
        byte = place // 8
        with_bit = np.arange(256) & (0x80 >> (place % 8)) != 0
        table[byte, with_bit] ^= np.uint32(window)
    table.flags.writeable = False
    return table


def _columns(batch: FrameBatch, headers: NDArray[Any]) -> tuple[NDArray[Any], ...]:
    if headers.dtype != HEADER or headers.shape != (len(batch),):
        raise ValueError(f"{len(batch)} frames need HEADER[{len(batch)}], not {headers.dtype}{list(headers.shape)}")
    return tuple(np.ascontiguousarray(a) for a in (batch.data, batch.offset, batch.captured, headers))


def symmetric_hash(batch: FrameBatch, headers: NDArray[Any]) -> NDArray[np.uint32]:
    """uint32[n]: a hash of the sorted five-tuple, equal for both directions, the same in every run.

    Fragments, and protocols without ports, hash by addresses and protocol. VLAN ids don't count.
    """
    hashes = np.empty(len(batch), np.uint32)
    _symmetric(*_columns(batch, headers), hashes)
    return hashes


def toeplitz_hash(batch: FrameBatch, headers: NDArray[Any], key: bytes) -> NDArray[np.uint32]:
    """uint32[n]: the Toeplitz hash of receive-side scaling under a key of 40 bytes or more.

    The input is source address, destination address and, for unfragmented TCP, UDP and SCTP, source port and destination
    port, in network byte order ("RSS hashing types" and "Verifying the RSS hash calculation" in Microsoft's network
    driver documentation). With SYMMETRIC_RSS_KEY both directions hash alike. Raises ValueError for a shorter key.
    """
    if len(key) < _INPUT + 4:
        raise ValueError(f"a Toeplitz key has {_INPUT + 4} bytes or more, not {len(key)}")
    hashes = np.empty(len(batch), np.uint32)
    _toeplitz(*_columns(batch, headers), _toeplitz_table(key), hashes)
    return hashes
