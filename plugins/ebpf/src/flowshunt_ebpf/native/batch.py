"""Many frames with one call from Python: a native loop sets the context, runs the program and takes its results."""

from typing import Any, Final, cast

import attrs
import numpy as np
from numpy.typing import NDArray

from flowshunt.errors import InputError
from flowshunt.packets.batch import FrameBatch
from flowshunt_ebpf.contexts.layout import MEMORY
from flowshunt_ebpf.maps.map import Map
from flowshunt_ebpf.maps.rings import RingMap
from flowshunt_ebpf.native import state
from flowshunt_ebpf.native.batch_kernel import run_frames
from flowshunt_ebpf.native.host import HostProgram
from flowshunt_ebpf.native.machine import DEFAULT_BUDGET, HEADROOM

PACKET_WRITERS: Final = frozenset({9, 10, 11, 38, 43, 54, 190})
"""Helpers that write to the packet."""


@attrs.frozen(eq=False)
class Record:
    """Bytes of a map's value that the program fills in for each frame, such as a descriptor.

    Attributes:
        map: an array map, such as the program's .bss.
        offset, size: bytes of its values, from the first one's start.
    """

    map: Map
    offset: int
    size: int


@attrs.frozen(eq=False)
class BatchOutcome:
    """What a program made of n frames.

    Attributes:
        value: uint64[n], r0.
        start: int32[n], where the packet started afterwards, from where it started before (adjusted heads).
        length: uint32[n], bytes of the packet afterwards.
        redirect: uint32[n], the target of the last redirect; 0: none.
        fault: uint8[n], a `FaultKind` where the run was stopped; 0: it came to its end. Its value is 0 then.
        record: uint8[n, size], the record as each frame left it; size 0 without one.
        packets: uint8[m], the packets afterwards, one after another; empty unless they were asked for.
        packet_offset: int64[n], where each lies in `packets`.
    """

    value: NDArray[np.uint64]
    start: NDArray[np.int32]
    length: NDArray[np.uint32]
    redirect: NDArray[np.uint32]
    fault: NDArray[np.uint8]
    record: NDArray[np.uint8]
    packets: NDArray[np.uint8]
    packet_offset: NDArray[np.int64]


class BatchDriver:
    """Runs a loaded program over frame batches.

    Args:
        program: the program; its machine's maps keep their contents from frame to frame.
        in_place: let the program read frames where they lie, without a copy, head room or tail room. Only for programs
            that don't write to packets: one without a verdict is stopped when it tries; one with a verdict needs
            `Verdict.writes_packet` to be False.
        record: bytes to keep for each frame.
        keep_packets: also give the packets as they are afterwards.
        budget: for each frame.
    """

    def __init__(
        self,
        program: HostProgram,
        *,
        in_place: bool = False,
        record: Record | None = None,
        keep_packets: bool = False,
        budget: int = DEFAULT_BUDGET,
    ) -> None:
        image = program.image
        if image.context is MEMORY:
            raise InputError("it runs on bare memory", f"program {image.program.name}", "give it a packet context")
        if in_place:
            self._check_in_place(program)
        if record is not None:
            place = record.map.value_address
            if (
                place is None
                or record.offset < 0
                or record.size <= 0
                or record.offset + record.size > record.map.values_bytes
            ):
                raise InputError(
                    f"a record of {record.size} bytes at {record.offset}",
                    f"map {record.map.name}",
                    "name bytes of an array map",
                )
        self.program = program
        self.in_place = in_place
        self.record = record
        self.keep_packets = keep_packets
        self.budget = budget

    @staticmethod
    def _check_in_place(program: HostProgram) -> None:
        image = program.image
        writers = sorted(image.helpers & PACKET_WRITERS)
        if writers:
            raise InputError(
                f"it calls helper {writers[0]}, which writes to packets",
                f"program {image.program.name}",
                "let it have copies",
            )
        if program.verdict is not None and program.verdict.writes_packet:
            raise InputError(
                f"nothing says that it does not write to packets ({program.verdict.verifier})",
                f"program {image.program.name}",
                "let it have copies",
            )

    def run(self, frames: FrameBatch) -> BatchOutcome:
        """Run over the frames of a batch, in order; the context's ingress interface is each frame's port."""
        return self.run_columns(frames.data, frames.offset, frames.captured, frames.port)

    def run_columns(
        self,
        data: NDArray[np.uint8],
        offset: NDArray[np.int64],
        length: NDArray[np.uint32],
        ingress: NDArray[Any] | None = None,
    ) -> BatchOutcome:
        """Run over frames given as columns.

        Args:
            data: uint8[m], contiguous: the buffer that all frames lie in.
            offset: int64[n], where each frame starts.
            length: uint32[n], bytes of each frame.
            ingress: the interface index that each came in by (any unsigned dtype); None: the machine's.

        Raises InputError for a frame that lies outside the buffer or is longer than the machine's room for packets;
        nothing is run then.
        """
        count = len(offset)
        offset = np.ascontiguousarray(offset, np.int64)
        length = np.ascontiguousarray(length, np.uint32)
        self._check_frames(data, offset, length)
        ports = np.ascontiguousarray(ingress, np.uint32) if ingress is not None else np.empty(0, np.uint32)
        record = self.record
        outcome = BatchOutcome(
            np.zeros(count, np.uint64),
            np.zeros(count, np.int32),
            np.zeros(count, np.uint32),
            np.zeros(count, np.uint32),
            np.zeros(count, np.uint8),
            np.zeros((count, record.size if record else 0), np.uint8),
            np.empty(self._room(length) if self.keep_packets else 0, np.uint8),
            np.zeros(count, np.int64),
        )
        machine = self.program.machine
        machine.begin(self.budget)
        place = cast(int, record.map.value_address) + record.offset if record else 0
        settings = np.array(
            [
                self.program.entry_address, machine.address, machine.context_address, data.ctypes.data,
                machine.packet_start, machine.packet_end, HEADROOM, machine.packet_room, int(self.in_place),
                self.budget, place, record.size if record else 0, int(self.keep_packets), machine.packet_region_address,
            ],
            np.int64,
        )  # fmt: skip
        done = 0
        try:
            while done < count:
                done = int(
                    run_frames(
                        settings, done, offset, length, ports, outcome.value, outcome.start, outcome.length,
                        outcome.redirect, outcome.fault, outcome.record.reshape(-1), outcome.packets,
                        outcome.packet_offset,
                    )
                )  # fmt: skip
                self.drain()
        finally:
            machine.set_packet(b"")
        return outcome

    def drain(self) -> None:
        """Hand the records of the machine's rings to their callbacks."""
        machine = self.program.machine
        machine.put32(state.DRAIN, 0)
        for m in machine.maps:
            if isinstance(m, RingMap) and m.on_records is not None:
                m.drain()

    def _check_frames(self, data: NDArray[np.uint8], offset: NDArray[np.int64], length: NDArray[np.uint32]) -> None:
        if not data.flags.c_contiguous or data.dtype != np.uint8 or data.ndim != 1:
            raise InputError(
                "the frames' buffer is no contiguous run of bytes", "batch", "give a one-dimensional uint8 array"
            )
        if len(length) != len(offset):
            raise InputError(f"{len(offset)} offsets, {len(length)} lengths", "batch", "give columns of equal length")
        wide = length.astype(np.int64)
        wrong = np.flatnonzero((offset < 0) | (wide > len(data)) | (offset > len(data) - wide))
        if len(wrong):
            raise InputError(f"frame {wrong[0]} lies outside the buffer", "batch", "check its offset and length")
        if not self.in_place:
            long = np.flatnonzero(wide > self.program.machine.packet_room)
            if len(long):
                room = self.program.machine.packet_room
                raise InputError(
                    f"frame {long[0]} has {wide[long[0]]} bytes; there is room for {room}",
                    "batch",
                    "make the machine with more",
                )

    def _room(self, length: NDArray[np.uint32]) -> int:
        machine = self.program.machine
        return (
            int(len(length) * (machine.packet_end - machine.packet_start))
            if self._grows()
            else int(length.sum(dtype=np.int64))
        )

    def _grows(self) -> bool:
        return bool(self.program.image.helpers & {38, 43, 44, 65}) or 12 in self.program.image.helpers
