"""The C-like form, as LLVM and the kernel print it: one line of tokens to one statement.

r0 = *(u32 *)(r1 + 4)        if w1 s> 3 goto +2        lock *(u64 *)(r1 + 0) += r2        call bpf_ktime_get_ns#5
"""

from collections.abc import Callable
from typing import Final

from flowshunt import insn
from flowshunt.insn import Instruction
from flowshunt_ebpf.asm.lexer import NAME, NUMBER, OPERATOR, REGISTER, Token, Tokens, is_wide
from flowshunt_ebpf.asm.operands import (
    call_target,
    immediate,
    jump_target,
    map_reference,
    raw_instruction,
)
from flowshunt_ebpf.asm.statement import Field, Reference, Statement
from flowshunt_ebpf.asm.symbols import (
    ASSIGNMENT,
    ATOMIC_ASSIGNMENT,
    ATOMIC_WORD,
    COMPARISON,
    SIZE_SIGNED_TYPE,
    SIZE_TYPE,
)

_OPS: Final = {symbol: op for op, symbol in ASSIGNMENT.items() if op != insn.MOV}
_SIGNED_OPS: Final = {"s/=": insn.DIV, "s%=": insn.MOD}
_CONDITIONS: Final = {symbol: op for op, symbol in COMPARISON.items()}
_TYPES: Final = {name: size for size, name in SIZE_TYPE.items()}
_SIGNED_TYPES: Final = {name: size for size, name in SIZE_SIGNED_TYPE.items()}
_LOCKED: Final = {symbol: op for op, symbol in ATOMIC_ASSIGNMENT.items()}
_FETCHED: Final = {
    f"atomic{wide}_fetch_{word}": op | insn.FETCH for op, word in ATOMIC_WORD.items() for wide in ("", "64")
}
_EXCHANGES: Final = {"xchg_64": insn.DW, "xchg32_32": insn.W, "atomic64_xchg": None, "atomic_xchg": None}
_COMPARE_EXCHANGES: Final = {
    "cmpxchg_64": insn.DW, "cmpxchg32_32": insn.W, "atomic64_cmpxchg": None, "atomic_cmpxchg": None,
}  # fmt: skip
_SWAPS: Final = {
    f"{word}{bits}": (opcode, bits)
    for word, opcode in (("le", 0xD4), ("be", 0xDC), ("bswap", 0xD7))
    for bits in (16, 32, 64)
}


def parse(tokens: Tokens) -> Statement:
    """The statement on a line that holds an instruction. Raises AssemblyError with line and column."""
    first = tokens.next
    if first.kind == REGISTER:
        instruction, reference = _assignment(tokens)
    elif first.text == "*":
        instruction, reference = _store(tokens), None
    elif first.kind == NAME and first.text in _KEYWORDS:
        tokens.take()
        instruction, reference = _KEYWORDS[first.text](tokens)
    else:
        raise tokens.error(f"{first.shown} starts no instruction")
    tokens.finish()
    return Statement(instruction, tokens.line, first.column, reference)


_Parsed = tuple[Instruction, Reference | None]


def _assignment(tokens: Tokens) -> _Parsed:
    dst = tokens.register()
    operator = tokens.take()
    width = "r" if is_wide(dst) else "w"
    cls = insn.ALU64 if is_wide(dst) else insn.ALU
    if operator.text in _OPS or operator.text in _SIGNED_OPS:
        signed = operator.text in _SIGNED_OPS
        op = _SIGNED_OPS[operator.text] if signed else _OPS[operator.text]
        offset = insn.SIGNED if signed else 0
        if tokens.next.kind == REGISTER:
            return Instruction(cls | op | insn.X, dst.value, tokens.register(width=width).value, offset), None
        return Instruction(cls | op | insn.K, dst.value, 0, offset, immediate(tokens, wide=is_wide(dst))), None
    if operator.text != "=" or operator.kind != OPERATOR:
        known = " ".join((*ASSIGNMENT.values(), *_SIGNED_OPS))
        raise tokens.error(f"{operator.shown} is no operator", operator, f"known are {known}")
    return _value(tokens, dst, cls, width)


def _value(tokens: Tokens, dst: Token, cls: int, width: str) -> _Parsed:
    """What stands behind `dst =`."""
    token = tokens.next
    if token.kind == REGISTER:
        return Instruction(cls | insn.MOV | insn.X, dst.value, tokens.register(width=width).value), None
    if token.text == "*":
        return _load(tokens, dst), None
    if token.text == "(":
        return _sign_extension(tokens, dst, cls, width), None
    if token.text == "-" and tokens.ahead(1).kind == REGISTER:
        tokens.take()
        _same(tokens, dst)
        return Instruction(cls | insn.NEG | insn.K, dst.value), None
    if token.kind == NUMBER or token.text in ("-", "+"):
        if any(tokens.ahead(n).text.lower() == "ll" for n in (1, 2)):
            number = immediate(tokens, bits=64)
            tokens.take()
            return Instruction(insn.LD_IMM64, dst.value, 0, 0, number), None
        return Instruction(cls | insn.MOV | insn.K, dst.value, 0, 0, immediate(tokens, wide=width == "r")), None
    if token.kind == NAME:
        return _named_value(tokens, dst)
    raise tokens.error(f"expected a value, found {token.shown}")


def _named_value(tokens: Tokens, dst: Token) -> _Parsed:
    word = tokens.take()
    name = word.text
    if name in _SWAPS:
        _same(tokens, dst)
        opcode, bits = _SWAPS[name]
        return Instruction(opcode, dst.value, 0, 0, bits), None
    if name in _FETCHED:
        tokens.expect("(")
        size, base, offset = _typed_address(tokens)
        return _fetch(tokens, dst, size, base, offset, _FETCHED[name]), None
    if name in _EXCHANGES:
        size, base, offset = _exchange_address(tokens, _EXCHANGES[name])
        return _fetch(tokens, dst, size, base, offset, insn.XCHG), None
    if name in _COMPARE_EXCHANGES:
        size, base, offset = _exchange_address(tokens, _COMPARE_EXCHANGES[name])
        if dst.value != insn.R0:
            raise tokens.error("a compare-exchange gives its result in r0", dst)
        tokens.expect(",")
        _same(tokens, dst)
        tokens.expect(",")
        src = tokens.register()
        tokens.expect(")")
        return Instruction(insn.STX | insn.ATOMIC | size, base, src.value, offset, insn.CMPXCHG), None
    if name == "load_acquire":
        tokens.expect("(")
        size, base, offset = _typed_address(tokens)
        tokens.expect(")")
        _fits(tokens, dst, size)
        return insn.load_acquire(size, dst.value, base, offset), None
    if name == "addr_space_cast":
        return _cast(tokens, dst), None
    if not is_wide(dst):
        raise tokens.error(f"{word.shown} is no value for a 32-bit register", word)
    return _wide(tokens, dst, word)


def _wide(tokens: Tokens, dst: Token, word: Token) -> _Parsed:
    found = map_reference(tokens, word, dst.value)
    if found is not None:
        return found
    if tokens.next.text.lower() != "ll":
        raise tokens.error(f"{word.shown} is no value", word, "a map's or function's address is written NAME ll")
    tokens.take()
    return Instruction(insn.LD_IMM64, dst.value), Reference(word.text, Field.SYMBOL, word.column)


def _same(tokens: Tokens, dst: Token) -> None:
    src = tokens.register()
    if (src.value, is_wide(src)) != (dst.value, is_wide(dst)):
        raise tokens.error(f"operand must be {dst.text} itself, not {src.text}", src)


def _sign_extension(tokens: Tokens, dst: Token, cls: int, width: str) -> Instruction:
    tokens.expect("(")
    kind = tokens.expect("s8", "s16", *(("s32",) if width == "r" else ()))
    tokens.expect(")")
    src = tokens.register(width=width)
    return Instruction(cls | insn.MOV | insn.X, dst.value, src.value, int(kind.text[1:]))


def _cast(tokens: Tokens, dst: Token) -> Instruction:
    tokens.expect("(")
    src = tokens.register(width="r")
    tokens.expect(",")
    to = tokens.number("address space", 0, 0x7FFF)
    tokens.expect(",")
    came = tokens.number("address space", 0, 0xFFFF)
    tokens.expect(")")
    opcode = insn.ALU64 | insn.MOV | insn.X
    return Instruction(opcode, dst.value, src.value, insn.ADDRESS_SPACE_CAST, to << 16 | came)


def _pointer_type(tokens: Tokens, *, signed: bool = False) -> tuple[int, bool]:
    """`*(u32 *)` behind its first star, or `(u32 *)`: the size, and whether it is signed."""
    tokens.expect("(")
    known = (*_TYPES, *(_SIGNED_TYPES if signed else ()))
    kind = tokens.expect(*known).text
    tokens.expect("*")
    tokens.expect(")")
    return (_TYPES[kind], False) if kind in _TYPES else (_SIGNED_TYPES[kind], True)


def _base(tokens: Tokens) -> tuple[int, int]:
    """`r1 + 4`, `r1 -4` or `r1`: register and offset."""
    base = tokens.register(width="r")
    offset = 0
    if tokens.next.text in ("+", "-"):
        sign = -1 if tokens.take().text == "-" else 1
        if tokens.next.text == "-":  # LLVM prints "r1 + -4" at times
            tokens.take()
            sign = -sign
        start = tokens.next
        if start.kind != NUMBER:
            raise tokens.error(f"expected an offset, found {start.shown}")
        offset = sign * tokens.take().value
        if not -0x8000 <= offset <= 0x7FFF:
            raise tokens.error(f"offset is {offset}", start, "-32768 to 32767 fit")
    return base.value, offset


def _address(tokens: Tokens) -> tuple[int, int]:
    tokens.expect("(")
    found = _base(tokens)
    tokens.expect(")")
    return found


def _typed_address(tokens: Tokens) -> tuple[int, int, int]:
    size, _ = _pointer_type(tokens)
    base, offset = _address(tokens)
    return size, base, offset


def _exchange_address(tokens: Tokens, size: int | None) -> tuple[int, int, int]:
    """LLVM writes the address bare, the size being in the word; the kernel writes a typed one."""
    tokens.expect("(")
    if size is None:
        return _typed_address(tokens)
    base, offset = _base(tokens)
    return size, base, offset


def _fits(tokens: Tokens, register: Token, size: int) -> None:
    if size == insn.DW and not is_wide(register):
        raise tokens.error(f"8 bytes do not fit {register.text}", register, f"write r{register.value}")


def _fetch(tokens: Tokens, dst: Token, size: int, base: int, offset: int, op: int) -> Instruction:
    tokens.expect(",")
    _same(tokens, dst)
    tokens.expect(")")
    return Instruction(insn.STX | insn.ATOMIC | size, base, dst.value, offset, op)


def _load(tokens: Tokens, dst: Token) -> Instruction:
    tokens.expect("*")
    size, signed = _pointer_type(tokens, signed=True)
    if tokens.next.text == "skb":
        return _packet_load(tokens, dst, size, signed)
    base, offset = _address(tokens)
    if not is_wide(dst) and (signed or size == insn.DW):
        raise tokens.error(f"this load fills all of r{dst.value}", dst, f"write r{dst.value}")
    mode = insn.MEMSX if signed else insn.MEM
    return Instruction(insn.LDX | mode | size, dst.value, base, offset)


def _packet_load(tokens: Tokens, dst: Token, size: int, signed: bool) -> Instruction:
    word = tokens.take()
    if dst.value != insn.R0 or signed or size == insn.DW:
        raise tokens.error("a packet load is unsigned, of 1, 2 or 4 bytes, into r0", word)
    tokens.expect("[")
    if tokens.next.kind == REGISTER:
        src = tokens.register()
        imm = immediate(tokens) if tokens.next.text in ("+", "-") else 0
        tokens.expect("]")
        return Instruction(insn.LD | insn.IND | size, 0, src.value, 0, imm)
    imm = immediate(tokens)
    tokens.expect("]")
    return Instruction(insn.LD | insn.ABS | size, imm=imm)


def _store(tokens: Tokens) -> Instruction:
    tokens.expect("*")
    size, _ = _pointer_type(tokens)
    base, offset = _address(tokens)
    tokens.expect("=")
    if tokens.next.kind != REGISTER:
        return Instruction(insn.ST | insn.MEM | size, base, 0, offset, immediate(tokens, wide=size == insn.DW))
    src = tokens.register()
    _fits(tokens, src, size)
    return Instruction(insn.STX | insn.MEM | size, base, src.value, offset)


def _locked(tokens: Tokens) -> _Parsed:
    tokens.expect("*")
    size, _ = _pointer_type(tokens)
    base, offset = _address(tokens)
    op = _LOCKED[tokens.expect(*_LOCKED).text]
    return Instruction(insn.STX | insn.ATOMIC | size, base, tokens.register().value, offset, op), None


def _release(tokens: Tokens) -> _Parsed:
    tokens.expect("(")
    size, base, offset = _typed_address(tokens)
    tokens.expect(",")
    src = tokens.register()
    _fits(tokens, src, size)
    tokens.expect(")")
    return insn.store_release(size, base, src.value, offset), None


def _if(tokens: Tokens) -> _Parsed:
    dst = tokens.register()
    op = _CONDITIONS[tokens.expect(*_CONDITIONS).text]
    cls = insn.JMP if is_wide(dst) else insn.JMP32
    if tokens.next.kind == REGISTER:
        src = tokens.register(width="r" if is_wide(dst) else "w")
        instruction = Instruction(cls | op | insn.X, dst.value, src.value)
    else:
        instruction = Instruction(cls | op | insn.K, dst.value, 0, 0, immediate(tokens, wide=is_wide(dst)))
    tokens.expect("goto")
    return jump_target(tokens, instruction, Field.OFFSET)


def _goto(opcode: int, field: Field) -> Callable[[Tokens], _Parsed]:
    def parse_goto(tokens: Tokens) -> _Parsed:
        return jump_target(tokens, Instruction(opcode), field)

    return parse_goto


def _callx(tokens: Tokens) -> _Parsed:
    return insn.callx(tokens.register(width="r").value), None


def _exit(tokens: Tokens) -> _Parsed:
    return insn.exit_(), None


_KEYWORDS: Final[dict[str, Callable[[Tokens], _Parsed]]] = {
    "if": _if,
    "goto": _goto(insn.JA_K, Field.OFFSET),
    "gotol": _goto(insn.GOTOL, Field.IMMEDIATE),
    "may_goto": _goto(insn.MAY_GOTO, Field.OFFSET),
    "call": call_target,
    "callx": _callx,
    "exit": _exit,
    "lock": _locked,
    "store_release": _release,
    ".insn": raw_instruction,
}
