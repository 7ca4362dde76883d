"""Keywords on flows and on what a match does: flow, flowbits, threshold, detection_filter, noalert, bypass, tag."""

import re

import attrs

from flowshunt_ids.rules.keywords.builder import Keyword, RuleBuilder, whole_number
from flowshunt_ids.rules.lexer import RuleError
from flowshunt_ids.rules.rule import Field, Flowbits, FlowCondition, PacketTest, Threshold

TO_SERVER = 0
TO_CLIENT = 1

_DIRECTIONS = {"to_server": TO_SERVER, "from_client": TO_SERVER, "to_client": TO_CLIENT, "from_server": TO_CLIENT}
_IGNORED = frozenset({"no_frag", "only_frag"})


def _flow(rule: RuleBuilder, value: str) -> None:
    if rule.flow is not None:
        raise RuleError("flow: given twice")
    condition = FlowCondition()
    stateless = False
    for part in value.split(","):
        word = part.strip().lower()
        if word in _DIRECTIONS:
            if condition.direction is not None:
                raise RuleError(f"flow: {word!r} after another direction")
            condition = attrs.evolve(condition, direction=_DIRECTIONS[word])
        elif word in ("established", "not_established", "stateless"):
            if condition.established is not None or stateless:
                raise RuleError(f"flow: {word!r} after another state")
            stateless = word == "stateless"
            if not stateless:
                condition = attrs.evolve(condition, established=word == "established")
        elif word in ("only_stream", "no_stream"):
            if condition.stream is not None:
                raise RuleError(f"flow: {word!r} after another stream option")
            condition = attrs.evolve(condition, stream=word == "only_stream")
        elif word in _IGNORED:
            raise RuleError(f"flow: {word} is not supported yet")
        else:
            raise RuleError(f"flow: {word!r} is not an option of flow")
    rule.flow = condition
    if condition.established is not None:
        wanted = int(condition.established)
        rule.tests.append(PacketTest(Field.ESTABLISHED, wanted, wanted))
    if condition.stream is True:
        rule.needs_stream = True
    elif condition.stream is False:
        rule.needs_packet = True


_BIT = re.compile(r"[^\s,;|]{1,255}")


def _flowbits(rule: RuleBuilder, value: str) -> None:
    command, comma, names = (part.strip() for part in value.partition(","))
    if command == "noalert":
        if comma:
            raise RuleError("flowbits: noalert takes no name")
        rule.noalert = True
        return
    if command not in ("set", "unset", "toggle", "isset", "isnotset"):
        raise RuleError(f"flowbits: {command!r} is not a command (set, unset, toggle, isset, isnotset, noalert)")
    bits = tuple(name.strip() for name in names.split("|"))
    if not all(_BIT.fullmatch(name) for name in bits):
        raise RuleError(f"flowbits: {value!r} names no bit")
    if len(bits) > 1 and command in ("set", "unset", "toggle"):
        raise RuleError(f"flowbits: {command} takes one name")
    if command != "set":
        rule.first_only = False
    rule.flowbits.append(Flowbits(command, bits))


def _settings(value: str, keyword: str, known: frozenset[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in value.split(","):
        name, _blank, setting = part.strip().partition(" ")
        if name not in known or not setting.strip():
            raise RuleError(f"{keyword}: {part.strip()!r} is not understood")
        if name in found:
            raise RuleError(f"{keyword}: {name} given twice")
        found[name] = setting.strip()
    missing = known - found.keys()
    if missing:
        raise RuleError(f"{keyword}: {', '.join(sorted(missing))} is missing")
    return found


_TRACKS = ("by_src", "by_dst", "by_rule", "by_both", "by_flow")


def _limit(rule: RuleBuilder, found: dict[str, str], kind: str, keyword: str) -> None:
    if rule.threshold is not None:
        raise RuleError(f"{keyword}: a rule takes one threshold or detection_filter")
    if found["track"] not in _TRACKS:
        raise RuleError(f"{keyword}: track {found['track']!r} is not one of {', '.join(_TRACKS)}")
    if found["track"] == "by_flow":
        raise RuleError(f"{keyword}: track by_flow is not supported yet")
    count = whole_number(found["count"], f"{keyword}: count", 1, 0xFFFFFFFF)
    seconds = whole_number(found["seconds"], f"{keyword}: seconds", 1, 0xFFFFFFFF)
    rule.threshold = Threshold(kind, found["track"], count, seconds)


def _threshold(rule: RuleBuilder, value: str) -> None:
    found = _settings(value, "threshold", frozenset({"type", "track", "count", "seconds"}))
    if found["type"] not in ("limit", "threshold", "both"):
        raise RuleError(f"threshold: type {found['type']!r} is not limit, threshold or both")
    _limit(rule, found, found["type"], "threshold")


def _detection_filter(rule: RuleBuilder, value: str) -> None:
    found = _settings(value, "detection_filter", frozenset({"track", "count", "seconds"}))
    _limit(rule, found, "filter", "detection_filter")


def _noalert(rule: RuleBuilder, _value: str) -> None:
    rule.noalert = True


def _alert(rule: RuleBuilder, _value: str) -> None:
    if rule.noalert:
        raise RuleError("alert: contradicts noalert")
    rule.alert = True


def _bypass(rule: RuleBuilder, _value: str) -> None:
    if rule.bypass:
        raise RuleError("bypass: given twice")
    rule.bypass = True


FLOW_KEYWORDS = {
    "flow": Keyword(_flow),
    "flowbits": Keyword(_flowbits, first_only=True),
    "threshold": Keyword(_threshold, first_only=True),
    "detection_filter": Keyword(_detection_filter, first_only=True),
    "noalert": Keyword(_noalert, value=False, first_only=True),
    "alert": Keyword(_alert, value=False, first_only=True),
    "bypass": Keyword(_bypass, value=False, first_only=True),
}
