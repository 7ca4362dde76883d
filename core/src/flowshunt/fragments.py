"""Action fragments, checked and carried out without native code: the reference for what a fragment does.

`check_fragment` is a small verifier: what passes can neither read nor write outside the descriptor's fields and the
flow's 32 bytes, ends after at most as many steps as it has instructions, and leaves a disposition. `compile_fragment`
turns what passed into rows that the interpreter (`flowshunt.fragment_kernel`) carries out frame by frame.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from flowshunt.action import DESCRIPTOR, OUTPUTS, STATE_BYTES
from flowshunt.errors import ContractError
from flowshunt.insn import (
    ALU,
    ALU64,
    CALL,
    END,
    EXIT,
    JA,
    JMP,
    JMP32,
    JSLE,
    LD_IMM64,
    LDX,
    MEM,
    MOV,
    NEG,
    ST,
    STX,
    Instruction,
    X,
)

MAX_INSTRUCTIONS = 64

DESCRIPTOR_POINTER = 1
STATE_POINTER = 2
_SCRATCH = frozenset({0, 3, 4, 5})


@attrs.frozen
class Outcome:
    """What a fragment does with every frame, where that depends on no frame: the disposition, and the outputs it sets.

    None: the output keeps its value on entry.
    """

    disposition: int
    tx_port: int | None = None
    host_buffer: int | None = None
    deliver: int | None = None


def _fail(index: int, why: str) -> ContractError:
    return ContractError(f"fragment instruction {index}: {why}")


def _check_access(index: int, instruction: Instruction, base: int, *, store: bool) -> None:
    size = instruction.size_bytes
    start, end = instruction.offset, instruction.offset + size
    if instruction.mode != MEM:
        raise _fail(index, f"opcode {instruction.opcode:#04x} is not a plain load or store")
    if base == STATE_POINTER:
        if start < 0 or end > STATE_BYTES:
            raise _fail(index, f"bytes {start}..{end - 1} lie outside the flow's {STATE_BYTES} bytes")
        return
    if base != DESCRIPTOR_POINTER:
        raise _fail(index, f"r{base} is not a pointer; use r1 (descriptor) or r2 (the flow's bytes)")
    if start < 0 or end > DESCRIPTOR.itemsize:
        raise _fail(index, f"bytes {start}..{end - 1} lie outside the descriptor's {DESCRIPTOR.itemsize} bytes")
    if store:
        fields: Mapping[str, Any] = DESCRIPTOR.fields or {}
        if not any(fields[name][1] == start and fields[name][0].itemsize == size for name in OUTPUTS):
            raise _fail(index, f"a store of {size} bytes at {start} is not one of the outputs {sorted(OUTPUTS)}")


def _step(index: int, instruction: Instruction, known: frozenset[int]) -> frozenset[int]:
    """The registers that hold a number after a non-jump instruction; ContractError where it isn't allowed."""
    opcode, dst, src = instruction.opcode, instruction.dst, instruction.src
    kind = instruction.cls
    reads: set[int] = set()
    writes: int | None = dst
    if opcode == LD_IMM64:
        if src != 0 or instruction.offset != 0:
            raise _fail(index, "a 64-bit load of a map, function or BTF id has no meaning in a fragment")
    elif kind == LDX:
        _check_access(index, instruction, src, store=False)
    elif kind in (ST, STX):
        _check_access(index, instruction, dst, store=True)
        writes = None
        if kind == STX:
            reads.add(src)
    elif kind in (ALU, ALU64):
        operation = instruction.op
        if operation >= END or instruction.offset != 0:
            raise _fail(index, "only plain arithmetic is allowed (no byte swap, signed division or sign extension)")
        if operation != MOV:
            reads.add(dst)
        if instruction.source == X and operation != NEG:
            reads.add(src)
    else:
        raise _fail(index, f"opcode {opcode:#04x} is not allowed in a fragment")
    if missing := sorted(reads - known):
        pointer = missing[0] in (DESCRIPTOR_POINTER, STATE_POINTER)
        what = "is a pointer: fragments do no arithmetic on it" if pointer else "is read before it is set"
        raise _fail(index, f"r{missing[0]} {what}")
    if writes is None:
        return known
    if writes not in _SCRATCH:
        raise _fail(index, f"r{writes} may not be changed (only r0, r3, r4, r5)")
    return known | {writes}


def _boundaries(fragment: Sequence[Instruction]) -> tuple[dict[int, int], list[int]]:
    """Instruction index by slot (one past the end included), and each instruction's first slot."""
    starts, slot = [], 0
    for instruction in fragment:
        starts.append(slot)
        slot += instruction.slots
    by_slot = {start: index for index, start in enumerate(starts)}
    by_slot[slot] = len(fragment)
    return by_slot, [*starts, slot]


def check_fragment(fragment: Sequence[Instruction]) -> None:
    """Check the rules of `flowshunt.action`. Raises ContractError naming the instruction and the rule."""
    if not 1 <= len(fragment) <= MAX_INSTRUCTIONS:
        raise ContractError(f"a fragment has 1 to {MAX_INSTRUCTIONS} instructions, this one has {len(fragment)}")
    by_slot, starts = _boundaries(fragment)
    end = len(fragment)
    known: list[frozenset[int] | None] = [None] * (end + 1)
    known[0] = frozenset()

    def reach(target: int, registers: frozenset[int]) -> None:
        before = known[target]
        known[target] = registers if before is None else before & registers

    for index, instruction in enumerate(fragment):
        registers = known[index]
        if registers is None:
            raise _fail(index, "can't be reached")
        if instruction.cls not in (JMP, JMP32):
            reach(index + 1, _step(index, instruction, registers))
            continue
        operation = instruction.op
        if operation in (CALL, EXIT) or operation > JSLE:
            raise _fail(index, "calls and exits are not allowed: a fragment falls off its end")
        if operation == JA and instruction.cls == JMP32:
            raise _fail(index, "the long jump is not allowed in a fragment")
        if operation != JA:
            used = {instruction.dst} | ({instruction.src} if instruction.source == X else set())
            if missing := sorted(used - registers):
                raise _fail(index, f"r{missing[0]} is compared but is a pointer or not set")
        target = by_slot.get(starts[index + 1] + instruction.offset)
        if instruction.offset < 0 or target is None:
            raise _fail(index, "a jump must go forward, to an instruction or just past the last")
        reach(target, registers)
        if operation != JA:
            reach(index + 1, registers)
    final = known[end]
    if final is None or 0 not in final:
        raise ContractError("a fragment must set r0 (the disposition) on every way to its end")


def compile_fragment(fragment: Sequence[Instruction]) -> NDArray[np.int64]:
    """Check a fragment and give int64[n, 5] for the interpreter: opcode, dst, src, offset or jump target, immediate."""
    check_fragment(fragment)
    by_slot, starts = _boundaries(fragment)
    rows = np.empty((len(fragment), 5), np.int64)
    for index, instruction in enumerate(fragment):
        jump = instruction.cls in (JMP, JMP32)
        place = by_slot[starts[index + 1] + instruction.offset] if jump else instruction.offset
        immediate = instruction.imm & (1 << 64) - 1
        immediate -= (immediate >> 63) << 64
        rows[index] = (instruction.opcode, instruction.dst, instruction.src, place, immediate)
    return rows


def run_fragment(
    fragment: Sequence[Instruction], descriptors: NDArray[np.void], states: NDArray[np.uint8]
) -> NDArray[np.uint8]:
    """Carry a fragment out on DESCRIPTOR[n] and uint8[n, 32], both changed in place. Returns the dispositions."""
    from flowshunt.fragment_kernel import run_fragments

    code = compile_fragment(fragment)
    count = len(descriptors)
    disposition = np.zeros(count, np.uint8)
    bounds = np.array([0, len(code)], np.int64)
    rows = np.arange(count, dtype=np.int32)
    memory = descriptors.view(np.uint8).reshape(count, DESCRIPTOR.itemsize)
    run_fragments(code, bounds, np.zeros(count, np.int64), memory, states, 0, rows, disposition)
    return disposition


def constant_outcome(fragment: Sequence[Instruction]) -> Outcome | None:
    """The one outcome of a fragment that reads nothing, so that no frame needs it carried out; else None."""
    if any(instruction.cls == LDX for instruction in fragment):
        return None
    if any(instruction.cls in (ST, STX) and instruction.dst == STATE_POINTER for instruction in fragment):
        return None
    probes = np.zeros(2, DESCRIPTOR)
    for name in OUTPUTS:
        probes[name] = (0, np.iinfo(probes[name].dtype).max)
    entry = probes.copy()
    states = np.zeros((2, STATE_BYTES), np.uint8)
    disposition = run_fragment(fragment, probes, states)

    def output(name: str) -> int | None:
        kept = bool((probes[name] == entry[name]).all())
        return None if kept else int(probes[name][0])

    return Outcome(int(disposition[0]), output("tx_port"), output("host_buffer"), output("deliver"))
