"""The native code of each map type's operations, compiled when a map first needs it, and Python's way to call it."""

import ctypes
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from numba import types

from flowshunt.compiled import c_function
from flowshunt_ebpf.maps import native_array, native_hash, native_trie
from flowshunt_ebpf.maps.map import Map
from flowshunt_ebpf.program import MapType as T

SIGNATURE: Final = types.int64(*[types.int64] * 6)
"""Of helpers and operations: five arguments and the address of the machine's state block (0: called from Python)."""

_CALL: Final = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_uint64] * 6)

Function = Callable[..., Any]
_a, _h, _t = native_array, native_hash, native_trie
_NO: Final[Function] = _a.unsupported
_NONE: Final[Function] = _a.nothing

# lookup, update, delete, push, pop, peek, lookup for a CPU
_TABLE: Final[dict[int, tuple[Function, ...]]] = {
    T.ARRAY: (_a.lookup, _a.update, _a.refuse, _NO, _NO, _NO, _NONE),
    T.PERCPU_ARRAY: (_a.lookup_own, _a.update, _a.refuse, _NO, _NO, _NO, _a.lookup_cpu),
    T.ARRAY_OF_MAPS: (_a.lookup_map, _a.refuse, _a.refuse, _NO, _NO, _NO, _NONE),
    T.DEVMAP: (_a.lookup, _a.refuse, _a.refuse, _NO, _NO, _NO, _NONE),
    T.CPUMAP: (_a.lookup, _a.refuse, _a.refuse, _NO, _NO, _NO, _NONE),
    T.XSKMAP: (_a.lookup, _a.refuse, _a.refuse, _NO, _NO, _NO, _NONE),
    T.HASH: (_h.lookup, _h.update, _h.delete, _NO, _NO, _NO, _NONE),
    T.PERCPU_HASH: (_h.lookup, _h.update, _h.delete, _NO, _NO, _NO, _h.lookup_cpu),
    T.LRU_HASH: (_h.lookup_lru, _h.update_lru, _h.delete, _NO, _NO, _NO, _NONE),
    T.LRU_PERCPU_HASH: (_h.lookup_lru, _h.update_lru, _h.delete, _NO, _NO, _NO, _h.lookup_cpu),
    T.HASH_OF_MAPS: (_h.lookup_map, _h.update, _h.delete, _NO, _NO, _NO, _NONE),
    T.DEVMAP_HASH: (_h.lookup, _h.update, _h.delete, _NO, _NO, _NO, _NONE),
    T.LPM_TRIE: (_t.lookup, _t.update, _t.delete, _NO, _NO, _NO, _NONE),
    T.QUEUE: (_NONE, _a.refuse, _a.refuse, _a.push, _a.pop_oldest, _a.peek_oldest, _NONE),
    T.STACK: (_NONE, _a.refuse, _a.refuse, _a.push, _a.pop_newest, _a.peek_newest, _NONE),
    T.BLOOM_FILTER: (_NONE, _a.refuse, _a.refuse, _a.bloom_push, _NO, _a.bloom_peek, _NONE),
}
_OTHERS: Final = (_NONE, _NO, _NO, _NO, _NO, _NO, _NONE)


@lru_cache(maxsize=256)
def compiled(function: Function) -> Any:
    """A function as a C function."""
    return c_function(SIGNATURE, function)


@lru_cache(maxsize=256)
def _callable(address: int) -> Callable[..., int]:
    return _CALL(address)


def operation_address(m: Map, number: int) -> int:
    """The address of one of a map's operations, by its place in `maps.header`."""
    return int(compiled(_TABLE.get(m.definition.type, _OTHERS)[number]).address)


def call(m: Map, operation: int, first: Any, second: bytes | None, flags: int, *, direct: bool = False) -> int:
    """Call an operation from Python. `direct`: its arguments are (value, flags), else (key, value, flags)."""
    at = _buffer(first)
    if direct:
        return _callable(m.operation(operation))(m.address, at[0], flags, 0, 0, 0)
    value = _buffer(second)
    return _callable(m.operation(operation))(m.address, at[0], value[0], flags, 0, 0)


def _buffer(data: Any) -> tuple[int, Any]:
    if data is None:
        return 0, None
    room = data if isinstance(data, ctypes.Array) else (ctypes.c_char * max(8, len(data)))(*[])
    if isinstance(data, bytes):
        ctypes.memmove(room, data, len(data))
    return ctypes.addressof(room), room


def collect(m: Map, out: int, room: int) -> int:
    """Write the addresses of a hash table's nodes to memory; gives how many."""
    return _callable(compiled(_h.collect).address)(m.address, out, room, 0, 0, 0)


def update_many(m: Any, keys: int, values: int, rows: int) -> int:
    """Update a hash table from dense keys and values in memory; gives how many rows went in."""
    return _callable(compiled(_h.update_many).address)(m.address, keys, values, rows, int(m.lru), 0)
