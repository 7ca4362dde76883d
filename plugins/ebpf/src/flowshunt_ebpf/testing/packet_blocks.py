"""Pieces of random programs that access packets."""

import random

from flowshunt.insn import (
    ADD,
    ALU64,
    DW,
    JGE,
    JGT,
    JLE,
    JLT,
    MEM,
    R0,
    R10,
    STX,
    Instruction,
    K,
    W,
    X,
    call,
    ldx,
    mov64,
    mov64_imm,
)  # fmt: skip
from flowshunt_ebpf.program import ProgramType
from flowshunt_ebpf.testing.memory_blocks import BUFFER, CONTEXT, DATA, END, POINTER, MemoryBlocks


class PacketBlocks(MemoryBlocks):
    """Accesses of the packet, behind comparisons with its end."""

    def __init__(self, rng: random.Random, kind: ProgramType, mistakes: float) -> None:
        super().__init__(rng, kind, mistakes)
        self.data_offset, self.end_offset = (0, 4) if self.xdp else (76, 80)

    def packet_ends(self) -> None:
        """Load the packet's start and end."""
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
        """Accesses of the packet at fixed offsets."""
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
        """An access of the packet at a variable offset."""
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

    def spilled_pointer(self) -> None:
        """A pointer spilled, filled again, and used."""
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
