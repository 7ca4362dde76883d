"""SipHash-1-3 of flow keys: a keyed hash, so that nobody who doesn't know a table's key can make flows collide in it.

The function is Aumasson and Bernstein's ("SipHash: a fast short-input PRF", 2012) with one round a word and three at
the end, as hash tables of Rust and Python use it. Words are 64 bits, little-endian.
"""

from typing import Any

import numpy as np
from numba import types

from flowshunt.compiled import kernel

_U64 = types.uint64
_MASK = (1 << 64) - 1

_INIT_0 = np.uint64(0x736F6D6570736575)
_INIT_1 = np.uint64(0x646F72616E646F6D)
_INIT_2 = np.uint64(0x6C7967656E657261)
_INIT_3 = np.uint64(0x7465646279746573)
_FINAL = np.uint64(0xFF)
_PORT = np.uint64(0xFFFF)
_LOWER = np.uint64(0xFFFFFFFF)
_4 = np.uint64(4)
_8 = np.uint64(8)
_13 = np.uint64(13)
_16 = np.uint64(16)
_17 = np.uint64(17)
_21 = np.uint64(21)
_32 = np.uint64(32)
_43 = np.uint64(43)
_47 = np.uint64(47)
_48 = np.uint64(48)
_51 = np.uint64(51)


@kernel(types.UniTuple(_U64, 4)(_U64, _U64, _U64, _U64), inline=True, entry=False)
def _round(v0: Any, v1: Any, v2: Any, v3: Any) -> tuple[Any, Any, Any, Any]:
    v0 += v1
    v1 = ((v1 << _13) | (v1 >> _51)) ^ v0
    v0 = (v0 << _32) | (v0 >> _32)
    v2 += v3
    v3 = ((v3 << _16) | (v3 >> _48)) ^ v2
    v0 += v3
    v3 = ((v3 << _21) | (v3 >> _43)) ^ v0
    v2 += v1
    v1 = ((v1 << _17) | (v1 >> _47)) ^ v2
    v2 = (v2 << _32) | (v2 >> _32)
    return v0, v1, v2, v3


@kernel(_U64(_U64, _U64, _U64, _U64, _U64, _U64, _U64, _U64), entry=False)
def flow_hash(k0: Any, k1: Any, s0: Any, s1: Any, d0: Any, d1: Any, ends: Any, kind: Any) -> Any:
    """A 32-bit hash of a key under (k0, k1), equal for both directions: the lower endpoint is put first.

    The parts of a key are those of `flowshunt.flows.key`. The words hashed are the two addresses (of IPv4 one word for
    both), `ends` and, where SipHash has the length, `kind`, whose IP version tells the two forms apart.
    """
    ports = ends & _LOWER
    swapped = (ports >> _16) | ((ports << _16) & _LOWER)
    if s0 > d0 or (s0 == d0 and (s1 > d1 or (s1 == d1 and (ports & _PORT) > (ports >> _16)))):
        s0, s1, d0, d1 = d0, d1, s0, s1
        ends ^= ports ^ swapped
    v0 = k0 ^ _INIT_0
    v1 = k1 ^ _INIT_1
    v2 = k0 ^ _INIT_2
    v3 = k1 ^ _INIT_3
    word = s0 | (d0 << _32)
    if kind >> _8 != _4:
        v0, v1, v2, v3 = _round(v0, v1, v2, v3 ^ s0)
        v0, v1, v2, v3 = _round(v0 ^ s0, v1, v2, v3 ^ s1)
        v0, v1, v2, v3 = _round(v0 ^ s1, v1, v2, v3 ^ d0)
        v0 ^= d0
        word = d1
    v0, v1, v2, v3 = _round(v0, v1, v2, v3 ^ word)
    v0, v1, v2, v3 = _round(v0 ^ word, v1, v2, v3 ^ ends)
    v0, v1, v2, v3 = _round(v0 ^ ends, v1, v2, v3 ^ kind)
    v0, v1, v2, v3 = _round(v0 ^ kind, v1, v2 ^ _FINAL, v3)
    v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    return (v0 ^ v1 ^ v2 ^ v3) & _LOWER


def hash_key(seed: int) -> tuple[int, int]:
    """The 128-bit key (two words) of a table's seed: two steps of SplitMix64 from it."""
    words = []
    state = seed & _MASK
    for _ in range(2):
        state = (state + 0x9E3779B97F4A7C15) & _MASK
        word = state
        word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & _MASK
        words.append(word ^ (word >> 31))
    return words[0], words[1]
