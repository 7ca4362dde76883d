"""What keywords write into while a rule is read, and how a keyword is declared."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import attrs

from flowshunt_ids.rules.classification import Classification
from flowshunt_ids.rules.lexer import RuleError
from flowshunt_ids.rules.rule import (
    Base64Decode,
    BufferMatches,
    BufferSize,
    Condition,
    Content,
    Dataset,
    DatasetMatch,
    Flowbits,
    FlowCondition,
    FlowConfig,
    FlowInteger,
    Header,
    HostBits,
    Match,
    PacketTest,
    ReputationMatch,
    Tag,
    Threshold,
    Transform,
)

if TYPE_CHECKING:
    from flowshunt_ids.rules.language import BufferKeyword, Language


@attrs.define
class BufferDraft:
    """The matches on one buffer so far. keyword None: a packet's payload and stream data."""

    keyword: "BufferKeyword | None" = None
    transforms: list[Transform] = attrs.field(factory=list)
    matches: list[Match] = attrs.field(factory=list)

    @property
    def name(self) -> str:
        """The buffer's name, for messages."""
        return self.keyword.name if self.keyword is not None else "payload"


@attrs.define
class RuleBuilder:
    """A rule in the making. Keywords set these in the order in which they stand in the rule.

    Attributes:
        path: of the file that the rule stands in; datasets: those that rules of the run have described, by name.
        payload, buffers: what has to match in which buffer; `payload` is the list in `payload_draft`.
        sticky: the buffer that matches go to; None: the payload.
        conditions: on packets and flows; app_conditions: on transactions of application layers.
        needs_packet, needs_stream: what a keyword says of where the payload is looked for.
        placed: whether a keyword asks for single packets beside streams (`stream_size`).
    """

    header: Header
    classification: Classification
    language: "Language"
    path: str = ""
    datasets: dict[str, Dataset] = attrs.field(factory=dict)
    sid: int | None = None
    gid: int = 1
    rev: int | None = None
    message: str | None = None
    category: str = ""
    class_priority: int | None = None
    priority: int | None = None
    references: list[str] = attrs.field(factory=list)
    metadata: dict[str, list[str]] = attrs.field(factory=dict)
    payload_draft: BufferDraft = attrs.field(factory=BufferDraft)
    buffers: list[BufferDraft] = attrs.field(factory=list)
    sticky: BufferDraft | None = None
    app_protocol: str | None = None
    conditions: list[Condition] = attrs.field(factory=list)
    app_conditions: list[Condition] = attrs.field(factory=list)
    tests: list[PacketTest] = attrs.field(factory=list)
    flow: FlowCondition | None = None
    flowbits: list[Flowbits] = attrs.field(factory=list)
    flow_integers: list[FlowInteger] = attrs.field(factory=list)
    host_bits: list[HostBits] = attrs.field(factory=list)
    tags: list[Tag] = attrs.field(factory=list)
    config: FlowConfig | None = None
    threshold: Threshold | None = None
    more_thresholds: list[Threshold] = attrs.field(factory=list)
    noalert: bool = False
    bypass: bool = False
    alert: bool = False
    needs_packet: bool = False
    needs_stream: bool = False
    placed: bool = False
    first_only: bool = True
    has_fast_pattern: bool = False
    variables: list[str] = attrs.field(factory=list)
    warnings: list[str] = attrs.field(factory=list)
    _base64: BufferDraft | None = None
    _last: BufferDraft | None = None
    _last_content: tuple[BufferDraft, int] | None = None

    def __attrs_post_init__(self) -> None:
        self.app_protocol = self.header.app_protocol

    @property
    def payload(self) -> list[Match]:
        """The matches on the payload."""
        return self.payload_draft.matches

    def set_protocol(self, protocol: str, keyword: str) -> None:
        """Say that a keyword needs an application protocol. Raises `RuleError` where another one is asked for."""
        mine = self.app_protocol
        if mine is None:
            self.language.check_protocol(protocol)
            self.app_protocol = protocol
        elif not self.language.same_protocol(mine, protocol):
            raise RuleError(f"{keyword}: belongs to protocol {protocol}, not to {mine}")

    def add_condition(self, condition: Condition, protocol: str | None = None) -> None:
        """Add a condition on the transactions of an application protocol; None: of any."""
        if protocol is not None:
            self.set_protocol(protocol, condition.name)
        self.app_conditions.append(condition)

    def open_buffer(self, keyword: "BufferKeyword | None") -> None:
        """Make a buffer the sticky one; None: back to the payload. Raises `RuleError`."""
        if self._base64 is not None:
            raise RuleError(f"{keyword.name if keyword else 'pkt_data'}: no buffer can follow base64_data")
        before = self.sticky
        if before is not None and not before.matches:
            raise RuleError(f"{before.name}: nothing is matched in it")
        if keyword is None:
            self.sticky = None
            return
        self._claim(keyword)
        self.sticky = self._draft(keyword, again=not keyword.multi)

    def _claim(self, keyword: "BufferKeyword") -> None:
        if len(keyword.protocols) == 1:
            self.set_protocol(keyword.protocols[0], keyword.name)
        mine = self.app_protocol
        if keyword.protocols and mine is not None:
            if any(self.language.same_protocol(mine, name) for name in keyword.protocols):
                return
            raise RuleError(f"{keyword.name}: protocol {mine} has no such buffer")

    def _draft(self, keyword: "BufferKeyword", *, again: bool) -> BufferDraft:
        if again:
            for draft in self.buffers:
                if draft.keyword == keyword and not draft.transforms:
                    return draft
        draft = BufferDraft(keyword)
        self.buffers.append(draft)
        return draft

    def add_transform(self, transform: Transform) -> None:
        """Add a transform to the sticky buffer. Raises `RuleError`."""
        if self.sticky is None or self.sticky.keyword is None:
            raise RuleError(f"{transform.name}: a transform needs a sticky buffer before it")
        if self.sticky.matches:
            if self.sticky.transforms:
                raise RuleError(f"{transform.name}: transforms must stand before the buffer's matches")
            # A buffer that was matched untransformed before is opened once more.
            self.sticky = self._draft(self.sticky.keyword, again=False)
        self.sticky.transforms.append(transform)

    def add_match(self, match: Match, *, follow: bool = False) -> None:
        """Add a match to the sticky buffer, or else to the payload; follow: to the buffer of the match before it."""
        draft = self._base64 or self.sticky
        if draft is None:
            draft = self._last if follow and self._last is not None else self.payload_draft
        draft.matches.append(match)
        if isinstance(match, Content):
            for transform in draft.transforms if not match.negated else ():
                if not self.language.transforms[transform.name].possible(match.pattern):
                    raise RuleError(f"content: {match.pattern!r} is never left by {transform.name}")
            self._last_content = (draft, len(draft.matches) - 1)
        if not isinstance(match, BufferSize | DatasetMatch | ReputationMatch):
            self._last = draft

    def last_content(self, keyword: str) -> Content:
        """The content that a modifier changes. Raises `RuleError`."""
        if self._last_content is None:
            raise RuleError(f"{keyword}: no content stands before it")
        draft, at = self._last_content
        content = draft.matches[at]
        assert isinstance(content, Content)
        return content

    def replace_content(self, content: Content) -> None:
        """Put a content in the place of the last one."""
        assert self._last_content is not None
        draft, at = self._last_content
        draft.matches[at] = content

    def move_content(self, keyword: "BufferKeyword", modifier: str) -> None:
        """What an old modifier does: the last content of the payload goes to a buffer. Raises `RuleError`."""
        if self.sticky is not None:
            raise RuleError(f"{modifier}: can't follow a sticky buffer; 'pkt_data' ends it")
        if self._last_content is None or not self.payload:
            raise RuleError(f"{modifier}: no content stands before it")
        at = max((at for at, match in enumerate(self.payload) if isinstance(match, Content)), default=-1)
        if at < 0:
            raise RuleError(f"{modifier}: no content stands before it")
        self._claim(keyword)
        content = self.payload.pop(at)
        draft = self._draft(keyword, again=True)
        draft.matches.append(content)
        self._last = draft
        self._last_content = (draft, len(draft.matches) - 1)

    def add_to_buffer(self, keyword: "BufferKeyword", match: Match) -> None:
        """Add a match to a buffer whatever is sticky (`urilen`, pcre's buffer letters). Raises `RuleError`."""
        self._claim(keyword)
        draft = self._draft(keyword, again=True)
        draft.matches.append(match)
        self._last = draft

    def open_base64(self) -> None:
        """From here on, matches are on what `base64_decode` gives. Raises `RuleError`."""
        if self._base64 is not None:
            raise RuleError("base64_data: given twice")
        if not any(isinstance(match, Base64Decode) for draft in self._drafts() for match in draft.matches):
            raise RuleError("base64_data: needs base64_decode before it")
        self._base64 = BufferDraft()

    def _drafts(self) -> list[BufferDraft]:
        return [self.payload_draft, *self.buffers]

    def finish_matches(self) -> tuple[tuple[Match, ...], tuple[BufferMatches, ...], tuple[BufferMatches, ...]]:
        """The matches on the payload, on buffers of application layers and on buffers of packets.

        Raises `RuleError` for a buffer without any.
        """
        if self._base64 is not None:
            if not self._base64.matches:
                raise RuleError("base64_data: nothing is matched in it")
            inner = tuple(self._base64.matches)
            for draft in self._drafts():
                draft.matches[:] = [
                    attrs.evolve(match, matches=inner) if isinstance(match, Base64Decode) else match
                    for match in draft.matches
                ]
        found: tuple[list[BufferMatches], list[BufferMatches]] = ([], [])
        for draft in self.buffers:
            if not draft.matches:
                raise RuleError(f"{draft.name}: nothing is matched in it")
            assert draft.keyword is not None
            matches = BufferMatches(draft.name, tuple(draft.transforms), tuple(draft.matches))
            found[draft.keyword.packet].append(matches)
        return tuple(self.payload), tuple(found[0]), tuple(found[1])


@attrs.frozen
class Keyword:
    """How a keyword is read.

    read: takes the builder and the value ("" where there is none); raises `RuleError`.
    value: True where a value is needed, False where there must be none, None where it may be left out.
    first_only: whether a rule with it may still be one that is looked at only once for each direction of a flow.
    """

    read: Callable[[RuleBuilder, str], None]
    value: bool | None = True
    first_only: bool = False


def whole_number(text: str, what: str, minimum: int, maximum: int) -> int:
    """A decimal number within limits. Raises `RuleError`."""
    stripped = text.strip()
    digits = stripped[1:] if stripped[:1] == "-" else stripped
    if not digits.isascii() or not digits.isdigit() or len(digits) > 20:
        raise RuleError(f"{what}: {stripped!r} is not a number")
    value = int(stripped)
    if not minimum <= value <= maximum:
        raise RuleError(f"{what}: {value} is outside {minimum} to {maximum}")
    return value


def unquoted(text: str, what: str) -> tuple[str, bool]:
    """The text between the quotes of a value, and whether a '!' stood before it. Raises `RuleError`."""
    negated = text.startswith("!")
    inner = text[1:].strip() if negated else text
    if len(inner) < 2 or inner[0] != '"' or inner[-1] != '"':
        raise RuleError(f"{what}: the value must stand in double quotes")
    return inner[1:-1], negated
