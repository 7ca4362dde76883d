"""Sets of what can be live, as integers: one bit for each half of a register and each byte of the stack frame.

bits 0-21     register r's low 32 bits at 2 r, its upper 32 bits at 2 r + 1
bits 22-533   the frame's bytes, from r10 - 512 up to r10 - 1
"""

from typing import Final

STACK_BYTES: Final = 512
_STACK_SHIFT: Final = 22

NOTHING: Final = 0
ALL_REGISTERS: Final = (1 << _STACK_SHIFT) - 1
WHOLE_STACK: Final = ((1 << STACK_BYTES) - 1) << _STACK_SHIFT


def low(register: int) -> int:
    """The set that holds the low 32 bits of a register."""
    return 1 << 2 * register


def upper(register: int) -> int:
    """The set that holds the upper 32 bits of a register."""
    return 2 << 2 * register


def whole(register: int) -> int:
    """The set that holds both halves of a register."""
    return 3 << 2 * register


def stack(offset: int, size: int) -> int:
    """The set that holds the frame's bytes [r10 + offset, r10 + offset + size), as far as they lie in the frame."""
    first = max(offset, -STACK_BYTES)
    end = min(offset + size, 0)
    if end <= first:
        return 0
    return ((1 << (end - first)) - 1) << (_STACK_SHIFT + STACK_BYTES + first)


def registers(live: int) -> frozenset[int]:
    """The registers of which any half is in a set."""
    return frozenset(r for r in range(11) if live >> 2 * r & 3)


def stack_bytes(live: int) -> frozenset[int]:
    """The offsets from r10 (-512 to -1) of the frame's bytes in a set."""
    bits = live >> _STACK_SHIFT
    return frozenset(n - STACK_BYTES for n in range(STACK_BYTES) if bits >> n & 1)


def describe(live: int) -> str:
    """A set in words, such as "r0 w3 r10 fp-16..-9": w for a low half alone, u for an upper half alone."""
    words = []
    for register in range(11):
        halves = live >> 2 * register & 3
        if halves:
            words.append(f"{' wur'[halves]}{register}")
    offsets = sorted(stack_bytes(live))
    while offsets:
        first = last = offsets.pop(0)
        while offsets and offsets[0] == last + 1:
            last = offsets.pop(0)
        words.append(f"fp{first}" if first == last else f"fp{first}..{last}")
    return " ".join(words)
