"""What must hold for an access to memory, by the kind of the pointer.

The rules are those of `check_mem_access` in the kernel's kernel/bpf/verifier.c.
"""

from typing import TYPE_CHECKING, Final

from flowshunt_ebpf.verifier.rejection import UnsafeError
from flowshunt_ebpf.verifier.stack import FRAME_BYTES
from flowshunt_ebpf.verifier.values import (
    KIND_NAMES,
    MAP_KEY,
    MAP_VALUE,
    MEMORY,
    PACKET,
    PACKET_META,
    SCALAR,
    STACK,
    Value,
    describe,
)

if TYPE_CHECKING:
    from flowshunt_ebpf.verifier.map_facts import MapFacts

MAX_OFFSET: Final = 1 << 29
"""A pointer's offsets stay below this (BPF_MAX_VAR_OFF)."""
MAX_PACKET_OFFSET: Final = 0xFFFF
"""Offsets from the packet's start that a comparison with its end says something about."""


def bytes_text(first: int, size: int) -> str:
    """A run of bytes, in words."""
    return f"byte {first}" if size == 1 else f"bytes {first} to {first + size - 1}"


def not_null(register: str, value: Value, use: str) -> None:
    """A pointer may not be null."""
    if value.nullable:
        raise UnsafeError(
            "null",
            f"{use} needs a pointer that is not null",
            f"{register} is {describe(value)}",
            f"compare {register} with 0 first, and go on only where it is not equal",
        )


def packet(register: str, value: Value, offset: int, size: int, use: str) -> None:
    """[offset, offset + size) from a packet or metadata pointer must be proved to be in the packet."""
    variable = value.scalar
    first = value.offset + offset
    if variable.smin < 0:
        raise UnsafeError(
            "packet-bounds",
            f"{use} needs an offset that is not negative",
            f"{register} is {describe(value)}",
            "compare the offset with 0, or mask it",
        )
    if first < 0 or first + size > value.range:
        end = "data_end" if value.kind == PACKET else "data"
        name = "packet" if value.kind == PACKET else "metadata"
        raise UnsafeError(
            "packet-bounds",
            f"{use} needs {bytes_text(first, size)}",
            f"{register} is a {name} pointer with {value.range} bytes proved",
            f"compare {register}{offset + size:+d} with {end} first" if first >= 0 else "start inside the packet",
        )


def region(register: str, value: Value, offset: int, size: int, length: int, use: str) -> tuple[int, int]:
    """[offset, offset + size) from a pointer to `length` bytes must lie inside. Gives the least and greatest start."""
    variable = value.scalar
    fixed = value.offset + offset
    if variable.is_const:
        first = last = fixed + variable.smin
    else:
        first = fixed + variable.smin
        if first < 0:
            raise UnsafeError(
                "bounds",
                f"{use} needs an offset that is not negative",
                f"{register} is {describe(value)}",
                "mask the offset, or compare it as an unsigned number",
            )
        if variable.umax >= MAX_OFFSET:
            raise UnsafeError(
                "bounds",
                f"{use} needs an offset with an upper bound",
                f"{register} is {describe(value)}",
                "compare the offset with the size first, or mask it",
            )
        last = fixed + variable.umax
    if first < 0 or last + size > length:
        where = bytes_text(first, last + size - first) if last + size > first else f"offset {first}"
        raise UnsafeError(
            "bounds",
            f"{use} needs {where}",
            f"{register} is {describe(value)}, which has {length} bytes",
            "stay inside" if variable.is_const else "compare the offset with the size first, or mask it",
        )
    return first, last


def stack(register: str, value: Value, offset: int, size: int, use: str) -> tuple[int, int]:
    """[offset, offset + size) from a stack pointer must lie in its frame. Gives the least and greatest start."""
    variable = value.scalar
    fixed = value.offset + offset
    first, last = fixed + variable.smin, fixed + variable.smax
    if first < -FRAME_BYTES or last + size > 0 or (size == 0 and last > 0):
        raise UnsafeError(
            "stack-bounds",
            f"{use} needs {bytes_text(first, last + size - first)} of the frame, from r10",
            f"{register} is {describe(value)}; a frame has bytes -{FRAME_BYTES} to -1",
            "keep a smaller frame" if first < -FRAME_BYTES else "stay below r10",
        )
    return first, last


def aligned(register: str, value: Value, offset: int, size: int, use: str) -> None:
    """The offset must be a multiple of the access's size."""
    variable = value.scalar
    total = variable.value + value.offset + offset
    if (total | variable.mask) & (size - 1):
        raise UnsafeError(
            "alignment",
            f"{use} needs an offset that is a multiple of {size}",
            f"{register} is {describe(value)}, and {offset} is added",
            "align what is stored there",
        )


def spans(first: int, last: int, size: int, offset: int, length: int) -> bool:
    """Whether an access of `size` bytes that starts between `first` and `last` can touch [offset, offset + length)."""
    return first < offset + length and last + size > offset


def map_value(register: str, value: Value, offset: int, size: int, write: bool, use: str) -> None:
    """The access must lie inside the map's value, off its lock, and the map must allow it."""
    facts: MapFacts = value.of
    first, last = region(register, value, offset, size, facts.value_size, use)
    if write and facts.read_only:
        raise UnsafeError(
            "read-only", f"{use} needs a map that programs may write", f"{facts.name} is read-only for programs"
        )
    if not write and facts.write_only:
        raise UnsafeError(
            "write-only", f"{use} needs a map that programs may read", f"{facts.name} is write-only for programs"
        )
    for name, at, length in facts.special:
        if size and spans(first, last, size, at, length):
            raise UnsafeError(
                "special-field",
                f"{use} may not touch the {name} in bytes {at} to {at + length - 1}",
                f"{register} is {describe(value)}",
                "use the helpers that are made for it",
            )


def check(register: str, value: Value | None, offset: int, size: int, write: bool, use: str) -> tuple[int, int]:
    """An access by pointer, but for those to the context and sockets. Gives the least and greatest offset on the stack.

    Raises UnsafeError for what is no pointer to memory.
    """
    if value is None:
        raise UnsafeError("uninitialised", f"{use} needs a pointer", f"{register} is not initialised", "set it first")
    not_null(register, value, use)
    kind = value.kind
    if kind == STACK:
        return stack(register, value, offset, size, use)
    if kind in (PACKET, PACKET_META):
        packet(register, value, offset, size, use)
    elif kind == MAP_VALUE:
        map_value(register, value, offset, size, write, use)
    elif kind == MEMORY:
        region(register, value, offset, size, value.range, use)
        if write and not value.of:
            raise UnsafeError("read-only", f"{use} needs memory that may be written", f"{register} is read-only")
    elif kind == MAP_KEY:
        region(register, value, offset, size, value.range, use)
        if write:
            raise UnsafeError("read-only", f"{use} needs memory that may be written", f"{register} is a map's key")
    else:
        what = describe(value) if kind == SCALAR else KIND_NAMES[kind]
        raise UnsafeError(
            "not-a-pointer",
            f"{use} needs a pointer to memory",
            f"{register} is {what}",
            "use a pointer that was not changed on the way" if kind == SCALAR else "",
        )
    return 0, 0
