"""What is live before and after each instruction: registers by half, and bytes of the stack frame.

A backward data flow over the whole program. Each function is looked at with its own frame: what a caller passes by
pointer counts as read by the call. A call reads the arguments that the called function's entry finds live, and the
function's exit finds as much of r0 live as any of its callers do.
"""

import attrs

from flowshunt.insn import CALL_K, EXIT_K, MEM, ST, STORE_REL, STX, Instruction
from flowshunt_ebpf.program.control_flow import ControlFlow
from flowshunt_ebpf.program.effects import ARGUMENTS, RESULT, effect
from flowshunt_ebpf.program.helper_calls import CALLBACK_HELPERS
from flowshunt_ebpf.program.live_set import STACK_BYTES, WHOLE_STACK, stack
from flowshunt_ebpf.program.stack_pointers import ANYWHERE, stack_pointers


@attrs.frozen
class Liveness:
    """Live sets (see `live_set`) by instruction index.

    Attributes:
        live_in: before the instruction.
        live_out: after it. After an exit: what the callers read of the result.
    """

    live_in: tuple[int, ...]
    live_out: tuple[int, ...]


_Row = tuple[int, int, int, int]
"""An effect whose first set is inverted: (kept, read, read if upper is live, upper)."""


def liveness(flow: ControlFlow) -> Liveness:
    """Compute what is live everywhere, unreachable blocks included."""
    return _Analysis(flow).run()


class _Analysis:
    def __init__(self, flow: ControlFlow) -> None:
        self.flow = flow
        self.rows = _rows(flow)
        count = len(flow.entries)
        self.blocks_of: list[list[int]] = [[] for _ in range(count)]
        for number, block in enumerate(flow.blocks):
            self.blocks_of[block.subprogram].append(number)
        self.block_in = [0] * len(flow.blocks)
        called = set(flow.calls.values())
        # What nobody calls, or a helper calls, gives its whole result.
        self.exit_live = [0 if n in called and n and n not in flow.callbacks else RESULT for n in range(count)]
        self.entry_live = [0] * count
        self.callers: list[set[int]] = [set() for _ in range(count)]
        for index, to in flow.calls.items():
            self.callers[to].add(flow.blocks[flow.block_of[index]].subprogram)

    def run(self) -> Liveness:
        flow = self.flow
        waiting = set(range(len(flow.entries)))
        while waiting:
            number = waiting.pop()
            self._subprogram(number)
            entry = self.block_in[flow.entries[number]] & ARGUMENTS
            if entry != self.entry_live[number]:
                self.entry_live[number] = entry
                for index, to in flow.calls.items():
                    if to == number:
                        kept, _, more, upper = self.rows[index]
                        memory = self.rows[index][1] & WHOLE_STACK
                        self.rows[index] = (kept, entry | memory, more, upper)
                waiting |= self.callers[number]
            waiting |= self._results(number)
        live_in, live_out = [0] * len(flow.block_of), [0] * len(flow.block_of)
        for number in range(len(flow.blocks)):
            self._record(number, live_in, live_out)
        return Liveness(tuple(live_in), tuple(live_out))

    def _subprogram(self, number: int) -> None:
        """Bring the blocks of one subprogram to rest."""
        blocks, block_in = self.flow.blocks, self.block_in
        waiting = self.blocks_of[number][:]
        queued = set(waiting)
        while waiting:
            at = waiting.pop()
            queued.discard(at)
            before = self._before(at)
            if before != block_in[at]:
                block_in[at] = before
                for other in blocks[at].predecessors:
                    if other not in queued:
                        queued.add(other)
                        waiting.append(other)

    def _after(self, number: int) -> int:
        block = self.flow.blocks[number]
        live = 0
        for successor in block.successors:
            live |= self.block_in[successor]
        if self.flow.program.instructions[block.end - 1].opcode == EXIT_K:
            live = self.exit_live[block.subprogram]
        return live

    def _before(self, number: int) -> int:
        block = self.flow.blocks[number]
        live = self._after(number)
        for kept, read, more, upper in reversed(self.rows[block.start : block.end]):
            live = (live & kept | read | more) if live & upper else (live & kept | read)
        return live

    def _record(self, number: int, live_in: list[int], live_out: list[int]) -> None:
        block = self.flow.blocks[number]
        live = self._after(number)
        rows = self.rows
        for index in range(block.end - 1, block.start - 1, -1):
            live_out[index] = live
            kept, read, more, upper = rows[index]
            live = (live & kept | read | more) if live & upper else (live & kept | read)
            live_in[index] = live

    def _results(self, number: int) -> set[int]:
        """Tell the functions that a subprogram calls what it reads of their results; those that learn something."""
        learned = set()
        live_out: dict[int, int] = {}
        for index, to in self.flow.calls.items():
            block = self.flow.block_of[index]
            if self.flow.blocks[block].subprogram != number:
                continue
            if index not in live_out:
                live_out.update(self._calls_out(block))
            asked = live_out[index] & RESULT
            if asked & ~self.exit_live[to]:
                self.exit_live[to] |= asked
                learned.add(to)
        return learned

    def _calls_out(self, number: int) -> dict[int, int]:
        block = self.flow.blocks[number]
        live = self._after(number)
        found = {}
        for index in range(block.end - 1, block.start - 1, -1):
            if index in self.flow.calls:
                found[index] = live
            kept, read, more, upper = self.rows[index]
            live = (live & kept | read | more) if live & upper else (live & kept | read)
        return found


def _rows(flow: ControlFlow) -> list[_Row]:
    instructions = flow.program.instructions
    effects = [effect(i) for i in instructions]
    pointers = stack_pointers(flow, effects)
    rows = [(~written, read, more, upper) for written, read, more, upper in effects]
    for index, offset in pointers.base.items():
        kept, read, more, upper = rows[index]
        i = instructions[index]
        plain_store = (i.cls == STX and i.mode == MEM) or i.cls == ST or (i.cls == STX and i.imm == STORE_REL)
        touched = WHOLE_STACK if offset == ANYWHERE else stack(offset, i.size_bytes)
        if not plain_store:
            read |= touched
        elif offset != ANYWHERE:
            kept &= ~touched
        rows[index] = (kept, read, more, upper)
    for index, passed in pointers.arguments.items():
        kept, read, more, upper = rows[index]
        rows[index] = (kept, read | _reached(instructions[index], passed), more, upper)
    return rows


def _reached(call: Instruction, passed: dict[int, int]) -> int:
    """What a call may read of the frame. A helper reads upwards from a pointer; a function may go either way."""
    offsets = passed.values()
    if call.opcode != CALL_K or call.src or ANYWHERE in offsets or call.imm in CALLBACK_HELPERS:
        return WHOLE_STACK
    return stack(min(offsets), STACK_BYTES)
