"""Payload keywords: content and what changes the content before it, isdataat, bsize, base64_decode."""

import re

import attrs

from flowshunt_ids.rules.keywords.builder import Keyword, RuleBuilder, unquoted, whole_number
from flowshunt_ids.rules.lexer import RuleError
from flowshunt_ids.rules.rule import MAX_SHIFT, Base64Decode, BufferSize, Content, FastPattern, IsDataAt

MAX_CONTENT = 8192
"""The longest content in bytes; Suricata's rules are no longer."""

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
        elif letter == '"':
            raise RuleError(f"{what}: '\"' must be written '\\\"' in {text!r}")
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
    rule.add_match(Content(parse_pattern(text), negated=negated))


def variable_or_number(rule: RuleBuilder, value: str, keyword: str, minimum: int, maximum: int) -> int | str:
    """A number within limits, or the name of a variable that a `byte_extract` or `byte_math` before it sets.

    Raises `RuleError`.
    """
    if _NAME.fullmatch(value):
        if value not in rule.variables:
            raise RuleError(
                f"{keyword}: {value!r} is neither a number nor a variable of a byte_extract or byte_math before it"
            )
        return value
    return whole_number(value, keyword, minimum, maximum)


def _nocase(rule: RuleBuilder, _value: str) -> None:
    content = rule.last_content("nocase")
    if content.nocase:
        raise RuleError("nocase: given twice for one content")
    rule.replace_content(attrs.evolve(content, nocase=True, pattern=content.pattern.lower()))


def _absolute(content: Content, keyword: str) -> None:
    if content.relative:
        raise RuleError(f"{keyword}: can't be mixed with distance or within on one content")
    if content.startswith:
        raise RuleError(f"{keyword}: can't be mixed with startswith on one content")
    if content.fast_pattern is not None and content.fast_pattern.only:
        raise RuleError(f"{keyword}: can't be mixed with fast_pattern:only")


def _offset(rule: RuleBuilder, value: str) -> None:
    content = rule.last_content("offset")
    _absolute(content, "offset")
    if content.offset is not None:
        raise RuleError("offset: given twice for one content")
    rule.replace_content(attrs.evolve(content, offset=variable_or_number(rule, value, "offset", 0, 65535)))


def _depth(rule: RuleBuilder, value: str) -> None:
    content = rule.last_content("depth")
    _absolute(content, "depth")
    if content.depth is not None:
        raise RuleError("depth: given twice for one content")
    depth = variable_or_number(rule, value, "depth", 0, 65535)
    if isinstance(depth, int) and depth < len(content.pattern):
        raise RuleError(f"depth: {depth} is less than the {len(content.pattern)} bytes of the content")
    rule.replace_content(attrs.evolve(content, depth=depth))


def _relative(content: Content, keyword: str) -> None:
    if content.offset is not None or content.depth is not None:
        raise RuleError(f"{keyword}: can't be mixed with offset, depth or startswith on one content")
    if content.fast_pattern is not None and content.fast_pattern.only:
        raise RuleError(f"{keyword}: can't be mixed with fast_pattern:only")


def _distance(rule: RuleBuilder, value: str) -> None:
    content = rule.last_content("distance")
    _relative(content, "distance")
    if content.distance is not None:
        raise RuleError("distance: given twice for one content")
    distance = variable_or_number(rule, value, "distance", -MAX_SHIFT, MAX_SHIFT)
    rule.replace_content(attrs.evolve(content, distance=distance))


def _within(rule: RuleBuilder, value: str) -> None:
    content = rule.last_content("within")
    _relative(content, "within")
    if content.within is not None:
        raise RuleError("within: given twice for one content")
    within = variable_or_number(rule, value, "within", -MAX_SHIFT, MAX_SHIFT)
    if isinstance(within, int) and within < len(content.pattern):
        raise RuleError(f"within: {within} is less than the {len(content.pattern)} bytes of the content")
    rule.replace_content(attrs.evolve(content, within=within))


def _startswith(rule: RuleBuilder, _value: str) -> None:
    content = rule.last_content("startswith")
    if content.offset is not None or content.depth is not None or content.relative or content.startswith:
        raise RuleError("startswith: can't be mixed with offset, depth, distance or within on one content")
    rule.replace_content(attrs.evolve(content, startswith=True, offset=0, depth=len(content.pattern)))


def _endswith(rule: RuleBuilder, _value: str) -> None:
    content = rule.last_content("endswith")
    rule.replace_content(attrs.evolve(content, endswith=True))


def _rawbytes(rule: RuleBuilder, _value: str) -> None:
    rule.last_content("rawbytes")


def _fast_pattern(rule: RuleBuilder, value: str) -> None:
    content = rule.last_content("fast_pattern")
    if rule.has_fast_pattern:
        raise RuleError("fast_pattern: given for more than one content")
    rule.has_fast_pattern = True
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
    rule.replace_content(attrs.evolve(content, fast_pattern=chosen))


def _isdataat(rule: RuleBuilder, value: str) -> None:
    negated = value.startswith("!")
    amount, *flags = (part.strip() for part in value.removeprefix("!").split(","))
    if not set(flags) <= {"relative", "rawbytes"} or (flags and flags[0] != "relative"):
        raise RuleError(f"isdataat: {value!r} is not '[!]number[,relative[,rawbytes]]'")
    number = variable_or_number(rule, amount, "isdataat", 0, 65535)
    rule.add_match(IsDataAt(number, relative=bool(flags), negated=negated), follow=bool(flags))


_SIZE = re.compile(r"(?:(\d{1,20})\s*<>\s*(\d{1,20})|(<=|>=|<|>|=|!=?|)\s*(\d{1,20}))")
_LARGEST = (1 << 62) - 1


def parse_size(value: str, keyword: str) -> BufferSize:
    """`number`, `<number` and such, or `low<>high` without its ends. Raises `RuleError`."""
    form = _SIZE.fullmatch(value.strip())
    if form is None:
        raise RuleError(f"{keyword}: {value!r} is neither a number, a comparison nor a range")
    if form[1]:
        low, high = int(form[1]) + 1, int(form[2]) - 1
        operator = ""
    else:
        operator, number = form[3], min(int(form[4]), _LARGEST)
        low, high = {
            "<": (0, number - 1),
            "<=": (0, number),
            ">": (number + 1, _LARGEST),
            ">=": (number, _LARGEST),
        }.get(operator, (number, number))
    if low > high:
        raise RuleError(f"{keyword}: {value!r} can never match")
    return BufferSize(low, high, negated=operator[:1] == "!")


def _bsize(rule: RuleBuilder, value: str) -> None:
    if rule.sticky is None:
        raise RuleError("bsize: needs a sticky buffer before it")
    rule.add_match(parse_size(value, "bsize"))


def _replace(_rule: RuleBuilder, _value: str) -> None:
    raise RuleError("replace: changes packets on their way, which this engine doesn't do")


def _pkt_data(rule: RuleBuilder, _value: str) -> None:
    rule.open_buffer(None)


_DECODE_OPTION = re.compile(r"(bytes|offset)\s+(\d{1,5})")


def _base64_decode(rule: RuleBuilder, value: str) -> None:
    found: dict[str, int] = {}
    relative = False
    for part in value.split(",") if value else ():
        word = part.strip()
        if word == "relative":
            relative = True
            continue
        form = _DECODE_OPTION.fullmatch(word)
        if form is None or form[1] in found:
            raise RuleError(f"base64_decode: {word!r} is not 'bytes N', 'offset N' or 'relative', each once")
        found[form[1]] = whole_number(form[2], "base64_decode", 1 if form[1] == "bytes" else 0, 65535)
    rule.add_match(Base64Decode(found.get("bytes", 0), found.get("offset", 0), relative), follow=relative)


def _base64_data(rule: RuleBuilder, _value: str) -> None:
    rule.open_base64()


CONTENT_KEYWORDS = {
    "content": Keyword(_content),
    "nocase": Keyword(_nocase, value=False),
    "offset": Keyword(_offset),
    "depth": Keyword(_depth),
    "distance": Keyword(_distance),
    "within": Keyword(_within),
    "startswith": Keyword(_startswith, value=False),
    "endswith": Keyword(_endswith, value=False),
    "rawbytes": Keyword(_rawbytes, value=False),
    "fast_pattern": Keyword(_fast_pattern, value=None),
    "isdataat": Keyword(_isdataat),
    "bsize": Keyword(_bsize),
    "replace": Keyword(_replace),
    "pkt_data": Keyword(_pkt_data, value=False),
    "base64_decode": Keyword(_base64_decode, value=None),
    "base64_data": Keyword(_base64_data, value=False),
}
