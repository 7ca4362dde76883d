"""Program and attach types, and what a section's name says about both (the convention of libbpf)."""

from enum import IntEnum

import attrs


class ProgramType(IntEnum):
    """Program types, by the kernel's numbers (`enum bpf_prog_type`)."""

    UNSPEC = 0
    SOCKET_FILTER = 1
    KPROBE = 2
    SCHED_CLS = 3
    SCHED_ACT = 4
    TRACEPOINT = 5
    XDP = 6
    PERF_EVENT = 7
    CGROUP_SKB = 8
    CGROUP_SOCK = 9
    LWT_IN = 10
    LWT_OUT = 11
    LWT_XMIT = 12
    SOCK_OPS = 13
    SK_SKB = 14
    CGROUP_DEVICE = 15
    SK_MSG = 16
    RAW_TRACEPOINT = 17
    CGROUP_SOCK_ADDR = 18
    LWT_SEG6LOCAL = 19
    LIRC_MODE2 = 20
    SK_REUSEPORT = 21
    FLOW_DISSECTOR = 22
    CGROUP_SYSCTL = 23
    RAW_TRACEPOINT_WRITABLE = 24
    CGROUP_SOCKOPT = 25
    TRACING = 26
    STRUCT_OPS = 27
    EXT = 28
    LSM = 29
    SK_LOOKUP = 30
    SYSCALL = 31
    NETFILTER = 32


class AttachType(IntEnum):
    """Attach types, by the kernel's numbers (`enum bpf_attach_type`)."""

    CGROUP_INET_INGRESS = 0
    CGROUP_INET_EGRESS = 1
    CGROUP_INET_SOCK_CREATE = 2
    CGROUP_SOCK_OPS = 3
    SK_SKB_STREAM_PARSER = 4
    SK_SKB_STREAM_VERDICT = 5
    CGROUP_DEVICE = 6
    SK_MSG_VERDICT = 7
    CGROUP_INET4_BIND = 8
    CGROUP_INET6_BIND = 9
    CGROUP_INET4_CONNECT = 10
    CGROUP_INET6_CONNECT = 11
    CGROUP_INET4_POST_BIND = 12
    CGROUP_INET6_POST_BIND = 13
    CGROUP_UDP4_SENDMSG = 14
    CGROUP_UDP6_SENDMSG = 15
    LIRC_MODE2 = 16
    FLOW_DISSECTOR = 17
    CGROUP_SYSCTL = 18
    CGROUP_UDP4_RECVMSG = 19
    CGROUP_UDP6_RECVMSG = 20
    CGROUP_GETSOCKOPT = 21
    CGROUP_SETSOCKOPT = 22
    TRACE_RAW_TP = 23
    TRACE_FENTRY = 24
    TRACE_FEXIT = 25
    MODIFY_RETURN = 26
    LSM_MAC = 27
    TRACE_ITER = 28
    CGROUP_INET4_GETPEERNAME = 29
    CGROUP_INET6_GETPEERNAME = 30
    CGROUP_INET4_GETSOCKNAME = 31
    CGROUP_INET6_GETSOCKNAME = 32
    XDP_DEVMAP = 33
    CGROUP_INET_SOCK_RELEASE = 34
    XDP_CPUMAP = 35
    SK_LOOKUP = 36
    XDP = 37
    SK_SKB_VERDICT = 38
    SK_REUSEPORT_SELECT = 39
    SK_REUSEPORT_SELECT_OR_MIGRATE = 40
    PERF_EVENT = 41
    TRACE_KPROBE_MULTI = 42
    LSM_CGROUP = 43
    STRUCT_OPS = 44
    NETFILTER = 45
    TCX_INGRESS = 46
    TCX_EGRESS = 47
    TRACE_UPROBE_MULTI = 48
    CGROUP_UNIX_CONNECT = 49
    CGROUP_UNIX_SENDMSG = 50
    CGROUP_UNIX_RECVMSG = 51
    CGROUP_UNIX_GETPEERNAME = 52
    CGROUP_UNIX_GETSOCKNAME = 53
    NETKIT_PRIMARY = 54
    NETKIT_PEER = 55
    TRACE_KPROBE_SESSION = 56
    TRACE_UPROBE_SESSION = 57


@attrs.frozen
class SectionKind:
    """What a section's name says: program type, expected attach type, and the rest of the name."""

    type: ProgramType
    attach_type: AttachType | None = None
    attach_to: str = ""
    sleepable: bool = False


_P, _A = ProgramType, AttachType

_SECTIONS: tuple[tuple[str, ProgramType, AttachType | None], ...] = (
    # A name that ends with "/" needs something behind it; the others stand alone or before a "/".
    ("socket", _P.SOCKET_FILTER, None),
    ("sk_reuseport/migrate", _P.SK_REUSEPORT, _A.SK_REUSEPORT_SELECT_OR_MIGRATE),
    ("sk_reuseport", _P.SK_REUSEPORT, _A.SK_REUSEPORT_SELECT),
    ("kprobe.multi", _P.KPROBE, _A.TRACE_KPROBE_MULTI),
    ("kretprobe.multi", _P.KPROBE, _A.TRACE_KPROBE_MULTI),
    ("kprobe.session", _P.KPROBE, _A.TRACE_KPROBE_SESSION),
    ("uprobe.multi", _P.KPROBE, _A.TRACE_UPROBE_MULTI),
    ("uretprobe.multi", _P.KPROBE, _A.TRACE_UPROBE_MULTI),
    ("uprobe.session", _P.KPROBE, _A.TRACE_UPROBE_SESSION),
    ("kprobe", _P.KPROBE, None),
    ("kretprobe", _P.KPROBE, None),
    ("ksyscall", _P.KPROBE, None),
    ("kretsyscall", _P.KPROBE, None),
    ("uprobe", _P.KPROBE, None),
    ("uretprobe", _P.KPROBE, None),
    ("usdt", _P.KPROBE, None),
    ("tc", _P.SCHED_CLS, None),
    ("tcx/ingress", _P.SCHED_CLS, _A.TCX_INGRESS),
    ("tcx/egress", _P.SCHED_CLS, _A.TCX_EGRESS),
    ("tc/ingress", _P.SCHED_CLS, _A.TCX_INGRESS),
    ("tc/egress", _P.SCHED_CLS, _A.TCX_EGRESS),
    ("netkit/primary", _P.SCHED_CLS, _A.NETKIT_PRIMARY),
    ("netkit/peer", _P.SCHED_CLS, _A.NETKIT_PEER),
    ("classifier", _P.SCHED_CLS, None),
    ("action", _P.SCHED_ACT, None),
    ("tracepoint", _P.TRACEPOINT, None),
    ("tp", _P.TRACEPOINT, None),
    ("raw_tracepoint.w", _P.RAW_TRACEPOINT_WRITABLE, None),
    ("raw_tp.w", _P.RAW_TRACEPOINT_WRITABLE, None),
    ("raw_tracepoint", _P.RAW_TRACEPOINT, None),
    ("raw_tp", _P.RAW_TRACEPOINT, None),
    ("tp_btf", _P.TRACING, _A.TRACE_RAW_TP),
    ("fentry", _P.TRACING, _A.TRACE_FENTRY),
    ("fmod_ret", _P.TRACING, _A.MODIFY_RETURN),
    ("fexit", _P.TRACING, _A.TRACE_FEXIT),
    ("iter", _P.TRACING, _A.TRACE_ITER),
    ("freplace", _P.EXT, None),
    ("lsm_cgroup", _P.LSM, _A.LSM_CGROUP),
    ("lsm", _P.LSM, _A.LSM_MAC),
    ("syscall", _P.SYSCALL, None),
    ("xdp.frags/devmap", _P.XDP, _A.XDP_DEVMAP),
    ("xdp/devmap", _P.XDP, _A.XDP_DEVMAP),
    ("xdp_devmap", _P.XDP, _A.XDP_DEVMAP),
    ("xdp.frags/cpumap", _P.XDP, _A.XDP_CPUMAP),
    ("xdp/cpumap", _P.XDP, _A.XDP_CPUMAP),
    ("xdp_cpumap", _P.XDP, _A.XDP_CPUMAP),
    ("xdp.frags", _P.XDP, _A.XDP),
    ("xdp", _P.XDP, _A.XDP),
    ("perf_event", _P.PERF_EVENT, None),
    ("lwt_in", _P.LWT_IN, None),
    ("lwt_out", _P.LWT_OUT, None),
    ("lwt_xmit", _P.LWT_XMIT, None),
    ("lwt_seg6local", _P.LWT_SEG6LOCAL, None),
    ("sockops", _P.SOCK_OPS, _A.CGROUP_SOCK_OPS),
    ("sk_skb/stream_parser", _P.SK_SKB, _A.SK_SKB_STREAM_PARSER),
    ("sk_skb/stream_verdict", _P.SK_SKB, _A.SK_SKB_STREAM_VERDICT),
    ("sk_skb/verdict", _P.SK_SKB, _A.SK_SKB_VERDICT),
    ("sk_skb", _P.SK_SKB, None),
    ("sk_msg", _P.SK_MSG, _A.SK_MSG_VERDICT),
    ("lirc_mode2", _P.LIRC_MODE2, _A.LIRC_MODE2),
    ("flow_dissector", _P.FLOW_DISSECTOR, _A.FLOW_DISSECTOR),
    ("cgroup_skb/ingress", _P.CGROUP_SKB, _A.CGROUP_INET_INGRESS),
    ("cgroup_skb/egress", _P.CGROUP_SKB, _A.CGROUP_INET_EGRESS),
    ("cgroup/skb", _P.CGROUP_SKB, None),
    ("cgroup_skb", _P.CGROUP_SKB, None),
    ("cgroup/sock_create", _P.CGROUP_SOCK, _A.CGROUP_INET_SOCK_CREATE),
    ("cgroup/sock_release", _P.CGROUP_SOCK, _A.CGROUP_INET_SOCK_RELEASE),
    ("cgroup/sock", _P.CGROUP_SOCK, _A.CGROUP_INET_SOCK_CREATE),
    ("cgroup/post_bind4", _P.CGROUP_SOCK, _A.CGROUP_INET4_POST_BIND),
    ("cgroup/post_bind6", _P.CGROUP_SOCK, _A.CGROUP_INET6_POST_BIND),
    ("cgroup/bind4", _P.CGROUP_SOCK_ADDR, _A.CGROUP_INET4_BIND),
    ("cgroup/bind6", _P.CGROUP_SOCK_ADDR, _A.CGROUP_INET6_BIND),
    ("cgroup/connect4", _P.CGROUP_SOCK_ADDR, _A.CGROUP_INET4_CONNECT),
    ("cgroup/connect6", _P.CGROUP_SOCK_ADDR, _A.CGROUP_INET6_CONNECT),
    ("cgroup/connect_unix", _P.CGROUP_SOCK_ADDR, _A.CGROUP_UNIX_CONNECT),
    ("cgroup/sendmsg4", _P.CGROUP_SOCK_ADDR, _A.CGROUP_UDP4_SENDMSG),
    ("cgroup/sendmsg6", _P.CGROUP_SOCK_ADDR, _A.CGROUP_UDP6_SENDMSG),
    ("cgroup/sendmsg_unix", _P.CGROUP_SOCK_ADDR, _A.CGROUP_UNIX_SENDMSG),
    ("cgroup/recvmsg4", _P.CGROUP_SOCK_ADDR, _A.CGROUP_UDP4_RECVMSG),
    ("cgroup/recvmsg6", _P.CGROUP_SOCK_ADDR, _A.CGROUP_UDP6_RECVMSG),
    ("cgroup/recvmsg_unix", _P.CGROUP_SOCK_ADDR, _A.CGROUP_UNIX_RECVMSG),
    ("cgroup/getpeername4", _P.CGROUP_SOCK_ADDR, _A.CGROUP_INET4_GETPEERNAME),
    ("cgroup/getpeername6", _P.CGROUP_SOCK_ADDR, _A.CGROUP_INET6_GETPEERNAME),
    ("cgroup/getsockname4", _P.CGROUP_SOCK_ADDR, _A.CGROUP_INET4_GETSOCKNAME),
    ("cgroup/getsockname6", _P.CGROUP_SOCK_ADDR, _A.CGROUP_INET6_GETSOCKNAME),
    ("cgroup/sysctl", _P.CGROUP_SYSCTL, _A.CGROUP_SYSCTL),
    ("cgroup/getsockopt", _P.CGROUP_SOCKOPT, _A.CGROUP_GETSOCKOPT),
    ("cgroup/setsockopt", _P.CGROUP_SOCKOPT, _A.CGROUP_SETSOCKOPT),
    ("cgroup/dev", _P.CGROUP_DEVICE, _A.CGROUP_DEVICE),
    ("struct_ops", _P.STRUCT_OPS, None),
    ("sk_lookup", _P.SK_LOOKUP, _A.SK_LOOKUP),
    ("netfilter", _P.NETFILTER, _A.NETFILTER),
)

_BY_LENGTH = sorted(_SECTIONS, key=lambda row: -len(row[0]))
_TRACING = frozenset({_P.TRACING, _P.LSM, _P.KPROBE, _P.EXT, _P.SYSCALL, _P.STRUCT_OPS})


def section_kind(section: str) -> SectionKind:
    """What a section's name says about its programs; UNSPEC where the name is none of libbpf's.

    A trailing `.s` on the first part marks a sleepable program; a leading `?` (not to be loaded by default) is passed
    over.
    """
    name = section.removeprefix("?")
    head, slash, tail = name.partition("/")
    sleepable = head.endswith(".s")
    if sleepable:
        name = head.removesuffix(".s") + slash + tail
    for prefix, type_, attach in _BY_LENGTH:
        if name == prefix or name.startswith(prefix + "/"):
            return SectionKind(type_, attach, name[len(prefix) + 1 :], sleepable)
        # Older objects number or suffix their sections ("classifier_main", "xdp_pass"); tracing ones always use "/".
        if type_ not in _TRACING and "/" not in prefix and name.startswith(prefix + "_"):
            return SectionKind(type_, attach, name[len(prefix) + 1 :], sleepable)
    return SectionKind(ProgramType.UNSPEC, None, "", sleepable)
