"""The machine that a program runs on: state block, stack, context and packet, at fixed addresses.

All runners work on the same machine, so that after equal runs every byte is equal, pointers included.
"""

import re
import struct
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from flowshunt.errors import InputError
from flowshunt_ebpf.contexts import layout
from flowshunt_ebpf.contexts.layout import MEMORY, XDP, Context
from flowshunt_ebpf.maps.arrays import MAX_PROGRAMS
from flowshunt_ebpf.maps.map import Map
from flowshunt_ebpf.maps.memory import PAGE, GuardedMemory
from flowshunt_ebpf.native import state
from flowshunt_ebpf.native.fault import Fault, FaultKind

if TYPE_CHECKING:
    from flowshunt_ebpf.maps.rings import RingMap
    from flowshunt_ebpf.native.image import Image
    from flowshunt_ebpf.native.verdict import Verdict

HEADROOM: Final = 256
"""Bytes in front of a packet, as in the kernel (XDP_PACKET_HEADROOM)."""
TAILROOM: Final = 320
"""Bytes behind the room for a packet that the kernel keeps for itself (struct skb_shared_info)."""
PACKET_ROOM: Final = PAGE - HEADROOM - TAILROOM
"""Bytes that a packet may have, as in the kernel's test runs, unless the machine is made with more."""
MAX_PACKET_ROOM: Final = 1 << 20
MAX_CPUS: Final = 8192
"""More than any machine has (CONFIG_NR_CPUS); the verifier counts on it."""
DEFAULT_BUDGET: Final = 100_000_000

_INDEX: Final = re.compile("[0-9]{1,3}")
_STATE, _STACK, _CONTEXT, _PACKET, _TABLES = range(5)
_STACK_BYTES: Final = state.FRAME_BYTES * state.FRAMES


class Machine:
    """Memory for runs of one program, or of programs that share maps and tail-call each other.

    Args:
        context: what r1 is.
        maps: the maps that its programs use.
        packet_room: bytes that a packet (or bare memory) may have.
        seed: where get_prandom_u32 starts.
        cpu: what get_smp_processor_id returns, and whose values of per-CPU maps are used.
    """

    def __init__(
        self,
        context: Context = MEMORY,
        maps: Sequence[Map] = (),
        *,
        packet_room: int = PACKET_ROOM,
        seed: int = 1,
        cpu: int = 0,
    ) -> None:
        if not 0 <= packet_room <= MAX_PACKET_ROOM:
            raise InputError(
                f"room for packets of {packet_room} bytes", "machine", f"0 to {MAX_PACKET_ROOM} are possible"
            )
        if not 0 <= cpu < MAX_CPUS:
            raise InputError(f"CPU {cpu}", "machine", f"0 to {MAX_CPUS - 1} are possible")
        self.context = context
        self.maps: tuple[Map, ...] = ()
        self.programs: list[Image] = []
        self._trace: RingMap | None = None
        self.verdicts: list[Verdict | None] = []
        self.packet_room = packet_room
        around = HEADROOM + TAILROOM if context.packet else 0
        self._table_rows = max(64, 4 * len(maps))
        tables = self._table_rows * (state.REGION_BYTES + 8)
        sizes = (state.SIZE, _STACK_BYTES, layout.BEFORE + 256, packet_room + around, tables)
        self.memory = GuardedMemory(*sizes)
        self.address, self.stack_address, before, self.packet_start, self._tables_address = self.memory.addresses
        self.context_address = before + layout.BEFORE
        self._state = self.memory.view(_STATE)
        self.stack = self.memory.view(_STACK)
        self._context = self.memory.view(_CONTEXT)
        self._packet = self.memory.view(_PACKET)
        self._tables = self.memory.view(_TABLES)
        self._versions: tuple[int, ...] | None = None
        self.packet_end = self.packet_start + packet_room + (HEADROOM if context.packet else 0)
        self.put64(state.STACK_TOP, self.stack_address + _STACK_BYTES)
        self.put64(state.STACK_BOTTOM, self.stack_address)
        self.put64(state.REGIONS, self._tables_address)
        self.put64(state.MAPS, self._tables_address + self._table_rows * state.REGION_BYTES)
        self.put64(state.RANDOM, (seed * 0x9E3779B97F4A7C15 | 1) & 0xFFFFFFFFFFFFFFFF)
        self.put32(state.CPU, cpu)
        kind = state.KIND_MEMORY if context is MEMORY else state.KIND_XDP if context is XDP else state.KIND_SKB
        self.put32(state.KIND, kind)
        self._put_region(state.STACK_REGION, (self.stack_address, _STACK_BYTES, 0, 0, True))
        self.set_packet(b"")
        self.attach(maps)

    # The state block

    def get32(self, offset: int) -> int:
        """A 32-bit field of the state block."""
        return int(struct.unpack_from("<I", self._state, offset)[0])

    def put32(self, offset: int, value: int) -> None:
        """Set a 32-bit field of the state block."""
        struct.pack_into("<I", self._state, offset, value)

    def get64(self, offset: int) -> int:
        """A 64-bit field of the state block."""
        return int(struct.unpack_from("<Q", self._state, offset)[0])

    def put64(self, offset: int, value: int) -> None:
        """Set a 64-bit field of the state block."""
        struct.pack_into("<Q", self._state, offset, value & 0xFFFFFFFFFFFFFFFF)

    # Maps

    def attach(self, maps: Sequence[Map]) -> None:
        """Use these maps from now on. Raises InputError for a per-CPU map that has no value for the machine's CPU."""
        for m in maps:
            if m.per_cpu and self.get32(state.CPU) >= max(m.cpus, 1) and m.cpus > 1:
                raise InputError(f"map {m.name} has values for {m.cpus} CPUs", "machine", "make it with more")
        self.maps = tuple(maps)
        self._versions = None
        self.refresh()

    def refresh(self) -> None:
        """Take in what changed in maps of maps. Called before each run."""
        versions = tuple(m.version for m in self.maps)
        if versions == self._versions:
            return
        self._versions = versions
        every = list(dict.fromkeys([*self.maps, *(inner for m in self.maps for inner in m.inner_maps())]))
        regions = [region for m in every for region in m.regions()]
        if len(regions) + state.FIRST_MAP_REGION > self._table_rows or len(every) > self._table_rows:
            raise InputError(
                f"{len(every)} maps", "machine", f"make it with all of them; it has room for {self._table_rows}"
            )
        for row, region in enumerate(regions, state.FIRST_MAP_REGION):
            self._put_region(row, region)
        self.put64(state.REGION_COUNT, len(regions) + state.FIRST_MAP_REGION)
        self.put64(state.MAP_COUNT, len(every))
        first = self._table_rows * state.REGION_BYTES
        for number, m in enumerate(every):
            struct.pack_into("<Q", self._tables, first + 8 * number, m.address)

    def _put_region(self, row: int, region: tuple[int, int, int, int, bool]) -> None:
        base, size, stride, limit, writable = region
        struct.pack_into(
            "<QQIIQ",
            self._tables,
            row * state.REGION_BYTES,
            base,
            size,
            stride,
            limit,
            state.WRITABLE if writable else 0,
        )

    @property
    def packet_region_address(self) -> int:
        """Where the region of the packet is described."""
        return self._tables_address + state.PACKET_REGION * state.REGION_BYTES

    def regions(self) -> list[tuple[int, int, int, int, int]]:
        """What programs may access now: (address, bytes, stride, accessible bytes of each stride, flags)."""
        count = self.get64(state.REGION_COUNT)
        return [struct.unpack_from("<QQIIQ", self._tables, row * state.REGION_BYTES) for row in range(count)]

    def add_program(self, image: "Image", verdict: "Verdict | None" = None) -> int:
        """Let programs tail-call another one; gives its handle, for `ProgramArrayMap.set_handle`.

        Add all before a program that tail-calls is loaded.
        """
        if len(self.programs) == MAX_PROGRAMS:
            raise InputError(f"more than {MAX_PROGRAMS} programs", "machine", "make another machine")
        self.programs.append(image)
        self.verdicts.append(verdict)
        return len(self.programs)

    def start_trace(self) -> None:
        """Keep what trace_printk prints, for `trace`."""
        if self._trace is None:
            from flowshunt_ebpf.maps.rings import trace_ring

            self._trace = trace_ring()
            self.put64(state.TRACE, self._trace.address)

    def trace(self) -> list[str]:
        """What trace_printk printed since the last call."""
        from flowshunt_ebpf.maps.rings import format_trace

        return [format_trace(record) for record in self._trace.drain()] if self._trace is not None else []

    # The packet, or bare memory

    def set_packet(self, data: bytes | bytearray | memoryview, meta: bytes = b"") -> None:
        """Put a packet (or bare memory) in and point the context at it. `meta`: bytes in front of the packet."""
        size = len(data)
        if size > self.packet_room:
            raise InputError(
                f"a packet of {size} bytes", "machine", f"it has room for {self.packet_room}; make one with more"
            )
        if meta and (not self.context.meta or len(meta) > 32 or len(meta) % 4):
            raise InputError(f"{len(meta)} bytes of metadata", "machine", "up to 32, in fours, and only for XDP and TC")
        head = HEADROOM if self.context.packet else 0
        self._packet[head : head + size] = data
        if meta:
            self._packet[head - len(meta) : head] = meta
        start = self.packet_start + head
        self._put_region(state.PACKET_REGION, (start - len(meta), size + len(meta), 0, 0, True))
        if self.context is MEMORY:
            self.put64(state.CONTEXT, start if size else 0)
            self.put64(state.SECOND, size)
            return
        self.put64(state.CONTEXT, self.context_address)
        self.put64(state.SECOND, 0)
        for offset, value in (
            (layout.HARD_START, self.packet_start),
            (layout.HARD_END, self.packet_end),
            (layout.DATA_META, start - len(meta)),
            (layout.DATA_END, start + size),
            (layout.DATA, start),
        ):
            struct.pack_into("<Q", self._context, layout.BEFORE + offset, value)
        if self.context is not XDP:
            self._describe(bytes(data[:14]), size)

    def _describe(self, start: bytes, size: int) -> None:
        """Set what the kernel derives of a packet: its length, and the protocol in network byte order."""
        if self.context.meta:
            protocol = start[12:14].ljust(2, b"\0")
        else:  # these see packets from the network header on
            protocol = {4: b"\x08\x00", 6: b"\x86\xdd"}.get(start[0] >> 4 if start else 0, b"\0\0")
        struct.pack_into("<I", self._context, layout.BEFORE, size)
        self._context[layout.BEFORE + 16 : layout.BEFORE + 20] = protocol + b"\0\0"
        if self.context.meta:
            struct.pack_into("<I", self._context, layout.BEFORE + 160, size)

    def packet(self) -> bytes:
        """The packet (or bare memory) as it stands."""
        if self.context is MEMORY:
            return bytes(self._packet[: self.get64(state.SECOND)])
        start, end = self._pointer(layout.DATA), self._pointer(layout.DATA_END)
        return bytes(self._packet[start - self.packet_start : end - self.packet_start])

    def meta(self) -> bytes:
        """The packet's metadata as it stands."""
        if self.context is MEMORY:
            return b""
        start, end = self._pointer(layout.DATA_META), self._pointer(layout.DATA)
        return bytes(self._packet[start - self.packet_start : end - self.packet_start]) if start < end else b""

    def _pointer(self, offset: int) -> int:
        return int(struct.unpack_from("<Q", self._context, layout.BEFORE + offset)[0])

    # The context

    def set_context(self, fields: Mapping[str, int]) -> None:
        """Set plain fields of the context by name; `cb` and addresses by name and index, as in `cb[2]`.

        Fields that are not named keep their values. Raises InputError for a name that the context lacks, or a
        value that its field has no room for.
        """
        for name, value in fields.items():
            offset, size = self._field(name)
            bits = 8 * size
            if not -(1 << bits - 1) <= value < 1 << bits:
                raise InputError(f"{name} is {value}", f"context {self.context.name}", f"{bits} bits fit")
            packed = (value & (1 << bits) - 1).to_bytes(size, "little")
            self._context[layout.BEFORE + offset : layout.BEFORE + offset + size] = packed

    def context_field(self, name: str) -> int:
        """A plain field of the context as it stands."""
        offset, size = self._field(name)
        return int.from_bytes(self._context[layout.BEFORE + offset : layout.BEFORE + offset + size], "little")

    def context_bytes(self) -> bytes:
        """The structure as it stands, without its pointers."""
        return bytes(self._context[layout.BEFORE : layout.BEFORE + self.context.size])

    def _field(self, name: str) -> tuple[int, int]:
        base, bracket, index = name.partition("[")
        for field in self.context.fields:
            if field.name == base and field.pointer is None:
                number = index.removesuffix("]")
                at = 0 if not bracket else int(number) if _INDEX.fullmatch(number) else field.count
                if at < field.count:
                    return field.offset + at * field.size, field.size
        known = ", ".join(f.name for f in self.context.fields if f.pointer is None)
        raise InputError(f"no field {name}", f"context {self.context.name}", f"it has: {known}")

    # Runs

    def begin(self, budget: int) -> None:
        """Make ready for a run: no fault, a clear stack, the budget full."""
        self.refresh()
        self.stack[:] = bytes(_STACK_BYTES)
        self.put64(state.BUDGET, min(budget, (1 << 63) - 1))
        self.put32(state.FAULT, 0)
        self.put32(state.FAULT_ARGUMENT, 0)
        self.put64(state.FAULT_PC, 0)
        self.put64(state.FAULT_ADDRESS, 0)
        self.put32(state.TAIL_CALLS, 0)
        self.put64(state.REDIRECT_MAP, 0)
        self.put64(state.REDIRECT_KEY, 0)
        self.put64(state.LOCK_HELD, 0)

    def fault(self, index: int = -1) -> Fault | None:
        """Why the last run was stopped; `index` names the instruction."""
        kind = self.get32(state.FAULT)
        if not kind:
            return None
        kind = FaultKind(kind)
        address = self.get64(state.FAULT_ADDRESS) if kind == FaultKind.ACCESS else 0
        return Fault(kind, index, address, self.get32(state.FAULT_ARGUMENT))
