"""The native code of each map type's operations, compiled when a map first needs it, and Python's way to call it."""

import ctypes
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from flowshunt_ebpf.maps import native_code
from flowshunt_ebpf.maps.map import Map
from flowshunt_ebpf.program import MapType as T

_CALL: Final = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_uint64] * 6)

_A, _H, _T = "native_array", "native_hash", "native_trie"
_NO: Final = f"{_A}:unsupported"
_NONE: Final = f"{_A}:nothing"

# lookup, update, delete, push, pop, peek, lookup for a CPU
_TABLE: Final[dict[int, tuple[str, ...]]] = {
    T.ARRAY: (f"{_A}:lookup", f"{_A}:update", f"{_A}:refuse", _NO, _NO, _NO, _NONE),
    T.PERCPU_ARRAY: (f"{_A}:lookup_own", f"{_A}:update", f"{_A}:refuse", _NO, _NO, _NO, f"{_A}:lookup_cpu"),
    T.ARRAY_OF_MAPS: (f"{_A}:lookup_map", f"{_A}:refuse", f"{_A}:refuse", _NO, _NO, _NO, _NONE),
    T.DEVMAP: (f"{_A}:lookup", f"{_A}:refuse", f"{_A}:refuse", _NO, _NO, _NO, _NONE),
    T.CPUMAP: (f"{_A}:lookup", f"{_A}:refuse", f"{_A}:refuse", _NO, _NO, _NO, _NONE),
    T.XSKMAP: (f"{_A}:lookup", f"{_A}:refuse", f"{_A}:refuse", _NO, _NO, _NO, _NONE),
    T.HASH: (f"{_H}:lookup", f"{_H}:update", f"{_H}:delete", _NO, _NO, _NO, _NONE),
    T.PERCPU_HASH: (f"{_H}:lookup", f"{_H}:update", f"{_H}:delete", _NO, _NO, _NO, f"{_H}:lookup_cpu"),
    T.LRU_HASH: (f"{_H}:lookup_lru", f"{_H}:update_lru", f"{_H}:delete", _NO, _NO, _NO, _NONE),
    T.LRU_PERCPU_HASH: (f"{_H}:lookup_lru", f"{_H}:update_lru", f"{_H}:delete", _NO, _NO, _NO, f"{_H}:lookup_cpu"),
    T.HASH_OF_MAPS: (f"{_H}:lookup_map", f"{_H}:update", f"{_H}:delete", _NO, _NO, _NO, _NONE),
    T.DEVMAP_HASH: (f"{_H}:lookup", f"{_H}:update", f"{_H}:delete", _NO, _NO, _NO, _NONE),
    T.LPM_TRIE: (f"{_T}:lookup", f"{_T}:update", f"{_T}:delete", _NO, _NO, _NO, _NONE),
    T.QUEUE: (_NONE, f"{_A}:refuse", f"{_A}:refuse", f"{_A}:push", f"{_A}:pop_oldest", f"{_A}:peek_oldest", _NONE),
    T.STACK: (_NONE, f"{_A}:refuse", f"{_A}:refuse", f"{_A}:push", f"{_A}:pop_newest", f"{_A}:peek_newest", _NONE),
    T.BLOOM_FILTER: (_NONE, f"{_A}:refuse", f"{_A}:refuse", f"{_A}:bloom_push", _NO, f"{_A}:bloom_peek", _NONE),
}
_OTHERS: Final = (_NONE, _NO, _NO, _NO, _NO, _NO, _NONE)
_COLLECT: Final = f"{_H}:collect"
_UPDATE_MANY: Final = f"{_H}:update_many"

EVERY: Final = frozenset({name for names in _TABLE.values() for name in names} | {_COLLECT, _UPDATE_MANY})
"""The names of all operations."""


@lru_cache(maxsize=256)
def _callable(address: int) -> Callable[..., int]:
    return _CALL(address)


def operation_name(m: Map, number: int) -> str:
    """The native code of one of a map's operations, by its place in `maps.header`."""
    return _TABLE.get(m.definition.type, _OTHERS)[number]


def operation_address(m: Map, number: int) -> int:
    """The address of the native code of one of a map's operations."""
    return native_code.address(operation_name(m, number))


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
    return _callable(native_code.address(_COLLECT))(m.address, out, room, 0, 0, 0)


def update_many(m: Any, keys: int, values: int, rows: int) -> int:
    """Update a hash table from dense keys and values in memory; gives how many rows went in."""
    return _callable(native_code.address(_UPDATE_MANY))(m.address, keys, values, rows, int(m.lru), 0)
