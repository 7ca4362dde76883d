"""The pcre keyword: PCRE's syntax into that of the `regex` module, refused where the two would differ."""

import re
from typing import Final

from flowshunt_ids.rules.keywords.builder import Keyword, RuleBuilder, unquoted
from flowshunt_ids.rules.lexer import RuleError
from flowshunt_ids.rules.rule import Pcre

IGNORECASE: Final = 2
DOTALL: Final = 16
MULTILINE: Final = 8
VERBOSE: Final = 64
ASCII: Final = 128

_FLAGS = {"i": IGNORECASE, "s": DOTALL, "m": MULTILINE, "x": VERBOSE}
_FORM = re.compile(r"/(.*)/([A-Za-z]*)", re.DOTALL)
_SAME = frozenset("abdefnrstvwxBDSW0123456789ckgPpUuNlLXRCGEQhHVKzZA")
_REFUSED = {
    "P": "Unicode properties",
    "p": "Unicode properties",
    "X": "\\X",
    "C": "\\C",
    "E": "\\E without \\Q",
    "G": "\\G",
    "l": "\\l",
    "L": "\\L",
    "u": "\\u",
    "U": "\\U",
}
_BLANK = r"\t\x20\xa0"
_COMPLEMENTS = {
    "H": (r"\x00-\x08\x0a-\x1f\x21-\x9f\xa1-\xff", rf"[^{_BLANK}]"),
    "V": (r"\x00-\x09\x0e-\x84\x86-\xff", r"[^\n\x0b\f\r\x85]"),
    "N": ("", r"[^\n]"),
    "R": ("", r"(?>\r\n|[\n\x0b\f\r\x85])"),
}
"""Escapes that stand for all bytes but some, and \\R: what they are inside a class, and outside."""
_INLINE = re.compile(r"\(\?([a-zA-Z]*)(?:-([a-zA-Z]*))?([:)])")
_POSIX = re.compile(r"\[:\^?[a-z]+:\]")


def _escape(pattern: str, at: int, in_class: bool, dollar_end: bool) -> tuple[str, int]:
    """One escape sequence, translated, and where it ends."""
    letter = pattern[at + 1 : at + 2]
    if not letter:
        raise RuleError("pcre: the expression ends with a single '\\'")
    if letter == "Q":
        end = pattern.find("\\E", at)
        text = pattern[at + 2 : end if end >= 0 else len(pattern)]
        return re.escape(text), end + 2 if end >= 0 else len(pattern)
    if letter == "h":
        return (_BLANK if in_class else f"[{_BLANK}]"), at + 2
    if letter in _COMPLEMENTS:
        inside, outside = _COMPLEMENTS[letter]
        if in_class and not inside:
            raise RuleError(f"pcre: \\{letter} in a class is not supported")
        return (inside if in_class else outside), at + 2
    if letter == "c":
        return f"\\x{ord(pattern[at + 2 : at + 3].upper() or '@') ^ 64:02x}", at + 3
    if letter == "k":
        named = re.compile(r"\\k(?:<(\w+)>|'(\w+)'|\{(\w+)\})").match(pattern, at)
        if named is None or in_class:
            raise RuleError("pcre: references by \\k are supported in the form \\k<name>")
        return f"(?P={named[1] or named[2] or named[3]})", named.end()
    if letter == "x":
        brace = re.compile(r"\\x\{([0-9A-Fa-f]{1,2})\}").match(pattern, at)
        if brace:
            return f"\\x{int(brace[1], 16):02x}", brace.end()
        digits = re.compile(r"\\x([0-9A-Fa-f]{0,2})").match(pattern, at)
        assert digits is not None
        if pattern[digits.end() : digits.end() + 1] == "{" and not digits[1]:
            raise RuleError("pcre: \\x{...} above ff is not supported")
        return f"\\x{int(digits[1] or '0', 16):02x}", digits.end()
    if letter == "v":
        return (r"\n\x0b\f\r\x85" if in_class else r"[\n\x0b\f\r\x85]"), at + 2
    if letter in ("s", "S") or letter not in _SAME:
        return pattern[at : at + 2] if letter.isalnum() else re.escape(letter), at + 2
    if letter == "z":
        return r"\Z", at + 2
    if letter == "Z":
        return r"(?=\n?\Z)", at + 2
    if letter == "e":
        return r"\x1b", at + 2
    if letter == "g":
        reference = re.compile(r"\\g(?:\{(\d{1,2})\}|(\d{1,2}))").match(pattern, at)
        if reference is None or in_class:
            raise RuleError("pcre: references by \\g are supported in the form \\g{1}")
        return rf"\g<{reference[1] or reference[2]}>", reference.end()
    if letter in _REFUSED:
        raise RuleError(f"pcre: {_REFUSED[letter]} are not supported")
    return pattern[at : at + 2], at + 2


_QUANTIFIER = re.compile(r"(?:[*+?]|\{\d+(?:,\d*)?\})([?+]?)")


class _Translation:
    """One expression on its way to the other syntax."""

    def __init__(self, pattern: str, dollar_end: bool, ungreedy: bool) -> None:
        self.pattern = pattern
        self.dollar_end = dollar_end
        self.ungreedy = ungreedy
        self.out: list[str] = []
        self.open = [0]
        """For each group that is open, how many groups in it were made of options set in its middle."""

    def run(self) -> str:
        """The whole expression. Raises `RuleError`."""
        at = 0
        while at < len(self.pattern):
            letter = self.pattern[at]
            if letter == "\\":
                text, at = _escape(self.pattern, at, False, self.dollar_end)
                self.out.append(text)
            elif letter == "[":
                at = self._class(at + 1)
            elif letter == "(":
                at = self._group(at)
            elif letter in "*+?{":
                at = self._quantifier(at)
            else:
                self._plain(letter)
                at += 1
        self.out.append(")" * self.open[0])
        return "".join(self.out)

    def _plain(self, letter: str) -> None:
        if letter == "$":
            self.out.append(r"\Z" if self.dollar_end else "$")
        elif letter == ")":
            self.out.append(")" * ((self.open.pop() if len(self.open) > 1 else 0) + 1))
        elif letter == "|" and self.open[-1]:
            raise RuleError("pcre: options in the middle of alternatives are not supported")
        else:
            self.out.append(letter)

    def _quantifier(self, at: int) -> int:
        form = _QUANTIFIER.match(self.pattern, at)
        if form is None:
            self.out.append("\\{")
            return at + 1
        text = form[0]
        if self.ungreedy and form[1] != "+":
            text = text[:-1] if form[1] else text + "?"
        self.out.append(text)
        return form.end()

    def _class(self, at: int) -> int:
        """A class, from behind its '[' on. Returns where it ends."""
        pattern, out = self.pattern, self.out
        out.append("[")
        if pattern[at : at + 1] == "^":
            out.append("^")
            at += 1
        first = at
        while at < len(pattern):
            letter = pattern[at]
            if letter == "\\":
                text, at = _escape(pattern, at, True, self.dollar_end)
                out.append(text)
                continue
            posix = _POSIX.match(pattern, at)
            if posix:
                out.append(posix[0])
                at = posix.end()
                continue
            if letter == "]" and at > first:
                out.append("]")
                return at + 1
            out.append("\\" + letter if letter in "[]&~|" else letter)
            at += 1
        raise RuleError("pcre: a class '[' is not closed")

    def _group(self, at: int) -> int:
        """The begin of a group, or options. Returns where what was read ends."""
        pattern = self.pattern
        verb = re.compile(r"\(\*(SKIP|PRUNE|FAIL|F)\)").match(pattern, at)
        if verb:
            self.out.append(verb[0])
            return verb.end()
        if pattern.startswith("(*", at):
            raise RuleError("pcre: verbs other than (*SKIP), (*PRUNE) and (*FAIL) are not supported")
        if pattern.startswith(("(?R", "(?&", "(?P>", "(?C"), at) or re.compile(r"\(\?[+-]?\d").match(pattern, at):
            raise RuleError("pcre: recursion and callouts are not supported")
        if pattern.startswith("(?#", at):
            end = pattern.find(")", at)
            if end < 0:
                raise RuleError("pcre: a comment is not closed")
            return end + 1
        inline = _INLINE.match(pattern, at)
        if inline and (inline[1] or inline[2]):
            if not set((inline[1] or "") + (inline[2] or "")) <= set("imsx"):
                raise RuleError(f"pcre: {inline[0]!r} is not supported")
            if inline[3] == ":":
                self.open.append(0)
                self.out.append(inline[0])
            elif at == 0:
                self.out.append(inline[0] if not inline[2] else inline[0][:-1] + ":")
                self.open[0] += bool(inline[2])
            else:
                self.out.append(inline[0][:-1] + ":")
                self.open[-1] += 1
            return inline.end()
        self.open.append(0)
        if pattern.startswith("(?", at):
            self.out.append("(?")
            return at + 2
        self.out.append("(")
        return at + 1


def translate(pattern: str, *, dollar_end: bool = False, ungreedy: bool = False) -> str:
    """A PCRE expression in the syntax of the `regex` module (version 0).

    `dollar_end`: `$` matches at the very end only (PCRE's flag E); `ungreedy`: quantifiers are the other way round
    (flag G). Raises `RuleError` for what has no equal there.
    """
    return _Translation(pattern, dollar_end, ungreedy).run()


_CAPTURES = re.compile(r"((?:\s*,\s*(?:flow|pkt|alert):[A-Za-z0-9_.-]+)+)\s*$")
_GROUP_NAME = re.compile(r"\(\?P?<(flow|pkt|alert)_([A-Za-z_]\w*)>")
MAX_CAPTURES = 8
"""The most variables that one expression sets, as in Suricata."""


def _captures(text: str) -> tuple[str, tuple[str, ...]]:
    """An option's text without the variables behind the expression, and these."""
    found = _CAPTURES.search(text)
    if found is None:
        return text, ()
    names = tuple(name.strip() for name in found[1].split(",") if name.strip())
    return text[: found.start()], names


def _pcre(rule: RuleBuilder, value: str) -> None:
    if value.removeprefix("!").strip().startswith('"'):
        text, negated = unquoted(value, "pcre")
    else:
        text, negated = value.removeprefix("!").removesuffix('"'), value.startswith("!")
    if text.startswith("!"):
        text, negated = text[1:], True
    text, captures = _captures(text)
    form = _FORM.fullmatch(text.strip())
    if form is None:
        raise RuleError("pcre: takes '\"/expression/flags\"'")
    source = form[1].replace("\\;", ";").replace('\\"', '"')
    named = tuple(f"{scope}:{name}" for scope, name in _GROUP_NAME.findall(source))
    captures = captures or named
    if len(captures) > MAX_CAPTURES:
        raise RuleError(f"pcre: {len(captures)} variables, more than {MAX_CAPTURES}")
    flags, relative, anchored, dollar_end, ungreedy = 0, False, False, False, False
    buffer = None
    for letter in form[2]:
        if letter in _FLAGS:
            flags |= _FLAGS[letter]
        elif letter == "R":
            relative = True
        elif letter == "A":
            anchored = True
        elif letter == "E":
            dollar_end = True
        elif letter == "G":
            ungreedy = True
        elif letter in "BO":
            continue
        elif letter in rule.language.pcre_flags:
            if buffer is not None:
                raise RuleError(f"pcre: flag {letter} after the flag of another buffer")
            buffer = rule.language.pcre_flags[letter]
        else:
            raise RuleError(f"pcre: flag {letter} is not one of imsxAERBOG or a buffer's")
    if flags & VERBOSE and not source.isascii():
        raise RuleError("pcre: flag x with bytes above 7f is not supported")
    translated = translate(source, dollar_end=dollar_end, ungreedy=ungreedy)
    if anchored:
        translated = rf"\G(?:{translated})"
    pattern = translated.encode("utf-8", "surrogateescape")
    compiled = compile_pattern(pattern, flags)
    if len(captures) > compiled.groups:
        raise RuleError(f"pcre: {len(captures)} variables for {compiled.groups} groups")
    if relative and buffer is None and rule.sticky is None and not rule.payload:
        raise RuleError("pcre: flag R needs a match before it")
    match = Pcre(pattern, flags, relative, negated, captures)
    if buffer is None:
        rule.add_match(match)
    elif rule.sticky is None:
        rule.add_to_buffer(buffer, match)
    elif rule.sticky.keyword == buffer or {buffer.name, rule.sticky.name} == {"http.response_body", "file.data"}:
        rule.add_match(match)
    else:
        raise RuleError(f"pcre: its flags ask for {buffer.name}, but {rule.sticky.name} is the sticky buffer")


def compile_pattern(pattern: bytes, flags: int, keyword: str = "pcre") -> "re.Pattern[bytes]":
    """Compile an expression that `translate` made. Raises `RuleError` where it is not well formed."""
    import regex

    try:
        compiled: re.Pattern[bytes] = regex.compile(pattern, _native(flags), cache_pattern=False)
    except (regex.error, ValueError, OverflowError, RecursionError, MemoryError, IndexError, KeyError) as problem:
        raise RuleError(f"{keyword}: {problem}") from None
    return compiled


def _native(flags: int) -> int:
    import regex

    native = int(regex.VERSION0 | regex.ASCII)
    for own, theirs in (
        (IGNORECASE, regex.IGNORECASE),
        (DOTALL, regex.DOTALL),
        (MULTILINE, regex.MULTILINE),
        (VERBOSE, regex.VERBOSE),
    ):
        if flags & own:
            native |= int(theirs)
    return native


PCRE_KEYWORDS = {"pcre": Keyword(_pcre)}
