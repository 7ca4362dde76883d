"""Ring buffers and perf event arrays: records out of programs, taken by Python.

Data lies in the map's elements, room for it twice over, so that a record that starts before the end needs no wrap. What
is where stands apart, out of programs' reach: a table of records (position, bytes, state), 16 bytes each.
"""

from typing import Any, Final

from flowshunt.compiled import piece
from flowshunt_ebpf.maps.header import (
    HEAD,
    LOCK,
    LOST,
    MAX_ENTRIES,
    RECORD_HEAD,
    RECORD_MASK,
    RECORD_TAIL,
    RECORDS,
    TAIL,
    TYPE,
    VALUES,
)
from flowshunt_ebpf.maps.raw import copy, load32, load64, lock, store32, store64, unlock

BUSY: Final = 0
READY: Final = 1
DISCARDED: Final = 2

MACHINE_MAPS: Final = 144
MACHINE_MAP_COUNT: Final = 152
MACHINE_TRACE: Final = 160
MACHINE_DRAIN: Final = 168
RINGBUF: Final = 27


@piece
def reserve(m: Any, size: Any, machine: Any) -> Any:
    """The address of a new record of `size` bytes; 0 where there is no room. As in the kernel a header of 8 counts."""
    capacity = load32(m + MAX_ENTRIES)
    if size < 0 or size > capacity:
        return 0
    whole = (size + 8 + 7) & ~7
    lock(m + LOCK)
    head = load64(m + HEAD)
    records = load64(m + RECORD_HEAD)
    used = head + whole - load64(m + TAIL)
    place = 0
    if used > capacity or records - load64(m + RECORD_TAIL) > load32(m + RECORD_MASK):
        store64(m + LOST, load64(m + LOST) + 1)
    else:
        position = head % capacity
        record = load64(m + RECORDS) + 16 * (records & load32(m + RECORD_MASK))
        store64(record, position)
        store32(record + 8, size)
        store32(record + 12, BUSY)
        store64(m + HEAD, head + whole)
        store64(m + RECORD_HEAD, records + 1)
        place = load64(m + VALUES) + position
    if machine != 0 and used > capacity // 2:
        store32(machine + MACHINE_DRAIN, 1)
    unlock(m + LOCK)
    return place


@piece
def finish(m: Any, place: Any, state: Any) -> Any:
    """Mark the busy record at an address; gives whether there is one."""
    position = place - load64(m + VALUES)
    number = load64(m + RECORD_HEAD)
    lowest = load64(m + RECORD_TAIL)
    while number > lowest:
        number -= 1
        record = load64(m + RECORDS) + 16 * (number & load32(m + RECORD_MASK))
        if load64(record) == position and load32(record + 12) == BUSY:
            store32(record + 12, state)
            return True
    return False


@piece
def _finish_anywhere(place: Any, state: Any, machine: Any) -> Any:
    maps = load64(machine + MACHINE_MAPS)
    for number in range(load64(machine + MACHINE_MAP_COUNT)):
        m = load64(maps + 8 * number)
        if load32(m + TYPE) == RINGBUF:
            first = load64(m + VALUES)
            if first <= place < first + 2 * load32(m + MAX_ENTRIES):
                finish(m, place, state)
                return


@piece
def write(m: Any, data: Any, size: Any, machine: Any) -> Any:
    """Append a record; gives whether there was room."""
    place = reserve(m, size, machine)
    if place == 0:
        return False
    copy(place, data, size)
    finish(m, place, READY)
    return True


def ringbuf_output(m: Any, data: Any, size: Any, flags: Any, e: Any, machine: Any) -> Any:
    """bpf_ringbuf_output. Flags 1 and 2 are about waking the reader."""
    if flags & ~3 != 0:
        return -22
    return 0 if write(m, data, size, machine) else -11


def ringbuf_reserve(m: Any, size: Any, flags: Any, d: Any, e: Any, machine: Any) -> Any:
    """bpf_ringbuf_reserve."""
    return reserve(m, size, machine) if flags == 0 else 0


def ringbuf_submit(place: Any, flags: Any, c: Any, d: Any, e: Any, machine: Any) -> Any:
    """bpf_ringbuf_submit."""
    _finish_anywhere(place, READY, machine)
    return 0


def ringbuf_discard(place: Any, flags: Any, c: Any, d: Any, e: Any, machine: Any) -> Any:
    """bpf_ringbuf_discard."""
    _finish_anywhere(place, DISCARDED, machine)
    return 0


def ringbuf_query(m: Any, flags: Any, c: Any, d: Any, e: Any, machine: Any) -> Any:
    """bpf_ringbuf_query: available data, size, consumer's and producer's positions."""
    if flags == 0:
        return load64(m + HEAD) - load64(m + TAIL)
    if flags == 1:
        return load32(m + MAX_ENTRIES)
    if flags == 2:
        return load64(m + TAIL)
    if flags == 3:
        return load64(m + HEAD)
    return 0


def trace_printk(text: Any, size: Any, first: Any, second: Any, third: Any, machine: Any) -> Any:
    """bpf_trace_printk: the format and its arguments go out as they are; Python puts them together."""
    ring = load64(machine + MACHINE_TRACE)
    if ring == 0 or size <= 0 or size > 512:
        return -22
    place = reserve(ring, size + 24, machine)
    if place == 0:
        return -11
    store64(place, first)
    store64(place + 8, second)
    store64(place + 16, third)
    copy(place + 24, text, size)
    finish(ring, place, READY)
    return size - 1
