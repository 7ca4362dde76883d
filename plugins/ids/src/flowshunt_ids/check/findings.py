"""Likely mistakes in a rule that loads: what it probably does not do as its writer meant, or does at a high price."""

import re
from collections.abc import Callable, Iterator, Sequence

import attrs

from flowshunt_ids.encoding import MIN_PATTERN, Pattern
from flowshunt_ids.rules.rule import (
    Action,
    BufferMatches,
    Content,
    Match,
    Pcre,
    Rule,
    Scope,
    is_relative,
)
from flowshunt_ids.rules.variables import ANY_ADDRESS, ANY_PORT


@attrs.frozen
class Finding:
    """One thing to look at. code: names its kind; text: one line that says what and what to do."""

    code: str
    text: str


_TCP = frozenset({6})
_REQUEST = re.compile(rb"(?i)(GET|POST|PUT|HEAD) /|^(host|user-agent|cookie|referer|content-type): ?|HTTP/1\.")
_NESTED = re.compile(rb"\((?:[^()\\]|\\.)*[^\\][*+](?:[^()\\]|\\.)*\)[*+{]")
_PERCENT = re.compile(rb"%[0-9A-Fa-f]{2}")


def _contents(matches: Sequence[Match]) -> list[Content]:
    return [match for match in matches if isinstance(match, Content)]


def _chains(rule: Rule) -> list[tuple[str, Sequence[Match]]]:
    """The rule's chains of matches, each with the name of its buffer."""
    chains: list[tuple[str, Sequence[Match]]] = [("payload", rule.payload)] if rule.payload else []
    return chains + [(each.buffer, each.matches) for each in (*rule.buffers, *rule.packet_buffers)]


def _patterns(rule: Rule, pattern: Pattern | None) -> Iterator[Finding]:
    contents = [content for _, matches in _chains(rule) for content in _contents(matches)]
    if pattern is None:
        if rule.scope not in (Scope.PAYLOAD, Scope.TRANSACTION):
            return
        if not contents and any(isinstance(match, Pcre) for _, matches in _chains(rule) for match in matches):
            yield Finding(
                "pcre-alone", "a pcre without a content: it runs on everything; add a content that must be there"
            )
        elif not contents:
            yield Finding("no-content", "no content: it is looked at wherever its header fits")
        elif all(content.negated for content in contents):
            yield Finding("negated-only", "all contents are negated: nothing can be searched for first")
        else:
            yield Finding(
                "short-content", f"no content of {MIN_PATTERN} bytes or more that differ: nothing to search for"
            )
        return
    if len(pattern.literal) < 4:
        yield Finding(
            "short-pattern", f"the pattern searched for has {len(pattern.literal)} bytes only: many false candidates"
        )
    marked = next((content for content in contents if content.fast_pattern is not None), None)
    if marked is not None:
        if marked.negated:
            yield Finding("negated-fast-pattern", "fast_pattern on a negated content is not used")
        elif len(marked.pattern) < MIN_PATTERN:
            yield Finding("weak-fast-pattern", f"fast_pattern on a content of {len(marked.pattern)} bytes is not used")


def _expressions(rule: Rule, _pattern: Pattern | None) -> Iterator[Finding]:
    for name, matches in _chains(rule):
        for match in matches:
            if not isinstance(match, Pcre):
                continue
            if _NESTED.search(match.pattern):
                yield Finding(
                    "pcre-nested", f"pcre on {name}: a repeated group with a repetition in it may take very long"
                )
            if match.pattern.startswith((b".*", b"(.*", b"^.*")):
                yield Finding("pcre-leading-any", f"pcre on {name}: it begins with '.*', which only costs time")


def _relative(rule: Rule, _pattern: Pattern | None) -> Iterator[Finding]:
    if rule.payload and is_relative(rule.payload[0]) and not rule.buffers:
        yield Finding("relative-first", "the first match on the payload is relative: it counts from the begin")


def _direction(rule: Rule, _pattern: Pattern | None) -> Iterator[Finding]:
    header, flow = rule.header, rule.flow
    if header.both_directions and flow.direction is not None:
        yield Finding("both-and-flow", "'<>' with a direction in 'flow': one of the two has no effect")
    looks = rule.scope in (Scope.PAYLOAD, Scope.TRANSACTION)
    asks_flags = any(test.field.name == "TCP_FLAGS" for test in rule.tests)
    if header.protocols == _TCP and rule.payload and not rule.buffers and flow == type(flow)() and not asks_flags:
        yield Finding("no-flow", "TCP without 'flow': add 'flow:established,to_server' (or to_client)")
    elif looks and flow.direction is None and not header.both_directions and _is_plain_tcp(rule):
        yield Finding("no-direction", "no direction in 'flow': both are looked at")
    elif header.protocols == _TCP and rule.payload and flow.established is None and not rule.buffers:
        yield Finding("no-established", "TCP without 'established': a single packet without a handshake is enough")


def _ends(rule: Rule, _pattern: Pattern | None) -> Iterator[Finding]:
    header, flow = rule.header, rule.flow
    to_server = flow.direction == 0
    narrow, wide = header.source_ports, header.destination_ports
    if flow.direction is not None and header.source_ports != ANY_PORT and header.destination_ports == ANY_PORT:
        if to_server and len(narrow.ports) <= 8 and max(high for _, high in narrow.ports) < 32768:
            yield Finding(
                "ports-reversed", "'flow' says to the server, but the source's ports are set, not the server's"
            )
    elif flow.direction == 1 and wide != ANY_PORT and narrow == ANY_PORT and max(high for _, high in wide.ports) < 1024:
        yield Finding(
            "ports-reversed", "'flow' says to the client, but the destination's ports are set, not the server's"
        )
    if header.source != ANY_ADDRESS and header.source == header.destination:
        yield Finding(
            "same-addresses", "source and destination are the same addresses: a variable may be the wrong one"
        )
    if rule.app_protocol is not None and rule.buffers and ANY_PORT not in (narrow, wide):
        yield Finding(
            "bound-to-port", f"{rule.app_protocol} is recognized at any port: with both ports set much is missed"
        )


def _is_plain_tcp(rule: Rule) -> bool:
    return rule.app_protocol is None and rule.header.protocols == _TCP


def _application(rule: Rule, _pattern: Pattern | None) -> Iterator[Finding]:
    contents = _contents(rule.payload)
    if rule.app_protocol is not None and rule.buffers and contents:
        text = ", ".join(show(content.pattern) for content in contents[:2])
        yield Finding(
            "outside-buffer", f"content {text} is looked for in the stream, not in a buffer of {rule.app_protocol}"
        )
    elif rule.app_protocol == "http" and contents:
        yield Finding(
            "http-without-buffer", "http without a buffer: the raw stream is searched; use http.uri, http.header ..."
        )
    elif _is_plain_tcp(rule) and any(_REQUEST.search(content.pattern) for content in contents):
        yield Finding(
            "http-as-tcp", "looks like HTTP in a tcp rule: 'alert http' with http.* buffers finds it at any port"
        )
    for name, matches in _chains(rule):
        yield from _buffer_contents(name, matches)


_METHODS = frozenset({b"get", b"post", b"put", b"head", b"delete", b"options", b"connect", b"trace", b"patch"})
_LOWER = ("http.host", "dns.query", "tls.sni")


def _buffer_contents(name: str, matches: Sequence[Match]) -> Iterator[Finding]:
    for content in _contents(matches):
        literal, text = content.pattern, show(content.pattern)
        if name == "http.method" and literal.lower() in _METHODS and not literal.isupper() and not content.nocase:
            yield Finding("case", f"http.method: {text} is not in capitals: no client sends that")
        if name == "http.method" and literal.endswith(b" "):
            yield Finding("never", f"http.method: {text} ends with a blank, which the method has not")
        if name == "http.host" and not content.nocase and literal != literal.lower():
            yield Finding("never", f"http.host is in lower case: {text} is never in it; use nocase or http.host.raw")
        elif name in _LOWER[1:] and not content.nocase and literal != literal.lower():
            yield Finding("case", f"{name}: {text} has capitals: names differ in case; use nocase or to_lowercase")
        if name == "http.uri" and _PERCENT.search(literal):
            yield Finding("encoded", f"http.uri is decoded: {text} may never be in it; use http.uri.raw")
        if name in ("http.uri", "http.host", "http.user_agent") and b"\r\n" in literal:
            yield Finding("never", f"{name} has no line end: {text} is never in it")


def _effect(rule: Rule, _pattern: Pattern | None) -> Iterator[Finding]:
    commands = [*(bits.command for bits in rule.flowbits), *(bits.command for bits in rule.host_bits)]
    changes = not set(commands) <= {"isset", "isnotset"}
    changes = changes or any(number.changes for number in rule.flow_integers) or rule.config is not None
    action = rule.header.action
    if rule.noalert and action is Action.ALERT and not changes and not rule.bypass:
        yield Finding("no-effect", "noalert, and nothing is set or bypassed: the rule has no effect")
    if action is Action.ALERT and _matches_all(rule):
        yield Finding("matches-all", "no condition at all: it alerts on everything")
    if (
        any(test.field.name == "PAYLOAD_LENGTH" for test in rule.tests)
        and rule.header.protocols == _TCP
        and rule.payload
    ):
        yield Finding("dsize-tcp", "dsize looks at single packets: TCP data that is cut otherwise gets by")
    if not rule.signature.message:
        yield Finding("no-msg", "no msg: its alerts say nothing")


def _matches_all(rule: Rule) -> bool:
    header = rule.header
    return (
        not (rule.payload or rule.buffers or rule.packet_buffers or rule.tests or rule.conditions)
        and not (rule.app_conditions or rule.app_protocol or rule.flowbits or rule.flow_integers or rule.host_bits)
        and header.source == header.destination == ANY_ADDRESS
        and header.source_ports == header.destination_ports == ANY_PORT
        and rule.threshold is None
    )


_CHECKS: tuple[Callable[[Rule, Pattern | None], Iterator[Finding]], ...] = (
    _patterns,
    _expressions,
    _relative,
    _direction,
    _ends,
    _application,
    _effect,
)


def findings_of(rule: Rule, pattern: Pattern | None) -> list[Finding]:
    """What there is to look at in a rule that loads. pattern: what is searched for on its behalf."""
    return [finding for check in _CHECKS for finding in check(rule, pattern)]


def show(literal: bytes) -> str:
    """Bytes as rules have them: text, with `|hex|` for the rest."""
    out, digits = "", list[str]()
    for value in literal:
        if 32 <= value < 127 and chr(value) not in '";:|\\':
            if digits:
                out += f"|{' '.join(digits)}|"
                digits = []
            out += chr(value)
        else:
            digits.append(f"{value:02x}")
    return f'"{out}' + (f"|{' '.join(digits)}|" if digits else "") + '"'


def buffers_of(rule: Rule) -> Sequence[BufferMatches]:
    """The rule's matches on buffers."""
    return (*rule.buffers, *rule.packet_buffers)
