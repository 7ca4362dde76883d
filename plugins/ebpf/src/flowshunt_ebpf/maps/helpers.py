"""Helpers by number: the address of each one's native code, compiled when a program first needs it."""

import ctypes
from functools import lru_cache
from typing import Final

from flowshunt_ebpf.maps import native_check, native_general, native_packet, native_ring
from flowshunt_ebpf.maps.operations import Function, compiled
from flowshunt_ebpf.maps.supported import HELPER_KINDS

_g, _p, _r = native_general, native_packet, native_ring

_FUNCTIONS: Final[dict[int, Function]] = {
    5: _g.ktime_get_ns,
    6: _r.trace_printk,
    7: _g.get_prandom_u32,
    8: _g.get_smp_processor_id,
    9: _p.skb_store_bytes,
    10: _p.l3_csum_replace,
    11: _p.l4_csum_replace,
    23: _g.redirect,
    25: _g.perf_event_output,
    26: _p.skb_load_bytes,
    28: _p.csum_diff,
    34: _p.get_hash_recalc,
    38: _p.skb_change_tail,
    39: _p.skb_pull_data,
    40: _p.csum_update,
    41: _p.set_hash_invalid,
    42: _g.zero,
    43: _p.skb_change_head,
    44: _p.xdp_adjust_head,
    51: _g.redirect_map,
    54: _p.xdp_adjust_meta,
    65: _p.xdp_adjust_tail,
    68: _p.skb_load_bytes_relative,
    93: _g.spin_lock,
    94: _g.spin_unlock,
    105: _g.strtol,
    106: _g.strtoul,
    118: _g.jiffies64,
    125: _g.ktime_get_boot_ns,
    130: _r.ringbuf_output,
    131: _r.ringbuf_reserve,
    132: _r.ringbuf_submit,
    133: _r.ringbuf_discard,
    134: _r.ringbuf_query,
    160: _g.ktime_get_coarse_ns,
    182: _g.strncmp,
    188: _p.xdp_get_buff_len,
    189: _p.xdp_load_bytes,
    190: _p.xdp_store_bytes,
    208: _g.ktime_get_tai_ns,
}


def helper_address(number: int) -> int:
    """The address of a helper's native code."""
    return int(compiled(_FUNCTIONS[number]).address)


def check_address() -> int:
    """The address of the native code that checks a helper's arguments."""
    return int(compiled(native_check.check_arguments).address)


@lru_cache(maxsize=1)
def _table() -> "ctypes.Array[ctypes.c_uint8]":
    table = (ctypes.c_uint8 * (8 * (max(HELPER_KINDS) + 1)))()
    for number, kinds in HELPER_KINDS.items():
        for at, kind in enumerate(kinds):
            table[8 * number + at] = kind
    return table


def prototypes_address() -> int:
    """The address of the table of argument kinds, eight bytes a helper."""
    return ctypes.addressof(_table())
