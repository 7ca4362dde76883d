"""The pcapng format (draft-ietf-opsawg-pcapng): sections, interfaces, and the kernel that finds the packets.

    block:      type 4 | total length 4 | body, padded to 4 | total length 4
    section:    byte-order magic 4 | major 2 | minor 2 | section length 8 | options        starts anew: no interfaces
    interface:  link type 2 | reserved 2 | snaplen 4 | options                              numbered as they come
    enhanced:   interface 4 | timestamp high 4 | low 4 | captured 4 | original 4 | frame | options
    obsolete:   interface 2 | drops 2 | timestamp high 4 | low 4 | captured 4 | original 4 | frame | options
    simple:     original 4 | frame                                                          interface 0, no timestamp

A section has a byte order of its own. The kernel stops at section and interface blocks, which are read here; blocks of
other types are passed over.
"""

# Chains of comparisons compile faster than membership in a tuple.
# ruff: noqa: PLR1714, SIM109

from typing import Any

import attrs
import numpy as np
from numba import types
from numpy.typing import NDArray

from flowshunt.compiled import BYTES, column, kernel, matrix
from flowshunt.packets.indexing import DAMAGED, FULL, MAX_CAPTURED, MORE, OTHER, Columns, Indexed
from flowshunt.packets.loads import load16, load32_as
from flowshunt.packets.magic import PCAPNG_BYTE_ORDER, PCAPNG_HEADER, PCAPNG_SECTION
from flowshunt.packets.read_ahead import ask_ahead

MAX_BLOCK = 16 << 20
"""The longest block that is accepted, as in libpcap."""
MAX_INTERFACES = 1 << 16

_INTERFACE = 1
_OBSOLETE = 2
_SIMPLE = 3
_ENHANCED = 6

_OPTION_TSRESOL = 9
_OPTION_FCSLEN = 13
_OPTION_TSOFFSET = 14
_OPTION_END = 0
_OPTION_LENGTHS = {_OPTION_TSRESOL: 1, _OPTION_FCSLEN: 1, _OPTION_TSOFFSET: 8}

_NANOSECONDS = 1_000_000_000
_INT64_MAX = (1 << 63) - 1
_UINT64_MAX = (1 << 64) - 1
_MAX_OFFSET = 8_000_000_000
"""Seconds of timestamp offset that are accepted either way, so that sums fit int64."""

# What the kernel knows of an interface: one row of int64.
_LINK, _SNAPLEN, _FCS, _KIND, _FACTOR, _OFFSET, _LIMIT = range(7)
_FIELDS = 7
_MULTIPLY, _DIVIDE, _SHIFT = range(3)

STATE = 2
"""The kernel's memory between calls: the last timestamp, for packets without one; why it stopped."""
BAD_LENGTH, BAD_TRAILER, BAD_INTERFACE, BAD_CAPTURED = 1, 2, 3, 4


@kernel(types.int64(types.uint64, types.int64, types.uint64, types.uint64), entry=False)
def nanoseconds(ticks: Any, kind: int, factor: Any, limit: Any) -> Any:
    """A timestamp in an interface's unit as ns: multiplied, divided, or taken from units of 2**-factor seconds.

    `limit` is the most ticks that fit; later times are given as the last that does.
    """
    ticks = min(ticks, limit)
    if kind == _MULTIPLY:
        return np.int64(ticks * factor)
    if kind == _DIVIDE:
        return np.int64(ticks // factor)
    half = np.uint64(32)
    billion = np.uint64(_NANOSECONDS)
    seconds = np.uint64(0)
    part = ticks
    if factor < np.uint64(64):
        seconds = ticks >> factor
        part = ticks - (seconds << factor)
    if factor <= half:
        part = (part * billion) >> factor
    elif factor < np.uint64(96):
        # In two halves, for the product has up to 94 bits.
        part = (part >> half) * billion + (((part & np.uint64(0xFFFFFFFF)) * billion) >> half)
        part = part >> (factor - half)
    else:
        part = np.uint64(0)
    return np.int64(seconds * billion + part)


@kernel(
    types.UniTuple(types.int64, 3)(
        BYTES,
        types.UniTuple(types.int64, 3),
        types.int64,
        matrix(np.int64),
        types.int64,
        column(np.int64),
        column(np.int64),
        column(np.uint32),
        column(np.uint32),
        column(np.int64),
        column(np.uint16),
        column(np.uint16),
    )
)
def index_blocks(
    data: NDArray[np.uint8],
    bounds: tuple[int, int, int],
    big_endian: int,
    interfaces: NDArray[np.int64],
    interface_count: int,
    memory: NDArray[np.int64],
    offset: NDArray[np.int64],
    captured: NDArray[np.uint32],
    wire: NDArray[np.uint32],
    timestamp: NDArray[np.int64],
    port: NDArray[np.uint16],
    link: NDArray[np.uint16],
) -> tuple[int, int, int]:
    """Walk blocks in `data[start:end]` until the columns are full, `stop` is passed, or a block is not for here.

    `bounds` is (start, end, stop), with 0 <= start and end <= len(data). Returns (frames, position, state).
    """
    at, end, stop = bounds
    count = 0
    asked = at
    while count < offset.size and at < stop:
        room = end - at
        if room < 4:
            return count, at, MORE
        asked = ask_ahead(data, at, asked, end)
        kind = load32_as(data, at, big_endian)
        if kind == PCAPNG_SECTION or kind == _INTERFACE:
            return count, at, OTHER
        if room < 8:
            return count, at, MORE
        length = load32_as(data, at + 4, big_endian)
        if length < 12 or length & 3 or length > MAX_BLOCK:
            memory[1] = BAD_LENGTH
            return count, at, DAMAGED
        if room < length:
            return count, at, MORE
        if load32_as(data, at + length - 4, big_endian) != length:
            memory[1] = BAD_TRAILER
            return count, at, DAMAGED
        if kind == _ENHANCED or kind == _OBSOLETE or kind == _SIMPLE:
            fixed = 16 if kind == _SIMPLE else 32
            if length < fixed:
                memory[1] = BAD_LENGTH
                return count, at, DAMAGED
            interface = 0
            if kind == _ENHANCED:
                interface = load32_as(data, at + 8, big_endian)
            elif kind == _OBSOLETE:
                interface = load16(data, at + 8)
                if big_endian == 0:
                    interface = (interface >> 8) | ((interface & 0xFF) << 8)
            if interface >= interface_count:
                memory[1] = BAD_INTERFACE
                return count, at, DAMAGED
            if kind == _SIMPLE:
                start = at + 12
                original = load32_as(data, at + 8, big_endian)
                kept = min(original, length - fixed)
                snaplen = interfaces[interface, _SNAPLEN]
                if snaplen > 0:
                    kept = min(kept, snaplen)
            else:
                start = at + 28
                kept = load32_as(data, at + 20, big_endian)
                original = load32_as(data, at + 24, big_endian)
                ticks = (load32_as(data, at + 12, big_endian) << 32) | load32_as(data, at + 16, big_endian)
                memory[0] = interfaces[interface, _OFFSET] + nanoseconds(
                    np.uint64(ticks),
                    interfaces[interface, _KIND],
                    np.uint64(interfaces[interface, _FACTOR]),
                    np.uint64(interfaces[interface, _LIMIT]),
                )
            if kept > length - fixed or kept > MAX_CAPTURED:
                memory[1] = BAD_CAPTURED
                return count, at, DAMAGED
            original = max(max(original, kept) - interfaces[interface, _FCS], 0)
            offset[count] = start
            captured[count] = min(kept, original)
            wire[count] = original
            timestamp[count] = memory[0]
            port[count] = interface
            link[count] = interfaces[interface, _LINK]
            count += 1
        at += length
    return count, at, FULL


@attrs.define(eq=False)
class Pcapng:
    """One pcapng file, read from its first section header on."""

    record: str = "block"
    _order: str = "little"
    _interfaces: NDArray[np.int64] = attrs.field(factory=lambda: np.zeros((4, _FIELDS), np.int64))
    _count: int = 0
    _memory: NDArray[np.int64] = attrs.field(factory=lambda: np.zeros(STATE, np.int64))

    def index(self, data: NDArray[np.uint8], start: int, end: int, frames: int, span: int) -> Indexed:
        """See `Format.index`."""
        columns = Columns.empty(frames)
        port, link = np.empty(frames, np.uint16), np.empty(frames, np.uint16)
        total, position, state, damage = 0, start, OTHER, ""
        stop = start + span
        while state == OTHER:
            rest = slice(total, None)
            found, position, state = index_blocks(
                data,
                (position, end, stop),
                int(self._order == "big"),
                self._interfaces,
                self._count,
                self._memory,
                columns.offset[rest],
                columns.captured[rest],
                columns.wire[rest],
                columns.timestamp[rest],
                port[rest],
                link[rest],
            )
            total += found
            if state == DAMAGED:
                damage = self._explain(data, position)
            elif state == OTHER:
                position, state, damage = self._administer(data, position, end)
        return Indexed(columns.batch(data, total, port, link), position, state, damage)

    def _number(self, content: bytes) -> int:
        return int.from_bytes(content, self._order)  # type: ignore[arg-type]

    def _administer(self, data: NDArray[np.uint8], at: int, end: int) -> tuple[int, int, str]:
        """Read the section header or interface description at `at`: (position, state, damage)."""
        if end - at < 12:
            return at, MORE, ""
        order = self._order
        section = int.from_bytes(data[at : at + 4].tobytes(), "little") == PCAPNG_SECTION
        if section:
            magic = data[at + 8 : at + 12].tobytes()
            if PCAPNG_BYTE_ORDER not in (int.from_bytes(magic, "little"), int.from_bytes(magic, "big")):
                return at, DAMAGED, "section header has no byte-order magic"
            order = "little" if int.from_bytes(magic, "little") == PCAPNG_BYTE_ORDER else "big"
        length = int.from_bytes(data[at + 4 : at + 8].tobytes(), order)  # type: ignore[arg-type]
        least = PCAPNG_HEADER if section else 20
        if length < least or length % 4 or length > MAX_BLOCK:
            return at, DAMAGED, f"block states a length of {length} bytes"
        if end - at < length:
            return at, MORE, ""
        block = data[at : at + length].tobytes()
        if block[4:8] != block[-4:]:
            return at, DAMAGED, "block's two lengths differ"
        if section:
            self._order = order
            self._count = 0
            version = self._number(block[12:14])
            if version != 1:
                return at, DAMAGED, f"section has version {version} of the format, which is not known"
        elif self._count >= MAX_INTERFACES:
            return at, DAMAGED, f"section describes more than {MAX_INTERFACES} interfaces"
        else:
            self._add_interface(block)
        return at + length, OTHER, ""

    def _add_interface(self, block: bytes) -> None:
        if self._count == len(self._interfaces):
            self._interfaces = np.concatenate([self._interfaces, np.zeros_like(self._interfaces)])
        options = self._options(block[16:-4])
        offset = int.from_bytes(options.get(_OPTION_TSOFFSET, b""), self._order, signed=True)  # type: ignore[arg-type]
        offset = max(-_MAX_OFFSET, min(offset, _MAX_OFFSET)) * _NANOSECONDS
        kind, factor, limit = _resolution(options.get(_OPTION_TSRESOL, b"\6")[0], _INT64_MAX - max(offset, 0))
        row = self._interfaces[self._count]
        row[_LINK] = self._number(block[8:10])
        row[_SNAPLEN] = self._number(block[12:16])
        row[_FCS] = options.get(_OPTION_FCSLEN, b"\0")[0]
        row[_KIND], row[_FACTOR], row[_OFFSET] = kind, factor, offset
        row.view(np.uint64)[_LIMIT] = limit
        self._count += 1

    def _options(self, content: bytes) -> dict[int, bytes]:
        """The options that matter here, by code; the first counts; those of a wrong length are left out."""
        found: dict[int, bytes] = {}
        at = 0
        while at + 4 <= len(content):
            code, length = self._number(content[at : at + 2]), self._number(content[at + 2 : at + 4])
            value = content[at + 4 : at + 4 + length]
            if code == _OPTION_END or len(value) < length:
                break
            if _OPTION_LENGTHS.get(code) == length:
                found.setdefault(code, value)
            at += 4 + length + -length % 4
        return found

    def _explain(self, data: NDArray[np.uint8], at: int) -> str:
        """What is wrong with the block that the kernel stopped at."""
        block = data[at : at + 32].tobytes()
        kind, length = self._number(block[:4]), self._number(block[4:8])
        reason = int(self._memory[1])
        if reason == BAD_TRAILER:
            return "block's two lengths differ"
        if reason == BAD_INTERFACE:
            interface = 0 if kind == _SIMPLE else self._number(block[8 : 10 if kind == _OBSOLETE else 12])
            return f"packet came in by interface {interface}, which the section does not describe"
        if reason == BAD_CAPTURED:
            captured = self._number(block[8:12] if kind == _SIMPLE else block[20:24])
            return f"packet block of {length} bytes states {captured} captured bytes"
        return f"block states a length of {length} bytes"


def _resolution(option: int, most: int) -> tuple[int, int, int]:
    """The unit that an if_tsresol option states: (kind, factor, the most ticks that stay within `most` ns)."""
    exponent = option & 0x7F
    if option & 0x80:
        return _SHIFT, exponent, min((most << exponent) // _NANOSECONDS, _UINT64_MAX)
    if exponent <= 9:
        factor: int = 10 ** (9 - exponent)
        return _MULTIPLY, factor, most // factor
    if exponent <= 27:
        factor = 10 ** (exponent - 9)
        return _DIVIDE, factor, min(most * factor + factor - 1, _UINT64_MAX)
    return _DIVIDE, 1, 0
