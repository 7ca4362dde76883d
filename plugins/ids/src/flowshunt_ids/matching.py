"""Compiled evaluation of rules: the tests on a packet's columns, and the payload's ops over a buffer.

The order and the retries of the ops are Suricata's: a content whose successor is relative to it is tried at its next
occurrence when the successor fails; other failures are final. The work of one evaluation is bounded.
"""

# ruff: noqa: PLR1714, SIM109 -- kernels compare scalars

from typing import Any

import numpy as np
from numba import from_dtype, types
from numpy.typing import NDArray

from flowshunt.compiled import BYTES, column, kernel
from flowshunt.packets.headers import FRAGMENT, HEADER
from flowshunt_ids.layout import (
    MAX_OPS,
    OP_BYTE_JUMP,
    OP_CONTENT,
    OP_ISDATAAT,
    OPF_ALIGN,
    OPF_ENDSWITH,
    OPF_FROM_BEGINNING,
    OPF_FROM_END,
    OPF_LIMITED,
    OPF_LITTLE,
    OPF_NEGATED,
    OPF_NEXT_RELATIVE,
    OPF_NOCASE,
    OPF_RELATIVE,
    PACKETS,
    ROW_ESTABLISHED,
    RULE_ARRAYS,
    TEST,
    Packets,
    RuleArrays,
)
from flowshunt_ids.rules.rule import Field

_I64 = types.int64
_BUFFER = column(np.uint8)
_HEADERS = column(HEADER, readonly=True)
SCRATCH = column(np.int64)
"""int64[2 * MAX_OPS + 4]: working memory of one evaluation."""
SCRATCH_SIZE = 2 * MAX_OPS + 4

PAIRS = column(np.int32)
"""int32[PAIRS_SIZE]: see `note_pairs`."""
PAIRS_SIZE = (1 << 16) + 1
_LAST_ROUND = (1 << 31) - 1

STEPS = 3000
"""The most ops that one evaluation carries out (`detect.inspection-recursion-limit` of Suricata)."""
BYTES_SEARCHED = 8 * 1024 * 1024
"""The most bytes that one evaluation looks at."""

_ESTABLISHED = int(Field.ESTABLISHED)
_TCP_FLAGS = int(Field.TCP_FLAGS)
_PAYLOAD_LENGTH = int(Field.PAYLOAD_LENGTH)
_TTL = int(Field.TTL)
_ICMP_TYPE = int(Field.ICMP_TYPE)
_ICMP_CODE = int(Field.ICMP_CODE)
_TCP_SEQ = int(Field.TCP_SEQ)
_TCP_ACK = int(Field.TCP_ACK)
_TCP_WINDOW = int(Field.TCP_WINDOW)
_ICMP_ID = int(Field.ICMP_ID)
_ICMP_SEQ = int(Field.ICMP_SEQ)
_IP_ID = int(Field.IP_ID)
_FRAGMENT_BITS = int(Field.FRAGMENT_BITS)
_IP_PROTOCOL = int(Field.IP_PROTOCOL)
_SAME_IP = int(Field.SAME_IP)
_HAS_FLOWBITS = int(Field.HAS_FLOWBITS)
_FRAGMENT_OFFSET = int(Field.FRAGMENT_OFFSET)
_TOS = int(Field.TOS)
_IP_OPTIONS = int(Field.IP_OPTIONS)
_TCP_MSS = int(Field.TCP_MSS)
_ICMPV6_MTU = int(Field.ICMPV6_MTU)
_REASSEMBLED = int(Field.REASSEMBLED)
_TCP = 6
_ICMP = 1
_ICMPV6 = 58


@kernel(_I64(BYTES, _I64, _I64), inline=True, entry=False)
def _load16(data: NDArray[np.uint8], at: int, end: int) -> Any:
    if at < 0 or at + 2 > end:
        return -1
    return (np.int64(data[at]) << 8) | np.int64(data[at + 1])


@kernel(_I64(BYTES, _I64, _I64), entry=False)
def _options(data: NDArray[np.uint8], l3: int, end: int) -> Any:
    """The options of an IPv4 header, a bit each: the number of the option's type modulo 32."""
    found = np.int64(0)
    if l3 < 0 or l3 >= end:
        return found
    last: Any = min(l3 + 4 * (np.int64(data[l3]) & 15), end)
    at: Any = l3 + 20
    while at < last:
        kind = np.int64(data[at])
        found |= np.int64(1) << (kind & 31)
        if kind == 0:
            break
        if kind == 1:
            at += 1
            continue
        if at + 1 >= last or data[at + 1] < 2:
            break
        at += np.int64(data[at + 1])
    return found


@kernel(_I64(BYTES, from_dtype(HEADER), _I64, _I64), entry=False)
def _segment_size(data: NDArray[np.uint8], header: Any, base: int, end: int) -> Any:
    """The maximum segment size that a TCP header announces; -1: none."""
    if header.protocol != _TCP or header.l4 == 0:
        return -1
    at: Any = base + np.int64(header.l4) + 20
    last: Any = min(base + np.int64(header.payload), end)
    while at + 1 < last:
        kind = data[at]
        if kind == 0:
            break
        if kind == 1:
            at += 1
            continue
        size = np.int64(data[at + 1])
        if size < 2 or at + size > last:
            break
        if kind == 2 and size == 4:
            return _load16(data, at + 2, last)
        at += size
    return -1


@kernel(_I64(PACKETS, _I64, _I64, _I64, _I64), entry=False)
def rare_field(packets: Packets, row: int, base: int, end: int, field: int) -> Any:
    """A field that HEADER has no column for; -1 where the packet has none. The frame lies from `base` to `end`."""
    header = packets.headers[row]
    data = packets.data
    if field == _REASSEMBLED:
        return np.int64(1 if base >= len(packets.data) else 0)
    if base >= len(packets.data):
        data = packets.extra
        base -= len(packets.data)
        end -= len(packets.data)
    if base < 0 or end > len(data):
        return -1
    l3 = base + np.int64(header.l3)
    if field == _ICMP_ID or field == _ICMP_SEQ:
        if (header.protocol != _ICMP and header.protocol != _ICMPV6) or header.l4 == 0:
            return -1
        kind = np.int64(header.source_port)
        echo = kind == 8 or kind == 0 if header.protocol == _ICMP else kind == 128 or kind == 129
        if header.protocol == _ICMP and (13 <= kind <= 18):
            echo = True
        if not echo:
            return -1
        return _load16(data, base + np.int64(header.l4) + (4 if field == _ICMP_ID else 6), end)
    if field == _SAME_IP:
        size = 4 if header.ip_version == 4 else 16
        first = l3 + (12 if header.ip_version == 4 else 8)
        if header.ip_version == 0 or first + 2 * size > end:
            return 0
        for at in range(first, first + size):
            if data[at] != data[at + size]:
                return 0
        return 1
    if field == _TCP_MSS:
        return _segment_size(data, header, base, end)
    if field == _ICMPV6_MTU:
        if header.protocol != _ICMPV6 or header.l4 == 0 or header.source_port != 2:
            return -1
        upper = _load16(data, base + np.int64(header.l4) + 4, end)
        lower = _load16(data, base + np.int64(header.l4) + 6, end)
        return -1 if upper < 0 or lower < 0 else (upper << 16) | lower
    if field == _FRAGMENT_OFFSET:
        return np.int64(header.fragment_offset) if header.ip_version == 4 or header.flags & FRAGMENT else -1
    if header.ip_version != 4:
        return -1
    if field == _TOS:
        return np.int64(data[l3 + 1]) if l3 + 2 <= end else -1
    if field == _IP_OPTIONS:
        return _options(data, l3, end)
    if field == _IP_ID:
        return _load16(data, l3 + 4, end)
    if field == _FRAGMENT_BITS:
        return _load16(data, l3 + 6, end)
    return -1


@kernel(types.int64(column(TEST, readonly=True), _I64, _HEADERS, _I64), inline=True, entry=False)
def first_test(tests: NDArray[Any], at: int, headers: NDArray[Any], row: int) -> Any:
    """A rule's first test, where it is one of the frequent cheap ones: 1 it holds, 0 it fails, -1 not known here."""
    field = tests[at].field
    if field == _TCP_FLAGS:
        if headers[row].protocol != _TCP or headers[row].l4 == 0:
            return 0
        value = np.int64(headers[row].tcp_flags) & tests[at].mask
    elif field == _PAYLOAD_LENGTH:
        value = np.int64(headers[row].payload_length)
    else:
        return -1
    inside = tests[at].low <= value <= tests[at].high
    return 1 if inside != (tests[at].negated != 0) else 0


@kernel(types.boolean(column(TEST, readonly=True), _I64, _I64, PACKETS, _I64, _I64, _I64, _I64, _I64), entry=False)
def test_packet(
    tests: NDArray[Any],
    first: int,
    count: int,
    packets: Packets,
    row: int,
    base: int,
    end: int,
    row_flags: int,
    bits: int,
) -> bool:
    """Whether tests[first:first + count] hold for a packet. row -1: the end of a TCP stream, which has no packet."""
    for at in range(first, first + count):
        test = tests[at]
        field = test.field
        if field == _ESTABLISHED:
            value: Any = np.int64(1 if row_flags & ROW_ESTABLISHED else 0)
        elif field == _HAS_FLOWBITS:
            value = bits
        elif row < 0:
            if field != _IP_PROTOCOL:
                return False
            value = np.int64(_TCP)
        else:
            header = packets.headers[row]
            protocol = header.protocol
            if field == _TCP_FLAGS or field == _TCP_SEQ or field == _TCP_ACK or field == _TCP_WINDOW:
                if protocol != _TCP or header.l4 == 0:
                    return False
                if field == _TCP_FLAGS:
                    value = np.int64(header.tcp_flags)
                elif field == _TCP_SEQ:
                    value = np.int64(header.seq)
                elif field == _TCP_ACK:
                    value = np.int64(header.ack)
                else:
                    value = np.int64(header.window)
            elif field == _PAYLOAD_LENGTH:
                if header.ip_version == 0:
                    return False
                value = np.int64(header.payload_length)
            elif field == _TTL:
                if header.ip_version == 0:
                    return False
                value = np.int64(header.ttl)
            elif field == _ICMP_TYPE or field == _ICMP_CODE:
                if (protocol != _ICMP and protocol != _ICMPV6) or header.l4 == 0:
                    return False
                value = np.int64(header.source_port if field == _ICMP_TYPE else header.destination_port)
            elif field == _IP_PROTOCOL:
                if header.ip_version == 0:
                    return False
                value = np.int64(protocol)
            else:
                value = rare_field(packets, row, base, end, field)
                if value < 0:
                    return False
        value &= test.mask
        inside = test.low <= value <= test.high
        if inside == (test.negated != 0):
            return False
    return True


@kernel(_I64(_BUFFER, _I64, _I64, _BUFFER, _I64, _I64, types.boolean), entry=False)
def find(
    buffer: NDArray[np.uint8],
    start: int,
    end: int,
    pool: NDArray[np.uint8],
    at: int,
    size: int,
    nocase: bool,
) -> Any:
    """Where a literal first lies wholly in buffer[start:end]; -1: nowhere. nocase: the literal is in lower case."""
    first = pool[at]
    for place in range(start, end - size + 1):
        value = buffer[place]
        if nocase:
            if 65 <= value <= 90:
                value |= np.uint8(32)
            if value != first:
                continue
            same = 1
            while same < size:
                value = buffer[place + same]
                if 65 <= value <= 90:
                    value |= np.uint8(32)
                if value != pool[at + same]:
                    break
                same += 1
        else:
            if value != first:
                continue
            same = 1
            while same < size and buffer[place + same] == pool[at + same]:
                same += 1
        if same == size:
            return place
    return -1


@kernel(types.void(_BUFFER, _I64, _I64, PAIRS), entry=False)
def note_pairs(buffer: NDArray[np.uint8], start: int, end: int, pairs: NDArray[np.int32]) -> None:
    """Note which two bytes stand side by side in buffer[start:end].

    Afterwards pairs[256 * first + second] is equal to pairs[-1] for those that do, and for no others.
    """
    number = pairs[len(pairs) - 1]
    if number >= _LAST_ROUND:
        for place in range(len(pairs)):
            pairs[place] = 0
        number = np.int32(0)
    number = np.int32(number + 1)
    pairs[len(pairs) - 1] = number
    for place in range(start, end - 1):
        pairs[np.int64(buffer[place]) << 8 | np.int64(buffer[place + 1])] = number


@kernel(types.boolean(_BUFFER, _I64, _I64, _I64, _I64, types.boolean, SCRATCH), entry=False)
def read_number(
    buffer: NDArray[np.uint8],
    at: int,
    end: int,
    count: int,
    base: int,
    little: bool,
    out: NDArray[np.int64],
) -> bool:
    """Read a number of `count` bytes (base 0) or digits into out[-1], the bytes used into out[-2]; False: none."""
    value = np.uint64(0)
    used = 0
    if base == 0:
        for step in range(count):
            place = at + (count - 1 - step if little else step)
            value = (value << np.uint64(8)) | np.uint64(buffer[place])
        used = count
    else:
        place = at
        last = at + count
        while place < last and (buffer[place] == 32 or 9 <= buffer[place] <= 13):
            place += 1
        negative = False
        if place < last and (buffer[place] == 43 or buffer[place] == 45):
            negative = buffer[place] == 45
            place += 1
        if base == 16 and place + 2 < last and buffer[place] == 48 and (buffer[place + 1] | np.uint8(32)) == 120:
            place += 2
        digits = 0
        while place < last:
            letter = np.int64(buffer[place])
            if 48 <= letter <= 57:
                digit = letter - 48
            elif 65 <= letter <= 70:
                digit = letter - 55
            elif 97 <= letter <= 102:
                digit = letter - 87
            else:
                break
            if digit >= base or digits > 15:
                break
            value = value * np.uint64(base) + np.uint64(digit)
            digits += 1
            place += 1
        if digits == 0:
            return False
        used = place - at
        if negative:
            value = np.uint64(0) - value
    out[len(out) - 1] = np.int64(value & np.uint64(0x7FFFFFFFFFFFFFFF))
    out[len(out) - 2] = used
    return True


@kernel(types.boolean(_I64, _I64, _I64), inline=True, entry=False)
def _compare(operator: int, value: int, wanted: int) -> bool:
    if operator == 0:
        return value < wanted
    if operator == 1:
        return value > wanted
    if operator == 2:
        return value == wanted
    if operator == 3:
        return value <= wanted
    if operator == 4:
        return value >= wanted
    if operator == 5:
        return (value & wanted) != 0
    return (value ^ wanted) != 0


@kernel(types.boolean(RULE_ARRAYS, _I64, _BUFFER, _I64, _I64, SCRATCH), entry=False)
def match_payload(
    arrays: RuleArrays, rule: int, buffer: NDArray[np.uint8], start: int, end: int, scratch: NDArray[np.int64]
) -> bool:
    """Whether a rule's ops match buffer[start:end]. scratch: int64[SCRATCH_SIZE]."""
    first = arrays.rules[rule].first_op
    count = arrays.rules[rule].ops
    length = end - start
    at, place, resume = np.int64(0), np.int64(0), np.int64(0)
    steps, searched = np.int64(0), np.int64(0)
    while at < count:
        steps += 1
        if steps > STEPS or searched > BYTES_SEARCHED:
            return False
        op = arrays.ops[first + at]
        flags = op.flags
        negated = (flags & OPF_NEGATED) != 0
        before = place
        matched = False
        again = np.int64(0)
        if op.kind == OP_CONTENT:
            size = op.size
            low, high = np.int64(0), length
            if flags & OPF_RELATIVE:
                low = max(place + op.shift, np.int64(0))
                if flags & OPF_LIMITED:
                    high = min(high, place + op.limit)
            else:
                low = op.offset
                if flags & OPF_LIMITED:
                    high = min(high, op.limit)
            if resume > 0:
                low = resume
            found = np.int64(-1)
            if high > 0 and low + size <= high:
                if flags & OPF_ENDSWITH:
                    if high == length:
                        low = length - size
                        high = length
                        found = find(buffer, start + low, end, arrays.pool, op.at, size, (flags & OPF_NOCASE) != 0)
                        searched += size
                else:
                    found = find(
                        buffer,
                        start + low,
                        start + high,
                        arrays.pool,
                        op.at,
                        size,
                        (flags & OPF_NOCASE) != 0,
                    )
                    searched += (found - start if found >= 0 else high) - low + size
            matched = (found >= 0) != negated
            if found >= 0:
                place = found - start + size
                again = found - start + 1
        elif op.kind == OP_ISDATAAT:
            enough = place + op.offset <= length if flags & OPF_RELATIVE else op.offset < length
            matched = enough != negated
        else:
            from_here = op.offset + (place if flags & OPF_RELATIVE else 0)
            size = op.size
            value, used = np.int64(0), np.int64(0)
            readable = from_here >= 0 and from_here + size <= length
            if readable and size > 0:
                readable = read_number(buffer, start + from_here, end, size, op.at, (flags & OPF_LITTLE) != 0, scratch)
                value, used = scratch[len(scratch) - 1], scratch[len(scratch) - 2]
            if readable:
                if op.shift != 0:
                    mask = op.shift
                    value &= mask
                    while mask & 1 == 0:
                        mask >>= 1
                        value >>= 1
                if op.kind == OP_BYTE_JUMP:
                    value *= op.extra
                    if flags & OPF_ALIGN and value % 4 != 0:
                        value += 4 - value % 4
                    value += op.limit
                    if flags & OPF_FROM_BEGINNING:
                        target = value
                    elif flags & OPF_FROM_END:
                        target = length + value
                    else:
                        target = from_here + used + value
                    if target <= length:
                        place = max(target, np.int64(0))
                        matched = True
                else:
                    matched = _compare(op.extra, value, op.limit) != negated
        if matched:
            scratch[2 * at] = before
            scratch[2 * at + 1] = again
            at += 1
            resume = np.int64(0)
            continue
        at -= 1
        while at >= 0:
            flags = arrays.ops[first + at].flags
            if arrays.ops[first + at].kind == OP_CONTENT and not flags & OPF_NEGATED:
                if not flags & OPF_NEXT_RELATIVE:
                    return False
                break
            at -= 1
        if at < 0:
            return False
        place = scratch[2 * at]
        resume = scratch[2 * at + 1]
    return True
