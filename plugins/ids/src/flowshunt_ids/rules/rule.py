"""A rule as data: what its header and its options say, checked and resolved."""

import enum
from collections.abc import Sequence
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
    PACKET: for every packet; PAYLOAD: where there is payload or stream data; TRANSACTION: for each transaction of an
    application layer.
    """

    FIRST = "first"
    ALL = "all"
    PACKET = "packet"
    PAYLOAD = "payload"
    TRANSACTION = "transaction"


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
    """How `byte_test`, `byte_jump`, `byte_extract` and `byte_math` read a number.

    count: bytes or digits, 0 digits: as many as there are; base: 0 for a binary number, else the base of the digits;
    mask: 0 for none.
    """

    count: int | str
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
class ByteMath:
    """A number in the buffer, calculated with a value into a variable. `operator`: one of `+ - * / << >>`."""

    number: Number
    operator: str
    value: int | str
    name: str


@attrs.frozen
class Pcre:
    """A regular expression: its source in the form that the `regex` module takes, and its flags.

    captures: for each group from the first on the variable that it is kept in: "flow:NAME", "pkt:NAME" or "alert:NAME".
    """

    pattern: bytes
    flags: int = 0
    relative: bool = False
    negated: bool = False
    captures: tuple[str, ...] = ()


@attrs.frozen
class BufferSize:
    """`bsize`: the buffer's length in bytes lies in [low, high], or does not, where `negated`."""

    low: int
    high: int
    negated: bool = False


@attrs.frozen
class Base64Decode:
    """`base64_decode`, and what has to match in the decoded bytes (`base64_data`). count: bytes to decode; 0: all."""

    count: int = 0
    offset: int = 0
    relative: bool = False
    matches: "tuple[Match, ...]" = ()


@attrs.frozen
class Dataset:
    """A named set of values. kind: string, md5, sha256, ipv4 or ip; load: the file that it begins with; "" none."""

    name: str
    kind: str
    load: str = ""


@attrs.frozen
class DatasetMatch:
    """`dataset`: the buffer is a member of a set (isset), or not (isnotset), or becomes one or no longer is one."""

    command: str
    dataset: Dataset


@attrs.frozen
class ReputationMatch:
    """`datarep`: the value that a set gives to the buffer, compared. `operator`: one of `< > =`."""

    dataset: Dataset
    operator: str
    value: int


Match = (
    Content
    | IsDataAt
    | ByteTest
    | ByteJump
    | ByteExtract
    | ByteMath
    | Pcre
    | BufferSize
    | Base64Decode
    | DatasetMatch
    | ReputationMatch
)
WHOLE_BUFFER = BufferSize | DatasetMatch | ReputationMatch
"""Matches that look at the buffer as a whole."""


def is_relative(match: Match) -> bool:
    """Whether what it matches depends on where the match before it ended."""
    if isinstance(match, ByteTest | ByteJump | ByteExtract | ByteMath):
        return match.number.relative
    return not isinstance(match, WHOLE_BUFFER) and match.relative


@attrs.frozen
class Transform:
    """What is done to a buffer before it is matched, by the name of its keyword, and the keyword's value."""

    name: str
    argument: str = ""


@attrs.frozen
class BufferMatches:
    """What has to match in one buffer that is not the payload, in order. `buffer`: its canonical name ("http.uri")."""

    buffer: str
    transforms: tuple[Transform, ...] = ()
    matches: tuple[Match, ...] = ()


@attrs.frozen
class Condition:
    """A condition that is neither on a buffer nor on the packet's columns. `name` says who judges it, `value` what."""

    name: str
    value: Any = None


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
    TOS = 18
    IP_OPTIONS = 19
    TCP_MSS = 20
    ICMPV6_MTU = 21
    REASSEMBLED = 22


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
class FlowInteger:
    """One `flowint` option. command: `+ - =` change it; `< <= > >= == != isset isnotset` ask for it.

    value: a number, or the name of another integer of the flow; None for isset and isnotset.
    """

    name: str
    command: str
    value: int | str | None = None

    @property
    def changes(self) -> bool:
        """Whether it changes the integer, and asks for nothing."""
        return self.command in ("+", "-", "=")


@attrs.frozen
class HostBits:
    """One `xbits` or `hostbits` option. command: set, unset, toggle, isset or isnotset.

    track: "ip_src", "ip_dst" or "ip_pair"; bits of one name on one host are the same for both keywords. expire:
    seconds that the bit stays set.
    keyword: the one of the two that it was written with, which counts for the order of rules.
    """

    command: str
    name: str
    track: str
    expire: int = 300
    keyword: str = "hostbits"


@attrs.frozen
class Tag:
    """`tag`: what is logged after an alert. scope: session or host; metric: packets, seconds or bytes."""

    scope: str
    count: int
    metric: str
    direction: str = ""


@attrs.frozen
class FlowConfig:
    """`config`: what is switched off for a flow or transaction. subsystem: logging; scope: flow, tx or packet."""

    subsystem: str
    type: str
    scope: str


@attrs.frozen
class Threshold:
    """`threshold` or `detection_filter`, or the same from a threshold file.

    kind: limit, threshold, both, filter or rate; track: by_src, by_dst, by_rule, by_both. For rate, `timeout` is how
    many seconds `action` then holds.
    """

    kind: str
    track: str
    count: int
    seconds: int
    action: str = ""
    timeout: int = 0


@attrs.frozen
class Suppression:
    """`suppress` of a threshold file: matches become no alert. track: by_src, by_dst or by_either; "" always."""

    track: str = ""
    addresses: Addresses | None = None

    def covers(self, source: bytes, destination: bytes) -> bool:
        """Whether a match between two addresses (4 or 16 bytes each) is suppressed."""
        if self.addresses is None:
            return True
        ends = {"by_src": (source,), "by_dst": (destination,)}.get(self.track, (source, destination))
        return any(self.addresses.contains(end) for end in ends)


@attrs.frozen
class Header:
    """A rule's header. protocols: IP protocol numbers, or None for any. app_protocol: where `protocol` names one."""

    action: Action
    action_name: str
    protocol: str
    protocols: frozenset[int] | None
    source: Addresses
    source_ports: Ports
    destination: Addresses
    destination_ports: Ports
    both_directions: bool = False
    app_protocol: str | None = None


@attrs.frozen(eq=False)
class Rule:
    """A rule that can be used.

    Attributes:
        path, line: where it stands.
        payload: what has to match in a packet's payload or in stream data, in order.
        app_protocol: the application protocol that the flow must have; None: any.
        buffers: what has to match in buffers of a transaction; one entry for each, several for one that has many
            instances.
        app_conditions: further conditions on a transaction, judged by who added the keyword.
        packet_buffers: what has to match in a packet's headers.
        conditions: further conditions on packets and flows, see `flowshunt_ids.conditions`.
        tests: conditions on the packet.
        in_packets, in_streams: whether `payload` is looked for in single TCP packets, and in TCP's stream data.
        in_datagrams: whether it is looked for in packets of other protocols.
        limits: further thresholds of its own, and what a threshold file says of it.
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
    app_protocol: str | None = None
    buffers: tuple[BufferMatches, ...] = ()
    app_conditions: tuple[Condition, ...] = ()
    packet_buffers: tuple[BufferMatches, ...] = ()
    conditions: tuple[Condition, ...] = ()
    flowbits: tuple[Flowbits, ...] = ()
    flow_integers: tuple[FlowInteger, ...] = ()
    host_bits: tuple[HostBits, ...] = ()
    tags: tuple[Tag, ...] = ()
    config: FlowConfig | None = None
    threshold: Threshold | None = None
    limits: tuple[Threshold | Suppression, ...] = ()
    noalert: bool = False
    bypass: bool = False
    in_packets: bool = False
    in_streams: bool = False
    in_datagrams: bool = False
    scope: Scope = Scope.PACKET
    alert: bool = False

    @property
    def events(self) -> tuple[int, ...]:
        """The events (`flowshunt_ids.events`) that the packet must have."""
        return tuple(condition.value for condition in self.conditions if condition.name == "event")

    @property
    def sort_key(self) -> tuple[int, ...]:
        """Suricata's default order: by action; then rules that set before those that read, for flowbits, for integers
        of the flow, for variables of expressions and for bits of hosts; then by priority.

        Of bits of hosts it counts the reading by `xbits` and the setting by `hostbits`; a rule that reads by `xbits`
        thus goes before those that set by it.
        """
        captures = [name for match in self.payload if isinstance(match, Pcre) for name in match.captures]
        return (
            int(self.header.action),
            _rank([bits.command for bits in self.flowbits]),
            _rank(["set" if number.changes else "isset" for number in self.flow_integers]),
            _rank(["set" for name in captures if name.startswith("flow:")]),
            _rank(["set" for name in captures if name.startswith("pkt:")]),
            _rank(
                [
                    bits.command
                    for bits in self.host_bits
                    if bits.track != "ip_pair" and (bits.keyword == "xbits") == (bits.command in _READING)
                ]
            ),
            _rank([bits.command for bits in self.host_bits if bits.track == "ip_pair" and bits.command in _READING]),
            self.signature.priority,
        )


_READING = ("isset", "isnotset")


def _rank(commands: Sequence[str]) -> int:
    sets = any(command in ("set", "unset", "toggle") for command in commands)
    reads = any(command in _READING for command in commands)
    return (1 if reads else 0) if sets else (2 if reads else 3)


def variables_of(match: Match) -> tuple[str, ...]:
    """The variables of `byte_extract` and `byte_math` that a match refers to."""
    used: tuple[Any, ...] = ()
    if isinstance(match, Content):
        used = (match.offset, match.depth, match.distance, match.within)
    elif isinstance(match, IsDataAt):
        used = (match.amount,)
    elif isinstance(match, ByteTest | ByteMath):
        used = (match.value, match.number.offset, match.number.count)
    elif isinstance(match, ByteJump):
        used = (match.number.offset, match.post_offset, match.number.count)
    elif isinstance(match, ByteExtract):
        used = (match.number.offset, match.number.count)
    return tuple(name for name in used if isinstance(name, str))


def datasets_of(rule: Rule) -> list[Dataset]:
    """The sets that a rule looks buffers up in."""
    matches = [*rule.payload]
    for buffer in (*rule.buffers, *rule.packet_buffers):
        matches += buffer.matches
    return [match.dataset for match in matches if isinstance(match, DatasetMatch | ReputationMatch)]
