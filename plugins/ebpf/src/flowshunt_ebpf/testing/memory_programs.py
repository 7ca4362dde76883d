"""Random programs that use memory: stack, packets, maps, the context, through pointers with fixed and variable offsets.

They are of right form. Most accesses are checked as they should be, and exactly: one byte more would be too much. In a
part of the programs something is off by one, or a check is left out, so that a good share is accepted by a verifier and
a good share is not.
"""

import random
from collections.abc import Callable
from typing import Final

from flowshunt.insn import (
    ADD,
    ALU,
    ALU64,
    AND,
    ATOMIC,
    CMPXCHG,
    DW,
    FETCH,
    JEQ,
    JGE,
    JGT,
    JLE,
    JLT,
    JNE,
    LD_IMM64,
    LDX,
    LSH,
    MAY_GOTO,
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
    call_local,
    exit_,
    ldx,
    mov64,
    mov64_imm,
)  # fmt: skip
from flowshunt_ebpf.program import MapDefinition, MapType, Program, ProgramType
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


def memory_program(seed: int, *, blocks: int = 4) -> Program:
    """A program of about `blocks` blocks, always the same for a seed."""
    rng = random.Random(seed)
    kind = rng.choice((ProgramType.XDP, ProgramType.XDP, ProgramType.SCHED_CLS))
    mistakes = rng.choice((0.0, 0.02, 0.06, 0.2))
    writer = _Writer(rng, kind, mistakes)
    writer.program(rng.randrange(1, blocks + 1))
    return Program(writer.finish(), type=kind, name=f"memory_{seed}", license="GPL", maps=MAPS)


class _Writer(BlockWriter):
    def __init__(self, rng: random.Random, kind: ProgramType, mistakes: float) -> None:
        super().__init__(rng, mistakes)
        self.xdp = kind == ProgramType.XDP
        self.functions: list[Callable[[], None]] = []
        self.depth = 0
        self.data_offset, self.end_offset = (0, 4) if self.xdp else (76, 80)

    def program(self, count: int) -> None:
        self.emit(mov64(CONTEXT, 1))
        self.emit(Instruction(LD_IMM64, 1, PSEUDO_MAP_IDX_VALUE, 0, 3))
        unknown = set(self.rng.sample(POOL, 6))
        for slot in POOL:
            if slot in unknown:
                size = self.rng.choice((1, 2, 4, 8, 8, 8))
                self.load(2, 1, self.rng.randrange(GLOBALS.value_size // size) * size, size)
                self.emit(Instruction(STX | MEM | DW, R10, 2, slot))
            else:
                self.store_immediate(R10, slot, 8)
        for slot in range(BUFFER, BUFFER + 32, 8):
            self.store_immediate(R10, slot, 8)
        self.constant(COUNTER)
        self.packet_ends()
        for _ in range(count):
            self.block()
        self.emit(mov64_imm(R0, self.rng.randrange(3)), exit_())
        while self.functions:
            self.functions.pop(0)()

    def block(self) -> None:
        blocks = [
            self.numbers, self.numbers, self.compared, self.compared, self.stack_index, self.stack_index,
            self.map_value, self.map_value, self.array_value, self.packet_fixed, self.packet_fixed, self.packet_index,
            self.packet_index, self.spilled_pointer, self.helper_memory, self.record, self.updated, self.function,
            self.context_fields, self.atomic, self.resized, self.related,
        ]  # fmt: skip
        if self.depth < 2:
            blocks += [
                self.either,
                self.either_checked,
                self.many_ways,
                self.counted_loop,
                self.counted_loop,
                self.callback_loop,
                self.open_loop,
            ]
        self.rng.choice(blocks)()

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
        if self.chance(0.6):
            self.branch(JEQ, reg, None, 0, missing)
            return
        fine = self.label()
        self.branch(JNE, reg, None, 0, fine)
        self.goto(missing)
        self.place(fine)

    def map_value(self) -> None:
        end = self.label()
        total = self.look_up(self.rng.randrange(2), end)
        self.value_access(R0, total, end)
        self.place(end)

    def value_access(self, base: int, total: int, end: int) -> None:
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

    # Packets

    def packet_ends(self) -> None:
        self.emit(ldx(W, DATA, CONTEXT, self.data_offset), ldx(W, END, CONTEXT, self.end_offset))

    def check_packet(self, pointer: int, fail: int) -> int:
        """Go on only where `pointer` is not behind the packet's end; gives the bytes behind it that are proved, 0 or 1.

        Each comparison in each direction; by mistake, one that proves a byte less than is said.
        """
        if self.slip():
            return 0
        strict = self.chance(0.3)
        more = int(strict) if not self.slip() else 1
        kind = self.rng.randrange(4)
        if kind == 0:
            self.branch(JGE if strict else JGT, pointer, END, 0, fail)
        elif kind == 1:
            self.branch(JLE if strict else JLT, END, pointer, 0, fail)
        else:
            fine = self.label()
            if kind == 2:
                self.branch(JLT if strict else JLE, pointer, END, 0, fine)
            else:
                self.branch(JGT if strict else JGE, END, pointer, 0, fine)
            self.goto(fail)
            self.place(fine)
        return more

    def packet_fixed(self) -> None:
        end = self.label()
        length = self.rng.choice((1, 2, 8, 14, 34, 42, 60))
        if self.chance(0.5):
            self.packet_ends()
        self.emit(mov64(2, DATA), Instruction(ALU64 | ADD | K, 2, 0, 0, length))
        proved = length + self.check_packet(2, end)
        for _ in range(self.rng.randrange(1, 3)):
            size = self.rng.choice([s for s in (1, 2, 4, 8) if s <= proved])
            at = self.rng.choice((proved - size, self.rng.randrange(proved - size + 1)))
            if self.chance(0.3):
                self.emit(mov64(1, 2))
                self.access(1, self.off(at - length), size, register=3)
            else:
                self.access(DATA, self.off(at), size, register=3)
        self.place(end)

    def packet_index(self) -> None:
        end = self.label()
        self.packet_ends()
        size = self.rng.choice((1, 1, 2, 4, 8))
        self.index(3, self.rng.choice((0, 1, 15, 31, 63, 255, 4095, 65535)), end)
        extra = self.rng.choice((0, 0, 14, 20))
        stale = self.slip()  # by mistake: what was proved before the pointer was moved on
        if stale or self.chance(0.1):
            self.emit(mov64(1, DATA), Instruction(ALU64 | ADD | K, 1, 0, 0, extra + 14))
            self.check_packet(1, end)
            self.emit(mov64(1, DATA))
            self.emit(Instruction(ALU64 | ADD | X, 1, 3))
        else:
            self.moved(DATA, 3, 1)
        if extra:
            self.emit(Instruction(ALU64 | ADD | K, 1, 0, 0, extra))
        if self.chance(0.25):  # a second number on top
            self.emit(Instruction(STX | MEM | DW, R10, 1, POINTER))
            self.index(3, self.rng.choice((0, 3, 60)), end)
            self.emit(ldx(DW, 1, R10, POINTER), Instruction(ALU64 | ADD | X, 1, 3))
        room = self.rng.choice((size, size, size + 4, 16))
        form = self.rng.random()
        if stale:
            self.access(1, 0, size, register=4)
        elif form < 0.4:
            self.emit(mov64(2, 1), Instruction(ALU64 | ADD | K, 2, 0, 0, room))
            proved = room + self.check_packet(2, end)
            self.access(1, self.off(self.rng.choice((0, proved - size))), size, register=4)
        elif form < 0.8:
            self.emit(Instruction(ALU64 | ADD | K, 1, 0, 0, room))
            self.check_packet(1, end)
            self.access(1, self.off(-size if self.chance(0.5) else -room), size, register=4)
        else:  # two pointers, moved by two numbers; what is proved of one says nothing of the other
            self.emit(Instruction(STX | MEM | DW, R10, 1, POINTER))
            self.index(3, self.rng.choice((0, 1, 31)), end)
            self.emit(mov64(2, DATA), Instruction(ALU64 | ADD | X, 2, 3), ldx(DW, 1, R10, POINTER))
            one, other = (1, 2) if not self.slip() else (2, 1)
            self.emit(mov64(4, one), Instruction(ALU64 | ADD | K, 4, 0, 0, room))
            self.check_packet(4, end)
            self.access(one if not self.slip() else other, self.off(room - size), size, register=4)
        self.place(end)

    def resized(self) -> None:
        """Helpers that move the packet's ends: pointers from before are stale."""
        if self.xdp:
            helper = self.rng.choice((44, 65))
            self.emit(mov64(1, CONTEXT), mov64_imm(2, self.rng.choice((-14, -4, 0, 4, 8, 64))), call(helper))
        else:
            self.emit(mov64(1, CONTEXT), mov64_imm(2, self.rng.choice((0, 14, 40))), call(39))
        if not self.slip():
            self.packet_ends()
        if self.chance(0.5):
            self.packet_fixed()

    # Pointers in memory, and other kinds of memory

    def spilled_pointer(self) -> None:
        end = self.label()
        kind = self.rng.randrange(3)
        if kind == 0:
            total = self.look_up(self.rng.randrange(2), end)
            self.emit(Instruction(STX | MEM | DW, R10, R0, POINTER))
            self.numbers()
            if self.slip():
                self.store_immediate(R10, POINTER, self.rng.choice((1, 4, 8)))
            self.emit(ldx(DW, 4, R10, POINTER))
            size = self.rng.choice((1, 2, 4, 8))
            self.access(4, self.off(total - size), size)
        elif kind == 1:
            length = self.rng.choice((4, 20))
            self.emit(mov64(2, DATA), Instruction(ALU64 | ADD | K, 2, 0, 0, length))
            self.emit(Instruction(STX | MEM | DW, R10, DATA, POINTER))
            self.check_packet(2, end)
            self.emit(ldx(DW, 4, R10, POINTER))
            self.access(4, self.off(length - 4), 4)
        else:
            self.emit(mov64(1, R10), Instruction(ALU64 | ADD | K, 1, 0, 0, BUFFER))
            self.emit(Instruction(STX | MEM | DW, R10, 1, POINTER))
            self.numbers()
            self.emit(ldx(DW, 4, R10, POINTER))
            self.access(4, self.off(self.rng.randrange(4) * 8), 8)
        self.place(end)

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
        self.emit(Instruction(ST | MEM | W, R10, 0, KEY, self.rng.randrange(20)))
        self.emit(mov64(2, R10), Instruction(ALU64 | ADD | K, 2, 0, 0, KEY))
        self.emit(mov64(3, R10), Instruction(ALU64 | ADD | K, 3, 0, 0, BUFFER), mov64_imm(4, 0))
        self.emit(Instruction(LD_IMM64, 1, PSEUDO_MAP_IDX, 0, 1), call(self.rng.choice((2, 2, 3))))
        self.keep(R0)

    def context_fields(self) -> None:
        if self.xdp:
            self.emit(ldx(W, 2, CONTEXT, self.off(self.rng.choice((12, 16)))))
        elif self.chance(0.5):
            self.load(2, CONTEXT, self.rng.choice((48, 52, 56)), self.rng.choice((1, 2, 4)))
        else:
            self.pooled(2)
            self.emit(Instruction(STX | MEM | W, CONTEXT, 2, self.off(self.rng.choice((8, 48, 52)))))
        self.keep(2) if self.xdp or self.chance(0.9) else None

    def atomic(self) -> None:
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

    # Control

    def either(self) -> None:
        """Two ways that meet, with different pointers or numbers in a register."""
        other, end = self.label(), self.label()
        self.source(2)
        self.branch(self.rng.choice((JEQ, JGT, JLT, JNE)), 2, None, self.immediate(), other)
        self.depth += 1
        if self.chance(0.4):
            self.emit(mov64_imm(COUNTER, self.rng.randrange(16)))
            self.goto(end)
            self.place(other)
            self.emit(mov64_imm(COUNTER, self.rng.randrange(32)))
            self.place(end)
            self.emit(mov64(3, COUNTER), mov64(1, R10), Instruction(ALU64 | ADD | X, 1, 3))
            self.access(1, self.off(-32), 1)
        else:
            self.block()
            self.goto(end)
            self.place(other)
            self.block()
            self.place(end)
        self.depth -= 1

    def either_checked(self) -> None:
        """Two ways that meet; what each proves of the packet is used behind them: the less of both holds."""
        other, meet, end = self.label(), self.label(), self.label()
        self.packet_ends()
        lengths = [self.rng.choice((6, 14, 20, 34)) for _ in range(2)]
        self.source(2)
        self.pooled(3)
        self.emit(mov64(4, DATA), Instruction(ALU64 | AND | K, 3, 0, 0, 7), Instruction(ALU64 | ADD | X, 4, 3))
        self.branch(self.rng.choice((JEQ, JGT, JNE)), 2, None, self.immediate(), other)
        for length, start in zip(lengths, (None, other), strict=True):
            if start is not None:
                self.place(start)
            self.emit(mov64(1, 4), Instruction(ALU64 | ADD | K, 1, 0, 0, length))
            self.check_packet(1, end)
            if start is None:
                self.goto(meet)
        self.place(meet)
        proved = (min if not self.slip() else max)(lengths)
        size = self.rng.choice((1, 2, 4))
        self.access(4, proved - size, size, register=3)
        self.place(end)

    def related(self) -> None:
        """A number that on one way is the same as another one; on the other way it is not."""
        rng = self.rng
        other, meet, end = self.label(), self.label(), self.label()
        self.source(3)
        self.pooled(2)
        self.pooled(4)
        self.branch(rng.choice((JEQ, JGT, JLT, JNE)), 4, None, self.immediate(), other)
        crossed = self.chance(0.5)  # on the other way both are the same as something, but not as each other
        self.emit(mov64(5, 2), *([mov64(R0, 3)] if crossed else []))
        self.goto(meet)
        self.place(other)
        self.emit(mov64(5, 3) if not self.chance(0.3) else mov64(5, 2), *([mov64(R0, 2)] if crossed else []))
        self.place(meet)
        mistaken = self.chance(0.2)
        self._unsigned(2 if mistaken else 5, 0, 15, end)
        self.emit(mov64(1, R10), Instruction(ALU64 | ADD | X, 1, 5 if not self.chance(0.1) else 2))
        self.access(1, -16, 1, register=4)
        for reg in (R0, 3) if crossed else ():  # so that it matters what these are
            self._unsigned(reg, 0, 15, end)
            self.emit(mov64(1, R10), Instruction(ALU64 | ADD | X, 1, reg))
            self.access(1, -16, 1, register=4)
        self.place(end)

    def many_ways(self) -> None:
        """Branches one after another: more states than are followed one by one."""
        end = self.label()
        for slot in self.rng.sample(POOL, self.rng.randrange(3, 6)):
            skip = self.label()
            self.pooled(2)
            self.branch(self.rng.choice((JEQ, JGT, JLT, JNE)), 2, None, self.immediate(), skip)
            if self.chance(0.3):
                self.emit(Instruction(ALU64 | ADD | K, COUNTER, 0, 0, self.rng.choice((1, 2, 8))))
            elif self.chance(0.3):
                self.emit(mov64(3, R10), Instruction(ALU64 | ADD | K, 3, 0, 0, self.rng.choice((-8, -16))))
                self.emit(Instruction(STX | MEM | DW, R10, 3, POINTER))
            else:
                self.store_immediate(R10, slot, 8)
            self.place(skip)
        if self.chance(0.5):
            self.emit(mov64(3, COUNTER))
        else:
            self.pooled(3)
        self.bound(3, 4, 31, end)
        self.moved(R10, 3, 1)
        self.access(1, self.off(-32), 1)
        self.place(end)

    def counted_loop(self) -> None:
        head, end = self.label(), self.label()
        turns = self.rng.choice((1, 2, 3, 5, 8, 16))
        slot = COUNTERS[self.depth]
        self.depth += 1
        if self.chance(0.5):  # the counter in a register, as the index of what is written
            self.emit(mov64_imm(COUNTER, 0))
            self.place(head)
            self.emit(mov64(1, R10), Instruction(ALU64 | ADD | X, 1, COUNTER))
            self.pooled(2)
            self.emit(Instruction(STX | MEM | WIDTHS[1], 1, 2, self.off(-turns)))
            self.emit(Instruction(ALU64 | ADD | K, COUNTER, 0, 0, self.rng.choice((1, 1, 2))))
            self.branch(JLT, COUNTER, None, turns, head)
        elif self.chance(0.5):  # the number of turns is not known
            self.index(3, turns, end)
            self.emit(mov64(COUNTER, 3))
            self.place(head)
            self.branch(self.rng.choice((JEQ, JLE)), COUNTER, None, 0, end)
            self.emit(Instruction(ALU64 | SUB | K, COUNTER, 0, 0, 1))
            self.pooled(2)
            self.pooled(3)
            self.mangle(2, 3, 2)
            self.keep(2)
            self.goto(head)
        else:  # the counter in memory, other blocks inside
            self.emit(Instruction(ST | MEM | DW, R10, 0, slot, 0))
            self.place(head)
            self.block()
            self.emit(ldx(DW, 2, R10, slot), Instruction(ALU64 | ADD | K, 2, 0, 0, 1))
            self.emit(Instruction(STX | MEM | DW, R10, 2, slot))
            self.branch(JLT, 2, None, min(turns, 5), head)
        self.depth -= 1
        self.place(end)

    def open_loop(self) -> None:
        """may_goto: a loop that the runtime ends."""
        head, end = self.label(), self.label()
        self.emit(mov64_imm(COUNTER, 0))
        self.place(head)
        self.refer(Instruction(MAY_GOTO), end)
        self.emit(mov64(2, COUNTER))
        self.branch(JGT, 2, None, self.rng.choice((3, 15)), end)
        self.emit(mov64(1, R10), Instruction(ALU64 | ADD | X, 1, 2))
        self.access(1, self.off(-16 - self.rng.randrange(16)), 1, register=3)
        self.emit(Instruction(ALU64 | ADD | K, COUNTER, 0, 0, 1))
        self.goto(head)
        self.place(end)

    def callback_loop(self) -> None:
        function = self.label()
        self.source(1)
        self.emit(Instruction(self.rng.choice((ALU, ALU64)) | AND | K, 1, 0, 0, 7))
        self.refer(Instruction(LD_IMM64, 2), function)
        pool = self.chance(0.8)
        self.emit(*((mov64(3, R10), Instruction(ALU64 | ADD | K, 3, 0, 0, -64)) if pool else (mov64_imm(3, 0),)))
        self.emit(mov64_imm(4, 0), call(181))
        self.keep(R0)
        self.functions.append(lambda: self.callback(function, pool))

    def callback(self, label: int, pool: bool) -> None:
        """r1: the turn; r2: the caller's numbers, or 0."""
        end = self.label()
        self.place(label)
        self.emit(mov64(3, 1))
        if pool or self.slip():
            self.emit(Instruction(STX | MEM | DW, R10, 2, -8))
            self.bound(3, 4, 7, end)
            self.emit(Instruction(ALU64 | LSH | K, 3, 0, 0, 3), ldx(DW, 2, R10, -8))
            self.emit(Instruction(ALU64 | ADD | X, 2, 3))
            self.load(4, 2, 0, 8)
            self.emit(Instruction(ALU64 | ADD | X, 4, 3), Instruction(STX | MEM | DW, 2, 4, self.off(0)))
        self.place(end)
        self.emit(mov64_imm(R0, self.rng.choice((0, 0, 1))), exit_())

    def function(self) -> None:
        label = self.label()
        size = self.rng.choice((8, 16, 32))
        self.source(3)
        self.emit(mov64(2, 3), mov64(1, R10), Instruction(ALU64 | ADD | K, 1, 0, 0, self.off(BUFFER)))
        self.refer(call_local(0), label)
        self.emit(mov64(3, R0))
        end = self.label()
        if self.chance(0.6):
            self.moved(R10, 3, 1)
            self.access(1, self.off(-32), 1)
        else:
            self.keep(3)
        self.place(end)
        self.functions.append(lambda: self.body(label, size))

    def body(self, label: int, size: int) -> None:
        """r1: 32 bytes of the caller's, r2: a number. Gives a number below 32."""
        end = self.label()
        self.place(label)
        self.emit(mov64(3, 2), Instruction(STX | MEM | DW, R10, 1, -16))
        width = self.rng.choice((1, 2, 4, 8))
        self.bound(3, 4, size - width, end)
        self.emit(ldx(DW, 1, R10, -16), Instruction(ALU64 | ADD | X, 1, 3))
        self.load(R0, 1, self.off(0), width)
        self.emit(Instruction(ALU64 | AND | K, R0, 0, 0, 31), exit_())
        self.place(end)
        self.emit(mov64_imm(R0, self.off(31)), exit_())
