"""Rule files into rules: what loads, what does not and why."""

import stat
from collections.abc import Sequence
from pathlib import Path

import attrs

from flowshunt.engine import RuleProblem, Signature
from flowshunt.errors import InputError
from flowshunt_ids.rules.classification import DEFAULT_PRIORITY, Classification
from flowshunt_ids.rules.header import parse_header
from flowshunt_ids.rules.keywords import KEYWORDS
from flowshunt_ids.rules.keywords.builder import RuleBuilder
from flowshunt_ids.rules.lexer import RuleError, find_sid, logical_lines, parse_rule
from flowshunt_ids.rules.rule import Content, Field, FlowCondition, PacketTest, Rule, Scope
from flowshunt_ids.rules.variables import Variables

MAX_FILE = 512 * 1024 * 1024
"""The largest rule file in bytes."""


@attrs.frozen
class LoadedRules:
    """The rules of some files, in Suricata's order, with what was left out and what is worth a warning."""

    rules: tuple[Rule, ...]
    problems: tuple[RuleProblem, ...]
    warnings: tuple[str, ...]


def build_rule(
    text: str, variables: Variables, classification: Classification, *, path: str = "", line: int = 0
) -> tuple[Rule, list[str]]:
    """Read one rule. Gives the rule and its warnings. Raises `RuleError`."""
    raw = parse_rule(text)
    header = parse_header(raw, variables)
    builder = RuleBuilder(header, classification)
    first_only = True
    for name, value in raw.options:
        keyword = KEYWORDS.get(name)
        if keyword is None:
            raise RuleError(f"keyword {name}: not supported yet")
        if value is None and keyword.value:
            raise RuleError(f"{name}: needs a value")
        if value is not None and keyword.value is False:
            raise RuleError(f"{name}: takes no value")
        keyword.read(builder, value or "")
        first_only = first_only and keyword.first_only
    if builder.sid is None:
        raise RuleError("no sid")
    return _finish(builder, first_only and builder.first_only, path, line), builder.warnings


def _finish(builder: RuleBuilder, first_only: bool, path: str, line: int) -> Rule:
    header = builder.header
    assert builder.sid is not None
    in_packets, in_streams, in_datagrams = _places(builder)
    if not builder.payload and builder.flow is not None and builder.flow.stream is True:
        # Only a payload can be looked for in a stream.
        builder.tests.append(PacketTest(Field.IP_PROTOCOL, 256, 256))
        builder.warnings.append(f"sid {builder.sid}: flow:only_stream without a payload keyword never matches")
        first_only = False
    if builder.payload:
        scope = Scope.PAYLOAD
    elif not first_only or header.protocol == "pkthdr":
        scope = Scope.PACKET
    elif header.source.negated or header.destination.negated:
        scope = Scope.ALL
    else:
        scope = Scope.FIRST
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
        builder.flow or FlowCondition(),
        tuple(builder.payload),
        tuple(builder.tests),
        tuple(builder.flowbits),
        builder.threshold,
        builder.noalert,
        builder.bypass,
        in_packets,
        in_streams,
        in_datagrams,
        scope,
        builder.alert,
    )


def _places(builder: RuleBuilder) -> tuple[bool, bool, bool]:
    """Whether the payload is looked for in TCP packets, in TCP streams, and in packets of other protocols.

    As in Suricata: a rule without a condition on the packet is matched against the stream, and against single packets
    too where a content has a place counted from the start.
    """
    header = builder.header
    if not builder.payload:
        return False, False, False
    datagrams = header.protocols != frozenset({6}) and not builder.needs_stream
    if header.protocols is not None and 6 not in header.protocols:
        return False, False, datagrams
    if header.protocol == "tcp-pkt":
        if builder.needs_stream:
            raise RuleError("flow: only_stream can't be used with protocol tcp-pkt")
        return True, False, False
    if header.protocol == "tcp-stream":
        return builder.needs_packet, True, False
    if builder.needs_packet or builder.needs_stream:
        return builder.needs_packet, builder.needs_stream, datagrams
    placed = any(
        isinstance(match, Content) and (match.offset is not None or match.depth is not None)
        for match in builder.payload
    )
    return placed, True, datagrams


def read_text(path: Path, what: str, limit: int = MAX_FILE) -> str:
    """A file's text; bytes that are not UTF-8 come back as they were. Raises `InputError`."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise InputError(f"not a file, so not a {what}", str(path), "name a file")
        if status.st_size > limit:
            raise InputError(f"{what} of {status.st_size} bytes, more than {limit}", str(path), "split it")
        with path.open("rb") as file:
            return file.read(limit).decode("utf-8", "surrogateescape")
    except (OSError, ValueError) as problem:
        raise InputError(
            f"can't read the {what}: {getattr(problem, 'strerror', None) or problem}",
            str(path),
            "check the path and its permissions",
        ) from None


def load_rules(paths: Sequence[Path], variables: Variables, classification: Classification) -> LoadedRules:
    """Read rule files. Raises `InputError` for a file that can't be read; a rule that can't be used is a problem.

    Of rules with the same gid and sid the one with the highest rev is kept, as in Suricata.
    """
    kept: dict[tuple[int, int], Rule] = {}
    problems: list[RuleProblem] = []
    warnings: dict[str, None] = {}
    for path in paths:
        text = read_text(path, "rule file")
        for line, rule_text in logical_lines(text):
            try:
                rule, notes = build_rule(rule_text, variables, classification, path=str(path), line=line)
            except RuleError as problem:
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
    return LoadedRules(tuple(rules), tuple(problems), tuple(warnings))


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
