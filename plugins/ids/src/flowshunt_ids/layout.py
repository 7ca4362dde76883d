"""The rows that kernels and Python share: compiled rules, groups, segments, candidates, stream state."""

from typing import Any, NamedTuple

import numpy as np
from numba import types
from numpy.typing import NDArray

from flowshunt.compiled import BYTES, column, matrix
from flowshunt.packets.batch import FrameBatch
from flowshunt.packets.headers import HEADER

RULE = np.dtype(
    [
        ("first_test", "<i4"),
        ("tests", "<i4"),
        ("first_op", "<i4"),
        ("ops", "<i4"),
        ("flags", "<i4"),  # the RULE_ bits, and the kinds of segments that it looks at (SEGMENT_KINDS)
        ("anchor", "<i4"),  # a place in the buffer where only one byte will do; -1: none
        ("anchor_byte", "<i4"),  # that byte
        ("pair", "<i4"),  # two bytes that must stand somewhere in the buffer, the first times 256; -1: none
    ]
)
RULE_PYTHON = 1 << 8
"""The ops are a part of the payload only: the rest is matched in Python."""
RULE_SETS_BITS = 1 << 9
"""May set flowbits when it matches."""
RULE_CHUNK_ONLY = 1 << 10
"""Matches reassembled stream data only, no packet in its place (`flow:only_stream`)."""

TEST = np.dtype([("field", "<i4"), ("negated", "<i4"), ("mask", "<i8"), ("low", "<i8"), ("high", "<i8")])
"""`flowshunt_ids.rules.rule.PacketTest`."""

OP = np.dtype(
    [
        ("kind", "<i4"),  # the OP_ kinds
        ("flags", "<i4"),  # the OPF_ bits
        ("at", "<i4"),  # content: where its bytes lie in the pool; numbers: base of the digits, 0 for binary
        ("size", "<i4"),  # content: its length; numbers: bytes or digits
        ("offset", "<i8"),  # content, numbers: offset; isdataat: the amount
        ("limit", "<i8"),  # content: end of depth, or within; byte_test: the value; byte_jump: post_offset
        ("shift", "<i8"),  # content: distance; numbers: bit mask
        ("extra", "<i8"),  # byte_test: the operator's code; byte_jump: the multiplier
    ]
)
OP_CONTENT = 0
OP_ISDATAAT = 1
OP_BYTE_TEST = 2
OP_BYTE_JUMP = 3

OPF_NOCASE = 1 << 0
OPF_NEGATED = 1 << 1
OPF_RELATIVE = 1 << 2
OPF_NEXT_RELATIVE = 1 << 3
"""What follows depends on where this one matched, so other matches of it are worth trying."""
OPF_ENDSWITH = 1 << 4
OPF_LIMITED = 1 << 5
"""`limit` is set: depth, or within where OPF_RELATIVE."""
OPF_LITTLE = 1 << 6
OPF_ALIGN = 1 << 7
OPF_FROM_BEGINNING = 1 << 8
OPF_FROM_END = 1 << 9

OPERATORS = {"<": 0, ">": 1, "=": 2, "<=": 3, ">=": 4, "&": 5, "^": 6}
"""Codes of byte_test's operators."""

MAX_OPS = 64
"""The most ops of one rule; a rule with more is matched in Python from there on."""

GROUP = np.dtype(
    [
        ("stream_scan", "<i4"),  # the scan class of its stream segments; 0: nothing to scan for
        ("packet_scan", "<i4"),
        ("flags", "<i4"),  # the GROUP_ bits
        ("first_start", "<i4"),  # rules that are looked at on the first packet of a direction
        ("first_count", "<i4"),
        ("packet_start", "<i4"),  # rules without payload that are looked at on every packet
        ("packet_count", "<i4"),
        ("stream_start", "<i4"),  # payload rules without a pattern to scan for, in streams
        ("stream_count", "<i4"),
        ("payload_start", "<i4"),  # the same in packets
        ("payload_count", "<i4"),
        ("request", "<i4"),  # 1 + the bypass request that the first packet makes; 0: none
    ]
)
GROUP_STREAM = 1 << 0
"""Stream data is wanted."""
GROUP_PAYLOAD = 1 << 1
"""Packet payload is wanted."""
GROUP_PASS = 1 << 2
"""A rule passes the whole flow on the direction's first packet."""
GROUP_DROP = 1 << 3
"""A rule drops the whole flow on the direction's first packet."""
GROUP_RULES = 1 << 4
"""Has any rule."""
GROUP_APP = 1 << 5
"""An application layer is looked at."""

SEGMENT = np.dtype(
    [
        ("row", "<i4"),  # the row of the batch; -1: the end of a flow
        ("slot", "<i4"),
        ("group", "<i4"),
        ("start", "<i4"),  # where it lies in the scan buffer, once gathered
        ("length", "<i4"),
        ("first_piece", "<i4"),
        ("pieces", "<i4"),
        ("scan", "<i4"),  # scan class
        ("flags", "<i4"),  # the SEGMENT_ bits
    ]
)
SEGMENT_STREAM = 1 << 0
"""Stream data, or a packet's payload that is inspected in its place. For a rule: it looks at such."""
SEGMENT_PACKET = 1 << 1
"""The payload of a TCP packet."""
SEGMENT_DATAGRAM = 1 << 2
"""The payload of a packet of another protocol."""
SEGMENT_KINDS = SEGMENT_STREAM | SEGMENT_PACKET | SEGMENT_DATAGRAM
SEGMENT_ESTABLISHED = 1 << 3
SEGMENT_TO_CLIENT = 1 << 4
SEGMENT_CHUNK = 1 << 5
"""Reassembled stream data: a match on it acts on the flow."""
SEGMENT_LOOK = 1 << 6
"""For a parser: rules look at the direction's transactions now, with this row's packet."""
SEGMENT_END = 1 << 7
"""For a parser: nothing more comes in this direction."""
SEGMENT_GAP = 1 << 8
"""For a parser: as many bytes as `group` says were lost before this."""
SEGMENT_MIDSTREAM = 1 << 9
"""For a parser: the connection was picked up in its middle."""

PIECE = np.dtype([("source", "<i8"), ("length", "<i4"), ("arena", "<i4")])
"""Bytes of a segment: where they lie in the batch's buffer (arena 0) or in the arena (arena 1)."""

CANDIDATE = np.dtype([("segment", "<i4"), ("row", "<i4"), ("slot", "<i4"), ("rule", "<i4"), ("flags", "<i4")])
"""A rule whose compiled part matched. `flags`: the segment's, or 0 for a rule without payload."""

NODE = np.dtype(
    [
        ("source", "<i8"),  # where its bytes lie, in the batch's buffer or (block >= 0) in the arena
        ("block", "<i8"),  # its block of the arena; -1: still in the batch's buffer
        ("seq", "<u4"),  # sequence number of its first byte
        ("length", "<i4"),
        ("capacity", "<i4"),  # of the block
        ("next", "<i4"),
    ]
)

SIDE = np.dtype(
    [
        ("group", "<i4"),
        ("head", "<i4"),  # its segments (NODE), sorted by sequence number, then length
        ("tail", "<i4"),
        ("middle", "<i4"),  # the last one that begins before the first hole
        ("count", "<i4"),  # how many segments are kept
        ("flags", "<i4"),  # the SIDE_ bits
        ("start", "<u4"),  # sequence number of the first byte of the stream
        ("base", "<u4"),  # bytes before this one are not kept any more
        ("seen", "<u4"),  # inspected as raw stream data up to here
        ("parsed", "<u4"),  # given to a parser up to here
        ("next", "<u4"),  # received without a hole up to here
        ("right", "<u4"),  # the end of the last byte that was received
        ("expected", "<u4"),  # what the sender is expected to send next
        ("acked", "<u4"),  # acknowledged by the other side up to here
        ("edge", "<u4"),  # the other side's window reaches to here
        ("window", "<u4"),  # that window in bytes
        ("stamp", "<u4"),  # the sender's last timestamp value (RFC 7323)
        ("stamped", "<u4"),  # when it came, in seconds
        ("sacked", "<u4", (8,)),  # up to four ranges that the other side acknowledged selectively
        ("ranges", "u1"),  # how many there are
        ("scale", "u1"),  # by how many bits the window that this side's receiver announces is shifted
        ("policy", "u1"),  # the receiver's policy for overlaps, the POLICY_ values
        ("tcp_flags", "u1"),  # all that its packets had
        ("pad", "<u4", (5,)),
    ]
)
assert SIDE.itemsize == 128

SIDE_STARTED = 1 << 0
"""It has data, or had some."""
SIDE_DEPTH = 1 << 3
"""The reassembly depth is reached: nothing more is kept."""
SIDE_FIRST = 1 << 4
"""A packet of this direction was seen."""
SIDE_TOUCHED = 1 << 5
"""It stands in this batch's list of sides with pending data."""
SIDE_STREAM = 1 << 6
"""Its group wants stream data."""
SIDE_TRIGGER = 1 << 7
"""What is acknowledged is inspected with its next packet: a message of its application is complete."""
SIDE_APP = 1 << 8
"""Its data goes to a parser of the application layer."""
SIDE_KEEPS = SIDE_STREAM | SIDE_APP
"""Its data is put in order."""
SIDE_NEWS = 1 << 9
"""A parser was given data of it since its last packet."""
SIDE_ENDED = 1 << 10
"""A parser was told that nothing more comes."""
SIDE_KEEP_ALIVE = 1 << 11
"""A keep-alive was sent."""
SIDE_TIMESTAMP = 1 << 12
"""Its SYN had a timestamp."""
SIDE_ZERO_STAMP = 1 << 13
"""Its first timestamp was 0."""
SIDE_RESET = 1 << 14
"""The other side reset the connection in a way that can't be checked."""
SIDE_GAP = 1 << 15
"""Bytes were missing."""

POLICIES = (
    "none",
    "bsd",
    "bsd-right",
    "old-linux",
    "linux",
    "old-solaris",
    "solaris",
    "hpux10",
    "hpux11",
    "irix",
    "macos",
    "windows",
    "vista",
    "windows2k3",
    "first",
    "last",
)
"""Names of the target policies of `host-os-policy`, by the number in SIDE."""
POLICY_BSD = POLICIES.index("bsd")

SESSION = np.dtype(
    [
        ("tcp", "u1"),  # the TCP_ values
        ("previous", "u1"),  # the one before
        ("client", "u1"),  # the direction that the SYN came from
        ("queued", "u1"),  # how many SYNs or SYN-ACKs are queued
        ("flags", "<i4"),  # the SESSION_ bits
        ("stopped", "<i4"),  # the turn in this batch after which it is bypassed, -1: before it; NOT_STOPPED
        ("stream", "<i4"),  # the TCP_IS_ bits
        ("queue", "<i4"),  # the first queued SYN or SYN-ACK (NODE); -1: none
        ("urgent", "<u2", (2,)),  # by side, bytes of urgent data that were taken out of the stream
        ("pad", "<i4", (2,)),
    ]
)
assert SESSION.itemsize == 32

TCP_NONE = 0
TCP_SYN_SENT = 2
TCP_SYN_RECEIVED = 3
TCP_ESTABLISHED = 4
TCP_FIN_WAIT_1 = 5
TCP_FIN_WAIT_2 = 6
TCP_TIME_WAIT = 7
TCP_LAST_ACK = 8
TCP_CLOSE_WAIT = 9
TCP_CLOSING = 10
TCP_CLOSED = 11

NOT_STOPPED = 0x7FFFFFFF
SESSION_BYPASSED = 1 << 0
SESSION_QUIET = 1 << 1
"""Passed or dropped as a whole: not inspected any more."""
SESSION_BITS = 1 << 2
"""Some of its flowbits may be set."""
SESSION_IDLE = 1 << 3
"""No rule applies in either direction."""
SESSION_KNOWN = 1 << 5
"""Its slot has been used."""
SESSION_MESSAGES = 1 << 4
"""Its application's messages alternate (HTTP): one is complete when the other side begins to answer."""

EVENT = np.dtype([("row", "<i4"), ("event", "<i4")])
"""Something is odd about a packet: its row, and the event's number in `flowshunt_ids.events`."""

ROW_ESTABLISHED = 1 << 0
ROW_FIRST = 1 << 1
"""The first packet of its direction, or of no flow."""
ROW_ADDED = 1 << 2
"""Its payload went into a stream."""
ROW_PASSED = 1 << 3
"""Not inspected: the flow is passed, dropped or bypassed, or has no rules."""


class Packets(NamedTuple):
    """A batch's packets, as kernels take them.

    data, offset, captured: of `flowshunt.packets.batch.FrameBatch`; headers: HEADER[n]. Offsets past the end of `data`
    count from the start of `extra`, where packets lie that were put together from fragments.
    """

    data: NDArray[np.uint8]
    extra: NDArray[np.uint8]
    offset: NDArray[np.int64]
    captured: NDArray[np.uint32]
    headers: NDArray[np.void]


PACKETS = types.NamedTuple(
    [BYTES, BYTES, column(np.int64, readonly=True), column(np.uint32, readonly=True), column(HEADER, readonly=True)],
    Packets,
)
NO_BYTES = np.empty(0, np.uint8)
NO_ROWS = np.empty(0, np.uint8)


def packets_of(frames: FrameBatch, headers: NDArray[Any], extra: NDArray[np.uint8] = NO_BYTES) -> Packets:
    """A batch's packets as read-only views, the one form that kernels take them in."""
    return Packets(
        _read_only(frames.data),
        _read_only(extra),
        _read_only(frames.offset),
        _read_only(frames.captured),
        _read_only(headers),
    )


def _read_only(column: NDArray[Any]) -> NDArray[Any]:
    if not column.flags.writeable and column.flags.c_contiguous:
        return column
    view = np.ascontiguousarray(column).view()
    view.flags.writeable = False
    return view


NO_PACKETS = Packets(
    _read_only(NO_BYTES),
    _read_only(NO_BYTES),
    _read_only(np.empty(0, np.int64)),
    _read_only(np.empty(0, np.uint32)),
    _read_only(np.empty(0, HEADER)),
)


class RuleArrays(NamedTuple):
    """The compiled rules and groups, as kernels take them. `members[g]` is group g's set of rules, a bit each."""

    rules: NDArray[np.void]
    tests: NDArray[np.void]
    ops: NDArray[np.void]
    pool: NDArray[np.uint8]
    groups: NDArray[np.void]
    lists: NDArray[np.int32]
    members: NDArray[np.uint64]


RULE_ARRAYS = types.NamedTuple(
    [
        column(RULE),
        column(TEST),
        column(OP),
        column(np.uint8),
        column(GROUP),
        column(np.int32),
        matrix(np.uint64),
    ],
    RuleArrays,
)
