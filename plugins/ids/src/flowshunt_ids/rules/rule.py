"""A rule as data: what its header and its options say, checked and resolved."""

import enum
from typing import Any

import attrs

from flowshunt.engine import Signature
from flowshunt_ids.rules.variables import Addresses, Ports

MAX_SHIFT = 1024 * 1024
"""The largest magnitude of `distance` and `within` in bytes, as in Suricata."""


class Action(enum.IntEnum):
    """What a rule's header asks for, in the order in which Suricata looks at rules by default."""

    PASS = 0
    DROP = 1
    REJECT = 2
    ALERT = 3
    CONFIG = 4


class Scope(enum.Enum):
    """How often a rule is looked at.

    FIRST: once for each direction of a flow (Suricata's "IP-only" rules: nothing but the header and what goes with it);
    ALL: for every packet, but pass and drop act on the whole flow (like FIRST, with a negated address);
    PACKET: for every packet; PAYLOAD: where there is payload or stream data.
    """

    FIRST = "first"
    ALL = "all"
    PACKET = "packet"
    PAYLOAD = "payload"


@attrs.frozen
class FastPattern:
    """What `fast_pattern` says: the part of the content to search for; `only`: the content is not looked at again."""

    only: bool = False
    start: int = 0
    length: int | None = None


@attrs.frozen
class Content:
    """Literal bytes. `offset` and `depth` count from the buffer's start, `distance` and `within` from the last match.

    `pattern` is in lower case where `nocase` is set. A string in place of a number is a variable of `byte_extract`.
    """

    pattern: bytes
    nocase: bool = False
    negated: bool = False
    offset: int | str | None = None
    depth: int | str | None = None
    distance: int | str | None = None
    within: int | str | None = None
    startswith: bool = False
    endswith: bool = False
    fast_pattern: FastPattern | None = None

    @property
    def relative(self) -> bool:
        """Whether it is searched for from the last match on."""
        return self.distance is not None or self.within is not None


@attrs.frozen
class IsDataAt:
    """Whether the buffer has a byte at a place; relative: whether it has that many bytes after the last match."""

    amount: int | str
    relative: bool = False
    negated: bool = False


@attrs.frozen
class Number:
    """How `byte_test`, `byte_jump` and `byte_extract` read a number.

    count: bytes or digits; base: 0 for a binary number, else the base of the digits; mask: 0 for none.
    """

    count: int
    offset: int | str
    relative: bool = False
    little: bool = False
    base: int = 0
    mask: int = 0


@attrs.frozen
class ByteTest:
    """A number in the buffer compared with a value. `operator`: one of `< > = <= >= & ^`."""

    number: Number
    operator: str
    value: int | str
    negated: bool = False


@attrs.frozen
class ByteJump:
    """Moves the last match's end by a number in the buffer. `origin`: "here", "beginning" or "end"."""

    number: Number
    multiplier: int = 1
    align: bool = False
    origin: str = "here"
    post_offset: int | str = 0


@attrs.frozen
class ByteExtract:
    """Reads a number in the buffer into a variable."""

    number: Number
    name: str
    multiplier: int = 1
    align: int = 0


@attrs.frozen
class Pcre:
    """A regular expression: its source in the form that the `regex` module takes, and its flags."""

    pattern: bytes
    flags: int = 0
    relative: bool = False
    negated: bool = False


Match = Content | IsDataAt | ByteTest | ByteJump | ByteExtract | Pcre


def is_relative(match: Match) -> bool:
    """Whether what it matches depends on where the match before it ended."""
    if isinstance(match, ByteTest | ByteJump | ByteExtract):
        return match.number.relative
    return match.relative


class Field(enum.IntEnum):
    """What a `PacketTest` looks at."""

    TCP_FLAGS = 0
    PAYLOAD_LENGTH = 1
    TTL = 2
    ICMP_TYPE = 3
    ICMP_CODE = 4
    TCP_SEQ = 5
    TCP_ACK = 6
    TCP_WINDOW = 7
    ICMP_ID = 8
    ICMP_SEQ = 9
    IP_ID = 10
    FRAGMENT_BITS = 11
    IP_PROTOCOL = 12
    SAME_IP = 13
    ESTABLISHED = 14
    HAS_FLOWBITS = 15
    FRAGMENT_OFFSET = 16
    STREAM_ADDED = 17


@attrs.frozen
class PacketTest:
    """A condition on a packet's columns: (value & mask) lies in [low, high], or does not, where `negated`."""

    field: Field
    low: int
    high: int
    mask: int = -1
    negated: bool = False


@attrs.frozen
class FlowCondition:
    """What `flow` says. direction: 0 to the server, 1 to the client, None either; stream: True only, False never."""

    direction: int | None = None
    established: bool | None = None
    stream: bool | None = None


@attrs.frozen
class Flowbits:
    """One `flowbits` option. command: set, unset, toggle, isset or isnotset; names are alternatives for isset."""

    command: str
    names: tuple[str, ...]


@attrs.frozen
class Threshold:
    """`threshold` or `detection_filter`. kind: limit, threshold, both or filter; track: by_src, by_dst, by_rule, ..."""

    kind: str
    track: str
    count: int
    seconds: int


@attrs.frozen
class Header:
    """A rule's header. protocols: IP protocol numbers, or None for any."""

    action: Action
    action_name: str
    protocol: str
    protocols: frozenset[int] | None
    source: Addresses
    source_ports: Ports
    destination: Addresses
    destination_ports: Ports
    both_directions: bool = False


@attrs.frozen(eq=False)
class Rule:
    """A rule that can be used.

    Attributes:
        path, line: where it stands.
        payload: what has to match in one buffer, in order.
        tests: conditions on the packet.
        in_packets, in_streams: whether `payload` is looked for in single TCP packets, and in TCP's stream data.
        in_datagrams: whether it is looked for in packets of other protocols.
        scope: how often it is looked at.
        alert: a pass rule that alerts all the same.
    """

    path: str
    line: int
    signature: Signature
    header: Header
    flow: FlowCondition = FlowCondition()
    payload: tuple[Match, ...] = ()
    tests: tuple[PacketTest, ...] = ()
    flowbits: tuple[Flowbits, ...] = ()
    threshold: Threshold | None = None
    noalert: bool = False
    bypass: bool = False
    in_packets: bool = False
    in_streams: bool = False
    in_datagrams: bool = False
    scope: Scope = Scope.PACKET
    alert: bool = False

    @property
    def sort_key(self) -> tuple[int, int, int]:
        """Suricata's default order: by action, then rules that set flowbits before those that read them, priority."""
        sets = any(bits.command in ("set", "unset", "toggle") for bits in self.flowbits)
        reads = any(bits.command in ("isset", "isnotset") for bits in self.flowbits)
        rank = (1 if reads else 0) if sets else (2 if reads else 3)
        return int(self.header.action), rank, self.signature.priority


def variables_of(match: Match) -> tuple[Any, ...]:
    """The variables of `byte_extract` that a match refers to."""
    if isinstance(match, Content):
        used = (match.offset, match.depth, match.distance, match.within)
    elif isinstance(match, IsDataAt):
        used = (match.amount, None, None, None)
    elif isinstance(match, ByteTest):
        used = (match.value, match.number.offset, None, None)
    elif isinstance(match, ByteJump):
        used = (match.number.offset, match.post_offset, None, None)
    elif isinstance(match, ByteExtract):
        used = (match.number.offset, None, None, None)
    else:
        return ()
    return tuple(name for name in used if isinstance(name, str))
