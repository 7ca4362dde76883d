"""Compiled stages between reassembly and verdicts: gather segments, turn scan hits and rule lists into candidates."""

from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from flowshunt.compiled import column, kernel
from flowshunt_ids.layout import (
    CANDIDATE,
    PACKETS,
    PIECE,
    ROW_ESTABLISHED,
    ROW_FIRST,
    ROW_PASSED,
    RULE_ARRAYS,
    RULE_CHUNK_ONLY,
    RULE_SETS_BITS,
    SEGMENT,
    SEGMENT_CHUNK,
    SEGMENT_ESTABLISHED,
    SEGMENT_KINDS,
    SEGMENT_STREAM,
    SESSION,
    SESSION_BITS,
    Packets,
    RuleArrays,
)
from flowshunt_ids.matching import PAIRS, SCRATCH, first_test, match_payload, note_pairs, test_packet
from flowshunt_ids.memory import copy_bytes, prefetch
from flowshunt_ids.streams.pool import copy_frame_bytes

_I64 = types.int64
_BUFFER = column(np.uint8)
_SEGMENTS = column(SEGMENT)
_ORDER = column(np.int64, readonly=True)
_CANDIDATES = column(CANDIDATE)

_AHEAD = 4
"""Segments ahead whose first bytes are asked for while one is copied: payloads lie far apart in memory."""
_LINES = 4
"""Cache lines of them that are asked for; the processor fetches what follows by itself."""

HIT_SHIFT = 24
"""A scan hit is one number: the end offset in the scan buffer, shifted by this, plus the pattern's number."""


@kernel(_I64(_SEGMENTS, _I64, column(np.int64), column(np.int64)))
def arrange(segments: NDArray[Any], count: int, order: NDArray[np.int64], begins: NDArray[np.int64]) -> Any:
    """Order the first `count` segments by scan class, otherwise as they stand; gives the length of the longest.

    order: int64[count] or more. begins: int64[classes + 1]; class c ends up in order[begins[c]:begins[c + 1]].
    """
    longest = np.int64(0)
    last = len(begins) - 2
    for place in range(len(begins)):
        begins[place] = 0
    for at in range(count):
        length = segments[at].length
        longest = length if length > longest else longest
        scan = segments[at].scan
        begins[(scan if scan < last else last) + 1] += 1
    for place in range(1, len(begins)):
        begins[place] += begins[place - 1]
    for at in range(count):
        scan = segments[at].scan
        scan = scan if scan < last else np.int64(last)
        order[begins[scan]] = at
        begins[scan] += 1
    for place in range(len(begins) - 1, 0, -1):
        begins[place] = begins[place - 1]
    begins[0] = 0
    return longest


@kernel(types.UniTuple(_I64, 2)(_SEGMENTS, column(PIECE, readonly=True), _ORDER, _I64, _I64, PACKETS, _BUFFER, _BUFFER))
def gather(
    segments: NDArray[Any],
    pieces: NDArray[Any],
    order: NDArray[np.int64],
    begin: int,
    end: int,
    packets: Packets,
    arena: NDArray[np.uint8],
    buffer: NDArray[np.uint8],
) -> Any:
    """Copy segments order[begin:end] into the scan buffer, one after the other, as many as fit.

    Returns where it stopped in `order`, and how many bytes of the buffer are filled.
    """
    filled = np.int64(0)
    at = begin
    while at < end:
        number = order[at]
        length = segments[number].length
        if filled + length > len(buffer):
            break
        if at + _AHEAD < end:
            coming = pieces[segments[order[at + _AHEAD]].first_piece]
            if not coming.arena:
                for line in range(_LINES):
                    prefetch(packets.data, coming.source + 64 * line)
        segments[number].start = filled
        first = segments[number].first_piece
        for piece in range(first, first + segments[number].pieces):
            source = pieces[piece].source
            count = pieces[piece].length
            if pieces[piece].arena:
                if source >= 0 and source + count <= len(arena):
                    copy_bytes(buffer, filled, arena, source, count)
            else:
                copy_frame_bytes(buffer, filled, packets.data, packets.extra, source, count)
            filled += count
        at += 1
    return at, filled


@kernel(
    types.UniTuple(_I64, 2)(
        RULE_ARRAYS,
        column(np.uint64, readonly=True),
        _I64,
        column(np.int32, readonly=True),
        column(np.int32, readonly=True),
        column(np.int64),
        _SEGMENTS,
        _ORDER,
        _I64,
        _I64,
        _BUFFER,
        PACKETS,
        column(SESSION),
        SCRATCH,
        PAIRS,
        _CANDIDATES,
    )
)
def match_segments(
    arrays: RuleArrays,
    hits: NDArray[np.uint64],
    done: int,
    pattern_start: NDArray[np.int32],
    pattern_rules: NDArray[np.int32],
    last_segment: NDArray[np.int64],
    segments: NDArray[Any],
    order: NDArray[np.int64],
    begin: int,
    end: int,
    buffer: NDArray[np.uint8],
    packets: Packets,
    sessions: NDArray[Any],
    scratch: NDArray[np.int64],
    pairs: NDArray[np.int32],
    out: NDArray[Any],
) -> Any:
    """Candidates in the gathered segments order[begin:end]: of scan hits, or of the rules that have no pattern.

    hits: from number `done` on. Without patterns (len(pattern_start) == 0), what is done are segments: the rules of
    their groups without a pattern are tried in segments order[done:end].
    pattern_start, pattern_rules: the rules of pattern p are pattern_rules[pattern_start[p]:pattern_start[p + 1]].
    last_segment: -1 for each pattern before the first call for a buffer.
    pairs: see `matching.note_pairs`; one pass over a segment spares most of the rules without a pattern their search.
    Returns how many hits (or segments) are done, and how many candidates were made; where not all are done, `out` has
    no more room. Flows whose flowbits a match may set are noted in `sessions`.
    """
    count = np.int64(0)
    rule_rows, tests_of, members = arrays.rules, arrays.tests, arrays.members
    lists, groups, headers = arrays.lists, arrays.groups, packets.headers
    scanned = len(pattern_start) > 0
    last = len(hits) if scanned else end
    for at in range(done, last):
        pattern, found = np.int64(0), at
        if scanned:
            pattern = np.int64(hits[at] & np.uint64((1 << HIT_SHIFT) - 1))
            place = np.int64(hits[at] >> np.uint64(HIT_SHIFT)) - 1
            if pattern + 1 >= len(pattern_start):
                continue
            found, high = begin, end
            while high - found > 1:
                middle = (found + high) >> 1
                if segments[order[middle]].start <= place:
                    found = middle
                else:
                    high = middle
            if last_segment[pattern] == found:
                continue
        number = order[found]
        segment = segments[number]
        group = groups[segment.group]
        if scanned:
            first = np.int64(pattern_start[pattern])
            rules = pattern_start[pattern + 1] - first
        elif segment.flags & SEGMENT_STREAM:
            first, rules = np.int64(group.stream_start), np.int64(group.stream_count)
        else:
            first, rules = np.int64(group.payload_start), np.int64(group.payload_count)
        if count + rules > len(out):
            return at, count
        if scanned:
            last_segment[pattern] = found
        row, start = segment.row, segment.start
        base, beyond = np.int64(0), np.int64(0)
        if row >= 0:
            base = packets.offset[row]
            beyond = base + np.int64(packets.captured[row])
        established = ROW_ESTABLISHED if segment.flags & SEGMENT_ESTABLISHED else 0
        noted = False
        for listed in range(first, first + rules):
            number_of_rule = pattern_rules[listed] if scanned else lists[listed]
            if scanned:
                word = members[segment.group, number_of_rule >> 6] >> np.uint64(number_of_rule & 63)
                if not word & np.uint64(1):
                    continue
            rule = rule_rows[number_of_rule]
            if not rule.flags & segment.flags & SEGMENT_KINDS:
                continue
            if rule.flags & RULE_CHUNK_ONLY and not segment.flags & SEGMENT_CHUNK:
                continue
            anchor = rule.anchor
            if anchor >= 0 and (anchor >= segment.length or buffer[start + anchor] != rule.anchor_byte):
                continue
            if rule.tests and row >= 0 and first_test(tests_of, rule.first_test, headers, row) == 0:
                continue
            if not scanned and rule.pair >= 0:
                if not noted:
                    note_pairs(buffer, start, start + segment.length, pairs)
                    noted = True
                if pairs[rule.pair] != pairs[len(pairs) - 1]:
                    continue
            if rule.tests and not test_packet(
                tests_of, rule.first_test, rule.tests, packets, row, base, beyond, established, 1
            ):
                continue
            if not match_payload(arrays, number_of_rule, buffer, start, start + segment.length, scratch):
                continue
            if rule.flags & RULE_SETS_BITS and segment.slot >= 0:
                sessions[segment.slot].flags |= SESSION_BITS
            made = out[count]
            made.segment, made.row, made.slot = number, row, segment.slot
            made.rule, made.flags = number_of_rule, segment.flags
            count += 1
    return last, count


@kernel(
    types.UniTuple(_I64, 2)(
        RULE_ARRAYS,
        _I64,
        PACKETS,
        column(np.int32, readonly=True),
        column(np.int32, readonly=True),
        column(np.uint8, readonly=True),
        column(np.int32, readonly=True),
        column(SESSION),
        _CANDIDATES,
    )
)
def match_packets(
    arrays: RuleArrays,
    begin: int,
    packets: Packets,
    slot: NDArray[np.int32],
    row_group: NDArray[np.int32],
    row_flags: NDArray[np.uint8],
    order: NDArray[np.int32],
    sessions: NDArray[Any],
    out: NDArray[Any],
) -> Any:
    """Candidates of the rules without payload, for the rows order[begin:]. Returns the next turn, and how many."""
    count = np.int64(0)
    for turn in range(begin, len(order)):
        row = np.int64(order[turn])
        flags = np.int64(row_flags[row])
        if flags & ROW_PASSED:
            continue
        group = np.int64(row_group[row])
        every = arrays.groups[group].packet_count
        firsts = arrays.groups[group].first_count if flags & ROW_FIRST else np.int64(0)
        if every + firsts == 0:
            continue
        if count + every + firsts > len(out):
            return turn, count
        at = np.int64(slot[row])
        base = packets.offset[row]
        end = base + np.int64(packets.captured[row])
        for part in range(2):
            first = np.int64(arrays.groups[group].packet_start if part else arrays.groups[group].first_start)
            for place in range(first, first + (every if part else firsts)):
                rule = np.int64(arrays.lists[place])
                test, tests = arrays.rules[rule].first_test, arrays.rules[rule].tests
                known = first_test(arrays.tests, test, packets.headers, row) if tests else np.int64(1)
                if known == 0:
                    continue
                bits = np.int64(1 if at >= 0 and sessions[at].flags & SESSION_BITS else 0)
                if (known == 1 and tests <= 1) or test_packet(
                    arrays.tests, test, tests, packets, row, base, end, flags, bits
                ):
                    if arrays.rules[rule].flags & RULE_SETS_BITS and at >= 0:
                        sessions[at].flags |= SESSION_BITS
                    made = out[count]
                    made.segment, made.row, made.slot, made.rule, made.flags = -1, row, at, rule, 0
                    count += 1
    return len(order), count


@kernel(types.void(RULE_ARRAYS, _CANDIDATES, PACKETS, column(np.uint8), column(np.bool_)))
def test_candidates(
    arrays: RuleArrays,
    candidates: NDArray[Any],
    packets: Packets,
    row_flags: NDArray[np.uint8],
    keep: NDArray[np.bool_],
) -> None:
    """Clear keep[i] for candidates on transactions (`segment` below -1) whose rule's tests on the packet fail."""
    for at in range(len(candidates)):
        made = candidates[at]
        if made.segment > -2:
            continue
        row, rule = np.int64(made.row), np.int64(made.rule)
        tests = np.int64(arrays.rules[rule].tests)
        base, end = np.int64(0), np.int64(0)
        flags = np.int64(ROW_ESTABLISHED if made.flags & SEGMENT_ESTABLISHED else 0)
        if row >= 0 and row < len(row_flags):
            base = packets.offset[row]
            end = base + np.int64(packets.captured[row])
            flags = np.int64(row_flags[row])
        if tests and not test_packet(
            arrays.tests, arrays.rules[rule].first_test, tests, packets, row, base, end, flags, 1
        ):
            keep[at] = False
