"""One side's data in order: insertion with holes and overlaps, and cutting off what is inspected."""

from typing import Any, NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from flowshunt.compiled import column, kernel
from flowshunt_ids.layout import PIECE, SEGMENT, SIDE
from flowshunt_ids.streams.pool import GAPS, LOST_BYTES, POOL, Pool, retire, take_node

_I64 = types.int64
_SIDES = column(SIDE)

MAX_AHEAD = 1024
"""The most runs of bytes that one side keeps behind holes."""


class Output(NamedTuple):
    """What is to be inspected: segments, the pieces they are made of, and int64[2], how many of each."""

    segments: NDArray[Any]
    pieces: NDArray[Any]
    counts: NDArray[np.int64]


OUTPUT = types.NamedTuple([column(SEGMENT), column(PIECE), column(np.int64)], Output)


@kernel(_I64(types.uint32, types.uint32), inline=True, entry=False)
def distance(later: Any, earlier: Any) -> Any:
    """How far one sequence number lies after another, modulo 2^32 (RFC 793, section 3.3): -2^31 to 2^31 - 1."""
    ahead = np.int64(np.uint32(later - earlier))
    return ahead - (1 << 32) if ahead >= 1 << 31 else ahead


@kernel(_I64(POOL, types.uint32, _I64, _I64), inline=True, entry=False)
def _node(pool: Pool, seq: Any, length: int, source: int) -> Any:
    node = take_node(pool)
    if node < 0:
        pool.state[LOST_BYTES] += length
        return node
    pool.nodes[node].source = source
    pool.nodes[node].block = -1
    pool.nodes[node].seq = seq
    pool.nodes[node].length = np.uint32(length)
    pool.nodes[node].capacity = np.uint32(0)
    pool.nodes[node].next = np.int32(-1)
    return node


@kernel(types.void(POOL, _SIDES, _I64, _I64), inline=True, entry=False)
def _append(pool: Pool, sides: NDArray[Any], side: int, node: int) -> None:
    tail = np.int64(sides[side].tail)
    if tail >= 0:
        pool.nodes[tail].next = np.int32(node)
    else:
        sides[side].head = np.int32(node)
    pool.nodes[node].next = np.int32(-1)
    sides[side].tail = np.int32(node)
    sides[side].next = np.uint32(pool.nodes[node].seq + pool.nodes[node].length)


@kernel(types.void(POOL, _SIDES, _I64), entry=False)
def take_ahead(pool: Pool, sides: NDArray[Any], side: int) -> None:
    """Append the runs behind the hole that the stream has reached."""
    node = np.int64(sides[side].ahead)
    while node >= 0:
        late = distance(sides[side].next, pool.nodes[node].seq)
        if late < 0:
            return
        following = np.int64(pool.nodes[node].next)
        sides[side].ahead = np.int32(following)
        sides[side].ahead_count -= np.uint32(1)
        if following < 0:
            sides[side].ahead_tail = np.int32(-1)
        if late >= np.int64(pool.nodes[node].length):
            retire(pool, node)
        else:
            pool.nodes[node].seq = sides[side].next
            pool.nodes[node].source += late
            pool.nodes[node].length = np.uint32(np.int64(pool.nodes[node].length) - late)
            _append(pool, sides, side, node)
        node = following


@kernel(types.void(POOL, _SIDES, _I64, types.uint32, _I64, _I64), entry=False)
def _insert_ahead(pool: Pool, sides: NDArray[Any], side: int, seq: Any, length: int, source: int) -> None:
    """Put bytes behind a hole, only where none were received before."""
    before, node = np.int64(-1), np.int64(sides[side].ahead)
    tail = np.int64(sides[side].ahead_tail)
    if tail >= 0 and distance(seq, np.uint32(pool.nodes[tail].seq + pool.nodes[tail].length)) >= 0:
        before, node = tail, np.int64(-1)
    while length > 0:
        if node >= 0:
            end = np.uint32(pool.nodes[node].seq + pool.nodes[node].length)
            if distance(seq, pool.nodes[node].seq) >= 0:
                over = distance(end, seq)
                if over > 0:
                    over = min(over, length)
                    seq = np.uint32(np.int64(seq) + over)
                    source += over
                    length -= over
                before, node = node, np.int64(pool.nodes[node].next)
                continue
            part = min(length, distance(pool.nodes[node].seq, seq))
        else:
            part = length
        if np.int64(sides[side].ahead_count) >= MAX_AHEAD:
            pool.state[LOST_BYTES] += length
            return
        fresh = _node(pool, seq, part, source)
        if fresh < 0:
            return
        pool.nodes[fresh].next = np.int32(node)
        if before >= 0:
            pool.nodes[before].next = np.int32(fresh)
        else:
            sides[side].ahead = np.int32(fresh)
        if node < 0:
            sides[side].ahead_tail = np.int32(fresh)
        sides[side].ahead_count += np.uint32(1)
        before = fresh
        seq = np.uint32(np.int64(seq) + part)
        source += part
        length -= part


@kernel(types.void(POOL, _SIDES, _I64, types.uint32, _I64, _I64))
def insert(pool: Pool, sides: NDArray[Any], side: int, seq: Any, length: int, source: int) -> None:
    """Add the bytes at `source` of the batch's buffer to a side. Of overlapping bytes those received first are kept."""
    while length > 0:
        late = distance(sides[side].next, seq)
        if late < 0:
            _insert_ahead(pool, sides, side, seq, length, source)
            return
        if late >= length:
            return
        seq = sides[side].next
        source += late
        length -= late
        part = length
        ahead = np.int64(sides[side].ahead)
        if ahead >= 0:
            part = min(part, distance(pool.nodes[ahead].seq, seq))
        node = _node(pool, seq, part, source)
        if node < 0:
            return
        _append(pool, sides, side, node)
        if ahead >= 0:
            take_ahead(pool, sides, side)
        source += part
        length -= part
        seq = np.uint32(np.int64(seq) + part)


@kernel(types.void(POOL, _SIDES, _I64, types.uint32, _I64, _I64), inline=True, entry=False)
def insert_next(pool: Pool, sides: NDArray[Any], side: int, seq: Any, length: int, source: int) -> None:
    """`insert`, with the most frequent case, bytes that follow on where there is no hole, in line."""
    if seq == sides[side].next and sides[side].ahead < 0:
        node = _node(pool, seq, length, source)
        if node >= 0:
            _append(pool, sides, side, node)
    else:
        insert(pool, sides, side, seq, length, source)


@kernel(types.boolean(OUTPUT, _I64, _I64, _I64), inline=True, entry=False)
def add_piece(out: Output, source: int, length: int, arena: int) -> bool:
    """Add bytes to the segment that is being made; False: no room."""
    at = out.counts[1]
    if at >= len(out.pieces):
        return False
    out.pieces[at].source = source
    out.pieces[at].length = np.uint32(length)
    out.pieces[at].arena = np.uint32(arena)
    out.counts[1] = at + 1
    return True


@kernel(types.void(OUTPUT, _I64, _I64, _I64, _I64, _I64, _I64, _I64), inline=True, entry=False)
def add_segment(
    out: Output, first_piece: int, row: int, slot: int, group: int, scan: int, length: int, flags: int
) -> None:
    """End a segment that is made of the pieces since `first_piece`."""
    at = out.counts[0]
    if at >= len(out.segments) or length <= 0:
        return
    segment = out.segments[at]
    segment.row = np.int32(row)
    segment.slot = np.int32(slot)
    segment.group = np.int32(group)
    segment.start = np.uint32(0)
    segment.length = np.uint32(length)
    segment.first_piece = np.uint32(first_piece)
    segment.pieces = np.uint32(out.counts[1] - first_piece)
    segment.scan = np.uint16(scan)
    segment.flags = np.uint16(flags)
    out.counts[0] = at + 1


@kernel(types.void(POOL, _SIDES, _I64, types.boolean, OUTPUT, _I64, _I64, _I64))
def inspect_pending(
    pool: Pool, sides: NDArray[Any], side: int, everything: bool, out: Output, row: int, scan: int, flags: int
) -> None:
    """Cut off what one side has pending, up to what is acknowledged or everything, as segments; holes part segments."""
    group = np.int64(sides[side].group)
    while True:
        end = sides[side].next
        if not everything and distance(sides[side].acked, end) < 0:
            end = sides[side].acked
        first = out.counts[1]
        length = np.int64(0)
        node = np.int64(sides[side].head)
        while node >= 0:
            part = distance(end, pool.nodes[node].seq)
            if part <= 0:
                break
            whole = part >= np.int64(pool.nodes[node].length)
            if whole:
                part = np.int64(pool.nodes[node].length)
            if add_piece(out, pool.nodes[node].source, part, 1 if pool.nodes[node].block >= 0 else 0):
                length += part
            else:
                pool.state[LOST_BYTES] += part
            if not whole:
                pool.nodes[node].source += part
                pool.nodes[node].seq = np.uint32(np.int64(pool.nodes[node].seq) + part)
                pool.nodes[node].length = np.uint32(np.int64(pool.nodes[node].length) - part)
                break
            following = np.int64(pool.nodes[node].next)
            sides[side].head = np.int32(following)
            if following < 0:
                sides[side].tail = np.int32(-1)
            retire(pool, node)
            node = following
        add_segment(out, first, row, side >> 1, group, scan, length, flags)
        sides[side].seen = end
        ahead = np.int64(sides[side].ahead)
        if ahead < 0 or end != sides[side].next:
            return
        if not everything and distance(sides[side].acked, pool.nodes[ahead].seq) <= 0:
            return
        pool.state[GAPS] += 1
        sides[side].next = pool.nodes[ahead].seq
        take_ahead(pool, sides, side)


@kernel(types.void(POOL, _SIDES, _I64), entry=False)
def forget(pool: Pool, sides: NDArray[Any], side: int) -> None:
    """Give up all that a side has pending."""
    for ahead in range(2):
        node = np.int64(sides[side].ahead if ahead else sides[side].head)
        while node >= 0:
            following = np.int64(pool.nodes[node].next)
            retire(pool, node)
            node = following
    sides[side].head = sides[side].tail = np.int32(-1)
    sides[side].ahead = sides[side].ahead_tail = np.int32(-1)
    sides[side].ahead_count = np.uint32(0)
