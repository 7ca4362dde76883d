"""Helpers by number: the address of each one's native code, compiled when a program first needs it."""

import ctypes
from functools import lru_cache
from typing import Final

from flowshunt_ebpf.maps import native_code
from flowshunt_ebpf.maps.supported import HELPER_KINDS

_G, _P, _R = "native_general", "native_packet", "native_ring"

_FUNCTIONS: Final[dict[int, str]] = {
    5: f"{_G}:ktime_get_ns",
    6: f"{_R}:trace_printk",
    7: f"{_G}:get_prandom_u32",
    8: f"{_G}:get_smp_processor_id",
    9: f"{_P}:skb_store_bytes",
    10: f"{_P}:l3_csum_replace",
    11: f"{_P}:l4_csum_replace",
    23: f"{_G}:redirect",
    25: f"{_G}:perf_event_output",
    26: f"{_P}:skb_load_bytes",
    28: f"{_P}:csum_diff",
    34: f"{_P}:get_hash_recalc",
    38: f"{_P}:skb_change_tail",
    39: f"{_P}:skb_pull_data",
    40: f"{_P}:csum_update",
    41: f"{_P}:set_hash_invalid",
    42: f"{_G}:zero",
    43: f"{_P}:skb_change_head",
    44: f"{_P}:xdp_adjust_head",
    51: f"{_G}:redirect_map",
    54: f"{_P}:xdp_adjust_meta",
    65: f"{_P}:xdp_adjust_tail",
    68: f"{_P}:skb_load_bytes_relative",
    93: f"{_G}:spin_lock",
    94: f"{_G}:spin_unlock",
    105: f"{_G}:strtol",
    106: f"{_G}:strtoul",
    118: f"{_G}:jiffies64",
    125: f"{_G}:ktime_get_boot_ns",
    130: f"{_R}:ringbuf_output",
    131: f"{_R}:ringbuf_reserve",
    132: f"{_R}:ringbuf_submit",
    133: f"{_R}:ringbuf_discard",
    134: f"{_R}:ringbuf_query",
    160: f"{_G}:ktime_get_coarse_ns",
    182: f"{_G}:strncmp",
    188: f"{_P}:xdp_get_buff_len",
    189: f"{_P}:xdp_load_bytes",
    190: f"{_P}:xdp_store_bytes",
    208: f"{_G}:ktime_get_tai_ns",
}


CHECK: Final = "native_check:check_arguments"
"""The native code that checks a helper's arguments."""


def helper_name(number: int) -> str | None:
    """The native code of a helper; None where the code generators carry it out themselves."""
    return _FUNCTIONS.get(number)


def helper_address(number: int) -> int:
    """The address of a helper's native code."""
    return native_code.address(_FUNCTIONS[number])


def check_address() -> int:
    """The address of the native code that checks a helper's arguments."""
    return native_code.address(CHECK)


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
