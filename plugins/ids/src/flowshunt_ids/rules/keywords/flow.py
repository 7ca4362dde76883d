"""Keywords on flows and on what a match does: flow, flow.age, stream_size, noalert, alert, bypass."""

import re

import attrs

from flowshunt_ids.rules.keywords.builder import Keyword, RuleBuilder
from flowshunt_ids.rules.keywords.content import parse_size
from flowshunt_ids.rules.lexer import RuleError
from flowshunt_ids.rules.rule import Condition, Field, FlowCondition, PacketTest

TO_SERVER = 0
TO_CLIENT = 1

_DIRECTIONS = {"to_server": TO_SERVER, "from_client": TO_SERVER, "to_client": TO_CLIENT, "from_server": TO_CLIENT}
_FRAGMENTS = {"no_frag": False, "only_frag": True}
_STREAM_SIZE = re.compile(r"(server|client|both|either)\s*,\s*(<=|>=|<|>|=|!=?|)\s*,\s*(\d{1,10})")


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
            other = "not_established" if condition.established is False else ""
            if (condition.established is not None or stateless) and {other, word} != {"not_established", "stateless"}:
                raise RuleError(f"flow: {word!r} after another state")
            stateless = stateless or word == "stateless"
            if word != "stateless":
                condition = attrs.evolve(condition, established=word == "established")
        elif word in ("only_stream", "no_stream"):
            if condition.stream is not None:
                raise RuleError(f"flow: {word!r} after another stream option")
            condition = attrs.evolve(condition, stream=word == "only_stream")
        elif word in _FRAGMENTS:
            rule.tests.append(PacketTest(Field.REASSEMBLED, int(_FRAGMENTS[word]), int(_FRAGMENTS[word])))
        else:
            raise RuleError(f"flow: {word!r} is not an option of flow")
    if stateless and condition.established is False:
        # Suricata takes this pair, and no packet is both.
        rule.tests.append(PacketTest(Field.IP_PROTOCOL, 256, 256))
    rule.flow = condition
    if condition.established is not None:
        wanted = int(condition.established)
        rule.tests.append(PacketTest(Field.ESTABLISHED, wanted, wanted))
    if condition.stream is True:
        rule.needs_stream = True
    elif condition.stream is False:
        rule.needs_packet = True


def _stream_size(rule: RuleBuilder, value: str) -> None:
    form = _STREAM_SIZE.fullmatch(value.strip())
    if form is None:
        raise RuleError("stream_size: takes '[server|client|both|either],[<|>|=|!=|<=|>=],bytes'")
    size = parse_size(form[2] + form[3], "stream_size")
    rule.conditions.append(Condition("stream_size", (form[1], size.low, size.high, size.negated)))
    rule.placed = True


def _flow_age(rule: RuleBuilder, value: str) -> None:
    size = parse_size(value, "flow.age")
    rule.conditions.append(Condition("flow.age", (size.low, size.high, size.negated)))


def _noalert(rule: RuleBuilder, _value: str) -> None:
    rule.noalert = True


def _alert(rule: RuleBuilder, _value: str) -> None:
    rule.noalert = False
    rule.alert = True


def _bypass(rule: RuleBuilder, _value: str) -> None:
    rule.bypass = True


def _prefilter(rule: RuleBuilder, _value: str) -> None:
    """Which part of a rule is looked at first is this engine's own choice; the answer is the same."""
    if not (rule.tests or rule.conditions or rule.app_conditions or rule.payload or rule.buffers or rule.flow):
        raise RuleError("prefilter: nothing stands before it")


FLOW_KEYWORDS = {
    "flow": Keyword(_flow),
    "flow.age": Keyword(_flow_age),
    "stream_size": Keyword(_stream_size),
    "noalert": Keyword(_noalert, value=False, first_only=True),
    "alert": Keyword(_alert, value=False, first_only=True),
    "bypass": Keyword(_bypass, value=False, first_only=True),
    "prefilter": Keyword(_prefilter, value=False),
}
