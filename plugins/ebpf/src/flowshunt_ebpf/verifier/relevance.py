"""Which numbers matter for the verdict, found before the analysis: a backward data flow over the program.

A register or stack word matters where its value may flow into an address, a helper's argument, a comparison or a result
that is checked. At points where paths meet the analysis forgets the numbers that don't matter, and so finds more states
alike. That is sound whatever is forgotten: a state of which less is known has every run in it. What is left out here by
mistake can only cost an acceptance.

A second flow finds what loops are controlled by: what may flow into a conditional jump inside of a loop.

Sets are integers: bit r for register r, bit 16 + w for the stack word at r10 - 512 + 8 w.
"""

from collections.abc import Sequence
from typing import Final

import attrs

from flowshunt.insn import (
    ABS,
    ALU,
    ALU64,
    ATOMIC,
    CALL_K,
    CMPXCHG,
    CONDITIONS,
    DW,
    EXIT_K,
    FETCH,
    IND,
    JMP,
    JMP32,
    LD,
    LD_IMM64,
    LDX,
    LOAD_ACQ,
    MEM,
    MOV,
    ST,
    STX,
    Instruction,
    X,
)
from flowshunt_ebpf.program import ControlFlow, MapType
from flowshunt_ebpf.program.effects import effect
from flowshunt_ebpf.program.stack_pointers import ANYWHERE, StackPointers, stack_pointers
from flowshunt_ebpf.verifier.prototypes import PROTOTYPES, Arg

REGISTERS: Final = (1 << 11) - 1
WORDS: Final = ((1 << 64) - 1) << 16
_LOOKUP: Final = 1
_CALLER_SAVED: Final = 0b111111
_ARGUMENTS: Final = 0b111110


@attrs.frozen
class Relevance:
    """What matters at each instruction.

    Attributes:
        matters: what may flow into anything that the verdict asks for, or into a comparison.
        least: the same without comparisons outside of loops: those tell paths apart, which is seldom needed.
        controls: what may flow into a comparison inside of a loop.
    """

    matters: Sequence[int]
    least: Sequence[int]
    controls: Sequence[int]


def word(offset: int) -> int:
    """The set of the stack word that has a byte at r10 + offset; empty outside of the frame."""
    return 1 << 16 + (512 + offset >> 3) if -512 <= offset < 0 else 0


def relevance(flow: ControlFlow, checked_result: bool) -> Relevance:
    """Compute both flows. `checked_result`: whether the program's own result must be in a range."""
    effects = [effect(i) for i in flow.program.instructions]
    pointers = stack_pointers(flow, effects)
    loops = in_loops(flow)
    every = [True] * len(loops)
    return Relevance(
        _Flow(flow, pointers, every, True, checked_result).run(),
        _Flow(flow, pointers, loops, True, checked_result).run(),
        _Flow(flow, pointers, loops, False, False).run(),
    )


def in_loops(flow: ControlFlow) -> list[bool]:
    """For each block, whether it lies on a cycle of its subprogram (Tarjan's strongly connected components)."""
    blocks = flow.blocks
    result = [False] * len(blocks)
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    on_stack: set[int] = set()
    stack: list[int] = []
    for root in range(len(blocks)):
        if root in index:
            continue
        work = [(root, iter(blocks[root].successors))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, rest = work[-1]
            for successor in rest:
                if successor not in index:
                    index[successor] = low[successor] = len(index)
                    stack.append(successor)
                    on_stack.add(successor)
                    work.append((successor, iter(blocks[successor].successors)))
                    break
                if successor in on_stack:
                    low[node] = min(low[node], index[successor])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    component = []
                    while True:
                        member = stack.pop()
                        on_stack.discard(member)
                        component.append(member)
                        if member == node:
                            break
                    if len(component) > 1 or node in blocks[node].successors:
                        for member in component:
                            result[member] = True
    return result


class _Flow:
    """One backward flow.

    Args:
        compared: the blocks whose comparisons count.
        every: whether all else that the verdict asks for counts, too.
    """

    def __init__(
        self, flow: ControlFlow, pointers: StackPointers, compared: list[bool], every: bool, checked_result: bool
    ) -> None:
        self.flow = flow
        self.pointers = pointers
        self.compared = compared
        self.every = every
        self.checked_result = checked_result
        self.arrays = any(m.type in (MapType.ARRAY, MapType.PERCPU_ARRAY) for m in flow.program.maps)
        self.block_in = [0] * len(flow.blocks)
        self.before = [0] * len(flow.block_of)

    def run(self) -> list[int]:
        blocks = self.flow.blocks
        changed = True
        while changed:  # until what functions' entries and exits need is known
            changed = False
            waiting = list(range(len(blocks)))
            queued = set(waiting)
            while waiting:
                number = waiting.pop()
                queued.discard(number)
                block = blocks[number]
                after = 0
                for successor in block.successors:
                    after |= self.block_in[successor]
                found = self._through(number, after)
                if found != self.block_in[number]:
                    self.block_in[number] = found
                    changed = True
                    for other in block.predecessors:
                        if other not in queued:
                            queued.add(other)
                            waiting.append(other)
        return self.before

    def _through(self, number: int, after: int) -> int:
        block = self.flow.blocks[number]
        instructions = self.flow.program.instructions
        looped = self.compared[number]
        for index in range(block.end - 1, block.start - 1, -1):
            after = self._step(index, instructions[index], after, looped, block.subprogram)
            self.before[index] = after
        return after

    def _step(self, index: int, i: Instruction, after: int, looped: bool, subprogram: int) -> int:
        opcode = i.opcode
        cls = opcode & 7
        every = self.every
        if cls in (ALU64, ALU):
            dst = 1 << i.dst
            if not after & dst:
                return after
            if opcode & 0xF0 == MOV:
                after &= ~dst
            return after | 1 << i.src if opcode & X else after
        if cls == LDX:
            return self._load(index, i.dst, i.src, after, every)
        if cls in (ST, STX):
            return self._store(index, i, after, every, subprogram)
        if cls in (JMP, JMP32):
            op = opcode & 0xF0
            if opcode == EXIT_K:
                return 1 if subprogram or (every and self.checked_result) else 0
            if opcode == CALL_K:
                return self._call(index, i, after, every)
            if op in CONDITIONS and looped:
                after |= 1 << i.dst
                if opcode & X:
                    after |= 1 << i.src
            return after
        if opcode == LD_IMM64:
            return after & ~(1 << i.dst)
        if cls == LD and opcode & 0xE0 in (ABS, IND):
            return after & ~_CALLER_SAVED
        return after

    def _load(self, index: int, dst: int, base: int, after: int, every: bool) -> int:
        asked = after >> dst & 1
        after &= ~(1 << dst)
        if asked:
            offset = self.pointers.base.get(index)
            if offset == ANYWHERE:
                after |= WORDS
            elif offset is not None:
                after |= word(offset)
        return after | 1 << base if every or asked else after

    def _store(self, index: int, i: Instruction, after: int, every: bool, subprogram: int) -> int:
        atomic = i.opcode & 7 == STX and i.opcode & 0xE0 == ATOMIC
        if atomic and i.imm == LOAD_ACQ:
            return self._load(index, i.dst, i.src, after, every)
        offset = self.pointers.base.get(index)
        touched = 0 if offset is None else WORDS if offset == ANYWHERE else word(offset)
        if atomic:
            if i.imm == CMPXCHG:
                after &= ~1
            elif i.imm & FETCH:
                after &= ~(1 << i.src)
        elif after & touched and i.opcode & 7 == STX:
            if offset != ANYWHERE and i.size_bytes == 8:
                after &= ~touched
            after |= 1 << i.src
        elif every and subprogram and offset is None and i.opcode == STX | MEM | DW:
            after |= 1 << i.src  # it may be a pointer that is moved and put into a caller's frame
        return after | 1 << i.dst if every else after

    def _call(self, index: int, i: Instruction, after: int, every: bool) -> int:
        after &= ~_CALLER_SAVED
        if i.src:
            callee = self.flow.calls.get(index)
            if callee is not None:
                after |= self.block_in[self.flow.entries[callee]] & _ARGUMENTS
            if every and self.pointers.arguments.get(index):
                after |= WORDS
            return after
        prototype = PROTOTYPES.get(i.imm)
        if prototype is None:
            return after
        if every and i.imm == _LOOKUP and self.arrays:
            key = self.pointers.arguments.get(index, {}).get(2)
            if key is not None and key != ANYWHERE:
                after |= word(key)  # a known index of an array tells that there is a value
        if prototype.callback is not None:
            return after | _ARGUMENTS | WORDS if every else after
        if every:
            for position, arg in enumerate(prototype.args):
                if arg is not Arg.ANYTHING:
                    after |= 1 << position + 1
        return after
