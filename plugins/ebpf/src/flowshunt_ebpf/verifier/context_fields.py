"""What an access through a context or socket pointer gives: the verifier's view of `contexts.layout`, and of sockets.

Sources: `*_is_valid_access` of the kernel's net/core/filter.c and include/uapi/linux/bpf.h; every offset and size was
tried on Linux 6.18.
"""

from enum import Enum, auto
from typing import Final

import attrs

from flowshunt_ebpf.contexts.layout import DATA, DATA_END, DATA_META, TC, Context
from flowshunt_ebpf.program import AttachType


class FieldKind(Enum):
    """What a load of a field leaves in its register."""

    NUMBER = auto()  # `size` bytes, extended with zeros (or its sign, for a load that says so)
    PACKET = auto()
    PACKET_END = auto()
    PACKET_META = auto()
    SOCK_COMMON_OR_NULL = auto()


@attrs.frozen
class FieldAccess:
    """An access that is allowed.

    Attributes:
        name: of the field.
        kind: what a load gives.
        size: bytes of the access.
    """

    name: str
    kind: FieldKind
    size: int


_POINTERS: Final = {DATA: FieldKind.PACKET, DATA_END: FieldKind.PACKET_END, DATA_META: FieldKind.PACKET_META}
_SOCKET_OFFSET: Final = 168
"""`sk` of struct __sk_buff: a pointer of 8 bytes."""


def field_access(
    context: Context,
    offset: int,
    size: int,
    *,
    write: bool = False,
    sign_extend: bool = False,
    attach_type: AttachType | None = None,
) -> FieldAccess | str:
    """The access of `size` bytes at `offset` of a context, or why it is not allowed.

    `attach_type`: the program's; XDP programs see `egress_ifindex` only where they are attached to a device map.
    Atomic operations are never allowed there. For bare memory (a context without a structure) there is nothing to ask.
    """
    if context.structure == TC.structure and offset <= _SOCKET_OFFSET < offset + size:
        if write or size != 8 or offset != _SOCKET_OFFSET or sign_extend:
            return f"{context.structure}.sk is a pointer and is only loaded whole, with 8 bytes"
        return FieldAccess("sk", FieldKind.SOCK_COMMON_OR_NULL, size)
    field = context.access(offset, size, write)
    if isinstance(field, str):
        return field
    if field.name == "egress_ifindex" and attach_type != AttachType.XDP_DEVMAP:
        return f"{context.structure}.{field.name} is only there in programs that are attached to a device map"
    if field.pointer is None:
        return FieldAccess(field.name, FieldKind.NUMBER, size)
    if write or size != field.size or sign_extend:
        return f"{context.structure}.{field.name} is a pointer and is only loaded whole, with {field.size} bytes"
    return FieldAccess(field.name, _POINTERS[field.pointer], size)


class Socket(Enum):
    """Kinds of socket pointers, by what a program may read of them."""

    COMMON = auto()  # struct bpf_sock, without what only full sockets have
    FULL = auto()  # struct bpf_sock
    TCP = auto()  # struct bpf_tcp_sock


class _Narrow(Enum):
    NO = auto()
    FIRST = auto()  # a part of the field may be read that starts where the field does
    ANY = auto()


@attrs.frozen
class _SockField:
    offset: int
    size: int
    narrow: _Narrow = _Narrow.NO
    full_only: bool = False

    def holds(self, offset: int, size: int) -> bool:
        if size == self.size:
            return offset == self.offset
        if self.narrow is _Narrow.NO or offset % size or offset + size > self.offset + self.size:
            return False
        return offset == self.offset or self.narrow is _Narrow.ANY


def _words(*names: str, start: int, narrow: _Narrow = _Narrow.NO) -> dict[str, _SockField]:
    return {name: _SockField(start + 4 * n, 4, narrow) for n, name in enumerate(names)}


_SOCK: Final[dict[str, _SockField]] = {
    "bound_dev_if": _SockField(0, 4),
    "family": _SockField(4, 4, _Narrow.FIRST),
    "type": _SockField(8, 4, _Narrow.FIRST, full_only=True),
    "protocol": _SockField(12, 4, _Narrow.FIRST, full_only=True),
    "mark": _SockField(16, 4, full_only=True),
    "priority": _SockField(20, 4, full_only=True),
    "src_ip4": _SockField(24, 4, _Narrow.ANY),
    **_words("src_ip6[0]", "src_ip6[1]", "src_ip6[2]", "src_ip6[3]", start=28, narrow=_Narrow.ANY),
    "src_port": _SockField(44, 4, _Narrow.FIRST),
    "dst_port": _SockField(48, 2, _Narrow.ANY),
    "dst_ip4": _SockField(52, 4, _Narrow.ANY),
    **_words("dst_ip6[0]", "dst_ip6[1]", "dst_ip6[2]", "dst_ip6[3]", start=56, narrow=_Narrow.ANY),
    "state": _SockField(72, 4, _Narrow.FIRST),
    "rx_queue_mapping": _SockField(76, 4, _Narrow.FIRST),
}
_TCP: Final[dict[str, _SockField]] = {
    **_words(
        "snd_cwnd", "srtt_us", "rtt_min", "snd_ssthresh", "rcv_nxt", "snd_nxt", "snd_una", "mss_cache", "ecn_flags",
        "rate_delivered", "rate_interval_us", "packets_out", "retrans_out", "total_retrans", "segs_in", "data_segs_in",
        "segs_out", "data_segs_out", "lost_out", "sacked_out", start=0,
    ),
    "bytes_received": _SockField(80, 8),
    "bytes_acked": _SockField(88, 8),
    **_words("dsack_dups", "delivered", "delivered_ce", "icsk_retransmits", start=96),
}  # fmt: skip


def socket_access(socket: Socket, offset: int, size: int, *, write: bool = False) -> FieldAccess | str:
    """The access of `size` bytes at `offset` of a socket, or why it is not allowed. Nothing may be written there."""
    structure, table = ("bpf_tcp_sock", _TCP) if socket is Socket.TCP else ("bpf_sock", _SOCK)
    if write:
        return f"a program may not write to struct {structure}"
    for name, field in table.items():
        end = field.offset + field.size
        if not field.offset <= offset < end:
            continue
        if name == "dst_port" and (offset, size) == (field.offset, 4):  # as older programs read it, with zeros behind
            return FieldAccess(name, FieldKind.NUMBER, size)
        if not field.holds(offset, size):
            return f"{structure}.{name} is accessed with {field.size} bytes at its offset, {field.offset}"
        if field.full_only and socket is Socket.COMMON:
            return f"{structure}.{name} is only there in full sockets; call bpf_sk_fullsock first"
        return FieldAccess(name, FieldKind.NUMBER, size)
    return f"bytes {offset} to {offset + size - 1} are no field of struct {structure}"
