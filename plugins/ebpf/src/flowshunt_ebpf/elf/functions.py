"""The functions of an object: which slots of which section belong to which symbol."""

from bisect import bisect_left

import attrs

from flowshunt_ebpf.elf.error import ObjectError
from flowshunt_ebpf.elf.reader import STB_GLOBAL, STB_LOCAL, STT_FUNC, STT_SECTION, Elf, Section, Symbol


@attrs.frozen
class CodeFunction:
    """A function of an object: a symbol, and the slots [start, end) of its section that are its."""

    symbol: Symbol
    section: int
    start: int
    end: int


def code_functions(elf: Elf) -> dict[tuple[int, int], CodeFunction]:
    """The functions of an object by section index and byte offset. Raises ObjectError, naming the symbol."""
    found: dict[tuple[int, int], CodeFunction] = {}
    by_section: dict[int, list[Symbol]] = {}
    for symbol in elf.symbols:
        if symbol.defined and elf.sections[symbol.section].executable and symbol.type != STT_SECTION:
            by_section.setdefault(symbol.section, []).append(symbol)
    for section in elf.sections:
        if not section.executable or not section.size:
            continue
        symbols = by_section.get(section.index, [])
        functions = [s for s in symbols if s.type == STT_FUNC] or [s for s in symbols if s.binding != STB_LOCAL]
        if not functions:
            functions = [Symbol(0, section.name, 0, section.size, STT_FUNC, STB_GLOBAL, section.index)]
        _functions_of(elf, section, functions, found)
    return found


def _functions_of(
    elf: Elf, section: Section, symbols: list[Symbol], found: dict[tuple[int, int], CodeFunction]
) -> None:
    starts = sorted({s.value for s in symbols})
    end = 0
    for symbol in sorted(symbols, key=lambda s: (s.value, s.binding == STB_LOCAL)):
        where = f"{elf.file}: section {section.name}, symbol {symbol.name}"
        following = bisect_left(starts, symbol.value + 1)
        last = symbol.value + symbol.size
        if not symbol.size:
            last = starts[following] if following < len(starts) else section.size
        if symbol.value % 8 or last % 8:
            raise ObjectError(f"covers bytes {symbol.value} to {last}, no whole slots", where, "compile it anew")
        if (section.index, symbol.value) in found:
            continue
        if symbol.value < end:
            raise ObjectError("overlaps another function", where, "compile it anew")
        end = last
        found[section.index, symbol.value] = CodeFunction(symbol, section.index, symbol.value // 8, last // 8)
