"""Overlapping segments: whose bytes a receiver keeps, by its operating system (`host-os-policy`)."""

# ruff: noqa: PLR1714, SIM109 -- kernels compare scalars

from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from flowshunt.compiled import BYTES, kernel
from flowshunt_ids.layout import POLICIES
from flowshunt_ids.memory import copy_bytes
from flowshunt_ids.streams.packet import ahead, wrap
from flowshunt_ids.streams.pool import POOL, Pool, copy_frame_bytes, give_block, retire, take_block, take_node

_I64 = types.int64

_LAST, _LINUX, _OLD_LINUX, _SOLARIS, _HPUX11 = (
    POLICIES.index(name) for name in ("last", "linux", "old-linux", "solaris", "hpux11")
)
_EARLIER_WINS = tuple(
    POLICIES.index(name)
    for name in ("bsd", "bsd-right", "hpux10", "irix", "windows", "windows2k3", "old-linux", "linux", "macos")
)
"""Policies by which a new segment that begins before an old one wins."""
_EARLIER = sum(1 << policy for policy in _EARLIER_WINS)


@kernel(types.boolean(_I64, _I64, _I64), inline=True, entry=False)
def new_wins(policy: int, before: int, beyond: int) -> bool:
    """Whether a new segment's bytes replace those of an old one that it overlaps.

    before: by how much the new one begins before the old one (negative: after it); beyond: how far it ends after it.
    """
    if policy == _LAST:
        return True
    if before == 0:
        if beyond > 0 and policy == _LINUX:
            return True
        return beyond >= 0 and (policy == _OLD_LINUX or policy == _SOLARIS or policy == _HPUX11)
    if before > 0:
        return (_EARLIER >> policy & 1) != 0 or (beyond >= 0 and (policy == _SOLARIS or policy == _HPUX11))
    return beyond > 0 and (policy == _SOLARIS or policy == _HPUX11)


@kernel(types.boolean(POOL, _I64, BYTES, BYTES), entry=False)
def _own(pool: Pool, node: int, data: NDArray[np.uint8], extra: NDArray[np.uint8]) -> bool:
    """Give a segment a block of its own to write to; what is read already stays as it is until the batch ends."""
    mine = pool.nodes[node]
    length, source, old = np.int64(mine.length), np.int64(mine.source), np.int64(mine.block)
    if source < 0:
        return False
    block = take_block(pool, length)
    if block < 0:
        return False
    if old < 0:
        copy_frame_bytes(pool.arena, block, data, extra, source, length)
    else:
        spare = take_node(pool)
        if spare < 0:
            give_block(pool, block, length)
            return False
        copy_bytes(pool.arena, block, pool.arena, source, length)
        pool.nodes[spare].block = old
        pool.nodes[spare].source = old
        pool.nodes[spare].capacity = mine.capacity
        pool.nodes[spare].length = 0
        retire(pool, spare)
    mine.source = mine.block = block
    mine.capacity = length
    return True


@kernel(types.boolean(POOL, _I64, _I64, _I64, _I64, _I64, BYTES, BYTES, types.boolean), entry=False)
def _differs(
    pool: Pool,
    node: int,
    at: int,
    block: int,
    place: int,
    count: int,
    data: NDArray[np.uint8],
    extra: NDArray[np.uint8],
    copy: bool,
) -> bool:
    """Compare bytes of a segment with those of a block; `copy`: copy them to it instead."""
    mine = pool.nodes[node]
    source = np.int64(mine.source) + at
    if mine.source < 0 or block + place + count > len(pool.arena):
        return False
    if copy:
        if mine.block >= 0:
            copy_bytes(pool.arena, block + place, pool.arena, source, count)
        else:
            copy_frame_bytes(pool.arena, block + place, data, extra, source, count)
        return False
    for step in range(count):
        if mine.block >= 0:
            byte = pool.arena[source + step]
        elif source >= len(data):
            byte = extra[source + step - len(data)] if source + step - len(data) < len(extra) else np.uint8(0)
        else:
            byte = data[source + step] if source + step < len(data) else np.uint8(0)
        if byte != pool.arena[block + place + step]:
            return True
    return False


@kernel(_I64(POOL, _I64, _I64, _I64, _I64, _I64, _I64, types.boolean, BYTES, BYTES), entry=False)
def resolve(
    pool: Pool,
    policy: int,
    begin: int,
    first: int,
    seq: int,
    length: int,
    source: int,
    compare: bool,
    data: NDArray[np.uint8],
    extra: NDArray[np.uint8],
) -> Any:
    """The bytes of a new segment that overlaps those from node `begin` on, as the receiver sees them, in a block.

    Those before node `first` (-1: all) are not asked: new bytes replace theirs. It is so in Suricata where between them
    and the new segment lies one that it does not overlap.

    Where new bytes win, they are written to the old segments too. Returns
    the block, or -1 where there is no room; with `compare` it is shifted left by one, and the last bit says whether
    overlapping bytes differed; a segment of the very same range is not compared, as in Suricata.
    """
    block = take_block(pool, length)
    if block < 0:
        return -1
    copy_frame_bytes(pool.arena, block, data, extra, source, length)
    end = wrap(seq + length)
    differ, rewrite = False, False
    for turn in range(2 if compare else 1):
        looking = compare and turn == 0
        node: Any = np.int64(begin)
        judging = False
        while node >= 0 and ahead(pool.nodes[node].seq, end) < 0:
            judging = judging or node == first
            mine = pool.nodes[node]
            over = ahead(seq, mine.seq)
            at = max(over, 0)
            place = max(-over, 0)
            count: Any = min(np.int64(mine.length) - at, length - place)
            if count > 0:
                beyond = ahead(end, wrap(np.int64(mine.seq) + np.int64(mine.length)))
                if not judging:
                    rewrite = True
                elif looking:
                    twin = over == 0 and beyond == 0
                    differ |= not twin and _differs(pool, node, at, block, place, count, data, extra, False)
                elif new_wins(policy, -over, beyond):
                    rewrite = True
                else:
                    _differs(pool, node, at, block, place, count, data, extra, True)
            node = np.int64(mine.next)
    node = np.int64(begin if rewrite else -1)
    while node >= 0 and ahead(pool.nodes[node].seq, end) < 0:
        mine = pool.nodes[node]
        over = ahead(seq, mine.seq)
        at = max(over, 0)
        place = max(-over, 0)
        count = min(np.int64(mine.length) - at, length - place)
        if count > 0 and _own(pool, node, data, extra):
            copy_bytes(pool.arena, np.int64(mine.source) + at, pool.arena, block + place, count)
        node = np.int64(mine.next)
    if compare:
        return block << 1 | (1 if differ else 0)
    return block
