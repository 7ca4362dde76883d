"""Directives: what a text says about its program besides instructions. Both forms write them alike.

.name NAME                      the program's name
.type xdp                       its type, by the kernel's name in lower case
.section "xdp"                  the object section that it stands for; sets the type where .type does not
.license "GPL"
.map NAME TYPE key=4 value=8 entries=16 flags=0 extra=0 inner=NAME pinning=1 contents=00ff fill=0:NAME
.inner NAME TYPE key=4 ...      a map that serves as another one's inner map, by inner=NAME
.function NAME [global]         the next instruction starts a function
"""

from collections.abc import Callable
from typing import Any, Final

import attrs

from flowshunt_ebpf.asm.lexer import END, NAME, Token, Tokens
from flowshunt_ebpf.program.map_definition import MapDefinition, MapType
from flowshunt_ebpf.program.program import Function
from flowshunt_ebpf.program.program_type import ProgramType, section_kind

_UINT32: Final = (1 << 32) - 1


@attrs.define
class Header:
    """What the directives of a text have said so far."""

    name: str = ""
    type: ProgramType | None = None
    section: str = ""
    license: str = ""
    maps: dict[str, MapDefinition] = attrs.field(factory=dict)
    inner: dict[str, MapDefinition] = attrs.field(factory=dict)
    functions: list[Function] = attrs.field(factory=list)


def directive(tokens: Tokens, header: Header, index: int) -> bool:
    """Read a line that starts with a directive; False where it starts with none. `index`: of the next instruction."""
    read = _DIRECTIVES.get(tokens.next.text)
    if read is None:
        return False
    tokens.take()
    read(tokens, header, index)
    tokens.finish()
    return True


def _name(tokens: Tokens, header: Header, index: int) -> None:
    header.name = tokens.words("a name")


def _type(tokens: Tokens, header: Header, index: int) -> None:
    word = tokens.name("a program type")
    try:
        header.type = ProgramType[word.text.upper()]
    except KeyError:
        known = ", ".join(t.name.lower() for t in ProgramType)
        raise tokens.error(f"{word.shown} is no program type", word, f"known are {known}") from None


def _section(tokens: Tokens, header: Header, index: int) -> None:
    header.section = tokens.words("a section")
    if header.type is None:
        header.type = section_kind(header.section).type


def _license(tokens: Tokens, header: Header, index: int) -> None:
    header.license = tokens.words("a license")


def _function(tokens: Tokens, header: Header, index: int) -> None:
    word = tokens.next
    name = tokens.words("a function's name")
    if any(f.name == name for f in header.functions):
        raise tokens.error(f"function {name} stands twice", word)
    if any(f.start == index for f in header.functions):
        raise tokens.error("two functions start at one instruction", word)
    linkage = tokens.accept("global", "static")
    header.functions.append(Function(name, index, linkage.text if linkage else "static"))


def _map(tokens: Tokens, header: Header, index: int) -> None:
    word = tokens.next
    definition = _definition(tokens, header)
    if definition.name in header.maps:
        raise tokens.error(f"map {definition.name} stands twice", word)
    header.maps[definition.name] = definition


def _inner(tokens: Tokens, header: Header, index: int) -> None:
    definition = _definition(tokens, header)
    header.inner[definition.name] = definition


_NUMBERS: Final = {
    "key": "key_size",
    "value": "value_size",
    "entries": "max_entries",
    "flags": "flags",
    "pinning": "pinning",
    "key_type": "key_type_id",
    "value_type": "value_type_id",
    "node": "numa_node",
}


def _definition(tokens: Tokens, header: Header) -> MapDefinition:
    name = tokens.words("a map's name")
    fields: dict[str, Any] = {"key_size": 0, "value_size": 0, "max_entries": 0}
    type_ = _map_type(tokens)
    values: list[tuple[int, str]] = []
    while tokens.next.kind != END:
        word = tokens.name("a field such as key=4")
        tokens.expect("=")
        if word.text in _NUMBERS:
            fields[_NUMBERS[word.text]] = tokens.number(word.text, 0, _UINT32)
        elif word.text == "extra":
            fields["map_extra"] = tokens.number(word.text, 0, (1 << 64) - 1)
        elif word.text == "inner":
            fields["inner"] = _known(tokens, header)
        elif word.text == "contents":
            fields["contents"] = _contents(tokens)
        elif word.text == "fill":
            key = tokens.number("key", 0, _UINT32)
            tokens.expect(":")
            values.append((key, tokens.words("a program's or map's name")))
        else:
            known = ", ".join((*_NUMBERS, "extra", "inner", "contents", "fill"))
            raise tokens.error(f"{word.shown} is no field of a map", word, f"known are {known}")
    return attrs.evolve(MapDefinition(name, type_, 0, 0, 0, values=tuple(values)), **fields)


def _map_type(tokens: Tokens) -> int:
    if tokens.next.kind != NAME:
        return tokens.number("a map type", 0, _UINT32)
    word = tokens.take()
    try:
        return int(MapType[word.text.upper()])
    except KeyError:
        known = ", ".join(t.name.lower() for t in MapType if t)
        raise tokens.error(f"{word.shown} is no map type", word, f"known are {known}") from None


def _known(tokens: Tokens, header: Header) -> MapDefinition:
    word: Token = tokens.next
    name = tokens.words("an inner map's name")
    found = header.inner.get(name) or header.maps.get(name)
    if found is None:
        raise tokens.error(f"there is no map {name} above", word, "define it first, with .inner or .map")
    return found


def _contents(tokens: Tokens) -> bytes:
    word = tokens.next
    text = tokens.words("bytes in a string")
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise tokens.error(f"{text!r} is not hexadecimal", word, 'write contents="00ff"') from None


_DIRECTIVES: Final[dict[str, Callable[[Tokens, Header, int], None]]] = {
    ".name": _name,
    ".type": _type,
    ".section": _section,
    ".license": _license,
    ".function": _function,
    ".map": _map,
    ".inner": _inner,
}
