"""Payload keywords: content and what changes the content before it, isdataat."""

import re
from collections.abc import Callable

import attrs

from flowshunt_ids.rules.keywords.builder import Keyword, RuleBuilder, unquoted, whole_number
from flowshunt_ids.rules.lexer import RuleError
from flowshunt_ids.rules.rule import MAX_SHIFT, ByteExtract, Content, FastPattern, IsDataAt

MAX_CONTENT = 255
"""The longest content in bytes, as in Suricata."""

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.]*")
_HEX = frozenset("0123456789abcdefABCDEF")


def parse_pattern(text: str, what: str = "content") -> bytes:
    """The bytes of a content: text, `|41 42|` in hexadecimal, and `\\` before `" ; : \\`. Raises `RuleError`."""
    out = bytearray()
    digits = ""
    in_hex = False
    letters = iter(text)
    for letter in letters:
        if in_hex:
            if letter == "|":
                if digits:
                    raise RuleError(f"{what}: an odd number of hexadecimal digits in {text!r}")
                in_hex = False
            elif letter in _HEX:
                digits += letter
                if len(digits) == 2:
                    out.append(int(digits, 16))
                    digits = ""
            elif letter != " ":
                raise RuleError(f"{what}: {letter!r} is not a hexadecimal digit in {text!r}")
        elif letter == "|":
            in_hex = True
        elif letter == "\\":
            escaped = next(letters, "")
            if escaped not in ('"', ";", ":", "\\"):
                raise RuleError(f"{what}: '\\' must be written '\\\\' in {text!r}")
            out += escaped.encode()
        else:
            out += letter.encode("utf-8", "surrogateescape")
    if in_hex:
        raise RuleError(f"{what}: '|' without a second '|' in {text!r}")
    if not out:
        raise RuleError(f"{what}: empty")
    if len(out) > MAX_CONTENT:
        raise RuleError(f"{what}: {len(out)} bytes, more than {MAX_CONTENT}")
    return bytes(out)


def _content(rule: RuleBuilder, value: str) -> None:
    text, negated = unquoted(value, "content")
    rule.payload.append(Content(parse_pattern(text), negated=negated))


def _last(rule: RuleBuilder, keyword: str) -> Content:
    if not rule.payload or not isinstance(rule.payload[-1], Content):
        for match in reversed(rule.payload):
            if isinstance(match, Content):
                return match
        raise RuleError(f"{keyword}: no content stands before it")
    return rule.payload[-1]


def _replace(rule: RuleBuilder, old: Content, new: Content) -> None:
    for at in range(len(rule.payload) - 1, -1, -1):
        if rule.payload[at] is old:
            rule.payload[at] = new
            return


def variable_or_number(rule: RuleBuilder, value: str, keyword: str, minimum: int, maximum: int) -> int | str:
    """A number within limits, or the name of a variable that a `byte_extract` before it sets. Raises `RuleError`."""
    if _NAME.fullmatch(value):
        if not any(isinstance(match, ByteExtract) and match.name == value for match in rule.payload):
            raise RuleError(f"{keyword}: {value!r} is neither a number nor a variable of a byte_extract before it")
        return value
    return whole_number(value, keyword, minimum, maximum)


def _nocase(rule: RuleBuilder, _value: str) -> None:
    content = _last(rule, "nocase")
    if content.nocase:
        raise RuleError("nocase: given twice for one content")
    _replace(rule, content, attrs.evolve(content, nocase=True, pattern=content.pattern.lower()))


def _absolute(content: Content, keyword: str) -> None:
    if content.relative:
        raise RuleError(f"{keyword}: can't be mixed with distance or within on one content")
    if content.startswith:
        raise RuleError(f"{keyword}: can't be mixed with startswith on one content")
    if content.fast_pattern is not None and content.fast_pattern.only:
        raise RuleError(f"{keyword}: can't be mixed with fast_pattern:only")


def _offset(rule: RuleBuilder, value: str) -> None:
    content = _last(rule, "offset")
    _absolute(content, "offset")
    if content.offset is not None:
        raise RuleError("offset: given twice for one content")
    _replace(rule, content, attrs.evolve(content, offset=variable_or_number(rule, value, "offset", 0, 65535)))


def _depth(rule: RuleBuilder, value: str) -> None:
    content = _last(rule, "depth")
    _absolute(content, "depth")
    if content.depth is not None:
        raise RuleError("depth: given twice for one content")
    depth = variable_or_number(rule, value, "depth", 0, 65535)
    if isinstance(depth, int) and depth < len(content.pattern):
        raise RuleError(f"depth: {depth} is less than the {len(content.pattern)} bytes of the content")
    _replace(rule, content, attrs.evolve(content, depth=depth))


def _relative(content: Content, keyword: str) -> None:
    if content.offset is not None or content.depth is not None:
        raise RuleError(f"{keyword}: can't be mixed with offset, depth or startswith on one content")
    if content.fast_pattern is not None and content.fast_pattern.only:
        raise RuleError(f"{keyword}: can't be mixed with fast_pattern:only")


def _distance(rule: RuleBuilder, value: str) -> None:
    content = _last(rule, "distance")
    _relative(content, "distance")
    if content.distance is not None:
        raise RuleError("distance: given twice for one content")
    distance = variable_or_number(rule, value, "distance", -MAX_SHIFT, MAX_SHIFT)
    _replace(rule, content, attrs.evolve(content, distance=distance))


def _within(rule: RuleBuilder, value: str) -> None:
    content = _last(rule, "within")
    _relative(content, "within")
    if content.within is not None:
        raise RuleError("within: given twice for one content")
    within = variable_or_number(rule, value, "within", -MAX_SHIFT, MAX_SHIFT)
    if isinstance(within, int) and within < len(content.pattern):
        raise RuleError(f"within: {within} is less than the {len(content.pattern)} bytes of the content")
    _replace(rule, content, attrs.evolve(content, within=within))


def _startswith(rule: RuleBuilder, _value: str) -> None:
    content = _last(rule, "startswith")
    if content.offset is not None or content.depth is not None or content.relative or content.startswith:
        raise RuleError("startswith: can't be mixed with offset, depth, distance or within on one content")
    _replace(rule, content, attrs.evolve(content, startswith=True, offset=0, depth=len(content.pattern)))


def _endswith(rule: RuleBuilder, _value: str) -> None:
    content = _last(rule, "endswith")
    if content.endswith:
        raise RuleError("endswith: given twice for one content")
    _replace(rule, content, attrs.evolve(content, endswith=True))


def _rawbytes(rule: RuleBuilder, _value: str) -> None:
    _last(rule, "rawbytes")


def _fast_pattern(rule: RuleBuilder, value: str) -> None:
    content = _last(rule, "fast_pattern")
    if any(isinstance(match, Content) and match.fast_pattern is not None for match in rule.payload):
        raise RuleError("fast_pattern: given for more than one content")
    if not value:
        chosen = FastPattern()
    elif value == "only":
        if content.negated or content.relative or content.offset is not None or content.depth is not None:
            raise RuleError("fast_pattern:only can't be mixed with negation, offset, depth, distance or within")
        chosen = FastPattern(only=True)
    else:
        start, _comma, length = value.partition(",")
        first = whole_number(start, "fast_pattern", 0, 65535)
        count = whole_number(length, "fast_pattern", 1, 65535)
        if first + count > len(content.pattern):
            raise RuleError(f"fast_pattern: {first}+{count} is past the {len(content.pattern)} bytes of the content")
        chosen = FastPattern(start=first, length=count)
    if content.negated and (content.offset is not None or content.depth is not None or content.relative):
        raise RuleError("fast_pattern: can't be set on a negated content that has a place")
    _replace(rule, content, attrs.evolve(content, fast_pattern=chosen))


def _isdataat(rule: RuleBuilder, value: str) -> None:
    negated = value.startswith("!")
    amount, *flags = (part.strip() for part in value.removeprefix("!").split(","))
    if not set(flags) <= {"relative", "rawbytes"} or (flags and flags[0] != "relative"):
        raise RuleError(f"isdataat: {value!r} is not '[!]number[,relative[,rawbytes]]'")
    number = variable_or_number(rule, amount, "isdataat", 0, 65535)
    rule.payload.append(IsDataAt(number, relative=bool(flags), negated=negated))


def _modifier(read: Callable[[RuleBuilder, str], None], value: bool | None) -> Keyword:
    return Keyword(read, value=value)


CONTENT_KEYWORDS = {
    "content": Keyword(_content),
    "nocase": _modifier(_nocase, False),
    "offset": _modifier(_offset, True),
    "depth": _modifier(_depth, True),
    "distance": _modifier(_distance, True),
    "within": _modifier(_within, True),
    "startswith": _modifier(_startswith, False),
    "endswith": _modifier(_endswith, False),
    "rawbytes": _modifier(_rawbytes, False),
    "fast_pattern": _modifier(_fast_pattern, None),
    "isdataat": Keyword(_isdataat),
}
