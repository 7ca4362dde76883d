"""Keywords that name and describe a rule: msg, sid, rev, classtype, priority, reference, metadata, requires, ..."""

import re

from flowshunt_ids.rules.classification import DEFAULT_PRIORITY
from flowshunt_ids.rules.keywords.builder import Keyword, RuleBuilder, unquoted, whole_number
from flowshunt_ids.rules.lexer import RuleError

_ESCAPED = re.compile(r"\\(.)")
_MAX = 0xFFFFFFFF


def _msg(rule: RuleBuilder, value: str) -> None:
    if rule.message is not None:
        raise RuleError("msg: given twice")
    text, negated = unquoted(value, "msg")
    if negated:
        raise RuleError("msg: can't be negated")
    rule.message = _ESCAPED.sub(r"\1", text)


def _sid(rule: RuleBuilder, value: str) -> None:
    if rule.sid is not None:
        raise RuleError("sid: given twice")
    rule.sid = whole_number(value, "sid", 1, _MAX)


def _gid(rule: RuleBuilder, value: str) -> None:
    rule.gid = whole_number(value, "gid", 0, _MAX)


def _rev(rule: RuleBuilder, value: str) -> None:
    if rule.rev is not None:
        raise RuleError("rev: given twice")
    rule.rev = whole_number(value, "rev", 1, _MAX)


def _priority(rule: RuleBuilder, value: str) -> None:
    rule.priority = whole_number(value.strip('"'), "priority", 0, _MAX)


def _classtype(rule: RuleBuilder, value: str) -> None:
    name = value.strip('"').lower()
    known = rule.classification.classes.get(name)
    if known is None:
        rule.warnings.append(f"classtype {name!r} is not in the classification file: priority {DEFAULT_PRIORITY}")
        return
    rule.category, rule.class_priority = known


def _reference(rule: RuleBuilder, value: str) -> None:
    system, comma, identifier = (part.strip() for part in value.partition(","))
    if not comma or not identifier:
        raise RuleError("reference: takes a system and an identifier, as in 'reference:cve,2014-1234'")
    prefix = rule.classification.references.get(system.lower())
    if prefix is None:
        rule.warnings.append(f"reference system {system!r} is not in the reference file")
    rule.references.append(f"{prefix}{identifier}" if prefix else f"{system},{identifier}")


def _metadata(rule: RuleBuilder, value: str) -> None:
    for item in value.split(","):
        key, _blank, rest = item.strip().partition(" ")
        if key:
            rule.metadata.setdefault(key, []).append(rest.strip())


def _target(rule: RuleBuilder, value: str) -> None:
    if value not in ("src_ip", "dest_ip"):
        raise RuleError(f"target: {value!r} is neither src_ip nor dest_ip")
    rule.metadata.setdefault("target", []).append(value)


FEATURES: frozenset[str] = frozenset()
"""Features that `requires` may ask for beside a version."""
VERSION = (7, 0, 10)
"""The version of Suricata whose rules these are."""
_CLAUSE = re.compile(r"\s*(>=|<=|>|<)\s*(\d{1,3})(?:\.(\d{1,3}))?(?:\.(\d{1,3}))?(?:-\S*)?")


def check_requirements(value: str) -> None:
    """`requires: version >= 7.0.4 < 8 | >= 8.0.3, feature NAME`: raises `RuleError` where this doesn't hold."""
    versions = False
    for part in value.split(","):
        word, _blank, setting = part.strip().partition(" ")
        if word == "version" and not versions:
            versions = True
            if not any(_version_fits(clause) for clause in setting.split("|")):
                raise RuleError(f"requires: version {setting.strip()}, and this engine follows 7.0.10")
        elif word == "version":
            raise RuleError("requires: version given twice")
        elif word == "feature":
            if setting.strip() not in FEATURES:
                raise RuleError(f"requires: feature {setting.strip()!r}, which this engine doesn't have")
        elif word:
            raise RuleError(f"requires: {part.strip()!r} is not known")


def _requires(_rule: RuleBuilder, value: str) -> None:
    check_requirements(value)


def _version_fits(clause: str) -> bool:
    at, fits, found = 0, True, False
    while clause[at:].strip():
        form = _CLAUSE.match(clause, at)
        if form is None:
            raise RuleError(f"requires: version {clause.strip()!r} is not understood")
        wanted = tuple(int(number or 0) for number in form.groups()[1:])
        fits = (
            fits
            and {
                ">=": wanted <= VERSION,
                "<=": wanted >= VERSION,
                ">": wanted < VERSION,
                "<": wanted > VERSION,
            }[form[1]]
        )
        found = True
        at = form.end()
    if not found:
        raise RuleError("requires: no version is named")
    return fits


META_KEYWORDS = {
    "requires": Keyword(_requires, first_only=True),
    "msg": Keyword(_msg, first_only=True),
    "sid": Keyword(_sid, first_only=True),
    "gid": Keyword(_gid, first_only=True),
    "rev": Keyword(_rev, first_only=True),
    "priority": Keyword(_priority, first_only=True),
    "classtype": Keyword(_classtype, first_only=True),
    "reference": Keyword(_reference, first_only=True),
    "metadata": Keyword(_metadata, first_only=True),
    "target": Keyword(_target, first_only=True),
}
