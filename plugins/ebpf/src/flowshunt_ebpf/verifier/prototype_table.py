"""The rows of the table of helpers: name, arguments, program types, result, and what else is to be known.

Sources: see `prototypes`. A row's order of columns is that of reading it: what goes in, who may call, what comes out.
"""

from typing import Any, Final

from flowshunt_ebpf.program import ProgramType
from flowshunt_ebpf.verifier.map_calls import EACH_ELEMENT
from flowshunt_ebpf.verifier.prototype import Arg, Callback, CallbackArg, Returns

_P = ProgramType
X, T, S, C, M = (
    frozenset({_P.XDP}),
    frozenset({_P.SCHED_CLS, _P.SCHED_ACT}),
    frozenset({_P.SOCKET_FILTER}),
    frozenset({_P.CGROUP_SKB}),
    frozenset({_P.UNSPEC}),
)
ALL: Final = X | T | S | C | M
"""Every type that has a context here, bare memory included."""
NETWORK: Final = X | T | S | C
"""The kernel's types."""

_A = Arg
ANY, CTX, MAP, KEY, VALUE, MEM, SIZE = (
    _A.ANYTHING,
    _A.CONTEXT,
    _A.CONST_MAP,
    _A.MAP_KEY,
    _A.MAP_VALUE,
    _A.MEM,
    _A.CONST_SIZE,
)
NULL_MEM, OUT, SIZE0 = _A.MEM_OR_NULL, _A.UNINIT_MEM, _A.CONST_SIZE_OR_ZERO
INT, VOID = Returns.INTEGER, Returns.VOID

_CHANGES: Final[dict[str, Any]] = {"changes_packet": True}
_PACKET: Final[dict[str, Any]] = {"packet_access": True}
_GPL: Final[dict[str, Any]] = {"gpl_only": True}
_PACKET_GPL: Final[dict[str, Any]] = {"packet_access": True, "gpl_only": True}
_NONE: Final[dict[str, Any]] = {}

Row = tuple[str, tuple[Arg, ...], frozenset[ProgramType], Returns, dict[str, Any]]

ROWS: Final[tuple[Row, ...]] = (
    # Maps
    ("map_lookup_elem", (MAP, KEY), ALL, Returns.MAP_VALUE_OR_NULL, _PACKET),
    ("map_update_elem", (MAP, KEY, VALUE, ANY), ALL, INT, _PACKET),
    ("map_delete_elem", (MAP, KEY), ALL, INT, _PACKET),
    ("map_push_elem", (MAP, VALUE, ANY), ALL, INT, _PACKET),
    ("map_pop_elem", (MAP, _A.UNINIT_MAP_VALUE), ALL, INT, _NONE),
    ("map_peek_elem", (MAP, _A.UNINIT_MAP_VALUE), ALL, INT, _NONE),
    ("map_lookup_percpu_elem", (MAP, KEY, ANY), ALL, Returns.MAP_VALUE_OR_NULL, _PACKET),
    (
        "for_each_map_elem", (MAP, _A.FUNC, _A.STACK_OR_NULL, ANY), ALL, INT,
        {
            "callback": Callback(
                (CallbackArg.MAP, CallbackArg.KEY, CallbackArg.VALUE, CallbackArg.CONTEXT), maps=EACH_ELEMENT
            )
        },
    ),
    ("spin_lock", (_A.SPIN_LOCK,), ALL, VOID, _NONE),
    ("spin_unlock", (_A.SPIN_LOCK,), ALL, VOID, _NONE),
    # Ring buffers and events
    ("ringbuf_output", (MAP, MEM, SIZE0, ANY), ALL, INT, _NONE),
    ("ringbuf_reserve", (MAP, _A.CONST_ALLOC_SIZE_OR_ZERO, ANY), ALL, Returns.RECORD_OR_NULL, {"acquires": True}),
    ("ringbuf_submit", (_A.RECORD, ANY), ALL, VOID, {"releases": 0}),
    ("ringbuf_discard", (_A.RECORD, ANY), ALL, VOID, {"releases": 0}),
    ("ringbuf_query", (MAP, ANY), ALL, INT, _NONE),
    ("perf_event_output", (CTX, MAP, ANY, MEM, SIZE0), ALL, INT, _GPL),
    ("perf_event_read", (MAP, ANY), NETWORK, INT, _GPL),
    ("perf_event_read_value", (MAP, ANY, OUT, SIZE), NETWORK, INT, _GPL),
    # Flow of control
    ("tail_call", (CTX, MAP, ANY), ALL, VOID, _NONE),
    (
        "loop", (ANY, _A.FUNC, _A.STACK_OR_NULL, ANY), ALL, INT,
        {"callback": Callback((CallbackArg.INDEX, CallbackArg.CONTEXT))},
    ),
    # Time, place, chance
    ("ktime_get_ns", (), ALL, INT, _NONE),
    ("ktime_get_boot_ns", (), ALL, INT, _NONE),
    ("ktime_get_coarse_ns", (), ALL, INT, _NONE),
    ("ktime_get_tai_ns", (), ALL, INT, _NONE),
    ("jiffies64", (), ALL, INT, _NONE),
    ("get_prandom_u32", (), ALL, INT, _NONE),
    ("get_smp_processor_id", (), ALL, Returns.PROCESSOR, _NONE),
    ("get_numa_node_id", (), ALL, INT, _NONE),
    # Text and memory
    ("trace_printk", (MEM, SIZE), ALL, INT, _GPL),
    ("trace_vprintk", (MEM, SIZE, NULL_MEM, SIZE0), NETWORK, INT, _GPL),
    ("strtol", (MEM, SIZE, ANY, _A.FIXED_UNINIT_MEM), ALL, INT, {"sizes": (0, 0, 0, 8, 0)}),
    ("strtoul", (MEM, SIZE, ANY, _A.FIXED_UNINIT_MEM), ALL, INT, {"sizes": (0, 0, 0, 8, 0)}),
    ("strncmp", (MEM, SIZE, _A.CONST_STR), ALL, INT, _NONE),
    ("csum_diff", (NULL_MEM, SIZE0, NULL_MEM, SIZE0, ANY), X | T | M, INT, _PACKET),
    ("probe_read_user", (OUT, SIZE0, ANY), NETWORK, INT, _GPL),
    ("probe_read_kernel", (OUT, SIZE0, ANY), NETWORK, INT, _GPL),
    ("probe_read_user_str", (OUT, SIZE0, ANY), NETWORK, Returns.LENGTH, _GPL),
    ("probe_read_kernel_str", (OUT, SIZE0, ANY), NETWORK, Returns.LENGTH, _GPL),
    # Tasks and cgroups
    ("get_current_pid_tgid", (), NETWORK, INT, _NONE),
    ("get_current_uid_gid", (), NETWORK, INT, _NONE),
    ("get_current_comm", (OUT, SIZE), NETWORK, INT, _NONE),
    ("get_branch_snapshot", (OUT, SIZE0, ANY), NETWORK, INT, _GPL),
    ("get_current_task", (), NETWORK, INT, _GPL),
    ("get_ns_current_pid_tgid", (ANY, ANY, OUT, SIZE), NETWORK, INT, _NONE),
    ("send_signal", (ANY,), NETWORK, INT, _NONE),
    ("send_signal_thread", (ANY,), NETWORK, INT, _NONE),
    ("current_task_under_cgroup", (MAP, ANY), NETWORK, INT, _NONE),
    ("get_current_cgroup_id", (), NETWORK, INT, _NONE),
    ("get_current_ancestor_cgroup_id", (ANY,), NETWORK, INT, _NONE),
    ("get_cgroup_classid", (CTX,), T, INT, _NONE),
    ("skb_under_cgroup", (CTX, MAP, ANY), T, INT, _NONE),
    ("skb_cgroup_classid", (CTX,), T, INT, _NONE),
    ("skb_cgroup_id", (CTX,), T | C, INT, _NONE),
    ("skb_ancestor_cgroup_id", (CTX, ANY), T | C, INT, _NONE),
    ("sk_cgroup_id", (_A.SOCK_COMMON,), C, INT, _NONE),
    ("sk_ancestor_cgroup_id", (_A.SOCK_COMMON, ANY), C, INT, _NONE),
    # XDP
    ("xdp_adjust_head", (CTX, ANY), X, INT, _CHANGES),
    ("xdp_adjust_meta", (CTX, ANY), X, INT, _CHANGES),
    ("xdp_adjust_tail", (CTX, ANY), X, INT, _CHANGES),
    ("xdp_get_buff_len", (CTX,), X, INT, _NONE),
    ("xdp_load_bytes", (CTX, ANY, OUT, SIZE), X, INT, _NONE),
    ("xdp_store_bytes", (CTX, ANY, MEM, SIZE), X, INT, _NONE),
    ("redirect_map", (MAP, ANY, ANY), X, INT, _NONE),
    # Redirects, routes
    ("redirect", (ANY, ANY), X | T, INT, _NONE),
    ("redirect_neigh", (ANY, NULL_MEM, SIZE0, ANY), T, INT, _NONE),
    ("redirect_peer", (ANY, ANY), T, INT, _NONE),
    ("clone_redirect", (CTX, ANY, ANY), T, INT, _CHANGES),
    ("fib_lookup", (CTX, _A.MEM_WRITE, SIZE, ANY), X | T, INT, _GPL),
    ("check_mtu", (CTX, ANY, _A.FIXED_MEM_WRITE, ANY, ANY), X | T, INT, {"sizes": (0, 0, 4, 0, 0), "gpl_only": True}),
    # Socket buffers: contents
    ("skb_store_bytes", (CTX, ANY, MEM, SIZE, ANY), T, INT, _CHANGES),
    ("skb_load_bytes", (CTX, ANY, OUT, SIZE), T | S | C, INT, _NONE),
    ("skb_load_bytes_relative", (CTX, ANY, OUT, SIZE, ANY), T | S | C, INT, _NONE),
    ("l3_csum_replace", (CTX, ANY, ANY, ANY, ANY), T, INT, _CHANGES),
    ("l4_csum_replace", (CTX, ANY, ANY, ANY, ANY), T, INT, _CHANGES),
    ("skb_pull_data", (CTX, ANY), T, INT, _CHANGES),
    ("skb_change_head", (CTX, ANY, ANY), T, INT, _CHANGES),
    ("skb_change_tail", (CTX, ANY, ANY), T, INT, _CHANGES),
    ("skb_change_proto", (CTX, ANY, ANY), T, INT, _CHANGES),
    ("skb_adjust_room", (CTX, ANY, ANY, ANY), T, INT, _CHANGES),
    ("skb_vlan_push", (CTX, ANY, ANY), T, INT, _CHANGES),
    ("skb_vlan_pop", (CTX,), T, INT, _CHANGES),
    ("skb_ecn_set_ce", (CTX,), T | C, INT, _NONE),
    # Socket buffers: what belongs to them
    ("skb_change_type", (CTX, ANY), T, INT, _NONE),
    ("csum_update", (CTX, ANY), T, INT, _NONE),
    ("csum_level", (CTX, ANY), T, INT, _NONE),
    ("get_hash_recalc", (CTX,), T, INT, _NONE),
    ("set_hash_invalid", (CTX,), T, INT, _NONE),
    ("set_hash", (CTX, ANY), T, INT, _NONE),
    ("get_route_realm", (CTX,), T, INT, _NONE),
    ("get_socket_cookie", (CTX,), T | S | C, INT, _NONE),
    ("get_socket_uid", (CTX,), T | S | C, INT, _NONE),
    ("get_netns_cookie", (_A.CONTEXT_OR_NULL,), T | S | C, INT, _NONE),
    ("skb_set_tstamp", (CTX, ANY, ANY), T, INT, _NONE),
    ("skb_get_tunnel_key", (CTX, OUT, SIZE, ANY), T, INT, _NONE),
    ("skb_set_tunnel_key", (CTX, MEM, SIZE, ANY), T, INT, _NONE),
    ("skb_get_tunnel_opt", (CTX, OUT, SIZE), T, INT, _NONE),
    ("skb_set_tunnel_opt", (CTX, MEM, SIZE), T, INT, _NONE),
    ("skb_get_xfrm_state", (CTX, ANY, OUT, SIZE, ANY), T, INT, _NONE),
    # Sockets
    ("sk_lookup_tcp", (CTX, MEM, SIZE0, ANY, ANY), X | T | C, Returns.SOCKET_OR_NULL, {"acquires": True, **_PACKET}),
    ("sk_lookup_udp", (CTX, MEM, SIZE0, ANY, ANY), X | T | C, Returns.SOCKET_OR_NULL, {"acquires": True, **_PACKET}),
    (
        "skc_lookup_tcp", (CTX, MEM, SIZE0, ANY, ANY), X | T | C, Returns.SOCK_COMMON_OR_NULL,
        {"acquires": True, **_PACKET},
    ),
    ("sk_release", (_A.SOCK_RELEASE,), X | T | C, INT, {"releases": 0}),
    ("sk_fullsock", (_A.SOCK_COMMON,), T | C, Returns.SOCKET_OR_NULL, {"borrows": True}),
    ("tcp_sock", (_A.SOCK_COMMON,), T | C, Returns.TCP_SOCK_OR_NULL, {"borrows": True}),
    ("get_listener_sock", (_A.SOCK_COMMON,), T | C, Returns.SOCKET_OR_NULL, {"borrows": True}),
    ("sk_assign", (CTX, _A.SOCK_COMMON, ANY), T, INT, _NONE),
    ("tcp_check_syncookie", (_A.SOCK_COMMON, MEM, SIZE, MEM, SIZE), X | T, INT, _PACKET_GPL),
    ("tcp_gen_syncookie", (_A.SOCK_COMMON, MEM, SIZE, MEM, SIZE), X | T, INT, _PACKET_GPL),
    ("tcp_raw_gen_syncookie_ipv4", (_A.FIXED_MEM, MEM, SIZE0), X | T, INT, {"sizes": (20, 0, 0, 0, 0), **_PACKET_GPL}),
    ("tcp_raw_gen_syncookie_ipv6", (_A.FIXED_MEM, MEM, SIZE0), X | T, INT, {"sizes": (40, 0, 0, 0, 0), **_PACKET_GPL}),
    (
        "tcp_raw_check_syncookie_ipv4", (_A.FIXED_MEM, _A.FIXED_MEM), X | T, INT,
        {"sizes": (20, 20, 0, 0, 0), **_PACKET_GPL},
    ),
    (
        "tcp_raw_check_syncookie_ipv6", (_A.FIXED_MEM, _A.FIXED_MEM), X | T, INT,
        {"sizes": (40, 20, 0, 0, 0), **_PACKET_GPL},
    ),
)  # fmt: skip
