"""Rule files as text: logical lines, and a line's header and options."""

import re
from collections.abc import Iterator

import attrs

MAX_RULE = 64 * 1024
"""The longest rule in characters; Suricata's limit is of the same order."""
MAX_OPTIONS = 512
"""The most options of one rule."""


class RuleError(Exception):
    """Why a rule can't be loaded: one line, for `flowshunt.engine.RuleProblem.reason`."""


@attrs.frozen
class RawRule:
    """A rule's words, nothing of them understood yet. `options`: (keyword in lower case, value or None)."""

    action: str
    protocol: str
    source: str
    source_ports: str
    direction: str
    destination: str
    destination_ports: str
    options: tuple[tuple[str, str | None], ...]


def logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """The rules of a file with the number (from 1) of their first line: comments out, continued lines joined."""
    start, parts = 0, list[str]()
    for number, raw in enumerate(text.split("\n"), 1):
        line = raw.strip()
        if not parts:
            if not line or line[0] == "#":
                continue
            start = number
        if line.endswith("\\"):
            parts.append(line[:-1])
            continue
        parts.append(line)
        yield start, "".join(parts)
        parts = []
    if parts:
        yield start, "".join(parts)


_SPLIT = re.compile(r"(?<!\\);")
_SID = re.compile(r"[(;]\s*sid\s*:\s*(\d{1,10})\s*;")


def find_sid(text: str) -> int:
    """The sid that a rule's text seems to carry, for naming a rule that could not be parsed; 0 where there is none."""
    found = _SID.search(text)
    return int(found[1]) if found else 0


def parse_rule(text: str) -> RawRule:
    """Split one rule into its words. Raises `RuleError` where it does not have the form of a rule.

    As in Suricata, a semicolon ends an option wherever it stands, inside quotes too, unless a backslash precedes it.
    """
    if len(text) > MAX_RULE:
        raise RuleError(f"rule of {len(text)} characters, longer than {MAX_RULE}")
    begin = text.find("(")
    if begin < 0:
        raise RuleError("no options: a rule is 'action protocol source port -> destination port (options)'")
    action, protocol, source, source_ports, direction, destination, destination_ports = _header_words(text[:begin])
    body = text[begin + 1 :].rstrip()
    if body.endswith(")"):
        body = body[:-1].rstrip()
    elif not body.endswith(";"):
        raise RuleError("the options don't end with ';)'")
    pieces = _SPLIT.split(body)
    if pieces.pop().strip():
        raise RuleError("the last option doesn't end with ';'")
    if len(pieces) > MAX_OPTIONS:
        raise RuleError(f"{len(pieces)} options, more than {MAX_OPTIONS}")
    options = tuple(_option(piece) for piece in pieces)
    return RawRule(action, protocol, source, source_ports, direction, destination, destination_ports, options)


def _header_words(header: str) -> list[str]:
    words, depth, current = list[str](), 0, ""
    for letter in header:
        if letter == "[":
            depth += 1
        elif letter == "]":
            depth -= 1
            if depth < 0:
                raise RuleError("']' without '[' in the header")
        if letter in " \t" and depth == 0:
            if current:
                words.append(current)
            current = ""
        else:
            current += letter
    if current:
        words.append(current)
    if depth:
        raise RuleError("'[' without ']' in the header")
    if len(words) != 7:
        raise RuleError(
            f"{len(words)} words before the options, not 7 (action protocol source port -> destination port)"
        )
    return words


def _option(piece: str) -> tuple[str, str | None]:
    keyword, colon, value = piece.partition(":")
    name = keyword.strip().lower()
    if not name:
        raise RuleError("an option without a keyword")
    if not colon:
        return name, None
    value = value.strip()
    if value.startswith('"') and (len(value) < 2 or not value.endswith('"')):
        raise RuleError(f"{name}: the quotes are not closed (a ';' inside them is written '\\;')")
    return name, value
