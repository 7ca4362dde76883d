"""Programs to text, in either form. What comes out assembles to the same program."""

from collections.abc import Iterable

from flowshunt import insn
from flowshunt.errors import InputError
from flowshunt.insn import Instruction
from flowshunt_ebpf.asm.assemble import Form
from flowshunt_ebpf.asm.c_printer import print_c
from flowshunt_ebpf.asm.lexer import is_plain_name
from flowshunt_ebpf.asm.mnemonic_printer import print_mnemonic
from flowshunt_ebpf.asm.names import BARE, Names
from flowshunt_ebpf.program.helper_calls import HELPER_NUMBERS
from flowshunt_ebpf.program.map_definition import MapDefinition
from flowshunt_ebpf.program.program import Program
from flowshunt_ebpf.program.program_type import ProgramType, section_kind

_PRINTERS = {Form.C: print_c, Form.MNEMONIC: print_mnemonic}


def instruction_text(instruction: Instruction, form: Form = Form.C) -> str:
    """One instruction by itself: jumps and calls by distance, maps by index."""
    return _PRINTERS[form](instruction, BARE)


def instruction_texts(program: Program, form: Form = Form.C) -> list[str]:
    """The text of each instruction of a program, with the labels that `labels` gives."""
    return _texts(program, form, labels(program))


def labels(program: Program) -> dict[int, str]:
    """Instruction index to the label that jumps to it name: a function's name where one starts, else L and the index.

    A jump or call that reaches no instruction gives none; it is printed with its distance.
    """
    functions = {f.start: f.name for f in program.functions if f.start < len(program.instructions)}
    found: dict[int, str] = {}
    taken = {f.name for f in program.functions}
    for index, i in enumerate(program.instructions):
        if insn.check(i) is not None:
            continue
        for distance, call in _distances(i):
            target = _target(program, index, distance)
            if target is None or target in found:
                continue
            name = functions.get(target)
            if name is None:
                name = f"{'function_' if call else 'L'}{target}"
                while name in taken:
                    name += "_"
            found[target] = name
            taken.add(name)
    return found


def disassemble(program: Program, form: Form = Form.C) -> str:
    """A whole program as text: directives, functions, labels, instructions. `assemble` gives the program back.

    BTF, source lines and symbols that are to be resolved later are not part of the text.
    """
    lines = list(_header(program))
    places = labels(program)
    functions = {f.start: f for f in program.functions}
    for index, text in enumerate(_texts(program, form, places)):
        function = functions.get(index)
        if function is not None:
            lines.append(f".function {_word(function.name)}{' global' if function.linkage == 'global' else ''}")
        label = places.get(index)
        if label is not None and is_plain_name(label) and (function is None or function.name != label):
            lines.append(f"{label}:")
        lines.append(f"    {text}")
    return "\n".join(lines) + "\n"


def _texts(program: Program, form: Form, places: dict[int, str]) -> list[str]:
    printer = _PRINTERS[form]
    maps = [_word(m.name) for m in program.maps]

    def name_at(index: int, distance: int) -> str | None:
        target = _target(program, index, distance)
        name = None if target is None else places.get(target)
        return name if name and is_plain_name(name) and not _is_helper(name) else None

    def names(index: int) -> Names:
        return Names(
            lambda distance: name_at(index, distance) or f"{distance:+}",
            lambda distance: name_at(index, distance),
            maps,
        )

    return [printer(i, names(index)) for index, i in enumerate(program.instructions)]


def _is_helper(name: str) -> bool:
    """Whether `call NAME` would call a helper."""
    return name.startswith("bpf_") and name.removeprefix("bpf_") in HELPER_NUMBERS


def _distances(i: Instruction) -> Iterable[tuple[int, bool]]:
    """Where an instruction may go: distances in slots, and whether that is a call."""
    if i.opcode == insn.LD_IMM64:
        if i.src == insn.PSEUDO_FUNC:
            yield ((i.imm & 0xFFFFFFFF) ^ 0x80000000) - 0x80000000, True
    elif i.cls in (insn.JMP, insn.JMP32):
        if i.op == insn.CALL:
            if i.source == insn.K and i.src == insn.PSEUDO_CALL:
                yield i.imm, True
        elif i.op != insn.EXIT:
            yield i.imm if i.opcode == insn.GOTOL else i.offset, False


def _target(program: Program, index: int, distance: int) -> int | None:
    try:
        return program.target(index, distance)
    except InputError:
        return None


def _word(name: str) -> str:
    """A name as the text writes it: in quotes where it is no plain name."""
    return name if is_plain_name(name) else f'"{name}"'


def _header(program: Program) -> Iterable[str]:
    if program.name != "main":
        yield f".name {_word(program.name)}"
    if program.section:
        yield f'.section "{program.section}"'
    kind = section_kind(program.section).type if program.section else ProgramType.UNSPEC
    if program.type != kind:
        yield f".type {program.type.name.lower()}"
    if program.license:
        yield f'.license "{program.license}"'
    for definition in program.maps:
        if definition.inner is not None:
            yield _map_line(".inner", definition.inner)
        yield _map_line(".map", definition)


def _map_line(word: str, definition: MapDefinition) -> str:
    fields = {
        "key": definition.key_size,
        "value": definition.value_size,
        "entries": definition.max_entries,
        "flags": definition.flags,
        "pinning": int(definition.pinning),
        "key_type": definition.key_type_id,
        "value_type": definition.value_type_id,
        "extra": definition.map_extra,
    }
    words = [word, _word(definition.name), definition.type_name]
    words += [f"{name}={value}" for name, value in fields.items() if value]
    if definition.numa_node is not None:
        words.append(f"node={definition.numa_node}")
    if definition.inner is not None:
        words.append(f"inner={_word(definition.inner.name)}")
    if definition.contents is not None:
        words.append(f'contents="{definition.contents.hex()}"')
    words += [f"fill={key}:{_word(name)}" for key, name in definition.values]
    return " ".join(words)
