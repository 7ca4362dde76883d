"""What rules may say: keywords, buffers, transforms and application protocols, built in or registered by plugins."""

from collections.abc import Callable, Iterable, Mapping

import attrs

from flowshunt_ids.rules.keywords.builder import Keyword, RuleBuilder
from flowshunt_ids.rules.lexer import RuleError
from flowshunt_ids.rules.rule import Transform


@attrs.frozen
class Protocol:
    """An application protocol that rules may name. ip_protocols: what carries it (6 TCP, 17 UDP)."""

    name: str
    ip_protocols: frozenset[int] = frozenset({6})
    aliases: tuple[str, ...] = ()


@attrs.frozen
class BufferKeyword:
    """A buffer that rules may match in.

    Attributes:
        name: its canonical name, which is its sticky keyword too ("http.uri").
        protocols: the application protocols that have it; a rule that uses the buffer of a single protocol is one of
            that protocol. Empty for buffers of packets.
        sticky: further sticky keywords ("file_data").
        modifier: the older keyword that moves the content before it here ("http_uri"); "" for none.
        pcre_flag: the letters that send an expression here ("U"); "" for none.
        multi: whether a transaction may have several; each use in a rule then is a chain of its own.
        to_server, to_client: the directions that have it.
        packet: whether it is a part of a packet's headers, see `flowshunt_ids.packet_buffers`.
    """

    name: str
    protocols: tuple[str, ...] = ()
    sticky: tuple[str, ...] = ()
    modifier: str = ""
    pcre_flag: str = ""
    multi: bool = False
    to_server: bool = True
    to_client: bool = True
    packet: bool = False


@attrs.frozen
class TransformKeyword:
    """A transform of a buffer.

    prepare: takes the keyword's value and gives the function that is applied to buffers; raises `RuleError`.
    value: as in `Keyword`. possible: whether a literal can be in what it makes.
    """

    name: str
    prepare: Callable[[str], Callable[[bytes], bytes]]
    value: bool | None = False
    possible: Callable[[bytes], bool] = lambda _literal: True


@attrs.frozen(eq=False)
class Language:
    """What rules may say.

    Attributes:
        keywords: by name; sticky buffers, modifiers and transforms are among them.
        buffers: by canonical name.
        pcre_flags: the buffers by pcre's letters.
        transforms: by name.
        protocols: by name and alias.
        absent: takes the name of a keyword or protocol that is not here; says why, or None where it is not known.
    """

    keywords: Mapping[str, Keyword]
    buffers: Mapping[str, BufferKeyword] = attrs.field(factory=dict)
    pcre_flags: Mapping[str, BufferKeyword] = attrs.field(factory=dict)
    transforms: Mapping[str, TransformKeyword] = attrs.field(factory=dict)
    protocols: Mapping[str, Protocol] = attrs.field(factory=dict)
    absent: Callable[[str], str | None] = lambda _name: None

    def keyword(self, name: str) -> Keyword:
        """The keyword of a name. Raises `RuleError`."""
        found = self.keywords.get(name)
        if found is None:
            raise RuleError(self._why_not(name, f"{name!r} is not a keyword"))
        return found

    def protocol(self, name: str) -> Protocol:
        """The application protocol of a name. Raises `RuleError`."""
        found = self.protocols.get(name)
        if found is None:
            raise RuleError(self._why_not(name, f"{name!r} is not a protocol"))
        return found

    def check_protocol(self, name: str) -> None:
        """Raises `RuleError` for a protocol that is not to be had."""
        self.protocol(name)

    def same_protocol(self, first: str, second: str) -> bool:
        """Whether two names stand for the same protocol."""
        one, other = self.protocols.get(first), self.protocols.get(second)
        return first == second or (one is not None and one == other)

    def _why_not(self, name: str, otherwise: str) -> str:
        return self.absent(name) or otherwise


_CARRIERS = {"tcp.hdr": 6, "udp.hdr": 17, "icmpv4.hdr": 1, "icmpv6.hdr": 58}
"""The IP protocol that has a buffer of packets."""


def _sticky(buffer: BufferKeyword) -> Keyword:
    def read(rule: RuleBuilder, _value: str) -> None:
        if buffer.packet:
            rule.needs_packet = True
            carrier = _CARRIERS.get(buffer.name)
            if carrier is not None and rule.header.protocols is not None and carrier not in rule.header.protocols:
                raise RuleError(f"{buffer.name}: can't be used with protocol {rule.header.protocol}")
        rule.open_buffer(buffer)

    return Keyword(read, value=False)


def _modifier(buffer: BufferKeyword) -> Keyword:
    def read(rule: RuleBuilder, _value: str) -> None:
        rule.move_content(buffer, buffer.modifier)

    return Keyword(read, value=False)


def _transform(transform: TransformKeyword) -> Keyword:
    def read(rule: RuleBuilder, value: str) -> None:
        transform.prepare(value)
        rule.add_transform(Transform(transform.name, value))

    return Keyword(read, value=transform.value)


def make_language(
    keywords: Mapping[str, Keyword],
    buffers: Iterable[BufferKeyword] = (),
    transforms: Iterable[TransformKeyword] = (),
    protocols: Iterable[Protocol] = (),
    absent: Callable[[str], str | None] | None = None,
) -> Language:
    """Put a language together. Of several with one name the first counts."""
    names = dict(keywords)
    by_name: dict[str, BufferKeyword] = {}
    by_flag: dict[str, BufferKeyword] = {}
    for buffer in buffers:
        if buffer.name in by_name:
            continue
        by_name[buffer.name] = buffer
        for name in (buffer.name, *buffer.sticky):
            names.setdefault(name, _sticky(buffer))
        if buffer.modifier:
            names.setdefault(buffer.modifier, _modifier(buffer))
        for letter in buffer.pcre_flag:
            by_flag.setdefault(letter, buffer)
    by_transform: dict[str, TransformKeyword] = {}
    for transform in transforms:
        by_transform.setdefault(transform.name, transform)
        names.setdefault(transform.name, _transform(transform))
    by_protocol: dict[str, Protocol] = {}
    for protocol in protocols:
        for name in (protocol.name, *protocol.aliases):
            by_protocol.setdefault(name, protocol)
    return Language(names, by_name, by_flag, by_transform, by_protocol, absent or (lambda _name: None))
