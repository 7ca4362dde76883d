"""One line of assembly text as tokens. Both forms share it.

Numbers are decimal, hexadecimal (0x), octal (0o) or binary (0b). A comment starts with `//`, `;`, or a `#` at the start
or behind a blank. What listings put before an instruction (`12:`, its bytes, `(b7)`) is passed over.
"""

import re
from typing import Final

import attrs

from flowshunt_ebpf.asm.error import AssemblyError

_TOKEN = re.compile(
    r"""
    (?P<blank>\s+)
  | (?P<comment>//.*|;.*|(?:^|(?<=\s))\#.*)
  | (?P<register>%?[rw](?:1[0-5]|[0-9])\b)
  | (?P<number>0[xX][0-9a-fA-F]+\b|0[bB][01]+\b|0[oO][0-7]+\b|[0-9]+\b)
  | (?P<operator>s>>=|<<=|>>=|s>=|s<=|s/=|s%=|s>|s<|==|!=|>=|<=|\+=|-=|\*=|/=|%=|&=|\|=|\^=|[-+*&=<>()\[\],:\#@])
  | (?P<name>[A-Za-z_.$][\w.$]*(?:-[A-Za-z_]\w*)*)
  | (?P<string>"[^"]*")
    """,
    re.VERBOSE,
)

_LISTING = re.compile(r"\s*[0-9]+:\s+(?:\([0-9a-f]{2}\)\s+|(?:[0-9a-f]{2}\s+){8}(?:(?:[0-9a-f]{2}\s+){8})?)?(?=\S)")
_SYMBOL = re.compile(r"<[A-Za-z_.$][\w.$+]*>\s*$")
_MOST_DIGITS: Final = 128
"""Characters that a number may have: 64 binary digits need half of them. Python's own limit is far away."""

REGISTER: Final = "register"
NUMBER: Final = "number"
OPERATOR: Final = "operator"
NAME: Final = "name"
STRING: Final = "string"
END: Final = "end"


@attrs.frozen
class Token:
    """A token: its kind, its text, the column of its first character (from 1), and a number's or register's value."""

    kind: str
    text: str
    column: int
    value: int = 0

    @property
    def shown(self) -> str:
        """The token as an error message names it."""
        return "the line's end" if self.kind == END else repr(self.text)


def tokenize(text: str, line: int) -> list[Token]:
    """The tokens of one line, an END token last. Raises AssemblyError at a character that starts no token."""
    text = _without_block_comments(text)
    listing = _LISTING.match(text)
    at = listing.end() if listing else 0
    symbol = _SYMBOL.search(text)
    if symbol and "goto" in text:
        text = text[: symbol.start()]
    tokens = []
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise AssemblyError(f"{text[at]!r} has no meaning here", line, at + 1)
        kind, word = str(found.lastgroup), found.group()
        if kind == NUMBER and len(word) > _MOST_DIGITS:
            raise AssemblyError(f"the number has {len(word)} digits", line, at + 1, "64 bits are the most")
        if kind not in ("blank", "comment"):
            tokens.append(Token(kind, word, at + 1, _value(kind, word)))
        at = found.end()
    tokens.append(Token(END, "", len(text.rstrip()) + 1))
    return tokens


def _without_block_comments(text: str) -> str:
    """The text with blanks for its comments, so that columns stay; one that does not end is none."""
    parts: list[str] = []
    at = 0
    while (start := text.find("/*", at)) >= 0 and (end := text.find("*/", start + 2) + 2) >= 2:
        parts += text[at:start], " " * (end - start)
        at = end
    return "".join((*parts, text[at:]))


def _value(kind: str, word: str) -> int:
    if kind == REGISTER:
        return int(word.lstrip("%rw"))
    if kind == NUMBER:
        return int(word, 0) if word[:2].lower() in ("0x", "0b", "0o") else int(word)
    return 0


class Tokens:
    """A reader of one line's tokens, with the questions that parsers ask."""

    def __init__(self, tokens: list[Token], line: int) -> None:
        self._tokens = tokens
        self._at = 0
        self.line = line

    @property
    def next(self) -> Token:
        """The next token, not taken."""
        return self._tokens[self._at]

    def ahead(self, count: int) -> Token:
        """The token `count` behind the next one, or the end."""
        return self._tokens[min(self._at + count, len(self._tokens) - 1)]

    def take(self) -> Token:
        """Take the next token."""
        token = self._tokens[self._at]
        if token.kind != END:
            self._at += 1
        return token

    def accept(self, *texts: str) -> Token | None:
        """Take the next token if it is one of these words or operators."""
        token = self.next
        if token.text in texts and token.kind in (OPERATOR, NAME):
            return self.take()
        return None

    def expect(self, *texts: str) -> Token:
        """Take the next token, which must be one of these."""
        token = self.accept(*texts)
        if token is None:
            raise self.error(f"expected {' or '.join(map(repr, texts))}, found {self.next.shown}")
        return token

    def name(self, what: str) -> Token:
        """Take a name."""
        if self.next.kind != NAME:
            raise self.error(f"expected {what}, found {self.next.shown}")
        return self.take()

    def words(self, what: str) -> str:
        """Take a name, or any text in quotes."""
        return self.take().text[1:-1] if self.next.kind == STRING else self.name(what).text

    def register(self, *, width: str = "") -> Token:
        """Take a register; `width` "r" or "w" asks for one of that width."""
        token = self.next
        if token.kind != REGISTER:
            raise self.error(f"expected a register, found {token.shown}")
        if width and token.text.lstrip("%")[0] != width:
            bits = "64" if width == "r" else "32"
            raise self.error(f"expected a {bits}-bit register ({width}{token.value}), found {token.text}")
        return self.take()

    def number(self, what: str, low: int, high: int) -> int:
        """Take a number, with its sign, that lies within [low, high]."""
        start = self.next
        sign = -1 if self.accept("-") else 1
        if sign > 0:
            self.accept("+")
        if self.next.kind != NUMBER:
            raise self.error(f"expected {what}, found {self.next.shown}")
        value = sign * self.take().value
        if not low <= value <= high:
            raise self.error(f"{what} is {value}", start, f"{low} to {high} fit")
        return value

    def finish(self) -> None:
        """There must be no more tokens."""
        if self.next.kind != END:
            raise self.error(f"{self.next.shown} is left over", way_out="one instruction stands on a line")

    def error(self, what: str, token: Token | None = None, way_out: str = "") -> AssemblyError:
        """An error at a token, or at the next one."""
        return AssemblyError(what, self.line, (token or self.next).column, way_out)


def is_plain_name(name: str) -> bool:
    """Whether a name can stand in the text without quotes."""
    found = _TOKEN.fullmatch(name)
    return found is not None and found.lastgroup == NAME and name.isascii()


def is_wide(register: Token) -> bool:
    """Whether a register is named with its 64 bits."""
    return register.text.lstrip("%")[0] == "r"
