"""The mnemonic form: one line of tokens to one statement.

    ldxw %r0, [%r1+4]        jsgt32 %w1, 3, label        lock fetch add [%r1+0], %r2        call helper 5

A 64-bit operation has no suffix, a 32-bit one has 32. Numbers in another base than ten are taken as bits.
"""

from collections.abc import Callable
from typing import Final

from flowshunt import insn
from flowshunt.insn import Instruction
from flowshunt_ebpf.asm.lexer import NUMBER, REGISTER, Tokens, is_wide
from flowshunt_ebpf.asm.operands import (
    INT16,
    INT32,
    call_target,
    immediate,
    jump_target,
    map_reference,
    raw_instruction,
)
from flowshunt_ebpf.asm.statement import Field, Reference, Statement
from flowshunt_ebpf.asm.symbols import ALU_WORD, ATOMIC_WORD, JUMP_WORD, SIZE_SUFFIX, SWAP_WORD
from flowshunt_ebpf.program.helper_calls import HELPER_NUMBERS

_Parsed = tuple[Instruction, Reference | None]
_Form = Callable[[Tokens], _Parsed]


def parse(tokens: Tokens) -> Statement:
    """The statement on a line that holds an instruction. Raises AssemblyError with line and column."""
    first = tokens.name("an instruction")
    form = FORMS.get(first.text)
    if form is None:
        raise tokens.error(f"{first.shown} is no instruction", first)
    instruction, reference = form(tokens)
    tokens.finish()
    return Statement(instruction, tokens.line, first.column, reference)


def _register(tokens: Tokens, *, half: bool = False) -> int:
    """A register; `half`: its low 32 bits may be named (%w1)."""
    return tokens.register(width="" if half else "r").value


def _address(tokens: Tokens) -> tuple[int, int]:
    """`[%r1+4]`: register and offset."""
    tokens.expect("[")
    base = _register(tokens)
    offset = tokens.number("offset", *INT16) if tokens.next.text in ("+", "-") else 0
    tokens.expect("]")
    return base, offset


def _arithmetic(cls: int, op: int, offset: int) -> _Form:
    half = cls in (insn.ALU, insn.JMP32)

    def parse_arithmetic(tokens: Tokens) -> _Parsed:
        dst = _register(tokens, half=half)
        tokens.expect(",")
        if tokens.next.kind == REGISTER:
            return Instruction(cls | op | insn.X, dst, _register(tokens, half=half), offset), None
        return Instruction(cls | op | insn.K, dst, 0, offset, immediate(tokens, wide=not half, pattern=True)), None

    return parse_arithmetic


def _sign_extension(cls: int, bits: int) -> _Form:
    half = cls == insn.ALU

    def parse_sign_extension(tokens: Tokens) -> _Parsed:
        dst = _register(tokens, half=half)
        tokens.expect(",")
        return Instruction(cls | insn.MOV | insn.X, dst, _register(tokens, half=half), bits), None

    return parse_sign_extension


def _unary(opcode: int, imm: int) -> _Form:
    def parse_unary(tokens: Tokens) -> _Parsed:
        return Instruction(opcode, _register(tokens, half=opcode & 7 == insn.ALU), 0, 0, imm), None

    return parse_unary


def _condition(cls: int, op: int) -> _Form:
    operands = _arithmetic(cls, op, 0)

    def parse_condition(tokens: Tokens) -> _Parsed:
        instruction, _ = operands(tokens)
        tokens.expect(",")
        return jump_target(tokens, instruction, Field.OFFSET)

    return parse_condition


def _jump(opcode: int, field: Field) -> _Form:
    return lambda tokens: jump_target(tokens, Instruction(opcode), field)


def _load(opcode: int) -> _Form:
    def parse_load(tokens: Tokens) -> _Parsed:
        dst = tokens.register()
        if not is_wide(dst):
            raise tokens.error(f"a load fills all of r{dst.value}", dst, f"write %r{dst.value}")
        tokens.expect(",")
        base, offset = _address(tokens)
        return Instruction(opcode, dst.value, base, offset), None

    return parse_load


def _store(size: int) -> _Form:
    def parse_store(tokens: Tokens) -> _Parsed:
        base, offset = _address(tokens)
        tokens.expect(",")
        imm = immediate(tokens, wide=size == insn.DW, pattern=True)
        return Instruction(insn.ST | insn.MEM | size, base, 0, offset, imm), None

    return parse_store


def _store_register(size: int) -> _Form:
    def parse_store_register(tokens: Tokens) -> _Parsed:
        base, offset = _address(tokens)
        tokens.expect(",")
        return Instruction(insn.STX | insn.MEM | size, base, _register(tokens, half=size != insn.DW), offset), None

    return parse_store_register


def _load_acquire(size: int) -> _Form:
    def parse_load_acquire(tokens: Tokens) -> _Parsed:
        instruction, _ = _load(insn.STX | insn.ATOMIC | size)(tokens)
        return insn.load_acquire(size, instruction.dst, instruction.src, instruction.offset), None

    return parse_load_acquire


def _store_release(size: int) -> _Form:
    def parse_store_release(tokens: Tokens) -> _Parsed:
        instruction, _ = _store_register(size)(tokens)
        return insn.store_release(size, instruction.dst, instruction.src, instruction.offset), None

    return parse_store_release


_ATOMIC: Final[dict[str, int]] = {
    **{word: op for op, word in ATOMIC_WORD.items()},
    "xchg": insn.XCHG,
    "cmpxchg": insn.CMPXCHG,
}


def _lock(tokens: Tokens) -> _Parsed:
    fetch = insn.FETCH if tokens.accept("fetch") else 0
    word = tokens.name("an atomic operation")
    name = word.text.removesuffix("32")
    op = _ATOMIC.get(name)
    if op is None:
        raise tokens.error(f"{word.shown} is no atomic operation", word, f"known are {', '.join(_ATOMIC)}")
    if fetch and op & insn.FETCH:
        raise tokens.error(f"{name} always fetches", word, "leave out fetch")
    half = word.text.endswith("32")
    base, offset = _address(tokens)
    tokens.expect(",")
    size = insn.W if half else insn.DW
    return Instruction(insn.STX | insn.ATOMIC | size, base, _register(tokens, half=half), offset, op | fetch), None


def _wide(tokens: Tokens) -> _Parsed:
    dst = _register(tokens)
    tokens.expect(",")
    if tokens.next.kind == NUMBER or tokens.next.text in ("-", "+"):
        return Instruction(insn.LD_IMM64, dst, 0, 0, immediate(tokens, bits=64)), None
    word = tokens.name("a number, map or function")
    found = map_reference(tokens, word, dst)
    return found or (Instruction(insn.LD_IMM64, dst), Reference(word.text, Field.SYMBOL, word.column))


def _packet_absolute(size: int) -> _Form:
    return lambda tokens: (Instruction(insn.LD | insn.ABS | size, imm=immediate(tokens)), None)


def _packet_indirect(size: int) -> _Form:
    def parse_packet_indirect(tokens: Tokens) -> _Parsed:
        src = _register(tokens, half=True)
        imm = immediate(tokens) if tokens.accept(",") else 0
        return Instruction(insn.LD | insn.IND | size, 0, src, 0, imm), None

    return parse_packet_indirect


def _call(tokens: Tokens) -> _Parsed:
    if tokens.accept("local"):
        return jump_target(tokens, insn.call_local(0), Field.CALL)
    if tokens.accept("runtime"):
        number = tokens.number("BTF id", *INT32)
        return insn.call_kfunc(number, tokens.number("module index", *INT16) if tokens.accept(",") else 0), None
    if tokens.accept("helper"):
        if tokens.next.kind == REGISTER:
            return insn.callx(_register(tokens)), None
        name = HELPER_NUMBERS.get(tokens.next.text.removeprefix("bpf_"))
        if name is not None:
            tokens.take()
            return insn.call(name), None
        return insn.call(tokens.number("helper", *INT32)), None
    return call_target(tokens)


def _cast(tokens: Tokens) -> _Parsed:
    dst = _register(tokens)
    tokens.expect(",")
    src = _register(tokens)
    tokens.expect(",")
    to = tokens.number("address space", 0, 0x7FFF)
    tokens.expect(",")
    imm = to << 16 | tokens.number("address space", 0, 0xFFFF)
    return Instruction(insn.ALU64 | insn.MOV | insn.X, dst, src, insn.ADDRESS_SPACE_CAST, imm), None


def _forms() -> dict[str, _Form]:
    forms: dict[str, _Form] = {}
    for suffix, alu, jump in (("", insn.ALU64, insn.JMP), ("64", insn.ALU64, insn.JMP), ("32", insn.ALU, insn.JMP32)):
        for op, word in ALU_WORD.items():
            forms[word + suffix] = _arithmetic(alu, op, 0)
        forms["sdiv" + suffix] = _arithmetic(alu, insn.DIV, insn.SIGNED)
        forms["smod" + suffix] = _arithmetic(alu, insn.MOD, insn.SIGNED)
        forms["neg" + suffix] = _unary(alu | insn.NEG | insn.K, 0)
        for op, word in JUMP_WORD.items():
            forms[word + suffix] = _condition(jump, op)
    for bits in (8, 16, 32):
        forms[f"movsx{bits}64"] = _sign_extension(insn.ALU64, bits)
        if bits < 32:
            forms[f"movsx{bits}32"] = _sign_extension(insn.ALU, bits)
    for opcode, word in SWAP_WORD.items():
        for bits in (16, 32, 64):
            forms[f"{word}{bits}"] = _unary(opcode, bits)
            if word == "bswap":
                forms[f"swap{bits}"] = forms[f"{word}{bits}"]
    for size, suffix in SIZE_SUFFIX.items():
        forms[f"ldx{suffix}"] = _load(insn.LDX | insn.MEM | size)
        forms[f"st{suffix}"] = _store(size)
        forms[f"stx{suffix}"] = _store_register(size)
        forms[f"ldacq{suffix}"] = _load_acquire(size)
        forms[f"strel{suffix}"] = _store_release(size)
        if size != insn.DW:
            forms[f"ldxs{suffix}"] = _load(insn.LDX | insn.MEMSX | size)
            forms[f"ldabs{suffix}"] = _packet_absolute(size)
            forms[f"ldind{suffix}"] = _packet_indirect(size)
    return forms | {
        "lddw": _wide,
        "lock": _lock,
        "ja": _jump(insn.JA_K, Field.OFFSET),
        "ja32": _jump(insn.GOTOL, Field.IMMEDIATE),
        "may_goto": _jump(insn.MAY_GOTO, Field.OFFSET),
        "call": _call,
        "callx": lambda tokens: (insn.callx(_register(tokens)), None),
        "exit": lambda tokens: (insn.exit_(), None),
        "addr_space_cast": _cast,
        ".insn": raw_instruction,
    }


FORMS: Final = _forms()
"""First word of a line to the parser of what follows."""
