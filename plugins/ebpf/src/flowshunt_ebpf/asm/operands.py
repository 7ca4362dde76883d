"""Operands that both text forms write alike: numbers, jump and call targets, maps and functions, raw instructions."""

from typing import Final

import attrs

from flowshunt import insn
from flowshunt.insn import Instruction
from flowshunt_ebpf.asm.lexer import NAME, NUMBER, REGISTER, Token, Tokens
from flowshunt_ebpf.asm.statement import Field, Reference
from flowshunt_ebpf.program.helper_calls import HELPER_NUMBERS

INT16: Final = (-(1 << 15), (1 << 15) - 1)
INT32: Final = (-(1 << 31), (1 << 31) - 1)
UINT32: Final = (1 << 32) - 1
UINT64: Final = (1 << 64) - 1


def immediate(tokens: Tokens, *, wide: bool = False, bits: int = 32, pattern: bool = False) -> int:
    """An immediate, as it is kept: signed.

    Where it is used with 64 bits (`wide`) it is sign-extended, so that a number from 2^31 on can't be written. With
    `pattern`, numbers that are written in another base than ten stand for their bits and are taken there, too.
    """
    start = tokens.next
    based = pattern and start.text[:2].lower() in ("0x", "0b", "0o")
    number = tokens.number("immediate", -(1 << 64), 1 << 64)
    most = INT32[1] if wide and not based else (1 << bits) - 1
    if not -(1 << (bits - 1)) <= number <= most:
        way_out = f"{-(1 << (bits - 1))} to {most} fit"
        if wide and INT32[1] < number <= UINT64:
            way_out = "64-bit instructions extend the immediate's sign; load it first: r0 = NUMBER ll (lddw)"
        raise tokens.error(f"immediate is {number}", start, way_out)
    return number - (1 << bits) if number >= 1 << (bits - 1) else number


def jump_target(tokens: Tokens, instruction: Instruction, field: Field) -> tuple[Instruction, Reference | None]:
    """`+2`, `-3`, `pc+2`, or a label: a jump's distance in slots, from the next one."""
    if tokens.next.text == "pc" and tokens.ahead(1).text in ("+", "-"):
        tokens.take()
    token = tokens.next
    if token.text in ("+", "-") or token.kind == NUMBER:
        if token.kind == NUMBER:
            raise tokens.error("a distance needs its sign", token, f"write +{token.text}, or a label")
        if field is Field.OFFSET:
            return attrs.evolve(instruction, offset=tokens.number("distance", *INT16)), None
        return attrs.evolve(instruction, imm=tokens.number("distance", *INT32)), None
    label = tokens.name("a label or a distance such as +2")
    return instruction, Reference(label.text, field, label.column)


def call_target(tokens: Tokens) -> tuple[Instruction, Reference | None]:
    """Behind `call`: a helper (number, name, or name#number), `pc+5`, a function, `kernel-function#id`, a register."""
    token = tokens.next
    if token.kind == REGISTER:
        return insn.callx(tokens.register().value), None
    if token.kind == NUMBER or token.text == "-":
        return insn.call(tokens.number("helper", *INT32)), None
    if token.text == "+" or (token.text == "pc" and tokens.ahead(1).text in ("+", "-")):
        if token.text == "pc":
            tokens.take()
        return insn.call_local(tokens.number("distance", *INT32)), None
    word = tokens.name("a helper or function")
    number: int | None = None
    if tokens.accept("#"):
        number = tokens.number("number", *INT32)
    if word.text == "kernel-function":
        return _kernel_function(tokens, word, number)
    helper = HELPER_NUMBERS.get(word.text.removeprefix("bpf_"))
    if number is not None:
        if helper is not None and helper != number:
            raise tokens.error(f"{word.text} is helper {helper}, not {number}", word)
        return insn.call(number), None
    if helper is not None and word.text.startswith("bpf_"):
        return insn.call(helper), None
    return insn.call_local(0), Reference(word.text, Field.CALL, word.column)


def _kernel_function(tokens: Tokens, word: Token, number: int | None) -> tuple[Instruction, None]:
    if number is None:
        raise tokens.error("a kernel function is called by its BTF id", word, "write kernel-function#ID")
    module = tokens.number("module index", *INT16) if tokens.accept("@") else 0
    return insn.call_kfunc(number, module), None


def map_reference(tokens: Tokens, word: Token, dst: int) -> tuple[Instruction, Reference | None] | None:
    """The address of a map, a map's value, a variable or a function, behind its first word; None: it is none of these.

    `map[NAME]`, `map[NAME][0] + 8`, and by number, as RFC 9669 writes them: `map_by_fd(3)`, `map_by_idx(0)`,
    `map_val(map_by_fd(3)) + 8`, `map_val(map_by_idx(0)) + 8`, `var_addr(17)`, `code_addr(+5)`.
    """
    if word.text == "map" and tokens.accept("["):
        place = tokens.next
        name = tokens.words("a map's name")
        tokens.expect("]")
        if not tokens.accept("["):
            return (
                insn.ld_imm64(dst, 0, insn.PSEUDO_MAP_IDX),
                Reference(name, Field.MAP, place.column),
            )
        tokens.number("index", 0, 0)
        tokens.expect("]")
        offset = tokens.number("offset", 0, UINT32) if tokens.next.text == "+" else 0
        return (
            insn.ld_imm64(dst, offset << 32, insn.PSEUDO_MAP_IDX_VALUE),
            Reference(name, Field.MAP_VALUE, place.column),
        )
    if tokens.next.text != "(" or word.text not in ("map_by_fd", "map_by_idx", "map_val", "var_addr", "code_addr"):
        return None
    tokens.expect("(")
    if word.text == "code_addr":
        return _code_address(tokens, dst)
    if word.text == "map_val":
        inner = tokens.expect("map_by_fd", "map_by_idx")
        tokens.expect("(")
        number = tokens.number("map", 0, UINT32)
        tokens.expect(")")
        tokens.expect(")")
        offset = tokens.number("offset", 0, UINT32) if tokens.next.text == "+" else 0
        source = insn.PSEUDO_MAP_VALUE if inner.text == "map_by_fd" else insn.PSEUDO_MAP_IDX_VALUE
        return insn.ld_imm64(dst, number | offset << 32, source), None
    if word.text == "var_addr":
        number = tokens.number("BTF id", 0, UINT32)
        module = tokens.number("module", 0, INT32[1]) if tokens.accept(",") else 0
        tokens.expect(")")
        return insn.ld_imm64(dst, number | module << 32, insn.PSEUDO_BTF_ID), None
    number = tokens.number("map", 0, UINT32)
    tokens.expect(")")
    return insn.ld_imm64(dst, number, insn.PSEUDO_MAP_FD if word.text == "map_by_fd" else insn.PSEUDO_MAP_IDX), None


def _code_address(tokens: Tokens, dst: int) -> tuple[Instruction, Reference | None]:
    if tokens.next.kind == NAME:
        name = tokens.take()
        tokens.expect(")")
        return insn.ld_function(dst, 0), Reference(name.text, Field.FUNCTION, name.column)
    distance = tokens.number("distance", *INT32)
    tokens.expect(")")
    return insn.ld_function(dst, distance), None


def raw_instruction(tokens: Tokens) -> tuple[Instruction, None]:
    """Behind `.insn`: opcode, dst, src, offset, imm. Any instruction can be written so, valid or not."""
    opcode = tokens.number("opcode", 0, 255)
    fields = []
    high = UINT64 if opcode == insn.LD_IMM64 else UINT32
    for name, low, most in (("dst", 0, 15), ("src", 0, 15), ("offset", *INT16), ("imm", -(high + 1) // 2, high)):
        tokens.expect(",")
        fields.append(tokens.number(name, low, most))
    dst, src, offset, imm = fields
    half = (high + 1) // 2
    return Instruction(opcode, dst, src, offset, imm - high - 1 if imm >= half else imm), None
