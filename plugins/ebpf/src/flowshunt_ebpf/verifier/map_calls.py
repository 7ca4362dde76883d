"""Which helper goes with which type of map, as `check_map_func_compatibility` of the kernel's verifier has it."""

from typing import Final

from flowshunt_ebpf.program import MapType as T

_TABLES: Final = frozenset({T.HASH, T.ARRAY, T.PERCPU_HASH, T.PERCPU_ARRAY, T.LRU_HASH, T.LRU_PERCPU_HASH, T.LPM_TRIE})
_OF_MAPS: Final = frozenset({T.ARRAY_OF_MAPS, T.HASH_OF_MAPS})
_TARGETS: Final = frozenset({T.DEVMAP, T.DEVMAP_HASH, T.CPUMAP, T.XSKMAP})
_QUEUES: Final = frozenset({T.QUEUE, T.STACK})
_EVENTS: Final = frozenset({T.PERF_EVENT_ARRAY})
_RING: Final = frozenset({T.RINGBUF})
_CGROUPS: Final = frozenset({T.CGROUP_ARRAY})

EACH_ELEMENT: Final = _TABLES - {T.LPM_TRIE}
"""Map types whose elements bpf_for_each_map_elem calls a function for (those with `map_for_each_callback`)."""

MAPS_OF: Final[dict[str, frozenset[T]]] = {
    "map_lookup_elem": _TABLES | _OF_MAPS | (_TARGETS - {T.CPUMAP}),
    "map_update_elem": _TABLES,
    "map_delete_elem": _TABLES,
    "map_push_elem": _QUEUES | {T.BLOOM_FILTER},
    "map_pop_elem": _QUEUES,
    "map_peek_elem": _QUEUES | {T.BLOOM_FILTER},
    "map_lookup_percpu_elem": frozenset({T.PERCPU_ARRAY, T.PERCPU_HASH, T.LRU_PERCPU_HASH}),
    "for_each_map_elem": EACH_ELEMENT,
    "tail_call": frozenset({T.PROG_ARRAY}),
    "redirect_map": _TARGETS,
    "perf_event_output": _EVENTS,
    "perf_event_read": _EVENTS,
    "perf_event_read_value": _EVENTS,
    "ringbuf_output": _RING,
    "ringbuf_reserve": _RING,
    "ringbuf_query": _RING,
    "skb_under_cgroup": _CGROUPS,
    "current_task_under_cgroup": _CGROUPS,
}
"""Helper to the map types that it may be given."""


def writes_map(helper: str) -> bool:
    """Whether a helper changes its map: the kernel refuses it on a map that is read-only for programs."""
    return helper in ("map_update_elem", "map_delete_elem", "map_push_elem", "map_pop_elem")
