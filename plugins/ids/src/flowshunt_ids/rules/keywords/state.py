"""Keywords on what rules remember: flowbits, flowint, xbits, hostbits, tag, config."""

import re

from flowshunt_ids.rules.keywords.builder import Keyword, RuleBuilder, whole_number
from flowshunt_ids.rules.lexer import RuleError
from flowshunt_ids.rules.rule import Flowbits, FlowConfig, FlowInteger, HostBits, Tag

_COMMANDS = ("set", "unset", "toggle", "isset", "isnotset")
_ASKING = ("isset", "isnotset")
_FLOWBIT = re.compile(r"\S{1,255}")
_BIT = re.compile(r"[^\s,;|]{1,255}")


def _flowbits(rule: RuleBuilder, value: str) -> None:
    command, comma, names = (part.strip() for part in value.partition(","))
    if command == "noalert":
        if comma:
            raise RuleError("flowbits: noalert takes no name")
        rule.noalert = True
        return
    if command not in _COMMANDS:
        raise RuleError(f"flowbits: {command!r} is not a command ({', '.join(_COMMANDS)}, noalert)")
    alternatives = names.split("|") if command in _ASKING else [names]
    bits = tuple(name.strip() for name in alternatives if name.strip())
    if not bits or not all(_FLOWBIT.fullmatch(name) for name in bits):
        raise RuleError(f"flowbits: {value!r} names no bit")
    if command != "set":
        rule.first_only = False
    rule.flowbits.append(Flowbits(command, bits))


_NAME = re.compile(r"[A-Za-z][\w./]+")
_INTEGER_COMMANDS = ("+", "-", "=", "<", "<=", ">", ">=", "==", "!=")


def _flowint(rule: RuleBuilder, value: str) -> None:
    parts = [part.strip() for part in value.split(",")]
    name, command = parts[0], parts[1] if len(parts) > 1 else ""
    if not _NAME.fullmatch(name):
        raise RuleError(f"flowint: {name!r} is not a name")
    if command in ("isset", "isnotset", "notset"):
        if len(parts) != 2:
            raise RuleError(f"flowint: {command} takes no value")
        rule.flow_integers.append(FlowInteger(name, "isset" if command == "isset" else "isnotset"))
        return
    if command not in _INTEGER_COMMANDS or len(parts) != 3:
        raise RuleError("flowint: takes 'name, operator, value' or 'name, isset|isnotset'")
    operand = parts[2]
    number = operand if _NAME.fullmatch(operand) else whole_number(operand, "flowint", 0, 0xFFFFFFFF)
    rule.flow_integers.append(FlowInteger(name, command, number))


def _xbits(rule: RuleBuilder, value: str) -> None:
    command, *parts = (part.strip() for part in value.split(","))
    if command not in _COMMANDS:
        raise RuleError(f"xbits: {command!r} is not a command ({', '.join(_COMMANDS)})")
    if len(parts) < 2 or not _BIT.fullmatch(parts[0]):
        raise RuleError("xbits: takes 'command, name, track ip_src|ip_dst|ip_pair[, expire seconds]'")
    words = {"track": "", "expire": "30"}
    for part, wanted in zip(parts[1:], words, strict=False):
        key, _blank, setting = part.partition(" ")
        if key != wanted or not setting.strip():
            raise RuleError(f"xbits: {part!r} is not '{wanted} ...'")
        words[key] = setting.strip()
    if words["track"] not in ("ip_src", "ip_dst", "ip_pair"):
        raise RuleError(f"xbits: track {words['track']!r} is not ip_src, ip_dst or ip_pair")
    expire = whole_number(words["expire"], "xbits: expire", 1, 0xFFFFFFFF)
    rule.host_bits.append(HostBits(command, parts[0], words["track"], expire, "xbits"))


def _hostbits(rule: RuleBuilder, value: str) -> None:
    command, *parts = (part.strip() for part in value.split(","))
    if command == "noalert" and not parts:
        rule.noalert = True
        return
    if command not in _COMMANDS:
        raise RuleError(f"hostbits: {command!r} is not a command ({', '.join(_COMMANDS)})")
    if not 1 <= len(parts) <= 2 or not _BIT.fullmatch(parts[0]):
        raise RuleError("hostbits: takes 'command, name[, src|dst|both]'")
    track = parts[1] if len(parts) > 1 else "src"
    if track not in ("src", "dst"):
        raise RuleError(f"hostbits: {track!r} is neither src nor dst")
    rule.host_bits.append(HostBits(command, parts[0], f"ip_{track}"))


def _tag(rule: RuleBuilder, value: str) -> None:
    scope, *parts = (part.strip() for part in value.split(","))
    if scope not in ("session", "host") or len(parts) not in (0, 2, 3):
        raise RuleError("tag: takes 'session|host[, count, packets|seconds|bytes[, src|dst]]'")
    count, metric = (parts[0], parts[1]) if parts else ("256", "packets")
    if metric not in ("packets", "seconds", "bytes"):
        raise RuleError(f"tag: {metric!r} is not packets, seconds or bytes")
    direction = parts[2] if len(parts) == 3 else ""
    if direction not in ("", "src", "dst"):
        raise RuleError(f"tag: {direction!r} is neither src nor dst")
    rule.tags.append(Tag(scope, whole_number(count, "tag", 0, 0xFFFFFFFF), metric, direction))


_CONFIG = re.compile(r"logging\s+disable\s*,\s*type\s+(tx|flow)\s*,\s*scope\s+(tx|flow)")


def _config(rule: RuleBuilder, value: str) -> None:
    form = _CONFIG.fullmatch(value.strip())
    if form is None:
        raise RuleError("config: takes 'logging disable, type tx|flow, scope tx|flow'")
    rule.config = FlowConfig("logging", form[1], form[2])


STATE_KEYWORDS = {
    "flowbits": Keyword(_flowbits, first_only=True),
    "flowint": Keyword(_flowint),
    "xbits": Keyword(_xbits, first_only=True),
    "hostbits": Keyword(_hostbits, first_only=True),
    "tag": Keyword(_tag, first_only=True),
    "config": Keyword(_config),
}
