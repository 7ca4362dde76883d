"""The interpreter of checked action fragments, as a compiled kernel."""

from typing import Any

import numpy as np
from numba import types

from flowshunt.compiled import column, kernel, matrix

_MASK32 = np.uint64(0xFFFFFFFF)


@kernel(types.uint64(matrix(np.uint8), types.int64, types.int64, types.int64), inline=True)
def _load(memory: Any, row: Any, start: Any, size: Any) -> Any:
    value = np.uint64(0)
    for k in range(size):
        value |= np.uint64(memory[row, start + k]) << np.uint64(8 * k)
    return value


@kernel(types.void(matrix(np.uint8), types.int64, types.int64, types.int64, types.uint64), inline=True)
def _store(memory: Any, row: Any, start: Any, size: Any, value: Any) -> Any:
    for k in range(size):
        memory[row, start + k] = np.uint8((value >> np.uint64(8 * k)) & np.uint64(0xFF))


@kernel(types.uint64(types.int64, types.uint64, types.uint64, types.boolean), inline=True)
def _arithmetic(operation: Any, left: Any, right: Any, narrow: Any) -> Any:
    bits = np.uint64(31) if narrow else np.uint64(63)
    if narrow:
        left &= _MASK32
        right &= _MASK32
    value = left
    if operation == 0x00:
        value = left + right
    elif operation == 0x10:
        value = left - right
    elif operation == 0x20:
        value = left * right
    elif operation == 0x30:
        value = np.uint64(0) if right == 0 else left // right
    elif operation == 0x40:
        value = left | right
    elif operation == 0x50:
        value = left & right
    elif operation == 0x60:
        value = left << (right & bits)
    elif operation == 0x70:
        value = left >> (right & bits)
    elif operation == 0x80:
        value = np.uint64(0) - left
    elif operation == 0x90:
        value = left if right == 0 else left % right
    elif operation == 0xA0:
        value = left ^ right
    elif operation == 0xB0:
        value = right
    elif operation == 0xC0:
        signed = np.int64(np.int32(np.uint32(left))) if narrow else np.int64(left)
        value = np.uint64(signed >> np.int64(right & bits))
    return value & _MASK32 if narrow else value


@kernel(types.boolean(types.int64, types.uint64, types.uint64, types.boolean), inline=True)
def _compare(operation: Any, left: Any, right: Any, narrow: Any) -> Any:
    if narrow:
        left &= _MASK32
        right &= _MASK32
        signed_left = np.int64(np.int32(np.uint32(left)))
        signed_right = np.int64(np.int32(np.uint32(right)))
    else:
        signed_left = np.int64(left)
        signed_right = np.int64(right)
    if operation == 0x10:
        return left == right
    if operation == 0x20:
        return left > right
    if operation == 0x30:
        return left >= right
    if operation == 0x40:
        return (left & right) != 0
    if operation == 0x50:
        return left != right
    if operation == 0x60:
        return signed_left > signed_right
    if operation == 0x70:
        return signed_left >= signed_right
    if operation == 0xA0:
        return left < right
    if operation == 0xB0:
        return left <= right
    if operation == 0xC0:
        return signed_left < signed_right
    if operation == 0xD0:
        return signed_left <= signed_right
    return True


@kernel(
    types.void(
        matrix(np.int64),
        column(np.int64),
        column(np.int64),
        matrix(np.uint8),
        matrix(np.uint8),
        types.int64,
        column(np.int32),
        column(np.uint8),
    ),
    allocates=True,
)
def run_fragments(
    code: Any, bounds: Any, which: Any, descriptors: Any, memory: Any, state_offset: Any, slots: Any, disposition: Any
) -> None:
    """Carry out, for each frame in order, the fragment that its flow has. Only for code that passed the check.

    code: int64[m, 5], the fragments of `compile_fragment` one after the other; bounds: int64[f + 1], where each
    starts and ends; which: int64[n], each frame's fragment; descriptors: uint8[n, 48]; memory: uint8[c, s] with the
    flow's bytes at column `state_offset` of row `slots[i]`; disposition: uint8[n], the result.
    """
    registers = np.zeros(6, np.uint64)
    for i in range(len(which)):
        first = bounds[which[i]]
        last = bounds[which[i] + 1]
        slot = np.int64(slots[i])
        for k in range(6):
            registers[k] = np.uint64(0)
        at = first
        while at < last:
            opcode = code[at, 0]
            dst = code[at, 1]
            src = code[at, 2]
            place = code[at, 3]
            immediate = np.uint64(code[at, 4])
            kind = opcode & 7
            size_bits = opcode & 0x18
            size = 4
            if size_bits == 0x08:
                size = 2
            elif size_bits == 0x10:
                size = 1
            elif size_bits == 0x18:
                size = 8
            at += 1
            if kind == 0:
                registers[dst] = immediate
            elif kind == 1:
                if src == 1:
                    registers[dst] = _load(descriptors, i, place, size)
                else:
                    registers[dst] = _load(memory, slot, state_offset + place, size)
            elif kind in (2, 3):
                value = registers[src] if kind == 3 else immediate
                if dst == 1:
                    _store(descriptors, i, place, size, value)
                else:
                    _store(memory, slot, state_offset + place, size, value)
            else:
                right = registers[src] if opcode & 8 else immediate
                narrow = kind in (4, 6)
                if kind in (4, 7):
                    registers[dst] = _arithmetic(opcode & 0xF0, registers[dst], right, narrow)
                elif _compare(opcode & 0xF0, registers[dst], right, narrow):
                    at = first + place
        disposition[i] = np.uint8(registers[0] & np.uint64(3))
