"""How much stack chains of calls use: `check_max_stack_depth` of the kernel's kernel/bpf/verifier.c."""

from collections.abc import Mapping, Sequence
from typing import Final

from flowshunt.insn import CALL_K, LD_IMM64, MAY_GOTO, PSEUDO_CALL, PSEUDO_FUNC
from flowshunt_ebpf.program import ControlFlow
from flowshunt_ebpf.verifier.helper_calls import TAIL_CALL
from flowshunt_ebpf.verifier.limits import Limits
from flowshunt_ebpf.verifier.rejection import UnsafeError

_ROUND: Final = 16
"""A frame takes a multiple of this under a JIT."""
_MAY_GOTO_BYTES: Final = 8
"""Where may_goto keeps its count."""


def callees(flow: ControlFlow) -> list[list[tuple[int, int]]]:
    """For each subprogram (the index of a call, the number of the subprogram called), callbacks included."""
    program = flow.program
    numbers = {s.start: n for n, s in enumerate(program.subprograms)}
    found: list[list[tuple[int, int]]] = [[] for _ in program.subprograms]
    for n, sub in enumerate(program.subprograms):
        for index in range(sub.start, sub.end):
            i = program.instructions[index]
            if i.opcode == CALL_K and i.src == PSEUDO_CALL:
                found[n].append((index, flow.calls[index]))
            elif i.opcode == LD_IMM64 and i.src == PSEUDO_FUNC:
                low = i.imm & 0xFFFFFFFF
                found[n].append((index, numbers[program.target(index, (low ^ 0x80000000) - 0x80000000)]))
    return found


def with_tail_calls(flow: ControlFlow) -> frozenset[int]:
    """The subprograms that make tail calls themselves."""
    instructions = flow.program.instructions
    return frozenset(
        flow.blocks[flow.block_of[index]].subprogram
        for index, i in enumerate(instructions)
        if i.opcode == CALL_K and not i.src and i.imm == TAIL_CALL
    )


def check_stack(flow: ControlFlow, used: Sequence[int], limits: Limits) -> tuple[int, UnsafeError] | None:
    """The call that leads too deep, and why; None where all is well. `used`: bytes that each subprogram uses."""
    instructions = flow.program.instructions
    extra = [
        any(i.opcode == MAY_GOTO for i in instructions[sub.start : sub.end]) * _MAY_GOTO_BYTES
        for sub in flow.program.subprograms
    ]
    sizes = [-(-(n + more) // _ROUND) * _ROUND for n, more in zip(used, extra, strict=True)]
    return _Walk(flow, callees(flow), with_tail_calls(flow), sizes, limits).check(0, 0, 1, -1, {})


class _Walk:
    def __init__(
        self,
        flow: ControlFlow,
        calls: list[list[tuple[int, int]]],
        tail_calls: frozenset[int],
        sizes: list[int],
        limits: Limits,
    ) -> None:
        self.flow = flow
        self.calls = calls
        self.tail_calls = tail_calls
        self.sizes = sizes
        self.limits = limits

    def check(
        self, subprogram: int, before: int, frames: int, call: int, seen: dict[tuple[int, int], int]
    ) -> tuple[int, UnsafeError] | None:
        """Walk down from a subprogram. `before`: bytes of its callers; `seen`: the most that each was reached with."""
        limits = self.limits
        if seen.get((subprogram, frames), -1) >= before:
            return None
        seen[subprogram, frames] = before
        if frames > limits.frames:
            return call, UnsafeError(
                "call-depth", f"calls may be {limits.frames} functions deep, the program included", "", "call less deep"
            )
        if subprogram and subprogram in self.tail_calls and before >= limits.tail_call_stack:
            return call, UnsafeError(
                "stack-depth",
                f"callers of a function with a tail call use less than {limits.tail_call_stack} bytes of stack",
                f"they use {before}",
                "use less stack, or make the tail call from the program itself",
            )
        total = before + self.sizes[subprogram]
        if total > limits.stack:
            return max(call, 0), UnsafeError(
                "stack-depth",
                f"a chain of calls uses at most {limits.stack} bytes of stack",
                f"{frames} functions use {total}",
                "use less stack, or a map of one entry per CPU",
            )
        for at, callee in self.calls[subprogram]:
            wrong = self.check(callee, total, frames + 1, at, seen)
            if wrong is not None:
                return wrong
        return None


def nested(frames: Mapping[int, int], calls: Mapping[int, list[tuple[int, int]]], root: int, limit: int) -> int:
    """Functions nested at most from a function that is verified by itself, up to `limit` + 1.

    `frames`: as each such function was found to nest its static ones; `calls`: (functions nested at the call, global
    function called) of each.
    """
    deepest: dict[tuple[int, int], int] = {}

    def below(function: int, left: int) -> int:
        if left <= 0:
            return 1
        known = deepest.get((function, left))
        if known is None:
            known = frames.get(function, 1)
            for at, callee in set(calls.get(function, ())):
                known = max(known, at + below(callee, left - at))
            deepest[function, left] = known
        return known

    return below(root, limit)
