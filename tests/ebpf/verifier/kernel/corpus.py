"""Reading the corpus: variants of the committed objects' programs as patches of their text, and whole texts."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import attrs

from flowshunt_ebpf.asm import assemble, disassemble
from flowshunt_ebpf.elf import load_object
from flowshunt_ebpf.program import Function, Program

HERE = Path(__file__).parent
OBJECTS = HERE.parents[1] / "objects"


@attrs.frozen
class Case:
    """One program of the corpus.

    Attributes:
        name: what is the matter with it.
        rule: the rule that we say it breaks; empty: it is accepted.
        kernel: what the kernel says (in part); empty: it accepts it.
        difference: why we differ from the kernel; empty: we do not.
    """

    name: str
    rule: str
    kernel: str
    difference: str
    base: str = attrs.field(repr=False)
    text: tuple[str, ...] = attrs.field(repr=False)

    @property
    def accepted(self) -> bool:
        return not self.rule

    @property
    def kernel_accepts(self) -> bool:
        return not self.kernel

    def program(self) -> Program:
        """The program itself."""
        if not self.base:
            return assemble("\n".join(self.text))
        name, _, function = self.base.partition(" ")
        base = _base(name, function)
        if self.text and not self.text[0].startswith("@"):
            return _typed(assemble("\n".join(self.text)), base)
        return _typed(assemble("\n".join(patched(_lines(name, function), self.text, self.name))), base)


@cache
def _base(name: str, function: str) -> Program:
    return load_object(OBJECTS / name).program(function)


@cache
def _lines(name: str, function: str) -> tuple[str, ...]:
    return tuple(line.strip() for line in disassemble(_base(name, function)).splitlines())


def _typed(program: Program, base: Program) -> Program:
    """A text with the types of the object that it is made of: maps, and functions by their names."""
    maps = {m.name: m for m in base.maps}
    ids = {f.name: f.btf_id for f in base.functions}
    return attrs.evolve(
        program,
        btf=base.btf,
        attach_type=base.attach_type,
        maps=tuple(maps.get(m.name, m) for m in program.maps),
        functions=tuple(Function(f.name, f.start, f.linkage, ids.get(f.name, 0)) for f in program.functions),
    )


def patched(lines: tuple[str, ...], patch: tuple[str, ...], name: str) -> list[str]:
    """Lines after a patch: parts that start with "@ FUNCTION" or "@", each some lines that go ("-") and come ("+")."""
    result = list(lines)
    parts: list[tuple[str, list[str], list[str]]] = []
    for line in patch:
        if line.startswith("@"):
            parts.append((line[1:].strip(), [], []))
        elif line.startswith("-"):
            parts[-1][1].append(line[1:].strip())
        elif line.startswith("+"):
            parts[-1][2].append(line[1:].strip())
        else:
            raise AssertionError(f"{name}: {line!r} neither goes nor comes")
    for function, old, new in parts:
        start = next((n for n, line in enumerate(result) if re.match(rf"\.function {function}\b", line)), 0)
        found = [n for n in range(start, len(result)) if result[n : n + len(old)] == old]
        assert found, f"{name}: no lines {old} in {function}"
        result[found[0] : found[0] + len(old)] = new
    return result


def cases(file: Path) -> Iterator[Case]:
    """The cases of a file: each starts with "== NAME" and says what is to come of it.

    "object FILE PROGRAM" says whose variants the cases below are. Blank lines and "#" lines count for nothing.
    """
    base, name = "", ""
    said: dict[str, str] = {}
    text: list[str] = []
    for line in [*file.read_text(encoding="ascii").splitlines(), "== "]:
        word, _, rest = line.partition(" ")
        if word in ("==", "object"):
            if text or said:
                yield Case(
                    name, said.get("rule", ""), said.get("kernel", ""), said.get("differs", ""), base, tuple(text)
                )
            said, text = {}, []
            base, name = (rest, name) if word == "object" else (base, rest)
        elif word in ("rule", "kernel", "differs", "accepted") and not text:
            said[word] = rest
        elif line.strip() and not line.startswith("#"):
            text.append(line)


def corpus() -> list[Case]:
    """All cases."""
    return [case for file in sorted((HERE / "variants").glob("*.variants")) for case in cases(file)]
