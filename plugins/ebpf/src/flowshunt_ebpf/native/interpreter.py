"""The reference: an interpreter in Python that checks every access, call and callback by itself."""

import ctypes
import time
from typing import Final

from flowshunt.errors import FlowshuntError
from flowshunt.insn import (
    ADD,
    ALU,
    ALU64,
    AND,
    ATOMIC,
    CALL,
    CMPXCHG,
    EXIT,
    FETCH,
    IND,
    JA,
    JCOND,
    JMP,
    JMP32,
    LD,
    LD_IMM64,
    LDX,
    LOAD_ACQ,
    MEMSX,
    OR,
    PSEUDO_CALL,
    ST,
    STORE_REL,
    XCHG,
    XOR,
    Instruction,
    X,
)  # fmt: skip
from flowshunt_ebpf.contexts.layout import DATA, DATA_END
from flowshunt_ebpf.native import state
from flowshunt_ebpf.native.emission import LOOP, TAIL_CALL, charge
from flowshunt_ebpf.native.fault import Fault, FaultKind
from flowshunt_ebpf.native.helper_call import HelperCalls, bind_all
from flowshunt_ebpf.native.image import Access, Image
from flowshunt_ebpf.native.machine import DEFAULT_BUDGET, Machine
from flowshunt_ebpf.native.runner import Outcome
from flowshunt_ebpf.native.semantics import MASK32, MASK64, arithmetic, holds, signed, swap

_FETCHED: Final = {
    ADD: lambda a, b: a + b,
    OR: lambda a, b: a | b,
    AND: lambda a, b: a & b,
    XOR: lambda a, b: a ^ b,
}


class StoppedError(Exception):
    """A run was stopped."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        super().__init__(fault.kind.name)


class RunError(FlowshuntError):
    """A run was stopped where the caller needed its end."""


class _TailCallError(Exception):
    def __init__(self, image: Image) -> None:
        self.image = image


class Interpreter:
    """An image on a machine, interpreted."""

    def __init__(self, image: Image, machine: Machine) -> None:
        self.image = image
        self.machine = machine
        bind_all(image, machine)
        self._helpers = HelperCalls(image, machine)
        self._regions: list[tuple[int, int, int, int, int]] = []
        self._budget = 0

    def run(self, *, budget: int = DEFAULT_BUDGET) -> Outcome:
        """Run once."""
        self.machine.begin(budget)
        return self._run(budget)

    def time(self, repeat: int, *, budget: int = DEFAULT_BUDGET) -> float:
        """Run `repeat` times; ns per run."""
        self.machine.begin(budget)
        start = time.thread_time_ns()
        for _ in range(repeat):
            outcome = self._run(budget)
            if outcome.fault is not None:
                raise RunError(outcome.fault.describe(self.image.program))
        return (time.thread_time_ns() - start) / repeat

    def close(self) -> None:
        """Nothing is held."""

    def _run(self, budget: int) -> Outcome:
        machine = self.machine
        self._budget = budget
        self._regions = machine.regions()
        machine.put32(state.TAIL_CALLS, 0)
        registers = [0] * 11
        registers[1] = machine.get64(state.CONTEXT)
        registers[2] = machine.get64(state.SECOND)
        registers[10] = machine.get64(state.STACK_TOP)
        self._at = 0
        try:
            value = self._function(self.image, 0, registers)
        except StoppedError as stopped:
            return Outcome(0, stopped.fault)
        return Outcome(value)

    def _stop(self, kind: FaultKind, address: int = 0, argument: int = 0) -> StoppedError:
        return StoppedError(Fault(kind, self._at, address, argument))

    def _function(self, image: Image, entry: int, registers: list[int]) -> int:
        """Run a function to its exit; its caller keeps r6 to r9 by passing a copy."""
        while True:
            try:
                return self._steps(image, entry, registers)
            except _TailCallError as call:
                image, entry = call.image, 0
                context, frame = registers[1], registers[10]
                registers = [0] * 11
                registers[1], registers[10] = context, frame

    def _steps(self, image: Image, index: int, r: list[int]) -> int:
        instructions, targets = image.instructions, image.targets
        may_goto = state.MAY_GOTO_LIMIT
        while True:
            i = instructions[index]
            self._at = index
            cls = i.opcode & 7
            if cls in (ALU64, ALU):
                r[i.dst] = arithmetic(i, r[i.dst], r[i.src] if i.src < 11 else 0)
            elif cls == LDX:
                size = i.size_bytes
                if index in image.pointers and r[i.src] == self.machine.get64(state.CONTEXT):
                    r[i.dst] = self._read(r[i.src] + image.pointers[index], 8)
                    index += 1
                    continue
                address = self._allowed(image, index, r[i.src], i.offset, size, 0)
                value = self._read(address, size)
                r[i.dst] = signed(value, 8 * size) & MASK64 if i.opcode & 0xE0 == MEMSX else value
            elif cls == ST:
                size = i.size_bytes
                self._write(self._allowed(image, index, r[i.dst], i.offset, size, state.WRITABLE), i.imm, size)
            elif cls == LD:
                if i.opcode == LD_IMM64:
                    r[i.dst] = image.values[index]
                elif not self._legacy_load(image, index, i, r):
                    return 0
            elif cls in (JMP, JMP32):
                op = i.opcode & 0xF0
                if op == EXIT and cls == JMP:
                    return r[0]
                if op == CALL and cls == JMP:
                    self._call(image, index, i, r)
                else:
                    self._charge(charge(image, index))
                    if op == JA:
                        index = targets[index]
                        continue
                    if op == JCOND:
                        if may_goto == 0:
                            index = targets[index]
                            continue
                        may_goto -= 1
                    elif holds(op, r[i.dst], r[i.src] if i.opcode & X else i.imm, wide=cls == JMP):
                        index = targets[index]
                        continue
            else:
                self._store_register(image, index, i, r)
            index += 1

    def _charge(self, cost: int) -> None:
        if cost:
            self._budget -= cost
            if self._budget < 0:
                raise self._stop(FaultKind.BUDGET)

    # Memory

    def _allowed(self, image: Image, index: int, base: int, offset: int, size: int, flags: int) -> int:
        known = image.access[index]
        address = (base + offset) & MASK64
        if known == Access.CONTEXT:
            if base != self.machine.get64(state.CONTEXT):
                raise self._stop(FaultKind.CONTEXT)
        elif known == Access.REGION or (known == Access.EITHER and base != self.machine.get64(state.CONTEXT)):
            self.check(address, size, flags)
        return address

    def check(self, address: int, size: int, flags: int) -> None:
        """Stop the run if memory is not the program's to access."""
        if not self._inside(address, size, flags):
            raise self._stop(FaultKind.ACCESS, address)

    def _inside(self, address: int, size: int, flags: int) -> bool:
        for base, length, stride, limit, has in self._regions:
            distance = address - base
            if distance < 0 or distance + size > length or flags & ~has:
                continue
            if not stride or distance % stride + size <= limit:
                return True
        return False

    def _read(self, address: int, size: int) -> int:
        return int.from_bytes(ctypes.string_at(address, size), "little")

    def _write(self, address: int, value: int, size: int) -> None:
        ctypes.memmove(address, (value & ((1 << 8 * size) - 1)).to_bytes(size, "little"), size)

    def _store_register(self, image: Image, index: int, i: Instruction, r: list[int]) -> None:
        size = i.size_bytes
        mask = (1 << 8 * size) - 1
        if i.opcode & 0xE0 == ATOMIC and i.imm == LOAD_ACQ:
            r[i.dst] = self._read(self._allowed(image, index, r[i.src], i.offset, size, 0), size)
            return
        address = self._allowed(image, index, r[i.dst], i.offset, size, state.WRITABLE)
        if i.opcode & 0xE0 != ATOMIC or i.imm == STORE_REL:
            self._write(address, r[i.src], size)
            return
        old = self._read(address, size)
        if i.imm == XCHG:
            self._write(address, r[i.src], size)
            r[i.src] = old
        elif i.imm == CMPXCHG:
            if old == r[0] & mask:
                self._write(address, r[i.src], size)
            r[0] = old
        else:
            self._write(address, _FETCHED[i.imm & 0xF0](old, r[i.src]), size)
            if i.imm & FETCH:
                r[i.src] = old

    def _legacy_load(self, image: Image, index: int, i: Instruction, r: list[int]) -> bool:
        """r0 = the big-endian value at packet byte imm (+ src); False where that is outside the packet."""
        context = self._allowed(image, index, r[6], 0, 4, 0)
        offset = i.imm + (signed(r[i.src], 32) if i.opcode & 0xE0 == IND else 0)
        data, end = self._read(context + DATA, 8), self._read(context + DATA_END, 8)
        if offset < 0 or data + offset + i.size_bytes > end:
            return False
        r[0] = swap(self._read(data + offset, i.size_bytes), 8 * i.size_bytes, swapped=True)
        r[1:6] = [0] * 5
        return True

    # Calls

    def _call(self, image: Image, index: int, i: Instruction, r: list[int]) -> None:
        if index in image.program.poisoned:
            raise self._stop(FaultKind.POISONED)
        if i.src == PSEUDO_CALL:
            self._charge(1)
            r[0] = self._enter(image, image.targets[index], r[1:6], r)
        elif i.imm == LOOP:
            r[0] = self._loop(image, r)
        elif i.imm == TAIL_CALL:
            self._arguments(i.imm, r)
            self._tail_call(r)
        else:
            self._arguments(i.imm, r)
            r[0] = self._helpers.call(i.imm, r[1:6])
            self._regions = self.machine.regions()
        r[1:6] = [0] * 5

    def _enter(self, image: Image, entry: int, arguments: list[int], r: list[int]) -> int:
        frame = r[10] - state.FRAME_BYTES
        if frame <= self.machine.get64(state.STACK_BOTTOM):
            raise self._stop(FaultKind.CALL_DEPTH)
        at = self._at
        value = self._function(image, entry, [r[0], *arguments, *r[6:10], frame])
        self._at = at
        return value

    def _loop(self, image: Image, r: list[int]) -> int:
        times, callback, context, flags = r[1] & MASK32, r[2], r[3], r[4]
        if flags:
            return -22 & MASK64
        if times > state.LOOP_LIMIT:
            return -7 & MASK64
        if r[10] - state.FRAME_BYTES <= self.machine.get64(state.STACK_BOTTOM):
            raise self._stop(FaultKind.CALL_DEPTH)
        for turn in range(times):
            self._charge(1)
            if callback not in image.callbacks:
                raise self._stop(FaultKind.CALLBACK)
            if self._enter(image, callback, [turn, context, 0, 0, 0], r):
                return turn + 1
        return times

    def _tail_call(self, r: list[int]) -> None:
        machine = self.machine
        target = self._helpers.program_at(r[2], r[3] & MASK32)
        done = machine.get32(state.TAIL_CALLS)
        if target is not None and done < state.TAIL_CALL_LIMIT:
            machine.put32(state.TAIL_CALLS, done + 1)
            raise _TailCallError(target)

    def _arguments(self, number: int, r: list[int]) -> None:
        wrong = self._helpers.wrong_argument(number, r[1:6], self._inside)
        if wrong:
            raise self._stop(FaultKind.ARGUMENT, argument=wrong)


def interpret(image: Image, machine: Machine) -> Interpreter:
    """Load a program for the interpreter."""
    return Interpreter(image, machine)
