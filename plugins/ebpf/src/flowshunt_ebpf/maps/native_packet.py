"""Helpers that read and change packets, and checksums; as in the kernel's net/core/filter.c.

The context pointer is the structure that programs see; the packet's real pointers lie in front of it, see
`contexts.layout`. A packet is one run of bytes: nothing is ever in fragments.
"""

from typing import Any, Final

from flowshunt.compiled import piece
from flowshunt_ebpf.maps.raw import copy, fill_zero, load8, load16, load32, load64, store16, store32, store64

# Offsets from the context pointer, those of contexts.layout.
HARD_START: Final = -40
HARD_END: Final = -32
DATA_META: Final = -24
DATA_END: Final = -16
DATA: Final = -8
LEN: Final = 0  # __sk_buff.len
HASH: Final = 68  # __sk_buff.hash

# Offsets in the state block, those of native.state.
REGIONS: Final = 56
REGION_BYTES: Final = 32
ADJUSTED: Final = 172

ETHERNET: Final = 14
FRAME_HEADER: Final = 40
"""Bytes at the start of the buffer that the kernel keeps for itself (struct xdp_frame)."""
MAX_META: Final = 252
EINVAL: Final = -22
EFAULT: Final = -14
ENOMEM: Final = -12
EACCES: Final = -13


@piece
def _moved(context: Any, machine: Any) -> Any:
    """Tell the access checks where the packet is now."""
    if machine != 0:
        region = load64(machine + REGIONS) + REGION_BYTES
        store64(region, load64(context + DATA_META))
        store64(region + 8, load64(context + DATA_END) - load64(context + DATA_META))
        store32(machine + ADJUSTED, 1)


@piece
def _span(context: Any, offset: Any, size: Any) -> Any:
    """The address of packet bytes [offset, offset + size); 0 where they are not all in the packet."""
    data = load64(context + DATA)
    length = load64(context + DATA_END) - data
    if offset < 0 or size < 0 or offset > 0xFFFF or offset + size > length:
        return 0
    return data + offset


@piece
def signed32(value: Any) -> Any:
    """The signed reading of the low 32 bits."""
    return ((value & 0xFFFFFFFF) ^ 0x80000000) - 0x80000000


def xdp_adjust_head(context: Any, delta: Any, c: Any, d: Any, e: Any, machine: Any) -> Any:
    """bpf_xdp_adjust_head."""
    delta = signed32(delta)
    data = load64(context + DATA)
    meta = load64(context + DATA_META)
    metadata = data - meta
    moved = data + delta
    if moved < load64(context + HARD_START) + FRAME_HEADER + metadata or moved > load64(context + DATA_END) - ETHERNET:
        return EINVAL
    if metadata > 0:
        copy(meta + delta, meta, metadata)
    store64(context + DATA_META, meta + delta)
    store64(context + DATA, moved)
    _moved(context, machine)
    return 0


def xdp_adjust_meta(context: Any, delta: Any, c: Any, d: Any, e: Any, machine: Any) -> Any:
    """bpf_xdp_adjust_meta."""
    meta = load64(context + DATA_META) + signed32(delta)
    data = load64(context + DATA)
    if meta < load64(context + HARD_START) + FRAME_HEADER or meta > data:
        return EINVAL
    if (data - meta) & 3 or data - meta > MAX_META:
        return EACCES
    store64(context + DATA_META, meta)
    _moved(context, machine)
    return 0


def xdp_adjust_tail(context: Any, delta: Any, c: Any, d: Any, e: Any, machine: Any) -> Any:
    """bpf_xdp_adjust_tail; new bytes are zero."""
    end = load64(context + DATA_END)
    moved = end + signed32(delta)
    if moved > load64(context + HARD_END) or moved < load64(context + DATA) + ETHERNET:
        return EINVAL
    if moved > end:
        fill_zero(end, moved - end)
    store64(context + DATA_END, moved)
    _moved(context, machine)
    return 0


def xdp_get_buff_len(context: Any, b: Any, c: Any, d: Any, e: Any, machine: Any) -> Any:
    """bpf_xdp_get_buff_len."""
    return load64(context + DATA_END) - load64(context + DATA)


def xdp_load_bytes(context: Any, offset: Any, to: Any, size: Any, e: Any, machine: Any) -> Any:
    """bpf_xdp_load_bytes."""
    place = _span(context, offset & 0xFFFFFFFF, size & 0xFFFFFFFF)
    if place == 0:
        return EINVAL
    copy(to, place, size & 0xFFFFFFFF)
    return 0


def xdp_store_bytes(context: Any, offset: Any, source: Any, size: Any, e: Any, machine: Any) -> Any:
    """bpf_xdp_store_bytes."""
    place = _span(context, offset & 0xFFFFFFFF, size & 0xFFFFFFFF)
    if place == 0:
        return EINVAL
    copy(place, source, size & 0xFFFFFFFF)
    return 0


def skb_load_bytes(context: Any, offset: Any, to: Any, size: Any, e: Any, machine: Any) -> Any:
    """bpf_skb_load_bytes; on failure the target is zeroed."""
    size &= 0xFFFFFFFF
    place = _span(context, offset & 0xFFFFFFFF, size)
    if place == 0:
        fill_zero(to, size)
        return EFAULT
    copy(to, place, size)
    return 0


def skb_load_bytes_relative(context: Any, offset: Any, to: Any, size: Any, start: Any, machine: Any) -> Any:
    """bpf_skb_load_bytes_relative: from the Ethernet header (0) or the network header (1)."""
    size &= 0xFFFFFFFF
    start &= 0xFFFFFFFF
    offset &= 0xFFFFFFFF
    if offset > 0xFFFF or start > 1:
        fill_zero(to, size)
        return EFAULT if start <= 1 else EINVAL
    place = _span(context, offset + (ETHERNET if start == 1 else 0), size)
    if place == 0:
        fill_zero(to, size)
        return EFAULT
    copy(to, place, size)
    return 0


def skb_store_bytes(context: Any, offset: Any, source: Any, size: Any, flags: Any, machine: Any) -> Any:
    """bpf_skb_store_bytes. Flag 2 forgets the packet's hash; flag 1 concerns a checksum that is not kept here."""
    if flags & ~3 != 0:
        return EINVAL
    place = _span(context, offset & 0xFFFFFFFF, size & 0xFFFFFFFF)
    if place == 0:
        return EFAULT
    copy(place, source, size & 0xFFFFFFFF)
    if flags & 2:
        store32(context + HASH, 0)
    return 0


def skb_pull_data(context: Any, size: Any, c: Any, d: Any, e: Any, machine: Any) -> Any:
    """bpf_skb_pull_data: all of a packet is at hand always."""
    return 0 if size & 0xFFFFFFFF <= load32(context + LEN) else ENOMEM


def skb_change_tail(context: Any, size: Any, flags: Any, d: Any, e: Any, machine: Any) -> Any:
    """bpf_skb_change_tail; new bytes are zero."""
    size &= 0xFFFFFFFF
    end = load64(context + DATA_END)
    moved = load64(context + DATA) + size
    if flags != 0 or size < ETHERNET or moved > load64(context + HARD_END):
        return EINVAL
    if moved > end:
        fill_zero(end, moved - end)
    store64(context + DATA_END, moved)
    store32(context + LEN, size)
    _moved(context, machine)
    return 0


def skb_change_head(context: Any, room: Any, flags: Any, d: Any, e: Any, machine: Any) -> Any:
    """bpf_skb_change_head; new bytes are zero."""
    room &= 0xFFFFFFFF
    data = load64(context + DATA)
    if flags != 0 or data - room < load64(context + HARD_START):
        return EINVAL
    fill_zero(data - room, room)
    store64(context + DATA, data - room)
    store64(context + DATA_META, data - room)
    store32(context + LEN, load32(context + LEN) + room)
    _moved(context, machine)
    return 0


def get_hash_recalc(context: Any, b: Any, c: Any, d: Any, e: Any, machine: Any) -> Any:
    """bpf_get_hash_recalc: the hash that the packet was given."""
    return load32(context + HASH)


def set_hash_invalid(context: Any, b: Any, c: Any, d: Any, e: Any, machine: Any) -> Any:
    """bpf_set_hash_invalid."""
    store32(context + HASH, 0)
    return 0


def csum_update(context: Any, b: Any, c: Any, d: Any, e: Any, machine: Any) -> Any:
    """bpf_csum_update: no packet here carries a complete checksum (-ENOTSUPP)."""
    return -524


@piece
def _add(left: Any, right: Any) -> Any:
    """One's complement sum of 32-bit values."""
    total = (left & 0xFFFFFFFF) + (right & 0xFFFFFFFF)
    return (total + (total >> 32)) & 0xFFFFFFFF


@piece
def _fold(value: Any) -> Any:
    """The 16-bit checksum of a 32-bit sum, complemented."""
    value = (value & 0xFFFF) + ((value >> 16) & 0xFFFF)
    value = (value & 0xFFFF) + (value >> 16)
    return ~value & 0xFFFF


@piece
def _partial(place: Any, size: Any, total: Any) -> Any:
    """One's complement sum of 32-bit words, the last one filled up with zeros."""
    at = 0
    while at + 4 <= size:
        total = _add(total, load32(place + at))
        at += 4
    while at < size:
        total = _add(total, load8(place + at) << (8 * (at & 3)))
        at += 1
    return total


def csum_diff(source: Any, source_size: Any, to: Any, to_size: Any, seed: Any, machine: Any) -> Any:
    """bpf_csum_diff, of any sizes and folded to 16 bits as in the kernel since 6.13."""
    source_size &= 0xFFFFFFFF
    to_size &= 0xFFFFFFFF
    seed &= 0xFFFFFFFF
    if source_size != 0 and to_size != 0:
        total = _add(_partial(to, to_size, seed), ~_partial(source, source_size, 0))
    elif to_size != 0:
        total = _partial(to, to_size, seed)
    elif source_size != 0:
        total = ~_partial(source, source_size, ~seed & 0xFFFFFFFF) & 0xFFFFFFFF
    else:
        total = seed
    return ~_fold(total) & 0xFFFF


@piece
def _replaced(place: Any, old: Any, new: Any) -> Any:
    """The checksum at a place, after a 32-bit word of what it sums changed."""
    total = _add(~load16(place) & 0xFFFF, ~old)
    return _fold(_add(total, new))


def l3_csum_replace(context: Any, offset: Any, old: Any, new: Any, flags: Any, machine: Any) -> Any:
    """bpf_l3_csum_replace."""
    if flags & ~0xF != 0:
        return EINVAL
    offset &= 0xFFFFFFFF
    place = _span(context, offset, 2)
    if offset & 1 or place == 0:
        return EFAULT
    size = flags & 0xF
    if size == 0 and old == 0:
        store16(place, _fold(_add(new, ~load16(place) & 0xFFFF)))
    elif size == 2:
        store16(place, _replaced(place, old & 0xFFFF, new & 0xFFFF))
    elif size == 4:
        store16(place, _replaced(place, old, new))
    else:
        return EINVAL
    return 0


def l4_csum_replace(context: Any, offset: Any, old: Any, new: Any, flags: Any, machine: Any) -> Any:
    """bpf_l4_csum_replace. Flags: size, 0x10 pseudo header, 0x20 zero means none, 0x40 unless forced, 0x80 IPv6."""
    if flags & ~0xFF != 0:
        return EINVAL
    offset &= 0xFFFFFFFF
    place = _span(context, offset, 2)
    if offset & 1 or place == 0:
        return EFAULT
    if flags & 0x20 and not flags & 0x40 and load16(place) == 0:
        return 0
    size = flags & 0xF
    if size == 0 and old == 0:
        store16(place, _fold(_add(new, ~load16(place) & 0xFFFF)))
    elif size == 2:
        store16(place, _replaced(place, old & 0xFFFF, new & 0xFFFF))
    elif size == 4:
        store16(place, _replaced(place, old, new))
    else:
        return EINVAL
    if flags & 0x20 and load16(place) == 0:
        store16(place, 0xFFFF)
    return 0


@piece
def byte_at(place: Any) -> Any:
    """A byte of memory."""
    return load8(place)
