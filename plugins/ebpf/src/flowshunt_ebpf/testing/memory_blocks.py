"""Pieces of random programs: numbers, and memory that is reached through moved pointers."""

import random
from typing import Final

from flowshunt.insn import (
    ADD,
    ALU64,
    AND,
    ATOMIC,
    CMPXCHG,
    DW,
    FETCH,
    JEQ,
    JNE,
    LD_IMM64,
    LDX,
    LSH,
    MEM,
    MUL,
    NEG,
    OR,
    PSEUDO_MAP_IDX,
    PSEUDO_MAP_IDX_VALUE,
    R0,
    R10,
    ST,
    STX,
    SUB,
    XCHG,
    XOR,
    Instruction,
    K,
    W,
    X,
    call,
    ldx,
    mov64,
    mov64_imm,
)  # fmt: skip
from flowshunt_ebpf.program import MapDefinition, MapType, ProgramType
from flowshunt_ebpf.testing.block_writer import CONDITIONS, POOL, WIDTHS, BlockWriter

ARRAY: Final = MapDefinition("array", MapType.ARRAY, 4, 48, 4)
TABLE: Final = MapDefinition("table", MapType.HASH, 4, 24, 16)
RING: Final = MapDefinition("ring", MapType.RINGBUF, 0, 0, 4096)
GLOBALS: Final = MapDefinition("globals", MapType.ARRAY, 4, 40, 1)
MAPS: Final = (ARRAY, TABLE, RING, GLOBALS)

CONTEXT, DATA, END, COUNTER = 6, 7, 8, 9
"""Registers with a fixed use: the context, the packet and its end where they are known, a counter or a spare number."""

KEY: Final = -80
POINTER: Final = -88
BUFFER: Final = -128
"""Stack slots: a map's key, a spilled pointer, 32 bytes of memory for helpers."""
COUNTERS: Final = (-136, -144)


class MemoryBlocks(BlockWriter):
    """Numbers, and accesses of the stack, maps, the context and helpers' memory."""

    def __init__(self, rng: random.Random, kind: ProgramType, mistakes: float) -> None:
        super().__init__(rng, mistakes)
        self.xdp = kind == ProgramType.XDP

    # Numbers

    def source(self, dst: int) -> None:
        """Some number; r0 to r5 may be lost."""
        kind = self.rng.random()
        if kind < 0.45:
            self.pooled(dst)
        elif kind < 0.65:
            self.emit(call(7), mov64(dst, R0))
        elif kind < 0.8:
            self.emit(Instruction(LDX | MEM | W, dst, CONTEXT, 12 if self.xdp else self.rng.choice((0, 16, 32))))
        elif kind < 0.9:
            self.emit(mov64(dst, COUNTER))
        else:
            self.constant(dst)

    def numbers(self) -> None:
        """Arithmetic on some number."""
        self.source(2)
        self.pooled(3)
        self.mangle(2, 3, self.rng.randrange(1, 6))
        self.keep(2)

    def compared(self) -> None:
        """Numbers compared, so that more is known of them, then used."""
        rng = self.rng
        self.source(2)
        self.pooled(3)
        if self.chance(0.5):
            self.mangle(2, 3, rng.randrange(1, 3))
        end = self.label()
        for _ in range(rng.randrange(1, 4)):
            wide = self.chance(0.6)
            if self.chance(0.5):
                self.branch(rng.choice(CONDITIONS), 2, 3, 0, end, wide=wide)
            else:
                self.branch(rng.choice(CONDITIONS), 2, None, self.immediate(), end, wide=wide)
        self.mangle(2, 3, rng.randrange(1, 3))
        self.keep(2)
        self.place(end)
        self.keep(3)

    def index(self, reg: int, most: int, fail: int, *, step: int = 1) -> None:
        """A number in 0..most, of a multiple of `step`."""
        self.source(reg)
        self.pooled(5 if reg != 5 else 4)
        if self.chance(0.6):
            self.mangle(reg, 5 if reg != 5 else 4, self.rng.randrange(1, 3))
        self.bound(reg, 4 if reg != 4 else 5, most // step, fail)
        if step > 1:
            if self.chance(0.5):
                self.emit(Instruction(ALU64 | LSH | K, reg, 0, 0, step.bit_length() - 1))
            else:
                self.emit(Instruction(ALU64 | MUL | K, reg, 0, 0, step))

    # Accesses

    def access(self, base: int, offset: int, size: int, *, register: int = 2) -> None:
        """Load or store; `register` is lost."""
        kind = self.rng.random()
        if kind < 0.45:
            self.load(register, base, offset, size)
            self.keep(register)
        elif kind < 0.7:
            self.store_immediate(base, offset, size)
        else:
            self.pooled(register)
            self.emit(Instruction(STX | MEM | WIDTHS[size], base, register, offset))

    def moved(self, base: int, index: int, dst: int) -> None:
        """dst = base + index, in one of the ways."""
        if self.chance(0.3):
            self.emit(mov64(dst, index), Instruction(ALU64 | ADD | X, dst, base))
        elif base != R10 and self.chance(0.1):
            self.emit(Instruction(ALU64 | NEG | K, index), mov64(dst, base), Instruction(ALU64 | SUB | X, dst, index))
        else:
            self.emit(mov64(dst, base), Instruction(ALU64 | ADD | X, dst, index))

    def stack_index(self) -> None:
        """An access of the stack at a variable offset, or at two on top of each other."""
        end = self.label()
        size = self.rng.choice((1, 1, 2, 4, 8))
        most = self.rng.choice((0, 1, 3, 7, 15, 31, 56)) // size * size
        self.index(3, most, end, step=size)
        self.moved(R10, 3, 1)
        bottom = -(most + size) if most + size <= 64 else -64
        if most <= 31 and self.chance(0.5):
            self.emit(Instruction(STX | MEM | DW, R10, 1, POINTER))
            self.index(3, 16, end, step=size)
            self.emit(ldx(DW, 1, R10, POINTER), Instruction(ALU64 | ADD | X, 1, 3))
            bottom -= 16 if not self.chance(0.3) else 8
        if self.chance(0.3):
            self.emit(Instruction(ALU64 | ADD | K, 1, 0, 0, self.off(bottom)))
            self.access(1, 0, size)
        else:
            self.access(1, self.off(bottom), size)
        self.place(end)

    def look_up(self, which: int, missing: int) -> int:
        """r0 = a value of a map, or go to `missing`; gives the value's size."""
        if self.chance(0.4):
            self.pooled(1)
            self.emit(Instruction(STX | MEM | W, R10, 1, KEY))
        else:
            self.emit(Instruction(ST | MEM | W, R10, 0, KEY, self.rng.randrange(6)))
        self.emit(mov64(2, R10), Instruction(ALU64 | ADD | K, 2, 0, 0, KEY))
        self.emit(Instruction(LD_IMM64, 1, PSEUDO_MAP_IDX, 0, which), call(1))
        if not self.slip():
            self.unless_null(R0, missing)
        return MAPS[which].value_size

    def unless_null(self, reg: int, missing: int) -> None:
        """Go to `missing` where a register is 0."""
        if self.chance(0.6):
            self.branch(JEQ, reg, None, 0, missing)
            return
        fine = self.label()
        self.branch(JNE, reg, None, 0, fine)
        self.goto(missing)
        self.place(fine)

    def map_value(self) -> None:
        """An access of a map's value after a look-up."""
        end = self.label()
        total = self.look_up(self.rng.randrange(2), end)
        self.value_access(R0, total, end)
        self.place(end)

    def value_access(self, base: int, total: int, end: int) -> None:
        """An access of a map's value at a fixed or variable offset."""
        size = self.rng.choice((1, 2, 4, 8))
        if self.chance(0.4):
            self.access(base, self.off(self.rng.randrange(total // size) * size), size)
            return
        most = (self.rng.choice((3, 7, 15, total - size, total - size)) // size) * size
        self.emit(Instruction(STX | MEM | DW, R10, base, POINTER))
        self.index(3, most, end, step=size if self.chance(0.7) else 1)
        self.emit(ldx(DW, base, R10, POINTER))
        self.moved(base, 3, 1)
        if most + size + 8 <= total and self.chance(0.5):
            self.emit(Instruction(STX | MEM | DW, R10, 1, POINTER))
            self.index(3, 8, end, step=size)
            self.emit(ldx(DW, 1, R10, POINTER), Instruction(ALU64 | ADD | X, 1, 3))
            most += 8 if not self.chance(0.3) else 0
        self.access(1, self.off(max(total - size - most, 0)), size)

    def array_value(self) -> None:
        """A map's value by its address, without a look-up."""
        end = self.label()
        start = self.rng.randrange(0, 32, 8) if self.chance(0.3) else 0
        self.emit(Instruction(LD_IMM64, R0, PSEUDO_MAP_IDX_VALUE, 0, 3 | start << 32))
        self.value_access(R0, GLOBALS.value_size - start, end)
        self.place(end)

    # Other kinds of memory

    def helper_memory(self) -> None:
        """Memory of a variable size for a helper."""
        end = self.label()
        self.index(3, self.rng.choice((7, 15, 31)), end)
        self.emit(mov64(9, 3), Instruction(ALU64 | ADD | K, 9, 0, 0, self.off(1)))
        if self.xdp or self.chance(0.5):
            helper = 189 if self.xdp else 26
            self.emit(mov64(1, CONTEXT), mov64_imm(2, self.rng.choice((0, 1, 30))), mov64(3, R10))
            self.emit(Instruction(ALU64 | ADD | K, 3, 0, 0, self.off(BUFFER)), mov64(4, 9), call(helper))
        else:
            self.emit(mov64_imm(1, 0), mov64_imm(2, 0), mov64(3, R10))
            self.emit(Instruction(ALU64 | ADD | K, 3, 0, 0, BUFFER), mov64(4, 9))
            self.emit(Instruction(ALU64 | AND | K, 4, 0, 0, 28), mov64_imm(5, 0), call(28))
        self.keep(R0)
        self.place(end)

    def record(self) -> None:
        """A ring buffer's record: reserved, written, given back."""
        end = self.label()
        size = self.rng.choice((8, 16, 24))
        self.emit(Instruction(LD_IMM64, 1, PSEUDO_MAP_IDX, 0, 2), mov64_imm(2, size), mov64_imm(3, 0), call(131))
        if not self.slip():
            self.unless_null(R0, end)
        at = self.rng.choice((1, 4, 8))
        self.access(R0, self.off(size - at), at)
        if not self.slip():
            self.emit(mov64(1, R0), mov64_imm(2, 0), call(self.rng.choice((132, 133))))
        self.place(end)

    def updated(self) -> None:
        """An entry of a map updated or deleted."""
        self.emit(Instruction(ST | MEM | W, R10, 0, KEY, self.rng.randrange(20)))
        self.emit(mov64(2, R10), Instruction(ALU64 | ADD | K, 2, 0, 0, KEY))
        self.emit(mov64(3, R10), Instruction(ALU64 | ADD | K, 3, 0, 0, BUFFER), mov64_imm(4, 0))
        self.emit(Instruction(LD_IMM64, 1, PSEUDO_MAP_IDX, 0, 1), call(self.rng.choice((2, 2, 3))))
        self.keep(R0)

    def context_fields(self) -> None:
        """A field of the context read or written."""
        if self.xdp:
            self.emit(ldx(W, 2, CONTEXT, self.off(self.rng.choice((12, 16)))))
        elif self.chance(0.5):
            self.load(2, CONTEXT, self.rng.choice((48, 52, 56)), self.rng.choice((1, 2, 4)))
        else:
            self.pooled(2)
            self.emit(Instruction(STX | MEM | W, CONTEXT, 2, self.off(self.rng.choice((8, 48, 52)))))
        self.keep(2) if self.xdp or self.chance(0.9) else None

    def atomic(self) -> None:
        """An atomic operation on the stack or a map's value."""
        end = self.label()
        size = self.rng.choice((4, 8))
        if self.chance(0.5):
            total = self.look_up(self.rng.randrange(2), end)
            self.emit(mov64(3, R0))
            at = self.off(self.rng.randrange(total // 8) * 8)
        else:
            self.emit(mov64(3, R10))
            at = self.off(self.rng.choice(POOL))
        self.pooled(2)
        self.pooled(R0)
        op = self.rng.choice((ADD, OR, AND, XOR, ADD | FETCH, OR | FETCH, AND | FETCH, XOR | FETCH, XCHG, CMPXCHG))
        self.emit(Instruction(STX | ATOMIC | WIDTHS[size], 3, 2, at, op))
        self.keep(R0 if op == CMPXCHG else 2)
        self.place(end)
