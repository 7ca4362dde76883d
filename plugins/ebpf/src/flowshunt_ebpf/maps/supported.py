"""What is there in user space: map types, and helpers with the kinds of arguments that each takes."""

from enum import IntEnum
from typing import Final

from flowshunt_ebpf.maps import header
from flowshunt_ebpf.program import MapType as T
from flowshunt_ebpf.program.helper_calls import helper_name


class Argument(IntEnum):
    """What a helper takes in one of r1 to r5. The numbers are those of the table that native checks read."""

    ANY = 0  # a number, or nothing
    CONTEXT = 1  # the context pointer
    MAP = 2  # a map
    KEY = 3  # readable memory of the map's key size
    VALUE = 4  # readable memory of the map's value size
    VALUE_OUT = 5  # writable memory of the map's value size
    READ = 6  # readable memory, of the size in the next argument
    READ_OR_NULL = 7  # the same, or 0 where the size is 0
    WRITE = 8  # writable memory, of the size in the next argument
    SIZE = 9  # the size of the argument before
    FUNCTION = 10  # a function of the program
    LOCK = 11  # 4 writable bytes: a spin lock
    LONG_OUT = 12  # 8 writable bytes
    STRING = 13  # readable bytes up to a zero byte
    RECORD = 14  # a reserved record of a ring buffer; the helper itself checks it
    PROGRAMS = 15  # a program array
    RING = 16  # a ring buffer
    EVENTS = 17  # a perf event array
    TARGETS = 18  # a map of redirect targets


_A = Argument
C, M, Z = _A.CONTEXT, _A.MAP, _A.SIZE

HELPER_KINDS: Final[dict[int, tuple[Argument, ...]]] = {
    1: (M, _A.KEY),  # map_lookup_elem
    2: (M, _A.KEY, _A.VALUE, _A.ANY),  # map_update_elem
    3: (M, _A.KEY),  # map_delete_elem
    5: (),  # ktime_get_ns
    6: (_A.READ, Z, _A.ANY, _A.ANY, _A.ANY),  # trace_printk
    7: (),  # get_prandom_u32
    8: (),  # get_smp_processor_id
    9: (C, _A.ANY, _A.READ, Z, _A.ANY),  # skb_store_bytes
    10: (C, _A.ANY, _A.ANY, _A.ANY, _A.ANY),  # l3_csum_replace
    11: (C, _A.ANY, _A.ANY, _A.ANY, _A.ANY),  # l4_csum_replace
    12: (C, _A.PROGRAMS, _A.ANY),  # tail_call
    23: (_A.ANY, _A.ANY),  # redirect
    25: (C, _A.EVENTS, _A.ANY, _A.READ_OR_NULL, Z),  # perf_event_output
    26: (C, _A.ANY, _A.WRITE, Z),  # skb_load_bytes
    28: (_A.READ_OR_NULL, Z, _A.READ_OR_NULL, Z, _A.ANY),  # csum_diff
    34: (C,),  # get_hash_recalc
    38: (C, _A.ANY, _A.ANY),  # skb_change_tail
    39: (C, _A.ANY),  # skb_pull_data
    40: (C, _A.ANY),  # csum_update
    41: (C,),  # set_hash_invalid
    42: (),  # get_numa_node_id
    43: (C, _A.ANY, _A.ANY),  # skb_change_head
    44: (C, _A.ANY),  # xdp_adjust_head
    51: (_A.TARGETS, _A.ANY, _A.ANY),  # redirect_map
    54: (C, _A.ANY),  # xdp_adjust_meta
    65: (C, _A.ANY),  # xdp_adjust_tail
    68: (C, _A.ANY, _A.WRITE, Z, _A.ANY),  # skb_load_bytes_relative
    87: (M, _A.VALUE, _A.ANY),  # map_push_elem
    88: (M, _A.VALUE_OUT),  # map_pop_elem
    89: (M, _A.VALUE_OUT),  # map_peek_elem
    93: (_A.LOCK,),  # spin_lock
    94: (_A.LOCK,),  # spin_unlock
    105: (_A.READ, Z, _A.ANY, _A.LONG_OUT),  # strtol
    106: (_A.READ, Z, _A.ANY, _A.LONG_OUT),  # strtoul
    118: (),  # jiffies64
    125: (),  # ktime_get_boot_ns
    130: (_A.RING, _A.READ_OR_NULL, Z, _A.ANY),  # ringbuf_output
    131: (_A.RING, _A.ANY, _A.ANY),  # ringbuf_reserve
    132: (_A.RECORD, _A.ANY),  # ringbuf_submit
    133: (_A.RECORD, _A.ANY),  # ringbuf_discard
    134: (_A.RING, _A.ANY),  # ringbuf_query
    160: (),  # ktime_get_coarse_ns
    181: (_A.ANY, _A.FUNCTION, _A.ANY, _A.ANY),  # loop
    182: (_A.READ, Z, _A.STRING),  # strncmp
    188: (C,),  # xdp_get_buff_len
    189: (C, _A.ANY, _A.WRITE, Z),  # xdp_load_bytes
    190: (C, _A.ANY, _A.READ, Z),  # xdp_store_bytes
    195: (M, _A.KEY, _A.ANY),  # map_lookup_percpu_elem
    208: (),  # ktime_get_tai_ns
}
"""Helper number to the kinds of its arguments. A helper that is not here is refused when a program is made ready."""

MAP_OPERATIONS: Final = {
    1: header.LOOKUP,
    2: header.UPDATE,
    3: header.DELETE,
    87: header.PUSH,
    88: header.POP,
    89: header.PEEK,
    195: header.LOOKUP_CPU,
}
"""Helpers that each map type carries out in its own way: number to the operation's place in the map's header."""

INLINE_ARRAYS: Final = frozenset({T.ARRAY, T.PERCPU_ARRAY})
"""Map types whose lookup the JITs carry out in place, as the kernel does."""

TARGET_MAPS: Final = frozenset({T.DEVMAP, T.DEVMAP_HASH, T.CPUMAP, T.XSKMAP})

MAP_TYPES: Final = frozenset(
    {
        T.HASH, T.ARRAY, T.PROG_ARRAY, T.PERF_EVENT_ARRAY, T.PERCPU_HASH, T.PERCPU_ARRAY, T.LRU_HASH,
        T.LRU_PERCPU_HASH, T.LPM_TRIE, T.ARRAY_OF_MAPS, T.HASH_OF_MAPS, T.QUEUE, T.STACK, T.RINGBUF, T.BLOOM_FILTER,
    }
) | TARGET_MAPS  # fmt: skip


def supported_names() -> str:
    """The helpers' names, for messages."""
    return ", ".join(str(helper_name(number)).removeprefix("bpf_") for number in HELPER_KINDS)
