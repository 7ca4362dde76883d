"""Rule files into rules: what loads, what does not and why."""

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import attrs

from flowshunt.engine import RuleProblem, Signature
from flowshunt.errors import InputError
from flowshunt_ids.datasets import Datasets
from flowshunt_ids.rules import store
from flowshunt_ids.rules.classification import DEFAULT_PRIORITY, Classification
from flowshunt_ids.rules.header import parse_header
from flowshunt_ids.rules.keywords import UNQUOTED
from flowshunt_ids.rules.keywords.builder import RuleBuilder
from flowshunt_ids.rules.keywords.flow import TO_CLIENT, TO_SERVER
from flowshunt_ids.rules.keywords.meta import check_requirements
from flowshunt_ids.rules.language import Language
from flowshunt_ids.rules.lexer import RuleError, find_sid, logical_lines, parse_rule
from flowshunt_ids.rules.rule import (
    Action,
    BufferMatches,
    BufferSize,
    Content,
    Dataset,
    Field,
    FlowCondition,
    Header,
    PacketTest,
    Rule,
    Scope,
    datasets_of,
)
from flowshunt_ids.rules.text_files import read_text
from flowshunt_ids.rules.variables import Variables
from flowshunt_ids.rules.vocabulary import default_language

MIN_CACHED = 256 * 1024
"""Rule files of fewer characters in all are read anew each time."""


@attrs.frozen
class LoadedRules:
    """The rules of some files, in Suricata's order, with what was left out, what is worth a warning, and datasets."""

    rules: tuple[Rule, ...]
    problems: tuple[RuleProblem, ...]
    warnings: tuple[str, ...]
    datasets: Datasets = attrs.field(factory=Datasets)


def build_rule(
    text: str,
    variables: Variables,
    classification: Classification,
    language: Language | None = None,
    *,
    path: str = "",
    line: int = 0,
    datasets: dict[str, Dataset] | None = None,
) -> tuple[Rule, list[str]]:
    """Read one rule. Gives the rule and its warnings. Raises `RuleError`.

    datasets: those that earlier rules have described, by name; the rule's are added.
    """
    raw = parse_rule(text)
    language = language or default_language()
    # What `requires` asks for goes first: the rest may be unknown here.
    for name, value in raw.options:
        if name == "requires":
            check_requirements(value or "")
    header = parse_header(raw, variables, language)
    builder = RuleBuilder(header, classification, language, path, datasets if datasets is not None else {})
    first_only = True
    for name, value in raw.options:
        keyword = language.keyword(name)
        if value is None and keyword.value:
            raise RuleError(f"{name}: needs a value")
        if value is not None and keyword.value is False:
            raise RuleError(f"{name}: takes no value")
        if value is not None and value[:1] == '"' and name in UNQUOTED:
            raise RuleError(f"{name}: its value stands without quotes")
        keyword.read(builder, value or "")
        first_only = first_only and keyword.first_only
    if builder.sid is None:
        raise RuleError("no sid")
    return _finish(builder, first_only and builder.first_only, path, line), builder.warnings


def _finish(builder: RuleBuilder, first_only: bool, path: str, line: int) -> Rule:
    assert builder.sid is not None
    payload, buffers, packet_buffers = builder.finish_matches()
    header = _carriers(builder)
    flow = _direction(builder, buffers)
    if builder.config is not None or builder.app_protocol is not None:
        first_only = False
    if (buffers or builder.app_conditions) and (builder.needs_packet or packet_buffers):
        raise RuleError("can't mix conditions on packets (dsize, flags, ttl ...) with buffers of an application layer")
    if builder.needs_packet and builder.needs_stream:
        raise RuleError("can't mix conditions on packets (dsize, flags, ttl ...) with flow:only_stream")
    for each in (*buffers, *packet_buffers):
        _check_size(each)
    if not payload and flow.stream is True:
        # Only a payload can be looked for in a stream.
        builder.tests.append(PacketTest(Field.IP_PROTOCOL, 256, 256))
        builder.warnings.append(f"sid {builder.sid}: flow:only_stream without a payload keyword never matches")
        first_only = False
    in_packets = in_streams = in_datagrams = False
    if not buffers and not builder.app_conditions:
        # With a transaction, the payload is looked for in the stream around it only.
        in_packets, in_streams, in_datagrams = _places(builder, header, bool(packet_buffers))
    priority = builder.priority if builder.priority is not None else builder.class_priority
    return Rule(
        path,
        line,
        Signature(
            builder.sid,
            builder.gid,
            builder.rev or 0,
            builder.message or "",
            builder.category,
            DEFAULT_PRIORITY if priority is None else priority,
            header.action_name,
            tuple(builder.references),
            builder.metadata,
        ),
        header,
        flow,
        payload,
        tuple(builder.tests),
        app_protocol=builder.app_protocol,
        buffers=buffers,
        app_conditions=tuple(builder.app_conditions),
        packet_buffers=packet_buffers,
        conditions=tuple(builder.conditions),
        flowbits=tuple(builder.flowbits),
        flow_integers=tuple(builder.flow_integers),
        host_bits=tuple(builder.host_bits),
        tags=tuple(builder.tags),
        config=builder.config,
        threshold=builder.threshold,
        limits=tuple(builder.more_thresholds),
        noalert=builder.noalert or header.action is Action.CONFIG,
        bypass=builder.bypass,
        in_packets=in_packets,
        in_streams=in_streams,
        in_datagrams=in_datagrams,
        scope=_scope(builder, header, first_only, bool(buffers)),
        alert=builder.alert,
    )


def _check_size(buffer: BufferMatches) -> None:
    """Raises `RuleError` where contents need more bytes than `bsize` leaves; counted as Suricata counts them."""
    limit = next((match for match in buffer.matches if isinstance(match, BufferSize)), None)
    if limit is None or limit.negated:
        return
    length, offset, first = 0, 0, True
    for match in buffer.matches:
        if not isinstance(match, Content) or (not first and not match.relative):
            continue
        shift = match.distance if isinstance(match.distance, int) else 0
        if not first and match.negated:
            if length + shift + (match.within if isinstance(match.within, int) else 0) > limit.high:
                raise RuleError(f"bsize: {buffer.buffer} of {limit.high} bytes is too short for its contents")
            continue
        length += len(match.pattern) + shift
        offset = max(offset, match.offset if isinstance(match.offset, int) else 0)
        first = False
    if length + offset > limit.high:
        raise RuleError(f"bsize: {buffer.buffer} of {limit.high} bytes is too short for its contents")


def _carriers(builder: RuleBuilder) -> Header:
    """The header, with the IP protocols that the rule's application protocol runs over where it names none itself."""
    header = builder.header
    if builder.app_protocol is None or header.protocols is not None:
        return header
    return attrs.evolve(header, protocols=builder.language.protocol(builder.app_protocol).ip_protocols)


def _direction(builder: RuleBuilder, buffers: Sequence[BufferMatches]) -> FlowCondition:
    """What `flow` says, and else the direction that the rule's buffers have. Raises `RuleError` where they differ."""
    flow = builder.flow or FlowCondition()
    known = builder.language.buffers
    to_server = any(not known[each.buffer].to_client for each in buffers)
    to_client = any(not known[each.buffer].to_server for each in buffers)
    if to_server and to_client:
        raise RuleError("its buffers belong to different directions")
    if not to_server and not to_client:
        return flow
    implied = TO_SERVER if to_server else TO_CLIENT
    if flow.direction not in (None, implied):
        raise RuleError("its buffers don't belong to the direction that 'flow' asks for")
    return attrs.evolve(flow, direction=implied)


def _scope(builder: RuleBuilder, header: Header, first_only: bool, buffers: bool) -> Scope:
    if buffers or builder.app_conditions:
        return Scope.TRANSACTION
    if builder.payload:
        return Scope.PAYLOAD
    if not first_only or header.protocol == "pkthdr" or builder.buffers or builder.conditions:
        return Scope.PACKET
    if header.source.negated or header.destination.negated:
        return Scope.ALL
    return Scope.FIRST


def _places(builder: RuleBuilder, header: Header, packet_buffers: bool) -> tuple[bool, bool, bool]:
    """Whether the payload is looked for in TCP packets, in TCP streams, and in packets of other protocols.

    As in Suricata: a rule without a condition on the packet is matched against the stream, and against single packets
    too where a content has a place counted from the start.
    """
    if not builder.payload:
        return False, False, False
    needs_packet = builder.needs_packet or packet_buffers
    datagrams = header.protocols != frozenset({6}) and not builder.needs_stream
    if header.protocols is not None and 6 not in header.protocols:
        return False, False, datagrams
    if header.protocol == "tcp-pkt":
        if builder.needs_stream:
            raise RuleError("flow: only_stream can't be used with protocol tcp-pkt")
        return True, False, False
    if header.protocol == "tcp-stream":
        return needs_packet, True, False
    if needs_packet or builder.needs_stream:
        return needs_packet, builder.needs_stream, datagrams
    placed = builder.placed or any(
        isinstance(match, Content) and (match.offset is not None or match.depth is not None)
        for match in builder.payload
    )
    return placed, True, datagrams


def load_rules(
    paths: Sequence[Path], variables: Variables, classification: Classification, *, cached: bool = True
) -> LoadedRules:
    """Read rule files. Raises `InputError` for a file that can't be read; a rule that can't be used is a problem.

    Of rules with the same gid and sid the one with the highest rev is kept, as in Suricata. cached: whether a rule set
    that was loaded before is taken from the cache, see `flowshunt_ids.rules.store`.
    """
    texts = [(path, read_text(path, "rule file")) for path in paths]
    with _without_collection():
        return _load(texts, variables, classification, cached)


@contextmanager
def _without_collection() -> Iterator[None]:
    """Without looking for reference circles, of which the objects of rules have none: there are very many of them."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _load(
    texts: Sequence[tuple[Path, str]], variables: Variables, classification: Classification, cached: bool
) -> LoadedRules:
    name = None
    if cached and sum(len(text) for _, text in texts) >= MIN_CACHED:
        parts = [repr((variables, classification)).encode("utf-8", "surrogatepass")]
        for path, text in texts:
            parts += [str(path).encode("utf-8", "surrogateescape"), text.encode("utf-8", "surrogateescape")]
        name = store.fingerprint(default_language(), parts)
        known = store.stored(name)
        if known is not None:
            return LoadedRules(*known)
    loaded = _read_rules(texts, variables, classification)
    if name is not None and not len(loaded.datasets):
        # Whether sets can be read is seen anew each time.
        store.store(name, (loaded.rules, loaded.problems, loaded.warnings))
    return loaded


def _read_rules(texts: Sequence[tuple[Path, str]], variables: Variables, classification: Classification) -> LoadedRules:
    kept: dict[tuple[int, int], Rule] = {}
    datasets = Datasets()
    described: dict[str, Dataset] = {}
    problems: list[RuleProblem] = []
    warnings: dict[str, None] = {}
    for path, text in texts:
        for line, rule_text in logical_lines(text):
            try:
                rule, notes = build_rule(
                    rule_text, variables, classification, path=str(path), line=line, datasets=described
                )
                datasets.open(datasets_of(rule))
            except (RuleError, InputError) as problem:
                problems.append(RuleProblem(str(path), line, find_sid(rule_text), str(problem)))
                continue
            for note in notes:
                warnings.setdefault(note)
            _keep(rule, kept, problems)
    rules = sorted(kept.values(), key=lambda rule: rule.sort_key)
    if not rules:
        where = "of those given can be used" if problems else "is given (--rules FILE, or rule-files in --config)"
        warnings.setdefault(f"no rule {where}: nothing is found, and nothing is bypassed by a rule")
    for note in _unset_flowbits(rules):
        warnings.setdefault(note)
    return LoadedRules(tuple(rules), tuple(problems), tuple(warnings), datasets)


def _keep(rule: Rule, kept: dict[tuple[int, int], Rule], problems: list[RuleProblem]) -> None:
    key = (rule.signature.gid, rule.signature.sid)
    other = kept.get(key)
    if other is None:
        kept[key] = rule
        return
    if rule.signature.rev > other.signature.rev:
        del kept[key]
        kept[key] = rule
        rule, other = other, rule
    problems.append(
        RuleProblem(
            rule.path,
            rule.line,
            rule.signature.sid,
            f"the same sid stands in {other.path}:{other.line} with rev {other.signature.rev}, which is kept",
        )
    )


def _unset_flowbits(rules: Sequence[Rule]) -> list[str]:
    changed = {
        name for rule in rules for bits in rule.flowbits if bits.command in ("set", "toggle") for name in bits.names
    }
    checked: dict[str, int] = {}
    for rule in rules:
        for bits in rule.flowbits:
            if bits.command == "isset":
                for name in bits.names:
                    checked.setdefault(name, rule.signature.sid)
    return [
        f"flowbit {name!r} is checked (sid {sid}) but no loaded rule sets it"
        for name, sid in checked.items()
        if name not in changed
    ]
