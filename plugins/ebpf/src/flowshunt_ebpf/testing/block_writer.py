"""Code with labels, random numbers in registers, and bounds on them: what random programs are made of."""

import random
from collections.abc import Callable
from typing import Final

import attrs

from flowshunt.insn import (
    ADD,
    ALU,
    ALU64,
    AND,
    ARSH,
    DIV,
    DW,
    END,
    JA,
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
    LSH,
    MEM,
    MEMSX,
    MOD,
    MOV,
    MUL,
    NEG,
    OR,
    PSEUDO_FUNC,
    R10,
    RSH,
    ST,
    STX,
    SUB,
    XOR,
    B,
    H,
    Instruction,
    K,
    W,
    X,
    call_local,
    ld_imm64,
)  # fmt: skip
from flowshunt_ebpf.testing.random_program import EDGES

CONDITIONS: Final = (JEQ, JGT, JGE, JSET, JNE, JSGT, JSGE, JLT, JLE, JSLT, JSLE)
WIDTHS: Final = {1: B, 2: H, 4: W, 8: DW}
POOL: Final = tuple(range(-64, 0, 8))
"""Stack slots that always hold numbers."""
SCRATCH: Final = -72
"""A stack slot for what is spilled and filled within a block."""


@attrs.frozen
class Reference:
    """An instruction that names a label: a jump, a call, or the load of a function's address."""

    instruction: Instruction
    label: int


class BlockWriter:
    """Instructions one after another.

    Args:
        rng: makes all choices.
        mistakes: how often something is off by one, or left out.
    """

    def __init__(self, rng: random.Random, mistakes: float) -> None:
        self.rng = rng
        self.mistakes = mistakes
        self.code: list[Instruction | Reference] = []
        self.places: dict[int, int] = {}
        self._labels = 0

    # Code

    def emit(self, *instructions: Instruction) -> None:
        """Append instructions."""
        self.code += instructions

    def label(self) -> int:
        """A label that has no place yet."""
        self._labels += 1
        return self._labels

    def place(self, label: int) -> None:
        """Let a label name what comes next."""
        self.places[label] = len(self.code)

    def goto(self, label: int) -> None:
        """Jump."""
        self.code.append(Reference(Instruction(JMP | JA), label))

    def branch(self, op: int, dst: int, src: "int | None", imm: int, label: int, *, wide: bool = True) -> None:
        """Jump if `dst op src`, or `dst op imm` where there is no src."""
        cls = JMP if wide else JMP32
        if src is None:
            self.code.append(Reference(Instruction(cls | op | K, dst, 0, 0, imm), label))
        else:
            self.code.append(Reference(Instruction(cls | op | X, dst, src), label))

    def refer(self, instruction: Instruction, label: int) -> None:
        """Append an instruction that names a label."""
        self.code.append(Reference(instruction, label))

    def finish(self) -> tuple[Instruction, ...]:
        """The code with all labels resolved."""
        slots = [0]
        for item in self.code:
            i = item.instruction if isinstance(item, Reference) else item
            slots.append(slots[-1] + i.slots)
        out = []
        for at, item in enumerate(self.code):
            if isinstance(item, Reference):
                distance = slots[self.places[item.label]] - slots[at] - 1
                i = item.instruction
                if i.opcode == LD_IMM64:
                    out.append(attrs.evolve(i, src=PSEUDO_FUNC, imm=distance & 0xFFFFFFFF))
                elif i.opcode == call_local(0).opcode:
                    out.append(call_local(distance))
                else:
                    out.append(attrs.evolve(i, offset=distance))
            else:
                out.append(item)
        return tuple(out)

    # Chances

    def slip(self) -> bool:
        """Whether to make a mistake here."""
        return self.rng.random() < self.mistakes

    def chance(self, share: float) -> bool:
        """True in about this share of cases."""
        return self.rng.random() < share

    def off(self, value: int) -> int:
        """A value, by mistake one more or less."""
        return value + self.rng.choice((-1, 1)) if self.slip() else value

    # Numbers

    def load(self, dst: int, base: int, offset: int, size: int) -> None:
        """Load 1, 2, 4 or 8 bytes, sometimes sign-extended."""
        mode = MEMSX if size < 8 and self.chance(0.2) else MEM
        self.emit(Instruction(LDX | mode | WIDTHS[size], dst, base, offset))

    def pooled(self, dst: int) -> None:
        """Load a number from the pool."""
        size = self.rng.choice((1, 2, 4, 8, 8, 8))
        self.load(dst, R10, self.rng.choice(POOL) + self.rng.randrange(8 // size) * size, size)

    def keep(self, src: int) -> None:
        """Store a number in the pool."""
        size = self.rng.choice((1, 2, 4, 8, 8, 8))
        at = self.rng.choice(POOL) + self.rng.randrange(8 // size) * size
        self.emit(Instruction(STX | MEM | WIDTHS[size], R10, src, at))

    def constant(self, dst: int) -> None:
        """Load a constant at which something changes."""
        value = self.rng.choice(EDGES) if self.chance(0.5) else self.rng.randrange(64)
        value -= (value >> 63) << 64
        if -(1 << 31) <= value < 1 << 31:
            self.emit(Instruction(ALU64 | MOV | K, dst, 0, 0, value))
        else:
            self.emit(ld_imm64(dst, value))

    def immediate(self) -> int:
        """A signed 32-bit immediate, often at an edge, often small."""
        rng = self.rng
        if rng.random() < 0.5:
            return rng.choice((0, 1, 2, 3, 4, 7, 8, 15, 16, 31, 32, 63, 64, 255, 256, 0xFFFF, -1, -2, -8, -128))
        value = rng.choice(EDGES) & 0xFFFFFFFF if rng.random() < 0.6 else rng.getrandbits(rng.randrange(1, 32))
        return value - (1 << 32) if value >> 31 else value

    def mangle(self, dst: int, other: int, count: int) -> None:
        """Arithmetic on a number, with another."""
        rng = self.rng
        for _ in range(count):
            wide = rng.random() < 0.6
            cls, bits = (ALU64, 64) if wide else (ALU, 32)
            op = rng.choice((ADD, ADD, SUB, SUB, MUL, DIV, OR, AND, AND, LSH, RSH, RSH, NEG, MOD, XOR, MOV, ARSH, END))
            if op == NEG:
                self.emit(Instruction(cls | NEG | K, dst))
            elif op == END:
                self.emit(
                    Instruction(cls | END | (K if wide else rng.choice((K, X))), dst, imm=rng.choice((16, 32, 64)))
                )
            elif op == MOV:
                offset = rng.choice((0, 8, 16, 32) if wide else (0, 8, 16))
                self.emit(Instruction(cls | MOV | X, dst, rng.choice((dst, dst, other)), offset))
            elif rng.random() < 0.4:
                self.emit(Instruction(cls | op | X, dst, other, rng.randrange(2) if op in (DIV, MOD) else 0))
            else:
                imm = rng.randrange(bits) if op in (LSH, RSH, ARSH) else self.immediate()
                if op in (DIV, MOD) and not imm:
                    imm = 7
                self.emit(Instruction(cls | op | K, dst, 0, rng.randrange(2) if op in (DIV, MOD) else 0, imm))

    def bound(self, reg: int, other: int, most: int, fail: int) -> None:
        """Bring a number to 0..most, or go to `fail`; `other` is lost. In one of the ways of compilers and people."""
        most = self.off(most)
        if self.slip():
            return
        ways: list[Callable[[int, int, int, int], None]] = [
            self._unsigned, self._unsigned, self._signed, self._narrow, self._by_register, self._of_copy,
            self._spilled, self._remainder, self._extended, self._of_sum,
        ]  # fmt: skip
        if not most & (most + 1):
            ways += [self._masked, self._masked, self._shifted, self._tested]
        self.rng.choice(ways)(reg, other, max(most, 0), fail)

    def _unsigned(self, reg: int, _other: int, most: int, fail: int) -> None:
        if self.chance(0.5):
            op, imm = self.rng.choice(((JGT, most), (JGE, most + 1)))
            self.branch(op, reg, None, imm, fail)
            return
        fine = self.label()
        op, imm = self.rng.choice(((JLE, most), (JLT, most + 1)))
        self.branch(op, reg, None, imm, fine)
        self.goto(fail)
        self.place(fine)

    def _signed(self, reg: int, _other: int, most: int, fail: int) -> None:
        first = [(JSLT, 0), (JSLE, -1)]
        second = [(JSGT, most), (JSGE, most + 1)]
        wide = self.chance(0.7)
        if not wide:
            self.emit(Instruction(ALU | MOV | X, reg, reg))
        checks = [self.rng.choice(first), self.rng.choice(second)]
        self.rng.shuffle(checks)
        if self.slip():
            checks.pop()
        for op, imm in checks:
            self.branch(op, reg, None, imm, fail, wide=wide)

    def _narrow(self, reg: int, _other: int, most: int, fail: int) -> None:
        before = self.chance(0.5)
        if before and not self.slip():
            self.emit(Instruction(ALU | MOV | X, reg, reg))
        self.branch(JGT, reg, None, most, fail, wide=False)
        if not before and not self.slip():
            self.emit(Instruction(ALU | MOV | X, reg, reg))

    def _by_register(self, reg: int, other: int, most: int, fail: int) -> None:
        self.emit(Instruction(ALU64 | MOV | K, other, 0, 0, most))
        if self.chance(0.5):
            self.branch(JGT, reg, other, 0, fail)
        else:
            self.branch(JLT, other, reg, 0, fail)

    def _of_copy(self, reg: int, other: int, most: int, fail: int) -> None:
        self.emit(Instruction(ALU64 | MOV | X, other, reg))
        if self.slip():
            self.emit(Instruction(ALU64 | ADD | K, other, 0, 0, 1))
        self._unsigned(other, reg, most, fail)

    def _spilled(self, reg: int, _other: int, most: int, fail: int) -> None:
        self.emit(Instruction(STX | MEM | DW, R10, reg, SCRATCH))
        self._unsigned(reg, 0, most, fail)
        size = 8 if most > 0xFF or self.chance(0.5) else self.rng.choice((1, 2, 4))
        self.emit(Instruction(LDX | MEM | WIDTHS[size], reg, R10, SCRATCH))

    def _remainder(self, reg: int, _other: int, most: int, _fail: int) -> None:
        self.emit(Instruction(self.rng.choice((ALU, ALU64)) | MOD | K, reg, 0, 0, most + 1))

    def _extended(self, reg: int, _other: int, most: int, fail: int) -> None:
        self.emit(Instruction(ALU64 | LSH | K, reg, 0, 0, 32))
        self.emit(Instruction(ALU64 | self.rng.choice((RSH, ARSH)) | K, reg, 0, 0, 32))
        self._signed(reg, 0, most, fail) if self.chance(0.5) else self._unsigned(reg, 0, most, fail)

    def _of_sum(self, reg: int, _other: int, most: int, fail: int) -> None:
        shift = self.rng.randrange(1, 100)
        self.emit(Instruction(ALU64 | ADD | K, reg, 0, 0, shift))
        self.branch(JLT, reg, None, self.off(shift), fail)
        self.branch(JGT, reg, None, shift + most, fail)
        self.emit(Instruction(ALU64 | SUB | K, reg, 0, 0, shift))

    def _masked(self, reg: int, _other: int, most: int, _fail: int) -> None:
        self.emit(Instruction(self.rng.choice((ALU, ALU64)) | AND | K, reg, 0, 0, most))

    def _shifted(self, reg: int, _other: int, most: int, _fail: int) -> None:
        bits = most.bit_length()
        if self.chance(0.5):
            self.emit(Instruction(ALU64 | RSH | K, reg, 0, 0, min(64 - bits, 63)))
        else:
            self.emit(Instruction(ALU | RSH | K, reg, 0, 0, min(32 - bits, 31)))
        if not bits:
            self.emit(Instruction(ALU64 | AND | K, reg, 0, 0, 0))

    def _tested(self, reg: int, _other: int, most: int, fail: int) -> None:
        self.branch(JSET, reg, None, ~most, fail)

    def store_immediate(self, base: int, offset: int, size: int) -> None:
        """Store a constant of 1, 2, 4 or 8 bytes."""
        self.emit(Instruction(ST | MEM | WIDTHS[size], base, 0, offset, self.immediate()))
