"""Context layouts: what r1 points to, by program type, and which fields a program may read and write.

r1 points to the structure of include/uapi/linux/bpf.h as it stands, so that loads of its plain fields need no
rewriting. Its packet pointers are 32 bits wide there and can't hold an address; as in the kernel, loads of them are
rewritten to loads of the real ones, which lie in front of the structure:

    r1 - 40   the packet buffer's first byte          r1 - 16   one past the packet's last byte
    r1 - 32   one past the packet buffer's last byte  r1 - 8    the packet's first byte
    r1 - 24   the first byte of the packet's metadata

Who may access what follows `*_is_valid_access` of the kernel's net/core/filter.c.
"""

from collections.abc import Mapping
from typing import Final

import attrs

from flowshunt_ebpf.program import ProgramType

HARD_START: Final = -40
HARD_END: Final = -32
DATA_META: Final = -24
DATA_END: Final = -16
DATA: Final = -8
BEFORE: Final = 64
"""Bytes in front of the structure that are ours."""


@attrs.frozen
class Field:
    """One field of a context.

    Attributes:
        offset, size: bytes, in the structure that the program sees.
        writable: whether the program may store to it.
        pointer: where the real pointer lies, from r1; None: the field is no pointer.
        narrow: whether a part of it may be read.
        count: elements of an array (`cb`, addresses); each has `size` bytes.
    """

    name: str
    offset: int
    size: int = 4
    writable: bool = False
    pointer: int | None = None
    narrow: bool = True
    count: int = 1


@attrs.frozen(eq=False)
class Context:
    """A kind of context.

    Attributes:
        name: what the command line calls it.
        structure: the C structure's name; empty: bare memory.
        size: bytes of the structure.
        fields: what a program may reach of it.
        packet: whether there is a packet.
        meta: whether the packet may have metadata in front.
        program_type: what the kernel loads such a program as.
    """

    name: str
    structure: str
    size: int
    fields: tuple[Field, ...]
    packet: bool
    meta: bool
    program_type: ProgramType
    by_offset: Mapping[int, Field] = attrs.field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        table = {f.offset + at: f for f in self.fields for at in range(f.size * f.count)}
        object.__setattr__(self, "by_offset", table)

    def access(self, offset: int, size: int, write: bool) -> Field | str:
        """The field that an access of `size` bytes at `offset` is to, or why it is not allowed."""
        name = self.structure
        if offset < 0 or offset + size > self.size:
            return f"struct {name} has {self.size} bytes; bytes {offset} to {offset + size - 1} lie outside"
        field = self.by_offset.get(offset)
        if field is None or self.by_offset.get(offset + size - 1) is not field:
            return f"this kind of program can't use bytes {offset} to {offset + size - 1} of struct {name}"
        if offset % size:
            return f"{name}.{field.name} is read and written at multiples of the access's size"
        if write and not field.writable:
            return f"{name}.{field.name} is read-only in this kind of program"
        whole = size == field.size or (field.name == "cb" and size <= 8)
        if not whole and (write or not field.narrow or size > field.size):
            return f"{name}.{field.name} is accessed with {field.size} bytes, not {size}"
        return field


def _skb(*, pointers: tuple[str, ...], hidden: frozenset[str], writable: frozenset[str]) -> tuple[Field, ...]:
    plain = [
        ("len", 0), ("pkt_type", 4), ("mark", 8), ("queue_mapping", 12), ("protocol", 16), ("vlan_present", 20),
        ("vlan_tci", 24), ("vlan_proto", 28), ("priority", 32), ("ingress_ifindex", 36), ("ifindex", 40),
        ("tc_index", 44), ("hash", 68), ("tc_classid", 72), ("napi_id", 84), ("family", 88), ("remote_ip4", 92),
        ("local_ip4", 96), ("remote_port", 132), ("local_port", 136), ("wire_len", 160), ("gso_segs", 164),
        ("gso_size", 176),
    ]  # fmt: skip
    fields = [
        Field(name, offset, writable=name in writable, narrow=name not in ("remote_ip4", "local_ip4"))
        for name, offset in plain
        if name not in hidden
    ]
    fields.append(Field("cb", 48, 4, writable=True, count=5))
    for name, offset in (("remote_ip6", 100), ("local_ip6", 116)):
        if name not in hidden:
            fields.append(Field(name, offset, 4, narrow=False, count=4))
    places = {"data": (76, DATA), "data_end": (80, DATA_END), "data_meta": (140, DATA_META)}
    fields += [Field(name, places[name][0], 4, pointer=places[name][1], narrow=False) for name in pointers]
    fields += [
        Field(name, offset, 8, writable=name in writable, narrow=False)
        for name, offset in (("tstamp", 152), ("hwtstamp", 184))
        if name not in hidden
    ]
    if "tstamp_type" not in hidden:
        fields.append(Field("tstamp_type", 180, 1))
    return tuple(fields)


_ADDRESSES = frozenset({"family", "remote_ip4", "local_ip4", "remote_ip6", "local_ip6", "remote_port", "local_port"})

XDP: Final = Context(
    "xdp",
    "xdp_md",
    24,
    (
        Field("data", 0, pointer=DATA, narrow=False),
        Field("data_end", 4, pointer=DATA_END, narrow=False),
        Field("data_meta", 8, pointer=DATA_META, narrow=False),
        Field("ingress_ifindex", 12, narrow=False),
        Field("rx_queue_index", 16, narrow=False),
        Field("egress_ifindex", 20, narrow=False),
    ),
    packet=True,
    meta=True,
    program_type=ProgramType.XDP,
)
TC: Final = Context(
    "tc",
    "__sk_buff",
    192,
    _skb(
        pointers=("data", "data_end", "data_meta"),
        hidden=_ADDRESSES,
        writable=frozenset({"mark", "tc_index", "priority", "tc_classid", "tstamp", "queue_mapping"}),
    ),
    packet=True,
    meta=True,
    program_type=ProgramType.SCHED_CLS,
)
SOCKET_FILTER: Final = Context(
    "socket",
    "__sk_buff",
    192,
    _skb(
        pointers=(),
        hidden=_ADDRESSES | {"tc_classid", "tstamp", "tstamp_type", "wire_len", "hwtstamp"},
        writable=frozenset(),
    ),
    packet=True,
    meta=False,
    program_type=ProgramType.SOCKET_FILTER,
)
CGROUP_SKB: Final = Context(
    "cgroup_skb",
    "__sk_buff",
    192,
    _skb(
        pointers=("data", "data_end"),
        hidden=frozenset({"tc_classid", "wire_len", "tstamp_type"}),
        writable=frozenset({"mark", "priority", "tstamp"}),
    ),
    packet=True,
    meta=False,
    program_type=ProgramType.CGROUP_SKB,
)
MEMORY: Final = Context("memory", "", 0, (), packet=False, meta=False, program_type=ProgramType.UNSPEC)
"""Bare memory: r1 points to it, r2 is its length in bytes; both are 0 where there is none. For tests."""

CONTEXTS: Final = {c.name: c for c in (XDP, TC, SOCKET_FILTER, CGROUP_SKB, MEMORY)}

BY_TYPE: Final = {
    ProgramType.XDP: XDP,
    ProgramType.SCHED_CLS: TC,
    ProgramType.SCHED_ACT: TC,
    ProgramType.SOCKET_FILTER: SOCKET_FILTER,
    ProgramType.CGROUP_SKB: CGROUP_SKB,
    ProgramType.UNSPEC: MEMORY,
}
"""The context of each program type that runs here."""
