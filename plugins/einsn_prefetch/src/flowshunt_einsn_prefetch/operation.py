"""Prefetch: memory that is read a little later is asked for as soon as its address is known."""

from collections.abc import Iterator, Sequence
from typing import Final

from flowshunt.host_registers import HostRegisters
from flowshunt.insn import ALU, ALU64, ATOMIC, CALL_K, LD_IMM64, LDX, MEM, R10, STX, Instruction, ja
from flowshunt.operation import ExtendedOperation, NativeEmit
from flowshunt.payload import Layout, Values, signed, source
from flowshunt.recognition import Match, View

LAYOUT: Final = Layout(source("base"), signed("offset", 16))

DISTANCE: Final = 6
"""Instructions that must lie between the address and its first use, so that there is time to gain."""
_LINE: Final = 64


def proof(v: Values) -> Sequence[Instruction]:
    """A jump to the next instruction: a prefetch changes nothing and never faults."""
    return (ja(0),)


def prefetcht0(v: Values, register: HostRegisters) -> str:
    """x86-64."""
    return f"prefetcht0 byte ptr [{register(v.base)}{v.offset:+d}]"


def prfm(v: Values, register: HostRegisters) -> str:
    """ARM64: the start of the line, or near it where the offset is no multiple of 8."""
    if 0 <= v.offset < 32760:
        return f"prfm pldl1keep, [{register(v.base)}, #{v.offset & -8}]"
    return f"prfum pldl1keep, [{register(v.base)}, #{v.offset}]" if -256 <= v.offset < 0 else ""


def recognize(view: View) -> Iterator[Match]:
    """The first read through each address that has been known for a while: a map's value, a packet's header."""
    seen: set[tuple[int, int, int]] = set()
    for index, i in enumerate(view.instructions):
        if i.opcode & 7 != LDX or i.opcode & 0xE0 != MEM or i.src == R10:
            continue
        start, _ = view.run_of(index)
        address = view.src_definition(index)
        line = (start, view.src_value(index), i.offset // _LINE)
        if line in seen:
            continue
        seen.add(line)
        at = address + 1 if address >= 0 else start
        if index - at < DISTANCE or (address >= 0 and not _pointer(view, address)):
            continue
        if address < 0 and start == 0 and ~address == 1:  # the context is warm
            continue
        yield Match((), LAYOUT.encode(base=i.src, offset=i.offset), at=at)


def _pointer(view: View, definition: int) -> bool:
    """Whether an instruction gives an address that may be cold: not one of the stack, of the context or of a map."""
    i = view.instructions[definition]
    if i.opcode & 7 in (ALU, ALU64):
        return view.src_value(definition) != ~R10 and view.dst_value(definition) != ~R10
    return (
        i.opcode == CALL_K
        or (i.opcode & 7 == LDX and i.src != R10)
        or not (i.opcode == LD_IMM64 or (i.opcode & 7 == STX and i.opcode & 0xE0 == ATOMIC))
    )


OPERATION = ExtendedOperation(
    name="prefetch",
    summary="prefetch: ask early for memory that is read a little later",
    layout=LAYOUT,
    proof=proof,
    recognizer=recognize,
    emits={"x86_64": (NativeEmit(prefetcht0),), "arm64": (NativeEmit(prfm),)},
    max_instructions=1,
    max_bytes=8,
)
