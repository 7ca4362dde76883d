"""Random programs that are well-formed, end, and that the kernel's verifier accepts.

They compute on scalars: arithmetic of every kind, the stack, a map's value, atomics, forward branches, short loops,
functions, map lookups and updates. At the end all registers and the used stack go into the value of the map `out`.
"""

import random
from typing import Final

import attrs

from flowshunt.insn import (
    ADD,
    ALU,
    ALU64,
    AND,
    ARSH,
    ATOMIC,
    CMPXCHG,
    DIV,
    DW,
    END,
    FETCH,
    JEQ,
    JGE,
    JGT,
    JLE,
    JLT,
    JMP,
    JMP32,
    JNE,
    JSET,
    JSGE,
    JSGT,
    JSLE,
    JSLT,
    LD_IMM64,
    LDX,
    LOAD_ACQ,
    LSH,
    MEM,
    MEMSX,
    MOD,
    MOV,
    MUL,
    NEG,
    OR,
    PSEUDO_MAP_IDX,
    PSEUDO_MAP_IDX_VALUE,
    R0,
    R10,
    RSH,
    ST,
    STORE_REL,
    STX,
    SUB,
    XCHG,
    XOR,
    B,
    H,
    Instruction,
    K,
    W,
    X,
    alu64_imm,
    call,
    call_local,
    exit_,
    jmp_imm,
    ld_imm64,
    ldx,
    mov64,
    mov64_imm,
    stx,
)  # fmt: skip
from flowshunt_ebpf.program import MapDefinition, MapType, Program, ProgramType

STACK_BYTES: Final = 64
"""Stack that a function uses for itself; below it the main program keeps its registers at the end."""
OUT: Final = MapDefinition("out", MapType.ARRAY, 4, 10 * 8 + STACK_BYTES, 1)
SHARED: Final = MapDefinition("shared", MapType.ARRAY, 4, 64, 1)
TABLE: Final = MapDefinition("table", MapType.HASH, 4, 8, 8)
MAPS: Final = (OUT, SHARED, TABLE)

EDGES: Final = (
    0, 1, 2, 7, 8, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x100000000,
    0x7FFFFFFFFFFFFFFF, 0x8000000000000000, 0xFFFFFFFFFFFFFFFF, 0xFFFFFFFF80000000, 0xFFFFFFFF7FFFFFFF,
)  # fmt: skip
"""Values at which something changes sign, width or overflows."""

_CONDITIONS: Final = (JEQ, JGT, JGE, JSET, JNE, JSGT, JSGE, JLT, JLE, JSLT, JSLE)
_SIZES: Final = {B: 1, H: 2, W: 4, DW: 8}


def _value(rng: random.Random) -> int:
    kind = rng.random()
    if kind < 0.6:
        return rng.choice(EDGES)
    return rng.getrandbits(64) if kind < 0.9 else rng.getrandbits(rng.randrange(1, 65))


def _imm(rng: random.Random) -> int:
    value = _value(rng) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


@attrs.define
class _Writer:
    rng: random.Random
    code: list[Instruction] = attrs.field(factory=list)
    loops: int = 0

    def register(self, *, loop: bool = False) -> int:
        return self.rng.randrange(9 if self.loops or loop else 10)

    def arithmetic(self) -> Instruction:
        rng = self.rng
        wide = rng.random() < 0.6
        cls = ALU64 if wide else ALU
        bits = 64 if wide else 32
        dst, src = self.register(), rng.randrange(10)
        op = rng.choice((ADD, SUB, MUL, DIV, OR, AND, LSH, RSH, NEG, MOD, XOR, MOV, ARSH, END))
        if op == NEG:
            return Instruction(cls | NEG | K, dst)
        if op == END:
            source = K if wide else rng.choice((K, X))
            return Instruction(cls | END | source, dst, imm=rng.choice((16, 32, 64)))
        offset = rng.randrange(2) if op in (DIV, MOD) else 0
        if rng.random() < 0.5:
            if op == MOV:
                offset = rng.choice((0, 8, 16, 32) if wide else (0, 8, 16))
            return Instruction(cls | op | X, dst, src, offset)
        imm = rng.randrange(bits) if op in (LSH, RSH, ARSH) else _imm(rng)
        if op in (DIV, MOD) and imm == 0:
            imm = -1
        return Instruction(cls | op | K, dst, 0, offset, imm)

    def memory(self) -> list[Instruction]:
        rng = self.rng
        if rng.random() < 0.3:  # a map's value, through a register that holds a number again afterwards
            pointer = self.register()
            at = _place(rng, 64)
            other = rng.choice([r for r in range(10) if r != pointer])
            inner = self._access(pointer, at[1], at[0], other)
            return [
                Instruction(LD_IMM64, pointer, PSEUDO_MAP_IDX_VALUE, 0, 1),
                inner,
                ld_imm64(pointer, _signed(_value(rng))),
            ]
        size, offset = _place(rng, STACK_BYTES)
        return [self._access(R10, offset - STACK_BYTES, size, self.register())]

    def _access(self, base: int, offset: int, size: int, register: int) -> Instruction:
        rng = self.rng
        if self.loops and register == 9:
            register = 8 if base != 8 else 7
        kind = rng.randrange(5)
        width = next(code for code, count in _SIZES.items() if count == size)
        if kind == 0:
            return Instruction(LDX | MEM | width, register, base, offset)
        if kind == 1 and size < 8:
            return Instruction(LDX | MEMSX | width, register, base, offset)
        if kind == 2:
            return Instruction(ST | MEM | width, base, 0, offset, _imm(rng))
        if kind == 3 and size >= 4 and base != R0:
            op = rng.choice((ADD, OR, AND, XOR, ADD | FETCH, OR | FETCH, AND | FETCH, XOR | FETCH, XCHG, CMPXCHG))
            return Instruction(STX | ATOMIC | width, base, register, offset, op)
        return Instruction(STX | MEM | width, base, register, offset)

    def ordered(self) -> Instruction:
        size, offset = _place(self.rng, STACK_BYTES)
        width = next(code for code, count in _SIZES.items() if count == size)
        if self.rng.random() < 0.5:
            return Instruction(STX | ATOMIC | width, self.register(), R10, offset - STACK_BYTES, LOAD_ACQ)
        return Instruction(STX | ATOMIC | width, R10, self.register(), offset - STACK_BYTES, STORE_REL)

    def condition(self, distance: int) -> Instruction:
        rng = self.rng
        cls = rng.choice((JMP, JMP32))
        op = rng.choice(_CONDITIONS)
        if rng.random() < 0.5:
            return Instruction(cls | op | X, rng.randrange(10), rng.randrange(10), distance)
        return Instruction(cls | op | K, rng.randrange(10), 0, distance, _imm(rng))

    def straight(self, count: int) -> list[Instruction]:
        out: list[Instruction] = []
        while len(out) < count:
            kind = self.rng.random()
            if kind < 0.15:  # arithmetic alone soon leaves nothing but zeros and ones
                out.append(ld_imm64(self.register(), _signed(_value(self.rng))))
            elif kind < 0.7:
                result = self.arithmetic()
                out.append(result)
                if self.rng.random() < 0.4:  # else most results are overwritten before anyone sees them
                    place = self.rng.randrange(0, STACK_BYTES, 8) - STACK_BYTES
                    out.append(stx(DW, R10, result.dst, place))
            elif kind < 0.95:
                out += self.memory()
            else:
                out.append(self.ordered())
        return out

    def table(self) -> list[Instruction]:
        """Look up, update or delete an entry of the hash table; the lost registers get numbers again."""
        rng = self.rng
        key = -STACK_BYTES + 4 * rng.randrange(STACK_BYTES // 8)
        fixed = rng.randrange(3)
        out = [
            Instruction(ST | MEM | W, R10, 0, key, rng.randrange(10)),
            mov64(2, R10),
            alu64_imm(ADD, 2, key),
            Instruction(LD_IMM64, 1, PSEUDO_MAP_IDX, 0, 2),
        ]
        if fixed == 0:
            out += [call(1), jmp_imm(JEQ, R0, 0, 2), ldx(DW, R0, R0, 0), Instruction(JMP, 0, 0, 0)]
        elif fixed == 1:
            value = -STACK_BYTES + 8 * rng.randrange(STACK_BYTES // 16, STACK_BYTES // 8)
            out += [mov64(3, R10), alu64_imm(ADD, 3, value), mov64_imm(4, rng.choice((0, 1, 2))), call(2)]
        else:
            out.append(call(3))
        return out + [ld_imm64(r, _signed(_value(rng))) for r in range(1, 6)]


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _place(rng: random.Random, room: int) -> tuple[int, int]:
    size = rng.choice((1, 2, 4, 8))
    return size, rng.randrange(room // size) * size


def _slots(code: list[Instruction]) -> int:
    return sum(i.slots for i in code)


def _setup(rng: random.Random, registers: range) -> list[Instruction]:
    out = [ld_imm64(r, _signed(_value(rng))) for r in registers]
    stack = [Instruction(ST | MEM | DW, R10, 0, at - STACK_BYTES, _imm(rng)) for at in range(0, STACK_BYTES, 8)]
    return out + stack


def _body(rng: random.Random, length: int, *, calls: int) -> tuple[list[Instruction], list[int]]:
    """Code that falls off its end, and where in it the calls of functions are."""
    writer = _Writer(rng)
    code: list[Instruction] = []
    called: list[int] = []
    while len(code) < length:
        kind = rng.random()
        if kind < 0.55:
            code += writer.straight(rng.randrange(1, 8))
        elif kind < 0.75:
            part = writer.straight(rng.randrange(1, 6))
            code += [writer.condition(_slots(part)), *part]
        elif kind < 0.83:
            writer.loops += 1
            part = writer.straight(rng.randrange(1, 5))
            writer.loops -= 1
            again = jmp_imm(JNE, 9, 0, -_slots(part) - 2)
            code += [mov64_imm(9, rng.randrange(1, 4)), *part, alu64_imm(SUB, 9, 1), again]
        elif kind < 0.9 and calls:
            called.append(len(code))
            code += [call_local(0), *(ld_imm64(r, _signed(_value(rng))) for r in range(1, 6))]
        else:
            code += writer.table()
    return code, called


def random_program(seed: int, *, length: int = 24) -> Program:
    """A program of about `length` instructions between its setup and its end, always the same for a seed."""
    rng = random.Random(seed)
    functions = rng.randrange(3)
    body, called = _body(rng, length, calls=functions)
    main = [*_setup(rng, range(10)), *body]
    called = [at + len(main) - len(body) for at in called]
    main += [stx(DW, R10, 1, -STACK_BYTES - 8), Instruction(LD_IMM64, 1, PSEUDO_MAP_IDX_VALUE, 0, 0)]
    main += [stx(DW, 1, r, 8 * r) for r in range(10) if r != 1]
    main += [ldx(DW, 2, R10, -STACK_BYTES - 8), stx(DW, 1, 2, 8)]
    for at in range(0, STACK_BYTES, 8):
        main += [ldx(DW, 2, R10, at - STACK_BYTES), stx(DW, 1, 2, 80 + at)]
    main.append(exit_())
    code = list(main)
    starts = []
    for _ in range(functions if called else 0):
        starts.append(len(code))
        inner, _ = _body(rng, rng.randrange(2, 12), calls=0)
        code += [*_setup(rng, range(6, 10)), ld_imm64(R0, _signed(_value(rng))), *inner, exit_()]
    slots = [0]
    for i in code:
        slots.append(slots[-1] + i.slots)
    for at in called:
        code[at] = call_local(slots[rng.choice(starts)] - slots[at] - 1)
    return Program(
        _without_dead(tuple(code), starts, called, slots), type=ProgramType.XDP, name=f"random_{seed}", maps=MAPS
    )


def _without_dead(
    code: tuple[Instruction, ...], starts: list[int], called: list[int], slots: list[int]
) -> tuple[Instruction, ...]:
    """The program without the last functions if nothing calls them: the kernel refuses what is never reached."""
    targets = {slots[at] + 1 + code[at].imm for at in called}
    kept = [start for start in starts if slots[start] in targets]
    if len(kept) == len(starts):
        return code
    ends = [*starts[1:], len(code)]
    out = list(code[: starts[0]] if starts else code)
    moved: dict[int, int] = {}
    at = slots[starts[0]]
    for start, end in zip(starts, ends, strict=True):
        if start in kept:
            moved[slots[start]] = at
            out += code[start:end]
            at += slots[end] - slots[start]
    for call_at in called:
        out[call_at] = call_local(moved[slots[call_at] + 1 + code[call_at].imm] - slots[call_at] - 1)
    return tuple(out)
