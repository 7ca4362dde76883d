"""Pieces of random programs with more than one way through them."""

import random
from collections.abc import Callable

from flowshunt.insn import (
    ADD,
    ALU,
    ALU64,
    AND,
    DW,
    JEQ,
    JGT,
    JLE,
    JLT,
    JNE,
    LD_IMM64,
    LSH,
    MAY_GOTO,
    MEM,
    R0,
    R10,
    ST,
    STX,
    SUB,
    Instruction,
    K,
    X,
    call,
    call_local,
    exit_,
    ldx,
    mov64,
    mov64_imm,
)  # fmt: skip
from flowshunt_ebpf.program import ProgramType
from flowshunt_ebpf.testing.block_writer import POOL, WIDTHS
from flowshunt_ebpf.testing.memory_blocks import BUFFER, COUNTER, COUNTERS, DATA, POINTER
from flowshunt_ebpf.testing.packet_blocks import PacketBlocks


class ControlBlocks(PacketBlocks):
    """Branches, loops, functions and callbacks, with accesses that depend on which way was taken."""

    def __init__(self, rng: random.Random, kind: ProgramType, mistakes: float) -> None:
        super().__init__(rng, kind, mistakes)
        self.functions: list[Callable[[], None]] = []
        self.depth = 0

    def block(self) -> None:
        """Write any piece."""
        raise NotImplementedError

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
        """A loop with a bound: a counter in a register or in memory, or turns that are not known."""
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
        """bpf_loop, with a callback that writes to numbers of its caller."""
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
        """A call of a function, whose result is then used."""
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
