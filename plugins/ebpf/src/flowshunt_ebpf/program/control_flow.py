"""The control flow of a program: basic blocks, their edges, and which block dominates which.

Local calls are no edges: each subprogram is a graph of its own, entered at its first block, and a call goes on with
the next instruction. `ControlFlow.calls` says who calls whom.
"""

from functools import cached_property

import attrs

from flowshunt.errors import InputError
from flowshunt.insn import (
    CALL_K,
    CONDITIONS,
    EXIT_K,
    GOTOL,
    JA,
    JA_K,
    JMP,
    JMP32,
    LD_IMM64,
    MAY_GOTO,
    PSEUDO_CALL,
    PSEUDO_FUNC,
    X,
)
from flowshunt_ebpf.program.dominators import immediate_dominators, reverse_postorder
from flowshunt_ebpf.program.program import Program

_STRAIGHT, _CONDITION, _JUMP, _JUMP_LONG, _EXIT, _INDIRECT = range(6)

_KIND = bytearray(256)
for _condition in CONDITIONS:
    for _class in (JMP, JMP32):
        for _source in (0, X):
            _KIND[_class | _condition | _source] = _CONDITION
_KIND[MAY_GOTO] = _CONDITION
_KIND[JA_K] = _JUMP
_KIND[GOTOL] = _JUMP_LONG
_KIND[EXIT_K] = _EXIT
_KIND[JMP | JA | X] = _INDIRECT


@attrs.frozen
class Block:
    """A run of instructions that is only entered at its first and only left at its last.

    Attributes:
        start, end: instruction indices, [start, end).
        subprogram: the number of its subprogram in `Program.subprograms`.
        successors: numbers of blocks; where the block ends with a condition, the next block first, then its target.
        predecessors: numbers of blocks, ascending.
    """

    start: int
    end: int
    subprogram: int
    successors: tuple[int, ...]
    predecessors: tuple[int, ...]


@attrs.frozen
class ControlFlow:
    """The blocks of a program, in its order.

    Attributes:
        blocks: all blocks, those that can't be reached included.
        block_of: instruction index to the number of its block.
        entries: subprogram number to the number of its first block.
        calls: the index of each local call, and the number of the subprogram that it calls.
        callbacks: numbers of subprograms whose address is taken: a helper may call them.
    """

    program: Program
    blocks: tuple[Block, ...]
    block_of: tuple[int, ...] = attrs.field(repr=False)
    entries: tuple[int, ...]
    calls: dict[int, int] = attrs.field(hash=False)
    callbacks: frozenset[int]

    @cached_property
    def order(self) -> tuple[tuple[int, ...], ...]:
        """For each subprogram, its reachable blocks in reverse postorder: before a block come those that lead to it."""
        successors = [block.successors for block in self.blocks]
        return tuple(tuple(reverse_postorder(successors, entry)) for entry in self.entries)

    @cached_property
    def immediate_dominator(self) -> tuple[int | None, ...]:
        """Block number to the number of its immediate dominator; None for entries and blocks not reached."""
        predecessors = [block.predecessors for block in self.blocks]
        result: list[int | None] = [None] * len(self.blocks)
        for order in self.order:
            for block, dominator in immediate_dominators(order, predecessors).items():
                result[block] = dominator
        return tuple(result)

    @cached_property
    def reachable(self) -> frozenset[int]:
        """The blocks that can be reached from the main program's entry, calls and callbacks followed."""
        seen: set[int] = set()
        todo = [0] if self.entries else []
        found = set(todo)
        while todo:
            blocks = self.order[todo.pop()]
            seen.update(blocks)
            called = {self.calls[i] for b in blocks for i in self._calls_of_block.get(b, ())}
            called |= {s for b in blocks for s in self._callbacks_of_block.get(b, ())}
            todo.extend(called - found)
            found |= called
        return frozenset(seen)

    @cached_property
    def _calls_of_block(self) -> dict[int, list[int]]:
        calls: dict[int, list[int]] = {}
        for index in self.calls:
            calls.setdefault(self.block_of[index], []).append(index)
        return calls

    @cached_property
    def _callbacks_of_block(self) -> dict[int, list[int]]:
        program = self.program
        numbers = {s.start: n for n, s in enumerate(program.subprograms)}
        found: dict[int, list[int]] = {}
        for index, i in enumerate(program.instructions):
            if i.opcode == LD_IMM64 and i.src == PSEUDO_FUNC:
                target = program.target(index, _signed32(i.imm))
                found.setdefault(self.block_of[index], []).append(numbers[target])
        return found

    def dominates(self, above: int, below: int) -> bool:
        """Whether every way from the subprogram's entry to block `below` passes block `above`; so it does its own.

        False where either can't be reached within its subprogram.
        """
        dominator = self.immediate_dominator
        at: int | None = below
        if below not in self._ordered or above not in self._ordered:
            return False
        while at is not None and at != above:
            at = dominator[at]
        return at == above

    @cached_property
    def _ordered(self) -> frozenset[int]:
        return frozenset(block for order in self.order for block in order)


def control_flow(program: Program) -> ControlFlow:
    """Split a program into basic blocks.

    Raises InputError, naming the instruction and its source line, for an empty program; a jump that leaves its
    subprogram or ends inside a 64-bit load; a subprogram that can run past its last instruction; an indirect jump.
    """
    instructions = program.instructions
    if not instructions:
        raise InputError("there is no instruction", f"program {program.name}", "give at least an exit")
    subprograms = program.subprograms
    jumps: dict[int, int] = {}
    calls: dict[int, int] = {}
    taken: set[int] = set()
    starts = {s.start for s in subprograms}
    kind = _KIND
    target = program.target
    ends = set()
    for index, i in enumerate(instructions):
        opcode = i.opcode
        what = kind[opcode]
        if what == _STRAIGHT:
            if opcode == CALL_K and i.src == PSEUDO_CALL:
                calls[index] = target(index, i.imm)
            elif opcode == LD_IMM64 and i.src == PSEUDO_FUNC:
                taken.add(target(index, _signed32(i.imm)))
            continue
        if what == _INDIRECT:
            raise InputError("an indirect jump can't be followed", program.where(index), "compile without jump tables")
        ends.add(index + 1)
        if what != _EXIT:
            to = jumps[index] = target(index, i.imm if what == _JUMP_LONG else i.offset)
            starts.add(to)
    ends.discard(len(instructions))
    ordered = sorted(starts | ends)
    numbers = {start: number for number, start in enumerate(ordered)}
    blocks, block_of = _blocks(program, ordered, numbers, jumps)
    by_start = {s.start: number for number, s in enumerate(subprograms)}
    return ControlFlow(
        program,
        blocks,
        block_of,
        tuple(numbers[s.start] for s in subprograms),
        {index: by_start[to] for index, to in calls.items()},
        frozenset(by_start[to] for to in taken),
    )


def _blocks(
    program: Program, ordered: list[int], numbers: dict[int, int], jumps: dict[int, int]
) -> tuple[tuple[Block, ...], tuple[int, ...]]:
    instructions = program.instructions
    subprograms = program.subprograms
    successors: list[tuple[int, ...]] = []
    predecessors: list[list[int]] = [[] for _ in ordered]
    owners: list[int] = []
    block_of: list[int] = []
    owner = 0
    for number, (start, end) in enumerate(zip(ordered, [*ordered[1:], len(instructions)], strict=True)):
        while start >= subprograms[owner].end:
            owner += 1
        own = subprograms[owner]
        last = end - 1
        what = _KIND[instructions[last].opcode]
        to: list[int] = []
        if what in (_STRAIGHT, _CONDITION):
            if end >= own.end:
                raise InputError(
                    f"function {own.name} can run past its last instruction", program.where(last), "end it with an exit"
                )
            to.append(number + 1)
        if what in (_CONDITION, _JUMP, _JUMP_LONG):
            target = jumps[last]
            if not own.start <= target < own.end:
                raise InputError(
                    f"a jump to instruction {target} leaves function {own.name}",
                    program.where(last),
                    "functions are left by exit alone",
                )
            block = numbers[target]
            if block not in to:
                to.append(block)
        for block in to:
            predecessors[block].append(number)
        successors.append(tuple(to))
        owners.append(owner)
        block_of.extend([number] * (end - start))
    ends = [*ordered[1:], len(instructions)]
    return (
        tuple(
            Block(start, end, owner, to, tuple(before))
            for start, end, owner, to, before in zip(ordered, ends, owners, successors, predecessors, strict=True)
        ),
        tuple(block_of),
    )


def _signed32(value: int) -> int:
    return ((value & 0xFFFFFFFF) ^ 0x80000000) - 0x80000000
