"""The batch driver's loop."""

from typing import Any

import numpy as np
from numba import types

from flowshunt.compiled import column, kernel
from flowshunt_ebpf.contexts.layout import DATA, DATA_END, DATA_META, HARD_END, HARD_START
from flowshunt_ebpf.maps.raw import call1, copy, load16, load32, load64, store32, store64
from flowshunt_ebpf.native.state import (
    BUDGET,
    DRAIN,
    FAULT,
    KIND,
    KIND_XDP,
    LOCK_HELD,
    REDIRECT_KEY,
    REDIRECT_MAP,
    REDIRECT_TARGET,
)  # fmt: skip

_XDP_INGRESS = 12
_SKB_LEN = 0
_SKB_PROTOCOL = 16
_SKB_INGRESS = 36
_SKB_WIRE_LEN = 160


@kernel(
    types.int64(
        column(np.int64), types.int64, column(np.int64), column(np.uint32), column(np.uint32), column(np.uint64),
        column(np.int32), column(np.uint32), column(np.uint32), column(np.uint8), column(np.uint8), column(np.uint8),
        column(np.int64),
    )
)  # fmt: skip
def run_frames(
    settings: Any,
    first: Any,
    offset: Any,
    length: Any,
    ingress: Any,
    value: Any,
    start: Any,
    out_length: Any,
    redirect: Any,
    fault: Any,
    record: Any,
    packets: Any,
    packet_offset: Any,
) -> Any:
    """Run frames from `first` on; gives the first one that was not run: all are done, or a ring wants to be drained.

    Every frame was checked to lie in its buffer and to fit. `settings`: see `BatchDriver.run_columns`.
    """
    entry, machine, context, data = settings[0], settings[1], settings[2], settings[3]
    buffer_start, buffer_end, headroom = settings[4], settings[5], settings[6]
    in_place, budget = settings[8] != 0, settings[9]
    record_from, record_size, keep, region = settings[10], settings[11], settings[12] != 0, settings[13]
    records = np.int64(record.ctypes.data)
    kept = np.int64(packets.ctypes.data)
    xdp = load32(machine + KIND) == KIND_XDP
    ports = len(ingress) > 0
    at = np.int64(0)
    if first > 0:
        at = packet_offset[first - 1] + np.int64(out_length[first - 1])
    store64(context + HARD_START, buffer_start)
    store64(context + HARD_END, buffer_end)
    store64(region + 16, 0)
    store64(region + 24, 0 if in_place else 1)
    for row in range(first, len(offset)):
        size = np.int64(length[row])
        place = data + offset[row]
        if in_place:
            store64(context + HARD_START, place)
            store64(context + HARD_END, place + size)
        else:
            source = place
            place = buffer_start + headroom
            copy(place, source, size)
        store64(context + DATA_META, place)
        store64(context + DATA, place)
        store64(context + DATA_END, place + size)
        store64(region, place)
        store64(region + 8, size)
        if xdp:
            if ports:
                store32(context + _XDP_INGRESS, np.int64(ingress[row]))
        else:
            store32(context + _SKB_LEN, size)
            store32(context + _SKB_WIRE_LEN, size)
            store32(context + _SKB_PROTOCOL, load16(place + 12) if size >= 14 else 0)
            if ports:
                store32(context + _SKB_INGRESS, np.int64(ingress[row]))
        store64(machine + BUDGET, budget)
        store64(machine + REDIRECT_MAP, 0)
        store64(machine + REDIRECT_KEY, 0)
        store64(machine + LOCK_HELD, 0)
        result = call1(entry, machine)
        stopped = load32(machine + FAULT)
        if stopped != 0:
            fault[row] = np.uint8(stopped)
            store32(machine + FAULT, 0)
            result = np.int64(0)
        value[row] = np.uint64(result)
        begin = load64(context + DATA)
        left = load64(context + DATA_END) - begin
        start[row] = np.int32(begin - place)
        out_length[row] = np.uint32(left)
        redirect[row] = np.uint32(load32(machine + REDIRECT_TARGET))
        if record_size > 0:
            copy(records + row * record_size, record_from, record_size)
        if keep and left >= 0 and at + left <= len(packets):
            copy(kept + at, begin, left)
            packet_offset[row] = at
            at += left
        if load32(machine + DRAIN) != 0:
            return row + 1
    return np.int64(len(offset))
