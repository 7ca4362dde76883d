"""One side's segments: kept in order with holes and overlaps, given out as they are acknowledged, dropped when read.

Like Suricata, segments are kept as they came until they are read, so that one that overlaps others is judged by all
of them; every segment holds the bytes that the receiver sees.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from flowshunt.compiled import BYTES, column, kernel
from flowshunt_ids.layout import PIECE, SEGMENT, SIDE, SIDE_STARTED
from flowshunt_ids.streams.overlap import resolve
from flowshunt_ids.streams.packet import ahead, wrap
from flowshunt_ids.streams.pool import GAPS, HELD, LIMIT, LOST_BYTES, POOL, Pool, give_block, retire, take_node

_I64 = types.int64
_SIDES = column(SIDE)

MAX_SEGMENTS = 4096
"""The most segments that one side keeps; more are not taken."""

TAKEN, BEFORE, FULL, MANY, DIFFERENT = 0, 1, 2, 3, 4
"""A segment is: kept; before what is kept; no memory; too many; kept, but it differs from what it overlaps."""


class Output(NamedTuple):
    """What a batch gives out.

    Attributes:
        segments, pieces: stream data, and the pieces it is made of.
        counts: int64[4]: how many segments, pieces, touched sides and events there are.
    """

    segments: NDArray[Any]
    pieces: NDArray[Any]
    counts: NDArray[np.int64]


OUTPUT = types.NamedTuple([column(SEGMENT), column(PIECE), column(np.int64)], Output)


@kernel(types.uint32(POOL, _I64), inline=True, entry=False)
def _end(pool: Pool, node: int) -> Any:
    return np.uint32(pool.nodes[node].seq + np.uint32(pool.nodes[node].length))


@kernel(types.void(POOL, _SIDES, _I64), entry=False)
def _extend(pool: Pool, sides: NDArray[Any], side: int) -> None:
    """Find how far the segments go without a hole."""
    me = sides[side]
    last = np.int64(me.middle)
    node = np.int64(me.head) if last < 0 else np.int64(pool.nodes[last].next)
    while node >= 0 and ahead(pool.nodes[node].seq, me.next) <= 0:
        end = _end(pool, node)
        if ahead(end, me.next) > 0:
            me.next = end
        last = node
        node = np.int64(pool.nodes[node].next)
    me.middle = last


@kernel(types.boolean(POOL, _SIDES, _I64, _I64, _I64, _I64, _I64, _I64), entry=False)
def _link(
    pool: Pool, sides: NDArray[Any], side: int, before: int, seq: int, length: int, source: int, block: int
) -> bool:
    """Put a segment into the list after node `before` (-1: first); False: there is no node."""
    node = take_node(pool)
    if node < 0:
        pool.state[LOST_BYTES] += length
        return False
    me, made = sides[side], pool.nodes[node]
    made.source = source
    made.block = block
    made.seq = seq
    made.length = length
    made.capacity = length
    if before >= 0:
        made.next = pool.nodes[before].next
        pool.nodes[before].next = node
    else:
        made.next = me.head
        me.head = node
    if made.next < 0:
        me.tail = node
    me.count += 1
    me.flags |= SIDE_STARTED
    pool.state[HELD] += length
    end = wrap(seq + length)
    if ahead(end, me.right) > 0:
        me.right = end
    if ahead(seq, me.next) <= 0:
        _extend(pool, sides, side)
    return True


@kernel(_I64(POOL, _SIDES, _I64, _I64, _I64, _I64, types.boolean, BYTES, BYTES), entry=False)
def insert(
    pool: Pool,
    sides: NDArray[Any],
    side: int,
    seq: int,
    length: int,
    source: int,
    compare: bool,
    data: NDArray[np.uint8],
    extra: NDArray[np.uint8],
) -> Any:
    """Add the bytes at `source` of the batch's buffer to a side. Returns what became of them (TAKEN ...)."""
    me = sides[side]
    late = ahead(me.base, seq)
    if late >= length:
        return BEFORE
    if late > 0:
        seq, source, length = wrap(seq + late), source + late, length - late
    if pool.state[HELD] + length > pool.state[LIMIT]:
        pool.state[LOST_BYTES] += length
        return FULL
    if me.count >= MAX_SEGMENTS:
        pool.state[LOST_BYTES] += length
        return MANY
    tail = np.int64(me.tail)
    if tail < 0 or ahead(seq, me.right) >= 0:
        return TAKEN if _link(pool, sides, side, tail, seq, length, source, -1) else FULL
    end = wrap(seq + length)
    before, node, first, begin = np.int64(-1), np.int64(me.head), np.int64(-1), np.int64(-1)
    middle = np.int64(me.middle)
    if middle >= 0 and ahead(seq, me.next) >= 0:
        before, node = middle, np.int64(pool.nodes[middle].next)
    while node >= 0:
        begins = ahead(pool.nodes[node].seq, seq)
        if begins > 0 or (begins == 0 and pool.nodes[node].length >= length):
            break
        if ahead(_end(pool, node), seq) <= 0:
            first = np.int64(-1)
        elif first < 0:
            first = node
        if begin < 0 and first >= 0:
            begin = first
        before, node = node, np.int64(pool.nodes[node].next)
    twin = np.int64(-1)
    if node >= 0 and ahead(pool.nodes[node].seq, end) < 0:
        if np.int64(pool.nodes[node].seq) == seq and pool.nodes[node].length == length:
            twin = node
        if first < 0:
            first = node
        if begin < 0:
            begin = first
    if begin < 0:
        return TAKEN if _link(pool, sides, side, before, seq, length, source, -1) else FULL
    found = resolve(pool, me.policy, begin, first, seq, length, source, compare, data, extra)
    if found < 0:
        pool.state[LOST_BYTES] += length
        return FULL
    differ = 0
    if compare:
        differ = found & 1
        found >>= 1
    if twin >= 0:
        give_block(pool, found, length)
    elif not _link(pool, sides, side, before, seq, length, found, found):
        give_block(pool, found, length)
        return FULL
    return DIFFERENT if differ else TAKEN


@kernel(types.void(POOL, _SIDES, _I64, _I64), entry=False)
def prune(pool: Pool, sides: NDArray[Any], side: int, left: int) -> None:
    """Drop the segments before `left`: nothing reads them any more."""
    me = sides[side]
    left = wrap(left)
    if ahead(left, me.base) <= 0:
        return
    me.base = left
    again = False
    if ahead(left, me.next) > 0:
        me.next = left
        again = True
    node = np.int64(me.head)
    while node >= 0 and ahead(_end(pool, node), left) <= 0:
        following = np.int64(pool.nodes[node].next)
        if node == me.middle:
            me.middle = -1
            again = True
        retire(pool, node)
        me.count -= 1
        node = following
    me.head = node
    if node < 0:
        me.tail = me.middle = -1
    elif again:
        _extend(pool, sides, side)


@kernel(types.void(POOL, _SIDES, _I64), entry=False)
def forget(pool: Pool, sides: NDArray[Any], side: int) -> None:
    """Give up all that a side keeps."""
    me = sides[side]
    node = np.int64(me.head)
    while node >= 0:
        following = np.int64(pool.nodes[node].next)
        retire(pool, node)
        node = following
    me.head = me.tail = me.middle = -1
    me.count = 0


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


@kernel(types.UniTuple(_I64, 2)(POOL, _SIDES, _I64, _I64, _I64, OUTPUT), entry=False)
def read(pool: Pool, sides: NDArray[Any], side: int, begin: int, end: int, out: Output) -> Any:
    """Give out the bytes of a side from `begin` to `end` or the next hole as pieces.

    Returns how many bytes lie there, and where the next segment begins after them (`end` or later: none before it).
    """
    at = begin
    node = np.int64(sides[side].head)
    while node >= 0 and ahead(at, end) < 0:
        mine = pool.nodes[node]
        skip = ahead(at, mine.seq)
        if skip < 0:
            return ahead(at, begin), np.int64(mine.seq)
        count = np.int64(mine.length) - skip
        if count > 0:
            count = min(count, ahead(end, at))
            if mine.source < 0:
                return ahead(at, begin), wrap(at + count)
            add_piece(out, mine.source + skip, count, 1 if mine.block >= 0 else 0)
            at = wrap(at + count)
        node = np.int64(mine.next)
    return ahead(at, begin), end


@kernel(types.void(POOL, _SIDES, _I64, types.boolean, OUTPUT, _I64, _I64, _I64), entry=False)
def inspect_pending(
    pool: Pool, sides: NDArray[Any], side: int, everything: bool, out: Output, row: int, scan: int, flags: int
) -> None:
    """Give out what was not inspected yet, up to what is acknowledged or everything, as segments; holes part them.

    What comes after a hole is inspected once more with what follows it, as in Suricata.
    """
    me = sides[side]
    end = np.int64(me.right)
    if not everything and ahead(me.acked, end) < 0:
        end = np.int64(me.acked)
    begin = np.int64(me.seen)
    passed = False
    while ahead(end, begin) > 0:
        first = out.counts[1]
        length, following = read(pool, sides, side, begin, end, out)
        add_segment(out, first, row, side >> 1, me.group, scan, length, flags)
        me.seen = begin if passed else wrap(begin + length)
        begin = wrap(begin + length)
        if ahead(following, end) >= 0:
            break
        pool.state[GAPS] += 1
        begin = following
        passed = True
