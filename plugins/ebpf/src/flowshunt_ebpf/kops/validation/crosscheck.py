"""Cross-check of a proof: machine code and proof sequence run on the same concrete states, and compared.

The proof sequence runs by the interpreter's arithmetic, the machine code in Unicorn and, where it is this machine's, on
its own processor. Nothing of the terms that proofs are made of takes part.
"""

import platform
import random
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

import attrs

from flowshunt.insn import JA, JMP, JMP32, LD_IMM64, LDX, MEMSX, ST, STX, Instruction, X
from flowshunt.operation import Disjoint
from flowshunt_ebpf.kops.validation.obligations import host_names
from flowshunt_ebpf.kops.validation.processors import BUFFER_BYTES, HostProcessor, Outcome, UnicornProcessor
from flowshunt_ebpf.native import assembler
from flowshunt_ebpf.native.host import features as host_features
from flowshunt_ebpf.native.semantics import MASK64, arithmetic, holds, signed
from flowshunt_ebpf.program import NativeForm

EDGES: Final = (
    0, 1, 2, 7, 8, 31, 32, 33, 63, 64, 0x7F, 0x80, 0xFF, 0x100, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000,
    0xFFFFFFFF, 1 << 32, (1 << 63) - 1, 1 << 63, MASK64, MASK64 - 1, 0xFFFFFFFF80000000, 0x0123456789ABCDEF,
)  # fmt: skip
_MIDDLE: Final = BUFFER_BYTES // 2


@attrs.frozen
class CrossCheck:
    """How many states were compared on each processor, and the first difference, in words; empty: none."""

    unicorn: int = 0
    host: int = 0
    difference: str = ""


class _OutsideError(Exception):
    """An access outside of the buffer: the state is no fair one."""


def cross_check(
    sequence: Sequence[Instruction],
    form: NativeForm,
    clobbers: int,
    disjoint: Sequence[Disjoint] = (),
    states: int = 24,
) -> CrossCheck:
    """Compare a native form with its proof sequence on edge values and random ones. Raises CapabilityError."""
    unicorn = _unicorn(form.architecture)
    runs = 0
    for values, content in _states(sequence, unicorn.buffer, disjoint, states):
        found = unicorn.run(form.code, _placed(form.architecture, values), content)
        if isinstance(found, str):
            return CrossCheck(runs, 0, f"Unicorn stopped the machine code: {found}")
        if wrong := _difference(sequence, form, clobbers, values, content, unicorn.buffer, found):
            return CrossCheck(runs, 0, f"in Unicorn {wrong}")
        runs += 1
    on_host = 0
    if _host_runs(form):
        host = _host()
        run = host.load(form.code)
        for values, content in _states(sequence, host.buffer, disjoint, states):
            found = run(_placed(form.architecture, values), content)
            if wrong := _difference(sequence, form, clobbers, values, content, host.buffer, found):
                return CrossCheck(runs, on_host, f"on this machine {wrong}")
            on_host += 1
    return CrossCheck(runs, on_host)


@lru_cache(maxsize=2)
def _unicorn(architecture: str) -> UnicornProcessor:
    return UnicornProcessor(architecture)


@lru_cache(maxsize=1)
def _host() -> HostProcessor:
    return HostProcessor()


def _host_runs(form: NativeForm) -> bool:
    machine = platform.machine().lower()
    return form.architecture == assembler.X86_64 and machine in ("x86_64", "amd64") and form.features <= host_features()


def _placed(architecture: str, values: Sequence[int]) -> dict[str, int]:
    """A state of the host's registers; those that are none of eBPF's have values of their own."""
    others = {"r9": 0x1111, "r10": 0x2222, "r11": 0x3333, "r12": 0x4444} if architecture == assembler.X86_64 else {}
    return {**others, **dict(zip(host_names(architecture), values, strict=True))}


def _difference(
    sequence: Sequence[Instruction],
    form: NativeForm,
    clobbers: int,
    values: Sequence[int],
    content: bytes,
    buffer: int,
    found: Outcome,
) -> str:
    registers, memory = list(values), bytearray(content)
    run_concretely(sequence, registers, memory, buffer)
    given = ", ".join(f"r{number} = {value:#x}" for number, value in enumerate(values))
    for number, name in enumerate(host_names(form.architecture)):
        if not clobbers >> number & 1 and registers[number] != found.values[name]:
            return f"r{number} becomes {found.values[name]:#x}, not {registers[number]:#x} (with {given})"
    if bytes(memory) != found.memory:
        at = next(n for n in range(BUFFER_BYTES) if memory[n] != found.memory[n])
        return f"the byte at {buffer + at:#x} becomes {found.memory[at]:#x}, not {memory[at]:#x} (with {given})"
    return ""


def run_concretely(sequence: Sequence[Instruction], registers: list[int], memory: bytearray, buffer: int) -> None:
    """Run forward-jumping eBPF on values, in place. Raises _OutsideError for an access outside of the buffer."""
    starts, slot = {}, 0
    for index, i in enumerate(sequence):
        starts[slot] = index
        slot += i.slots
    starts[slot] = len(sequence)
    slots = {index: slot for slot, index in starts.items()}
    index = 0
    while index < len(sequence):
        i = sequence[index]
        index += 1
        if i.cls in (JMP, JMP32):
            other = registers[i.src] if i.opcode & X else i.imm
            if i.op == JA or holds(i.op, registers[i.dst], other, wide=i.cls == JMP):
                distance = i.imm if i.op == JA and i.cls == JMP32 else i.offset
                index = starts[slots[index] + distance]
        elif i.cls in (LDX, ST, STX):
            at = (registers[i.src if i.cls == LDX else i.dst] + i.offset - buffer) & MASK64
            size = i.size_bytes
            if at + size > BUFFER_BYTES:
                raise _OutsideError
            if i.cls == LDX:
                value = int.from_bytes(memory[at : at + size], "little")
                registers[i.dst] = signed(value, 8 * size) & MASK64 if i.mode == MEMSX else value
            else:
                value = (registers[i.src] if i.cls == STX else i.imm) & ((1 << 8 * size) - 1)
                memory[at : at + size] = value.to_bytes(size, "little")
        elif i.opcode == LD_IMM64:
            registers[i.dst] = i.imm & MASK64
        else:
            registers[i.dst] = arithmetic(i, registers[i.dst], registers[i.src])


def _states(
    sequence: Sequence[Instruction], buffer: int, disjoint: Sequence[Disjoint], count: int
) -> list[tuple[list[int], bytes]]:
    """States on which the proof sequence stays in the buffer and assumptions hold: its pointers point into it."""
    spans = _spans(sequence)
    chosen = random.Random(len(sequence))
    states: list[tuple[list[int], bytes]] = []
    for attempt in range(4 * count):
        values = [chosen.choice(EDGES) if chosen.random() < 0.6 else chosen.getrandbits(64) for _ in range(11)]
        near = attempt % 3 == 0
        for register, (low, high) in spans.items():
            room = max(1, min(96, _MIDDLE - (high - low))) if near else max(1, BUFFER_BYTES - (high - low))
            values[register] = (buffer + chosen.randrange(room) + (_MIDDLE // 2 if near else 0) - low) & MASK64
        content = chosen.randbytes(BUFFER_BYTES)
        if not all(_holds(pair, values) for pair in disjoint):
            continue
        try:
            run_concretely(sequence, list(values), bytearray(content), buffer)
        except _OutsideError:
            continue
        states.append((values, content))
        if len(states) == count:
            break
    return states


def _holds(pair: Disjoint, values: Sequence[int]) -> bool:
    first, second = values[pair.first] + pair.first_offset, values[pair.second] + pair.second_offset
    return (first - second) & MASK64 >= pair.size and (second - first) & MASK64 >= pair.size


def _spans(sequence: Sequence[Instruction]) -> Mapping[int, tuple[int, int]]:
    """By register that memory is accessed through: the least and the greatest offset."""
    spans: dict[int, tuple[int, int]] = {}
    for i in sequence:
        if i.cls in (LDX, ST, STX):
            base = i.src if i.cls == LDX else i.dst
            low, high = spans.get(base, (i.offset, i.offset))
            spans[base] = min(low, i.offset), max(high, i.offset + i.size_bytes)
    return spans
