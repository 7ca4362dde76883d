"""Random programs that use memory: stack, packets, maps, the context, through pointers with fixed and variable offsets.

They are of right form. Most accesses are checked as they should be, and exactly: one byte more would be too much. In a
part of the programs something is off by one, or a check is left out, so that a good share is accepted by a verifier and
a good share is not.
"""

import random

from flowshunt.insn import (
    DW,
    LD_IMM64,
    MEM,
    PSEUDO_MAP_IDX_VALUE,
    R0,
    R10,
    STX,
    Instruction,
    exit_,
    mov64,
    mov64_imm,
)  # fmt: skip
from flowshunt_ebpf.program import Program, ProgramType
from flowshunt_ebpf.testing.block_writer import POOL
from flowshunt_ebpf.testing.control_blocks import ControlBlocks
from flowshunt_ebpf.testing.memory_blocks import BUFFER, CONTEXT, COUNTER, GLOBALS, MAPS


def memory_program(seed: int, *, blocks: int = 4) -> Program:
    """A program of about `blocks` blocks, always the same for a seed."""
    rng = random.Random(seed)
    kind = rng.choice((ProgramType.XDP, ProgramType.XDP, ProgramType.SCHED_CLS))
    mistakes = rng.choice((0.0, 0.02, 0.06, 0.2))
    writer = _Writer(rng, kind, mistakes)
    writer.program(rng.randrange(1, blocks + 1))
    return Program(writer.finish(), type=kind, name=f"memory_{seed}", license="GPL", maps=MAPS)


class _Writer(ControlBlocks):
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
