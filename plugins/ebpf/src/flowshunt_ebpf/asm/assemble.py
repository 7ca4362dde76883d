"""Text to programs, in either form."""

import re
from enum import Enum

import attrs

from flowshunt import insn
from flowshunt.insn import LD_IMM64, Instruction
from flowshunt_ebpf.asm import c_parser, mnemonic_parser
from flowshunt_ebpf.asm.directives import Header, directive
from flowshunt_ebpf.asm.error import AssemblyError
from flowshunt_ebpf.asm.lexer import END, NAME, Tokens, tokenize
from flowshunt_ebpf.asm.statement import Field, Reference, Statement
from flowshunt_ebpf.program.program import Function, Program
from flowshunt_ebpf.program.program_type import ProgramType


class Form(Enum):
    """The two text forms."""

    C = "c"
    MNEMONIC = "mnemonic"


_PARSERS = {Form.C: c_parser.parse, Form.MNEMONIC: mnemonic_parser.parse}
_ONLY_MNEMONIC = frozenset(mnemonic_parser.FORMS) - {"call", "callx", "exit", "lock", "may_goto", ".insn"}


def detect_form(text: str) -> Form:
    """The form that a text is written in, by the first word that only the mnemonic form has."""
    for line in text.splitlines():
        words = re.sub(r"^\s*(?:[\w.$]+:\s*)*", "", line).split(None, 1)
        if words and (words[0] in _ONLY_MNEMONIC or (words[0] == "lock" and "%" in line)):
            return Form.MNEMONIC
    return Form.C


def assemble(text: str, *, form: Form | None = None, file: str = "", name: str = "main") -> Program:
    """Assemble a program.

    `form` is found from the text where it is None. `file` stands in messages. `name` is the program's where no `.name`
    gives one. The label `exit` is the first exit. Raises AssemblyError (an InputError) with line and column.
    """
    parse = _PARSERS[form or detect_form(text)]
    header = Header()
    labels: dict[str, int] = {}
    statements: list[Statement] = []
    try:
        for number, line in enumerate(text.splitlines(), 1):
            tokens = Tokens(tokenize(line, number), number)
            while tokens.next.kind == NAME and tokens.ahead(1).text == ":":
                label = tokens.take()
                if label.text in labels:
                    raise tokens.error(f"label {label.text} stands twice", label)
                labels[label.text] = len(statements)
                tokens.take()
            if tokens.next.kind != END and not directive(tokens, header, len(statements)):
                statements.append(parse(tokens))
        return _program(header, labels, statements, name)
    except AssemblyError as error:
        if not file or error.file:
            raise
        raise AssemblyError(error.what, error.line, error.column, error.way_out, file) from None


def _program(header: Header, labels: dict[str, int], statements: list[Statement], name: str) -> Program:
    for function in header.functions:
        labels.setdefault(function.name, function.start)
    slots = [0]
    for index, statement in enumerate(statements):
        slots.append(slots[-1] + statement.instruction.slots)
        if statement.instruction.opcode == insn.EXIT_K:
            labels.setdefault("exit", index)
    functions = {f.start: f for f in header.functions}
    maps = {name: index for index, name in enumerate(header.maps)}
    instructions = []
    for index, statement in enumerate(statements):
        reference = statement.reference
        if reference is None:
            instructions.append(statement.instruction)
            continue
        if reference.field is Field.SYMBOL:
            kind = Field.MAP if reference.name in maps else Field.FUNCTION
            reference = attrs.evolve(reference, field=kind)
        if reference.field in (Field.MAP, Field.MAP_VALUE):
            instructions.append(_with_map(statement, reference, maps))
            continue
        target = labels.get(reference.name)
        if target is None:
            raise _unknown(statement, reference, labels)
        if reference.field in (Field.CALL, Field.FUNCTION) and target < len(statements):
            functions.setdefault(target, Function(reference.name, target))
        instructions.append(_with_distance(statement, reference, slots[target] - slots[index] - 1))
    return Program(
        tuple(instructions),
        name=header.name or name,
        type=header.type or ProgramType.UNSPEC,
        section=header.section,
        license=header.license,
        maps=tuple(header.maps.values()),
        functions=tuple(functions[start] for start in sorted(functions)),
    )


def _with_map(statement: Statement, reference: Reference, maps: dict[str, int]) -> Instruction:
    number = maps.get(reference.name)
    if number is None:
        raise AssemblyError(
            f"there is no map {reference.name}",
            statement.line,
            reference.column,
            f"known are {', '.join(maps)}" if maps else "define it with .map",
        )
    instruction = statement.instruction
    source = instruction.src or insn.PSEUDO_MAP_IDX
    return Instruction(LD_IMM64, instruction.dst, source, 0, insn.signed64(instruction.imm & ~0xFFFFFFFF | number))


def _with_distance(statement: Statement, reference: Reference, distance: int) -> Instruction:
    instruction = statement.instruction
    if reference.field is Field.OFFSET:
        if not -0x8000 <= distance <= 0x7FFF:
            raise AssemblyError(
                f"label {reference.name} is {distance} slots away",
                statement.line,
                reference.column,
                "-32768 to 32767 fit; gotol (ja32) reaches further",
            )
        return attrs.evolve(instruction, offset=distance)
    if reference.field is Field.FUNCTION:
        return Instruction(LD_IMM64, instruction.dst, insn.PSEUDO_FUNC, 0, distance & 0xFFFFFFFF)
    return attrs.evolve(instruction, imm=distance)


def _unknown(statement: Statement, reference: Reference, labels: dict[str, int]) -> AssemblyError:
    what = "map or function" if statement.instruction.opcode == LD_IMM64 else "label"
    way_out = f"known labels are {', '.join(sorted(labels)[:10])}" if labels else "write it before an instruction"
    return AssemblyError(f"there is no {what} {reference.name}", statement.line, reference.column, way_out)
