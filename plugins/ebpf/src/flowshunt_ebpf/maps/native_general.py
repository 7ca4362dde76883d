"""Helpers that have nothing to do with packets: clocks, random numbers, strings, locks, redirects, events."""

from typing import Any, Final

from flowshunt.compiled import piece
from flowshunt_ebpf.maps.header import MAX_ENTRIES, TYPE, VALUE_OFFSET
from flowshunt_ebpf.maps.native_array import element
from flowshunt_ebpf.maps.native_hash import MACHINE_CPU, node_of
from flowshunt_ebpf.maps.native_packet import DATA, DATA_END
from flowshunt_ebpf.maps.native_ring import READY, finish, reserve
from flowshunt_ebpf.maps.raw import clock, copy, exchange32, load8, load32, load64, shift_right, store32, store64

# Offsets in the state block, those of native.state.
RANDOM: Final = 112
KIND: Final = 124
REDIRECT_MAP: Final = 128
REDIRECT_KEY: Final = 136
REDIRECT_TARGET: Final = 140
CLOCK_OFFSET: Final = 176
LOCK_HELD: Final = 192
KIND_XDP: Final = 1

DEVMAP_HASH: Final = 25
DEVMAP: Final = 14
XDP_REDIRECT: Final = 4
TC_SHOT: Final = 2
TC_REDIRECT: Final = 7
EINVAL: Final = -22
ERANGE: Final = -34
LOCK_TRIES: Final = 1 << 24
_LIMIT: Final = 0x7FFFFFFFFFFFFFFF


def ktime_get_ns(a: Any, b: Any, c: Any, d: Any, e: Any, machine: Any) -> Any:
    """Monotonic ns, without suspended time."""
    return clock(1) + load64(machine + CLOCK_OFFSET)


def ktime_get_boot_ns(a: Any, b: Any, c: Any, d: Any, e: Any, machine: Any) -> Any:
    """Monotonic ns since boot."""
    return clock(7) + load64(machine + CLOCK_OFFSET)


def ktime_get_coarse_ns(a: Any, b: Any, c: Any, d: Any, e: Any, machine: Any) -> Any:
    """Monotonic ns, as of the last tick."""
    return clock(6) + load64(machine + CLOCK_OFFSET)


def ktime_get_tai_ns(a: Any, b: Any, c: Any, d: Any, e: Any, machine: Any) -> Any:
    """ns of International Atomic Time."""
    return clock(11) + load64(machine + CLOCK_OFFSET)


def jiffies64(a: Any, b: Any, c: Any, d: Any, e: Any, machine: Any) -> Any:
    """Ticks of 4 ms."""
    return (clock(1) + load64(machine + CLOCK_OFFSET)) // 4_000_000


def get_prandom_u32(a: Any, b: Any, c: Any, d: Any, e: Any, machine: Any) -> Any:
    """The machine's own generator (xorshift64*), so that runs repeat."""
    value = load64(machine + RANDOM)
    value ^= shift_right(value, 12)
    value ^= value << 25
    value ^= shift_right(value, 27)
    store64(machine + RANDOM, value)
    return shift_right(value * 2685821657736338717, 32)


def get_smp_processor_id(a: Any, b: Any, c: Any, d: Any, e: Any, machine: Any) -> Any:
    """The machine's CPU."""
    return load32(machine + MACHINE_CPU)


def zero(a: Any, b: Any, c: Any, d: Any, e: Any, machine: Any) -> Any:
    """The NUMA node."""
    return 0


def spin_lock(place: Any, b: Any, c: Any, d: Any, e: Any, machine: Any) -> Any:
    """Wait for a lock and take it.

    A program without a verdict may ask for one that never gets free, so that no wait is endless, and a machine that
    holds a lock waits for no other.
    """
    if load64(machine + LOCK_HELD) != 0:
        return 0
    for _ in range(LOCK_TRIES):
        if exchange32(place, 1) == 0:
            store64(machine + LOCK_HELD, place)
            break
    return 0


def spin_unlock(place: Any, b: Any, c: Any, d: Any, e: Any, machine: Any) -> Any:
    """Give a lock back."""
    if load64(machine + LOCK_HELD) == place:
        store64(machine + LOCK_HELD, 0)
        exchange32(place, 0)
    return 0


def strncmp(left: Any, size: Any, right: Any, d: Any, e: Any, machine: Any) -> Any:
    """bpf_strncmp: below, equal or above zero, as C's, in 32 bits."""
    for at in range(size & 0xFFFFFFFF):
        a = load8(left + at)
        b = load8(right + at)
        if a != b:
            return -1 if a < b else 1
        if a == 0:
            break
    return 0


@piece
def _space(byte: Any) -> Any:
    return byte == 32 or (9 <= byte <= 13)


@piece
def _digit(byte: Any) -> Any:
    if 48 <= byte <= 57:
        return byte - 48
    if 97 <= byte <= 122:
        return byte - 87
    if 65 <= byte <= 90:
        return byte - 55
    return 99


@piece
def _parse(text: Any, size: Any, flags: Any, signed: Any, out: Any) -> Any:
    """As __bpf_strtoull of kernel/bpf/helpers.c: gives the characters read, the number at `out`."""
    base = flags & 0x1F
    if size <= 0 or flags & ~0x1F != 0 or base not in (0, 8, 10, 16):
        return EINVAL
    size = min(size, 63)
    at = 0
    while at < size and _space(load8(text + at)):
        at += 1
    negative = signed and at < size and load8(text + at) == 45
    if negative:
        at += 1
    first = at
    if at < size and load8(text + at) == 48:
        hexadecimal = at + 2 < size and (load8(text + at + 1) | 32) == 120 and _digit(load8(text + at + 2)) < 16
        if base == 0:
            base = 16 if hexadecimal else 8
        if base == 16 and hexadecimal:
            at += 2
            first = at
    elif base == 0:
        base = 10
    value = 0
    overflow = False
    while at < size:
        digit = _digit(load8(text + at))
        if digit >= base:
            break
        if shift_right(value, 60) != 0:
            overflow = overflow or _too_large(value, base, digit)
        value = value * base + digit
        at += 1
    if at == first:
        return EINVAL
    if overflow:
        return ERANGE
    if signed:
        if negative:
            if value < 0 and value != -_LIMIT - 1:
                return ERANGE
            value = -value
        elif value < 0:
            return ERANGE
    store64(out, value)
    return at


@piece
def _too_large(value: Any, base: Any, digit: Any) -> Any:
    """Whether value * base + digit, unsigned, takes more than 64 bits."""
    high = shift_right(value, 32) * base + shift_right((value & 0xFFFFFFFF) * base + digit, 32)
    return shift_right(high, 32) != 0


def strtol(text: Any, size: Any, flags: Any, out: Any, e: Any, machine: Any) -> Any:
    """bpf_strtol."""
    return _parse(text, size, flags, True, out)


def strtoul(text: Any, size: Any, flags: Any, out: Any, e: Any, machine: Any) -> Any:
    """bpf_strtoul."""
    return _parse(text, size, flags, False, out)


def redirect(target: Any, flags: Any, c: Any, d: Any, e: Any, machine: Any) -> Any:
    """bpf_redirect: by interface index."""
    if load32(machine + KIND) == KIND_XDP:
        if flags != 0:
            return 0
    elif flags & ~1 != 0:
        return TC_SHOT
    store64(machine + REDIRECT_MAP, 0)
    store32(machine + REDIRECT_KEY, 0)
    store32(machine + REDIRECT_TARGET, target & 0xFFFFFFFF)
    return XDP_REDIRECT if load32(machine + KIND) == KIND_XDP else TC_REDIRECT


def redirect_map(m: Any, key: Any, flags: Any, d: Any, e: Any, machine: Any) -> Any:
    """bpf_redirect_map: by a map's entry; where there is none, the action in the flags' low two bits."""
    kind = load32(m + TYPE)
    devices = kind == DEVMAP or kind == DEVMAP_HASH  # noqa: PLR1714
    if flags & ~(27 if devices else 3) != 0:
        return 0
    key &= 0xFFFFFFFF
    store32(machine + REDIRECT_KEY, key)
    target = 0
    if kind == DEVMAP_HASH:
        node = node_of(m, machine + REDIRECT_KEY)
        if node != 0:
            target = load32(node + load32(m + VALUE_OFFSET))
    elif key < load32(m + MAX_ENTRIES):
        target = load32(element(m, machine + REDIRECT_KEY))
    if target == 0 and flags & 8 == 0:
        return flags & 3
    store64(machine + REDIRECT_MAP, m)
    store32(machine + REDIRECT_TARGET, target)
    return XDP_REDIRECT


def perf_event_output(context: Any, m: Any, flags: Any, data: Any, size: Any, machine: Any) -> Any:
    """bpf_perf_event_output: the data, and as many bytes of the packet as bits 32 to 51 of the flags say."""
    packet_bytes = shift_right(flags, 32)
    if packet_bytes & ~0xFFFFF != 0:
        return EINVAL
    cpu = flags & 0xFFFFFFFF
    if cpu != 0xFFFFFFFF and cpu != load32(machine + MACHINE_CPU):
        return -95 if cpu < 4096 else -7
    start = 0
    if packet_bytes != 0:
        start = load64(context + DATA)
        if packet_bytes > load64(context + DATA_END) - start:
            return -14
    size &= 0xFFFFFFFF
    place = reserve(m, size + packet_bytes, machine)
    if place == 0:
        return -28
    copy(place, data, size)
    if packet_bytes != 0:
        copy(place + size, start, packet_bytes)
    finish(m, place, READY)
    return 0
