"""Rule files into reports: each rule's state, what is searched for on its behalf, its cost and likely mistakes."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import attrs

from flowshunt.errors import InputError
from flowshunt_ids.app.plans import best_content
from flowshunt_ids.check.findings import Finding, buffers_of, findings_of
from flowshunt_ids.datasets import Datasets
from flowshunt_ids.encoding import Pattern, choose_pattern, strength
from flowshunt_ids.rules.lexer import RuleError, find_sid, logical_lines
from flowshunt_ids.rules.loader import build_rule
from flowshunt_ids.rules.rule import Dataset, Pcre, Rule, Scope, datasets_of
from flowshunt_ids.rules.text_files import read_text
from flowshunt_ids.settings import Settings

LOADED = "loaded"
NOT_SUPPORTED = "protocol not supported"
NEEDS_PLUGIN = "needs a plugin"
OTHER_VERSION = "not for this version"
REPLACED = "replaced"
INVALID = "invalid"

_STRONG = 24.0
"""Patterns rarer than one in so many bits are rarely found where the rule doesn't match."""


@attrs.frozen
class RuleReport:
    """One rule.

    Attributes:
        state: one of the words above; reason: why it is not loaded.
        scope: what it is looked at for; buffer, pattern: what is searched for there, None for nothing.
        cost: "cheap", "moderate" or "expensive", and why.
    """

    path: str
    line: int
    sid: int
    message: str
    state: str
    reason: str = ""
    scope: str = ""
    buffer: str = ""
    pattern: Pattern | None = None
    cost: str = ""
    cost_reason: str = ""
    findings: tuple[Finding, ...] = ()


def check_files(paths: Sequence[Path], settings: Settings) -> list[RuleReport]:
    """Report on all rules of some files. Raises `InputError` for a file that can't be read."""
    reports: list[RuleReport] = []
    rules: list[tuple[int, Rule]] = []
    described: dict[str, Dataset] = {}
    datasets = Datasets()
    newest: dict[tuple[int, int], int] = {}
    for path in paths:
        for line, text in logical_lines(read_text(path, "rule file")):
            try:
                rule, notes = build_rule(
                    text, settings.variables, settings.classification, path=str(path), line=line, datasets=described
                )
                datasets.open(datasets_of(rule))
            except (RuleError, InputError) as problem:
                reason = str(problem)
                reports.append(RuleReport(str(path), line, find_sid(text), "", _state(reason), reason))
                continue
            key = (rule.signature.gid, rule.signature.sid)
            other = newest.get(key)
            at = len(reports)
            if other is None or rule.signature.rev > rules[other][1].signature.rev:
                if other is not None:
                    reports[rules[other][0]] = _replaced(rules[other][1], rule)
                newest[key] = len(rules)
                reports.append(_report(rule, notes))
            else:
                reports.append(_replaced(rule, rules[other][1]))
            rules.append((at, rule))
    used = [rules[number] for number in newest.values()]
    for at, finding in _flowbit_findings(used):
        reports[at] = attrs.evolve(reports[at], findings=(*reports[at].findings, finding))
    return reports


def _state(reason: str) -> str:
    if reason.startswith("protocol ") and reason.endswith(": not supported"):
        return NOT_SUPPORTED
    if reason.startswith("needs flowshunt-"):
        return NEEDS_PLUGIN
    return OTHER_VERSION if reason.startswith("requires: ") else INVALID


def _replaced(rule: Rule, by: Rule) -> RuleReport:
    reason = f"sid {by.signature.sid} stands in {by.path}:{by.line} too, with rev {by.signature.rev}"
    return RuleReport(rule.path, rule.line, rule.signature.sid, rule.signature.message, REPLACED, reason)


def _report(rule: Rule, notes: Sequence[str]) -> RuleReport:
    buffer, pattern = _searched(rule)
    cost, why = _cost(rule, pattern)
    findings = [*findings_of(rule, pattern), *(Finding("note", note) for note in notes)]
    return RuleReport(
        rule.path,
        rule.line,
        rule.signature.sid,
        rule.signature.message,
        LOADED,
        scope=_scope(rule),
        buffer=buffer,
        pattern=pattern,
        cost=cost,
        cost_reason=why,
        findings=tuple(findings),
    )


def _searched(rule: Rule) -> tuple[str, Pattern | None]:
    """The buffer and the pattern that is searched for before anything else of the rule is looked at."""
    if rule.scope is not Scope.TRANSACTION:
        pattern = choose_pattern(rule.payload)
        return ("payload", pattern) if pattern is not None else ("", None)
    chosen = [(found, each.buffer) for each in rule.buffers if (found := best_content(each.matches)) is not None]
    if not chosen:
        return "", None
    (_worth, best), name = max(chosen, key=lambda item: item[0][0])
    return name, best


def _scope(rule: Rule) -> str:
    if rule.scope is Scope.TRANSACTION:
        return f"transactions of {rule.app_protocol}" if rule.app_protocol else "transactions"
    if rule.scope is Scope.FIRST:
        return "first packet of each direction"
    if rule.scope in (Scope.ALL, Scope.PACKET):
        return "every packet"
    places = [
        name
        for name, wanted in (
            ("streams", rule.in_streams),
            ("TCP packets", rule.in_packets),
            ("packets", rule.in_datagrams),
        )
        if wanted
    ]
    return ", ".join(places)


def _cost(rule: Rule, pattern: Pattern | None) -> tuple[str, str]:
    chains = [rule.payload, *(each.matches for each in buffers_of(rule))]
    expressions = sum(isinstance(match, Pcre) for matches in chains for match in matches)
    if rule.scope is Scope.FIRST:
        return "cheap", "decided once for each direction of a flow"
    if rule.scope in (Scope.ALL, Scope.PACKET):
        if rule.packet_buffers or rule.conditions:
            return "expensive", "parts of every packet that its header fits are looked at in Python"
        return "moderate" if rule.tests else "cheap", "columns of every packet that its header fits are compared"
    where = "transaction" if rule.scope is Scope.TRANSACTION else "payload"
    if pattern is None:
        return "expensive", f"nothing to search for: every {where} that its header fits is looked at"
    worth = strength(pattern.literal, pattern.nocase)
    if worth < _STRONG:
        return (
            "expensive" if expressions else "moderate"
        ), f"a weak pattern ({worth:.0f} bits): many {where}s are looked at"
    if expressions > 1:
        return "moderate", f"a good pattern, then {expressions} expressions"
    return "cheap", "a good pattern is searched for first"


def _flowbit_findings(rules: Sequence[tuple[int, Rule]]) -> list[tuple[int, Finding]]:
    changed = {
        name for _, rule in rules for bits in rule.flowbits if bits.command in ("set", "toggle") for name in bits.names
    }
    asked = {
        name
        for _, rule in rules
        for bits in rule.flowbits
        if bits.command in ("isset", "isnotset")
        for name in bits.names
    }
    found: list[tuple[int, Finding]] = []
    for at, rule in rules:
        for bits in rule.flowbits:
            missing = [name for name in bits.names if name not in changed]
            if bits.command == "isset" and len(missing) == len(bits.names):
                found.append((at, Finding("flowbit-never-set", f"no rule sets flowbit {', '.join(missing)}")))
            elif bits.command == "set" and rule.noalert and bits.names[0] not in asked:
                found.append((at, Finding("flowbit-never-asked", f"no rule asks for flowbit {bits.names[0]}")))
    return found


def summary_of(reports: Sequence[RuleReport]) -> dict[str, dict[str, int]]:
    """How many rules are in each state and cost class, and how often each finding was made."""
    return {
        "states": dict(Counter(report.state for report in reports).most_common()),
        "costs": dict(Counter(report.cost for report in reports if report.cost).most_common()),
        "findings": dict(Counter(finding.code for report in reports for finding in report.findings).most_common()),
    }
