"""What a protocol of the application layer is made of: how it is recognized, parsed, and looked at by rules.

A plugin gives protocols, buffers and conditions through the hooks in `flowshunt_ids.hookspecs`.
"""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import attrs

TO_SERVER = 0
TO_CLIENT = 1
BOTH = (TO_SERVER, TO_CLIENT)

NOT_YET = -1
"""Progress of a direction of which nothing was seen."""


@attrs.frozen
class DetectionPattern:
    """Bytes by which a protocol is recognized at the begin of what one direction sends, at any port.

    offset, depth: the bytes stand wholly in [offset, depth) of the direction's data; depth None: right at `offset`.
    """

    pattern: bytes
    direction: int = TO_SERVER
    offset: int = 0
    depth: int | None = None
    nocase: bool = False

    @property
    def end(self) -> int:
        """How many bytes have to be there before it is certain that it is not there."""
        return self.offset + len(self.pattern) if self.depth is None else self.depth


@attrs.frozen
class Probe:
    """A function that recognizes a protocol at certain ports, where patterns did not.

    look: takes the direction's first bytes; True: it is this protocol, False: it is not, None: more bytes are needed.
    ports: of the server; the setting `app-layer.protocols.NAME.detection-ports.dp` wins over them. None: any port.
    """

    look: Callable[[bytes], bool | None]
    ports: tuple[int, ...] | None
    direction: int = TO_SERVER
    transports: frozenset[int] = frozenset({6})


class File:
    """A file that a transaction carries, as far as it has come. See `flowshunt_ids.app.files` for how it grows.

    Attributes:
        data: the bytes that are kept for matching (the begin, up to the protocol's limit).
        size: all bytes so far, kept or not.
        state: "open", "closed" (whole), or "truncated".
        digests: in hexadecimal by name ("md5", "sha1", "sha256") once it is closed, and only where asked for.
        stored: whether a rule asks to keep it (`filestore`).
        met: what rules ask of files and this one met, by identity.
    """

    __slots__ = ("data", "digests", "direction", "hashes", "magic", "met", "name", "size", "state", "stored")

    def __init__(self, name: bytes, direction: int) -> None:
        self.name = name
        self.direction = direction
        self.data = bytearray()
        self.size = 0
        self.state = "open"
        self.hashes: dict[str, Any] = {}
        self.digests: dict[str, str] = {}
        self.magic: str | None = None
        self.met: set[int] = set()
        self.stored = False


class Transaction:
    """A request and its response, or what stands for them. A parser makes and changes it, rules look at it.

    Attributes:
        progress: for each direction how far it has come, one of the protocol's states; NOT_YET where nothing was seen.
        events: names of what was wrong, in order, each with its direction.
        files: what it carries.
        changed: for each direction whether there is something new to look at since the last look.
        state: for each direction what rules have made of it; belongs to `flowshunt_ids.app.detection`.
    """

    __slots__ = ("changed", "events", "files", "number", "progress", "state")

    def __init__(self, number: int) -> None:
        self.number = number
        self.progress = [NOT_YET, NOT_YET]
        self.events: list[tuple[int, str]] = []
        self.files: list[File] = []
        self.changed = [True, True]
        self.state: list[Any] = [None, None]

    def event(self, direction: int, name: str) -> None:
        """Note that something was wrong; the same once."""
        if (direction, name) not in self.events and len(self.events) < 64:
            self.events.append((direction, name))
            self.changed[direction] = True

    def looked(self, direction: int) -> None:
        """Called after rules looked at one direction."""


class Parser(Protocol):
    """One flow's parser. It must survive any bytes in time linear in their number and in bounded memory.

    Attributes:
        transactions: those that are not done with, oldest first. Done ones are taken out by who calls.
        bypass: set once the rest of the flow is of no interest (encrypted, tunnelled): see `BypassWish`.
        becomes: set once another protocol follows (a tunnel, STARTTLS): its name, or "" where it is to be recognized by
            what comes. None: this protocol goes on.
    """

    transactions: list[Any]
    bypass: bool
    becomes: str | None

    def data(self, direction: int, data: bytes) -> None:
        """The next bytes of a direction (UDP: one datagram's payload)."""

    def gap(self, direction: int, size: int) -> None:
        """That many bytes of a direction were lost."""

    def end(self, direction: int) -> None:
        """The direction is closed: nothing more comes."""


@attrs.frozen
class ExpectedFlow:
    """A flow between the same two hosts that one flow's protocol announces.

    port: of the side that is connected to. direction: of the data by which it is recognized. about: given to its
    parser as `Context.expected`.
    """

    protocol: str
    port: int
    direction: int
    about: Any = None


@attrs.frozen
class Context:
    """What a parser may need to know of its flow. settings: `app-layer.protocols.NAME` of the configuration.

    source: the client's address (4 or 16 bytes). expected: what was said of the flow where another announced it.
    """

    settings: Mapping[str, Any] = attrs.field(factory=dict)
    transport: int = 6
    source_port: int = 0
    destination_port: int = 0
    wants: frozenset[str] = frozenset()
    """What rules and outputs look at beyond plain buffers: "files", "md5", "sha1", "sha256", "magic", "bodies"."""
    source: bytes = b""
    expected: Any = None


@attrs.frozen(eq=False)
class AppProtocol:
    """A protocol of the application layer.

    Attributes:
        name: as rules and EVE's `app_proto` have it. aliases: further names for rules.
        transports: 6 and 17.
        open: makes a flow's parser.
        done: for each direction the progress at which it is complete.
        patterns, probes: how it is recognized. first: who speaks first, for parsers that need the other side too.
        events: names for `app-layer-event:NAME.EVENT`.
        eve: the transaction's event for EVE: (event type, what stands under that name in it), or None where there is
            nothing to tell. eve_types: the event types that there may be. eve_further: what stands beside it.
        expects: protocols of flows that its flows announce: its parsers have a list `expected` of `ExpectedFlow`s.
    """

    name: str
    open: Callable[[Context], Parser]
    done: tuple[int, int]
    transports: frozenset[int] = frozenset({6})
    aliases: tuple[str, ...] = ()
    patterns: tuple[DetectionPattern, ...] = ()
    probes: tuple[Probe, ...] = ()
    events: frozenset[str] = frozenset()
    eve: Callable[[Any], tuple[str, dict[str, Any]] | None] | None = None
    eve_types: frozenset[str] = frozenset()
    settings: str = ""
    """Its key under `app-layer.protocols` where that is not `name`."""
    eve_further: Callable[[Any], dict[str, Any]] | None = None
    expects: frozenset[str] = frozenset()


@attrs.frozen(eq=False)
class Buffer:
    """A part of a transaction that rules look at: a sticky buffer.

    Attributes:
        name: canonical ("http.uri"). aliases: further names of the sticky form; modifier: of the old form that stands
            after its content ("" for none); pcre_flag: the letter that sends an expression here ("" for none).
        protocols: names of the protocols that have it.
        progress: for each direction the progress at which it is there (it grows until the progress is past that);
            None: that direction does not have it.
        get: takes the transaction and the direction; gives the bytes, None where there are none (nothing matches then,
            negated contents neither), or where `multiple` is set a sequence of bytes, each looked at by itself.
        streaming: it grows while the progress stands at `progress`: it is looked at again each time.
    """

    name: str
    protocols: tuple[str, ...]
    get: Callable[[Any, int], Any]
    progress: tuple[int | None, int | None]
    aliases: tuple[str, ...] = ()
    modifier: str = ""
    pcre_flag: str = ""
    multiple: bool = False
    streaming: bool = False
    chained: bool = True
    """With `multiple`: each use of it in a rule stands for an instance of its own."""
    others: Mapping[str, tuple[int | None, int | None]] = attrs.field(factory=dict)
    """The progress with protocols where it differs, by name."""

    def progress_of(self, protocol: str) -> tuple[int | None, int | None]:
        """For each direction the progress of a protocol's transactions at which it is there."""
        return self.others.get(protocol, self.progress)

    @property
    def directions(self) -> tuple[int, ...]:
        """The directions that have it with any protocol."""
        known = (self.progress, *self.others.values())
        return tuple(direction for direction in BOTH if any(each[direction] is not None for each in known))


@attrs.frozen(eq=False)
class ConditionKind:
    """How a rule's `Condition` (see `flowshunt_ids.rules.rule`) of one name is judged on a transaction.

    Attributes:
        name: of the condition.
        protocols: those whose transactions it can judge; () for any protocol.
        progress: as in `Buffer`.
        judge: takes the transaction, the direction and the condition's value. True: holds; False: does not and will
            not; None: does not yet.
    """

    name: str
    protocols: tuple[str, ...]
    progress: tuple[int | None, int | None]
    judge: Callable[[Any, int, Any], bool | None]
    repeats: bool = False
    """It may hold again, for something else in the same transaction, and the rule then matches again."""

    @property
    def directions(self) -> tuple[int, ...]:
        """The directions in which it can be judged."""
        return tuple(direction for direction in BOTH if self.progress[direction] is not None)


@attrs.frozen(eq=False)
class BypassWish:
    """When a flow of a protocol is bypassed though no rule says so.

    decide: takes the parser (after it set `bypass`) and the protocol's settings; gives the cause for reports, or "".
    """

    protocol: str
    decide: Callable[[Any, Mapping[str, Any]], str]
