"""Ring buffers, perf event arrays and the trace, as Python sees them."""

import re
import struct
from collections.abc import Callable, Sequence
from typing import Any

from flowshunt_ebpf.maps import header as h
from flowshunt_ebpf.maps.map import Map
from flowshunt_ebpf.program import MapDefinition, MapType

EVENTS_BYTES = 1 << 18
"""Room for the events of a perf event array, or of the trace, between two drains."""

_BUSY, _READY = 0, 1


class RingMap(Map):
    """Records from programs to Python, in order.

    Attributes:
        on_records: called by `drain` with the records, a list of bytes; None: they are only returned.
    """

    on_records: Callable[[list[bytes]], None] | None = None

    def check(self) -> None:
        """The size is a power of two, and there are no keys or values."""
        d = self.definition
        if d.key_size or d.value_size or d.max_entries < 64 or d.max_entries & (d.max_entries - 1):
            raise self.wrong(
                f"its size is {d.max_entries} bytes", "a power of two from 64 on; key and value sizes are 0"
            )

    @property
    def room(self) -> int:
        """Bytes that records may take."""
        return self.definition.max_entries

    def layout(self) -> Sequence[int]:
        """Data twice over, then the records' places."""
        self.stride = 0
        self.records = max(8, self.room // 16)
        return 2 * self.room, 16 * self.records

    def start(self) -> None:
        """Start empty."""
        self.put32(h.MAX_ENTRIES, self.room)
        self.put64(h.RECORDS, self.memory.addresses[2])
        self.put32(h.RECORD_MASK, self.records - 1)
        self._records = self.memory.view(2)
        self._appended: list[bytes] = []

    def regions(self) -> list[tuple[int, int, int, int, bool]]:
        """Programs write reserved records, wherever in the data they lie."""
        return [(self.values_address, self.values_bytes, 0, 0, True)]

    def append(self, records: Sequence[bytes]) -> None:
        """Put records in that a program wrote elsewhere: in the kernel. They take no room from programs here."""
        self._appended += records

    def drain(self) -> list[bytes]:
        """Take all records that are complete, up to the first that is not, and hand them to `on_records`."""
        taken, self._appended = self._appended, []
        number, end = self.get64(h.RECORD_TAIL), self.get64(h.RECORD_HEAD)
        tail = self.get64(h.TAIL)
        while number < end:
            position, size, state = struct.unpack_from("<QII", self._records, 16 * (number & (self.records - 1)))
            if state == _BUSY:
                break
            if state == _READY and position + size <= self.values_bytes:
                taken.append(bytes(self.values_view[position : position + size]))
            tail += (size + 8 + 7) & ~7
            number += 1
        self.put64(h.RECORD_TAIL, number)
        self.put64(h.TAIL, tail)
        if taken and self.on_records is not None:
            self.on_records(taken)
        return taken

    @property
    def lost(self) -> int:
        """Records for which there was no room."""
        return self.get64(h.LOST)

    def clear(self) -> None:
        """Empty it."""
        self.drain()

    def __len__(self) -> int:
        return len(self._appended) + self.get64(h.RECORD_HEAD) - self.get64(h.RECORD_TAIL)


class EventsMap(RingMap):
    """A perf event array: one ring for all CPUs."""

    def check(self) -> None:
        """Keys and values are as the kernel has them; they name no event here."""

    @property
    def room(self) -> int:
        """Bytes that records may take."""
        return EVENTS_BYTES

    def regions(self) -> list[tuple[int, int, int, int, bool]]:
        """Programs don't reach its data."""
        return []


def trace_ring() -> RingMap:
    """The ring that trace_printk writes to."""
    return RingMap(MapDefinition("trace", MapType.RINGBUF, 0, 0, EVENTS_BYTES))


_DIRECTIVE = re.compile(r"%(?:(%)|-?#?0?\d*(?:\.\d+)?(hh|h|ll|l|z)?([diuxXpsc])|(p[a-zA-Z0-9]*))")


def format_trace(record: bytes) -> str:
    """The text of a record of the trace: C's format, with up to three arguments. Strings are shown as addresses."""
    arguments = list(struct.unpack_from("<3Q", record))
    text = record[24:].split(b"\0", 1)[0].decode(errors="replace")

    def fill(found: re.Match[str]) -> str:
        if found[1]:
            return "%"
        value = arguments.pop(0) if arguments else 0
        bits = 64 if found[2] in ("ll", "l", "z") or found[3] in ("p", "s", None) else 32
        value &= (1 << bits) - 1
        if found[3] in ("d", "i"):
            return str(value - (1 << bits) if value >> (bits - 1) else value)
        if found[3] == "u":
            return str(value)
        if found[3] == "c":
            return chr(value & 0xFF)
        shown = f"{value:x}" if found[3] in ("x", "X") else f"{value:#x}"
        return shown.upper() if found[3] == "X" else shown

    return _DIRECTIVE.sub(fill, text)


RINGS: dict[int, Any] = {MapType.RINGBUF: RingMap, MapType.PERF_EVENT_ARRAY: EventsMap}
