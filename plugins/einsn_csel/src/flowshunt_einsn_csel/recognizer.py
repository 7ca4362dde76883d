"""Where selects stand: a forward jump over one move (a triangle), or between two moves of one register (a diamond)."""

from collections.abc import Iterator
from typing import Final

from flowshunt.insn import (
    ALU,
    ALU64,
    CONDITIONS,
    JA_K,
    JEQ,
    JGE,
    JGT,
    JLE,
    JLT,
    JMP,
    JMP32,
    JNE,
    JSGE,
    JSGT,
    JSLE,
    JSLT,
    MOV,
    Instruction,
    K,
    X,
)
from flowshunt.payload import Layout
from flowshunt.recognition import Match, View

_JUMPS: Final = tuple(cls | op | form for cls in (JMP, JMP32) for op in CONDITIONS for form in (K, X))
_KINDS: Final = {ALU64 | MOV | X: 0, ALU | MOV | X: 1, ALU64 | MOV | K: 2, ALU | MOV | K: 3}
_INVERSE: Final = {
    JEQ: JNE, JNE: JEQ, JGT: JLE, JLE: JGT, JGE: JLT, JLT: JGE, JSGT: JSLE, JSLE: JSGT, JSGE: JSLT, JSLT: JSGE,
}  # fmt: skip
_REACH: Final = 1 << 17


def recognize(view: View, layout: Layout) -> Iterator[Match]:
    """Every triangle and diamond whose numbers fit the payload."""
    instructions, targets = view.instructions, view.targets
    for index in view.having(*_JUMPS):
        end = targets[index]
        if end == index + 2:
            arm = _arm(instructions[index + 1])
            if arm is not None:
                dst, kind, operand = arm
                yield from _made(view, layout, index, (index, index + 1), dst, (0, dst), (kind, operand))
        elif end == index + 3:
            through = instructions[index + 2]
            other, taken = _arm(instructions[index + 1]), _arm(instructions[end])
            if through.opcode == JA_K and targets[index + 2] == end + 1 and other and taken and other[0] == taken[0]:
                run = tuple(range(index, end + 1))
                yield from _made(view, layout, index, run, other[0], taken[1:], other[1:])


def _arm(i: Instruction) -> tuple[int, int, int] | None:
    """What a move puts where: register, kind, operand; None for anything but a move of a register or small number."""
    kind = _KINDS.get(i.opcode)
    if kind is None or i.offset:
        return None
    operand = i.src if kind < 2 else i.imm
    return (i.dst, kind, operand) if -128 <= operand < 128 else None


def _made(
    view: View,
    layout: Layout,
    index: int,
    run: tuple[int, ...],
    dst: int,
    taken: tuple[int, int],
    other: tuple[int, int],
) -> Iterator[Match]:
    jump = view.instructions[index]
    by_number = not jump.opcode & X
    right = jump.imm if by_number else jump.src
    if not -_REACH <= right < _REACH:
        return
    condition = jump.opcode & 0xF0
    if other == (0, dst) and condition in _INVERSE:
        condition, taken, other = _INVERSE[condition], other, taken
    yield Match(
        run,
        layout.encode(
            dst=dst,
            left=jump.dst,
            condition=condition >> 4,
            wide=int(jump.opcode & 7 == JMP),
            by_number=int(by_number),
            right=right,
            taken_kind=taken[0],
            taken=taken[1],
            other_kind=other[0],
            other=other[1],
        ),
    )
