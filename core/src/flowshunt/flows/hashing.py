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
from flowshunt.flows.key import KEY, KEY_NONE, has_ports, ip_header, read_keys
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


@kernel(types.void(BYTES, _OFFSET, _LENGTH, _HEADERS, matrix(np.uint32, readonly=True), _HASHES))
def _toeplitz(
    data: NDArray[np.uint8],
    offset: NDArray[np.int64],
    captured: NDArray[np.uint32],
    headers: NDArray[Any],
    table: NDArray[np.uint32],
    hashes: NDArray[np.uint32],
) -> None:
    size = len(data)
    for at in range(len(headers)):
        header = headers[at]
        hashes[at] = 0
        where = ip_header(size, offset[at], captured[at], header.l3, header.ip_version)
        if where < 0:
            continue
        start = np.uint64(where + 12)
        length = 8
        if header.ip_version == 6:
            start = np.uint64(where + 8)
            length = 32
        value = table[0, data[start]]
        for byte in range(1, length):
            value ^= table[byte, data[start + np.uint64(byte)]]
        if has_ports(header.protocol) and header.l4 != 0 and header.flags & FRAGMENT == 0:
            value ^= table[length, header.source_port >> 8] ^ table[length + 1, header.source_port & 0xFF]
            value ^= table[length + 2, header.destination_port >> 8]
            value ^= table[length + 3, header.destination_port & 0xFF]
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
    keys = np.empty(len(batch), KEY)
    read_keys(*_columns(batch, headers), 0, len(batch), 0, 0, 1, keys)
    return np.where(keys["found"] != KEY_NONE, keys["hash"], 0).astype(np.uint32)


def toeplitz_hash(batch: FrameBatch, headers: NDArray[Any], key: bytes) -> NDArray[np.uint32]:
    """uint32[n]: the Toeplitz hash of receive-side scaling under a key of 40 bytes or more.

    The input is source and destination address and, for unfragmented TCP, UDP and SCTP, source and destination port,
    in network byte order ("RSS hashing types" and "Verifying the RSS hash calculation" in Microsoft's network
    driver documentation). With SYMMETRIC_RSS_KEY both directions hash alike. Raises ValueError for a shorter key.
    """
    if len(key) < _INPUT + 4:
        raise ValueError(f"a Toeplitz key has {_INPUT + 4} bytes or more, not {len(key)}")
    hashes = np.empty(len(batch), np.uint32)
    _toeplitz(*_columns(batch, headers), _toeplitz_table(key), hashes)
    return hashes
