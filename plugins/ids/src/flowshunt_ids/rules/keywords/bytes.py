"""Payload keywords that read numbers: byte_test, byte_jump, byte_extract, byte_math."""

import re
from typing import Any

from flowshunt_ids.rules.keywords.builder import Keyword, RuleBuilder, whole_number
from flowshunt_ids.rules.keywords.content import variable_or_number
from flowshunt_ids.rules.lexer import RuleError
from flowshunt_ids.rules.rule import ByteExtract, ByteJump, ByteMath, ByteTest, Number

_LARGEST = (1 << 32) - 1
_BASES = {"hex": 16, "dec": 10, "oct": 8}
_OPERATOR = re.compile(r"(!?)\s*(<=|>=|<|>|=|&|\^|)")


def _parts(value: str, least: int, keyword: str) -> list[str]:
    parts = [part.strip() for part in value.split(",")]
    if len(parts) < least:
        raise RuleError(f"{keyword}: {value!r} has fewer than {least} values")
    return parts


def _options(rule: RuleBuilder, parts: list[str], allowed: frozenset[str], keyword: str) -> dict[str, Any]:
    """The words after the fixed values, those with a number of their own included."""
    found: dict[str, Any] = {}
    for part in parts:
        name, _blank, argument = part.partition(" ")
        name = name.lower()
        if name in _BASES:
            name, argument = "base", name
        if name == "dce":
            raise RuleError(rule.language.absent("dcerpc") or f"{keyword}: dce is not supported")
        if name not in allowed:
            raise RuleError(f"{keyword}: {part!r} is not supported")
        if name in found:
            raise RuleError(f"{keyword}: {name!r} given twice")
        if name == "base":
            found[name] = _BASES[argument]
        elif name == "bitmask":
            try:
                found[name] = int(argument, 16)
            except ValueError:
                raise RuleError(f"{keyword}: bitmask {argument!r} is not a hexadecimal number") from None
            if not 0 < found[name] <= _LARGEST:
                raise RuleError(f"{keyword}: bitmask {argument!r} is outside 1 to ffffffff")
        elif name == "multiplier":
            found[name] = whole_number(argument, f"{keyword}: multiplier", 1, 65535)
        elif name == "post_offset":
            found[name] = whole_number(argument, f"{keyword}: post_offset", -65535, 65535)
        elif argument and not (name == "align" and keyword == "byte_extract"):
            raise RuleError(f"{keyword}: {name} takes no value")
        elif name == "align" and argument:
            found[name] = whole_number(argument, f"{keyword}: align", 2, 4)
            if found[name] == 3:
                raise RuleError(f"{keyword}: align is 2 or 4")
        else:
            found[name] = True
    if "base" in found and "string" not in found:
        raise RuleError(f"{keyword}: a base needs 'string'")
    return found


_COMMON = frozenset({"relative", "big", "little", "string", "base"})


def _number(rule: RuleBuilder, count: str, offset: str, options: dict[str, Any], keyword: str, least: int) -> Number:
    text = bool(options.get("string"))
    size = variable_or_number(rule, count, keyword, least, 23 if text else 8)
    return Number(
        size,
        variable_or_number(rule, offset, keyword, -65535, _LARGEST),
        relative=bool(options.get("relative")),
        little=bool(options.get("little")),
        base=options.get("base", 10) if text else 0,
        mask=options.get("bitmask", 0),
    )


def _byte_test(rule: RuleBuilder, value: str) -> None:
    count, operator, wanted, offset, *rest = _parts(value, 4, "byte_test")
    options = _options(rule, rest, _COMMON | {"bitmask"}, "byte_test")
    form = _OPERATOR.fullmatch(operator)
    if form is None or not (form[1] or form[2]):
        raise RuleError(f"byte_test: {operator!r} is not an operator (< > = <= >= & ^, '!' before it)")
    number = _number(rule, count, offset, options, "byte_test", 0)
    target: int | str
    if wanted.lower().startswith("0x"):
        try:
            target = int(wanted, 16)
        except ValueError:
            raise RuleError(f"byte_test: {wanted!r} is not a number") from None
        if target >= 1 << 63:
            raise RuleError(f"byte_test: {wanted!r} is too large")
    else:
        target = variable_or_number(rule, wanted, "byte_test", -(1 << 63), (1 << 64) - 1)
        if isinstance(target, int):
            # Numbers are compared without a sign, and those that are read have 63 bits at most here.
            target = min(target & ((1 << 64) - 1), (1 << 63) - 1)
    rule.add_match(ByteTest(number, form[2] or "=", target, negated=bool(form[1])), follow=number.relative)


def _byte_jump(rule: RuleBuilder, value: str) -> None:
    count, offset, *rest = _parts(value, 2, "byte_jump")
    allowed = _COMMON | {"multiplier", "align", "from_beginning", "from_end", "post_offset"}
    options = _options(rule, rest, allowed, "byte_jump")
    if "from_beginning" in options and "from_end" in options:
        raise RuleError("byte_jump: from_beginning and from_end exclude each other")
    origin = "beginning" if "from_beginning" in options else "end" if "from_end" in options else "here"
    jump = ByteJump(
        _number(rule, count, offset, options, "byte_jump", 0),
        multiplier=options.get("multiplier", 1),
        align=bool(options.get("align")),
        origin=origin,
        post_offset=options.get("post_offset", 0),
    )
    rule.add_match(jump, follow=jump.number.relative)


def _byte_extract(rule: RuleBuilder, value: str) -> None:
    count, offset, name, *rest = _parts(value, 3, "byte_extract")
    options = _options(rule, rest, _COMMON | {"multiplier", "align"}, "byte_extract")
    extract = ByteExtract(
        _number(rule, count, offset, options, "byte_extract", 1),
        _new_variable(rule, name, "byte_extract"),
        multiplier=options.get("multiplier", 1),
        align=int(options.get("align", 0)),
    )
    rule.add_match(extract, follow=extract.number.relative)


def _new_variable(rule: RuleBuilder, name: str, keyword: str) -> str:
    if not name or not re.fullmatch(r"[^\s,]+", name):
        raise RuleError(f"{keyword}: {name!r} is not a name")
    rule.variables.append(name)
    return name


_MATH_FIXED = ("bytes", "offset", "oper", "rvalue", "result")
_MATH_OPERATORS = ("+", "-", "*", "/", "<<", ">>")


def _byte_math(rule: RuleBuilder, value: str) -> None:
    """`bytes N, offset N, oper O, rvalue V, result NAME[, relative][, endian E][, string BASE][, bitmask M]`."""
    fixed: dict[str, str] = {}
    rest: list[str] = []
    for part in _parts(value, 5, "byte_math"):
        name, _blank, argument = part.partition(" ")
        argument = argument.strip()
        if name in _MATH_FIXED:
            if name in fixed or not argument:
                raise RuleError(f"byte_math: {part!r} has no value or is given twice")
            fixed[name] = argument
        elif name == "endian":
            rest.append(argument)
        elif name == "string":
            rest += ["string", argument]
        else:
            rest.append(part)
    missing = [name for name in _MATH_FIXED if name not in fixed]
    if missing:
        raise RuleError(f"byte_math: {', '.join(missing)} is missing")
    if fixed["oper"] not in _MATH_OPERATORS:
        raise RuleError(f"byte_math: {fixed['oper']!r} is not an operator ({' '.join(_MATH_OPERATORS)})")
    options = _options(rule, rest, _COMMON | {"bitmask"}, "byte_math")
    number = _number(rule, fixed["bytes"], fixed["offset"], options, "byte_math", 1)
    operand = variable_or_number(rule, fixed["rvalue"], "byte_math: rvalue", 0, _LARGEST)
    name = _new_variable(rule, fixed["result"], "byte_math")
    rule.add_match(ByteMath(number, fixed["oper"], operand, name), follow=number.relative)


BYTE_KEYWORDS = {
    "byte_test": Keyword(_byte_test),
    "byte_jump": Keyword(_byte_jump),
    "byte_extract": Keyword(_byte_extract),
    "byte_math": Keyword(_byte_math),
}
