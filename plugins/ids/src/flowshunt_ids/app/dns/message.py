"""DNS messages (RFC 1035): header, questions, records, names with their compression."""

import struct
from typing import Any

import attrs

HEADER = 12
LONGEST_NAME = 1025
"""Bytes of a name that are kept; what is longer is cut off."""
MOST_LABELS = 255
_WORK = 1 << 16
"""Bytes of names that one message may make us put together: pointers let a few bytes stand for many."""

_QUESTION = struct.Struct(">2H")
_RECORD = struct.Struct(">2HIH")

A, NS, CNAME, SOA, NULL, PTR, MX, TXT, AAAA, SRV, SSHFP = 1, 2, 5, 6, 10, 12, 15, 16, 28, 33, 44


class MalformedError(ValueError):
    """The message ends too early, or a name has an impossible label."""


@attrs.frozen
class Name:
    """A name in presentation form, as bytes; `cut`: it is not all of it."""

    value: bytes
    cut: bool = False


@attrs.frozen
class Question:
    """A question."""

    name: Name
    type: int


@attrs.frozen
class Record:
    """A resource record; data by type: Name, bytes, or a dict of an SOA, SRV or SSHFP record."""

    name: Name
    type: int
    ttl: int
    data: Any


@attrs.define
class Message:
    """A message.

    Attributes:
        events: what was odd in its names, by the event's name.
    """

    id: int
    flags: int
    questions: list[Question] = attrs.field(factory=list)
    answers: list[Record] = attrs.field(factory=list)
    authorities: list[Record] = attrs.field(factory=list)
    events: list[str] = attrs.field(factory=list)

    @property
    def response(self) -> bool:
        """Whether it says that it is a response."""
        return bool(self.flags & 0x8000)

    @property
    def opcode(self) -> int:
        """The kind of query."""
        return self.flags >> 11 & 15


def plausible(data: bytes, size: int) -> bool:
    """Whether the counts of a header fit a message of `size` bytes; False for less than a header."""
    if len(data) < HEADER:
        return False
    return 2 * sum(struct.unpack_from(">4H", data, 4)) + HEADER <= size


class _Reader:
    def __init__(self, data: bytes, message: Message) -> None:
        self.data = data
        self.at = HEADER
        self.message = message
        self.work = 0

    def number(self, form: str) -> int:
        try:
            (value,) = struct.unpack_from(form, self.data, self.at)
        except struct.error:
            raise MalformedError from None
        self.at += struct.calcsize(form)
        return int(value)

    def numbers(self, form: struct.Struct) -> tuple[int, ...]:
        try:
            values = form.unpack_from(self.data, self.at)
        except struct.error:
            raise MalformedError from None
        self.at += form.size
        return values

    def odd(self, event: str) -> None:
        if event not in self.message.events:
            self.message.events.append(event)

    def name(self, end: int) -> Name:
        """A name at the present place; `end`: where the data of the question or record ends."""
        data, at, behind = self.data, self.at, -1
        labels: list[bytes] = []
        size, cut = 0, False
        for count in range(MOST_LABELS + 2):
            limit = end if behind < 0 else len(data)
            if at >= limit:
                break
            length = data[at]
            if length == 0:
                at += 1
                break
            if length < 64:
                if at + 1 + length > limit:
                    raise MalformedError
                if not cut:
                    labels.append(data[at + 1 : at + 1 + length])
                    size += length + (len(labels) > 1)
                at += 1 + length
            elif length >= 192:
                if at + 2 > limit:
                    raise MalformedError
                target = (length & 63) << 8 | data[at + 1]
                if target == at:
                    self.odd("infinite_loop")
                    if behind < 0:
                        raise MalformedError
                    break
                if target > len(data):
                    raise MalformedError
                if behind < 0:
                    behind = at + 2
                at = target
            else:
                raise MalformedError
            self.work += size
            if count >= MOST_LABELS or self.work > _WORK * 16:
                self.odd("too_many_labels")
                if behind < 0:
                    raise MalformedError
                self.odd("name_too_long")
                cut = True
                break
            if size > LONGEST_NAME and not cut:
                self.odd("name_too_long")
                cut = True
                if behind >= 0:
                    break
        self.at = at if behind < 0 else behind
        return Name(b".".join(labels)[:LONGEST_NAME], cut)

    def records(self, count: int) -> list[Record]:
        found: list[Record] = []
        for _ in range(count):
            name = self.name(len(self.data))
            kind, _class, ttl, length = self.numbers(_RECORD)
            end = self.at + length
            if end > len(self.data):
                raise MalformedError
            found.extend(Record(name, kind, ttl, data) for data in self.contents(kind, end))
            self.at = end
        return found

    def contents(self, kind: int, end: int) -> list[Any]:
        data, at = self.data, self.at
        if kind in (CNAME, NS, PTR):
            return [self.name(end)]
        if kind == MX:
            self.number(">H")
            return [self.name(end)]
        if kind == TXT:
            texts = []
            while at < end and at + 1 + data[at] <= end:
                texts.append(data[at + 1 : at + 1 + data[at]])
                at += 1 + data[at]
            if not texts:
                raise MalformedError
            return texts
        if kind == SOA:
            names = self.name(end), self.name(end)
            numbers = [self.number(">I") for _ in range(5)]
            return [{"mname": names[0], "rname": names[1], **dict(zip(
                ("serial", "refresh", "retry", "expire", "minimum"), numbers, strict=True))}]  # fmt: skip
        if kind == SRV:
            numbers = [self.number(">H") for _ in range(3)]
            return [{**dict(zip(("priority", "weight", "port"), numbers, strict=True)), "name": self.name(end)}]
        if kind == SSHFP:
            if end - at < 3:
                raise MalformedError
            return [{"fingerprint": data[at + 2 : end].hex(":"), "algo": data[at], "type": data[at + 1]}]
        return [data[at:end]]


def parse(data: bytes) -> Message:
    """A message from its bytes, additional records left out. Raises MalformedError."""
    if len(data) < HEADER:
        raise MalformedError
    number, flags, questions, answers, authorities = struct.unpack_from(">5H", data)
    message = Message(number, flags)
    reader = _Reader(data, message)
    for _ in range(questions):
        name = reader.name(len(data))
        kind, _class = reader.numbers(_QUESTION)
        message.questions.append(Question(name, kind))
    if message.response:
        message.answers = reader.records(answers)
        message.authorities = reader.records(authorities)
    return message
