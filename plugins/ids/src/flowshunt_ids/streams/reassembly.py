"""One side's data in order: insertion with holes and overlaps, and cutting off what is inspected."""

from typing import Any, NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from flowshunt.compiled import column, kernel
from flowshunt_ids.layout import (
    PIECE,
    SEGMENT,
    SEGMENT_CHUNK,
    SEGMENT_ESTABLISHED,
    SEGMENT_GAP,
    SEGMENT_TO_CLIENT,
    SIDE,
    SIDE_APP,
    SIDE_NEWS,
    SIDE_STREAM,
)
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
    made = pool.nodes[node]
    made.source = source
    made.block = -1
    made.seq = seq
    made.length = length
    made.capacity = 0
    made.next = -1
    return node


@kernel(types.void(POOL, _SIDES, _I64, _I64), inline=True, entry=False)
def _append(pool: Pool, sides: NDArray[Any], side: int, node: int) -> None:
    me = sides[side]
    tail = me.tail
    if tail >= 0:
        pool.nodes[tail].next = node
    else:
        me.head = node
    pool.nodes[node].next = -1
    me.tail = node
    me.next = np.uint32(pool.nodes[node].seq + pool.nodes[node].length)


@kernel(types.void(POOL, _SIDES, _I64), entry=False)
def take_ahead(pool: Pool, sides: NDArray[Any], side: int) -> None:
    """Append the runs behind the hole that the stream has reached."""
    me = sides[side]
    node = me.ahead
    while node >= 0:
        late = distance(me.next, pool.nodes[node].seq)
        if late < 0:
            return
        following = pool.nodes[node].next
        me.ahead = following
        me.ahead_count -= 1
        if following < 0:
            me.ahead_tail = -1
        if late >= pool.nodes[node].length:
            retire(pool, node)
        else:
            pool.nodes[node].seq = me.next
            pool.nodes[node].source += late
            pool.nodes[node].length = pool.nodes[node].length - late
            _append(pool, sides, side, node)
        node = following


@kernel(types.void(POOL, _SIDES, _I64, types.uint32, _I64, _I64), entry=False)
def _insert_ahead(pool: Pool, sides: NDArray[Any], side: int, seq: Any, length: int, source: int) -> None:
    """Put bytes behind a hole, only where none were received before."""
    me = sides[side]
    before, node = np.int64(-1), me.ahead
    tail = me.ahead_tail
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
                before, node = node, pool.nodes[node].next
                continue
            part = min(length, distance(pool.nodes[node].seq, seq))
        else:
            part = length
        if me.ahead_count >= MAX_AHEAD:
            pool.state[LOST_BYTES] += length
            return
        fresh = _node(pool, seq, part, source)
        if fresh < 0:
            return
        pool.nodes[fresh].next = node
        if before >= 0:
            pool.nodes[before].next = fresh
        else:
            me.ahead = fresh
        if node < 0:
            me.ahead_tail = fresh
        me.ahead_count += 1
        before = fresh
        seq = np.uint32(np.int64(seq) + part)
        source += part
        length -= part


@kernel(types.void(POOL, _SIDES, _I64, types.uint32, _I64, _I64), entry=False)
def insert(pool: Pool, sides: NDArray[Any], side: int, seq: Any, length: int, source: int) -> None:
    """Add the bytes at `source` of the batch's buffer to a side. Of overlapping bytes those received first are kept."""
    me = sides[side]
    while length > 0:
        late = distance(me.next, seq)
        if late < 0:
            _insert_ahead(pool, sides, side, seq, length, source)
            return
        if late >= length:
            return
        seq = me.next
        source += late
        length -= late
        part = length
        ahead = me.ahead
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
    me = sides[side]
    if seq == me.next and me.ahead < 0:
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
    out.pieces[at].length = length
    out.pieces[at].arena = arena
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
    segment.row = row
    segment.slot = slot
    segment.group = group
    segment.start = 0
    segment.length = length
    segment.first_piece = first_piece
    segment.pieces = out.counts[1] - first_piece
    segment.scan = scan
    segment.flags = flags
    out.counts[0] = at + 1


@kernel(types.void(OUTPUT, _I64, _I64, _I64, _I64), entry=False)
def add_mark(out: Output, row: int, slot: int, value: int, flags: int) -> None:
    """A segment without bytes, which tells a parser something. `value` stands in the place of the group."""
    at = out.counts[0]
    if at >= len(out.segments):
        return
    segment = out.segments[at]
    segment.row = row
    segment.slot = slot
    segment.group = value
    segment.start = segment.length = segment.scan = 0
    segment.first_piece = out.counts[1]
    segment.pieces = 0
    segment.flags = flags
    out.counts[0] = at + 1


@kernel(types.void(POOL, _SIDES, _I64, types.uint32, OUTPUT, _I64, _I64), entry=False)
def deliver(pool: Pool, sides: NDArray[Any], side: int, end: Any, app: Output, row: int, flags: int) -> None:
    """Give a side's data up to `end` to its parser, as segments of `app`. Nothing is cut off: that is left to
    `inspect_pending`, which delivers before it cuts."""
    me = sides[side]
    if distance(end, me.parsed) <= 0:
        return
    flags = (flags & (SEGMENT_ESTABLISHED | SEGMENT_CHUNK)) | (SEGMENT_TO_CLIENT if side & 1 else 0)
    first = app.counts[1]
    length = np.int64(0)
    place = me.parsed
    node = me.head
    while node >= 0:
        begin = pool.nodes[node].seq
        if distance(end, begin) <= 0:
            break
        missing = distance(begin, place)
        if missing > 0:
            add_segment(app, first, row, side >> 1, 0, 0, length, flags)
            first = app.counts[1]
            length = np.int64(0)
            add_mark(app, row, side >> 1, missing, flags | SEGMENT_GAP)
            place = begin
            missing = np.int64(0)
        part = min(np.int64(pool.nodes[node].length), distance(end, begin)) + missing
        arena = 1 if pool.nodes[node].block >= 0 else 0
        if part > 0 and add_piece(app, pool.nodes[node].source - missing, part, arena):
            length += part
            place = np.uint32(np.int64(place) + part)
        node = pool.nodes[node].next
    add_segment(app, first, row, side >> 1, 0, 0, length, flags)
    me.parsed = end
    me.flags |= SIDE_NEWS


@kernel(types.void(POOL, _SIDES, _I64, types.boolean, OUTPUT, OUTPUT, _I64, _I64, _I64), entry=False)
def inspect_pending(
    pool: Pool,
    sides: NDArray[Any],
    side: int,
    everything: bool,
    out: Output,
    app: Output,
    row: int,
    scan: int,
    flags: int,
) -> None:
    """Cut off what one side has pending, up to what is acknowledged or everything, as segments; holes part segments."""
    me = sides[side]
    group = me.group
    wanted = (me.flags & SIDE_STREAM) != 0
    while True:
        end = me.next
        if not everything and distance(me.acked, end) < 0:
            end = me.acked
        if me.flags & SIDE_APP:
            deliver(pool, sides, side, end, app, row, flags)
        first = out.counts[1]
        length = np.int64(0)
        node = me.head
        while node >= 0:
            part = distance(end, pool.nodes[node].seq)
            if part <= 0:
                break
            whole = part >= pool.nodes[node].length
            if whole:
                part = pool.nodes[node].length
            if wanted:
                if add_piece(out, pool.nodes[node].source, part, 1 if pool.nodes[node].block >= 0 else 0):
                    length += part
                else:
                    pool.state[LOST_BYTES] += part
            if not whole:
                pool.nodes[node].source += part
                pool.nodes[node].seq = np.uint32(np.int64(pool.nodes[node].seq) + part)
                pool.nodes[node].length = pool.nodes[node].length - part
                break
            following = pool.nodes[node].next
            me.head = following
            if following < 0:
                me.tail = -1
            retire(pool, node)
            node = following
        add_segment(out, first, row, side >> 1, group, scan, length, flags)
        me.seen = end
        ahead = me.ahead
        if ahead < 0 or end != me.next:
            return
        if not everything and distance(me.acked, pool.nodes[ahead].seq) <= 0:
            return
        pool.state[GAPS] += 1
        me.next = pool.nodes[ahead].seq
        take_ahead(pool, sides, side)


@kernel(types.void(POOL, _SIDES, _I64), entry=False)
def forget(pool: Pool, sides: NDArray[Any], side: int) -> None:
    """Give up all that a side has pending."""
    me = sides[side]
    for ahead in range(2):
        node = np.int64(me.ahead if ahead else me.head)
        while node >= 0:
            following = pool.nodes[node].next
            retire(pool, node)
            node = following
    me.head = me.tail = -1
    me.ahead = me.ahead_tail = -1
    me.ahead_count = 0
